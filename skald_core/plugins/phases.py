"""The guard around each phase of a plugin's life: nothing a plugin does while it is loaded may stop the server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from skald_core.plugins.dispatcher import HookFailure
from skald_core.plugins.state import Failure, Phase

__all__ = ("LoadingMark", "PhaseError", "in_thread", "interrupted_after")

T = TypeVar("T")

AGAIN_SECONDS = 1.0
"""A hook that catches what should end it is interrupted again and again."""


class PhaseError(Exception):
    """A phase failed; carries what the catalog shows."""

    def __init__(self, phase: Phase, failure: HookFailure) -> None:
        super().__init__(failure.message)
        self.failure = Failure(phase, failure.message, failure.traceback)

    @classmethod
    def because(cls, phase: Phase, kind: str, message: str) -> PhaseError:
        return cls(phase, HookFailure(kind, message, ""))


async def in_thread(work: Callable[[], T], timeout: float) -> T:
    """Run ``work`` on a daemon thread, so that one that never returns cannot hold the process's end.

    Raises TimeoutError after ``timeout`` seconds, and RuntimeError around whatever ``work`` raised, SystemExit too.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if not future.done():
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

    def run() -> None:
        try:
            value, error = work(), None
        except (Exception, SystemExit) as caught:  # noqa: BLE001 -- the plugin boundary, re-raised in the waiter
            # A future cannot carry StopIteration, nor should SystemExit end the loop.
            value, error = None, RuntimeError(f"{type(caught).__name__}: {caught}").with_traceback(caught.__traceback__)
            error.__cause__ = caught
        with contextlib.suppress(RuntimeError):  # the loop was closed in the meantime; nobody waits
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=run, name="plugin-import", daemon=True).start()
    async with asyncio.timeout(timeout):
        return await future


class _Stuck(TimeoutError):
    """Raised out of a synchronous hook that blocks the event loop."""


@contextlib.contextmanager
def interrupted_after(seconds: float, slow: float, warn: Callable[[], object]) -> Iterator[None]:
    """Have code that blocks the event loop raise TimeoutError after ``seconds``, having called ``warn`` after ``slow``.

    A timer of the process does it (``setitimer(2)``): its signal interrupts a busy loop and a blocking system call alike,
    which no task or thread could. Only the main thread has signals; elsewhere this bounds nothing. Never hold it across an
    ``await``.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return
    armed = True
    warned = False

    def ring(number: int, frame: FrameType | None) -> None:
        nonlocal warned
        if not armed:
            return
        if not warned and slow < seconds:
            warned = True
            warn()
            signal.setitimer(signal.ITIMER_REAL, seconds - slow, AGAIN_SECONDS)
            return
        raise _Stuck

    before = signal.signal(signal.SIGALRM, ring)
    left, every = signal.setitimer(signal.ITIMER_REAL, min(slow, seconds), AGAIN_SECONDS)
    try:
        yield
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, left, every)
        signal.signal(signal.SIGALRM, before)


class LoadingMark:
    """The file that names the plugins being imported right now: what it holds at a start killed the start before."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._names: list[str] = []

    def leftover(self) -> frozenset[str]:
        """What a process that died left behind; forgotten by asking."""
        try:
            names = frozenset(self._path.read_text(encoding="utf-8").split())
        except FileNotFoundError:
            return frozenset()
        self._path.unlink(missing_ok=True)
        return names

    @contextlib.contextmanager
    def loading(self, plugin_id: str) -> Iterator[None]:
        self._names.append(plugin_id)
        self._write()
        try:
            yield
        finally:
            self._names.remove(plugin_id)
            self._write()

    def _write(self) -> None:
        with contextlib.suppress(OSError):  # a full disk must not keep plugins from loading
            if not self._names:
                self._path.unlink(missing_ok=True)
                return
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                os.write(file, "\n".join(self._names).encode())
            finally:
                os.close(file)
