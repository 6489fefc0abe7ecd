"""Where the job runner touches a running server."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from skald_core.errors import NotFound, SkaldError
from skald_core.plugins.discovery import bundled_names, discover
from skald_core.plugins.install.catalog_index import MAX_BYTES
from skald_core.plugins.install.engine import Engine
from skald_core.plugins.install.job import Job, job_view
from skald_core.plugins.install.purge import PluginData, apply_purges

if TYPE_CHECKING:
    from skald_core.runtime.app import Skald

__all__ = ("ServerHost", "engine_for")


def engine_for(app: Skald, api_version: str) -> Engine:
    """The job runner of a server."""
    return Engine(app.data_dir, app.system_db, ServerHost(app), api_version=api_version, bundled=bundled_names)


class ServerHost:
    """Implements :class:`skald_core.plugins.install.engine.EngineHost`."""

    def __init__(self, app: Skald) -> None:
        self._app = app

    def imported(self, modules: frozenset[str]) -> bool:
        return any(name in sys.modules for name in modules)

    async def enabled(self) -> frozenset[str]:
        return frozenset(row.id for row in self._app.plugins.rows.values() if row.enabled)

    async def disable(self, plugin_id: str) -> None:
        with contextlib.suppress(NotFound):
            await self._app.plugins.disable(plugin_id)

    async def refresh(self) -> None:
        await self._app.plugins.rescan(await asyncio.to_thread(discover))

    async def data_of(self, plugin_id: str) -> PluginData:
        return await self._app.plugin_data(plugin_id)

    async def purge_owners(self) -> None:
        """Owners whose data needs no password are opened for it."""
        for user in await self._app.users.all():
            if user.active and not user.encrypted:
                with contextlib.suppress(SkaldError):  # told when they next sign in; the purge is noted
                    await self._app.require_open(user)
        for _, database in self._app.vault.unlocked():
            await apply_purges(self._app.system_db, database)

    async def fetch(self, url: str) -> bytes:
        client = self._app.http_client(allow_private=False)
        body = b""
        async with client.stream("GET", url) as answer:
            answer.raise_for_status()
            async for chunk in answer.aiter_bytes():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise ValueError(f"the index is larger than {MAX_BYTES:,} bytes")
        return body

    def tell(self, job: Job) -> None:
        """To every administrator's open clients, each in their own language."""
        for context in self._app.open_contexts():
            user = context.user
            if self._app.roles.allows(user.role, "plugin.manage"):
                view = job_view(job, self._app.texts, self._app.texts.resolve(user.locale))
                context.feed.broadcast({"type": "plugin_job", "job": view})

    def spawn(self, coro: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._app.spawn("plugin-jobs", coro)
