"""The per-user event feed: numbering, resuming, slow clients."""

import json

from skald_core.runtime.feed import BACKLOG, RING_EVENTS, Feed, Subscriber


def _drain(subscriber: Subscriber) -> list[dict[str, object]]:
    return [json.loads(p) for p in subscriber._queue]


def test_events_are_numbered_per_conversation() -> None:
    """Each conversation counts its own events, from one, without a gap."""
    feed = Feed("e")
    client = Subscriber()
    client.conversations = {"a", "b"}
    feed.attach(client)
    for conversation in ("a", "b", "a"):
        feed.emit(conversation, {"type": "x"})
    assert [(e["conversation"], e["seq"]) for e in _drain(client)] == [("a", 1), ("b", 1), ("a", 2)]


def test_a_returning_client_gets_exactly_what_it_missed() -> None:
    """`since` gives the events after the named one, in order, and nothing when none was missed."""
    feed = Feed("e")
    for n in range(5):
        feed.emit("a", {"type": "x", "n": n})
    missed = feed.since("a", 2)
    assert missed is not None
    assert [json.loads(p)["seq"] for p in missed] == [3, 4, 5]
    assert feed.since("a", 5) == []


def test_a_gap_too_old_or_a_number_from_the_future_needs_a_snapshot() -> None:
    """Only a ring that still holds every missed event may answer."""
    feed = Feed("e")
    for n in range(RING_EVENTS + 10):
        feed.emit("a", {"type": "x", "n": n})
    assert feed.since("a", 5) is None
    assert feed.since("a", RING_EVENTS + 11) is None
    assert feed.since("a", 10) is not None
    assert feed.since("unknown", 3) is None


async def test_a_slow_client_is_dropped_and_does_not_grow() -> None:
    """A client that does not read is ended at the backlog's bound; the feed goes on for others."""
    feed = Feed("e")
    slow, quick = Subscriber(), Subscriber()
    for client in (slow, quick):
        client.conversations = {"a"}
        feed.attach(client)
    for n in range(BACKLOG + 1):
        feed.emit("a", {"type": "x", "n": n})
        if n % 100 == 0:
            await quick.get()
    assert slow.closed_reason == "slow"
    assert await slow.get() is None
    assert quick.closed_reason == ""
