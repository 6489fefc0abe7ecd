"""The storage seam of the loop: one transactional write, and the reads a turn, a recovery and a user interface need.

Contract, checked by :mod:`skald_core.loop.conformance`:

- ``apply`` makes a whole batch durable or none of it, in the order of the calls; cancelling the wait does not undo it.
- A read sees every batch whose ``apply`` has returned.
- Nothing a turn depends on lives only in memory.
- Ids rise in recording order within a store and are never reused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol

from skald_core.loop.ops import Op, Stored
from skald_core.loop.records import (
    Call,
    Checkpoint,
    ConversationInfo,
    Draft,
    Frame,
    HistoryPage,
    LoadedFrame,
    Message,
    QueuedInput,
    Run,
)
from skald_core.loop.types import CallId, ConversationId, FrameId, MessageId

__all__ = ("Store",)


class Store(Protocol):
    """Keeps conversations. Raises ``StoreError`` (or its database's error) when it cannot; then nothing was kept."""

    def apply(self, ops: Sequence[Op]) -> Awaitable[tuple[Stored, ...]]:
        """Write one atomic batch; one :class:`~skald_core.loop.ops.Stored` per op, in order, once it is durable."""
        ...

    async def root(self, conversation: ConversationId) -> Frame | None:
        """The conversation's own frame, None before its first message."""
        ...

    async def frame(self, frame: FrameId) -> Frame | None: ...

    async def conversations(self, *, limit: int = 50, offset: int = 0) -> tuple[ConversationInfo, ...]:
        """Every conversation, the one with the newest message first."""
        ...

    async def conversation(self, conversation: ConversationId) -> ConversationInfo | None: ...

    async def active_frames(self, conversation: ConversationId) -> tuple[Frame, ...]:
        """Open frames, shallowest first."""
        ...

    async def load(self, frame: FrameId) -> LoadedFrame | None:
        """The visible branch since its latest checkpoint, calls nested, failed messages left out."""
        ...

    async def history(
        self, conversation: ConversationId, *, before: MessageId | None = None, limit: int = 50
    ) -> HistoryPage:
        """A page of the visible branch for people: failed and covered messages included, siblings named."""
        ...

    async def frame_history(self, frame: FrameId, *, before: MessageId | None = None, limit: int = 50) -> HistoryPage:
        """The same for any frame, such as a sub-agent's."""
        ...

    async def tree(self, frame: FrameId) -> tuple[Message, ...]:
        """Every message of a frame on all its branches, in the order of recording."""
        ...

    async def checkpoints(self, frame: FrameId) -> tuple[Checkpoint, ...]:
        """Every checkpoint of a frame, oldest first."""
        ...

    async def message(self, message: MessageId) -> Message | None: ...

    async def call(self, call: CallId) -> Call | None: ...

    async def frame_of_call(self, call: CallId) -> Frame | None: ...

    async def child_frames(self, call: CallId) -> tuple[Frame, ...]:
        """Frames opened to answer ``call``, oldest first, closed ones included."""
        ...

    async def leaf(self, message: MessageId) -> MessageId:
        """The newest message reachable from ``message`` by always taking the newest reply; itself when it has none."""
        ...

    async def open_calls(self, conversation: ConversationId) -> tuple[Call, ...]:
        """Calls without a result, in order."""
        ...

    async def draft(self, frame: FrameId) -> Draft | None: ...

    async def queued(self, conversation: ConversationId) -> tuple[QueuedInput, ...]:
        """Waiting input in its order."""
        ...

    async def runs(self) -> tuple[Run, ...]:
        """Every turn that has begun and not ended, oldest first."""
        ...

    async def unfinished(self) -> tuple[ConversationId, ...]:
        """Conversations a recovery must look at: an open run, a draft, an open call, an open sub-frame or waiting input."""
        ...

    async def checkpoint(self, checkpoint: int) -> Checkpoint | None: ...

    async def delete_conversation(self, conversation: ConversationId) -> None:
        """Remove everything of a conversation. Unknown ones are ignored."""
        ...

    async def close(self) -> None: ...
