"""The routes."""

from __future__ import annotations

from typing import Any

from litestar import get

from skald_core import api as skald
from skald_plugin_quiet_hours.log import Refusal, recent


def handlers(ctx: skald.PluginContext) -> list[Any]:
    @get("/log", opt={"capability": "approval.manage"})
    async def log() -> list[Refusal]:
        return await recent(ctx)

    return [log]
