"""The writes a store knows. A list of them is one batch: all of it becomes durable, or none of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

import msgspec

from skald_core.loop.records import Call, Checkpoint, LoadedFrame, Message, MessageStatus, QueuedInput, QueueKind
from skald_core.loop.types import (
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
    "AddDraft",
    "AppendMessage",
    "ClearDraft",
    "CloseFrame",
    "CloseRun",
    "DeleteQueued",
    "Dequeue",
    "EditQueued",
    "Enqueue",
    "HoldQueue",
    "ImportMessages",
    "LoadFrame",
    "MergeCallExtras",
    "MergeMeta",
    "NewCall",
    "Op",
    "OpenFrame",
    "OpenRun",
    "RemoveMessages",
    "ReorderQueue",
    "ResolveCall",
    "SaveCheckpoint",
    "SetCallState",
    "SetHead",
    "SettleCalls",
    "Stored",
    "TASK_COMPLETED",
    "TaskDone",
    "UpdateMessage",
    "imported",
    "imported_result",
    "kept_before",
    "message_from",
    "queued_from",
    "task_result",
)


class NewCall(msgspec.Struct, frozen=True):
    """A call to record with its message. An empty ``tool_use_id`` gets one made from the call's id."""

    name: str
    arguments: str
    tool_use_id: str = ""
    state: CallState = "running"


class TaskDone(msgspec.Struct, frozen=True):
    """What a background task came to: the content of queued input of kind ``task``, as JSON."""

    task_id: str
    title: str
    result: str


class OpenFrame(msgspec.Struct, frozen=True):
    """Open a frame. A conversation has one root frame: opening it again returns the one that exists."""

    conversation: ConversationId
    agent: str = ""
    parent: FrameId | None = None
    parent_call: CallId | None = None
    depth: int = 0
    title: str = ""
    meta: dict[str, Any] = {}
    at: int = 0


class CloseFrame(msgspec.Struct, frozen=True):
    frame: FrameId


class MergeMeta(msgspec.Struct, frozen=True):
    """Add keys to a frame's ``meta``, replacing those there; fails the batch for an unknown frame."""

    frame: FrameId | None
    meta: dict[str, Any]


class AppendMessage(msgspec.Struct, frozen=True):
    """Add a message and make it its frame's head.

    ``frame=None`` means the frame opened earlier in the same batch. ``parent="head"`` follows the current head; an id or
    None opens a branch there. With a ``client_id`` the conversation already knows, nothing is stored, the batch ends
    there, and the result of this and every later op names what was stored the first time. With ``behind_queue``, when input
    waits in the conversation, the message waits at its end instead, and the batch ends there too.
    """

    frame: FrameId | None
    role: Role
    content: str
    parent: MessageId | Literal["head"] | None = "head"
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
    duration_ms: int | None = None
    calls: tuple[NewCall, ...] = ()
    at: int = 0
    behind_queue: bool = False


class UpdateMessage(msgspec.Struct, frozen=True):
    """Change a message's status or metadata; None leaves a field alone."""

    message: MessageId
    status: MessageStatus | None = None
    metadata: dict[str, Any] | None = None


class ResolveCall(msgspec.Struct, frozen=True):
    """Give a call its result. The only way to a terminal state; a call that is terminal already is left as it is."""

    call: CallId
    state: Literal["done", "failed", "cancelled", "rejected"]
    result: str
    result_kind: ResultKind
    media: tuple[Attachment, ...] = ()
    extras: dict[str, Any] = {}
    duration_ms: int | None = None
    at: int = 0


class SetCallState(msgspec.Struct, frozen=True):
    """Move an open call between ``running`` and ``awaiting``; ``effective`` replaces the arguments that will run."""

    call: CallId
    state: Literal["running", "awaiting"]
    effective: str | None = None


class SettleCalls(msgspec.Struct, frozen=True):
    """Resolve every open call of a frame alike; the result lists the calls it resolved.

    ``keep_awaiting`` leaves those that wait for a person.
    """

    frame: FrameId
    state: Literal["failed", "cancelled"]
    result: str
    result_kind: ResultKind
    keep_awaiting: bool = False
    at: int = 0


