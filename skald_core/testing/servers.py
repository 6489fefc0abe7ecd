"""For tests of providers: a model server made of bare sockets, which says byte for byte what a test tells it to.

No HTTP library would send what real servers and proxies send, so this one is none::

    async def script(wire: Wire) -> None:
        await wire.events({"text": "He"}, {"text": "llo"})   # a stream of server-sent events
        wire.reset()                                         # … that breaks off

    async with RawServer("/v1") as server:
        server.answer(replies('{"error": "busy"}', status="503 Service Unavailable"), script)
        provider = MyProvider(base_url=server.url, sleep=Waits())
        events = await read_all(provider, request)
    assert server.heard[0].body["stream"] is True

A script answers one connection. Faults are lines of a script: ``wire.reset()`` drops the connection, returning early ends
it, ``wire.head()`` with another ``Content_Type`` lies about what follows, ``await server.hung_up.wait()`` stays silent until
the client has gone. :func:`replies`, :func:`streams`, :func:`hangs_up` and :func:`stays_silent` are scripts ready to use;
:data:`FAULTS` names those every provider has to cope with, and what each has to become.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Self, TypeVar

from skald_core.loop.errors import ModelError, NetworkError, ProtocolError, RateLimitError, ServerError
from skald_core.loop.provider import Provider, StreamEvent
from skald_core.loop.types import ModelRequest, SystemBlock, TextPart, ToolSpec, WireMessage
from skald_core.wire.retry import RetryPolicy

__all__ = (
    "FAULTS",
    "READ_FILE",
    "Fault",
    "Heard",
    "RawServer",
    "Script",
    "Waits",
    "Wire",
    "ask",
    "hangs_up",
    "providers",
    "read_all",
    "read_into",
    "replies",
    "stays_silent",
    "streams",
    "user",
)

P = TypeVar("P", bound=Provider)

READ_WITHIN = 30.0
"""Seconds after which a call that does not end fails its test."""


class Heard(NamedTuple):
    """One request as it arrived; the names of ``headers`` are lower case."""

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        """The JSON in it."""
        return json.loads(self.raw)


class Wire:
    """One connection, to be written to."""

    def __init__(self, writer: asyncio.StreamWriter, server: RawServer) -> None:
        self._writer = writer
        self.server = server

    async def send(self, data: bytes | str) -> None:
        """These bytes, and nothing around them. Raises ConnectionError when the client has gone: let it."""
        self._writer.write(data.encode() if isinstance(data, str) else data)
        await self._writer.drain()

    async def head(self, status: str = "200 OK", **headers: str) -> None:
        """A status line and headers, written with ``_`` for ``-``; the body that follows lasts until the connection ends."""
        lines = [
            f"HTTP/1.1 {status}",
            *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
            "Connection: close",
        ]
        await self.send("\r\n".join(lines) + "\r\n\r\n")

    async def whole(self, body: bytes | str, status: str = "200 OK", **headers: str) -> None:
        """A complete answer, JSON unless ``Content_Type`` says otherwise."""
        data = body.encode() if isinstance(body, str) else body
        await self.head(status, **{"Content_Type": "application/json", **headers, "Content_Length": str(len(data))})
        await self.send(data)

    async def events(self, *payloads: Any, done: bool = False) -> None:
        """Server-sent events; ``done`` puts OpenAI's ``[DONE]`` after them."""
        await self.head(Content_Type="text/event-stream")
        for payload in payloads:
            await self.event(payload)
        if done:
            await self.send("data: [DONE]\n\n")

    async def event(self, payload: Any) -> None:
        """One server-sent event: text as it is, anything else as JSON. An object's ``type`` is also the event's."""
        kind = payload.get("type") if isinstance(payload, dict) else None
        name = f"event: {kind}\n" if isinstance(kind, str) else ""
        await self.send(f"{name}data: {payload if isinstance(payload, str) else json.dumps(payload)}\n\n")

    async def lines(self, *values: Any) -> None:
        """Newline-delimited JSON."""
        await self.head(Content_Type="application/x-ndjson")
        for value in values:
            await self.line(value)

    async def line(self, value: Any) -> None:
        await self.send(json.dumps(value) + "\n")

    def reset(self) -> None:
        """Drop the connection without a goodbye."""
        self._writer.transport.abort()


Script = Callable[[Wire], Awaitable[None]]


class RawServer:
    """Answers the n-th connection with the n-th script of :meth:`answer`, the last one for all that follow.

    ``path`` ends :attr:`url`. Use it as an async context manager. ``heard`` are the requests in their order; ``hung_up`` is
    set once a client left before it had its answer.
    """

    def __init__(self, path: str = "") -> None:
        self.heard: list[Heard] = []
        self.hung_up = asyncio.Event()
        self._path = path
        self._scripts: list[Script] = []
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        assert self._server is not None, "the server is not running: use it with 'async with'"
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self._path}"

    def answer(self, *scripts: Script) -> None:
        """What to do from now on; connections already heard count."""
        self._scripts = list(scripts)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, path, _ = head[0].split(" ", 2)
            headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
            raw = await reader.readexactly(int(headers.get("content-length", "0")))
            script = self._scripts[min(len(self.heard), len(self._scripts) - 1)]
            self.heard.append(Heard(method, path, headers, raw))
            watch = asyncio.create_task(self._watch(reader))
            try:
                await script(Wire(writer, self))
            finally:
                watch.cancel()
                await asyncio.gather(watch, return_exceptions=True)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.hung_up.set()
        finally:
            writer.close()

    async def _watch(self, reader: asyncio.StreamReader) -> None:
        """Notice that the client has gone, also while a script is silent."""
        try:
            while await reader.read(4096):
                pass
        except ConnectionError:
            pass
        self.hung_up.set()


