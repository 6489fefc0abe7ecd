"""Text on its way in and out: a server's words made fit to show, and halves of characters, which no JSON can carry."""

from __future__ import annotations

import re
import unicodedata

__all__ = ("MAX_DETAIL", "clean_detail", "whole_characters")

MAX_DETAIL = 300
"""Characters of a server's own words that are kept."""

_SPACE = re.compile(r"\s+")
_KEY_LIKE = re.compile(
    r"\b(?:Bearer\s+\S+|(?:sk|pk|rk|gsk|xai|fw|key|tgp|nvapi|hf)[-_][\w*.\-]{8,}|AIza[\w\-]{20,}|eyJ[\w\-]{10,}\.[\w\-.]+)"
)


def clean_detail(text: str, secret: str = "") -> str:
    """A server's text made fit to show: one short line without control or direction characters and without keys.

    ``secret`` is the key in use; other words that look like keys are taken out too.
    """
    text = text[: 20 * MAX_DETAIL]
    if len(secret) >= 4:
        text = text.replace(secret, "***")
    text = _KEY_LIKE.sub("***", text)
    text = "".join(" " if c.isspace() else c for c in text if c.isspace() or unicodedata.category(c)[0] != "C")
    text = _SPACE.sub(" ", text).strip()
    return text if len(text) <= MAX_DETAIL else text[: MAX_DETAIL - 1].rstrip() + "…"


def whole_characters(text: str) -> str:
    """``text`` without halves of characters, which no store could take: a pair becomes its character, a half alone U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
