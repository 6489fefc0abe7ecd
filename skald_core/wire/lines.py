"""Newline-delimited JSON (NDJSON): bytes in, lines out. Depends on nothing but the standard library and does no I/O."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ("MAX_LINE_BYTES", "LineDecoder", "LineTooLargeError")

MAX_LINE_BYTES = 16 * 1024 * 1024
"""Default cap of one line: room for a tool call that carries a whole file, no room for a runaway server."""


class LineTooLargeError(ValueError):
    """One line grew beyond the decoder's cap; the decoder is of no use afterwards."""


class LineDecoder:
    """Feed it bytes as they arrive; how they are cut into chunks makes no difference. Blank lines are left out.

    Iterate what :meth:`feed` and :meth:`finish` return to its end before the next call.
    """

    def __init__(self, *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._limit = max_line_bytes
        self._pieces: list[bytes] = []  # the unfinished line; joined only when its end arrives
        self._pending = 0  # bytes in it

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Take the next bytes and yield the lines they complete.

        Raises:
            LineTooLargeError: a line is larger than the cap.
        """
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            self._keep(end)
            yield from self._take()
        self._keep(rest)

    def finish(self) -> Iterator[bytes]:
        """The stream has ended: yield what is left, a line without its end."""
        yield from self._take()

    def _keep(self, piece: bytes) -> None:
        self._pending += len(piece)
        if self._pending > self._limit:
            raise LineTooLargeError(f"one line is larger than {self._limit} bytes")
        if piece:
            self._pieces.append(piece)

    def _take(self) -> Iterator[bytes]:
        line = b"".join(self._pieces).strip()
        self._pieces.clear()
        self._pending = 0
        if line:
            yield line
