"""A store in memory: for tests, scripts that keep nothing, and as the plain statement of what a store does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from skald_core.loop.errors import StoreError
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
from skald_core.loop.types import CallId, ConversationId, FrameId, MessageId

__all__ = ("MemoryStore",)

K = TypeVar("K")
V = TypeVar("V")
_replace = msgspec.structs.replace


class _BatchEnds(Exception):
    def __init__(self, stored: Stored) -> None:
        self.stored = stored


class MemoryStore:
    """Keeps everything in dictionaries. Records are immutable, so what a read returned never changes."""

    def __init__(self) -> None:
        self._frames: dict[FrameId, Frame] = {}
        self._messages: dict[MessageId, Message] = {}  # without their calls
        self._calls: dict[CallId, Call] = {}
        self._calls_of: dict[MessageId, list[CallId]] = {}
        self._replies: dict[tuple[FrameId, MessageId | None], list[MessageId]] = {}
        self._queue: dict[int, QueuedInput] = {}
        self._sends: dict[tuple[ConversationId, str], tuple[MessageId | None, int | None]] = {}
        self._runs: dict[ConversationId, Run] = {}
        self._drafts: dict[FrameId, Draft] = {}
        self._checkpoints: dict[int, Checkpoint] = {}
        self._last = {"frame": 0, "message": 0, "queue": 0, "checkpoint": 0}
        self._undo: list[Callable[[], object]] = []
        self._opened: FrameId | None = None

    # -- writing ---------------------------------------------------------------------------------------------------

    def apply(self, ops: Sequence[Op]) -> Awaitable[tuple[Stored, ...]]:
        future: asyncio.Future[tuple[Stored, ...]] = asyncio.get_running_loop().create_future()
        results: list[Stored] = []
        self._undo.clear()
        self._opened = None
        last = dict(self._last)
        try:
            for op in ops:
                results.append(_APPLY[type(op)](self, op))
        except _BatchEnds as end:
            results += [end.stored] * (len(ops) - len(results))
        except Exception as error:  # noqa: BLE001 -- handed to the waiter, after undoing the batch
            for undo in reversed(self._undo):
                undo()
            self._last = last
            future.set_exception(error)
            return future
        future.set_result(tuple(results))
        return future

    def _put(self, table: dict[K, V], key: K, value: V) -> None:
        if key in table:
            old = table[key]
            self._undo.append(lambda: table.__setitem__(key, old))
        else:
            self._undo.append(lambda: table.pop(key, None))
        table[key] = value

    def _drop(self, table: dict[K, V], key: K) -> bool:
        if key not in table:
            return False
        old = table.pop(key)
        self._undo.append(lambda: table.__setitem__(key, old))
        return True

    def _next(self, kind: str) -> int:
        self._last[kind] += 1
        return self._last[kind]

    def _need_frame(self, frame: FrameId | None) -> Frame:
        found = frame if frame is not None else self._opened
        if found is None:
            raise StoreError("an op without a frame needs an OpenFrame before it in the same batch")
        if found not in self._frames:
            raise StoreError(f"frame {found!r} does not exist; it may have been deleted")
        return self._frames[found]

    def _refuse_known(self, conversation: ConversationId, client_id: str) -> None:
        known = self._sends.get((conversation, client_id))
        if known is not None:
            message, queued = known
            raise _BatchEnds(Stored(message or queued or 0, existing=True, queued=message is None, changed=False))

    def _open_frame(self, op: OpenFrame) -> Stored:
        if op.parent is None:
            root = self._root(op.conversation)
            if root is not None:
                self._opened = root.id
                return Stored(root.id, existing=True, changed=False)
        frame = FrameId(self._next("frame"))
        record = Frame(
            id=frame, conversation=op.conversation, agent=op.agent, parent=op.parent, parent_call=op.parent_call,
            depth=op.depth, title=op.title, meta=op.meta, created_at=op.at,
        )  # fmt: skip
        self._put(self._frames, frame, record)
        self._opened = frame
        return Stored(frame)

    def _close_frame(self, op: CloseFrame) -> Stored:
        found = self._frames.get(op.frame)
        if found is None or not found.active:
            return Stored(op.frame, changed=False)
        self._put(self._frames, op.frame, _replace(found, active=False))
        return Stored(op.frame)

    def _merge_meta(self, op: MergeMeta) -> Stored:
        frame = self._need_frame(op.frame)
        self._put(self._frames, frame.id, _replace(frame, meta=frame.meta | op.meta))
        return Stored(frame.id)

    def _append_message(self, op: AppendMessage) -> Stored:
        frame = self._need_frame(op.frame)
        if op.client_id:
            self._refuse_known(frame.conversation, op.client_id)
        if op.behind_queue and self._waiting_in(frame.conversation):
            raise _BatchEnds(self._enqueue(queued_from(frame.conversation, op)))
        if len(op.calls) > CALLS_A_MESSAGE:
            raise StoreError(f"one message may have {CALLS_A_MESSAGE} calls, not {len(op.calls)}")
        parent = frame.head if op.parent == "head" else op.parent
        if parent is not None:
            self._need_part(frame.id, parent)
        message = MessageId(self._next("message"))
        record = Message(
            id=message, frame=frame.id, parent=parent, role=op.role, content=clean(op.content), reasoning=clean(op.reasoning),
            reasoning_signature=op.reasoning_signature, status=op.status, synthetic=op.synthetic,
            client_id=op.client_id, attachments=op.attachments, metadata=op.metadata, replay=op.replay,
            provider=op.provider, model=op.model, usage=op.usage, created_at=op.at, duration_ms=op.duration_ms,
        )  # fmt: skip
        self._put(self._messages, message, record)
        self._put(self._frames, frame.id, _replace(frame, head=message))
        replies = self._replies.setdefault((frame.id, parent), [])
        replies.append(message)
        self._undo.append(lambda: replies.remove(message))
        if op.client_id:
            self._put(self._sends, (frame.conversation, op.client_id), (message, None))
        ids: list[CallId] = []
        use_ids: list[str] = []
        for index, new in enumerate(op.calls):
            call = CallId(message * CALLS_A_MESSAGE + index)
            use_id = new.tool_use_id or f"call_{call}"
            made = Call(call, message, index, use_id, new.name, clean(new.arguments), new.state, started_at=op.at)
            self._put(self._calls, call, made)
            ids.append(call)
            use_ids.append(use_id)
        if ids:
            self._put(self._calls_of, message, ids)
        siblings = tuple(replies) if len(replies) > 1 else ()
        return Stored(message, tuple(ids), tuple(use_ids), parent=parent, siblings=siblings)

    def _update_message(self, op: UpdateMessage) -> Stored:
        found = self._messages.get(op.message)
        if found is None:
            raise StoreError(f"message {op.message!r} does not exist; it may have been deleted")
        changed = _replace(
            found,
            status=op.status if op.status is not None else found.status,
            metadata=found.metadata | op.metadata if op.metadata is not None else found.metadata,
        )
        self._put(self._messages, op.message, changed)
        return Stored(op.message)

    def _resolve_call(self, op: ResolveCall) -> Stored:
        found = self._calls.get(op.call)
        if found is None:
            raise StoreError(f"call {op.call!r} does not exist; it may have been deleted")
        if found.terminal:
            return Stored(op.call, changed=False)
        done = _replace(
            found, state=op.state, result=clean(op.result), result_kind=op.result_kind, media=op.media,
            extras=found.extras | op.extras, duration_ms=op.duration_ms, finished_at=op.at,
        )  # fmt: skip
        self._put(self._calls, op.call, done)
        return Stored(op.call)

    def _set_call_state(self, op: SetCallState) -> Stored:
        found = self._calls.get(op.call)
        if found is None or found.terminal:
            return Stored(op.call, changed=False)
        effective = op.effective if op.effective is not None else found.effective
        self._put(self._calls, op.call, _replace(found, state=op.state, effective=effective))
        return Stored(op.call)

    def _settle_calls(self, op: SettleCalls) -> Stored:
        settled = [
            call.id
            for call in self._calls.values()
            if not call.terminal
            and self._messages[call.message].frame == op.frame
            and not (op.keep_awaiting and call.state == "awaiting")
        ]
        for call_id in settled:
            done = _replace(
                self._calls[call_id], state=op.state, result=op.result, result_kind=op.result_kind, finished_at=op.at
            )
            self._put(self._calls, call_id, done)
        return Stored(op.frame, changed=bool(settled), settled=tuple(settled))

    def _merge_call_extras(self, op: MergeCallExtras) -> Stored:
        found = self._calls.get(op.call)
        if found is None:
            return Stored(op.call, changed=False)
        self._put(self._calls, op.call, _replace(found, extras=found.extras | op.extras))
        return Stored(op.call)

    def _need_part(self, frame: FrameId, message: MessageId) -> None:
        found = self._messages.get(message)
        if found is None or found.frame != frame:
            raise StoreError(f"message {message!r} is not part of frame {frame!r}")

    def _set_head(self, op: SetHead) -> Stored:
        frame = self._need_frame(op.frame)
        if op.message is not None:
            self._need_part(op.frame, op.message)
        self._put(self._frames, op.frame, _replace(frame, head=op.message))
        return Stored(op.frame)

    def _save_checkpoint(self, op: SaveCheckpoint) -> Stored:
        self._need_part(op.frame, op.covered_up_to)
        made = self._next("checkpoint")
        record = Checkpoint(made, op.frame, op.summary, op.covered_up_to, op.at, op.tokens_before, op.model)
        self._put(self._checkpoints, made, record)
        return Stored(made)

    def _enqueue(self, op: Enqueue) -> Stored:
        if op.client_id:
            self._refuse_known(op.conversation, op.client_id)
        made = self._next("queue")
        position = max((q.position for q in self._queue.values() if q.conversation == op.conversation), default=0) + 1
        record = QueuedInput(
            made,
            op.conversation,
            clean(op.content),
            op.kind,
            op.client_id,
            op.attachments,
            op.metadata,
            position,
            op.at,
        )
        self._put(self._queue, made, record)
        if op.client_id:
            self._put(self._sends, (op.conversation, op.client_id), (None, made))
        return Stored(made, queued=True)

    def _waiting(self, queued: int) -> QueuedInput:
        if queued not in self._queue:
            raise StoreError(f"queued input {queued!r} waits no more: it was sent or deleted")
        return self._queue[queued]

    def _edit_queued(self, op: EditQueued) -> Stored:
        found = self._waiting(op.queued)
        changed = _replace(
            found,
            content=op.content if op.content is not None else found.content,
            kind=op.kind if op.kind is not None else found.kind,
            metadata=op.metadata if op.metadata is not None else found.metadata,
        )
        self._put(self._queue, op.queued, changed)
        return Stored(op.queued, queued=True)

    def _delete_queued(self, op: DeleteQueued) -> Stored:
        found = self._queue.get(op.queued)
        if found is not None and found.client_id:
            self._put(self._sends, (found.conversation, found.client_id), (None, None))
        return Stored(op.queued, queued=True, changed=self._drop(self._queue, op.queued))

    def _reorder_queue(self, op: ReorderQueue) -> Stored:
        known = [item.id for item in self._waiting_in(op.conversation)]
        first = [item for item in dict.fromkeys(op.order) if item in known]
        for position, item in enumerate(first + [item for item in known if item not in first], 1):
            self._put(self._queue, item, _replace(self._queue[item], position=position))
        return Stored(queued=True)

    def _dequeue(self, op: Dequeue) -> Stored:
        item = self._waiting(op.queued)
        self._drop(self._queue, op.queued)
        if item.held:
            self._hold(item.conversation, False)
        stored = self._append_message(message_from(item, op))
        for call in stored.calls:
            self._resolve_call(task_result(item, call, op.at))
        if item.client_id:
            message = MessageId(stored.id)
            self._put(self._sends, (item.conversation, item.client_id), (message, None))
            self._put(self._messages, message, _replace(self._messages[message], client_id=item.client_id))
        return stored

    def _hold(self, conversation: ConversationId, held: bool) -> bool:
        found = [item for item in self._waiting_in(conversation) if item.held != held]
        for item in found:
            self._put(self._queue, item.id, _replace(item, held=held))
        return bool(found)

    def _hold_queue(self, op: HoldQueue) -> Stored:
        return Stored(queued=True, changed=self._hold(op.conversation, True))

    def _import_messages(self, op: ImportMessages) -> Stored:
        frame = self._need_frame(op.frame).id
        new: dict[MessageId, MessageId] = {}
        for message in op.messages:
            stored = self._append_message(imported(message, frame, new[message.parent] if message.parent else None))
            new[message.id] = MessageId(stored.id)
            for old, call in zip(message.calls, stored.calls, strict=True):
                running, result = imported_result(old, call)
                self._set_call_state(running)
                self._resolve_call(result)
        for point in op.checkpoints:
            self._save_checkpoint(
                SaveCheckpoint(
                    frame, point.summary, new[point.covered_up_to], point.tokens_before, point.model, point.created_at
                )
            )
        head = new[op.head] if op.head is not None else None
        self._set_head(SetHead(frame, head))
        return Stored(head or 0)

    def _remove_messages(self, op: RemoveMessages) -> Stored:
        frame = self._need_frame(op.frame)
        gone = set(op.messages)
        for message in gone:
            self._need_part(op.frame, message)
        parents = {m.id: m.parent for m in self._messages.values() if m.frame == op.frame}
        for made, point in list(self._checkpoints.items()):
            if point.frame == op.frame and gone.intersection(self._path(point.covered_up_to)):
                self._drop(self._checkpoints, made)
        for message, parent in parents.items():
            if message not in gone and parent in gone:
                kept = _replace(self._messages[message], parent=kept_before(parent, parents, gone))
                self._put(self._messages, message, kept)
        head = kept_before(frame.head, parents, gone)
        self._put(self._frames, frame.id, _replace(frame, head=head))
        self._forget_messages(gone)
        for key, known in list(self._sends.items()):
            if known[0] in gone:
                self._put(self._sends, key, (None, None))
        replies: dict[tuple[FrameId, MessageId | None], list[MessageId]] = {}
        for message in sorted(self._messages):
            record = self._messages[message]
            replies.setdefault((record.frame, record.parent), []).append(message)
        before, self._replies = self._replies, replies
        self._undo.append(lambda: setattr(self, "_replies", before))
        return Stored(head or 0, changed=bool(gone))

    def _forget_messages(self, gone: set[MessageId]) -> None:
        """Drop messages, their calls, and the frames opened to answer those."""
        for message in gone:
            for call in self._calls_of.get(message, ()):
                for child in [f.id for f in self._frames.values() if f.parent_call == call]:
                    self._forget_messages({m.id for m in self._messages.values() if m.frame == child})
                    for made in [made for made, point in self._checkpoints.items() if point.frame == child]:
                        self._drop(self._checkpoints, made)
                    self._drop(self._drafts, child)
                    self._drop(self._frames, child)
                self._drop(self._calls, call)
            self._drop(self._calls_of, message)
            self._drop(self._messages, message)

    def _load_frame(self, op: LoadFrame) -> Stored:
        frame = self._need_frame(op.frame).id
        return Stored(frame, loaded=self._load(frame))

    def _open_run(self, op: OpenRun) -> Stored:
        run = Run(op.id, op.conversation, self._need_frame(op.frame).id, op.at)
        self._put(self._runs, op.conversation, run)
        return Stored()

    def _close_run(self, op: CloseRun) -> Stored:
        waits = any(not item.held for item in self._waiting_in(op.conversation))
        return Stored(changed=self._drop(self._runs, op.conversation), queued=waits)

    def _add_draft(self, op: AddDraft) -> Stored:
        old = self._drafts.get(op.frame, Draft(op.frame, "", ""))
        draft = Draft(op.frame, old.content + op.content, old.reasoning + op.reasoning, op.model)
        self._put(self._drafts, op.frame, draft)
        return Stored()

    def _clear_draft(self, op: ClearDraft) -> Stored:
        self._drop(self._drafts, op.frame)
        return Stored()

    # -- reading ---------------------------------------------------------------------------------------------------

    def _root(self, conversation: ConversationId) -> Frame | None:
        found = (f for f in self._frames.values() if f.conversation == conversation and f.depth == 0)
        return next(found, None)

    def _full(self, message: MessageId) -> Message:
        calls = tuple(self._calls[c] for c in self._calls_of.get(message, ()))
        return _replace(self._messages[message], calls=calls)

    def _path(self, head: MessageId | None) -> list[MessageId]:
        """Ids from ``head`` back to its branch's first message, newest first."""
        path = []
        while head is not None and head in self._messages:
            path.append(head)
            head = self._messages[head].parent
        return path

    def _waiting_in(self, conversation: ConversationId) -> list[QueuedInput]:
        found = [item for item in self._queue.values() if item.conversation == conversation]
        return sorted(found, key=lambda item: (item.position, item.id))

    async def root(self, conversation: ConversationId) -> Frame | None:
        return self._root(conversation)

    async def frame(self, frame: FrameId) -> Frame | None:
        return self._frames.get(frame)

    async def conversations(self, *, limit: int = 50, offset: int = 0) -> tuple[ConversationInfo, ...]:
        newest: dict[FrameId, Message] = {}
        count: dict[FrameId, int] = {}
        for message in self._messages.values():
            newest[message.frame] = message
            count[message.frame] = count.get(message.frame, 0) + 1
        roots = [frame for frame in self._frames.values() if frame.depth == 0]
        roots.sort(key=lambda f: (newest[f.id].id if f.id in newest else 0, f.id), reverse=True)
        return tuple(
            ConversationInfo(
                f.conversation, f.agent, f.created_at, newest[f.id].created_at if f.id in newest else f.created_at,
                count.get(f.id, 0), dict(f.meta),
            )
            for f in roots[offset : offset + limit]
        )  # fmt: skip

    async def conversation(self, conversation: ConversationId) -> ConversationInfo | None:
        found = await self.conversations(limit=len(self._frames))
        return next((info for info in found if info.id == conversation), None)

    async def active_frames(self, conversation: ConversationId) -> tuple[Frame, ...]:
        found = [f for f in self._frames.values() if f.conversation == conversation and f.active]
        return tuple(sorted(found, key=lambda f: (f.depth, f.id)))

    async def load(self, frame: FrameId) -> LoadedFrame | None:
        return self._load(frame)

    def _load(self, frame: FrameId) -> LoadedFrame | None:
        found = self._frames.get(frame)
        if found is None:
            return None
        checkpoints = {k.covered_up_to: k for k in self._checkpoints.values() if k.frame == frame}
        messages: list[Message] = []
        checkpoint = None
        for message in self._path(found.head):
            checkpoint = checkpoints.get(message)
            if checkpoint is not None:
                break
            if self._messages[message].status != "failed":
                messages.append(self._full(message))
        return LoadedFrame(found, tuple(reversed(messages)), checkpoint)

    async def history(
        self, conversation: ConversationId, *, before: MessageId | None = None, limit: int = 50
    ) -> HistoryPage:
        root = self._root(conversation)
        return HistoryPage(()) if root is None else await self.frame_history(root.id, before=before, limit=limit)

    async def frame_history(self, frame: FrameId, *, before: MessageId | None = None, limit: int = 50) -> HistoryPage:
        found = self._frames.get(frame)
        if found is None:
            return HistoryPage(())
        head = found.head
        if before is not None:
            cursor = self._messages.get(before)
            head = cursor.parent if cursor is not None and cursor.frame == frame else None
        path = self._path(head)
        ids = list(reversed(path[:limit]))
        items = []
        for message in ids:
            full = self._full(message)
            items.append(HistoryItem(full, tuple(self._replies[frame, full.parent])))
        shown = set(ids)
        checkpoints = tuple(
            k for _, k in sorted(self._checkpoints.items()) if k.frame == frame and k.covered_up_to in shown
        )
        return HistoryPage(tuple(items), ids[0] if len(path) > limit and ids else None, checkpoints)

    async def tree(self, frame: FrameId) -> tuple[Message, ...]:
        return tuple(self._full(message.id) for message in self._messages.values() if message.frame == frame)

    async def checkpoints(self, frame: FrameId) -> tuple[Checkpoint, ...]:
        return tuple(point for point in self._checkpoints.values() if point.frame == frame)

    async def message(self, message: MessageId) -> Message | None:
        return self._full(message) if message in self._messages else None

    async def call(self, call: CallId) -> Call | None:
        return self._calls.get(call)

    async def frame_of_call(self, call: CallId) -> Frame | None:
        found = self._calls.get(call)
        return None if found is None else self._frames[self._messages[found.message].frame]

    async def child_frames(self, call: CallId) -> tuple[Frame, ...]:
        return tuple(f for f in self._frames.values() if f.parent_call == call)

    async def leaf(self, message: MessageId) -> MessageId:
        found = self._messages.get(message)
        while found is not None and (replies := self._replies.get((found.frame, message))):
            message = replies[-1]
        return message

    async def open_calls(self, conversation: ConversationId) -> tuple[Call, ...]:
        return tuple(
            call
            for call in self._calls.values()
            if not call.terminal and self._frames[self._messages[call.message].frame].conversation == conversation
        )

    async def draft(self, frame: FrameId) -> Draft | None:
        return self._drafts.get(frame)

    async def queued(self, conversation: ConversationId) -> tuple[QueuedInput, ...]:
        return tuple(self._waiting_in(conversation))

    async def runs(self) -> tuple[Run, ...]:
        return tuple(sorted(self._runs.values(), key=lambda run: (run.started_at, run.id)))

    async def unfinished(self) -> tuple[ConversationId, ...]:
        found = set(self._runs) | {item.conversation for item in self._queue.values()}
        found |= {f.conversation for f in self._frames.values() if f.active and f.depth > 0}
        found |= {self._frames[frame].conversation for frame in self._drafts}
        for call in self._calls.values():
            if not call.terminal:
                found.add(self._frames[self._messages[call.message].frame].conversation)
        return tuple(sorted(found))

    async def checkpoint(self, checkpoint: int) -> Checkpoint | None:
        return self._checkpoints.get(checkpoint)

    async def delete_conversation(self, conversation: ConversationId) -> None:
        frames = {f.id for f in self._frames.values() if f.conversation == conversation}
        messages = {m.id for m in self._messages.values() if m.frame in frames}
        _keep(self._calls, lambda _, call: call.message not in messages)
        _keep(self._calls_of, lambda message, _: message not in messages)
        _keep(self._replies, lambda key, _: key[0] not in frames)
        _keep(self._messages, lambda message, _: message not in messages)
        _keep(self._drafts, lambda frame, _: frame not in frames)
        _keep(self._checkpoints, lambda _, checkpoint: checkpoint.frame not in frames)
        _keep(self._frames, lambda frame, _: frame not in frames)
        _keep(self._queue, lambda _, item: item.conversation != conversation)
        _keep(self._sends, lambda key, _: key[0] != conversation)
        self._runs.pop(conversation, None)

    async def close(self) -> None:
        return None


