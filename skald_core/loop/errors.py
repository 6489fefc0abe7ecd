"""Errors of the loop library.

One root, :class:`LoopError`. Model errors say by their *type* whether trying again can help:
:class:`RetryableModelError` and its children may be retried or answered by another model,
:class:`TerminalModelError` and its children may not. Messages say what happened, to what, and what to do;
they never carry keys or message content.
"""

from __future__ import annotations

__all__ = (
    "AbortError",
    "AuthError",
    "ConfigError",
    "ContextLengthError",
    "HookError",
    "InvalidRequestError",
    "LoopError",
    "ModelError",
    "ModelGoneError",
    "NetworkError",
    "PermissionDeniedError",
    "ProtocolError",
    "RateLimitError",
    "RetryableModelError",
    "ServerError",
    "StoreError",
    "TerminalModelError",
    "ToolError",
    "ToolSuspended",
    "TurnLimitError",
)


class LoopError(Exception):
    """Root of everything the loop raises on purpose.

    ``kind`` is a stable snake_case code for clients; ``retryable`` says whether repeating the same call can help.
    """

    kind: str = "error"
    retryable: bool = False


class ConfigError(LoopError):
    """The caller built or used an object wrongly (missing model, second run, duplicate tool name)."""

    kind = "config"


class AbortError(LoopError):
    """The run was stopped before this piece of work ended."""

    kind = "aborted"


class StoreError(LoopError):
    """The store could not read or write; nothing of the failed batch was kept."""

    kind = "store"


class HookError(LoopError):
    """A hook blocked or failed; carries the hook's own reason."""

    kind = "hook"


class TurnLimitError(LoopError):
    """The run used all the rounds it was allowed."""

    kind = "turn_limit"


class ToolError(LoopError):
    """Raise inside a tool to give the model an error result with exactly this text."""

    kind = "tool_execution"

    def __init__(self, message: str, *, tool_name: str = "") -> None:
        super().__init__(message)
        self.tool_name = tool_name


class ToolSuspended(LoopError):
    """Raise inside a tool that handed its work to a person: the call stays open and the turn ends."""

    kind = "tool_suspended"


class PermissionDeniedError(LoopError):
    """A gate, rule or person refused a call. ``reason`` is theirs, word for word."""

    kind = "permission_denied"

    def __init__(self, message: str, *, tool_name: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.tool_name = tool_name
        self.reason = reason or message


class ModelError(LoopError):
    """A model call failed. ``status`` is the HTTP status where there was one; ``detail`` a short server text."""

    kind = "provider"

    def __init__(self, message: str, *, status: int | None = None, detail: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.detail = detail


class RetryableModelError(ModelError):
    """Another try, or another model, may succeed."""

    retryable = True


class TerminalModelError(ModelError):
    """Repeating the call cannot help; the person has to change something."""


class NetworkError(RetryableModelError):
    """No usable HTTP answer: refused, reset, timed out, or cut before the stream's end mark."""

    kind = "network"


class ServerError(RetryableModelError):
    """HTTP 5xx or an error event in the stream."""

    kind = "server"


class RateLimitError(RetryableModelError):
    """HTTP 429. ``retry_after`` is seconds, when the server said so (RFC 9110 §10.2.3)."""

    kind = "rate_limit"

    def __init__(
        self, message: str, *, status: int | None = 429, detail: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(message, status=status, detail=detail)
        self.retry_after = retry_after


class ProtocolError(RetryableModelError):
    """The server answered something that is not the API it claims to be (HTML, broken JSON, an empty stream)."""

    kind = "protocol"


class AuthError(TerminalModelError):
    """HTTP 401 or 403: the key is missing, wrong or not allowed."""

    kind = "auth"


class ModelGoneError(TerminalModelError):
    """HTTP 404: the server does not know this model (or this path)."""

    kind = "model_gone"


class InvalidRequestError(TerminalModelError):
    """HTTP 400 or 422 that is not about context length."""

    kind = "invalid_request"


class ContextLengthError(TerminalModelError):
    """The conversation is longer than the model's context; compaction may help."""

    kind = "context_length"
