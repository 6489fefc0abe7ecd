"""From what went wrong to a typed error whose text tells a person what to do."""

from __future__ import annotations

import re
from typing import Any

from skald_core.api import (
    AuthError,
    ContextLengthError,
    Failure,
    InvalidRequestError,
    ModelError,
    ModelGoneError,
    ProtocolError,
    RateLimitError,
    ServerError,
    ServerFailures,
    ServerReply,
)
from skald_openai.replies import read_error
from skald_openai.services import Endpoint

__all__ = ("RESPONSES", "Failures")

RESPONSES = "Responses API"
"""What is asked for when it is not chat completions, as messages name it."""

_CONTEXT_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error", "context_window_exceeded", "1261"})
# Narrow on purpose: a wrong guess costs a compaction that cannot help.
_CONTEXT_WORDS = re.compile(
    r"maximum context length|context length (?:of|is) only \d|exceeds? the (?:available|maximum|model'?s) context"
    r"|context (?:length|window|size) (?:exceeded|overflow)"
    r"|exceeds? (?:the )?(?:model'?s )?context (?:length|window|size)"
    r"|prompt is too long|maximum prompt length|exceeded model token limit|prompt exceeds max length"
    r"|input token count .{0,40}exceeds the maximum|greater than the context length|longer than the context"
    r"|too large for model with \d+ maximum context",
    re.IGNORECASE,
)
_CAP_WORDS = re.compile(r"max_(?:completion_)?tokens'?\W{1,6}(?:is )?too (?:large|high)", re.IGNORECASE)
_NO_CREDIT = frozenset({"insufficient_quota", "insufficient_balance", "billing_hard_limit_reached", "credits_required"})
_HINTS = (
    (
        re.compile(r"enable-auto-tool-choice|tool-call-parser", re.IGNORECASE),
        "Start vLLM with --enable-auto-tool-choice and the --tool-call-parser of this model.",
    ),
    (
        re.compile(r"not support (?:tools|function)|support tool use|tools? (?:is|are) not supported", re.IGNORECASE),
        "Choose a model that can use tools.",
    ),
    (re.compile(r"--jinja", re.IGNORECASE), "Start llama-server with --jinja so that the model can use tools."),
)
_PLAIN_404 = re.compile(r"(?:404 )?(?:page |path |route )?not found\.?", re.IGNORECASE)
_FALLBACK_HINT = "Check this model's extra settings, or choose another model."


class Failures(ServerFailures):
    """Makes failures of one endpoint. ``wanted``, what was asked for, is named in messages."""

    paths = ("/chat/completions", "/responses", "/models")

    def __init__(self, endpoint: Endpoint, secret: str, model: str = "", *, wanted: str = "chat completions") -> None:
        super().__init__(endpoint, secret, model)
        self._service = endpoint.service.id
        self._wanted = wanted

    def read_error(self, body: Any) -> ServerReply | None:
        return read_error(body, self.secret)

    def from_reply(self, status: int, reply: ServerReply, *, retry_after: float | None = None) -> Failure:
        status = status or reply.status
        label, detail, shown = self.at.label, reply.message, status or None
        said = f" It said: {detail}" if detail else ""
        if self._is_context(status, reply):
            return self._failure(
                ContextLengthError(
                    f"The conversation is longer than {self.name} can read. Compact it, or start a new one.",
                    status=shown,
                    detail=detail,
                ),
                reply,
            )
        if status == 402 or reply.code in _NO_CREDIT or reply.kind in _NO_CREDIT:
            text = f"The account at {label} has no credit left. Top it up, or choose another model."
            return self._failure(RateLimitError(text, status=shown, detail=detail), reply, again=False)
        if status == 401:
            return self._failure(AuthError(self._key_text(), status=status, detail=detail), reply)
        if status == 403:
            text = f"{label} does not allow this request. Check what the API key may do, or choose another model.{said}"
            return self._failure(AuthError(text, status=status, detail=detail), reply)
        if status in (404, 410):
            return self._failure(ModelGoneError(self._gone_text(reply), status=status, detail=detail), reply)
        if status == 429:
            return self.rate_limited(status, reply, retry_after)
        if status in (408, 409, 425) or status >= 500 or status == 0:
            return self._failure(
                ServerError(self._trouble_text(status, reply), status=shown, detail=detail),
                reply,
                retry_after=retry_after,
                again=status != 501,
            )
        hint = next((text for words, text in _HINTS if words.search(detail)), _FALLBACK_HINT)
        text = f"{label} refused the request (HTTP {status}). {hint}{said}"
        return self._failure(InvalidRequestError(text, status=status, detail=detail), reply)

    def web_page(self, status: int) -> Failure:
        text = f"{self.at.label} answered a web page, not the API. Check the base URL; most end in /v1."
        return Failure(ProtocolError(text, status=status), again=False)

    def not_the_api(self, status: int) -> Failure:
        text = f"{self.at.label} answered something that is not the API. Check the base URL; most end in /v1."
        return Failure(ProtocolError(text, status=status), again=False)

    def is_about_model(self, reply: ServerReply) -> bool:
        """Does a "not found" mean the model, rather than the address?"""
        words = f"{reply.message} {reply.code} {reply.kind}".lower()
        return bool(self.model) and (self.model.lower() in words or "model" in words)

    # --- texts -----------------------------------------------------------------------------------------------------

    def _key_text(self) -> str:
        if not self.secret:
            return f"{self.at.label} wants an API key. Enter one for this provider."
        return f"{self.at.label} refused the API key. Enter a valid one for this provider."

    def _gone_text(self, reply: ServerReply) -> str:
        if "tool use" in reply.message.lower():
            return f"{self.at.label} offers {self.name} without tools. Choose a model that can use tools."
        if self.is_about_model(reply):
            how = f", or fetch it with 'ollama pull {self.model}'" if self._service == "ollama" else ""
            return f"{self.at.label} does not have the model {self.name}. Choose another model{how}."
        said = f" It said: {reply.message}" if reply.message and not _PLAIN_404.fullmatch(reply.message) else ""
        place = f"{self.at.label} has no {self._wanted} at {self.at.base_url}"
        check = "Check the base URL; most end in /v1."
        if self._wanted == RESPONSES:
            check = "Let this provider choose its API automatically, or check the base URL."
        return f"{place}. {check}{said}"

    def _trouble_text(self, status: int, reply: ServerReply) -> str:
        if "loading" in reply.message.lower() and status in (0, 503):
            return f"{self.at.label} is still loading the model. Try again in a moment."
        number = f" (HTTP {status})" if status else ""
        return f"{self.at.label} has a problem of its own{number}. Try again in a moment, or choose another model."

    @staticmethod
    def _is_context(status: int, reply: ServerReply) -> bool:
        if reply.code in _CONTEXT_CODES or reply.kind in _CONTEXT_CODES:
            return True
        if status not in (0, 400, 413, 422, 500) or _CAP_WORDS.search(reply.message):
            return False
        return _CONTEXT_WORDS.search(reply.message) is not None

    @staticmethod
    def _failure(
        error: ModelError, reply: ServerReply, *, retry_after: float | None = None, again: bool = True
    ) -> Failure:
        return Failure(error, retry_after, again, reply)
