"""What can go wrong with a call, as typed errors whose text says what happened and what to do."""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from skald_anthropic.address import Address
from skald_anthropic.replies import Reply, clean, read_error, read_json
from skald_anthropic.retry import parse_retry_after
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

if TYPE_CHECKING:
    import httpx

__all__ = ("Failed", "Failure", "Failures", "is_web_page")

# Narrow on purpose: a wrong guess costs a compaction that cannot help.
_CONTEXT_WORDS = re.compile(
    r"prompt is too long|input length and `?max_tokens`? exceed context limit|exceeds? (?:the )?(?:model'?s )?maximum context"
    r"|maximum context length|context (?:length|window) (?:exceeded|overflow)|exceeds? (?:the )?context (?:length|window)",
    re.IGNORECASE,
)
_CREDIT_WORDS = re.compile(r"credit balance is too low|insufficient (?:balance|credit)", re.IGNORECASE)
_PLAIN_404 = re.compile(r"(?:404 )?(?:page |path |route )?not found\.?", re.IGNORECASE)


class Failure(msgspec.Struct, frozen=True):
    """A failed attempt.

    ``retry_after`` is the wait in seconds the server asked for. ``again`` is false when repeating the same request at
    once is pointless even though another model may do. ``reply`` is what the server said, where it said something.
    """

    error: ModelError
    retry_after: float | None = None
    again: bool = True
    reply: Reply | None = None

    @property
    def retryable(self) -> bool:
        return self.error.retryable and self.again


