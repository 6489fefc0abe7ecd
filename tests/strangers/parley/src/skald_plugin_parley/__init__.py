"""Parley: a Skald plugin that speaks one more model API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from skald_core import api as skald


@skald.hookimpl
def skald_config() -> type[msgspec.Struct]:
    from skald_plugin_parley.kind import Config

    return Config


@skald.hookimpl
def skald_schema() -> Sequence[skald.Schema]:
    from skald_plugin_parley.usage import SCHEMA

    return [SCHEMA]


@skald.hookimpl
def skald_llm_providers(ctx: skald.PluginContext) -> Sequence[skald.ProviderType]:
    from skald_plugin_parley.kind import ParleyType

    return [ParleyType(ctx)]


@skald.hookimpl
def skald_routes(ctx: skald.PluginContext) -> Sequence[Any]:
    from skald_plugin_parley.routes import handlers

    return handlers(ctx)


@skald.hookimpl
def skald_i18n(ctx: skald.PluginContext) -> dict[str, dict[str, str]]:
    return ctx.load_i18n()
