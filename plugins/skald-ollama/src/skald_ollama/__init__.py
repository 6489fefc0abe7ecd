"""Skald plugin ``ollama``: models of Ollama, through its own API.

The hooks only; everything they need is imported when it is first used.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from skald_core import api as skald

WARM_AFTER = 3.0
"""Seconds after the plugin's start before it loads what it will need."""

if TYPE_CHECKING:
    from skald_core.api import PluginContext, ProviderType


@skald.hookimpl
def skald_i18n(ctx: PluginContext) -> dict[str, dict[str, str]]:
    return ctx.load_i18n()


@skald.hookimpl
def skald_llm_providers() -> Sequence[ProviderType]:
    from skald_ollama.kind import Ollama

    return [Ollama()]


@skald.hookimpl
def skald_startup(ctx: PluginContext) -> None:
    ctx.spawn(_warm())


async def _warm() -> None:
    """Load what the first message needs once the server is up, off the event loop, so that neither waits for it."""
    await asyncio.sleep(WARM_AFTER)
    await asyncio.to_thread(_load)


def _load() -> None:
    for name in ("httpx", "skald_ollama.provider"):
        importlib.import_module(name)
