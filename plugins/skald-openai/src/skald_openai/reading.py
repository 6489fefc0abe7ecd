"""Reading one answer off the wire: whole or streamed, well-formed or not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from skald_core.api import (
    BLANK_BYTES,
    MAX_EVENT_BYTES,
    Failed,
    ServerReply,
    SseDecoder,
    SseEvent,
    SseTooLargeError,
    StreamEvent,
    clean_detail,
    decode_payload,
    drain_body,
    is_web_page,
    read_capped,
    read_head,
    read_json,
)
from skald_openai.calls import NamelessCallError
from skald_openai.failures import Failures

if TYPE_CHECKING:
    import httpx

__all__ = ("AnswerInTheMaking", "EmptyAnswerError", "ServerFinishError", "read_answer")

MAX_BODY = 32 * 1024 * 1024
AFTER_STOP = 5.0
"""Seconds to wait for usage once the server has said why it stopped."""
AFTER_DONE = 0.2
"""Seconds to wait, after ``[DONE]``, for the end of the response, which lets the connection be used again."""


class EmptyAnswerError(Exception):
    """The answer ended and held nothing."""


class ServerFinishError(Exception):
    """The server ended the answer with a word that means it broke."""


class AnswerInTheMaking(Protocol):
    """What turns one API's pieces into events; the two APIs have one each."""

    @property
    def ended(self) -> bool:
        """The server has said that, and why, the answer is over."""

    @property
    def complete(self) -> bool:
        """Nothing that is worth waiting for will follow."""

    def takes(self, body: dict[str, Any]) -> bool:
        """Is this a whole answer of this API, from a server that does not stream?"""

    def feed(self, chunk: dict[str, Any]) -> Iterator[StreamEvent]:
        """Take one piece, or a whole answer."""

    def finish(self) -> Iterator[StreamEvent]:
        """The last events, ``MessageEnd`` at the end.

        Raises:
            EmptyAnswerError: nothing was said, thought or called, and nothing explains it.
            NamelessCallError: a tool was called without its name.
            ServerFinishError: the server says that it failed.
        """


async def read_answer(
    response: httpx.Response,
    answer: AnswerInTheMaking,
    failures: Failures,
    *,
    after_stop: float = AFTER_STOP,
) -> AsyncGenerator[StreamEvent, None]:
    """The events of an accepted call (HTTP 200).

    Servers that answer at once, as plain JSON, are understood too.

    Raises:
        Failed: the answer is broken, empty, an error, or not from this API.
        httpx.HTTPError: the connection failed before the answer had ended.
    """
    chunks = response.aiter_bytes()
    head = await read_head(chunks)
    first = head.lstrip(BLANK_BYTES)[:1]
    if is_web_page(response.headers, head.lstrip(BLANK_BYTES)):
        raise Failed(failures.web_page(response.status_code))
    if first in (b"{", b"["):
        body = await read_capped(chunks, MAX_BODY, head)
        if len(body) > MAX_BODY:
            raise Failed(failures.too_large())
        for event in _whole(body, answer, failures, response.status_code):
            yield event
        return
    async for event in _streamed(head, chunks, answer, failures, response.status_code, after_stop):
        yield event


def _whole(body: bytes, answer: AnswerInTheMaking, failures: Failures, status: int) -> Iterator[StreamEvent]:
    decoded = read_json(body)
    error = failures.read_error(decoded)
    if error is not None:
        raise Failed(failures.from_reply(0, error))
    if decoded is None:
        raise Failed(failures.malformed())
    if not isinstance(decoded, dict) or not answer.takes(decoded):
        raise Failed(failures.not_the_api(status))
    yield from answer.feed(decoded)
    yield from _finish(answer, failures)


async def _streamed(
    head: bytes,
    chunks: AsyncIterator[bytes],
    answer: AnswerInTheMaking,
    failures: Failures,
    status: int,
    after_stop: float,
) -> AsyncGenerator[StreamEvent, None]:
    decoder = SseDecoder(max_event_bytes=MAX_EVENT_BYTES)
    seen = done = False
    data: bytes | None = head
    try:
        while data is not None and not done:
            for event in decoder.feed(data):
                seen = True
                if event.data.strip() == "[DONE]":
                    done = True
                    break
                for out in _one(event, answer, failures):
                    yield out
                if answer.complete:
                    done = True
                    break
            if not done:
                data = await _next(chunks, answer, after_stop)
        if done:
            await drain_body(chunks, AFTER_DONE)
        else:
            for event in decoder.finish():
                seen = True
                if event.data.strip() == "[DONE]":
                    done = True
                else:
                    for out in _one(event, answer, failures):
                        yield out
    except SseTooLargeError:
        raise Failed(failures.too_large()) from None
    if not done and not answer.ended:
        if not seen and head.lstrip(BLANK_BYTES)[:1] not in (b"", b":"):
            raise Failed(failures.not_the_api(status))
        raise Failed(failures.cut() if seen or head else failures.empty())
    for out in _finish(answer, failures):
        yield out


async def _next(chunks: AsyncIterator[bytes], answer: AnswerInTheMaking, after_stop: float) -> bytes | None:
    """More bytes, or None at the end. Once the answer has ended nothing that happens to the connection matters any more."""
    import httpx

    if not answer.ended:
        return await anext(chunks, None)
    try:
        async with asyncio.timeout(after_stop):
            return await anext(chunks, None)
    except (TimeoutError, httpx.HTTPError):
        return None


def _one(event: SseEvent, answer: AnswerInTheMaking, failures: Failures) -> Iterator[StreamEvent]:
    """What one server-sent event says."""
    text = event.data.strip()
    if not text:
        return
    chunk = decode_payload(text)
    if not isinstance(chunk, dict):
        if answer.ended:
            return
        if event.event == "error":
            raise Failed(failures.from_reply(0, ServerReply(clean_detail(text, failures.secret))))
        raise Failed(failures.malformed() if event.complete else failures.cut())
    error = failures.read_error(chunk)
    if error is None and event.event == "error":
        error = failures.read_error({"error": chunk})
    if error is not None:
        if answer.ended:
            return
        raise Failed(failures.from_reply(0, error))
    if event.event:
        chunk.setdefault("type", event.event)  # some servers name an event only there
    yield from answer.feed(chunk)


def _finish(answer: AnswerInTheMaking, failures: Failures) -> Iterator[StreamEvent]:
    try:
        yield from answer.finish()
    except EmptyAnswerError:
        raise Failed(failures.empty()) from None
    except NamelessCallError:
        raise Failed(failures.nameless_call()) from None
    except ServerFinishError:
        raise Failed(failures.from_reply(0, ServerReply())) from None
