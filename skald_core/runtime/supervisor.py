"""Owned background tasks: every task has a name, an owner, and an end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ("Supervisor",)

log = logging.getLogger("skald.tasks")


class Supervisor:
    """Spawns tasks for owners and cancels them when the owner or the server ends. Failures are logged and reported."""

    def __init__(self, on_failure: Callable[[str, BaseException], None] = lambda owner, error: None) -> None:
        self._tasks: dict[asyncio.Task[Any], str] = {}
        self._on_failure = on_failure

    def spawn(self, owner: str, coro: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coro, name=owner)
        self._tasks[task] = owner
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        owner = self._tasks.pop(task, "?")
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task of %s failed", owner, exc_info=error)
            self._on_failure(owner, error)

    async def stop(self, owner: str | None = None) -> None:
        """Cancel the owner's tasks (or all) and wait for them."""
        mine = [t for t, o in self._tasks.items() if owner is None or o == owner]
        for task in mine:
            task.cancel()
        if mine:
            await asyncio.gather(*mine, return_exceptions=True)
