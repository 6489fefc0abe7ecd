"""What the administrator meets on the models page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from skald_core import api as skald

INFO = skald.ModelInfo(context_window=32_768, capabilities=frozenset({"tools"}))


class Config(msgspec.Struct, frozen=True):
    key: Annotated[skald.Secret, skald.setting("config.key", "config.key_help")] = skald.Secret()


class ParleyType(skald.ProviderType):
    id = "parley"
    title = "Parley"
    summary = "plugin.parley.summary"
    fields = (skald.ProviderField(key="base_url", label="plugin.parley.base_url", kind="url", required=True),)

    def __init__(self, ctx: skald.PluginContext) -> None:
        self._ctx = ctx

    def create(self, settings: dict[str, str]) -> skald.Provider:
        from skald_plugin_parley.provider import Parley

        return Parley(self._ctx, settings.get("base_url", ""))

    async def list_models(self, settings: dict[str, str]) -> Sequence[skald.RemoteModel]:
        from skald_plugin_parley.provider import Parley

        names = await Parley(self._ctx, settings.get("base_url", "")).models()
        return [skald.RemoteModel(id=name, title=name, info=INFO) for name in names]
