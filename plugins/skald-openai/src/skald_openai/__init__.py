"""Skald plugin ``openai``: models behind any server that speaks OpenAI's chat completions, or its Responses API.

The hooks only; everything they need is imported when it is first used.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from skald_core import api as skald

WARM_AFTER = 2.0
"""Seconds after the plugin's start before it loads what it will need."""

if TYPE_CHECKING:
    from skald_core.api import PluginContext, Provider, ProviderType, Service


@skald.hookimpl
def skald_i18n(ctx: PluginContext) -> dict[str, dict[str, str]]:
    return ctx.load_i18n()


@skald.hookimpl
def skald_llm_providers() -> Sequence[ProviderType]:
    from skald_openai.kind import OpenAICompatible

    return [OpenAICompatible()]


@skald.hookimpl
def skald_services() -> Sequence[Service]:
    return [skald.Service(skald.ChatCompletions, _chat_completions)]


@skald.hookimpl
def skald_startup(ctx: PluginContext) -> None:
    ctx.spawn(_warm())


async def _warm() -> None:
    """Load what the first message needs (a third of a second, most of it the HTTP client) once the server is up, off the
    event loop, so that neither the start nor that message waits for it."""
    await asyncio.sleep(WARM_AFTER)
    await asyncio.to_thread(_load)


def _load() -> None:
    import anyio

    from skald_openai.known import known_info

    for name in ("httpx", "httpcore", "skald_openai.provider"):
        importlib.import_module(name)
    anyio.run(anyio.sleep, 0)  # makes it load its asyncio backend, which httpcore connects with
    known_info("")


def _chat_completions(
    *,
    provider_id: str,
    base_url: str,
    api_key: str = "",
    infos: dict[str, skald.ModelInfo] | None = None,
    max_retries: int = 2,
    timeout: float = 600.0,
) -> Provider:
    """The ``ChatCompletions`` service. Raises ConfigError when a value makes no sense."""
    from skald_openai.provider import OpenAIProvider

    return OpenAIProvider(
        provider_id=provider_id,
        base_url=base_url,
        api_key=api_key,
        api="chat",
        infos=infos,
        retry=skald.RetryPolicy(max_retries=max_retries),
        timeout=timeout,
    )
