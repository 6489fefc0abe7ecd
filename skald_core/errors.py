"""Errors of the kernel that reach people.

Every :class:`SkaldError` carries a stable ``code`` for clients, an HTTP ``status`` for the server, and one sentence that
says what happened, to what, and what to do. ``params`` fill the translated sentence of the same code.
"""

from __future__ import annotations

from skald_core.loop.errors import LoopError

__all__ = (
    "BadInput",
    "Conflict",
    "Forbidden",
    "Gone",
    "NotFound",
    "NotSignedIn",
    "SkaldError",
    "StartError",
    "TooMany",
)


class SkaldError(LoopError):
    """Root of kernel errors."""

    status = 500
    code = "error"

    def __init__(self, detail: str, *, code: str | None = None, **params: object) -> None:
        super().__init__(detail)
        self.detail = detail
        if code is not None:
            self.code = code
        self.params = params


class BadInput(SkaldError):
    status = 422
    code = "bad_input"


class NotSignedIn(SkaldError):
    status = 401
    code = "not_signed_in"


class Forbidden(SkaldError):
    status = 403
    code = "forbidden"


class NotFound(SkaldError):
    status = 404
    code = "not_found"


class Conflict(SkaldError):
    status = 409
    code = "conflict"


class Gone(SkaldError):
    status = 410
    code = "gone"


class TooMany(SkaldError):
    status = 429
    code = "too_many_attempts"


class StartError(SkaldError):
    """The server cannot start; the text is printed as it is and the process ends with status 3."""

    code = "cannot_start"
