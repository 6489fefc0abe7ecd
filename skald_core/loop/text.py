"""Two small rules about text: what may be stored, and how long text is cut for a model or an event."""

from __future__ import annotations

__all__ = ("clean", "cut")


def clean(text: str) -> str:
    """``text`` as valid Unicode: lone surrogates, which neither SQLite nor UTF-8 can hold, become U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def cut(text: str, limit: int) -> str:
    """At most about ``limit`` characters: the head (three quarters) and the tail, with a line between that says so."""
    if len(text) <= limit:
        return text
    head = limit * 3 // 4
    tail = limit - head
    left_out = len(text) - head - tail
    return f"{text[:head]}\n[… {left_out} of {len(text)} characters left out here …]\n{text[len(text) - tail :]}"
