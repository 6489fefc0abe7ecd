"""What can go wrong with a call, as typed errors whose text says what happened and what to do."""

from __future__ import annotations

import re
from typing import Any

from skald_anthropic.replies import read_error
from skald_core.api import (
    AuthError,
    ContextLengthError,
    Failure,
    InvalidRequestError,
    ModelGoneError,
    ProtocolError,
    RateLimitError,
    ServerError,
    ServerFailures,
    ServerReply,
)

__all__ = ("Failures",)

# Narrow on purpose: a wrong guess costs a compaction that cannot help.
_CONTEXT_WORDS = re.compile(
    r"prompt is too long|input length and `?max_tokens`? exceed context limit|exceeds? (?:the )?(?:model'?s )?maximum context"
    r"|maximum context length|context (?:length|window) (?:exceeded|overflow)|exceeds? (?:the )?context (?:length|window)",
    re.IGNORECASE,
)
_CREDIT_WORDS = re.compile(r"credit balance is too low|insufficient (?:balance|credit)", re.IGNORECASE)
_PLAIN_404 = re.compile(r"(?:404 )?(?:page |path |route )?not found\.?", re.IGNORECASE)


class Failures(ServerFailures):
    """Makes failures of one server."""

    paths = ("/v1/messages", "/v1/models")
    html_errors = frozenset({401, 402, 403, 408, 413, 429})

    def read_error(self, body: Any) -> ServerReply | None:
        return read_error(body, self.secret)

    def from_reply(self, status: int, reply: ServerReply, *, retry_after: float | None = None) -> Failure:
        status = status or reply.status
        label, detail, shown = self.at.label, reply.message, status or None
        said = f" It said: {detail}" if detail else ""
        if status in (0, 400, 413, 422) and _CONTEXT_WORDS.search(detail):
            text = f"The conversation is longer than {self.name} can read. Compact it, or start a new one."
            return Failure(ContextLengthError(text, status=shown, detail=detail), reply=reply)
        if status == 402 or (status in (0, 400, 403) and _CREDIT_WORDS.search(detail)):
            text = f"The account at {label} has no credit left. Top it up, or choose another model."
            return Failure(RateLimitError(text, status=shown, detail=detail), again=False, reply=reply)
        if status == 401:
            return Failure(AuthError(self._key_text(), status=status, detail=detail), reply=reply)
        if status == 403:
            text = f"{label} does not allow this request. Check what the API key may do, or choose another model.{said}"
            return Failure(AuthError(text, status=status, detail=detail), reply=reply)
        if status in (404, 410):
            return Failure(ModelGoneError(self._gone_text(reply), status=status, detail=detail), reply=reply)
        if status == 413:
            text = (
                f"The request is larger than {label} takes. Send fewer or smaller files, or start a new conversation."
            )
            return Failure(InvalidRequestError(text, status=status, detail=detail), reply=reply)
        if status == 429:
            return self.rate_limited(status, reply, retry_after)
        if status == 529:
            text = f"{label} has too much to do at the moment. Try again in a while, or choose another model."
            return Failure(ServerError(text, status=status, detail=detail), retry_after, reply=reply)
        if status in (0, 408, 409, 425) or status >= 500:
            number = f" (HTTP {status})" if status else ""
            text = f"{label} has a problem of its own{number}. Try again in a moment, or choose another model."
            return Failure(ServerError(text, status=shown, detail=detail), retry_after, status != 501, reply)
        text = (
            f"{label} refused the request (HTTP {status}). Check this model's extra settings, or choose another model."
        )
        return Failure(InvalidRequestError(text + said, status=status, detail=detail), reply=reply)

    def web_page(self, status: int) -> Failure:
        text = f"{self.at.label} answered a web page, not the API. Check the base URL."
        return Failure(ProtocolError(text, status=status), again=False)

    def not_the_api(self, status: int) -> Failure:
        text = f"{self.at.label} answered something that is not Anthropic's API. Check the base URL."
        return Failure(ProtocolError(text, status=status), again=False)

    # --- texts -----------------------------------------------------------------------------------------------------

    def _key_text(self) -> str:
        if not self.secret:
            return f"{self.at.label} wants an API key. Enter one for this provider."
        return f"{self.at.label} refused the API key. Enter a valid one for this provider."

    def _gone_text(self, reply: ServerReply) -> str:
        # Anthropic says "model: NAME"; its other 404 is "Not found".
        if self.model and (self.model.lower() in reply.message.lower() or "model" in reply.message.lower()):
            return f"{self.at.label} does not have the model {self.name}. Choose another model."
        said = f" It said: {reply.message}" if reply.message and not _PLAIN_404.fullmatch(reply.message) else ""
        return f"{self.at.label} does not speak Anthropic's API at {self.at.base_url}. Check the base URL.{said}"
