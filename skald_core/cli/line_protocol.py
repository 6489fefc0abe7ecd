"""The lines ``skald run --json`` reads and writes (docs/cli.md): newline-delimited JSON, one object a line, UTF-8.

Reading and writing happen on threads with plain system calls, so that neither a reader that stops reading nor a writer that
stops writing can keep the program from noticing anything else, a signal above all.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import select
import threading
from collections.abc import Callable
from typing import Any, Literal

import msgspec

__all__ = ("Abort", "BadLine", "Command", "LineReader", "LineWriter", "PermissionResponse", "Prompt", "parse")

MAX_LINE = 8 * 1024 * 1024
"""Bytes of one line; a longer one is ignored."""


class PermissionResponse(msgspec.Struct, frozen=True, tag="permission_response"):
    """The answer to one call of a ``permission_request``. ``updated_input`` replaces its arguments."""

    tool_use_id: str
    decision: Literal["allow", "deny"]
    reason: str = ""
    updated_input: dict[str, Any] | None = None


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """Stop the run, and forget prompts that have not begun."""

    reason: str = ""


class Prompt(msgspec.Struct, frozen=True, tag="prompt"):
    """Begin a run in the same session, after the one that runs."""

    text: str


Command = PermissionResponse | Abort | Prompt


class BadLine(Exception):
    """A line that cannot be understood; the text says why."""


class _Tagged(msgspec.Struct):
    type: str


_tagged = msgspec.json.Decoder(_Tagged).decode
_command = msgspec.json.Decoder(Command).decode
_KNOWN = frozenset({"permission_response", "abort", "prompt"})


def parse(line: bytes) -> Command | None:
    """The command a line holds; None for an empty line and for a type this version does not know. Raises BadLine."""
    if not line.strip():
        return None
    try:
        if _tagged(line).type not in _KNOWN:
            return None
        return _command(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadLine(str(error)) from None


class LineReader:
    """Reads lines from a file descriptor and hands each to ``line`` on the event loop; ``ended`` after the last one."""

    def __init__(self, descriptor: int, *, line: Callable[[bytes], None], ended: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._line = line
        self._ended = ended
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        threading.Thread(target=self._read, name="stdin", daemon=True).start()

    def _read(self) -> None:
        rest = b""
        too_long = False
        try:
            while chunk := _read(self._descriptor):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if not too_long:
                        self._tell(self._line, line)
                    too_long = False
                if len(rest) > MAX_LINE:
                    rest, too_long = b"", True
        except OSError:
            pass  # closed under us: the same as its end
        if rest and not too_long:
            self._tell(self._line, rest)
        self._tell(self._ended)

    def _tell(self, function: Callable[..., None], *args: bytes) -> None:
        with contextlib.suppress(RuntimeError):  # the program ends
            self._loop.call_soon_threadsafe(function, *args)


class LineWriter:
    """Writes lines to a file descriptor, in order; ``broken`` is called once when nobody reads them any more."""

    def __init__(self, descriptor: int, *, broken: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._broken = broken
        self._loop = asyncio.get_running_loop()
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="stdout", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def write(self, line: bytes) -> None:
        """Queue one line, given without its end."""
        self._lines.put(line + b"\n")

    def close(self, seconds: float) -> None:
        """Wait until everything is written, or the reader has had ``seconds`` for it."""
        self._lines.put(None)
        self._thread.join(seconds)

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            view = memoryview(line)
            try:
                while view:
                    view = view[_write(self._descriptor, view) :]
            except OSError:
                with contextlib.suppress(RuntimeError):  # the program ends
                    self._loop.call_soon_threadsafe(self._broken)
                return


# A descriptor may have been made non-blocking by a program that shares it; then waiting is ours to do.


def _read(descriptor: int) -> bytes:
    while True:
        try:
            return os.read(descriptor, 65536)
        except BlockingIOError:
            select.select([descriptor], [], [])


def _write(descriptor: int, data: memoryview) -> int:
    while True:
        try:
            return os.write(descriptor, data)
        except BlockingIOError:
            select.select([], [descriptor], [])
