"""Splitting what arrives as plain content: leading ``<think>`` text is reasoning, and text that may be a call is held."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from skald_openai.textcalls import TextCall, may_become_calls, read_calls

__all__ = ("InlineText", "Piece")

_OPEN = "<think>"
_CLOSE = "</think>"


class Piece(NamedTuple):
    kind: Literal["text", "reasoning"]
    text: str


class InlineText:
    """Takes content as it streams in and says what may be shown.

    Only the beginning of an answer is looked at: a ``<think>`` block there becomes reasoning, and what follows is held back
    while it can still be nothing but a call of one of the ``offered`` tools.
    """

    def __init__(self, offered: frozenset[str]) -> None:
        self._offered = offered
        self._state: Literal["start", "think", "held", "open"] = "start"
        self._buffer = ""
        self._thought = False
        self._held: list[str] = []
        self._checked = 0
        self._length = 0

    def feed(self, text: str) -> Iterator[Piece]:
        """More content; yields what can be shown now."""
        if self._state == "open":
            if text:
                yield Piece("text", text)
            return
        if self._state == "held":
            yield from self._hold(text)
            return
        self._buffer += text
        while True:
            if self._state == "start":
                start = self._buffer.lstrip()
                if start.startswith(_OPEN):
                    self._state, self._buffer = "think", start[len(_OPEN) :].lstrip("\n")
                elif _OPEN.startswith(start):
                    return  # undecided: nothing but space, or the beginning of the tag
                else:
                    yield from self._leave_start()
                    return
            else:
                before, tag, after = self._buffer.partition(_CLOSE)
                if tag:
                    self._state, self._buffer, self._thought = "start", after, True
                    if before:
                        yield Piece("reasoning", before)
                else:
                    keep = _overlap(self._buffer, _CLOSE)
                    shown, self._buffer = self._buffer[: len(self._buffer) - keep], self._buffer[len(self._buffer) - keep :]
                    if shown:
                        yield Piece("reasoning", shown)
                    return

    def release(self) -> Iterator[Piece]:
        """Show all that is held as it is, and hold nothing back from now on."""
        text = self._buffer + "".join(self._held)
        kind: Literal["text", "reasoning"] = "reasoning" if self._state == "think" else "text"
        self._state, self._buffer, self._held = "open", "", []
        if text.strip():
            yield Piece(kind, text)

    def calls(self) -> list[TextCall] | None:
        """At the end: the calls that the held text is, or None. Found calls are no longer held as text."""
        if self._state != "held":
            return None
        calls = read_calls("".join(self._held), self._offered)
        if calls is not None:
            self._held = []
        return calls

    def _leave_start(self) -> Iterator[Piece]:
        text, self._buffer = self._buffer, ""
        if self._thought:
            text = text.lstrip()  # the blank lines between thought and answer
        if self._offered:
            self._state = "held"
            yield from self._hold(text)
        else:
            self._state = "open"
            yield Piece("text", text)

    def _hold(self, text: str) -> Iterator[Piece]:
        self._held.append(text)
        self._length += len(text)
        # The verdict hangs on the first characters and on the length; no need to ask again for every token of a call.
        if self._checked < 64 or self._length > self._checked * 2:
            self._checked = self._length
            if not may_become_calls("".join(self._held)):
                yield from self.release()


def _overlap(text: str, tag: str) -> int:
    """How many last characters of ``text`` may be the beginning of ``tag``."""
    return next((size for size in range(min(len(text), len(tag) - 1), 0, -1) if tag.startswith(text[-size:])), 0)
