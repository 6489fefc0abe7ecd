"""The loop around a call: what is repeated, what is learnt, what ends it. A real server on this machine answers."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from skald_core.api import (
    ConfigError,
    Failed,
    Failure,
    InvalidRequestError,
    MessageStart,
    ModelCall,
    ModelCaller,
    ModelRequest,
    NetworkError,
    ProtocolError,
    RateLimitError,
    RetryPolicy,
    ServerError,
    ServerFailures,
    ServerReply,
    StreamEvent,
    TextDelta,
    parse_server_address,
)

REQUEST = ModelRequest(model="m", system=(), messages=())


class Failures(ServerFailures):
    paths = ("/chat",)

    def read_error(self, body: Any) -> ServerReply | None:
        return ServerReply(body["error"]) if isinstance(body, dict) and "error" in body else None

    def from_reply(self, status: int, reply: ServerReply, *, retry_after: float | None = None) -> Failure:
        if status == 429:
            return self.rate_limited(status, reply, retry_after)
        kind = InvalidRequestError if status < 500 else ServerError
        return Failure(kind(f"HTTP {status}", status=status, detail=reply.message), reply=reply)

    def web_page(self, status: int) -> Failure:
        return Failure(ProtocolError("a web page", status=status), again=False)


class Call(ModelCall):
    """Sends ``dialect`` and leaves out of it what a refusal names. Each line of an answer is a text."""

    def __init__(self, url: str, dialect: dict[str, Any], request: ModelRequest = REQUEST) -> None:
        super().__init__(request, Failures(parse_server_address(url), "secret-key", "m"))
        self.dialect = dialect

    def body(self) -> dict[str, Any]:
        return {key: value for key, value in self.dialect.items() if key != "header"}

    def headers(self) -> Mapping[str, str]:
        return {"x-own": str(self.dialect["header"])} if "header" in self.dialect else {}

    def learn(self, refusal: Failure, body: Mapping[str, Any]) -> None:
        assert refusal.reply is not None
        self.dialect.pop(refusal.reply.message, None)

    async def read(self, response: httpx.Response) -> AsyncGenerator[StreamEvent, None]:
        yield MessageStart()
        async for line in response.aiter_lines():
            if line == "broken":
                raise Failed(self.failures.malformed())
            yield TextDelta(line)


class Server:
    """Answers with ``answers`` in turn (raw bytes), the last one again and again, and closes after each."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.url = ""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(int(line[15:]) for line in head.splitlines() if line.lower().startswith("content-length:"))
        self.heard.append((head, json.loads(await reader.readexactly(length))))
        writer.write(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])
        writer.close()

    @asynccontextmanager
    async def up(self) -> AsyncIterator[Server]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            await server.wait_closed()


def answer(status: int, body: str, *headers: str, length: int | None = None) -> bytes:
    lines = [
        f"HTTP/1.1 {status} X",
        "Connection: close",
        f"Content-Length: {len(body) if length is None else length}",
        *headers,
    ]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


def refusal(word: str) -> bytes:
    return answer(400, json.dumps({"error": word}))


async def run(
    server: Server, dialect: dict[str, Any] | None = None, *, waits: list[float] | None = None, **options: Any
) -> list[str]:
    """The texts of one call, after checking that it has one start."""

    async def sleep(seconds: float) -> None:
        if waits is not None:
            waits.append(seconds)

    caller = ModelCaller(
        parse_server_address(server.url),
        "/chat",
        {"x-all": "1"},
        log=logging.getLogger("test"),
        sleep=sleep,
        jitter=lambda: 0.5,
        clock=lambda: 1000.0,
        **options,
    )
    try:
        events = [event async for event in caller.stream(Call(server.url, dialect if dialect is not None else {}))]
    finally:
        await caller.close()
    assert sum(isinstance(event, MessageStart) for event in events) == 1
    return [event.text for event in events if isinstance(event, TextDelta)]


async def test_a_failure_before_output_is_repeated() -> None:
    """With growing waits, or the one the server asked for; a start that was already given out is not given again."""
    busy, slow = answer(503, ""), answer(429, "", "Retry-After: 7")
    waits: list[float] = []
    async with Server(busy, slow, answer(200, "broken\n"), answer(200, "hi\n")).up() as server:
        assert await run(server, waits=waits, retry=RetryPolicy(max_retries=3)) == ["hi"]
    assert waits == [1.0, 7.0, 4.0]
    assert all("x-all: 1" in head.lower() and head.startswith("POST /chat ") for head, _ in server.heard)


async def test_the_last_failure_is_raised_as_it_is() -> None:
    """Without an exception chained to it, which might hold headers."""
    async with Server(answer(429, '{"error": "no secret-key"}', "Retry-After: 500")).up() as server:
        with pytest.raises(RateLimitError, match="in 500 s") as caught:
            await run(server)
    assert len(server.heard) == 1, "a wait that is too long ends the call"
    assert caught.value.retry_after == 500
    assert caught.value.__context__ is None


@pytest.mark.parametrize("end", ["broken\n", ""])
async def test_nothing_is_repeated_after_output(end: str) -> None:
    """Whether the answer is broken or the connection."""
    async with Server(answer(200, "hi\n" + end, length=3 + len(end) + (not end))).up() as server:
        with pytest.raises((ProtocolError, NetworkError), match=r"cannot be read|broke off"):
            await run(server, retry=RetryPolicy(max_retries=5))
    assert len(server.heard) == 1


async def test_what_is_refused_is_left_out() -> None:
    """From the body and from the headers, each without a retry being counted."""
    dialect = {"keep": 1, "a": 1, "header": "h"}
    async with Server(refusal("a"), refusal("header"), answer(200, "hi\n")).up() as server:
        assert await run(server, dialect, retry=RetryPolicy(max_retries=0)) == ["hi"]
    assert [body for _, body in server.heard] == [{"keep": 1, "a": 1}, {"keep": 1}, {"keep": 1}]
    assert ["x-own" in head.lower() for head, _ in server.heard] == [True, True, False]


async def test_lessons_come_to_an_end() -> None:
    """A refusal that changes nothing is final, and so is one too many."""
    async with Server(refusal("unknown")).up() as server:
        with pytest.raises(InvalidRequestError):
            await run(server, {"a": 1})
    assert len(server.heard) == 1
    async with Server(refusal("a"), refusal("b"), refusal("c")).up() as server:
        with pytest.raises(InvalidRequestError):
            await run(server, {"a": 1, "b": 1, "c": 1}, max_lessons=2)
    assert len(server.heard) == 3


async def test_a_redirect_is_named_and_not_followed() -> None:
    """Following it would carry the key elsewhere."""
    async with Server(answer(301, "", "Location: http://127.0.0.1:1/v2/chat?x=1")).up() as server:
        with pytest.raises(ProtocolError, match=r"redirects to 'http://127\.0\.0\.1:1/v2'\. Use that as the base URL"):
            await run(server)
    assert len(server.heard) == 1


async def test_what_cannot_be_sent_is_refused_before() -> None:
    """As a sentence about the settings."""
    async with Server(answer(200, "")).up() as server:
        with pytest.raises(ConfigError, match="cannot be sent as JSON"):
            await run(server, {"a": object()})
    assert server.heard == []