class MergeCallExtras(msgspec.Struct, frozen=True):
    """Add keys to a call's extras; an unknown call is ignored."""

    call: CallId
    extras: dict[str, Any]


class SetHead(msgspec.Struct, frozen=True):
    """Show another branch: the next message follows ``message``. None means before the first message."""

    frame: FrameId
    message: MessageId | None


class SaveCheckpoint(msgspec.Struct, frozen=True):
    """Record a summary of a frame's branch up to one of its messages."""

    frame: FrameId
    summary: str
    covered_up_to: MessageId
    tokens_before: int = 0
    model: str = ""
    at: int = 0


class Enqueue(msgspec.Struct, frozen=True):
    """Queue input at the end. A known ``client_id`` stores nothing, as in :class:`AppendMessage`."""

    conversation: ConversationId
    content: str
    kind: QueueKind = "user"
    client_id: str = ""
    attachments: tuple[Attachment, ...] = ()
    metadata: dict[str, Any] = {}
    at: int = 0


class EditQueued(msgspec.Struct, frozen=True):
    """Change waiting input; None leaves a field alone. Fails the batch when it no longer waits."""

    queued: int
    content: str | None = None
    kind: QueueKind | None = None
    metadata: dict[str, Any] | None = None


class DeleteQueued(msgspec.Struct, frozen=True):
    """Forget waiting input. Its client id stays known, so a late resend does not bring it back."""

    queued: int


class ReorderQueue(msgspec.Struct, frozen=True):
    """Put the named inputs first, in this order."""

    conversation: ConversationId
    order: tuple[int, ...]


class Dequeue(msgspec.Struct, frozen=True):
    """Turn waiting input into a message at the frame's head. Fails the batch when it no longer waits.

    ``context`` is hook text to keep in the message's metadata under ``hook_context``.
    """

    queued: int
    frame: FrameId | None
    context: str = ""
    at: int = 0


class HoldQueue(msgspec.Struct, frozen=True):
    """Mark what waits as held: a restart does not begin with it. Taking a held one lets all of it go on."""

    conversation: ConversationId


class OpenRun(msgspec.Struct, frozen=True):
    """Mark a turn as begun. Replaces the conversation's open run. ``frame=None`` as in :class:`AppendMessage`."""

    id: str
    conversation: ConversationId
    frame: FrameId | None
    at: int = 0


class CloseRun(msgspec.Struct, frozen=True):
    """Mark a turn as ended; ``Stored.queued`` tells whether input that is not held waits in the conversation."""

    conversation: ConversationId


class AddDraft(msgspec.Struct, frozen=True):
    """Keep another piece of output that is still streaming."""

    frame: FrameId
    content: str = ""
    reasoning: str = ""
    model: str = ""


class ClearDraft(msgspec.Struct, frozen=True):
    """Drop a frame's draft; in the batch that records the message it became."""

    frame: FrameId


class LoadFrame(msgspec.Struct, frozen=True):
    """Read a frame as it is at this point of the batch, into ``Stored.loaded``. ``frame=None`` as in AppendMessage."""

    frame: FrameId | None = None


class ImportMessages(msgspec.Struct, frozen=True):
    """Record messages from elsewhere, in order, with their branches, calls and checkpoints; ``head`` is shown then.

    Ids are given anew, client ids are left out, and a call without a result counts as interrupted. ``frame=None`` as in
    :class:`AppendMessage`. ``Stored.id`` is the new head.
    """

    frame: FrameId | None
    messages: tuple[Message, ...]
    head: MessageId | None
    checkpoints: tuple[Checkpoint, ...] = ()


class RemoveMessages(msgspec.Struct, frozen=True):
    """Remove messages of a frame for good, with their calls and the sub-frames that answered those.

    What followed one of them follows what came before it; a head among them moves back the same way. Checkpoints that
    cover one go, too, so no summary tells of it. Client ids stay known: a late resend does not bring a message back.
    """

    frame: FrameId
    messages: tuple[MessageId, ...]


