"""Skald plugin ``llamacpp``: models that run on this machine.

The hooks only; everything they need is imported when it is first used. The model runtime itself is never loaded here: it
lives in child processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from skald_core import api as skald

if TYPE_CHECKING:
    from skald_llamacpp.config import Config
    from skald_llamacpp.library import Library

_libraries: WeakKeyDictionary[skald.PluginContext, Library] = WeakKeyDictionary()
"""One library per enabled plugin, found by its context: hooks share it, and it goes away with the context."""


def library_of(ctx: skald.PluginContext) -> Library:
    """The library of this context, made when first asked for."""
    library = _libraries.get(ctx)
    if library is None:
        from skald_llamacpp.index import load_index
        from skald_llamacpp.library import Library

        library = _libraries[ctx] = Library(ctx, load_index(ctx.package_dir / "models.json"))
    return library


@skald.hookimpl
def skald_config() -> type[Config]:
    from skald_llamacpp.config import Config

    return Config


@skald.hookimpl
def skald_i18n(ctx: skald.PluginContext) -> dict[str, dict[str, str]]:
    return ctx.load_i18n()


@skald.hookimpl
def skald_llm_providers(ctx: skald.PluginContext) -> Sequence[skald.ProviderType]:
    from skald_llamacpp.provider import LocalProviderType

    return [LocalProviderType(ctx, lambda: library_of(ctx))]


@skald.hookimpl
def skald_web_pages() -> Sequence[skald.WebPage]:
    return [
        skald.WebPage(
            page_id="models",
            title="plugin.llamacpp.page.title",
            icon="pc-display",
            entry="web/models.js",
            admin_only=True,
            priority=60,
        )
    ]


@skald.hookimpl
def skald_routes(ctx: skald.PluginContext) -> Sequence[Any]:
    from skald_llamacpp.routes import build

    return build(ctx, library_of(ctx))


@skald.hookimpl
async def skald_startup(ctx: skald.PluginContext) -> None:
    await library_of(ctx).load()


@skald.hookimpl
async def skald_shutdown(ctx: skald.PluginContext) -> None:
    library = _libraries.pop(ctx, None)
    if library is not None:
        await library.close()
