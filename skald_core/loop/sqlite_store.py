"""The durable store: SQLite or SQLCipher through :class:`~skald_core.loop.database.Database`.

Two choices keep a round at few written pages, each of which SQLCipher encrypts and authenticates:

- Messages have one index, on ``parent``; a frame's first messages have the negative frame id as parent.
- The calls of a message are recorded together and thus have consecutive ids, so they need no index to be found.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from skald_core.loop.database import Connection, Cursor, Database
from skald_core.loop.errors import StoreError
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
    MergeCallExtras,
    Op,
    OpenFrame,
    OpenRun,
    ReorderQueue,
    ResolveCall,
    SaveCheckpoint,
    SetCallState,
    SetHead,
    SettleCalls,
    Stored,
    UpdateMessage,
)
from skald_core.loop.records import (
    Call,
    Checkpoint,
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
    id INTEGER PRIMARY KEY, frame INTEGER NOT NULL, parent INTEGER NOT NULL, role TEXT NOT NULL,
    status TEXT NOT NULL, synthetic INTEGER NOT NULL, created_at INTEGER NOT NULL, first_call INTEGER,
    call_count INTEGER NOT NULL, provider TEXT, model TEXT, usage TEXT, duration_ms INTEGER, client_id TEXT,
    attachments TEXT, metadata TEXT, replay TEXT, reasoning_signature TEXT, reasoning TEXT, content TEXT NOT NULL);
CREATE INDEX loop_messages_parent ON loop_messages(parent);
CREATE TABLE loop_calls(
    id INTEGER PRIMARY KEY, message INTEGER NOT NULL, idx INTEGER NOT NULL, tool_use_id TEXT NOT NULL,
    name TEXT NOT NULL, state TEXT NOT NULL, started_at INTEGER NOT NULL, finished_at INTEGER, duration_ms INTEGER,
    result_kind TEXT, media TEXT, extras TEXT, effective TEXT, arguments TEXT NOT NULL, result TEXT);
CREATE INDEX loop_calls_open ON loop_calls(message) WHERE state IN ('running', 'awaiting');
CREATE TABLE loop_queue(
    id INTEGER PRIMARY KEY AUTOINCREMENT, conversation TEXT NOT NULL, position INTEGER NOT NULL, kind TEXT NOT NULL,
    client_id TEXT, attachments TEXT, metadata TEXT, created_at INTEGER NOT NULL, content TEXT NOT NULL);
CREATE INDEX loop_queue_conversation ON loop_queue(conversation, position);
CREATE TABLE loop_sends(
    conversation TEXT NOT NULL, client_id TEXT NOT NULL, message INTEGER, queued INTEGER,
    PRIMARY KEY (conversation, client_id)) WITHOUT ROWID;
CREATE TABLE loop_runs(
    conversation TEXT PRIMARY KEY, id TEXT NOT NULL, frame INTEGER NOT NULL, started_at INTEGER NOT NULL
    ) WITHOUT ROWID;
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
    "id, frame, parent, role, status, synthetic, created_at, first_call, call_count, provider, model, usage, "
    "duration_ms, client_id, attachments, metadata, replay, reasoning_signature, reasoning, content"
)
_CALL = (
    "id, message, idx, tool_use_id, name, state, started_at, finished_at, duration_ms, result_kind, media, extras, "
    "effective, arguments, result"
)
_FRAME = "id, conversation, agent, parent, parent_call, depth, active, head, title, meta, created_at"
_QUEUED = "id, conversation, position, kind, client_id, attachments, metadata, created_at, content"
_CHECKPOINT = "id, frame, covered_up_to, created_at, tokens_before, model, summary"

_json = msgspec.json.encode
_attachments = msgspec.json.Decoder(tuple[Attachment, ...]).decode
_usage = msgspec.json.Decoder(Usage).decode
_object = msgspec.json.Decoder(dict[str, Any]).decode


class KnownSend(Exception):
    """Carries what a known client id stands for out of the batch it ends."""

    def __init__(self, stored: Stored) -> None:
        self.stored = stored


def _inserted(cursor: Cursor) -> int:
    """The id of the row just inserted."""
    row: int | None = cursor.lastrowid
    assert row is not None
    return row


def _dump(value: object) -> str | None:
    """JSON text of a value, None for an empty one."""
    return _json(value).decode() if value else None


# --- rows to records ---------------------------------------------------------------------------------------------


def _frame(row: Sequence[Any]) -> Frame:
    return Frame(
        id=row[0], conversation=row[1], agent=row[2], parent=row[3], parent_call=row[4], depth=row[5],
        active=bool(row[6]), head=row[7], title=row[8], meta=_object(row[9]) if row[9] else {}, created_at=row[10],
    )  # fmt: skip


def _call(row: Sequence[Any]) -> Call:
    return Call(
        id=row[0], message=row[1], index=row[2], tool_use_id=row[3], name=row[4], state=row[5], started_at=row[6],
        finished_at=row[7], duration_ms=row[8], result_kind=row[9], media=_attachments(row[10]) if row[10] else (),
        extras=_object(row[11]) if row[11] else {}, effective=row[12], arguments=row[13], result=row[14],
    )  # fmt: skip


def _message(row: Sequence[Any], calls: tuple[Call, ...]) -> Message:
    return Message(
        id=row[0], frame=row[1], parent=row[2] if row[2] > 0 else None, role=row[3], status=row[4],
        synthetic=bool(row[5]), created_at=row[6], provider=row[9] or "", model=row[10] or "",
        usage=_usage(row[11]) if row[11] else None, duration_ms=row[12], client_id=row[13] or "",
        attachments=_attachments(row[14]) if row[14] else (), metadata=_object(row[15]) if row[15] else {},
        replay=_object(row[16]) if row[16] else None, reasoning_signature=row[17] or "", reasoning=row[18] or "",
        content=row[19], calls=calls,
    )  # fmt: skip


def _queued(row: Sequence[Any]) -> QueuedInput:
    return QueuedInput(
        id=row[0], conversation=row[1], position=row[2], kind=row[3], client_id=row[4] or "",
        attachments=_attachments(row[5]) if row[5] else (), metadata=_object(row[6]) if row[6] else {},
        created_at=row[7], content=row[8],
    )  # fmt: skip


def _checkpoint(row: Sequence[Any]) -> Checkpoint:
    return Checkpoint(
        id=row[0], frame=row[1], covered_up_to=row[2], created_at=row[3], tokens_before=row[4], model=row[5],
        summary=row[6],
    )  # fmt: skip


def _messages(c: Connection, rows: Iterable[Sequence[Any]]) -> list[Message]:
    messages = []
    for row in rows:
        calls: tuple[Call, ...] = ()
        if row[8]:
            found = c.execute(
                f"SELECT {_CALL} FROM loop_calls WHERE id BETWEEN ? AND ? ORDER BY id", (row[7], row[7] + row[8] - 1)
            )
            calls = tuple(map(_call, found))
        messages.append(_message(row, calls))
    return messages


# --- ops ---------------------------------------------------------------------------------------------------------


class _Batch:
    """One batch at work: remembers the frame it opened, for ops that name none."""

    __slots__ = ("c", "opened")

    def __init__(self, connection: Connection) -> None:
        self.c = connection
        self.opened: FrameId | None = None

    def frame_or_opened(self, frame: FrameId | None) -> FrameId:
        found = frame if frame is not None else self.opened
        if found is None:
            raise StoreError("an op without a frame needs an OpenFrame before it in the same batch")
        return found

    def conversation_of(self, frame: FrameId) -> tuple[ConversationId, MessageId | None]:
        row = self.c.execute("SELECT conversation, head FROM loop_frames WHERE id = ?", (frame,)).fetchone()
        if row is None:
            raise StoreError(f"frame {frame!r} does not exist; it may have been deleted")
        return row[0], row[1]

    def refuse_known(self, conversation: ConversationId, client_id: str) -> None:
        row = self.c.execute(
            "SELECT message, queued FROM loop_sends WHERE conversation = ? AND client_id = ?", (conversation, client_id)
        ).fetchone()
        if row is not None:
            raise KnownSend(Stored(row[0] or row[1] or 0, existing=True, queued=row[0] is None, changed=False))

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
        done = self.c.execute("UPDATE loop_frames SET active = 0 WHERE id = ? AND active = 1", (op.frame,))
        return Stored(op.frame, changed=done.rowcount > 0)

    def append_message(self, op: AppendMessage) -> Stored:
        frame = self.frame_or_opened(op.frame)
        conversation, head = self.conversation_of(frame)
        if op.client_id:
            self.refuse_known(conversation, op.client_id)
        parent = head if op.parent == "head" else op.parent
        first: int | None = None
        if op.calls:
            first = self.c.execute("SELECT ifnull(max(id), 0) + 1 FROM loop_calls").fetchone()[0]
        done = self.c.execute(
            f"INSERT INTO loop_messages({_MESSAGE[4:]}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                frame, parent if parent is not None else -frame, op.role, op.status, op.synthetic, op.at, first,
                len(op.calls), op.provider or None, op.model or None, _dump(op.usage) if op.usage is not None else None,
                op.duration_ms, op.client_id or None, _dump(op.attachments), _dump(op.metadata), _dump(op.replay),
                op.reasoning_signature or None, clean(op.reasoning) or None, clean(op.content),
            ),
        )  # fmt: skip
        message = MessageId(_inserted(done))
        self.c.execute("UPDATE loop_frames SET head = ? WHERE id = ?", (message, frame))
        if op.client_id:
            self.c.execute("INSERT INTO loop_sends VALUES (?, ?, ?, NULL)", (conversation, op.client_id, message))
        ids: list[CallId] = []
        use_ids: list[str] = []
        if first is not None:
            for index, call in enumerate(op.calls):
                use_id = call.tool_use_id or f"call_{first + index}"
                self.c.execute(
                    "INSERT INTO loop_calls(id, message, idx, tool_use_id, name, state, started_at, arguments)"
                    " VALUES (?,?,?,?,?,?,?,?)",
                    (first + index, message, index, clean(use_id), clean(call.name), call.state, op.at,
                     clean(call.arguments)),
                )  # fmt: skip
                ids.append(CallId(first + index))
                use_ids.append(use_id)
        return Stored(message, tuple(ids), tuple(use_ids), parent=parent)

    def update_message(self, op: UpdateMessage) -> Stored:
        row = self.c.execute("SELECT metadata FROM loop_messages WHERE id = ?", (op.message,)).fetchone()
        if row is None:
            raise StoreError(f"message {op.message!r} does not exist; it may have been deleted")
        if op.status is not None:
            self.c.execute("UPDATE loop_messages SET status = ? WHERE id = ?", (op.status, op.message))
        if op.metadata is not None:
            merged = (_object(row[0]) if row[0] else {}) | op.metadata
            self.c.execute("UPDATE loop_messages SET metadata = ? WHERE id = ?", (_dump(merged), op.message))
        return Stored(op.message)

    def resolve_call(self, op: ResolveCall) -> Stored:
        extras = None
        if op.extras:
            row = self.c.execute("SELECT extras FROM loop_calls WHERE id = ?", (op.call,)).fetchone()
            extras = _dump((_object(row[0]) if row and row[0] else {}) | op.extras)
        done = self.c.execute(
            "UPDATE loop_calls SET state = ?, result = ?, result_kind = ?, media = ?, extras = ifnull(?, extras),"
            " duration_ms = ?, finished_at = ? WHERE id = ? AND state IN ('running', 'awaiting')",
            (op.state, clean(op.result), op.result_kind, _dump(op.media), extras, op.duration_ms, op.at, op.call),
        )
        if (
            done.rowcount == 0
            and self.c.execute("SELECT 1 FROM loop_calls WHERE id = ?", (op.call,)).fetchone() is None
        ):
            raise StoreError(f"call {op.call!r} does not exist; it may have been deleted")
        return Stored(op.call, changed=done.rowcount > 0)

    def set_call_state(self, op: SetCallState) -> Stored:
        done = self.c.execute(
            "UPDATE loop_calls SET state = ?, effective = ifnull(?, effective)"
            " WHERE id = ? AND state IN ('running', 'awaiting')",
            (op.state, clean(op.effective) if op.effective is not None else None, op.call),
        )
        return Stored(op.call, changed=done.rowcount > 0)

    def settle_calls(self, op: SettleCalls) -> Stored:
        rows = self.c.execute(
            "SELECT k.id FROM loop_calls k JOIN loop_messages m ON m.id = k.message"
            " WHERE k.state IN ('running', 'awaiting') AND m.frame = ? AND (k.state = 'running' OR NOT ?) ORDER BY k.id",
            (op.frame, op.keep_awaiting),
        ).fetchall()
        for (call,) in rows:
            self.c.execute(
                "UPDATE loop_calls SET state = ?, result = ?, result_kind = ?, finished_at = ? WHERE id = ?",
                (op.state, op.result, op.result_kind, op.at, call),
            )
        return Stored(op.frame, changed=bool(rows), settled=tuple(CallId(call) for (call,) in rows))

    def merge_call_extras(self, op: MergeCallExtras) -> Stored:
        row = self.c.execute("SELECT extras FROM loop_calls WHERE id = ?", (op.call,)).fetchone()
        if row is None:
            return Stored(op.call, changed=False)
        merged = (_object(row[0]) if row[0] else {}) | op.extras
        self.c.execute("UPDATE loop_calls SET extras = ? WHERE id = ?", (_dump(merged), op.call))
        return Stored(op.call)

    def set_head(self, op: SetHead) -> Stored:
        if op.message is not None:
            row = self.c.execute("SELECT frame FROM loop_messages WHERE id = ?", (op.message,)).fetchone()
            if row is None or row[0] != op.frame:
                raise StoreError(f"message {op.message!r} is not part of frame {op.frame!r}")
        self.c.execute("UPDATE loop_frames SET head = ? WHERE id = ?", (op.message, op.frame))
        return Stored(op.frame)

    def save_checkpoint(self, op: SaveCheckpoint) -> Stored:
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
            " (?1, (SELECT ifnull(max(position), 0) + 1 FROM loop_queue WHERE conversation = ?1), ?2,?3,?4,?5,?6,?7)",
            (op.conversation, op.kind, op.client_id or None, _dump(op.attachments), _dump(op.metadata), op.at,
             clean(op.content)),
        )  # fmt: skip
        if op.client_id:
            self.c.execute(
                "INSERT INTO loop_sends VALUES (?, ?, NULL, ?)", (op.conversation, op.client_id, _inserted(done))
            )
        return Stored(_inserted(done), queued=True)

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
        stored = self.append_message(message_from(item, op))
        if item.client_id:
            self.c.execute(
                "UPDATE loop_sends SET message = ?, queued = NULL WHERE conversation = ? AND client_id = ?",
                (stored.id, item.conversation, item.client_id),
            )
            self.c.execute("UPDATE loop_messages SET client_id = ? WHERE id = ?", (item.client_id, stored.id))
        return stored

    def open_run(self, op: OpenRun) -> Stored:
        self.c.execute(
            "INSERT OR REPLACE INTO loop_runs(conversation, id, frame, started_at) VALUES (?,?,?,?)",
            (op.conversation, op.id, self.frame_or_opened(op.frame), op.at),
        )
        return Stored()

    def close_run(self, op: CloseRun) -> Stored:
        done = self.c.execute("DELETE FROM loop_runs WHERE conversation = ?", (op.conversation,))
        return Stored(changed=done.rowcount > 0)

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
}


def message_from(item: QueuedInput, op: Dequeue) -> AppendMessage:
    """The message waiting input becomes. Its client id is moved to it by the caller, being known already."""
    return AppendMessage(
        op.frame,
        "user",
        item.content,
        synthetic=item.kind == "synthetic",
        attachments=item.attachments,
        metadata=item.metadata | ({"hook_context": op.context} if op.context else {}),
        at=op.at,
    )


def _apply(c: Connection, ops: Sequence[Op]) -> tuple[Stored, ...]:
    batch = _Batch(c)
    results: list[Stored] = []
    try:
        for op in ops:
            results.append(_APPLY[type(op)](batch, op))
    except KnownSend as known:
        results += [known.stored] * (len(ops) - len(results))
    return tuple(results)


# --- reads -------------------------------------------------------------------------------------------------------

_PATH = """WITH RECURSIVE path(id, parent) AS (
    SELECT id, parent FROM loop_messages WHERE id = :head
    UNION ALL SELECT m.id, m.parent FROM path JOIN loop_messages m ON m.id = path.parent"""


def _load(c: Connection, frame: FrameId) -> LoadedFrame | None:
    row = c.execute(f"SELECT {_FRAME} FROM loop_frames WHERE id = ?", (frame,)).fetchone()
    if row is None:
        return None
    found = _frame(row)
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
    return LoadedFrame(found, tuple(_messages(c, (r for r in rows if r[4] != "failed"))), checkpoint)


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
    siblings: dict[int, list[MessageId]] = {}
    for row in rows:
        same = c.execute("SELECT id FROM loop_messages WHERE parent = ? ORDER BY id", (row[2],))
        siblings[row[0]] = [MessageId(r[0]) for r in same]
    items = tuple(HistoryItem(m, tuple(siblings[m.id])) for m in _messages(c, rows))
    covered = c.execute(f"SELECT {_CHECKPOINT} FROM loop_checkpoints WHERE frame = ? ORDER BY id", (frame,))
    checkpoints = tuple(k for k in map(_checkpoint, covered) if k.covered_up_to in siblings)
    return HistoryPage(items, items[0].message.id if more and items else None, checkpoints)


def _delete(c: Connection, conversation: ConversationId) -> None:
    for (frame,) in c.execute("SELECT id FROM loop_frames WHERE conversation = ?", (conversation,)).fetchall():
        ids = [
            row[0]
            for row in c.execute(
                "WITH RECURSIVE tree(id) AS (SELECT id FROM loop_messages WHERE parent = ?"
                " UNION ALL SELECT m.id FROM tree JOIN loop_messages m ON m.parent = tree.id) SELECT id FROM tree",
                (-frame,),
            )
        ]
        for message in ids:
            row = c.execute("SELECT first_call, call_count FROM loop_messages WHERE id = ?", (message,)).fetchone()
            if row[1]:
                _delete_rows(c, "loop_calls", range(row[0], row[0] + row[1]))
        _delete_rows(c, "loop_messages", ids)
        for table in ("loop_drafts", "loop_checkpoints"):
            c.execute(f"DELETE FROM {table} WHERE frame = ?", (frame,))
    for table in ("loop_frames", "loop_queue", "loop_sends", "loop_runs"):
        c.execute(f"DELETE FROM {table} WHERE conversation = ?", (conversation,))


_TOMBSTONE = {
    "loop_messages": "frame = 0, parent = 0, content = '', reasoning = NULL, attachments = NULL, metadata = NULL,"
    " replay = NULL, client_id = NULL, first_call = NULL, call_count = 0",
    "loop_calls": "message = 0, name = '', state = 'done', arguments = '', effective = NULL, result = NULL,"
    " media = NULL, extras = NULL",
}


def _delete_rows(c: Connection, table: str, ids: Iterable[int]) -> None:
    """Delete rows, but leave the table's newest as an emptied one: ids are one more than the newest, never reused."""
    newest = c.execute(f"SELECT max(id) FROM {table}").fetchone()[0]
    for row in ids:
        if row == newest:
            c.execute(f"UPDATE {table} SET {_TOMBSTONE[table]} WHERE id = ?", (row,))
        else:
            c.execute(f"DELETE FROM {table} WHERE id = ?", (row,))


class SqliteStore:
    """Conversations in one SQLite or SQLCipher file.

    Give it an open :class:`Database` whose schema holds ``MIGRATIONS`` (a host applies them under the component name
    ``loop``), or use :meth:`open`, which applies them itself. ``close`` closes the database only in the second case.
    """

    def __init__(self, db: Database, *, owns: bool = False) -> None:
        self.db = db
        self._owns = owns

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
        return self.db.submit(_apply, tuple(ops))

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
            sql = "SELECT id, head FROM loop_frames WHERE conversation = ? AND depth = 0 LIMIT 1"
            row = c.execute(sql, (conversation,)).fetchone()
            return _history(c, row[0], row[1], before, limit) if row else HistoryPage(())

        return await self.db.read(read)

    async def frame_history(self, frame: FrameId, *, before: MessageId | None = None, limit: int = 50) -> HistoryPage:
        def read(c: Connection) -> HistoryPage:
            row = c.execute("SELECT id, head FROM loop_frames WHERE id = ?", (frame,)).fetchone()
            return _history(c, row[0], row[1], before, limit) if row else HistoryPage(())

        return await self.db.read(read)

    async def message(self, message: MessageId) -> Message | None:
        def read(c: Connection) -> Message | None:
            sql = f"SELECT {_MESSAGE} FROM loop_messages WHERE id = ? AND frame > 0"
            found = _messages(c, c.execute(sql, (message,)).fetchall())
            return found[0] if found else None

        return await self.db.read(read)

    async def call(self, call: CallId) -> Call | None:
        def read(c: Connection) -> Call | None:
            row = c.execute(f"SELECT {_CALL} FROM loop_calls WHERE id = ? AND message > 0", (call,)).fetchone()
            return _call(row) if row else None

        return await self.db.read(read)

    async def frame_of_call(self, call: CallId) -> Frame | None:
        def read(c: Connection) -> Frame | None:
            names = ", ".join(f"f.{name}" for name in _FRAME.split(", "))
            row = c.execute(
                f"SELECT {names} FROM loop_calls k JOIN loop_messages m ON m.id = k.message"
                " JOIN loop_frames f ON f.id = m.frame WHERE k.id = ?",
                (call,),
            ).fetchone()
            return _frame(row) if row else None

        return await self.db.read(read)

    async def child_frames(self, call: CallId) -> tuple[Frame, ...]:
        def read(c: Connection) -> tuple[Frame, ...]:
            sql = f"SELECT {_FRAME} FROM loop_frames WHERE parent_call = ? ORDER BY id"
            return tuple(map(_frame, c.execute(sql, (call,))))

        return await self.db.read(read)

    async def leaf(self, message: MessageId) -> MessageId:
        def read(c: Connection) -> MessageId:
            at = message
            while (
                row := c.execute("SELECT max(id) FROM loop_messages WHERE parent = ?", (at,)).fetchone()[0]
            ) is not None:
                at = MessageId(row)
            return at

        return await self.db.read(read)

    async def open_calls(self, conversation: ConversationId) -> tuple[Call, ...]:
        def read(c: Connection) -> tuple[Call, ...]:
            names = ", ".join(f"k.{name}" for name in _CALL.split(", "))
            rows = c.execute(
                f"SELECT {names} FROM loop_calls k JOIN loop_messages m ON m.id = k.message"
                " JOIN loop_frames f ON f.id = m.frame"
                " WHERE k.state IN ('running', 'awaiting') AND f.conversation = ? ORDER BY k.id",
                (conversation,),
            )
            return tuple(map(_call, rows))

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
                " UNION SELECT f.conversation FROM loop_calls k JOIN loop_messages m ON m.id = k.message"
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
        await self.db.write(_delete, conversation)

    async def close(self) -> None:
        if self._owns:
            await self.db.close()
