"""Newline-delimited JSON, however its bytes come."""

from __future__ import annotations

import itertools
import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skald_core.api import LineDecoder, LineTooLargeError

LINES = [
    json.dumps(one, ensure_ascii=False).encode() for one in ({"text": "Grüße 🙂"}, {"thinking": "ü"}, {"done": True})
]


@given(st.lists(st.integers(1, 400), max_size=40), st.sampled_from([b"\n", b"\r\n", b"\n\n"]), st.booleans())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_how_bytes_are_cut_makes_no_difference(cuts: list[int], end: bytes, closed: bool) -> None:
    """Chunks end anywhere, in the middle of a character or a line break too; the last line may lack its end."""
    data = end.join(LINES) + (end if closed else b"")
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    decoder = LineDecoder()
    found = [line for a, b in itertools.pairwise(edges) for line in decoder.feed(data[a:b])]
    assert [*found, *decoder.finish()] == LINES


@given(st.lists(st.binary(max_size=12), max_size=12))
def test_no_bytes_break_the_decoder(chunks: list[bytes]) -> None:
    """Whatever comes: lines without breaks, none of them blank, or the cap."""
    decoder = LineDecoder(max_line_bytes=20)
    try:
        lines = [line for one in chunks for line in decoder.feed(one)] + list(decoder.finish())
    except LineTooLargeError:
        assert max(map(len, b"".join(chunks).split(b"\n"))) > 20
        return
    assert lines == [line.strip() for line in b"".join(chunks).split(b"\n") if line.strip()]
