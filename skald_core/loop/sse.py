"""Server-sent events, bytes in, events out, forgiving what real servers and proxies send.

The base is the WHATWG "Server-sent events" parsing algorithm. Where it would lose data, this decoder is kinder:

* an event the connection's end left without its blank line is still delivered, marked ``complete=False``;
* a field name may be indented, and ``error:`` is taken as ``event: error`` with data (older llama.cpp);
* a proxy that wrapped the stream twice (``data: event: x``, ``data: data: {…}``) is unwrapped;
* a raw line break inside a JSON string does not tear the event apart.

A well-formed stream of JSON payloads comes out exactly as the standard says. This module depends on nothing but the
standard library, does no I/O and knows no model API.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ("MAX_EVENT_BYTES", "SseDecoder", "SseEvent", "SseTooLargeError", "mend_json")

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Default cap of one event: room for a tool call that carries a whole file, no room for a runaway server."""

_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\n|\r")
_NESTED = re.compile(r"\s*(event|data):\s?(.*)", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_QUOTES = re.compile(r'\\.|"', re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f]")
_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


class SseEvent(NamedTuple):
    """One event.

    ``data`` is its data lines joined by a line feed, ``event`` its type (empty for plain messages), ``id`` the last id
    seen. ``complete`` is false when the stream ended before the event's closing blank line.
    """

    data: str
    event: str = ""
    id: str = ""
    complete: bool = True


class SseTooLargeError(ValueError):
    """One event grew beyond the decoder's cap; the decoder is of no use afterwards."""


class SseDecoder:
    """Feed it bytes as they arrive; how they are cut into chunks makes no difference.

    Iterate what :meth:`feed` and :meth:`finish` return to its end before the next call.
    """

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._limit = max_event_bytes
        self._pieces: list[bytes] = []  # the unfinished line; joined only when its end arrives
        self._pending = 0  # bytes in it
        self._swallow_lf = False
        self._at_start = True
        self._data: list[str] = []
        self._held = 0  # bytes of the lines in it
        self._scanned = 0  # how many of them _torn has looked at
        self._in_string = False
        self._event = ""
        self._id = ""

    def feed(self, chunk: bytes) -> Iterator[SseEvent]:
        """Take the next bytes and yield the events they complete.

        Raises:
            SseTooLargeError: an event is larger than the cap.
        """
        if self._swallow_lf and chunk:
            # A CR ended the last line at once; the LF of the same CRLF must not end another.
            self._swallow_lf = False
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return
        if _LINE_END.search(chunk) is None:
            self._keep(chunk)
            return
        text = b"".join((*self._pieces, chunk))
        self._pieces.clear()
        self._pending = 0
        self._swallow_lf = text.endswith(b"\r")
        start = 0
        for end in _LINE_END.finditer(text):
            yield from self._line(text[start : end.start()])
            start = end.end()
        if start < len(text):
            self._keep(text[start:])

    def finish(self) -> Iterator[SseEvent]:
        """The stream has ended: yield what is left."""
        line = b"".join(self._pieces)
        self._pieces.clear()
        self._pending = 0
        if line:
            yield from self._line(line)
        yield from self._dispatch(complete=False)

    def _keep(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._pending += len(piece)
        self._check(self._pending)

    def _check(self, size: int) -> None:
        if self._held + size > self._limit:
            raise SseTooLargeError(f"one event is larger than {self._limit} bytes")

    def _line(self, raw: bytes) -> Iterator[SseEvent]:
        self._check(len(raw))
        if self._at_start:
            self._at_start = False
            raw = raw.removeprefix(_BOM)
        if not raw:
            yield from self._dispatch(complete=True)
            return
        line = raw.decode("utf-8", "replace")
        name, colon, value = line.partition(":")
        value = value.removeprefix(" ")
        match name.lstrip(" \t"):
            case "data":
                self._take(value, len(raw))
            case "event":
                self._event = value
            case "id":
                if "\0" not in value:
                    self._id = value
            case "error" if colon:
                self._event = self._event or "error"
                self._take(value, len(raw))
            case _ if self._torn():
                # No field at all, and the JSON so far ends inside a string: the string held a raw line break.
                self._data.append(line)
                self._held += len(raw)
            case _:
                pass  # a comment, ``retry`` or an unknown field: ignored, as the standard says

    def _take(self, value: str, size: int) -> None:
        while (nested := _NESTED.fullmatch(value)) is not None:
            value = nested[2]
            if nested[1] == "event":
                self._event = value.strip()
                return
        self._data.append(value)
        self._held += size

    def _torn(self) -> bool:
        """Does the data so far start like JSON and end inside a string? A line is scanned once, and only if asked."""
        if not self._data or self._data[0].lstrip()[:1] not in ("{", "["):
            return False
        for line in self._data[self._scanned :]:
            self._in_string ^= sum(found[0] == '"' for found in _QUOTES.finditer(line)) % 2 == 1
        self._scanned = len(self._data)
        return self._in_string

    def _dispatch(self, *, complete: bool) -> Iterator[SseEvent]:
        data, event = self._data, self._event
        self._data, self._event, self._held = [], "", 0
        self._scanned, self._in_string = 0, False
        if data:
            yield SseEvent("\n".join(data), event, self._id, complete)


def mend_json(text: str) -> str:
    """``text`` with raw control characters inside its JSON strings escaped; valid JSON comes back unchanged.

    Nothing outside of strings is touched, and a backslash keeps its meaning.
    """
    return _STRING.sub(lambda found: _CONTROL.sub(_escape, found[0]), text)


def _escape(found: re.Match[str]) -> str:
    return _SHORT_ESCAPES.get(found[0]) or f"\\u{ord(found[0]):04x}"
