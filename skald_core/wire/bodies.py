"""Bodies of requests and answers: written so that every server can read them, read whatever a server or proxy made of them.

Streams of bytes are what ``httpx.Response.aiter_bytes`` gives.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from skald_core.loop.sse import mend_json
from skald_core.loop.types import MediaPart, ModelRequest, ResultPart, TextPart

__all__ = (
    "BLANK_BYTES",
    "decode_payload",
    "drain_body",
    "encode_body",
    "is_heavy",
    "is_web_page",
    "read_capped",
    "read_head",
    "read_json",
)

HEAVY = 512 * 1024
"""Characters from which a body is built off the event loop."""
BLANK_BYTES = b" \t\r\n\xef\xbb\xbf"
"""Bytes that may stand before an answer and mean nothing: white space and the byte order mark."""


# --- requests ------------------------------------------------------------------------------------------------------


def encode_body(body: Any) -> bytes:
    """UTF-8 JSON. Half characters, which JSON cannot carry, become question marks.

    Raises:
        TypeError, ValueError, RecursionError: it holds what JSON cannot say.
    """
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return msgspec.json.encode(_mended(body))


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_mended(item) for item in value]
    return value


def is_heavy(request: ModelRequest) -> bool:
    """Would building this request's body hold up the event loop?"""
    size = 0
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, MediaPart):
                size += len(part.data)
            elif isinstance(part, TextPart):
                size += len(part.text)
            elif isinstance(part, ResultPart):
                size += len(part.content)
    return size > HEAVY


# --- answers -------------------------------------------------------------------------------------------------------


def is_web_page(headers: Mapping[str, str], body: bytes) -> bool:
    """Is this answer HTML, by its content type or by how it begins? ``headers`` has lower-case names or ignores case."""
    content_type = headers.get("content-type", "").lower()
    return content_type.startswith(("text/html", "application/xhtml")) or body[:512].lstrip()[:1] == b"<"


def read_json(body: bytes) -> Any:
    """The body as JSON, or None."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def decode_payload(text: str) -> Any:
    """A stream's payload as JSON; raw control characters and halves of characters are forgiven. None when it cannot be
    read."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        pass
    try:
        return json.loads(mend_json(text))
    except (ValueError, RecursionError):
        return None


async def read_head(chunks: AsyncIterator[bytes]) -> bytes:
    """A body's first bytes, up to and with the first that is not in :data:`BLANK_BYTES`; empty when there is none."""
    head = b""
    async for chunk in chunks:
        head += chunk
        if head.lstrip(BLANK_BYTES):
            break
    return head


async def read_capped(chunks: AsyncIterator[bytes], limit: int, head: bytes = b"") -> bytes:
    """``head`` and the rest of a body; a little more than ``limit`` bytes when it is longer than that."""
    parts, size = [head], len(head)
    async for chunk in chunks:
        parts.append(chunk)
        size += len(chunk)
        if size > limit:
            break
    return b"".join(parts)


async def drain_body(chunks: AsyncIterator[bytes], within: float) -> None:
    """Read on to the body's end, for at most ``within`` seconds, so that the connection can be used again. What happens to
    it no longer matters."""
    import httpx

    try:
        async with asyncio.timeout(within):
            while await anext(chunks, None) is not None:
                pass
    except (TimeoutError, httpx.HTTPError):
        return
