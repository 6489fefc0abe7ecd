"""The loop's own events, for programs that follow a conversation (docs/cli.md, "skald run --json").

Browsers get the client events made of these by the translator. A program that wants everything a turn tells subscribes with
``"events": "loop"`` instead: each event of the loop's closed union, encoded once, in an envelope with the conversation and
a number of its own sequence. Numbering begins when somebody first follows a conversation, so others cost nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from skald_core.loop.events import Event
from skald_core.loop.services import LiveTurn
from skald_core.runtime.feed import Feed, Subscriber

__all__ = ("LoopEvents", "channel_of")

KEPT = 64
"""Conversations whose recent events stay in memory for followers that come back."""

_encode = msgspec.json.Encoder().encode


def channel_of(conversation: str) -> str:
    """The feed's name for a conversation's loop events; no conversation id has a colon."""
    return f"loop:{conversation}"


class LoopEvents:
    """A listener of one user's agent that puts what followed conversations tell into the user's feed."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._followed: dict[str, None] = {}

    def __call__(self, event: Event) -> None:
        if event.conversation in self._followed:
            self._emit(event.conversation, {"type": "loop_event", "event": msgspec.Raw(_encode(event))})

    def request_changed(self, conversation: str, kind: str, view: dict[str, Any]) -> None:
        """Tell followers of a human request, so that they can answer it by its id."""
        if conversation in self._followed:
            self._emit(conversation, {"type": kind, "request": view})

    def _emit(self, conversation: str, envelope: dict[str, Any]) -> None:
        self._feed.emit(channel_of(conversation), {"conversation": conversation, **envelope})

    async def follow(
        self,
        subscriber: Subscriber,
        conversation: str,
        epoch: str | None,
        after: int | None,
        *,
        live: Callable[[], LiveTurn | None],
        requests: Callable[[], Awaitable[list[dict[str, Any]]]],
    ) -> None:
        """Send what the follower missed after event ``after``, or a ``following`` event when that cannot be had, then
        live events. ``following`` tells of the turn that runs and of the requests that wait."""
        channel = channel_of(conversation)
        self._keep(conversation)
        hello: bytes | None = None
        while (missed := self._missed(channel, epoch, after)) is None:
            epoch, after = self._feed.epoch, self._feed.seq(channel)
            turn = live()
            view = {"run_id": turn.run_id, "started_at": turn.started_at / 1000} if turn is not None else None
            hello = _encode(
                {
                    "type": "following",
                    "conversation": conversation,
                    "epoch": epoch,
                    "seq": after,
                    "turn": view,
                    "requests": await requests(),
                }
            )
        # No await from here on: what was emitted meanwhile is in the ring and follows without a gap.
        subscriber.conversations.add(channel)
        for payload in [hello, *missed] if hello is not None else missed:
            subscriber.push(payload)

    def _missed(self, channel: str, epoch: str | None, after: int | None) -> list[bytes] | None:
        if epoch != self._feed.epoch or after is None:
            return None
        return self._feed.since(channel, after)

    def _keep(self, conversation: str) -> None:
        """Follow from now on; let go of those followed longest ago that nobody follows any more."""
        self._followed.pop(conversation, None)
        self._followed[conversation] = None
        watched = {name for subscriber in self._feed.subscribers() for name in subscriber.conversations}
        for known in list(self._followed)[: max(0, len(self._followed) - KEPT)]:
            if channel_of(known) not in watched:
                del self._followed[known]
                self._feed.interrupt(channel_of(known))

    def forget(self, conversation: str) -> None:
        self._followed.pop(conversation, None)
        self._feed.forget(channel_of(conversation))
