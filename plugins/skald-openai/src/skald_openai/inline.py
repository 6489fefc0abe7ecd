"""Splitting what arrives as plain content: a leading ``<think>`` block is reasoning.

Servers without a reasoning parser pass a model's thoughts through as text. Only the beginning of an answer is looked at, so
an answer that merely speaks of the tag stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

__all__ = ("InlineText", "Piece")

_OPEN = "<think>"
_CLOSE = "</think>"


class Piece(NamedTuple):
    kind: Literal["text", "reasoning"]
    text: str


class InlineText:
    """Takes content as it streams in and tells text from reasoning."""

    def __init__(self) -> None:
        self._state: Literal["start", "think", "text"] = "start"
        self._buffer = ""
        self._thought = False  # a block has ended
        self._fresh = False  # a block has begun and holds nothing yet

    def feed(self, text: str) -> Iterator[Piece]:
        """More content; yields what is certain now."""
        if self._state == "text":
            if text:
                yield Piece("text", text)
            return
        self._buffer += text
        while True:
            if self._state == "start":
                start = self._buffer.lstrip()
                if start.startswith(_OPEN):
                    self._state, self._buffer, self._fresh = "think", start[len(_OPEN) :], True
                elif _OPEN.startswith(start):
                    return  # undecided: nothing but space, or the beginning of the tag
                else:
                    # Blank lines between thought and answer belong to neither.
                    shown, self._buffer = (start if self._thought else self._buffer), ""
                    self._state = "text"
                    yield Piece("text", shown)
                    return
            else:
                if self._fresh:
                    self._buffer = self._buffer.lstrip()  # the line break after the tag
                    self._fresh = not self._buffer
                before, tag, after = self._buffer.partition(_CLOSE)
                if not tag:
                    keep = len(self._buffer) - _overlap(self._buffer, _CLOSE)
                    before, self._buffer = self._buffer[:keep], self._buffer[keep:]
                    if before:
                        yield Piece("reasoning", before)
                    return
                self._state, self._buffer, self._thought = "start", after, True
                if before:
                    yield Piece("reasoning", before)

    def finish(self) -> Iterator[Piece]:
        """No more content is expected before what comes next: give out what was kept back, if it is more than space."""
        kind: Literal["text", "reasoning"] = "reasoning" if self._state == "think" else "text"
        kept, self._buffer, self._state = self._buffer, "", "text"
        if kept.strip():
            yield Piece(kind, kept)


def _overlap(text: str, tag: str) -> int:
    """How many last characters of ``text`` may be the beginning of ``tag``."""
    return next((size for size in range(min(len(text), len(tag) - 1), 0, -1) if tag.startswith(text[-size:])), 0)
