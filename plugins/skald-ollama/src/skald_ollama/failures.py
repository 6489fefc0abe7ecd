"""What can go wrong with a call, as typed errors whose text says what happened and what to do."""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from skald_core.api import (
    AuthError,
    ContextLengthError,
    InvalidRequestError,
    ModelError,
    ModelGoneError,
    NetworkError,
    ProtocolError,
    RateLimitError,
    ServerError,
)
from skald_ollama.address import Address
from skald_ollama.replies import clean, read_error, read_json
from skald_ollama.retry import parse_retry_after

if TYPE_CHECKING:
    import httpx

__all__ = ("Failed", "Failure", "Failures", "is_web_page")

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


class Failure(msgspec.Struct, frozen=True):
    """A failed attempt.

    ``retry_after`` is the wait in seconds the server asked for. ``again`` is false when repeating the same request at
    once is pointless even though another model may do.
    """

    error: ModelError
    retry_after: float | None = None
    again: bool = True

    @property
    def retryable(self) -> bool:
        return self.error.retryable and self.again


class Failed(Exception):
    """Carries a failure out of an attempt. Never leaves this package."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure.error))
        self.failure = failure


class Failures:
    """Makes failures of one server. ``model`` is named in messages."""

    def __init__(self, address: Address, model: str = "") -> None:
        self._at = address
        self._model = model

    # --- HTTP answers ----------------------------------------------------------------------------------------------

    def from_answer(self, status: int, headers: Mapping[str, str], body: bytes, now: float) -> Failure:
        """An answer that is not a success, or a success that is a web page. ``now`` is seconds since the epoch."""
        html = is_web_page(headers, body)
        if html and status not in (401, 403, 408, 429) and status < 500:
            return self.web_page(status)
        if 300 <= status < 400:
            return self._moved(status, headers.get("location", ""))
        decoded = None if html else read_json(body)
        detail = read_error(decoded)
        if detail is None:
            detail = "" if html or decoded is not None else clean(body[:2000].decode("utf-8", "replace"))
        return self.from_text(status, detail, retry_after=parse_retry_after(headers, now))

    def from_text(self, status: int, detail: str, *, retry_after: float | None = None) -> Failure:
        """An error Ollama described. ``status`` 0 means that it gave none: inside a stream."""
        shown = status or None
        said = f" It said: {detail}" if detail else ""
        if _CONTEXT.search(detail):
            text = f"The conversation is longer than the context of {self._name}. Compact it, or give the model more context."
            return Failure(ContextLengthError(text, status=shown, detail=detail))
        if _MEMORY.search(detail):
            text = f"Ollama has not enough memory for {self._name}. Choose a smaller model, or give this one less context.{said}"
            return Failure(ServerError(text, status=shown, detail=detail), again=False)
        if status == 404 or (status in (0, 400) and _GONE.search(detail)):
            return Failure(ModelGoneError(self._gone_text(detail), status=shown, detail=detail))
        if status == 401:
            text = f"Ollama wants you to sign in for {self._name}. Run 'ollama signin' on the machine where it runs."
            return Failure(AuthError(text, status=status, detail=detail))
        if status == 403:
            text = f"Ollama does not allow this request. Check its settings, or choose another model.{said}"
            return Failure(AuthError(text, status=status, detail=detail))
        if status == 429:
            when = "in a moment" if retry_after is None else f"in {_seconds(retry_after)}"
            text = f"Ollama limits how often it may be asked. Try again {when}, or choose another model."
            error = RateLimitError(text, status=status, detail=detail, retry_after=retry_after)
            return Failure(error, retry_after)
        if status == 503:
            text = "Ollama is busy with other requests. Try again in a moment, or choose another model."
            return Failure(ServerError(text, status=status, detail=detail), retry_after)
        if status in (0, 408, 409, 425) or status >= 500 or _SERVER_FAULT.search(detail):
            number = f" (HTTP {status})" if status else ""
            text = f"Ollama could not run {self._name}{number}. Try again in a moment, or choose another model.{said}"
            return Failure(ServerError(text, status=shown, detail=detail), retry_after, status != 501)
        if found := _UNABLE.search(detail):
            text = f"{self._name_first} cannot do what was asked of it ({found[1]}). Choose another model."
            return Failure(InvalidRequestError(text, status=status, detail=detail))
        text = (
            f"Ollama refused the request (HTTP {status}). Check this model's extra settings, or choose another model."
        )
        return Failure(InvalidRequestError(text + said, status=status, detail=detail))

    def web_page(self, status: int) -> Failure:
        text = f"{self._at.origin} answered a web page, not Ollama's API. Check the address."
        return Failure(ProtocolError(text, status=status), again=False)

    def not_the_api(self, status: int) -> Failure:
        text = f"{self._at.origin} answered something that is not Ollama's API. Check the address."
        return Failure(ProtocolError(text, status=status), again=False)

    # --- broken answers --------------------------------------------------------------------------------------------

    def cut(self) -> Failure:
        return Failure(NetworkError("Ollama broke off before the end of its answer. Try again."))

    def malformed(self) -> Failure:
        text = "Ollama sent a piece of its answer that cannot be read. Try again, or choose another model."
        return Failure(ProtocolError(text))

    def too_large(self) -> Failure:
        text = "Ollama sent a piece of its answer that is far too large. Choose another model."
        return Failure(ProtocolError(text), again=False)

    def nameless_call(self) -> Failure:
        return Failure(
            ProtocolError(f"{self._name_first} called a tool without naming it. Try again, or choose another model.")
        )

    def empty(self) -> Failure:
        return Failure(ProtocolError(f"{self._name_first} answered with nothing. Try again, or choose another model."))

    # --- no answer -------------------------------------------------------------------------------------------------

    def from_transport(self, error: httpx.HTTPError, *, timeout: float, connect_timeout: float) -> Failure:
        """An exception of the HTTP client. Its own text is not shown: it may be long, and never says what to do."""
        import httpx

        if isinstance(error, httpx.ConnectTimeout):
            wait = _seconds(connect_timeout)
            text = f"{self._at.origin} did not take a connection within {wait}. Check the address, or try again."
        elif isinstance(error, httpx.ReadTimeout):
            text = f"Ollama sent nothing for {_seconds(timeout)}. Try again, or choose a smaller model."
        elif isinstance(error, httpx.TimeoutException):
            text = "Ollama took too long to accept the request. Try again."
        elif isinstance(error, httpx.ConnectError):
            text = self._connect_text(error)
        elif isinstance(error, httpx.DecodingError):
            return self.malformed()
        elif isinstance(error, (httpx.UnsupportedProtocol, httpx.LocalProtocolError)):
            text = f"The request to {self._at.origin} could not be made. Check the address."
            return Failure(InvalidRequestError(text))
        else:
            text = "Ollama closed the connection without an answer. Try again."
        return Failure(NetworkError(text))

    def _connect_text(self, error: BaseException) -> str:
        at = self._at
        causes = list(_causes(error))
        if any(isinstance(cause, socket.gaierror) for cause in causes):
            return f"The host {at.host!r} cannot be found. Check the address and this machine's network."
        if any(type(cause).__name__.startswith("SSL") for cause in causes):
            if any("WRONG_VERSION_NUMBER" in str(cause) or "RECORD_LAYER" in str(cause) for cause in causes):
                return f"{at.origin} does not speak https. Let the address start with http://."
            return f"The certificate of {at.host!r} is not trusted. Check the address and this machine's clock."
        numbers = {cause.errno for cause in causes if isinstance(cause, OSError)}
        if numbers & {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN}:
            return f"There is no way to {at.origin} from this machine. Check its network, then try again."
        if at.loopback:
            return f"Nothing answers at {at.origin}. Start Ollama, or 'ollama serve', and try again."
        return (
            f"{at.origin} refused the connection. Is Ollama running there, and does it listen to other machines "
            "(OLLAMA_HOST=0.0.0.0)?"
        )

    # --- texts -----------------------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return repr(self._model) if self._model else "the model"

    @property
    def _name_first(self) -> str:
        return f"The model {self._model!r}" if self._model else "The model"

    def _gone_text(self, detail: str) -> str:
        if self._model and (_GONE.search(detail) or self._model.lower() in detail.lower()):
            return f"Ollama does not have the model {self._name}. Fetch it with 'ollama pull {self._model}'."
        return f"{self._at.base_url} does not speak Ollama's API. Check the address."

    def _moved(self, status: int, location: str) -> Failure:
        target = clean(location.split("?")[0].removesuffix("/api/chat").removesuffix("/api/tags"))
        where = f" to {target!r}. Use that as the address" if target else ". Check the address"
        return Failure(ProtocolError(f"{self._at.origin} redirects{where}.", status=status), again=False)


def is_web_page(headers: Mapping[str, str], body: bytes) -> bool:
    """Is this answer HTML, by its content type or by how it begins?"""
    content_type = headers.get("content-type", "").lower()
    return content_type.startswith(("text/html", "application/xhtml")) or body[:512].lstrip()[:1] == b"<"


def _seconds(value: float) -> str:
    return f"{value:.0f} s" if value >= 10 or value == int(value) else f"{value:.1f} s"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error, what caused it, and what those hold, each once."""
    seen: set[int] = set()
    queue = [error]
    while queue:
        current = queue.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        queue += [current.__cause__, current.__context__]
        if isinstance(current, BaseExceptionGroup):
            queue += list(current.exceptions)
