"""Reading one answer off the wire."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING

from skald_anthropic.answer import Answer, EmptyAnswerError, NamelessCallError
from skald_anthropic.failures import Failures
from skald_core.api import (
    BLANK_BYTES,
    MAX_EVENT_BYTES,
    Failed,
    ModelRequest,
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

if TYPE_CHECKING:
    import httpx

__all__ = ("read_answer",)

MAX_BODY = 32 * 1024 * 1024
AFTER_END = 0.2
"""Seconds to wait, after ``message_stop``, for the end of the response, which lets the connection be used again."""


async def read_answer(
    response: httpx.Response, request: ModelRequest, failures: Failures, *, new_id: Callable[[], str]
) -> AsyncGenerator[StreamEvent, None]:
    """The events of an accepted call (HTTP 200). A server that answers at once, as plain JSON, is understood too.

    Raises:
        Failed: the answer is broken, empty, cut, an error, or not from this API.
        httpx.HTTPError: the connection failed before the answer had ended.
    """
    chunks = response.aiter_bytes()
    head = await read_head(chunks)
    first = head.lstrip(BLANK_BYTES)[:1]
    if is_web_page(response.headers, head.lstrip(BLANK_BYTES)):
        raise Failed(failures.web_page(response.status_code))
    answer = Answer(request, new_id)
    if first == b"{":
        body = await read_capped(chunks, MAX_BODY, head)
        if len(body) > MAX_BODY:
            raise Failed(failures.too_large())
        for event in _at_once(body, answer, failures, response.status_code):
            yield event
        return
    async for event in _streamed(head, chunks, answer, failures, response.status_code):
        yield event


def _at_once(body: bytes, answer: Answer, failures: Failures, status: int) -> Iterator[StreamEvent]:
    decoded = read_json(body)
    error = failures.read_error(decoded)
    if error is not None:
        raise Failed(failures.from_reply(0, error))
    if decoded is None:
        raise Failed(failures.malformed())
    if not isinstance(decoded, dict) or not isinstance(decoded.get("content"), list):
        raise Failed(failures.not_the_api(status))
    with _Breaks(failures):
        yield from answer.whole(decoded)
        yield from answer.finish()


async def _streamed(
    head: bytes, chunks: AsyncIterator[bytes], answer: Answer, failures: Failures, status: int
) -> AsyncGenerator[StreamEvent, None]:
    decoder = SseDecoder(max_event_bytes=MAX_EVENT_BYTES)
    seen = done = False
    data: bytes | None = head
    try:
        while data is not None and not done:
            for event in decoder.feed(data):
                seen = True
                for out in _one(event, answer, failures):
                    yield out
                done = answer.ended
                if done:
                    break
            if not done:
                data = await anext(chunks, None)
        if done:
            await drain_body(chunks, AFTER_END)
        else:
            for event in decoder.finish():
                seen = True
                for out in _one(event, answer, failures):
                    yield out
            done = answer.ended
    except SseTooLargeError:
        raise Failed(failures.too_large()) from None
    if not done:
        if not seen and head.lstrip(BLANK_BYTES)[:1] not in (b"", b":"):
            raise Failed(failures.not_the_api(status))
        raise Failed(failures.cut() if seen or head else failures.empty())
    with _Breaks(failures):
        for out in answer.finish():
            yield out


def _one(event: SseEvent, answer: Answer, failures: Failures) -> Iterator[StreamEvent]:
    """What one server-sent event says."""
    text = event.data.strip()
    if not text or text == "[DONE]":
        return
    decoded = decode_payload(text)
    if not isinstance(decoded, dict):
        if event.event == "error":
            raise Failed(failures.from_reply(0, ServerReply(clean_detail(text, failures.secret))))
        raise Failed(failures.malformed() if event.complete else failures.cut())
    kind = decoded.get("type")
    kind = kind if isinstance(kind, str) and kind else event.event
    if kind == "error" or event.event == "error" or "error" in decoded:
        raise Failed(failures.from_reply(0, failures.read_error(decoded) or ServerReply()))
    with _Breaks(failures):
        yield from answer.feed(decoded, kind)


class _Breaks:
    """Turns what an answer finds wrong with itself into a failure."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, EmptyAnswerError):
            raise Failed(self._failures.empty()) from None
        if isinstance(error, NamelessCallError):
            raise Failed(self._failures.nameless_call()) from None
