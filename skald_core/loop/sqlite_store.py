"""The durable store: SQLite or SQLCipher through :class:`~skald_core.loop.database.Database`.

Every page a commit changes is encrypted and authenticated anew (about 17 µs each), so a round is laid out to change three:

- A message carries the calls a model wrote; a row of ``loop_calls`` appears when a call has something else to remember, at
  the latest its result. A call without a row runs. A call's id is its message's times 4096 plus its place.
- Such calls are found without an index: they belong to the open run of their conversation, whose row says where to look.
  Whoever ends or replaces that run gives the calls still open their rows; the others have theirs from the start.
- Messages have one index, by frame. A frame's head is its newest message unless its row says otherwise.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from skald_core.loop.database import Connection, Cursor, Database
from skald_core.loop.errors import StoreError
from skald_core.loop.frame_cache import FrameCache, Tail
from skald_core.loop.ledger import Migration, migrate
from skald_core.loop.ops import (
    AddDraft,
    AppendMessage,
    ClearDraft,
    CloseFrame,
    CloseRun,
    DeleteQueued,
    Dequeue,
    EditQueued,
    Enqueue,
    HoldQueue,
    ImportMessages,
    LoadFrame,
    MergeCallExtras,
    MergeMeta,
    NewCall,
    Op,
    OpenFrame,
    OpenRun,
    RemoveMessages,
    ReorderQueue,
    ResolveCall,
    SaveCheckpoint,
    SetCallState,
    SetHead,
    SettleCalls,
    Stored,
    UpdateMessage,
    imported,
    imported_result,
    kept_before,
    message_from,
    queued_from,
    task_result,
)
from skald_core.loop.records import (
    CALLS_A_MESSAGE,
    Call,
    Checkpoint,
    ConversationInfo,
    Draft,
    Frame,
    HistoryItem,
    HistoryPage,
    LoadedFrame,
    Message,
    QueuedInput,
    Run,
)
from skald_core.loop.text import clean
from skald_core.loop.types import Attachment, CallId, ConversationId, FrameId, MessageId, Usage

__all__ = ("COMPONENT", "MIGRATIONS", "SqliteStore")

COMPONENT = "loop"

MIGRATIONS: tuple[Migration, ...] = (
    """
CREATE TABLE loop_frames(
    id INTEGER PRIMARY KEY AUTOINCREMENT, conversation TEXT NOT NULL, agent TEXT NOT NULL, parent INTEGER,
    parent_call INTEGER, depth INTEGER NOT NULL, active INTEGER NOT NULL, head INTEGER, title TEXT NOT NULL,
    meta TEXT, created_at INTEGER NOT NULL);
CREATE INDEX loop_frames_conversation ON loop_frames(conversation);
CREATE INDEX loop_frames_call ON loop_frames(parent_call) WHERE parent_call IS NOT NULL;
CREATE TABLE loop_messages(
    id INTEGER PRIMARY KEY, frame INTEGER NOT NULL, parent INTEGER, role TEXT NOT NULL, status TEXT NOT NULL,
    synthetic INTEGER NOT NULL, created_at INTEGER NOT NULL, call_count INTEGER NOT NULL, provider TEXT, model TEXT,
    usage TEXT, duration_ms INTEGER, client_id TEXT, attachments TEXT, metadata TEXT, replay TEXT,
    reasoning_signature TEXT, reasoning TEXT, calls TEXT, content TEXT NOT NULL);
CREATE INDEX loop_messages_frame ON loop_messages(frame, id, parent);
CREATE TABLE loop_calls(
    id INTEGER PRIMARY KEY, state TEXT NOT NULL, finished_at INTEGER, duration_ms INTEGER, result_kind TEXT,
    media TEXT, extras TEXT, effective TEXT, result TEXT);
CREATE INDEX loop_calls_open ON loop_calls(id) WHERE state IN ('running', 'awaiting');
CREATE TABLE loop_queue(
    id INTEGER PRIMARY KEY AUTOINCREMENT, conversation TEXT NOT NULL, position INTEGER NOT NULL, kind TEXT NOT NULL,
    held INTEGER NOT NULL, client_id TEXT, attachments TEXT, metadata TEXT, created_at INTEGER NOT NULL,
    content TEXT NOT NULL);
CREATE INDEX loop_queue_conversation ON loop_queue(conversation, position);
CREATE TABLE loop_sends(
    conversation TEXT NOT NULL, client_id TEXT NOT NULL, message INTEGER, queued INTEGER,
    PRIMARY KEY (conversation, client_id)) WITHOUT ROWID;
