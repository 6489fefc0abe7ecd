"""Histories a store has read already, so that a turn's start reads only what came since.

Lives on the writer thread of one database and is told of every write there, thus never wrong: a write that changes
something already kept drops that frame, a rollback drops everything, and so does a write by another process.
"""

from __future__ import annotations

from collections import OrderedDict

from skald_core.loop.database import Connection
from skald_core.loop.records import LoadedFrame, Message
from skald_core.loop.types import FrameId, MessageId

__all__ = ("FrameCache",)


class FrameCache:
    """Keeps at most ``chars`` characters of history, the frames used last."""

    def __init__(self, chars: int = 16_000_000) -> None:
        self._most = chars
        self._size = 0
        self._frames: OrderedDict[FrameId, tuple[LoadedFrame, int]] = OrderedDict()
        self._with_calls: dict[MessageId, FrameId] = {}
        self._version: int | None = None

    def get(self, connection: Connection, frame: FrameId) -> LoadedFrame | None:
        """The frame as it was read last; everything in it is still so."""
        version: int = connection.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self.clear()
            self._version = version
        found = self._frames.get(frame)
        if found is None:
            return None
        self._frames.move_to_end(frame)
        return found[0]

    def put(self, loaded: LoadedFrame) -> None:
        """Keep ``loaded``, which was just read on the writer's connection."""
        frame = loaded.frame.id
        self.drop(frame)
        size = sum(map(_chars, loaded.messages))
        if size > self._most // 4:
            return
        self._frames[frame] = (loaded, size)
        self._size += size
        for message in loaded.messages:
            if message.calls:
                self._with_calls[message.id] = frame
        while self._size > self._most:
            self.drop(next(iter(self._frames)))

    def drop(self, frame: FrameId) -> None:
        """Forget a frame: something in it changed."""
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
            self.drop(frame)

    def clear(self) -> None:
        self._frames.clear()
        self._with_calls.clear()
        self._size = 0


def _chars(message: Message) -> int:
    size = 200 + len(message.content) + len(message.reasoning)
    for call in message.calls:
        size += 200 + len(call.arguments) + len(call.result or "")
    return size