class Waits(list[float]):
    """Stands in for sleeping: notes how many seconds were asked for and goes on at once."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


# --- requests ----------------------------------------------------------------------------------------------------------

READ_FILE = ToolSpec(
    "read_file",
    "Read a file.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)
"""A tool to offer."""


def user(text: str) -> WireMessage:
    """What a person said."""
    return WireMessage("user", (TextPart(text),))


def ask(text: str = "Hello", **fields: Any) -> ModelRequest:
    """A request of one user message; ``fields`` are those of :class:`~skald_core.loop.types.ModelRequest`."""
    given: dict[str, Any] = {"model": "some-model", "system": (SystemBlock("Be brief."),), "messages": (user(text),)}
    return ModelRequest(**(given | fields))


# --- providers ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def providers(kind: Callable[..., P]) -> AsyncIterator[Callable[..., P]]:
    """Makes providers of ``kind`` and closes them in the end.

    Beside what the test gives they get ``provider_id="test"``, ``sleep=Waits()``, a ``retry`` that does not retry, a
    ``timeout`` of 10 s, and a ``new_id`` that counts: ``made_1``, ``made_2``, … Their first argument is ``base_url``.
    """
    made: list[P] = []

    def make(base_url: str, **options: Any) -> P:
        numbers = itertools.count(1)
        given = {
            "provider_id": "test",
            "sleep": Waits(),
            "retry": RetryPolicy(max_retries=0),
            "timeout": 10.0,
            "new_id": lambda: f"made_{next(numbers)}",
        }
        provider = kind(base_url=base_url, **(given | options))
        made.append(provider)
        return provider

    try:
        yield make
    finally:
        for provider in made:
            await provider.close()


async def read_all(provider: Provider, request: ModelRequest) -> list[StreamEvent]:
    """Every event of one call. Raises what the call raises, and TimeoutError when it does not end."""
    shown: list[StreamEvent] = []
    await read_into(shown, provider, request)
    return shown


async def read_into(shown: list[StreamEvent], provider: Provider, request: ModelRequest) -> None:
    """Like :func:`read_all`, but what came before an error is kept in ``shown``."""
    async with asyncio.timeout(READ_WITHIN):
        async for event in provider.stream(request):
            shown.append(event)


# --- scripts -----------------------------------------------------------------------------------------------------------


def replies(body: bytes | str, status: str = "200 OK", headers: Mapping[str, str] | None = None) -> Script:
    """One complete answer."""

    async def script(wire: Wire) -> None:
        await wire.whole(body, status, **{name.replace("-", "_"): value for name, value in (headers or {}).items()})

    return script


def streams(*payloads: Any, done: bool = False) -> Script:
    """Server-sent events, then the end of the connection."""

    async def script(wire: Wire) -> None:
        await wire.events(*payloads, done=done)

    return script


def hangs_up() -> Script:
    """No answer: the connection is dropped."""

    async def script(wire: Wire) -> None:
        wire.reset()

    return script


def stays_silent() -> Script:
    """No answer, until the client has had enough."""

    async def script(wire: Wire) -> None:
        await wire.server.hung_up.wait()

    return script


class Fault(NamedTuple):
    """What a server does wrong, the error it has to become, and whether a provider should try again by itself."""

    script: Script
    error: type[ModelError]
    again: bool


FAULTS: Mapping[str, Fault] = {
    "429": Fault(replies('{"error": {"message": "slow down"}}', "429 Too Many Requests"), RateLimitError, again=True),
    "429 with Retry-After": Fault(
        replies('{"error": {"message": "slow down"}}', "429 Too Many Requests", {"Retry-After": "7"}),
        RateLimitError,
        again=True,
    ),
    "500": Fault(replies('{"error": {"message": "oh"}}', "500 Internal Server Error"), ServerError, again=True),
    "500 as a web page": Fault(
        replies("<html>Bad gateway</html>", "502 Bad Gateway", {"Content-Type": "text/html"}), ServerError, again=True
    ),
    "hangs up": Fault(hangs_up(), NetworkError, again=True),
    "stays silent": Fault(stays_silent(), NetworkError, again=True),
    "empty answer": Fault(replies(""), ProtocolError, again=True),
    "malformed JSON": Fault(replies('{"id": nonsense}\n'), ProtocolError, again=True),
    "a web page": Fault(
        replies("<html><body>Welcome</body></html>", headers={"Content-Type": "text/html"}), ProtocolError, again=False
    ),
    "plain text": Fault(replies("It works!", headers={"Content-Type": "text/plain"}), ProtocolError, again=False),
}
"""By name. Before any output; a stream that breaks off after some is each API's own business."""