def _keep(table: dict[K, V], wanted: Callable[[K, V], bool]) -> None:
    for key in [key for key, value in table.items() if not wanted(key, value)]:
        del table[key]


_APPLY: dict[type[Any], Callable[[MemoryStore, Any], Stored]] = {
    OpenFrame: MemoryStore._open_frame,
    CloseFrame: MemoryStore._close_frame,
    MergeMeta: MemoryStore._merge_meta,
    AppendMessage: MemoryStore._append_message,
    UpdateMessage: MemoryStore._update_message,
    ResolveCall: MemoryStore._resolve_call,
    SetCallState: MemoryStore._set_call_state,
    SettleCalls: MemoryStore._settle_calls,
    MergeCallExtras: MemoryStore._merge_call_extras,
    SetHead: MemoryStore._set_head,
    SaveCheckpoint: MemoryStore._save_checkpoint,
    Enqueue: MemoryStore._enqueue,
    EditQueued: MemoryStore._edit_queued,
    DeleteQueued: MemoryStore._delete_queued,
    ReorderQueue: MemoryStore._reorder_queue,
    Dequeue: MemoryStore._dequeue,
    OpenRun: MemoryStore._open_run,
    CloseRun: MemoryStore._close_run,
    AddDraft: MemoryStore._add_draft,
    ClearDraft: MemoryStore._clear_draft,
    HoldQueue: MemoryStore._hold_queue,
    ImportMessages: MemoryStore._import_messages,
    RemoveMessages: MemoryStore._remove_messages,
    LoadFrame: MemoryStore._load_frame,
}
