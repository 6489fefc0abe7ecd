"""Errors as problem details (RFC 9457), with a stable ``code`` and a sentence in the reader's language."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.types import ExceptionHandlersMap

from skald_core.errors import SkaldError
from skald_core.files.userfs import FilesError
from skald_core.loop.database import DatabaseClosed, DiskFull
from skald_core.loop.errors import LoopError

__all__ = ("Problem", "exception_handlers", "problem_response")

log = logging.getLogger("skald.server")

Translate = Callable[[str, str, dict[str, object]], str | None]


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of an error answer."""

    title: str
    status: int
    code: str
    detail: str
    type: str = "about:blank"
    retry_after: float | None = None
    errors: list[Any] = []


_TITLES = {
    400: "Bad request", 401: "Not signed in", 403: "Not allowed", 404: "Not found", 405: "Method not allowed", 409: "Conflict",
    410: "Gone", 413: "Too large", 422: "Cannot be used", 429: "Too many requests", 500: "Server error", 507: "Disk full",
}  # fmt: skip


def problem_response(problem: Problem) -> Response[bytes]:
    headers = {"Cache-Control": "no-store"}
    if problem.retry_after is not None:
        headers["Retry-After"] = str(int(problem.retry_after))
    return Response(
        msgspec.json.encode(problem), status_code=problem.status, media_type="application/problem+json", headers=headers
    )


def problem_for(error: Exception, locale: str, translate: Translate) -> Problem:
    """What a client is told about ``error``; never a traceback, a path or a secret."""

    def make(status: int, code: str, fallback: str, params: dict[str, object] | None = None, **more: Any) -> Problem:
        detail = translate(f"error.{code}", locale, params or {}) or fallback
        return Problem(_TITLES.get(status, "Error"), status, code, detail, **more)

    match error:
        case DiskFull():
            return make(507, "disk_full", str(error))
        case DatabaseClosed():
            return make(401, "locked", str(error))
        case SkaldError():
            wait = error.params.get("retry_after")
            return make(
                error.status, error.code, error.detail, error.params, errors=getattr(error, "errors", []),
                retry_after=float(wait) if isinstance(wait, int | float) else None,
            )  # fmt: skip
        case FilesError():
            return make(422, f"files_{error.code}", str(error))
        case LoopError():
            return make(422, error.kind, str(error))
        case msgspec.DecodeError():
            return make(422, "bad_input", str(error))
        case RecursionError():  # the body: nothing else nests as deep as a client wants
            return make(422, "bad_input", "The request is nested too deeply.")
        case OverflowError():  # a whole number that no column takes
            return make(422, "bad_input", "A number in the request is too large.")
        case HTTPException():
            code = {
                401: "not_signed_in",
                403: "forbidden",
                404: "not_found",
                405: "method_not_allowed",
                413: "body_too_large",
            }.get(error.status_code, "bad_input")
            status = 422 if error.status_code == 400 else error.status_code
            extra = error.extra if isinstance(error.extra, list) else []
            told = "; ".join(
                f"{e.get('key', '')}: {e.get('message', '')}".strip(": ") for e in extra if isinstance(e, dict)
            )
            return make(status, code, told or error.detail, {"capability": ""})
    reference = secrets.token_hex(4)
    log.error("unhandled error %s", reference, exc_info=error)
    return make(500, "internal", f"Something went wrong on the server ({reference}).", {"reference": reference})


def exception_handlers(translate: Translate, locale_of: Callable[[Any], str]) -> ExceptionHandlersMap:
    def handle(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
        return problem_response(problem_for(error, locale_of(request), translate))

    return {Exception: handle, HTTPException: handle, LoopError: handle}
