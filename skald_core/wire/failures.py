"""What can go wrong with a model call, as typed errors whose text says what happened and what to do."""

from __future__ import annotations

import errno
import socket
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from skald_core.loop.errors import InvalidRequestError, ModelError, NetworkError, ProtocolError, RateLimitError
from skald_core.wire.address import ServerAddress
from skald_core.wire.bodies import is_web_page, read_json
from skald_core.wire.retry import parse_retry_after
from skald_core.wire.text import clean_detail

if TYPE_CHECKING:
    import httpx

__all__ = ("Failed", "Failure", "ServerFailures", "ServerReply")


class ServerReply(msgspec.Struct, frozen=True):
    """An error as a server put it. ``message`` is cleaned; ``code`` and ``kind`` are lower case; ``param`` is the field it
    is about; ``status`` is an HTTP status the body names, or 0."""

    message: str = ""
    code: str = ""
    kind: str = ""
    param: str = ""
    status: int = 0


class Failure(msgspec.Struct, frozen=True):
    """A failed attempt.

    ``retry_after`` is the wait in seconds the server asked for. ``again`` is false when repeating the same request at
    once is pointless even though another model may do. ``reply`` is what the server said, where it said something.
    """

    error: ModelError
    retry_after: float | None = None
    again: bool = True
    reply: ServerReply | None = None

    @property
    def retryable(self) -> bool:
        return self.error.retryable and self.again