Op = (
    OpenFrame
    | CloseFrame
    | MergeMeta
    | AppendMessage
    | UpdateMessage
    | ResolveCall
    | SetCallState
    | SettleCalls
    | MergeCallExtras
    | SetHead
    | SaveCheckpoint
    | Enqueue
    | EditQueued
    | DeleteQueued
    | ReorderQueue
    | Dequeue
    | OpenRun
    | CloseRun
    | AddDraft
    | ClearDraft
    | HoldQueue
    | ImportMessages
    | RemoveMessages
    | LoadFrame
)


class Stored(msgspec.Struct, frozen=True):
    """What one op did. ``id`` is what it made or touched (0 when there is nothing to name).

    ``existing`` says a known client id or root frame was found instead; then ``queued`` tells whether ``id`` is a
    queued input (True) or a message (False), and ``id`` is 0 when that input was deleted since. ``calls`` are the ids
    of a message's calls in order, ``tool_use_ids`` theirs. ``changed`` says whether a call or message did change.
    ``siblings`` are the ids that share a new message's place in the tree, itself included; empty when it is alone there.
    """

    id: int = 0
    calls: tuple[CallId, ...] = ()
    tool_use_ids: tuple[str, ...] = ()
    existing: bool = False
    queued: bool = False
    changed: bool = True
    parent: MessageId | None = None
    settled: tuple[CallId, ...] = ()
    loaded: LoadedFrame | None = None
    siblings: tuple[MessageId, ...] = ()


TASK_COMPLETED = "task_completed"
"""The name of the call that brings the result of a background task into its conversation."""


def message_from(item: QueuedInput, op: Dequeue) -> AppendMessage:
    """The message waiting input becomes. Its client id is known already; the store moves it to the message.

    A task's message has one running call; the store gives it :func:`task_result` at once.
    """
    metadata = item.metadata | ({"hook_context": op.context} if op.context else {})
    if item.kind == "task":
        task = msgspec.json.decode(item.content, type=TaskDone)
        call = NewCall(TASK_COMPLETED, msgspec.json.encode({"task_id": task.task_id}).decode())
        return AppendMessage(op.frame, "assistant", "", synthetic=True, metadata=metadata, calls=(call,), at=op.at)
    return AppendMessage(
        op.frame, "user", item.content, synthetic=item.kind == "synthetic", attachments=item.attachments,
        metadata=metadata, at=op.at,
    )  # fmt: skip


def task_result(item: QueuedInput, call: CallId, at: int) -> ResolveCall:
    """The result of a task's call: what was queued, as it is."""
    return ResolveCall(call, "done", item.content, "json", at=at)


def queued_from(conversation: ConversationId, op: AppendMessage) -> Enqueue:
    """The waiting input a message becomes that goes behind others."""
    kind: QueueKind = "synthetic" if op.synthetic else "user"
    return Enqueue(conversation, op.content, kind, op.client_id, op.attachments, op.metadata, op.at)


def kept_before(
    message: MessageId | None, parents: Mapping[MessageId, MessageId | None], gone: Collection[MessageId]
) -> MessageId | None:
    """``message`` itself, or the nearest one before it that is not ``gone``."""
    while message is not None and message in gone:
        message = parents[message]
    return message


def imported(message: Message, frame: FrameId, parent: MessageId | None) -> AppendMessage:
    """The op that records a message from elsewhere."""
    return AppendMessage(
        frame, message.role, message.content, parent, message.reasoning, message.reasoning_signature, message.status,
        message.synthetic, "", message.attachments, message.metadata, message.replay, message.provider, message.model,
        message.usage, message.duration_ms, tuple(NewCall(c.name, c.arguments, c.tool_use_id) for c in message.calls),
        message.created_at,
    )  # fmt: skip


def imported_result(old: Call, call: CallId) -> tuple[SetCallState, ResolveCall]:
    """The ops that give a call recorded anew its effective arguments and its result."""
    running = SetCallState(call, "running", old.effective)
    if old.state in ("done", "failed", "cancelled", "rejected"):
        kind = old.result_kind or "text"
        result = old.result or ""
        return running, ResolveCall(
            call, old.state, result, kind, old.media, old.extras, old.duration_ms, old.finished_at or 0
        )
    text = "This call had no result when the conversation was exported."
    return running, ResolveCall(call, "failed", text, "interrupted", at=old.started_at)
