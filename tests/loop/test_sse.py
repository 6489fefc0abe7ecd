"""The SSE decoder: the standard where servers keep to it, and forgiveness where they do not."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skald_core.loop.sse import SseDecoder, SseEvent, SseTooLargeError, mend_json


def decode(*chunks: bytes, limit: int = 1 << 20) -> list[SseEvent]:
    decoder = SseDecoder(max_event_bytes=limit)
    found = [event for chunk in chunks for event in decoder.feed(chunk)]
    return found + list(decoder.finish())


def data(*chunks: bytes) -> list[str]:
    return [event.data for event in decode(*chunks)]


# --- the standard ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_each_line_ending(end: bytes) -> None:
    """LF, CRLF and CR end lines alike."""
    assert data(b"data: one" + end + end + b"data: two" + end + b"data: three" + end + end) == ["one", "two\nthree"]


def test_a_crlf_torn_over_two_chunks_is_one_line_end() -> None:
    """Otherwise the LF would close the event too early."""
    assert data(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == ["a\nb"]


def test_fields_comments_and_ids() -> None:
    """Type and id are kept, comments and unknown fields are not data, only one space after the colon is dropped."""
    events = decode(b": keep-alive\nevent: delta\nid: 7\nretry: 10\nfoo: bar\ndata:  two spaces\n\ndata:none\n\n")
    assert events == [SseEvent(" two spaces", "delta", "7"), SseEvent("none", "", "7")]


def test_byte_order_mark_and_bad_utf8() -> None:
    """A BOM at the start is skipped; bytes that are no UTF-8 become replacement characters."""
    assert data(b"\xef\xbb\xbfdata: a\xffb\n\n") == ["a\ufffdb"]


def test_an_event_without_data_is_none() -> None:
    """Blank lines and a lone type say nothing."""
    assert decode(b"\n\nevent: ping\n\n: comment\n\n") == []


def test_the_end_mark_is_left_to_the_caller() -> None:
    """[DONE] is data like any other."""
    assert data(b"data: [DONE]\n\n") == ["[DONE]"]


# --- forgiveness -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rest", [b"", b"\n"])
def test_an_unfinished_event_is_delivered_and_marked(rest: bytes) -> None:
    """The end of the stream may stand in for the blank line, but the caller can tell."""
    assert decode(b"data: a\n\ndata: b" + rest) == [SseEvent("a"), SseEvent("b", complete=False)]


def test_a_stream_wrapped_twice_is_unwrapped() -> None:
    """Some proxies put whole lines of the inner stream into data lines."""
    assert decode(b'data: event: error\ndata: data: {"a":1}\n\n') == [SseEvent('{"a":1}', "error")]


def test_an_indented_field_counts() -> None:
    """A space before the name is a slip, not another field."""
    assert data(b"  data: x\n\n") == ["x"]


def test_an_error_field_is_an_error_event() -> None:
    """Older llama.cpp writes its error without a data field."""
    assert decode(b'error: {"code":500}\n\n') == [SseEvent('{"code":500}', "error")]


def test_a_raw_line_break_inside_a_json_string() -> None:
    """The line after it is the string's, as long as the quotes say that a string is open."""
    (event,) = decode(b'data: {"t":"one\ntwo\n  three"}\n\n')
    assert json.loads(mend_json(event.data)) == {"t": "one\ntwo\n  three"}


def test_an_unknown_line_after_closed_json_is_no_data() -> None:
    """Outside of a string the standard holds: an unknown field is ignored."""
    assert data(b'data: {"t":"a \\" b"}\nnoise\n\n') == ['{"t":"a \\" b"}']


def test_raw_control_characters_are_escaped_inside_strings_only() -> None:
    """Backslashes keep their meaning and the space between tokens stays as it is."""
    broken = '{\n\t"a\tb": "x\x01\\"\ny\\\\",\r"c": 1}'
    assert json.loads(mend_json(broken)) == {"a\tb": 'x\x01"\ny\\', "c": 1}
    assert mend_json(broken).startswith("{\n\t")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)
    )
)
def test_valid_json_is_never_changed(value: object) -> None:
    """Mending is the identity on what needs none."""
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert mend_json(text) == text


# --- the cap -----------------------------------------------------------------------------------------------------


def test_an_event_over_the_cap_is_refused_and_those_before_it_are_not_lost() -> None:
    """Also when it arrives in one piece with them."""
    decoder = SseDecoder(max_event_bytes=20)
    stream = decoder.feed(b"data: a\n\ndata: " + b"x" * 30 + b"\n\n")
    assert next(stream) == SseEvent("a")
    with pytest.raises(SseTooLargeError, match="20 bytes"):
        next(stream)


def test_the_cap_counts_an_event_not_the_stream() -> None:
    """Many small events, and comments without end, never add up."""
    assert len(decode(*[b"data: 0123456789\n\n: comment\n"] * 50, limit=20)) == 50


def test_a_line_without_end_is_refused() -> None:
    """Even if no line ending ever comes."""
    with pytest.raises(SseTooLargeError):
        decode(*[b"x" * 10] * 11, limit=100)


# --- chunking ----------------------------------------------------------------------------------------------------

LINES = st.sampled_from(
    [
        b"data: {\"a\": \"\xc3\xa9\xe2\x82\xac\"}", b"data:", b"data", b"data: event: x", b"event: e", b"id: 1", b"id: \0", b":c",
        b'data: {"t":"open', b'closed"}', b"error: boom", b" data: indented", b"retry: 5", b"", b"", b"\xff\xfe", b"data: [DONE]",
    ]
)  # fmt: skip
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
STREAMS = st.lists(st.tuples(LINES, ENDS).map(b"".join), max_size=12).map(b"".join) | st.binary(max_size=60)


@given(STREAMS, st.lists(st.integers(0, 200), max_size=12), st.booleans())
def test_chunking_makes_no_difference(stream: bytes, cuts: list[int], marked: bool) -> None:
    """However the bytes are cut, down to single ones, the events are the same."""
    if marked:
        stream = b"\xef\xbb\xbf" + stream
    whole = decode(stream)
    bounds = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[a:b] for a, b in itertools.pairwise(bounds)]
    assert decode(*pieces) == whole
    assert decode(*(stream[i : i + 1] for i in range(len(stream)))) == whole


@given(st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=3), max_size=6), st.integers(1, 9))
def test_what_is_encoded_by_the_book_comes_back(payloads: list[dict[str, str]], size: int) -> None:
    """JSON payloads survive whatever they hold, cut anywhere."""
    stream = b"".join(b"data: " + json.dumps(p, ensure_ascii=False).encode() + b"\n\n" for p in payloads)
    events = decode(*(stream[i : i + size] for i in range(0, len(stream), size)))
    assert [json.loads(event.data) for event in events] == payloads
    assert all(event.complete for event in events)
