"""Requests as bytes, and reading what came back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from skald_core.api import (
    MediaPart,
    ModelInfo,
    ModelRequest,
    ResultPart,
    TextPart,
    WireMessage,
    clean_detail,
    decode_payload,
    drain_body,
    encode_body,
    is_web_page,
    read_capped,
    read_head,
    read_json,
    whole_characters,
)
from skald_core.wire.bodies import HEAVY, is_heavy
from skald_core.wire.text import MAX_DETAIL


async def stream(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ({"a": "ü🙂"}, {"a": "ü🙂"}),
        ({"a": ["x\ud83d", {"\udc00k": ("y",)}]}, {"a": ["x?", {"?k": ["y"]}]}),
    ],
)
def test_a_body_is_json_every_server_can_read(body: Any, want: Any) -> None:
    """Halves of characters, wherever they stand, become question marks."""
    assert json.loads(encode_body(body)) == want


@pytest.mark.parametrize("part", [TextPart, lambda text: ResultPart("c", text)])
def test_heavy_requests_are_recognised(part: Any) -> None:
    """Those are built off the event loop."""
    assert not is_heavy(asking(part("x" * HEAVY)))
    assert is_heavy(asking(part("x" * (HEAVY + 1))))
    assert is_heavy(asking(MediaPart("image/png", bytes(HEAVY + 1))))


def asking(part: Any) -> ModelRequest:
    return ModelRequest(model="m", info=ModelInfo(), system=(), messages=(WireMessage("user", (part,)),))


@pytest.mark.parametrize(
    ("text", "want"),
    [("plain", "plain"), ("ü🙂", "ü🙂"), ("a\ud83d\ude42", "a🙂"), ("a\ud83db", "a\ufffdb"), ("\ude42", "\ufffd")],
)
def test_characters_come_out_whole(text: str, want: str) -> None:
    """Two halves side by side are their character; one alone cannot be saved."""
    assert whole_characters(text) == want


@pytest.mark.parametrize(
    ("kind", "body", "want"),
    [
        ("text/html; charset=utf-8", b"{}", True),
        ("application/json", b" \n<!doctype html>", True),
        ("application/json", b'{"a": "<"}', False),
        ("", b"", False),
    ],
)
def test_web_pages_are_recognised(kind: str, body: bytes, want: bool) -> None:
    """By what they say they are, or by how they begin."""
    assert is_web_page({"content-type": kind} if kind else {}, body) is want


@pytest.mark.parametrize("body", [b"", b"{", b'"\xff"', b"[" * 100_000])
def test_a_body_that_is_no_json_is_none(body: bytes) -> None:
    """It raises nothing."""
    assert read_json(body) is None


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ('{"a": 1}', {"a": 1}),
        ('{"a": "x\ny"}', {"a": "x\ny"}),
        ('{"a": "\\ud83d"}', {"a": "\ud83d"}),
        ('{"a": ', None),
        ("[" * 100_000, None),
    ],
)
def test_payloads_are_read_kindly(text: str, want: Any) -> None:
    """Raw line breaks and halves of characters are no reason to lose an answer."""
    assert decode_payload(text) == want


async def test_the_head_ends_with_the_first_byte_that_means_something() -> None:
    """White space and a byte order mark may come first, in pieces; the rest stays for later."""
    chunks = stream(b"\xef\xbb", b"\xbf \r\n", b'{"a"', b": 1}")
    head = await read_head(chunks)
    assert head == b'\xef\xbb\xbf \r\n{"a"'
    assert await read_capped(chunks, 100, head) == b'\xef\xbb\xbf \r\n{"a": 1}'
    assert await read_head(stream(b" ", b"\n")) == b" \n"


async def test_a_body_without_end_is_cut() -> None:
    """Little more than the limit is ever held."""
    assert await read_capped(stream(*[b"x" * 10] * 100), 25) == b"x" * 30


async def test_draining_reads_to_the_end() -> None:
    """What is left is thrown away."""
    chunks = stream(b"a", b"b")
    await drain_body(chunks, 60.0)
    assert await anext(chunks, None) is None


def test_server_text_is_made_safe_to_show() -> None:
    """One line, no control or direction characters, no keys of any make, not too long."""
    text = (
        "Bad\n\tkey sk-proj-abcdef123456 \x1b[31m\u202e for Bearer abc.def, gsk_1234567890ab and mysecret" + "x" * 999
    )
    shown = clean_detail(text, "mysecret")
    assert len(shown) <= MAX_DETAIL
    assert shown.startswith("Bad key *** [31m for ***")
    for leak in ("abcdef", "abc.def", "1234567890ab", "mysecret", "\x1b", "\u202e", "\n"):
        assert leak not in shown
