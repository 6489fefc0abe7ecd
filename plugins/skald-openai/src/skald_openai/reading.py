"""Reading one answer off the wire: whole or streamed, well-formed or not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from skald_core.api import MAX_EVENT_BYTES, ModelRequest, SseDecoder, SseEvent, SseTooLargeError, StreamEvent, mend_json
from skald_openai.answer import Answer, EmptyAnswerError, ServerFinishError
from skald_openai.calls import NamelessCallError
from skald_openai.failures import Failed, Failures, is_web_page
from skald_openai.replies import Reply, clean, read_error, read_json

if TYPE_CHECKING:
    import httpx

__all__ = ("read_answer", "read_capped")

MAX_BODY = 32 * 1024 * 1024
MAX_ERROR_BODY = 256 * 1024
AFTER_STOP = 5.0
"""Seconds to wait for usage once the server has said why it stopped."""
AFTER_DONE = 0.2
"""Seconds to wait, after ``[DONE]``, for the end of the response, which lets the connection be used again."""
_SPACE = b" \t\r\n\xef\xbb\xbf"


async def read_answer(
    response: httpx.Response,
    request: ModelRequest,
    failures: Failures,
    *,
    new_id: Callable[[], str],
    after_stop: float = AFTER_STOP,
) -> AsyncGenerator[StreamEvent, None]:
    """The events of an accepted call (HTTP 200).

    Servers that answer at once, as plain JSON, are understood too.

    Raises:
        Failed: the answer is broken, empty, an error, or not from this API.
        httpx.HTTPError: the connection failed before the answer had ended.
    """
    chunks = response.aiter_bytes()
    head = b""
    async for chunk in chunks:
        head += chunk
        if head.lstrip(_SPACE):
            break
    first = head.lstrip(_SPACE)[:1]
    if is_web_page(response.headers, head.lstrip(_SPACE)):
        raise Failed(failures.web_page(response.status_code))
    answer = Answer(request, new_id)
    if first in (b"{", b"["):
        body = await read_capped(chunks, MAX_BODY, head)
        if len(body) > MAX_BODY:
            raise Failed(failures.too_large())
        for event in _whole(body, answer, failures, response.status_code):
            yield event
        return
    async for event in _streamed(head, chunks, answer, failures, response.status_code, after_stop):
        yield event


async def read_capped(chunks: AsyncIterator[bytes], limit: int, head: bytes = b"") -> bytes:
    """The rest of a body; a little more than ``limit`` bytes when it is longer than that."""
    parts, size = [head], len(head)
    async for chunk in chunks:
        parts.append(chunk)
        size += len(chunk)
        if size > limit:
            break
    return b"".join(parts)


def _whole(body: bytes, answer: Answer, failures: Failures, status: int) -> Iterator[StreamEvent]:
    decoded = read_json(body)
    error = read_error(decoded, failures.secret)
    if error is not None:
        raise Failed(failures.from_reply(0, error))
    if decoded is None:
        raise Failed(failures.malformed())
    if not isinstance(decoded, dict) or not isinstance(decoded.get("choices"), list):
        raise Failed(failures.not_the_api(status))
    yield from answer.feed(decoded)
    yield from _finish(answer, failures)


async def _streamed(
    head: bytes,
    chunks: AsyncIterator[bytes],
    answer: Answer,
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
            if not done:
                data = await _next(chunks, answer, after_stop)
        if done:
            await _drain(chunks)
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
        if not seen and head.lstrip(_SPACE)[:1] not in (b"", b":"):
            raise Failed(failures.not_the_api(status))
        raise Failed(failures.cut() if seen or head else failures.empty())
    for out in _finish(answer, failures):
        yield out


async def _next(chunks: AsyncIterator[bytes], answer: Answer, after_stop: float) -> bytes | None:
    """More bytes, or None at the end. Once the answer has ended nothing that happens to the connection matters any more."""
    import httpx

    if not answer.ended:
        return await anext(chunks, None)
    try:
        async with asyncio.timeout(after_stop):
            return await anext(chunks, None)
    except (TimeoutError, httpx.HTTPError):
        return None


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    import httpx

    try:
        async with asyncio.timeout(AFTER_DONE):
            while await anext(chunks, None) is not None:
                pass
    except (TimeoutError, httpx.HTTPError):
        return


def _one(event: SseEvent, answer: Answer, failures: Failures) -> Iterator[StreamEvent]:
    """What one server-sent event says."""
    text = event.data.strip()
    if not text:
        return
    chunk = _decode(text)
    if not isinstance(chunk, dict):
        if answer.ended:
            return
        if event.event == "error":
            raise Failed(failures.from_reply(0, Reply(clean(text, failures.secret))))
        raise Failed(failures.malformed() if event.complete else failures.cut())
    error = read_error(chunk, failures.secret)
    if error is None and event.event == "error":
        error = read_error({"error": chunk}, failures.secret)
    if error is None and isinstance(chunk.get("choices"), list):
        # OpenRouter and others put the error of an upstream that broke into the choice.
        error = next(
            (read_error(c, failures.secret) for c in chunk["choices"] if isinstance(c, dict) and c.get("error")), None
        )
    if error is not None:
        if answer.ended:
            return
        raise Failed(failures.from_reply(0, error))
    yield from answer.feed(chunk)


def _finish(answer: Answer, failures: Failures) -> Iterator[StreamEvent]:
    try:
        yield from answer.finish()
    except EmptyAnswerError:
        raise Failed(failures.empty()) from None
    except NamelessCallError:
        raise Failed(failures.nameless_call()) from None
    except ServerFinishError:
        raise Failed(failures.from_reply(0, Reply())) from None


def _decode(text: str) -> Any:
    """A payload as JSON; raw control characters and halves of characters are forgiven. None when it cannot be read."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        pass
    try:
        return json.loads(mend_json(text))
    except (ValueError, RecursionError):
        return None