CREATE TABLE loop_runs(
    conversation TEXT PRIMARY KEY, id TEXT NOT NULL, frame INTEGER NOT NULL, started_at INTEGER NOT NULL,
    since INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE loop_drafts(
    id INTEGER PRIMARY KEY, frame INTEGER NOT NULL, model TEXT NOT NULL, content TEXT NOT NULL,
    reasoning TEXT NOT NULL);
CREATE TABLE loop_checkpoints(
    id INTEGER PRIMARY KEY AUTOINCREMENT, frame INTEGER NOT NULL, covered_up_to INTEGER NOT NULL,
    created_at INTEGER NOT NULL, tokens_before INTEGER NOT NULL, model TEXT NOT NULL, summary TEXT NOT NULL);
CREATE INDEX loop_checkpoints_frame ON loop_checkpoints(frame);
""",
)

_MESSAGE = (
    "id, frame, parent, role, status, synthetic, created_at, call_count, provider, model, usage, duration_ms, "
    "client_id, attachments, metadata, replay, reasoning_signature, reasoning, calls, content"
)
_CALL = "id, state, finished_at, duration_ms, result_kind, media, extras, effective, result"
_HEAD = "ifnull(head, (SELECT max(m.id) FROM loop_messages m WHERE m.frame = loop_frames.id))"
_FRAME = f"id, conversation, agent, parent, parent_call, depth, active, {_HEAD}, title, meta, created_at"
_INFO = (
    "SELECT f.id, f.conversation, f.agent, f.created_at, f.meta,"
    " (SELECT max(m.id) FROM loop_messages m WHERE m.frame = f.id) AS newest FROM loop_frames f"
)
_QUEUED = "id, conversation, position, kind, held, client_id, attachments, metadata, created_at, content"
_CHECKPOINT = "id, frame, covered_up_to, created_at, tokens_before, model, summary"

_json = msgspec.json.encode
_ON_RESOLVED = (
    " ON CONFLICT(id) DO UPDATE SET state = excluded.state, result = excluded.result, result_kind = excluded.result_kind,"
    " media = excluded.media, extras = ifnull(excluded.extras, extras), duration_ms = excluded.duration_ms,"
    " finished_at = excluded.finished_at WHERE state IN ('running', 'awaiting')"
)
_RESOLVE = (
    "INSERT INTO loop_calls(id, state, result, result_kind, duration_ms, finished_at) VALUES (?,?,?,?,?,?)"
    + _ON_RESOLVED
)
_RESOLVE_WITH_MORE = (
    "INSERT INTO loop_calls(id, state, result, result_kind, duration_ms, finished_at, media, extras)"
    " VALUES (?,?,?,?,?,?,?,?)" + _ON_RESOLVED
)

_attachments = msgspec.json.Decoder(tuple[Attachment, ...]).decode
_usage = msgspec.json.Decoder(Usage).decode
_object = msgspec.json.Decoder(dict[str, Any]).decode
_written_calls = msgspec.json.Decoder(list[tuple[str, str, str]]).decode  # id for the model, name, arguments

_OF_M = f"BETWEEN m.id * {CALLS_A_MESSAGE} AND m.id * {CALLS_A_MESSAGE} + {CALLS_A_MESSAGE - 1}"
"""Ids of the calls of message ``m``."""

_FIRST = 0
"""``loop_frames.head`` of a frame that shows nothing: its next message is a first one."""


class BatchEnds(Exception):
    """Carries the result of this op and every later one out of the batch that ends here."""

    def __init__(self, stored: Stored) -> None:
        self.stored = stored


def _inserted(cursor: Cursor) -> int:
    """The id of the row just inserted."""
    row: int | None = cursor.lastrowid
    assert row is not None
    return row


@functools.cache
def _insert_message(optional: tuple[str, ...]) -> str:
    """The insertion of a message that has these columns beside the common ones.

    Columns without a value are left out: binding a NULL costs the driver about a microsecond, and a message has many.
    """
    columns = ("frame", "role", "status", "synthetic", "created_at", "call_count", "content", *optional)
    return f"INSERT INTO loop_messages({', '.join(columns)}) VALUES ({','.join('?' * len(columns))})"


def _dump(value: object) -> str | None:
    """JSON text of a value, None for an empty one."""
    return _json(value).decode() if value else None


# --- rows to records ---------------------------------------------------------------------------------------------


def _frame(row: Sequence[Any]) -> Frame:
    return Frame(
        id=row[0], conversation=row[1], agent=row[2], parent=row[3], parent_call=row[4], depth=row[5],
        active=bool(row[6]), head=row[7] or None, title=row[8], meta=_object(row[9]) if row[9] else {},
        created_at=row[10],
    )  # fmt: skip


def _calls(c: Connection, message: MessageId, written: str, at: int) -> tuple[Call, ...]:
    """The calls of a message: what the model wrote, with what ``loop_calls`` knows of them."""
    first = message * CALLS_A_MESSAGE
    rows = c.execute(f"SELECT {_CALL} FROM loop_calls WHERE id BETWEEN ? AND ?", (first, first + CALLS_A_MESSAGE - 1))
    known = {row[0]: row for row in rows}
    made = []
    for index, (use_id, name, arguments) in enumerate(_written_calls(written)):
        call = CallId(first + index)
        row = known.get(call)
        if row is None:
            made.append(Call(call, message, index, use_id, name, arguments, "running", started_at=at))
        else:
            made.append(
                Call(
                    call,
                    message,
                    index,
                    use_id,
                    name,
                    arguments,
                    row[1],
                    effective=row[7],
                    result=row[8],
                    result_kind=row[4],
                    media=_attachments(row[5]) if row[5] else (),
                    extras=_object(row[6]) if row[6] else {},
                    started_at=at,
                    finished_at=row[2],
                    duration_ms=row[3],
                )
            )
    return tuple(made)


def _one_call(c: Connection, call: CallId) -> Call | None:
    message, index = divmod(call, CALLS_A_MESSAGE)
    row = c.execute("SELECT calls, created_at FROM loop_messages WHERE id = ?", (message,)).fetchone()
    calls = _calls(c, MessageId(message), row[0], row[1]) if row is not None and row[0] else ()
    return calls[index] if index < len(calls) else None


def _message(c: Connection, row: Sequence[Any]) -> Message:
    return Message(
        id=row[0], frame=row[1], parent=row[2], role=row[3], status=row[4], synthetic=bool(row[5]), created_at=row[6],
        calls=_calls(c, row[0], row[18], row[6]) if row[7] else (), provider=row[8] or "", model=row[9] or "",
        usage=_usage(row[10]) if row[10] else None, duration_ms=row[11], client_id=row[12] or "",
        attachments=_attachments(row[13]) if row[13] else (), metadata=_object(row[14]) if row[14] else {},
        replay=_object(row[15]) if row[15] else None, reasoning_signature=row[16] or "", reasoning=row[17] or "",
        content=row[19],
    )  # fmt: skip


def _info(c: Connection, row: Sequence[Any]) -> ConversationInfo:
    frame, conversation, agent, created_at, meta, newest = row
    count, updated_at = 0, created_at
    if newest is not None:
        (count,) = c.execute("SELECT count(*) FROM loop_messages WHERE frame = ?", (frame,)).fetchone()
        (updated_at,) = c.execute("SELECT created_at FROM loop_messages WHERE id = ?", (newest,)).fetchone()
    return ConversationInfo(conversation, agent, created_at, updated_at, count, _object(meta) if meta else {})


def _queued(row: Sequence[Any]) -> QueuedInput:
    return QueuedInput(
        id=row[0], conversation=row[1], position=row[2], kind=row[3], held=bool(row[4]), client_id=row[5] or "",
        attachments=_attachments(row[6]) if row[6] else (), metadata=_object(row[7]) if row[7] else {},
        created_at=row[8], content=row[9],
    )  # fmt: skip


def _checkpoint(row: Sequence[Any]) -> Checkpoint:
    return Checkpoint(
        id=row[0], frame=row[1], covered_up_to=row[2], created_at=row[3], tokens_before=row[4], model=row[5],
        summary=row[6],
    )  # fmt: skip


# --- ops ---------------------------------------------------------------------------------------------------------


class _Batch:
    """One batch at work: remembers the frame it opened, for ops that name none."""

    __slots__ = ("c", "cache", "opened")

    def __init__(self, connection: Connection, cache: FrameCache) -> None:
        self.c = connection
        self.cache = cache
        self.opened: FrameId | None = None

    def frame_or_opened(self, frame: FrameId | None) -> FrameId:
        found = frame if frame is not None else self.opened
        if found is None:
            raise StoreError("an op without a frame needs an OpenFrame before it in the same batch")
        return found

    def open_calls(self, conversation: ConversationId, frame: FrameId | None = None) -> list[tuple[CallId, str]]:
        return _open_calls(self.c, conversation, frame)

    def note_open(self, conversation: ConversationId) -> None:
        """Give every open call of the conversation's run its row: the run that vouched for them ends."""
        for call in _unnoted(self.c, conversation):
            self.c.execute("INSERT INTO loop_calls(id, state) VALUES (?, 'running')", (call,))

    def refuse_known(self, conversation: ConversationId, client_id: str) -> None:
        row = self.c.execute(
            "SELECT message, queued FROM loop_sends WHERE conversation = ? AND client_id = ?", (conversation, client_id)
        ).fetchone()
        if row is not None:
            raise BatchEnds(Stored(row[0] or row[1] or 0, existing=True, queued=row[0] is None, changed=False))

    # Each method below applies one op and says what it did.

    def open_frame(self, op: OpenFrame) -> Stored:
        if op.parent is None:
            row = self.c.execute(
                "SELECT id FROM loop_frames WHERE conversation = ? AND depth = 0 LIMIT 1", (op.conversation,)
            ).fetchone()
            if row is not None:
                self.opened = row[0]
                return Stored(row[0], existing=True, changed=False)
        done = self.c.execute(
            "INSERT INTO loop_frames(conversation, agent, parent, parent_call, depth, active, title, meta, created_at)"
            " VALUES (?,?,?,?,?,1,?,?,?)",
            (op.conversation, op.agent, op.parent, op.parent_call, op.depth, clean(op.title), _dump(op.meta), op.at),
        )
        self.opened = FrameId(_inserted(done))
        return Stored(_inserted(done))

    def close_frame(self, op: CloseFrame) -> Stored:
        self.cache.drop(op.frame)
        done = self.c.execute("UPDATE loop_frames SET active = 0 WHERE id = ? AND active = 1", (op.frame,))
        return Stored(op.frame, changed=done.rowcount > 0)

    def merge_meta(self, op: MergeMeta) -> Stored:
        frame = self.frame_or_opened(op.frame)
        row = self.c.execute("SELECT meta FROM loop_frames WHERE id = ?", (frame,)).fetchone()
        if row is None:
            raise StoreError(f"frame {frame!r} does not exist; it may have been deleted")
        self.cache.drop(frame)
        merged = (_object(row[0]) if row[0] else {}) | op.meta
        self.c.execute("UPDATE loop_frames SET meta = ? WHERE id = ?", (_dump(merged), frame))
        return Stored(frame)

    def append_message(self, op: AppendMessage) -> Stored:
        frame = self.frame_or_opened(op.frame)
        tail = self.cache.tails.get(frame) or self.tail_of(frame)
        conversation = tail.conversation
        if op.client_id:
            self.refuse_known(conversation, op.client_id)
        if op.behind_queue and self.input_waits(conversation):
            raise BatchEnds(self.enqueue(queued_from(conversation, op)))
        parent = tail.head if op.parent == "head" else op.parent
        if parent != tail.head:
            if parent is not None:
                self.need_part(frame, parent)
            self.cache.drop(frame)
        if len(op.calls) > CALLS_A_MESSAGE:
            raise StoreError(f"one message may have {CALLS_A_MESSAGE} calls, not {len(op.calls)}")
        optional = {
            "parent": parent,
            "provider": op.provider,
            "model": op.model,
            "usage": _json(op.usage).decode() if op.usage is not None else None,
            "duration_ms": op.duration_ms,
            "client_id": op.client_id,
            "attachments": _dump(op.attachments),
            "metadata": _dump(op.metadata),
            "replay": _dump(op.replay),
            "reasoning_signature": op.reasoning_signature,
            "reasoning": clean(op.reasoning),
            "calls": _dump([(clean(call.tool_use_id), clean(call.name), clean(call.arguments)) for call in op.calls]),
        }
        given = {name: value for name, value in optional.items() if value is not None and value != ""}
        done = self.c.execute(
            _insert_message(tuple(given)),
            (
                frame, op.role, op.status, int(op.synthetic), op.at, len(op.calls), clean(op.content),
                *given.values(),
            ),
        )  # fmt: skip
        message = MessageId(_inserted(done))
        # A frame's newest message has no replies yet, so only a chosen place can be shared.
        siblings = self.replies(frame, parent) if tail.chosen or parent != tail.head else ()
        if tail.chosen:
            self.c.execute("UPDATE loop_frames SET head = NULL WHERE id = ?", (frame,))
        self.cache.tails[frame] = Tail(conversation, message, chosen=False)
        if op.client_id:
            self.c.execute("INSERT INTO loop_sends VALUES (?, ?, ?, NULL)", (conversation, op.client_id, message))
        if not op.calls:
            return Stored(message, parent=parent, siblings=siblings)
        self.cache.call_counts[message] = len(op.calls)
        written_calls = self._written(message, op.calls, parent, self.runs_now(conversation))
        return msgspec.structs.replace(written_calls, siblings=siblings) if siblings else written_calls

    def replies(self, frame: FrameId, parent: MessageId | None) -> tuple[MessageId, ...]:
        """The messages after ``parent``, oldest first, when there are several."""
        rows = self.c.execute(
            "SELECT id FROM loop_messages WHERE frame = ? AND id > ? AND parent IS ? ORDER BY id",
            (frame, parent or 0, parent),
        ).fetchall()
        return tuple(MessageId(row[0]) for row in rows) if len(rows) > 1 else ()

    def tail_of(self, frame: FrameId) -> Tail:
        """Where the next message of a frame goes."""
        row = self.c.execute(
            "SELECT f.conversation, f.head, (SELECT max(m.id) FROM loop_messages m WHERE m.frame = f.id)"
            " FROM loop_frames f WHERE f.id = ?",
            (frame,),
        ).fetchone()
        if row is None:
            raise StoreError(f"frame {frame!r} does not exist; it may have been deleted")
        conversation, head, newest = row
        return Tail(conversation, newest if head is None else head or None, chosen=head is not None)

    def runs_now(self, conversation: ConversationId) -> bool:
        """Whether a conversation has an open run."""
        known = self.cache.runs.get(conversation)
        if known is None:
            row = self.c.execute("SELECT 1 FROM loop_runs WHERE conversation = ?", (conversation,)).fetchone()
            known = self.cache.runs[conversation] = row is not None
        return known

    def _written(self, message: MessageId, calls: Sequence[NewCall], parent: MessageId | None, vouched: bool) -> Stored:
        """The ids of a new message's calls; ``vouched`` says that an open run knows of them."""
        first = message * CALLS_A_MESSAGE
        use_ids = [clean(call.tool_use_id) for call in calls]
        if not all(use_ids):
            use_ids = [use_id or f"call_{first + index}" for index, use_id in enumerate(use_ids)]
            named = [(i, clean(call.name), clean(call.arguments)) for i, call in zip(use_ids, calls, strict=True)]
            self.c.execute("UPDATE loop_messages SET calls = ? WHERE id = ?", (_dump(named), message))
        for index, call in enumerate(calls):
            if call.state != "running" or not vouched:
                self.c.execute("INSERT INTO loop_calls(id, state) VALUES (?, ?)", (first + index, call.state))
        ids = tuple([CallId(first + index) for index in range(len(calls))])
        return Stored(message, ids, tuple(use_ids), parent=parent)

    def update_message(self, op: UpdateMessage) -> Stored:
        row = self.c.execute("SELECT metadata, frame FROM loop_messages WHERE id = ?", (op.message,)).fetchone()
        if row is None:
            raise StoreError(f"message {op.message!r} does not exist; it may have been deleted")
        self.cache.drop(row[1])
        if op.status is not None:
            self.c.execute("UPDATE loop_messages SET status = ? WHERE id = ?", (op.status, op.message))
        if op.metadata is not None:
            merged = (_object(row[0]) if row[0] else {}) | op.metadata
            self.c.execute("UPDATE loop_messages SET metadata = ? WHERE id = ?", (_dump(merged), op.message))
        return Stored(op.message)

    def _need_call(self, call: CallId) -> bool:
        message, index = divmod(call, CALLS_A_MESSAGE)
        self.cache.call_changed(MessageId(message))
        count = self.cache.call_counts.get(MessageId(message))
        if count is None:
            row = self.c.execute("SELECT call_count FROM loop_messages WHERE id = ?", (message,)).fetchone()
            count = row[0] if row is not None else 0
        return index < count

    def resolve_call(self, op: ResolveCall) -> Stored:
        if not self._need_call(op.call):
            raise StoreError(f"call {op.call!r} does not exist; it may have been deleted")
        extras = self._merged(op.call, op.extras) if op.extras else None
        values = (op.call, op.state, clean(op.result), op.result_kind, op.duration_ms, op.at)
        if extras is None and not op.media:
            done = self.c.execute(_RESOLVE, values)
        else:
            done = self.c.execute(_RESOLVE_WITH_MORE, (*values, _dump(op.media), extras))
        return Stored(op.call, changed=done.rowcount > 0)

    def _merged(self, call: CallId, extras: dict[str, Any]) -> str | None:
        row = self.c.execute("SELECT extras FROM loop_calls WHERE id = ?", (call,)).fetchone()
        return _dump((_object(row[0]) if row and row[0] else {}) | extras)

    def set_call_state(self, op: SetCallState) -> Stored:
        if not self._need_call(op.call):
            return Stored(op.call, changed=False)
        done = self.c.execute(
            "INSERT INTO loop_calls(id, state, effective) VALUES (?,?,?) ON CONFLICT(id) DO UPDATE SET"
            " state = excluded.state, effective = ifnull(excluded.effective, effective)"
            " WHERE state IN ('running', 'awaiting')",
            (op.call, op.state, clean(op.effective) if op.effective is not None else None),
        )
        return Stored(op.call, changed=done.rowcount > 0)

    def settle_calls(self, op: SettleCalls) -> Stored:
        row = self.c.execute("SELECT conversation FROM loop_frames WHERE id = ?", (op.frame,)).fetchone()
        found = self.open_calls(row[0], op.frame) if row is not None else []
        settled = tuple(call for call, state in found if not (op.keep_awaiting and state == "awaiting"))
        for call in settled:
            self.resolve_call(ResolveCall(call, op.state, op.result, op.result_kind, at=op.at))
        return Stored(op.frame, changed=bool(settled), settled=settled)

    def merge_call_extras(self, op: MergeCallExtras) -> Stored:
        if not self._need_call(op.call):
            return Stored(op.call, changed=False)
        self.c.execute(
            "INSERT INTO loop_calls(id, state, extras) VALUES (?, 'running', ?)"
            " ON CONFLICT(id) DO UPDATE SET extras = excluded.extras",
            (op.call, self._merged(op.call, op.extras)),
        )
        return Stored(op.call)

    def need_part(self, frame: FrameId, message: MessageId) -> None:
        row = self.c.execute("SELECT frame FROM loop_messages WHERE id = ?", (message,)).fetchone()
        if row is None or row[0] != frame:
            raise StoreError(f"message {message!r} is not part of frame {frame!r}")

    def set_head(self, op: SetHead) -> Stored:
        if op.message is not None:
            self.need_part(op.frame, op.message)
        self.cache.drop(op.frame)
        head = op.message if op.message is not None else _FIRST
        self.c.execute("UPDATE loop_frames SET head = ? WHERE id = ?", (head, op.frame))
        return Stored(op.frame)

    def save_checkpoint(self, op: SaveCheckpoint) -> Stored:
        self.need_part(op.frame, op.covered_up_to)
        self.cache.drop(op.frame)
        done = self.c.execute(
            "INSERT INTO loop_checkpoints(frame, covered_up_to, created_at, tokens_before, model, summary)"
            " VALUES (?,?,?,?,?,?)",
            (op.frame, op.covered_up_to, op.at, op.tokens_before, op.model, clean(op.summary)),
        )
        return Stored(_inserted(done))

    def enqueue(self, op: Enqueue) -> Stored:
        if op.client_id:
            self.refuse_known(op.conversation, op.client_id)
        done = self.c.execute(
            f"INSERT INTO loop_queue({_QUEUED[4:]}) VALUES"
            " (?1, (SELECT ifnull(max(position), 0) + 1 FROM loop_queue WHERE conversation = ?1), ?2,0,?3,?4,?5,?6,?7)",
            (op.conversation, op.kind, op.client_id or None, _dump(op.attachments), _dump(op.metadata), op.at,
             clean(op.content)),
        )  # fmt: skip
        if op.client_id:
            self.c.execute(
                "INSERT INTO loop_sends VALUES (?, ?, NULL, ?)", (op.conversation, op.client_id, _inserted(done))
            )
        return Stored(_inserted(done), queued=True)

    def input_waits(self, conversation: ConversationId, *, held: bool = True) -> bool:
        """Whether input waits; ``held=False`` does not count held input."""
        sql = "SELECT 1 FROM loop_queue WHERE conversation = ? AND held <= ? LIMIT 1"
        return self.c.execute(sql, (conversation, held)).fetchone() is not None

    def waiting(self, queued: int) -> QueuedInput:
        row = self.c.execute(f"SELECT {_QUEUED} FROM loop_queue WHERE id = ?", (queued,)).fetchone()
        if row is None:
            raise StoreError(f"queued input {queued!r} waits no more: it was sent or deleted")
        return _queued(row)

    def edit_queued(self, op: EditQueued) -> Stored:
        self.waiting(op.queued)
        self.c.execute(
            "UPDATE loop_queue SET content = ifnull(?, content), kind = ifnull(?, kind) WHERE id = ?",
            (clean(op.content) if op.content is not None else None, op.kind, op.queued),
        )
        if op.metadata is not None:
            self.c.execute("UPDATE loop_queue SET metadata = ? WHERE id = ?", (_dump(op.metadata), op.queued))
        return Stored(op.queued, queued=True)

    def delete_queued(self, op: DeleteQueued) -> Stored:
        self.c.execute("UPDATE loop_sends SET queued = NULL WHERE queued = ?", (op.queued,))
        done = self.c.execute("DELETE FROM loop_queue WHERE id = ?", (op.queued,))
        return Stored(op.queued, queued=True, changed=done.rowcount > 0)

    def reorder_queue(self, op: ReorderQueue) -> Stored:
        rows = self.c.execute(
            "SELECT id FROM loop_queue WHERE conversation = ? ORDER BY position, id", (op.conversation,)
        ).fetchall()
        known = [row[0] for row in rows]
        first = [item for item in dict.fromkeys(op.order) if item in known]
        for position, item in enumerate(first + [item for item in known if item not in first], 1):
            self.c.execute("UPDATE loop_queue SET position = ? WHERE id = ?", (position, item))
        return Stored(queued=True)

    def dequeue(self, op: Dequeue) -> Stored:
        item = self.waiting(op.queued)
        self.c.execute("DELETE FROM loop_queue WHERE id = ?", (op.queued,))
        if item.held:
            self.c.execute("UPDATE loop_queue SET held = 0 WHERE conversation = ?", (item.conversation,))
        stored = self.append_message(message_from(item, op))
        for call in stored.calls:
            self.resolve_call(task_result(item, call, op.at))
        if item.client_id:
            self.c.execute(
                "UPDATE loop_sends SET message = ?, queued = NULL WHERE conversation = ? AND client_id = ?",
                (stored.id, item.conversation, item.client_id),
            )
            self.c.execute("UPDATE loop_messages SET client_id = ? WHERE id = ?", (item.client_id, stored.id))
        return stored

    def hold_queue(self, op: HoldQueue) -> Stored:
        done = self.c.execute("UPDATE loop_queue SET held = 1 WHERE conversation = ? AND held = 0", (op.conversation,))
        return Stored(queued=True, changed=done.rowcount > 0)

    def open_run(self, op: OpenRun) -> Stored:
        self.note_open(op.conversation)
        self.cache.runs[op.conversation] = True
        self.c.execute(
            "INSERT OR REPLACE INTO loop_runs(conversation, id, frame, started_at, since)"
            " VALUES (?,?,?,?, ifnull((SELECT max(id) FROM loop_messages), 0))",
            (op.conversation, op.id, self.frame_or_opened(op.frame), op.at),
        )
        return Stored()

    def close_run(self, op: CloseRun) -> Stored:
        self.note_open(op.conversation)
        self.cache.runs[op.conversation] = False
        done = self.c.execute("DELETE FROM loop_runs WHERE conversation = ?", (op.conversation,))
        return Stored(changed=done.rowcount > 0, queued=self.input_waits(op.conversation, held=False))

    def import_messages(self, op: ImportMessages) -> Stored:
        frame = self.frame_or_opened(op.frame)
        new: dict[MessageId, MessageId] = {}
        for message in op.messages:
            stored = self.append_message(imported(message, frame, new[message.parent] if message.parent else None))
            new[message.id] = MessageId(stored.id)
            for old, call in zip(message.calls, stored.calls, strict=True):
                running, result = imported_result(old, call)
                if running.effective is not None:
                    self.set_call_state(running)
                self.resolve_call(result)
        for point in op.checkpoints:
            self.save_checkpoint(
                SaveCheckpoint(
                    frame, point.summary, new[point.covered_up_to], point.tokens_before, point.model, point.created_at
                )
            )
        head = new[op.head] if op.head is not None else None
        self.set_head(SetHead(frame, head))
        return Stored(head or 0)

    def remove_messages(self, op: RemoveMessages) -> Stored:
        gone = set(op.messages)
        for message in gone:
            self.need_part(op.frame, message)
        head = self.tail_of(op.frame).head
        parents: dict[MessageId, MessageId | None] = dict(
            self.c.execute("SELECT id, parent FROM loop_messages WHERE frame = ?", (op.frame,))
        )
        sql = "SELECT id, covered_up_to FROM loop_checkpoints WHERE frame = ?"
        for point, covered in self.c.execute(sql, (op.frame,)).fetchall():
            if any(message in gone for message in _upwards(covered, parents)):
                self.c.execute("DELETE FROM loop_checkpoints WHERE id = ?", (point,))
        for message, parent in parents.items():
            if parent in gone and message not in gone:
                kept = kept_before(parent, parents, gone)
                self.c.execute("UPDATE loop_messages SET parent = ? WHERE id = ?", (kept, message))
        kept_head = kept_before(head, parents, gone)
        self.c.execute("UPDATE loop_frames SET head = ? WHERE id = ?", (kept_head or _FIRST, op.frame))
        for message in gone:
            first = message * CALLS_A_MESSAGE
            inner = "SELECT id FROM loop_frames WHERE parent_call BETWEEN ? AND ?"
            for (child,) in self.c.execute(inner, (first, first + CALLS_A_MESSAGE - 1)).fetchall():
                _delete_subtree(self.c, child)
            _delete_messages(self.c, "m.id = ?", message)
            self.c.execute("UPDATE loop_sends SET message = NULL, queued = NULL WHERE message = ?", (message,))
        self.cache.clear()
        return Stored(kept_head or 0, changed=bool(gone))

    def load_frame(self, op: LoadFrame) -> Stored:
        frame = self.frame_or_opened(op.frame)
        loaded = _load(self.c, frame, self.cache.get(frame))
        if loaded is not None:
            self.cache.put(loaded)
        return Stored(frame, loaded=loaded)

    def add_draft(self, op: AddDraft) -> Stored:
        done = self.c.execute(
            "INSERT INTO loop_drafts(frame, model, content, reasoning) VALUES (?,?,?,?)",
            (op.frame, op.model, clean(op.content), clean(op.reasoning)),
        )
        return Stored(_inserted(done))

    def clear_draft(self, op: ClearDraft) -> Stored:
        self.c.execute("DELETE FROM loop_drafts WHERE frame = ?", (op.frame,))
        return Stored()


_APPLY: dict[type[Any], Callable[[_Batch, Any], Stored]] = {
    OpenFrame: _Batch.open_frame,
    CloseFrame: _Batch.close_frame,
    MergeMeta: _Batch.merge_meta,
    AppendMessage: _Batch.append_message,
    UpdateMessage: _Batch.update_message,
    ResolveCall: _Batch.resolve_call,
    SetCallState: _Batch.set_call_state,
    SettleCalls: _Batch.settle_calls,
    MergeCallExtras: _Batch.merge_call_extras,
    SetHead: _Batch.set_head,
    SaveCheckpoint: _Batch.save_checkpoint,
    Enqueue: _Batch.enqueue,
    EditQueued: _Batch.edit_queued,
    DeleteQueued: _Batch.delete_queued,
    ReorderQueue: _Batch.reorder_queue,
    Dequeue: _Batch.dequeue,
    OpenRun: _Batch.open_run,
    CloseRun: _Batch.close_run,
    AddDraft: _Batch.add_draft,
    ClearDraft: _Batch.clear_draft,
    HoldQueue: _Batch.hold_queue,
    ImportMessages: _Batch.import_messages,
    RemoveMessages: _Batch.remove_messages,
    LoadFrame: _Batch.load_frame,
}


def _apply(c: Connection, ops: Sequence[Op], cache: FrameCache) -> tuple[Stored, ...]:
    cache.begin(c)
    batch = _Batch(c, cache)
    results: list[Stored] = []
    try:
        for op in ops:
            results.append(_APPLY[type(op)](batch, op))
    except BatchEnds as end:
        results += [end.stored] * (len(ops) - len(results))
    return tuple(results)


# --- reads -------------------------------------------------------------------------------------------------------


def _unnoted(c: Connection, conversation: ConversationId, frame: FrameId | None = None) -> list[CallId]:
    """Running calls without a row: all of the conversation's open run, if it has one."""
    run = c.execute("SELECT since FROM loop_runs WHERE conversation = ?", (conversation,)).fetchone()
    if run is None:
        return []
    rows = c.execute(
        "SELECT m.id, m.call_count FROM loop_frames f JOIN loop_messages m ON m.frame = f.id AND m.id > ?"
        " WHERE f.conversation = ? AND m.call_count > 0 AND (?3 IS NULL OR f.id = ?3) AND m.call_count >"
        f" (SELECT count(*) FROM loop_calls k WHERE k.id {_OF_M})",
        (run[0], conversation, frame),
    ).fetchall()
    found = []
    for message, count in rows:
        first = message * CALLS_A_MESSAGE
        known = {
            row[0] for row in c.execute("SELECT id FROM loop_calls WHERE id BETWEEN ? AND ?", (first, first + count))
        }
        found += [CallId(call) for call in range(first, first + count) if call not in known]
    return found


def _open_calls(c: Connection, conversation: ConversationId, frame: FrameId | None = None) -> list[tuple[CallId, str]]:
    """Calls without a result and their state, in order; of one frame, when given."""
    noted = c.execute(
        "SELECT k.id, k.state FROM loop_calls k INDEXED BY loop_calls_open"
        f" JOIN loop_messages m ON m.id = k.id / {CALLS_A_MESSAGE} JOIN loop_frames f ON f.id = m.frame"
        " WHERE k.state IN ('running', 'awaiting') AND f.conversation = ? AND (?2 IS NULL OR f.id = ?2)",
        (conversation, frame),
    ).fetchall()
    unnoted: list[tuple[CallId, str]] = [(call, "running") for call in _unnoted(c, conversation, frame)]
    return sorted([*((CallId(call), state) for call, state in noted), *unnoted])


_PATH = """WITH RECURSIVE path(id, parent) AS (
    SELECT id, parent FROM loop_messages WHERE id = :head
    UNION ALL SELECT m.id, m.parent FROM path JOIN loop_messages m ON m.id = path.parent"""


def _load(c: Connection, frame: FrameId, known: LoadedFrame | None = None) -> LoadedFrame | None:
    """Read a frame; ``known`` is what was read of it before and still holds, so only what follows is read."""
    row = c.execute(f"SELECT {_FRAME} FROM loop_frames WHERE id = ?", (frame,)).fetchone()
    if row is None:
        return None
    found = _frame(row)
    if known is not None and known.frame.head is not None:
        return _grown(c, found, known)
    # The walk from the head stops at the first message a checkpoint covers, so a checkpoint made on another branch
    # does not count here.
    rows = c.execute(
        _PATH
        + " WHERE path.id NOT IN (SELECT covered_up_to FROM loop_checkpoints WHERE frame = :frame))"
        + f" SELECT {_MESSAGE} FROM loop_messages WHERE id IN (SELECT id FROM path) ORDER BY id",
        {"head": found.head, "frame": frame},
    ).fetchall()
    checkpoint = None
    if rows:
        covered = c.execute(
            f"SELECT {_CHECKPOINT} FROM loop_checkpoints WHERE frame = ? AND covered_up_to = ? ORDER BY id DESC LIMIT 1",
            (frame, rows[0][0]),
        ).fetchone()
        if covered is not None:
            checkpoint = _checkpoint(covered)
            rows = rows[1:]
    return LoadedFrame(found, tuple(_message(c, row) for row in rows if row[4] != "failed"), checkpoint)


def _grown(c: Connection, found: Frame, known: LoadedFrame) -> LoadedFrame:
    if found.head == known.frame.head:
        return LoadedFrame(found, known.messages, known.checkpoint)
    rows = c.execute(
        _PATH
        + " WHERE path.parent > :known)"
        + f" SELECT {_MESSAGE} FROM loop_messages WHERE id IN (SELECT id FROM path) ORDER BY id",
        {"head": found.head, "known": known.frame.head},
    ).fetchall()
    added = tuple(_message(c, row) for row in rows if row[4] != "failed")
    return LoadedFrame(found, known.messages + added, known.checkpoint)


def _history(c: Connection, frame: FrameId, head: int | None, before: int | None, limit: int) -> HistoryPage:
    if before is not None:
        row = c.execute("SELECT parent FROM loop_messages WHERE id = ? AND frame = ?", (before, frame)).fetchone()
        head = row[0] if row is not None else None
    rows = c.execute(
        _PATH + f" LIMIT :count) SELECT {_MESSAGE} FROM loop_messages WHERE id IN (SELECT id FROM path) ORDER BY id",
        {"head": head, "count": limit + 1},
    ).fetchall()
    more = len(rows) > limit
    rows = rows[1:] if more else rows
    replies: dict[int | None, list[MessageId]] = {}
    if rows:
        # A sibling is younger than the parent it shares; index only.
        oldest = rows[0][2] or 0
        for message, parent in c.execute(
            "SELECT id, parent FROM loop_messages WHERE frame = ? AND id > ? ORDER BY id", (frame, oldest)
        ):
            replies.setdefault(parent, []).append(MessageId(message))
    items = tuple(HistoryItem(_message(c, row), tuple(replies[row[2]])) for row in rows)
    shown = {item.message.id for item in items}
    covered = c.execute(f"SELECT {_CHECKPOINT} FROM loop_checkpoints WHERE frame = ? ORDER BY id", (frame,))
    checkpoints = tuple(k for k in map(_checkpoint, covered) if k.covered_up_to in shown)
    return HistoryPage(items, items[0].message.id if more and items else None, checkpoints)


def _upwards(message: MessageId | None, parents: Mapping[MessageId, MessageId | None]) -> Iterator[MessageId]:
    """``message`` and what came before it on its branch."""
    while message is not None:
        yield message
        message = parents.get(message)


def _delete_messages(c: Connection, which: str, value: int) -> None:
    """Delete messages and their calls; ``which`` is a condition on ``loop_messages m``."""
    c.execute(
        f"DELETE FROM loop_calls WHERE id IN (SELECT k.id FROM loop_messages m JOIN loop_calls k"
        f" ON k.id {_OF_M} WHERE {which} AND m.call_count > 0)",
        (value,),
    )
    # Ids are one more than the newest, so the newest stays as an emptied row: no id is given twice.
    newest = c.execute("SELECT max(id) FROM loop_messages").fetchone()[0]
    c.execute(f"UPDATE loop_messages AS m SET {_TOMBSTONE} WHERE {which} AND m.id = ?", (value, newest))
    c.execute(f"DELETE FROM loop_messages AS m WHERE {which} AND m.frame > 0", (value,))


def _delete_subtree(c: Connection, frame: FrameId) -> None:
    """Delete a frame and those below it."""
    for (child,) in c.execute("SELECT id FROM loop_frames WHERE parent = ?", (frame,)).fetchall():
        _delete_subtree(c, child)
    _empty_frame(c, frame)
    c.execute("DELETE FROM loop_frames WHERE id = ?", (frame,))


def _empty_frame(c: Connection, frame: FrameId) -> None:
    _delete_messages(c, "m.frame = ?", frame)
    for table in ("loop_drafts", "loop_checkpoints"):
        c.execute(f"DELETE FROM {table} WHERE frame = ?", (frame,))


def _delete(c: Connection, conversation: ConversationId, cache: FrameCache) -> None:
    cache.clear()
    for (frame,) in c.execute("SELECT id FROM loop_frames WHERE conversation = ?", (conversation,)).fetchall():
        _empty_frame(c, frame)
    for table in ("loop_frames", "loop_queue", "loop_sends", "loop_runs"):
        c.execute(f"DELETE FROM {table} WHERE conversation = ?", (conversation,))


_TOMBSTONE = (
    "frame = 0, parent = NULL, content = '', reasoning = NULL, attachments = NULL, metadata = NULL, replay = NULL,"
    " client_id = NULL, calls = NULL, call_count = 0"
)


class SqliteStore:
    """Conversations in one SQLite or SQLCipher file.

    Give it an open :class:`Database` whose schema holds ``MIGRATIONS`` (a host applies them under the component name
    ``loop``), or use :meth:`open`, which applies them itself. ``close`` closes the database only in the second case.
    """

    def __init__(self, db: Database, *, owns: bool = False) -> None:
        self.db = db
        self._owns = owns
        self._cache = FrameCache()
        db.on_rollback(self._cache.clear)

    @classmethod
    async def open(cls, path: str | Path, *, key: bytes | None = None) -> SqliteStore:
        """Open or create a file of its own. ``key`` is a raw 256-bit SQLCipher key. Raises WrongKey, SchemaAhead."""
        db = await Database.open(path, key=key)
        try:
            await db.write(migrate, COMPONENT, MIGRATIONS)
        except BaseException:
            await db.close()
            raise
        return cls(db, owns=True)

    def apply(self, ops: Sequence[Op]) -> Awaitable[tuple[Stored, ...]]:
        return self.db.submit(_apply, tuple(ops), self._cache)

    async def root(self, conversation: ConversationId) -> Frame | None:
        def read(c: Connection) -> Frame | None:
            sql = f"SELECT {_FRAME} FROM loop_frames WHERE conversation = ? AND depth = 0 LIMIT 1"
            row = c.execute(sql, (conversation,)).fetchone()
            return _frame(row) if row else None

        return await self.db.read(read)

    async def frame(self, frame: FrameId) -> Frame | None:
        def read(c: Connection) -> Frame | None:
            row = c.execute(f"SELECT {_FRAME} FROM loop_frames WHERE id = ?", (frame,)).fetchone()
            return _frame(row) if row else None

        return await self.db.read(read)

    async def conversations(self, *, limit: int = 50, offset: int = 0) -> tuple[ConversationInfo, ...]:
        def read(c: Connection) -> tuple[ConversationInfo, ...]:
            sql = f"{_INFO} WHERE f.depth = 0 ORDER BY ifnull(newest, 0) DESC, f.id DESC LIMIT ? OFFSET ?"
            return tuple(_info(c, row) for row in c.execute(sql, (limit, offset)).fetchall())

        return await self.db.read(read)

    async def conversation(self, conversation: ConversationId) -> ConversationInfo | None:
        def read(c: Connection) -> ConversationInfo | None:
            row = c.execute(f"{_INFO} WHERE f.conversation = ? AND f.depth = 0 LIMIT 1", (conversation,)).fetchone()
            return _info(c, row) if row is not None else None

        return await self.db.read(read)

    async def active_frames(self, conversation: ConversationId) -> tuple[Frame, ...]:
        def read(c: Connection) -> tuple[Frame, ...]:
            sql = f"SELECT {_FRAME} FROM loop_frames WHERE conversation = ? AND active = 1 ORDER BY depth, id"
            return tuple(map(_frame, c.execute(sql, (conversation,))))

        return await self.db.read(read)

    async def load(self, frame: FrameId) -> LoadedFrame | None:
        return await self.db.read(_load, frame)

    async def history(
        self, conversation: ConversationId, *, before: MessageId | None = None, limit: int = 50
    ) -> HistoryPage:
        def read(c: Connection) -> HistoryPage:
            sql = f"SELECT id, {_HEAD} FROM loop_frames WHERE conversation = ? AND depth = 0 LIMIT 1"
            row = c.execute(sql, (conversation,)).fetchone()
            return _history(c, row[0], row[1], before, limit) if row else HistoryPage(())

        return await self.db.read(read)

    async def frame_history(self, frame: FrameId, *, before: MessageId | None = None, limit: int = 50) -> HistoryPage:
        def read(c: Connection) -> HistoryPage:
            row = c.execute(f"SELECT id, {_HEAD} FROM loop_frames WHERE id = ?", (frame,)).fetchone()
            return _history(c, row[0], row[1], before, limit) if row else HistoryPage(())

        return await self.db.read(read)

    async def tree(self, frame: FrameId) -> tuple[Message, ...]:
        def read(c: Connection) -> tuple[Message, ...]:
            sql = f"SELECT {_MESSAGE} FROM loop_messages WHERE frame = ? ORDER BY id"
            return tuple(_message(c, row) for row in c.execute(sql, (frame,)).fetchall())

        return await self.db.read(read)

    async def checkpoints(self, frame: FrameId) -> tuple[Checkpoint, ...]:
        def read(c: Connection) -> tuple[Checkpoint, ...]:
            sql = f"SELECT {_CHECKPOINT} FROM loop_checkpoints WHERE frame = ? ORDER BY id"
            return tuple(map(_checkpoint, c.execute(sql, (frame,))))

        return await self.db.read(read)

    async def message(self, message: MessageId) -> Message | None:
        def read(c: Connection) -> Message | None:
            sql = f"SELECT {_MESSAGE} FROM loop_messages WHERE id = ? AND frame > 0"
            row = c.execute(sql, (message,)).fetchone()
            return _message(c, row) if row else None

        return await self.db.read(read)

    async def call(self, call: CallId) -> Call | None:
        return await self.db.read(_one_call, call)

    async def frame_of_call(self, call: CallId) -> Frame | None:
        def read(c: Connection) -> Frame | None:
            if _one_call(c, call) is None:
                return None
            sql = f"SELECT {_FRAME} FROM loop_frames WHERE id = (SELECT m.frame FROM loop_messages m WHERE m.id = ?)"
            row = c.execute(sql, (call // CALLS_A_MESSAGE,)).fetchone()
            return _frame(row) if row else None

        return await self.db.read(read)

    async def child_frames(self, call: CallId) -> tuple[Frame, ...]:
        def read(c: Connection) -> tuple[Frame, ...]:
            sql = f"SELECT {_FRAME} FROM loop_frames WHERE parent_call = ? ORDER BY id"
            return tuple(map(_frame, c.execute(sql, (call,))))

        return await self.db.read(read)

    async def leaf(self, message: MessageId) -> MessageId:
        def read(c: Connection) -> MessageId:
            newest: dict[int, int] = {}
            for child, parent in c.execute(
                "SELECT id, parent FROM loop_messages WHERE id > ?1"
                " AND frame = (SELECT frame FROM loop_messages WHERE id = ?1) ORDER BY id",
                (message,),
            ):
                newest[parent] = child
            at: int = message
            while at in newest:
                at = newest[at]
            return MessageId(at)

        return await self.db.read(read)

    async def open_calls(self, conversation: ConversationId) -> tuple[Call, ...]:
        def read(c: Connection) -> tuple[Call, ...]:
            found = (_one_call(c, call) for call, _ in _open_calls(c, conversation))
            return tuple(call for call in found if call is not None)

        return await self.db.read(read)

    async def draft(self, frame: FrameId) -> Draft | None:
        def read(c: Connection) -> Draft | None:
            rows = c.execute("SELECT content, reasoning, model FROM loop_drafts WHERE frame = ? ORDER BY id", (frame,))
            parts = rows.fetchall()
            if not parts:
                return None
            return Draft(frame, "".join(p[0] for p in parts), "".join(p[1] for p in parts), parts[-1][2])

        return await self.db.read(read)

    async def queued(self, conversation: ConversationId) -> tuple[QueuedInput, ...]:
        def read(c: Connection) -> tuple[QueuedInput, ...]:
            sql = f"SELECT {_QUEUED} FROM loop_queue WHERE conversation = ? ORDER BY position, id"
            return tuple(map(_queued, c.execute(sql, (conversation,))))

        return await self.db.read(read)

    async def runs(self) -> tuple[Run, ...]:
        def read(c: Connection) -> tuple[Run, ...]:
            rows = c.execute("SELECT id, conversation, frame, started_at FROM loop_runs ORDER BY started_at, id")
            return tuple(Run(*row) for row in rows)

        return await self.db.read(read)

    async def unfinished(self) -> tuple[ConversationId, ...]:
        def read(c: Connection) -> tuple[ConversationId, ...]:
            rows = c.execute(
                "SELECT conversation FROM loop_runs UNION SELECT conversation FROM loop_queue"
                " UNION SELECT conversation FROM loop_frames WHERE active = 1 AND depth > 0"
                " UNION SELECT f.conversation FROM loop_drafts d JOIN loop_frames f ON f.id = d.frame"
                f" UNION SELECT f.conversation FROM loop_calls k JOIN loop_messages m ON m.id = k.id / {CALLS_A_MESSAGE}"
                " JOIN loop_frames f ON f.id = m.frame WHERE k.state IN ('running', 'awaiting') ORDER BY 1"
            )
            return tuple(ConversationId(row[0]) for row in rows)

        return await self.db.read(read)

    async def checkpoint(self, checkpoint: int) -> Checkpoint | None:
        def read(c: Connection) -> Checkpoint | None:
            row = c.execute(f"SELECT {_CHECKPOINT} FROM loop_checkpoints WHERE id = ?", (checkpoint,)).fetchone()
            return _checkpoint(row) if row else None

        return await self.db.read(read)

    async def delete_conversation(self, conversation: ConversationId) -> None:
        await self.db.write(_delete, conversation, self._cache)

    async def close(self) -> None:
        if self._owns:
            await self.db.close()
