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

STRIKES = 2
"""How often in a row a start may end the process before the plugin stays off."""


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
    """The file that names the plugins being loaded right now: what it holds at a start was at it when the process ended.

    One line for each: its id, and behind it, once it is imported, how often in a row the process ended like this. An import
    that ends the process is no accident, so once is enough; registering, migrating and starting take longer, and somebody
    may have pulled the plug, so it takes ``STRIKES`` times.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: dict[str, str] = {}
        self._strikes: dict[str, int] = {}

    def leftover(self) -> dict[str, Phase]:
        """Plugins not to be started by themselves, and what they were at; the file is forgotten by asking."""
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return {}
        self._path.unlink(missing_ok=True)
        died: dict[str, Phase] = {}
        for line in lines:
            plugin_id, _, strikes = line.partition(" ")
            if not strikes.isdigit():
                died[plugin_id] = "import"
            elif int(strikes) < STRIKES:
                self._strikes[plugin_id] = int(strikes)
            else:
                died[plugin_id] = "start"
        return died

    @contextlib.contextmanager
    def loading(self, plugin_id: str) -> Iterator[None]:
        """While a plugin is taken through its phases."""
        self._lines[plugin_id] = plugin_id
        self._write()
        try:
            yield
        finally:
            del self._lines[plugin_id]
            self._strikes.pop(plugin_id, None)
            self._write()

    def imported(self, plugin_id: str) -> None:
        """The import is behind it."""
        self._lines[plugin_id] = f"{plugin_id} {self._strikes.get(plugin_id, 0) + 1}"
        self._write()

    def _write(self) -> None:
        with contextlib.suppress(OSError):  # a full disk must not keep plugins from loading
            if not self._lines:
                self._path.unlink(missing_ok=True)
                return
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                os.write(file, "\n".join(self._lines.values()).encode())
            finally:
                os.close(file)