class Failed(Exception):
    """Carries a failure out of an attempt to :class:`ModelCaller`, which raises the error in it."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure.error))
        self.failure = failure


class ServerFailures(ABC):
    """Makes failures of the server at one address. Providers add how its API tells of errors.

    ``secret`` is the key in use, kept out of every text; ``model`` is named in messages. The class variables are the words
    that differ: ``field`` is what people know the address's setting as, ``quicker`` what helps against slowness, ``paths``
    endings of the API's own paths, left off a redirect's target, ``html_errors`` statuses below 500 that mean what they say
    though they come as a web page (some proxies do that), ``drop_wait`` the seconds to wait when the server dropped the
    connection without an answer (None: as after other failures). That is most often a connection kept open from the call
    before, which the server was just closing, so it is tried again at once.
    """

    field: ClassVar[str] = "base URL"
    quicker: ClassVar[str] = "a faster model"
    paths: ClassVar[tuple[str, ...]] = ()
    html_errors: ClassVar[frozenset[int]] = frozenset({401, 402, 403, 408, 429})
    drop_wait: ClassVar[float | None] = 0.0

    def __init__(self, at: ServerAddress, secret: str = "", model: str = "") -> None:
        self.at = at
        self.secret = secret
        self.model = model

    # --- what the provider says --------------------------------------------------------------------------------------

    @abstractmethod
    def read_error(self, body: Any) -> ServerReply | None:
        """The error in a decoded body, or None when there is none in it. ``body`` is whatever JSON held."""

    @abstractmethod
    def from_reply(self, status: int, reply: ServerReply, *, retry_after: float | None = None) -> Failure:
        """An error the server described. ``status`` 0 means that it gave none: inside a stream, or with a 200."""

    @abstractmethod
    def web_page(self, status: int) -> Failure:
        """It answered HTML."""

    def not_running(self) -> str:
        """Nothing listens at an address of this machine."""
        return (
            f"Nothing answers at {self.at.origin}. Is {self.at.label if self.at.known else 'the model server'} running?"
        )

    def refused(self) -> str:
        """Another machine does not take the connection."""
        return f"{self._place} refused the connection. Check the {self.field}, or try again in a moment."

    # --- HTTP answers ----------------------------------------------------------------------------------------------

    def from_answer(self, status: int, headers: Mapping[str, str], body: bytes, now: float) -> Failure:
        """An answer that is not a success, or a success that is a web page. ``now`` is seconds since the epoch."""
        html = is_web_page(headers, body)
        if html and status not in self.html_errors and status < 500:
            return self.web_page(status)
        if 300 <= status < 400:
            return self._moved(status, headers.get("location", ""))
        decoded = None if html else read_json(body)
        reply = self.read_error(decoded)
        if reply is None:
            text = "" if html or decoded is not None else body[:2000].decode("utf-8", "replace")
            reply = ServerReply(clean_detail(text, self.secret))
        return self.from_reply(status, reply, retry_after=parse_retry_after(headers, now))

    def rate_limited(self, status: int, reply: ServerReply, retry_after: float | None) -> Failure:
        """It was asked too often; ``retry_after`` are the seconds it wants us to wait."""
        when = "in a moment" if retry_after is None else f"in {_seconds(retry_after)}"
        text = f"{self.at.label} limits how often it may be asked. Try again {when}, or choose another model."
        error = RateLimitError(text, status=status, detail=reply.message, retry_after=retry_after)
        return Failure(error, retry_after, reply=reply)

    def _moved(self, status: int, location: str) -> Failure:
        target = location.split("?")[0]
        for path in self.paths:
            target = target.removesuffix(path)
        target = clean_detail(target, self.secret)
        where = f" to {target!r}. Use that as the {self.field}" if target else f". Check the {self.field}"
        return Failure(ProtocolError(f"{self.at.label} redirects{where}.", status=status), again=False)

    # --- broken answers --------------------------------------------------------------------------------------------

    def cut(self) -> Failure:
        """The connection ended before the answer did."""
        return Failure(NetworkError(f"{self.at.label} broke off before the end of its answer. Try again."))

    def malformed(self) -> Failure:
        """A piece of the answer cannot be read."""
        text = f"{self.at.label} sent a piece of its answer that cannot be read. Try again, or choose another model."
        return Failure(ProtocolError(text))

    def too_large(self) -> Failure:
        """A piece of the answer is larger than anybody should keep."""
        text = f"{self.at.label} sent a piece of its answer that is far too large. Choose another model."
        return Failure(ProtocolError(text), again=False)

    def nameless_call(self) -> Failure:
        """The model called a tool and did not say which."""
        text = f"{self.at.label} called a tool without naming it. Try again, or choose another model."
        return Failure(ProtocolError(text))

    def empty(self) -> Failure:
        """The answer holds nothing."""
        who = f"The model {self.model!r}" if self.model else self.at.label
        return Failure(ProtocolError(f"{who} answered with nothing. Try again, or choose another model."))

    # --- no answer -------------------------------------------------------------------------------------------------

    def from_transport(self, error: httpx.HTTPError, *, timeout: float, connect_timeout: float) -> Failure:
        """An exception of the HTTP client; the timeouts, in seconds, are those it had.

        The exception's own text is not shown: it may be long, and never says what to do.
        """
        import httpx

        label = self.at.label
        if isinstance(error, httpx.ConnectTimeout):
            wait = _seconds(connect_timeout)
            text = f"{label} did not take a connection within {wait}. Check the {self.field}, or try again."
        elif isinstance(error, httpx.ReadTimeout):
            text = f"{label} sent nothing for {_seconds(timeout)}. Try again, or choose {self.quicker}."
        elif isinstance(error, httpx.TimeoutException):
            text = f"{label} took too long to accept the request. Try again."
        elif isinstance(error, httpx.ConnectError):
            text = self._connect_text(error)
        elif isinstance(error, httpx.DecodingError):
            return self.malformed()
        elif isinstance(error, (httpx.UnsupportedProtocol, httpx.LocalProtocolError)):
            check = f"{self.field} and the API key" if self.secret else self.field
            text = f"The request to {self.at.origin} could not be made. Check the {check}."
            return Failure(InvalidRequestError(text))
        else:
            text = f"{label} closed the connection without an answer. Try again."
            return Failure(NetworkError(text), self.drop_wait)
        return Failure(NetworkError(text))

    def _connect_text(self, error: BaseException) -> str:
        causes = list(_causes(error))
        if any(isinstance(cause, socket.gaierror) for cause in causes):
            return f"The host {self.at.host!r} cannot be found. Check the {self.field} and this machine's network."
        if any(type(cause).__name__.startswith("SSL") for cause in causes):
            if any("WRONG_VERSION_NUMBER" in str(cause) or "RECORD_LAYER" in str(cause) for cause in causes):
                advice = f"If it is a server nearby, let the {self.field} start with http://."
                return f"{self._place} does not speak https. {advice}"
            return (
                f"The certificate of {self.at.host!r} is not trusted. Check the {self.field} and this machine's clock."
            )
        numbers = {cause.errno for cause in causes if isinstance(cause, OSError)}
        if numbers & {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN}:
            return f"There is no way to {self._place} from this machine. Check its network, then try again."
        return self.not_running() if self.at.loopback else self.refused()

    # --- words -----------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The model, for the middle of a sentence."""
        return repr(self.model) if self.model else "the model"

    @property
    def _place(self) -> str:
        return f"{self.at.label} ({self.at.origin})" if self.at.known else self.at.origin


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
