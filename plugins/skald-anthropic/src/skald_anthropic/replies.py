"""Reading what a server says of an error, and making it fit to show."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import msgspec

__all__ = ("Reply", "clean", "read_error", "read_json")

MAX_DETAIL = 300
"""Characters of a server's own words that are kept."""

_SPACE = re.compile(r"\s+")
_KEY_LIKE = re.compile(r"\b(?:Bearer\s+\S+|(?:sk|pk|key)[-_][\w*.\-]{8,}|eyJ[\w\-]{10,}\.[\w\-.]+)")
# The HTTP status each error type of the API goes with; inside a stream the type is all there is.
_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


class Reply(msgspec.Struct, frozen=True):
    """An error as a server put it. ``message`` is cleaned, ``kind`` the API's error type, ``status`` what goes with it, or
    0."""

    message: str = ""
    kind: str = ""
    status: int = 0


def clean(text: str, secret: str = "") -> str:
    """A server's text made fit to show: one short line without control or direction characters and without keys."""
    text = text[: 20 * MAX_DETAIL]
    if len(secret) >= 4:
        text = text.replace(secret, "***")
    text = _KEY_LIKE.sub("***", text)
    text = "".join(" " if c.isspace() else c for c in text if c.isspace() or unicodedata.category(c)[0] != "C")
    text = _SPACE.sub(" ", text).strip()
    return text if len(text) <= MAX_DETAIL else text[: MAX_DETAIL - 1].rstrip() + "…"


def read_json(body: bytes) -> Any:
    """The body as JSON, or None."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def read_error(body: Any, secret: str = "") -> Reply | None:
    """The error in a decoded body, or None when there is none in it.

    The API's own form is ``{"type": "error", "error": {"type": …, "message": …}}``; gateways also send a bare string
    there, or ``message`` or ``detail`` alone.
    """
    if not isinstance(body, dict) or isinstance(body.get("content"), list):
        return None
    error = body.get("error")
    if isinstance(error, dict):
        kind = error.get("type") if isinstance(error.get("type"), str) else ""
        message = error.get("message") or error.get("detail") or ""
        return Reply(clean(str(message), secret), str(kind), _STATUS.get(str(kind), 0))
    if isinstance(error, str) and error:
        return Reply(clean(str(body.get("message") or error), secret))
    for key in ("message", "detail", "msg"):
        if isinstance(body.get(key), str) and body[key]:
            return Reply(clean(body[key], secret))
    return Reply() if body.get("type") == "error" else None
