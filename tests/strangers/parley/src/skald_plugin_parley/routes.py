"""The routes."""

from __future__ import annotations

from typing import Any

from litestar import get

from skald_core import api as skald
from skald_plugin_parley.usage import Used, used


def handlers(ctx: skald.PluginContext) -> list[Any]:
    @get("/usage")
    async def usage() -> list[Used]:
        return await used(ctx)

    return [usage]
