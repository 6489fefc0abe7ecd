"""Reading what Ollama says of an error, and making it fit to show."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import msgspec

__all__ = ("clean", "read_error", "read_json")

MAX_DETAIL = 300
"""Characters of a server's own words that are kept."""

_SPACE = re.compile(r"\s+")


def clean(text: str) -> str:
    """A server's text made fit to show: one short line without control or direction characters."""
    text = text[: 20 * MAX_DETAIL]
    text = "".join(" " if c.isspace() else c for c in text if c.isspace() or unicodedata.category(c)[0] != "C")
    text = _SPACE.sub(" ", text).strip()
    return text if len(text) <= MAX_DETAIL else text[: MAX_DETAIL - 1].rstrip() + "…"


def read_json(body: bytes) -> Any:
    """The body as JSON, or None."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def read_error(body: Any) -> str | None:
    """The error in a decoded body, cleaned; None when there is none in it.

    Ollama's own form is ``{"error": "text"}``. What it passes on from the program that runs the model may be JSON inside of
    that text, or an object in its place.
    """
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, str) and error.lstrip()[:1] == "{":
        inner = read_error(read_json(error.encode("utf-8", "replace")))
        return inner or clean(error)
    if isinstance(error, dict):
        return clean(" ".join(str(error[key]) for key in ("message", "type") if error.get(key)) or str(error))
    return clean(error) if isinstance(error, str) and error else None
