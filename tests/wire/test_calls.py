"""The loop around a call: what is repeated, what is learnt, what ends it. A real server on this machine answers."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Mapping
from typing import Any, ClassVar

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
from skald_core.testing.servers import RawServer, Script, Waits, Wire, hangs_up

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
    """Sends ``dialect`` and leaves out of it what a refusal names; goes elsewhere when there is nothing at ``path``. Each line
    of an answer is a text."""

    refusals: ClassVar[frozenset[int]] = frozenset({400, 404})

    def __init__(self, url: str, dialect: dict[str, Any], request: ModelRequest = REQUEST) -> None:
        super().__init__(request, Failures(parse_server_address(url), "secret-key", "m"))
        self.dialect = dialect

    def body(self) -> dict[str, Any]:
        return {key: value for key, value in self.dialect.items() if key not in ("header", "path")}

    def headers(self) -> Mapping[str, str]:
        return {"x-own": str(self.dialect["header"])} if "header" in self.dialect else {}

    def path(self) -> str:
        return str(self.dialect.get("path", ""))

    def learn(self, refusal: Failure, body: Mapping[str, Any]) -> None:
        if refusal.error.status == 404:
            self.dialect.pop("path", None)
            return
        assert refusal.reply is not None
        self.dialect.pop(refusal.reply.message, None)

    async def read(self, response: httpx.Response) -> AsyncGenerator[StreamEvent, None]:
        yield MessageStart()
        async for line in response.aiter_lines():
            if line == "broken":
                raise Failed(self.failures.malformed())
            yield TextDelta(line)


def sends(answer: bytes) -> Script:
    async def script(wire: Wire) -> None:
        await wire.send(answer)

    return script


def server(*answers: bytes) -> RawServer:
    """Answers with these bytes in turn, the last ones again and again, and closes after each."""
    made = RawServer()
    made.answer(*map(sends, answers))
    return made


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
    at: RawServer, dialect: dict[str, Any] | None = None, *, waits: Waits | None = None, **options: Any
) -> list[str]:
    """The texts of one call, after checking that it has one start."""
    caller = ModelCaller(
        parse_server_address(at.url),
        "/chat",
        {"x-all": "1"},
        log=logging.getLogger("test"),
        sleep=Waits() if waits is None else waits,
        jitter=lambda: 0.5,
        clock=lambda: 1000.0,
        **options,
    )
    try:
        events = [event async for event in caller.stream(Call(at.url, dialect if dialect is not None else {}))]
    finally:
        await caller.close()
    assert sum(isinstance(event, MessageStart) for event in events) == 1
    return [event.text for event in events if isinstance(event, TextDelta)]


async def test_a_failure_before_output_is_repeated() -> None:
    """With growing waits, or the one the server asked for; a start that was already given out is not given again."""
    busy, slow = answer(503, ""), answer(429, "", "Retry-After: 7")
    waits = Waits()
    async with server(busy, slow, answer(200, "broken\n"), answer(200, "hi\n")) as at:
        assert await run(at, waits=waits, retry=RetryPolicy(max_retries=3)) == ["hi"]
    assert waits == [1.0, 7.0, 4.0]
    assert all((heard.headers["x-all"], heard.method, heard.path) == ("1", "POST", "/chat") for heard in at.heard)


async def test_the_last_failure_is_raised_as_it_is() -> None:
    """Without an exception chained to it, which might hold headers."""
    async with server(answer(429, '{"error": "no secret-key"}', "Retry-After: 500")) as at:
        with pytest.raises(RateLimitError, match="in 500 s") as caught:
            await run(at)
    assert len(at.heard) == 1, "a wait that is too long ends the call"
    assert caught.value.retry_after == 500
    assert caught.value.__context__ is None


@pytest.mark.parametrize("end", ["broken\n", ""])
async def test_nothing_is_repeated_after_output(end: str) -> None:
    """Whether the answer is broken or the connection."""
    async with server(answer(200, "hi\n" + end, length=3 + len(end) + (not end))) as at:
        with pytest.raises((ProtocolError, NetworkError), match=r"cannot be read|broke off"):
            await run(at, retry=RetryPolicy(max_retries=5))
    assert len(at.heard) == 1


async def test_what_is_refused_is_left_out() -> None:
    """From the body and from the headers, each without a retry being counted."""
    dialect = {"keep": 1, "a": 1, "header": "h"}
    async with server(refusal("a"), refusal("header"), answer(200, "hi\n")) as at:
        assert await run(at, dialect, retry=RetryPolicy(max_retries=0)) == ["hi"]
    assert [heard.body for heard in at.heard] == [{"keep": 1, "a": 1}, {"keep": 1}, {"keep": 1}]
    assert ["x-own" in heard.headers for heard in at.heard] == [True, True, False]


async def test_another_path() -> None:
    """A call may name its own and, when the server does not have that, go to the caller's; a status no call can make anything
    of is final."""
    async with server(answer(404, ""), answer(200, "hi\n")) as at:
        assert await run(at, {"path": "/newer"}, retry=RetryPolicy(max_retries=0)) == ["hi"]
        assert [heard.path for heard in at.heard] == ["/newer", "/chat"]
    async with server(answer(405, "")) as at:
        with pytest.raises(InvalidRequestError):
            await run(at, {"path": "/newer"})
        assert len(at.heard) == 1


async def test_a_dropped_connection_is_tried_again_at_once() -> None:
    """It is most often one that was kept open a little too long."""
    waits = Waits()
    async with RawServer() as at:
        at.answer(hangs_up(), sends(answer(200, "hi\n")))
        assert await run(at, waits=waits) == ["hi"]
    assert waits == [0.0]


async def test_lessons_come_to_an_end() -> None:
    """A refusal that changes nothing is final, and so is one too many."""
    async with server(refusal("unknown")) as at:
        with pytest.raises(InvalidRequestError):
            await run(at, {"a": 1})
    assert len(at.heard) == 1
    async with server(refusal("a"), refusal("b"), refusal("c")) as at:
        with pytest.raises(InvalidRequestError):
            await run(at, {"a": 1, "b": 1, "c": 1}, max_lessons=2)
    assert len(at.heard) == 3


async def test_a_redirect_is_named_and_not_followed() -> None:
    """Following it would carry the key elsewhere."""
    async with server(answer(301, "", "Location: http://127.0.0.1:1/v2/chat?x=1")) as at:
        with pytest.raises(ProtocolError, match=r"redirects to 'http://127\.0\.0\.1:1/v2'\. Use that as the base URL"):
            await run(at)
    assert len(at.heard) == 1


async def test_what_cannot_be_sent_is_refused_before() -> None:
    """As a sentence about the settings."""
    async with server(answer(200, "")) as at:
        with pytest.raises(ConfigError, match="cannot be sent as JSON"):
            await run(at, {"a": object()})
    assert at.heard == []