class Failed(Exception):
    """Carries a failure out of an attempt. Never leaves this package."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure.error))
        self.failure = failure


class Failures:
    """Makes failures of one server. ``secret`` is its key, kept out of every text; ``model`` is named in messages."""

    def __init__(self, address: Address, secret: str, model: str = "") -> None:
        self._at = address
        self.secret = secret
        self._model = model

    # --- HTTP answers ----------------------------------------------------------------------------------------------

    def from_answer(self, status: int, headers: Mapping[str, str], body: bytes, now: float) -> Failure:
        """An answer that is not a success, or a success that is a web page. ``now`` is seconds since the epoch."""
        html = is_web_page(headers, body)
        if html and status not in (401, 402, 403, 408, 413, 429) and status < 500:
            return self.web_page(status)
        if 300 <= status < 400:
            return self._moved(status, headers.get("location", ""))
        decoded = None if html else read_json(body)
        reply = read_error(decoded, self.secret)
        if reply is None:
            text = "" if html or decoded is not None else body[:2000].decode("utf-8", "replace")
            reply = Reply(clean(text, self.secret))
        return self.from_reply(status, reply, retry_after=parse_retry_after(headers, now))

    def from_reply(self, status: int, reply: Reply, *, retry_after: float | None = None) -> Failure:
        """An error the server described. ``status`` 0 means that it gave none: inside a stream, or with a 200."""
        status = status or reply.status
        label, detail, shown = self._at.label, reply.message, status or None
        said = f" It said: {detail}" if detail else ""
        if status in (0, 400, 413, 422) and _CONTEXT_WORDS.search(detail):
            text = f"The conversation is longer than {self._name} can read. Compact it, or start a new one."
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
            when = "in a moment" if retry_after is None else f"in {_seconds(retry_after)}"
            text = f"{label} limits how often it may be asked. Try again {when}, or choose another model."
            error = RateLimitError(text, status=status, detail=detail, retry_after=retry_after)
            return Failure(error, retry_after, reply=reply)
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
        text = f"{self._at.label} answered a web page, not the API. Check the base URL."
        return Failure(ProtocolError(text, status=status), again=False)

    def not_the_api(self, status: int) -> Failure:
        text = f"{self._at.label} answered something that is not Anthropic's API. Check the base URL."
        return Failure(ProtocolError(text, status=status), again=False)

    # --- broken answers --------------------------------------------------------------------------------------------

    def cut(self) -> Failure:
        return Failure(NetworkError(f"{self._at.label} broke off before the end of its answer. Try again."))

    def malformed(self) -> Failure:
        text = f"{self._at.label} sent a piece of its answer that cannot be read. Try again, or choose another model."
        return Failure(ProtocolError(text))

    def too_large(self) -> Failure:
        text = f"{self._at.label} sent a piece of its answer that is far too large. Choose another model."
        return Failure(ProtocolError(text), again=False)

    def nameless_call(self) -> Failure:
        text = f"{self._at.label} called a tool without naming it. Try again, or choose another model."
        return Failure(ProtocolError(text))

    def empty(self) -> Failure:
        who = f"The model {self._model!r}" if self._model else self._at.label
        return Failure(ProtocolError(f"{who} answered with nothing. Try again, or choose another model."))

    # --- no answer -------------------------------------------------------------------------------------------------

    def from_transport(self, error: httpx.HTTPError, *, timeout: float, connect_timeout: float) -> Failure:
        """An exception of the HTTP client. Its own text is not shown: it may be long, and never says what to do."""
        import httpx

        label = self._at.label
        if isinstance(error, httpx.ConnectTimeout):
            wait = _seconds(connect_timeout)
            text = f"{label} did not take a connection within {wait}. Check the base URL, or try again."
        elif isinstance(error, httpx.ReadTimeout):
            text = f"{label} sent nothing for {_seconds(timeout)}. Try again, or choose a faster model."
        elif isinstance(error, httpx.TimeoutException):
            text = f"{label} took too long to accept the request. Try again."
        elif isinstance(error, httpx.ConnectError):
            text = self._connect_text(error)
        elif isinstance(error, httpx.DecodingError):
            return self.malformed()
        elif isinstance(error, (httpx.UnsupportedProtocol, httpx.LocalProtocolError)):
            text = f"The request to {self._at.origin} could not be made. Check the base URL and the API key."
            return Failure(InvalidRequestError(text))
        else:
            text = f"{label} closed the connection without an answer. Try again."
        return Failure(NetworkError(text))

    def _connect_text(self, error: BaseException) -> str:
        at = self._at
        name = f"{at.label} ({at.origin})" if at.first else at.origin
        causes = list(_causes(error))
        if any(isinstance(cause, socket.gaierror) for cause in causes):
            return f"The host {at.host!r} cannot be found. Check the base URL and this machine's network."
        if any(type(cause).__name__.startswith("SSL") for cause in causes):
            if any("WRONG_VERSION_NUMBER" in str(cause) or "RECORD_LAYER" in str(cause) for cause in causes):
                return f"{name} does not speak https. If it is a server nearby, let the base URL start with http://."
            return f"The certificate of {at.host!r} is not trusted. Check the base URL and this machine's clock."
        numbers = {cause.errno for cause in causes if isinstance(cause, OSError)}
        if numbers & {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN}:
            return f"There is no way to {name} from this machine. Check its network, then try again."
        if at.loopback:
            return f"Nothing answers at {at.origin}. Is the model server running?"
        return f"{name} refused the connection. Check the base URL, or try again in a moment."

    # --- texts -----------------------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return repr(self._model) if self._model else "the model"

    def _key_text(self) -> str:
        if not self.secret:
            return f"{self._at.label} wants an API key. Enter one for this provider."
        return f"{self._at.label} refused the API key. Enter a valid one for this provider."

    def _gone_text(self, reply: Reply) -> str:
        # Anthropic says "model: NAME"; its other 404 is "Not found".
        if self._model and (self._model.lower() in reply.message.lower() or "model" in reply.message.lower()):
            return f"{self._at.label} does not have the model {self._name}. Choose another model."
        said = f" It said: {reply.message}" if reply.message and not _PLAIN_404.fullmatch(reply.message) else ""
        return f"{self._at.label} does not speak Anthropic's API at {self._at.base_url}. Check the base URL.{said}"

    def _moved(self, status: int, location: str) -> Failure:
        target = location.split("?")[0].removesuffix("/v1/messages").removesuffix("/v1/models")
        target = clean(target, self.secret)
        where = f" to {target!r}. Use that as the base URL" if target else ". Check the base URL"
        return Failure(ProtocolError(f"{self._at.label} redirects{where}.", status=status), again=False)


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
