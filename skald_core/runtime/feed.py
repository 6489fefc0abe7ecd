"""The per-user event bus that feeds every client.

Each event of a conversation gets the next sequence number, is encoded once, kept in a bounded ring, and fanned out as
bytes. A client that returns names the last number it has: it gets the rest, or is told that it needs a snapshot. A client
that does not keep up is dropped and resynchronises; it never slows a turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import msgspec

__all__ = ("Feed", "Subscriber")

RING_EVENTS = 4096
RING_BYTES = 4 * 1024 * 1024
BACKLOG = 8192

_encode = msgspec.json.Encoder().encode


class _Channel:
    """One conversation's numbering and recent events."""

    __slots__ = ("bytes", "ring", "seq")

    def __init__(self) -> None:
        self.seq = 0
        self.ring: deque[tuple[int, bytes]] = deque()
        self.bytes = 0

    def add(self, payload: bytes) -> None:
        self.ring.append((self.seq, payload))
        self.bytes += len(payload)
        while len(self.ring) > RING_EVENTS or self.bytes > RING_BYTES:
            self.bytes -= len(self.ring.popleft()[1])

    def since(self, after: int) -> list[bytes] | None:
        """Events numbered above ``after``; None when some of them are no longer here."""
        if after > self.seq or after < 0:
            return None
        if after == self.seq:
            return []
        if not self.ring or self.ring[0][0] > after + 1:
            return None
        return [payload for number, payload in self.ring if number > after]


class Subscriber:
    """One client's outgoing queue. ``get`` waits for the next payload; None means it was dropped or closed.

    ``session`` is the sign-in it was opened with; it ends with that one.
    """

    def __init__(self, session: str = "") -> None:
        self.session = session
        self._queue: deque[bytes] = deque()
        self._ready = asyncio.Event()
        self.conversations: set[str] = set()
        self.closed_reason = ""

    def push(self, payload: bytes) -> None:
        if self.closed_reason:
            return
        if len(self._queue) >= BACKLOG:
            self.close("slow")
            return
        self._queue.append(payload)
        self._ready.set()

    def close(self, reason: str) -> None:
        """End the subscription; what is queued is still delivered unless the client was too slow."""
        if not self.closed_reason:
            self.closed_reason = reason
            if reason == "slow":
                self._queue.clear()
            self._ready.set()

    async def get(self) -> list[bytes] | None:
        """Everything queued, at least one payload, or None at the end."""
        while True:
            if self._queue:
                items = list(self._queue)
                self._queue.clear()
                return items
            if self.closed_reason:
                return None
            self._ready.clear()
            await self._ready.wait()


class Feed:
    """All live clients of one user. ``epoch`` is new for every server start, so old sequence numbers are never trusted."""

    def __init__(self, epoch: str) -> None:
        self.epoch = epoch
        self._channels: dict[str, _Channel] = {}
        self._subscribers: set[Subscriber] = set()

    def attach(self, subscriber: Subscriber) -> None:
        self._subscribers.add(subscriber)

    def detach(self, subscriber: Subscriber) -> None:
        self._subscribers.discard(subscriber)

    def subscribers(self) -> frozenset[Subscriber]:
        return frozenset(self._subscribers)

    def seq(self, conversation: str) -> int:
        channel = self._channels.get(conversation)
        return channel.seq if channel else 0

    def since(self, conversation: str, after: int) -> list[bytes] | None:
        channel = self._channels.get(conversation)
        if channel is None:
            return [] if after == 0 else None
        return channel.since(after)

    def emit(self, conversation: str, event: dict[str, Any]) -> int:
        """Number, keep and send one event of a conversation; returns its number.

        An event that names its ``conversation`` already keeps that; then the argument is only the channel's name.
        """
        channel = self._channels.get(conversation)
        if channel is None:
            channel = self._channels[conversation] = _Channel()
        channel.seq += 1
        event.setdefault("conversation", conversation)
        event["seq"] = channel.seq
        payload = _encode(event)
        channel.add(payload)
        for subscriber in self._subscribers:
            if conversation in subscriber.conversations:
                subscriber.push(payload)
        return channel.seq

    def broadcast(self, event: dict[str, Any]) -> None:
        """Send an event of the user to every client; not numbered, not kept."""
        if self._subscribers:
            payload = _encode(event)
            for subscriber in self._subscribers:
                subscriber.push(payload)

    def forget(self, conversation: str) -> None:
        """Drop a deleted conversation's ring."""
        self._channels.pop(conversation, None)

    def interrupt(self, conversation: str) -> None:
        """Drop a channel's recent events and leave a gap in its numbers: nobody can resume across it."""
        channel = self._channels.get(conversation)
        if channel is not None:
            channel.ring.clear()
            channel.bytes = 0
            channel.seq += 1

    def close(self, reason: str, *, session: str = "") -> None:
        """End the subscriptions of one sign-in, or all."""
        for subscriber in list(self._subscribers):
            if not session or subscriber.session == session:
                subscriber.close(reason)
