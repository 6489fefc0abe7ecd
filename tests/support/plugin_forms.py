"""A plugin with every kind of setting, for tests of forms."""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from skald_core import api as skald
from skald_core.plugins.discovery import Discovered
from skald_core.plugins.manifest import Manifest
from skald_core.testing import local_plugin

__all__ = ("TEXTS", "form_plugin", "settings_plugin")

TEXTS = {
    "en": {
        "config.city": "City",
        "config.city.help": "Where you are",
        "config.units": "Units",
        "config.units.metric": "Metric",
        "config.units.imperial": "Imperial",
        "near": "Near",
        "tested": "It works.",
    },
    "it": {"config.city": "Città", "config.units.metric": "Metriche"},
}


class Config(msgspec.Struct, frozen=True):
    city: Annotated[str, skald.setting("config.city", "config.city.help", min_length=2)]
    key: Annotated[skald.Secret, skald.setting("API key")] = skald.Secret()
    days: Annotated[int, skald.setting("Days", ge=1, le=14)] = 3
    units: Annotated[Literal["metric", "imperial"], skald.setting("config.units")] = "metric"
    model: Annotated[str, skald.setting("Model", kind="model")] = ""
    station: Annotated[str, skald.setting("Station", kind="select")] = ""
    notes: Annotated[str, skald.setting("Notes", kind="textarea")] = ""


class UserConfig(msgspec.Struct, frozen=True):
    city: Annotated[str, skald.setting("config.city")] = "Rome"
    token: Annotated[skald.Secret, skald.setting("Token")] = skald.Secret()


def settings_plugin(
    *,
    config: Any = None,
    user_config: Any = None,
    plugin_id: str = "weather",
    version: str = "1.0",
    started: list[Any] | None = None,
) -> Discovered:
    """A plugin with these settings (what ``skald_config`` and ``skald_user_config`` return); ``started`` gets its context at
    each start."""
    module = types.ModuleType(f"skald_settings_{plugin_id}_{id(config)}_{version.replace('.', '_')}")

    def skald_config() -> Any:
        return config

    def skald_user_config() -> Any:
        return user_config

    def skald_i18n() -> dict[str, dict[str, str]]:
        return TEXTS

    def skald_startup(ctx: skald.PluginContext) -> None:
        if started is not None:
            started.append(ctx)

    hooks = [skald_i18n, skald_startup]
    hooks += [skald_config] if config is not None else []
    hooks += [skald_user_config] if user_config is not None else []
    for hook in hooks:
        setattr(module, hook.__name__, skald.hookimpl(hook))
    sys.modules[module.__name__] = module
    found = local_plugin(module, Manifest(id=plugin_id, title="Weather", api=">=1"))
    return msgspec.structs.replace(found, version=version)


def form_plugin(started: list[Any] | None = None, **options: Any) -> Discovered:
    """The plugin above with a test and computed choices."""

    async def try_it(config: Config) -> str:
        if config.key.reveal() == "wrong":
            raise skald.ToolError("The key is not right.")
        if config.key.reveal() == "broken":
            raise RuntimeError("no connection")
        return "tested"

    async def stations() -> Sequence[skald.Option]:
        return [skald.Option("a", "near"), skald.Option("b", "Far")]

    settings = skald.Settings(type=Config, test=try_it, choices={"station": stations})
    return settings_plugin(config=settings, user_config=UserConfig, started=started, **options)
