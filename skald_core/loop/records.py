"""What a store keeps: frames, messages, calls, queued input, open runs and compaction checkpoints.

All frozen msgspec structs. Times are integer milliseconds since the Unix epoch, UTC. Message, call and frame ids are
integers that rise in the order of recording and are never given twice, also not after a deletion.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from skald_core.loop.types import (
    TERMINAL_STATES,
    Attachment,
    CallId,
    CallState,
    ConversationId,
    FrameId,
    MessageId,
    ResultKind,
    Role,
    Usage,
)

__all__ = (
    "CALLS_A_MESSAGE",
    "Call",
    "Checkpoint",
    "ConversationInfo",
    "Draft",
    "Frame",
    "HistoryItem",
    "HistoryPage",
    "LoadedFrame",
    "Message",
    "MessageStatus",
    "QueueKind",
    "QueuedInput",
    "Run",
)

CALLS_A_MESSAGE = 4096
"""The most calls one message may have. The stores here make a call's id of its message's and its place with it."""

MessageStatus = Literal["ok", "partial", "failed"]
"""``partial``: cut off while streaming, the text so far is kept. ``failed``: shown to people, never sent to a model."""

QueueKind = Literal["user", "synthetic", "steer", "task"]
"""``user`` waits for the turn's end; ``steer`` joins the running turn at the next round; ``synthetic`` is text no person
typed (a notification) and waits like ``user``; ``task`` is the result of a background task, JSON that becomes an assistant
message with a finished ``task_completed`` call."""


class Call(msgspec.Struct, frozen=True):
    """One tool call.

    ``arguments`` is the JSON text exactly as the model wrote it and is what later requests replay; ``effective`` is the
    JSON text that ran, when a hook, gate or person changed it. ``result`` is raw text without any prefix.
    """

    id: CallId
    message: MessageId
    index: int
    tool_use_id: str
    name: str
    arguments: str
    state: CallState
    effective: str | None = None
    result: str | None = None
    result_kind: ResultKind | None = None
    media: tuple[Attachment, ...] = ()
    extras: dict[str, Any] = {}
    started_at: int = 0
    finished_at: int | None = None
    duration_ms: int | None = None

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL_STATES


class Message(msgspec.Struct, frozen=True):
    """One message of a frame's tree. ``parent`` is the message before it on its branch, None for a first message.

    ``metadata`` belongs to the host, but for two keys that models read: ``prompt`` stands in for ``content``,
    ``hook_context`` follows it. ``replay`` is what the provider named in ``provider`` wants back with this message and is
    sent to no other provider.
    """

    id: MessageId
    frame: FrameId
    parent: MessageId | None
    role: Role
    content: str
    reasoning: str = ""
    reasoning_signature: str = ""
    status: MessageStatus = "ok"
    synthetic: bool = False
    client_id: str = ""
    attachments: tuple[Attachment, ...] = ()
    metadata: dict[str, Any] = {}
    replay: dict[str, Any] | None = None
    provider: str = ""
    model: str = ""
    usage: Usage | None = None
    created_at: int = 0
    duration_ms: int | None = None
    calls: tuple[Call, ...] = ()

    @property
    def prompt(self) -> str:
        """What models read: ``content``, unless it stands for a longer text (an expanded slash command)."""
        text = self.metadata.get("prompt") if self.metadata else None
        return text if isinstance(text, str) else self.content


class Frame(msgspec.Struct, frozen=True):
    """One agent at work in a conversation. Depth 0 is the conversation itself; deeper frames answer ``parent_call``.

    ``head`` is the message the next one follows.
    """

    id: FrameId
    conversation: ConversationId
    agent: str = ""
    parent: FrameId | None = None
    parent_call: CallId | None = None
    depth: int = 0
    active: bool = True
    head: MessageId | None = None
    title: str = ""
    meta: dict[str, Any] = {}
    created_at: int = 0


class ConversationInfo(msgspec.Struct, frozen=True):
    """A conversation in a list. ``updated_at`` is when its newest message was stored; ``message_count`` counts every
    branch; ``meta`` is the host's (:class:`~skald_core.loop.ops.MergeMeta`)."""

    id: ConversationId
    agent: str = ""
    created_at: int = 0
    updated_at: int = 0
    message_count: int = 0
    meta: dict[str, Any] = {}


class QueuedInput(msgspec.Struct, frozen=True):
    """Input that waits for its turn. ``position`` orders the queue; ties go by id.

    ``held`` says that the turn it waited for was stopped or failed: only a person lets it go on.
    """

    id: int
    conversation: ConversationId
    content: str
    kind: QueueKind = "user"
    client_id: str = ""
    attachments: tuple[Attachment, ...] = ()
    metadata: dict[str, Any] = {}
    position: int = 0
    created_at: int = 0
    held: bool = False


class Run(msgspec.Struct, frozen=True):
    """A turn that has begun and not ended. One per conversation; what is here after a crash was interrupted."""

    id: str
    conversation: ConversationId
    frame: FrameId
    started_at: int = 0


class Checkpoint(msgspec.Struct, frozen=True):
    """A compaction: ``summary`` stands for every message up to and including ``covered_up_to``."""

    id: int
    frame: FrameId
    summary: str
    covered_up_to: MessageId
    created_at: int = 0
    tokens_before: int = 0
    model: str = ""


class Draft(msgspec.Struct, frozen=True):
    """Streamed output of a frame that no message holds yet."""

    frame: FrameId
    content: str
    reasoning: str
    model: str = ""


class LoadedFrame(msgspec.Struct, frozen=True):
    """A frame's visible branch, oldest first: the messages after ``checkpoint`` (all, when there is none)."""

    frame: Frame
    messages: tuple[Message, ...]
    checkpoint: Checkpoint | None = None


class HistoryItem(msgspec.Struct, frozen=True):
    """A message for people. ``siblings`` are the ids that share its place in the tree, itself included, in order."""

    message: Message
    siblings: tuple[MessageId, ...] = ()


class HistoryPage(msgspec.Struct, frozen=True):
    """A page of the visible branch, oldest first. ``before`` is the cursor of the next older page, None at the start."""

    items: tuple[HistoryItem, ...]
    before: MessageId | None = None
    checkpoints: tuple[Checkpoint, ...] = ()
