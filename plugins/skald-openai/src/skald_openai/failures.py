"""From what went wrong to a typed error whose text tells a person what to do."""

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
from skald_openai.replies import Reply, clean, read_error, read_json
from skald_openai.retry import parse_retry_after
from skald_openai.services import Endpoint

if TYPE_CHECKING:
    import httpx

__all__ = ("Failed", "Failure", "Failures", "is_web_page")

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
    """Makes failures of one endpoint.

    ``secret`` is its key, kept out of every text; ``model`` and ``wanted``, what was asked for, are named in messages.
    """

    def __init__(self, endpoint: Endpoint, secret: str, model: str = "", *, wanted: str = "chat completions") -> None:
        self._at = endpoint
        self.secret = secret
        self._model = model
        self._wanted = wanted

    # --- HTTP answers ----------------------------------------------------------------------------------------------

    def from_answer(self, status: int, headers: Mapping[str, str], body: bytes, now: float) -> Failure:
        """An answer that is not a success, or a success that is a web page. ``now`` is seconds since the epoch."""
        html = is_web_page(headers, body)
        if html and status not in (401, 402, 403, 408, 429) and status < 500:
            return self.web_page(status)
        hint = parse_retry_after(headers, now)
        if 300 <= status < 400:
            return self._moved(status, headers.get("location", ""))
        decoded = None if html else read_json(body)
        reply = read_error(decoded, self.secret)
        if reply is None:
            text = "" if html or decoded is not None else body[:2000].decode("utf-8", "replace")
            reply = Reply(clean(text, self.secret))
        return self.from_reply(status, reply, retry_after=hint)

    def from_reply(self, status: int, reply: Reply, *, retry_after: float | None = None) -> Failure:
        """An error the server described. ``status`` 0 means it gave none: inside a stream, or with a 200."""
        status = status or reply.status
        label, detail, shown = self._at.label, reply.message, status or None
        said = f" It said: {detail}" if detail else ""
        if self._is_context(status, reply):
            return self._failure(
                ContextLengthError(
                    f"The conversation is longer than {self._name} can read. Compact it, or start a new one.",
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
            when = "in a moment" if retry_after is None else f"in {_seconds(retry_after)}"
            text = f"{label} limits how often it may be asked. Try again {when}, or choose another model."
            return self._failure(
                RateLimitError(text, status=status, detail=detail, retry_after=retry_after),
                reply,
                retry_after=retry_after,
            )
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
        text = f"{self._at.label} answered a web page, not the API. Check the base URL; most end in /v1."
        return Failure(ProtocolError(text, status=status), again=False)

    def not_the_api(self, status: int) -> Failure:
        text = f"{self._at.label} answered something that is not the API. Check the base URL; most end in /v1."
        return Failure(ProtocolError(text, status=status), again=False)

    # --- broken answers --------------------------------------------------------------------------------------------

    def cut(self) -> Failure:
        text = f"{self._at.label} broke off before the end of its answer. Try again."
        return Failure(NetworkError(text))

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
        text = f"{self._name_or_label} answered with nothing. Try again, or choose another model."
        return Failure(ProtocolError(text))

    # --- no answer -------------------------------------------------------------------------------------------------

    def from_transport(self, error: httpx.HTTPError, *, timeout: float, connect_timeout: float) -> Failure:
        """An exception of the HTTP client. Its own text is not shown: it may be long, and never says what to do."""
        import httpx

        label, at = self._at.label, self._at
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
            text = f"The request to {at.origin} could not be made. Check the base URL and the API key."
            return Failure(InvalidRequestError(text))
        else:
            # Most often a connection kept open from the call before, which the server was just closing: try again at once.
            text = f"{label} closed the connection without an answer. Try again."
            return Failure(NetworkError(text), retry_after=0.0)
        return Failure(NetworkError(text))

    def _connect_text(self, error: BaseException) -> str:
        at = self._at
        name = f"{at.label} ({at.origin})" if at.known else at.origin
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
            what = at.label if at.known else "the model server"
            return f"Nothing answers at {at.origin}. Is {what} running?"
        return f"{name} refused the connection. Check the base URL, or try again in a moment."

    # --- texts -----------------------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return repr(self._model) if self._model else "the model"

    @property
    def _name_or_label(self) -> str:
        return f"The model {self._model!r}" if self._model else self._at.label

    def _key_text(self) -> str:
        if not self.secret:
            return f"{self._at.label} wants an API key. Enter one for this provider."
        return f"{self._at.label} refused the API key. Enter a valid one for this provider."

    def _gone_text(self, reply: Reply) -> str:
        named = bool(self._model) and self._model.lower() in reply.message.lower()
        if "tool use" in reply.message.lower():
            return f"{self._at.label} offers {self._name} without tools. Choose a model that can use tools."
        if self._model and (named or "model" in f"{reply.message} {reply.code} {reply.kind}".lower()):
            how = f", or fetch it with 'ollama pull {self._model}'" if self._at.service.id == "ollama" else ""
            return f"{self._at.label} does not have the model {self._name}. Choose another model{how}."
        said = f" It said: {reply.message}" if reply.message and not _PLAIN_404.fullmatch(reply.message) else ""
        place = f"{self._at.label} has no {self._wanted} at {self._at.base_url}"
        return f"{place}. Check the base URL; most end in /v1.{said}"

    def _trouble_text(self, status: int, reply: Reply) -> str:
        if "loading" in reply.message.lower() and status in (0, 503):
            return f"{self._at.label} is still loading the model. Try again in a moment."
        number = f" (HTTP {status})" if status else ""
        return f"{self._at.label} has a problem of its own{number}. Try again in a moment, or choose another model."

    def _moved(self, status: int, location: str) -> Failure:
        target = clean(location.split("?")[0].removesuffix("/chat/completions").removesuffix("/models"), self.secret)
        where = f" to {target!r}. Use that as the base URL" if target else ". Check the base URL"
        return Failure(ProtocolError(f"{self._at.label} redirects{where}.", status=status), again=False)

    @staticmethod
    def _is_context(status: int, reply: Reply) -> bool:
        if reply.code in _CONTEXT_CODES or reply.kind in _CONTEXT_CODES:
            return True
        if status not in (0, 400, 413, 422, 500) or _CAP_WORDS.search(reply.message):
            return False
        return _CONTEXT_WORDS.search(reply.message) is not None

    @staticmethod
    def _failure(error: ModelError, reply: Reply, *, retry_after: float | None = None, again: bool = True) -> Failure:
        return Failure(error, retry_after, again, reply)


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
