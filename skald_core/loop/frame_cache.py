"""What a store's writer remembers: histories read already, so that a turn's start reads only what came since, and where
each frame ends, so that a round's writes read nothing at all.

Lives on the writer thread of one database and is told of every write there, thus never wrong: a write that changes
something already kept drops that frame, a rollback drops everything, and so does a write by another process.
"""

from __future__ import annotations

from collections import OrderedDict

from skald_core.loop.database import Connection
from skald_core.loop.records import LoadedFrame, Message
from skald_core.loop.types import ConversationId, FrameId, MessageId

__all__ = ("FrameCache", "Tail")

_REMEMBERED = 4096
"""Frames, conversations and messages with calls whose small facts are kept."""


class Tail:
    """Where a frame's next message goes: after ``head``. ``chosen`` says that somebody set it, so the row says so, too."""

    __slots__ = ("chosen", "conversation", "head")

    def __init__(self, conversation: ConversationId, head: MessageId | None, chosen: bool) -> None:
        self.conversation = conversation
        self.head = head
        self.chosen = chosen


class FrameCache:
    """Keeps at most ``chars`` characters of history, the frames used last."""

    def __init__(self, chars: int = 16_000_000) -> None:
        self._most = chars
        self._size = 0
        self._frames: OrderedDict[FrameId, tuple[LoadedFrame, int]] = OrderedDict()
        self._with_calls: dict[MessageId, FrameId] = {}
        self._version: int | None = None
        self.tails: dict[FrameId, Tail] = {}
        self.runs: dict[ConversationId, bool] = {}  # whether a conversation has an open run
        self.call_counts: dict[MessageId, int] = {}

    def begin(self, connection: Connection) -> None:
        """Forget everything if another process has written since the last batch."""
        version: int = connection.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self.clear()
            self._version = version
        for known in (self.tails, self.runs, self.call_counts):
            if len(known) > _REMEMBERED:
                known.clear()

    def get(self, frame: FrameId) -> LoadedFrame | None:
        """The frame as it was read last; everything in it is still so."""
        found = self._frames.get(frame)
        if found is None:
            return None
        self._frames.move_to_end(frame)
        return found[0]

    def put(self, loaded: LoadedFrame) -> None:
        """Keep ``loaded``, which was just read on the writer's connection."""
        frame = loaded.frame.id
        self._drop(frame)
        size = sum(map(_chars, loaded.messages))
        if size > self._most // 4:
            return
        self._frames[frame] = (loaded, size)
        self._size += size
        for message in loaded.messages:
            if message.calls:
                self._with_calls[message.id] = frame
        while self._size > self._most:
            self._drop(next(iter(self._frames)))

    def drop(self, frame: FrameId) -> None:
        """Forget a frame: something in it changed."""
        self.tails.pop(frame, None)
        self._drop(frame)

    def _drop(self, frame: FrameId) -> None:
        found = self._frames.pop(frame, None)
        if found is None:
            return
        self._size -= found[1]
        for message in found[0].messages:
            if message.calls:
                self._with_calls.pop(message.id, None)

    def call_changed(self, message: MessageId) -> None:
        """A call of ``message`` got another state, result or note."""
        frame = self._with_calls.get(message)
        if frame is not None:
            self._drop(frame)

    def clear(self) -> None:
        self._frames.clear()
        self._with_calls.clear()
        self._size = 0
        self.tails.clear()
        self.runs.clear()
        self.call_counts.clear()


def _chars(message: Message) -> int:
    size = 200 + len(message.content) + len(message.reasoning)
    if message.metadata:
        size += sum(len(text) for text in message.metadata.values() if isinstance(text, str))
    for call in message.calls:
        size += 200 + len(call.arguments) + len(call.result or "")
    return size
