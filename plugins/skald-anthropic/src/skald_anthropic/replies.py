"""Reading what a server says of an error."""

from __future__ import annotations

from typing import Any

from skald_core.api import ServerReply, clean_detail

__all__ = ("read_error",)

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


def read_error(body: Any, secret: str = "") -> ServerReply | None:
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
        return ServerReply(clean_detail(str(message), secret), kind=str(kind), status=_STATUS.get(str(kind), 0))
    if isinstance(error, str) and error:
        return ServerReply(clean_detail(str(body.get("message") or error), secret))
    for key in ("message", "detail", "msg"):
        if isinstance(body.get(key), str) and body[key]:
            return ServerReply(clean_detail(body[key], secret))
    return ServerReply() if body.get("type") == "error" else None
