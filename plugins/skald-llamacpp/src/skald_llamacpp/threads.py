"""Blocking work on a worker thread, which is always waited for, also when the waiting task is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

__all__ = ("in_thread",)

T = TypeVar("T")


async def in_thread(work: Callable[[], T], stop: Callable[[], None] = lambda: None) -> T:
    """Run ``work`` on a worker thread.

    ``asyncio.to_thread`` lets a cancelled caller go on while the thread still writes to a file the caller then closes; here
    the cancellation is raised only after the thread has ended. ``stop`` is called first, to ask the work to end early.
    """
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # seen, so that asyncio does not report it as forgotten
        raise
