"""Reading one answer off the wire."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from skald_core.api import (
    BLANK_BYTES,
    MAX_LINE_BYTES,
    Failed,
    LineDecoder,
    LineTooLargeError,
    ModelRequest,
    ServerReply,
    StreamEvent,
    drain_body,
    is_web_page,
    mend_json,
    read_head,
)
from skald_ollama.answer import Answer, Chunk, EmptyAnswerError, NamelessCallError
from skald_ollama.failures import Failures

if TYPE_CHECKING:
    import httpx

__all__ = ("decode_line", "read_answer")

AFTER_END = 0.2
"""Seconds to wait, after the last chunk, for the end of the response, which lets the connection be used again."""
_decode = msgspec.json.Decoder(Chunk).decode


async def read_answer(
    response: httpx.Response, request: ModelRequest, failures: Failures, *, new_id: Callable[[], str]
) -> AsyncGenerator[StreamEvent, None]:
    """The events of an accepted call (HTTP 200). An answer that came at once is one line, and understood too.

    Raises:
        Failed: the answer is broken, empty, cut, an error, or not from this API.
        httpx.HTTPError: the connection failed before the answer had ended.
    """
    chunks = response.aiter_bytes()
    head = await read_head(chunks)
    start = head.lstrip(BLANK_BYTES)
    if is_web_page(response.headers, start):
        raise Failed(failures.web_page(response.status_code))
    if start and start[:1] != b"{":
        raise Failed(failures.not_the_api(response.status_code))
    answer = Answer(request, new_id)
    decoder = LineDecoder(max_line_bytes=MAX_LINE_BYTES)
    done = False
    data: bytes | None = start
    try:
        while data is not None and not done:
            for line in decoder.feed(data):
                for out in _one(line, answer, failures, whole=True):
                    yield out
                done = answer.ended
                if done:
                    break
            if not done:
                data = await anext(chunks, None)
        if done:
            await drain_body(chunks, AFTER_END)
        else:
            for line in decoder.finish():
                for out in _one(line, answer, failures, whole=False):
                    yield out
            done = answer.ended
    except LineTooLargeError:
        raise Failed(failures.too_large()) from None
    if not done:
        raise Failed(failures.cut() if start else failures.empty())
    try:
        for out in answer.finish():
            yield out
    except EmptyAnswerError:
        raise Failed(failures.empty()) from None


def _one(line: bytes, answer: Answer, failures: Failures, *, whole: bool) -> Iterator[StreamEvent]:
    """What one line says. ``whole`` is false for a line without its end."""
    chunk = decode_line(line)
    if chunk is None:
        raise Failed(failures.malformed() if whole else failures.cut())
    if chunk.error is not None:
        raise Failed(failures.from_reply(0, failures.read_error({"error": chunk.error}) or ServerReply()))
    if chunk.message is None and chunk.done is None:
        raise Failed(failures.not_the_api(200))
    try:
        yield from answer.feed(chunk)
    except NamelessCallError:
        raise Failed(failures.nameless_call()) from None


def decode_line(line: bytes) -> Chunk | None:
    """A line as a chunk; raw control characters and halves of characters are forgiven. None when it cannot be read."""
    try:
        return _decode(line)
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass
    try:
        # Decoded and encoded again: U+FFFD for what no store could take, else the same text.
        value = json.loads(mend_json(line.decode("utf-8", "replace")))
        return _decode(
            json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        )
    except (ValueError, RecursionError):
        return None
