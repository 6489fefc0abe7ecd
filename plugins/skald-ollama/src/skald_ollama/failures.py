"""What can go wrong with a call, as typed errors whose text says what happened and what to do."""

from __future__ import annotations

import re
from typing import Any

from skald_core.api import (
    AuthError,
    ContextLengthError,
    Failure,
    InvalidRequestError,
    ModelGoneError,
    ProtocolError,
    ServerError,
    ServerFailures,
    ServerReply,
)
from skald_ollama.replies import read_error

__all__ = ("Failures",)

# Narrow on purpose: a wrong guess costs a compaction that cannot help.
_CONTEXT = re.compile(
    r"input (?:length )?exceeds (?:the |maximum )*context|exceeds? the (?:available|maximum) context|exceed_context_size"
    r"|context (?:length|size|window) exceeded|prompt (?:is )?too long",
    re.IGNORECASE,
)
_MEMORY = re.compile(
    r"requires more (?:system |gpu )?memory|out of memory|cudaMalloc failed|unable to allocate", re.IGNORECASE
)
_GONE = re.compile(r"model .{0,200}not found|try pulling", re.IGNORECASE)
_UNABLE = re.compile(r"does not support (tools|thinking|chat|\w+)", re.IGNORECASE)
_SERVER_FAULT = re.compile(r"runner|process has terminated|exit status", re.IGNORECASE)


class Failures(ServerFailures):
    """Makes failures of one server."""

    field = "address"
    quicker = "a smaller model"
    paths = ("/api/chat", "/api/tags")
    html_errors = frozenset({401, 403, 408, 429})

    def read_error(self, body: Any) -> ServerReply | None:
        said = read_error(body)
        return None if said is None else ServerReply(said)

    def from_reply(self, status: int, reply: ServerReply, *, retry_after: float | None = None) -> Failure:
        detail = reply.message
        shown = status or None
        said = f" It said: {detail}" if detail else ""
        if _CONTEXT.search(detail):
            text = f"The conversation is longer than the context of {self.name}. Compact it, or give the model more context."
            return Failure(ContextLengthError(text, status=shown, detail=detail))
        if _MEMORY.search(detail):
            text = f"Ollama has not enough memory for {self.name}. Choose a smaller model, or give this one less context.{said}"
            return Failure(ServerError(text, status=shown, detail=detail), again=False)
        if status == 404 or (status in (0, 400) and _GONE.search(detail)):
            return Failure(ModelGoneError(self._gone_text(detail), status=shown, detail=detail))
        if status == 401:
            text = f"Ollama wants you to sign in for {self.name}. Run 'ollama signin' on the machine where it runs."
            return Failure(AuthError(text, status=status, detail=detail))
        if status == 403:
            text = f"Ollama does not allow this request. Check its settings, or choose another model.{said}"
            return Failure(AuthError(text, status=status, detail=detail))
        if status == 429:
            return self.rate_limited(status, reply, retry_after)
        if status == 503:
            text = "Ollama is busy with other requests. Try again in a moment, or choose another model."
            return Failure(ServerError(text, status=status, detail=detail), retry_after)
        if status in (0, 408, 409, 425) or status >= 500 or _SERVER_FAULT.search(detail):
            number = f" (HTTP {status})" if status else ""
            text = f"Ollama could not run {self.name}{number}. Try again in a moment, or choose another model.{said}"
            return Failure(ServerError(text, status=shown, detail=detail), retry_after, status != 501)
        if found := _UNABLE.search(detail):
            text = f"{self._name_first} cannot do what was asked of it ({found[1]}). Choose another model."
            return Failure(InvalidRequestError(text, status=status, detail=detail))
        text = (
            f"Ollama refused the request (HTTP {status}). Check this model's extra settings, or choose another model."
        )
        return Failure(InvalidRequestError(text + said, status=status, detail=detail))

    def web_page(self, status: int) -> Failure:
        text = f"{self.at.origin} answered a web page, not Ollama's API. Check the address."
        return Failure(ProtocolError(text, status=status), again=False)

    def not_the_api(self, status: int) -> Failure:
        text = f"{self.at.origin} answered something that is not Ollama's API. Check the address."
        return Failure(ProtocolError(text, status=status), again=False)

    def nameless_call(self) -> Failure:
        return Failure(
            ProtocolError(f"{self._name_first} called a tool without naming it. Try again, or choose another model.")
        )

    def not_running(self) -> str:
        return f"Nothing answers at {self.at.origin}. Start Ollama, or 'ollama serve', and try again."

    def refused(self) -> str:
        return (
            f"{self.at.origin} refused the connection. Is Ollama running there, and does it listen to other machines "
            "(OLLAMA_HOST=0.0.0.0)?"
        )

    # --- texts -----------------------------------------------------------------------------------------------------

    @property
    def _name_first(self) -> str:
        return f"The model {self.model!r}" if self.model else "The model"

    def _gone_text(self, detail: str) -> str:
        if self.model and (_GONE.search(detail) or self.model.lower() in detail.lower()):
            return f"Ollama does not have the model {self.name}. Fetch it with 'ollama pull {self.model}'."
        return f"{self.at.base_url} does not speak Ollama's API. Check the address."
