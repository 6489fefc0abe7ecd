# ruff: noqa: PT018 -- one assertion per fact reads better here than one per field
"""What every store must do, as async functions of an empty store. Run them all against yours:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
    async def test_my_store(check):
        await check(MyStore())

Each raises AssertionError with the first difference. They need nothing but the store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from skald_core.loop.errors import LoopError
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
    UpdateMessage,
)
from skald_core.loop.store import Store
from skald_core.loop.types import Attachment, CallId, ConversationId, FrameId, MessageId, Usage

__all__ = ("CHECKS", "Check")

Check = Callable[[Store], Awaitable[None]]

A = ConversationId("a")
B = ConversationId("b")


async def _open(store: Store, conversation: ConversationId = A) -> FrameId:
    (done,) = await store.apply([OpenFrame(conversation, agent="main", at=5)])
    return FrameId(done.id)


async def _say(store: Store, frame: FrameId, *texts: str) -> list[MessageId]:
    roles = ("user", "assistant")
    ops = [AppendMessage(frame, roles[i % 2], text) for i, text in enumerate(texts)]  # type: ignore[arg-type]  # the two literals
    return [MessageId(done.id) for done in await store.apply(ops)]


async def _refused(store: Store, *ops: Op) -> None:
    try:
        await store.apply(ops)
    except LoopError:
        return
    raise AssertionError(f"{type(ops[-1]).__name__} was accepted")


async def a_root_frame_is_opened_once(store: Store) -> None:
    assert await store.root(A) is None
    frame = await _open(store)
    (again,) = await store.apply([OpenFrame(A)])
    assert again.id == frame and again.existing
    found = await store.root(A)
    assert found is not None and found.agent == "main" and found.active and found.head is None
    assert (found.depth, found.parent, found.created_at) == (0, None, 5)
    assert await _open(store, B) != frame


async def a_message_keeps_every_field(store: Store) -> None:
    frame = await _open(store)
    op = AppendMessage(
        frame, "assistant", "héllo \x00 \u2028", reasoning="because", reasoning_signature="sig", status="partial",
        synthetic=True, client_id="c1", attachments=(Attachment("p/a.txt", "a.txt", "text/plain", 3),),
        metadata={"k": [1, {"z": None}]}, replay={"id": "r"}, provider="p", model="m",
        usage=Usage(1, 2, 3, 4, 0.5), duration_ms=7, at=123,
    )  # fmt: skip
    (done,) = await store.apply([op])
    message = await store.message(MessageId(done.id))
    assert message is not None
    for name in op.__struct_fields__:
        if name not in ("parent", "calls", "at", "behind_queue"):
            assert getattr(message, name) == getattr(op, name), name
    assert message.parent is None and message.created_at == 123


async def lone_surrogates_become_replacement_characters(store: Store) -> None:
    frame = await _open(store)
    (done,) = await store.apply([AppendMessage(frame, "user", "a\ud800b")])
    message = await store.message(MessageId(done.id))
    assert message is not None and message.content.encode() in (b"a\xef\xbf\xbdb", b"a?b")


async def messages_follow_the_head(store: Store) -> None:
    frame = await _open(store)
    first, second, third = await _say(store, frame, "1", "2", "3")
    assert first < second < third
    loaded = await store.load(frame)
    assert loaded is not None and [m.content for m in loaded.messages] == ["1", "2", "3"]
    assert [m.parent for m in loaded.messages] == [None, first, second]
    assert loaded.frame.head == third and loaded.checkpoint is None
    assert await store.load(FrameId(999)) is None


async def calls_nest_in_their_message(store: Store) -> None:
    frame = await _open(store)
    raw = '{"b": 1,  "a":2}'
    (done,) = await store.apply(
        [AppendMessage(frame, "assistant", "", calls=(NewCall("one", raw, "u1"), NewCall("two", "{", "")), at=9)]
    )
    assert len(done.calls) == 2 and done.calls[0] < done.calls[1]
    assert done.tool_use_ids[0] == "u1" and done.tool_use_ids[1]
    loaded = await store.load(frame)
    assert loaded is not None
    one, two = loaded.messages[0].calls
    assert (one.name, one.arguments, one.tool_use_id, one.index, one.state) == ("one", raw, "u1", 0, "running")
    assert (two.arguments, two.tool_use_id, two.index, two.started_at) == ("{", done.tool_use_ids[1], 1, 9)
    assert [c.id for c in await store.open_calls(A)] == list(done.calls)
    owner = await store.frame_of_call(one.id)
    assert owner is not None and owner.id == frame


async def a_call_is_resolved_once(store: Store) -> None:
    frame = await _open(store)
    (done,) = await store.apply([AppendMessage(frame, "assistant", "", calls=(NewCall("t", "{}"),))])
    call = done.calls[0]
    media = (Attachment("p.png", "p.png", "image/png", 4),)
    await store.apply([MergeCallExtras(call, {"a": 1}), SetCallState(call, "awaiting", '{"x":1}')])
    waiting = await store.call(call)
    assert waiting is not None and waiting.state == "awaiting" and waiting.effective == '{"x":1}'
    await store.apply([SetCallState(call, "running")])
    (first,) = await store.apply(
        [ResolveCall(call, "done", "ok", "json", media=media, extras={"b": 2}, duration_ms=3, at=8)]
    )
    (second, third) = await store.apply([ResolveCall(call, "failed", "no", "error"), SetCallState(call, "running")])
    assert first.changed and not second.changed and not third.changed
    found = await store.call(call)
    assert found is not None and (found.state, found.result, found.result_kind) == ("done", "ok", "json")
    assert found.media == media and found.extras == {"a": 1, "b": 2} and found.effective == '{"x":1}'
    assert (found.duration_ms, found.finished_at) == (3, 8) and await store.open_calls(A) == ()
    (unknown,) = await store.apply([MergeCallExtras(CallId(999), {})])
    assert not unknown.changed
    await _refused(store, ResolveCall(CallId(999), "done", "", "text"))


async def settling_resolves_what_is_open(store: Store) -> None:
    frame = await _open(store)
    other = await _open(store, B)
    calls = (NewCall("t", "{}"), NewCall("t", "{}"), NewCall("t", "{}"))
    (mine,) = await store.apply([AppendMessage(frame, "assistant", "", calls=calls)])
    (theirs,) = await store.apply([AppendMessage(other, "assistant", "", calls=calls[:1])])
    await store.apply([ResolveCall(mine.calls[0], "done", "1", "text"), SetCallState(mine.calls[1], "awaiting")])
    settle = SettleCalls(frame, "cancelled", "stopped", "cancelled", keep_awaiting=True, at=4)
    (kept,) = await store.apply([settle])
    assert kept.settled == (mine.calls[2],)
    (rest,) = await store.apply([SettleCalls(frame, "failed", "stopped", "interrupted")])
    assert rest.settled == (mine.calls[1],)
    states = [c.state for c in (await store.load(frame)).messages[0].calls]  # type: ignore[union-attr]  # the frame exists
    assert states == ["done", "failed", "cancelled"]
    assert [c.id for c in await store.open_calls(B)] == list(theirs.calls)


async def a_client_id_is_stored_once(store: Store) -> None:
    frame = await _open(store)
    (one,) = await store.apply([AppendMessage(frame, "user", "x", client_id="c")])
    again, skipped = await store.apply([AppendMessage(frame, "user", "x", client_id="c"), CloseFrame(frame)])
    assert again.existing and skipped.existing and again.id == one.id and not again.queued
    root = await store.root(A)
    assert root is not None and root.active, "a known client id ends its batch"
    (queued,) = await store.apply([Enqueue(A, "x", client_id="c")])
    assert queued.existing and queued.id == one.id and await store.queued(A) == ()
    other = await _open(store, B)
    (elsewhere,) = await store.apply([AppendMessage(other, "user", "x", client_id="c")])
    assert not elsewhere.existing, "a client id counts per conversation"
    (waiting,) = await store.apply([Enqueue(A, "y", client_id="d")])
    (twice,) = await store.apply([Enqueue(A, "y", client_id="d")])
    assert twice.existing and twice.queued and twice.id == waiting.id
    (moved,) = await store.apply([Dequeue(waiting.id, frame)])
    (late,) = await store.apply([Enqueue(A, "y", client_id="d")])
    assert late.existing and not late.queued and late.id == moved.id
    message = await store.message(MessageId(moved.id))
    assert message is not None and message.client_id == "d"
    (gone,) = await store.apply([Enqueue(A, "z", client_id="e")])
    await store.apply([DeleteQueued(gone.id)])
    (never,) = await store.apply([Enqueue(A, "z", client_id="e")])
    assert never.existing and never.id == 0 and await store.queued(A) == ()


async def a_failing_op_undoes_its_batch(store: Store) -> None:
    frame = await _open(store)
    (kept,) = await _say(store, frame, "kept")
    await store.apply([Enqueue(A, "waits")])
    await _refused(
        store,
        AppendMessage(frame, "user", "lost", client_id="n", calls=(NewCall("t", "{}"),)),
        Enqueue(A, "lost"),
        OpenRun("r", A, frame),
        OpenFrame(B),
        AddDraft(frame, "lost"),
        UpdateMessage(kept, metadata={"lost": True}),
        EditQueued(999, "nothing"),
    )
    loaded = await store.load(frame)
    assert loaded is not None and [m.content for m in loaded.messages] == ["kept"]
    assert loaded.frame.head == kept and loaded.messages[0].metadata == {}
    assert [q.content for q in await store.queued(A)] == ["waits"]
    assert await store.runs() == () and await store.root(B) is None and await store.draft(frame) is None
    assert await store.open_calls(A) == ()
    (fresh,) = await store.apply([AppendMessage(frame, "user", "again", client_id="n")])
    assert not fresh.existing


async def a_batch_may_use_the_frame_it_opens(store: Store) -> None:
    opened, said, _ = await store.apply([OpenFrame(A), AppendMessage(None, "user", "hi"), OpenRun("r1", A, None, at=3)])
    message = await store.message(MessageId(said.id))
    assert message is not None and message.frame == opened.id
    (run,) = await store.runs()
    assert (run.id, run.conversation, run.frame, run.started_at) == ("r1", A, opened.id, 3)
    await _refused(store, AppendMessage(None, "user", "no frame"))
    await _refused(store, AppendMessage(FrameId(999), "user", "unknown frame"))


async def branches_keep_their_siblings(store: Store) -> None:
    frame = await _open(store)
    q1, a1, q2, a2 = await _say(store, frame, "q1", "a1", "q2", "a2")
    (edited,) = await store.apply([AppendMessage(frame, "user", "q2'", parent=a1)])
    (answer,) = await store.apply([AppendMessage(frame, "assistant", "a2'")])
    page = await store.history(A)
    assert [i.message.content for i in page.items] == ["q1", "a1", "q2'", "a2'"]
    assert page.items[2].siblings == (q2, edited.id) and page.items[3].siblings == (answer.id,)
    assert page.items[0].siblings == (q1,)
    assert await store.leaf(q2) == a2 and await store.leaf(a1) == answer.id
    await store.apply([SetHead(frame, a2)])
    loaded = await store.load(frame)
    assert loaded is not None and [m.content for m in loaded.messages] == ["q1", "a1", "q2", "a2"]
    (new_first,) = await store.apply([AppendMessage(frame, "user", "q0", parent=None)])
    page = await store.history(A)
    assert [i.message.content for i in page.items] == ["q0"] and page.items[0].siblings == (q1, new_first.id)
    other = await _open(store, B)
    await _refused(store, SetHead(other, a2))
    await store.apply([AppendMessage(other, "user", "b1", client_id="known"), AppendMessage(other, "assistant", "b2")])
    before = await store.load(other)
    assert before is not None
    await store.apply([SetHead(other, before.messages[0].id), AppendMessage(other, "user", "b1", client_id="known")])
    after = await store.load(other)
    assert after is not None and after.frame.head == before.messages[0].id, "a message not stored moves no head"
    await _refused(store, AppendMessage(other, "user", "x", parent=a2))
    await _refused(store, AppendMessage(frame, "user", "x", parent=MessageId(999)))
    await store.apply([SetHead(frame, None)])
    loaded = await store.load(frame)
    assert loaded is not None and loaded.messages == ()


async def a_tree_comes_whole_and_goes_in_again(store: Store) -> None:
    frame = await _open(store)
    q1, a1, q2, _ = await _say(store, frame, "q1", "a1", "q2", "a2")
    made = (NewCall("t", '{"a": 1}', "u1"), NewCall("t", "{}", "u2"), NewCall("t", "{}", "u3"))
    (other,) = await store.apply([AppendMessage(frame, "assistant", "o", parent=q2, calls=made, at=3)])
    media = (Attachment("p.png", "p.png", "image/png", 4),)
    await store.apply(
        [
            SetCallState(other.calls[0], "running", '{"a": 2}'),
            ResolveCall(other.calls[0], "done", "r", "json", media=media, extras={"x": 1}, duration_ms=2, at=4),
            ResolveCall(other.calls[1], "cancelled", "stop", "cancelled", at=4),
            UpdateMessage(a1, metadata={"k": 1}),
            SaveCheckpoint(frame, "sum", a1, 10, "m", at=2),
        ]
    )
    tree, points = await store.tree(frame), await store.checkpoints(frame)
    assert [m.content for m in tree] == ["q1", "a1", "q2", "a2", "o"] and [p.summary for p in points] == ["sum"]
    assert tree[4].calls[0].result == "r" and tree[4].parent == q2
    _, done = await store.apply([OpenFrame(B), ImportMessages(None, tree, q1, points)])
    copy = await store.root(B)
    assert copy is not None and copy.head == done.id
    again = await store.tree(copy.id)
    new = {old.id: message.id for old, message in zip(tree, again, strict=True)}
    for old, message in zip(tree, again, strict=True):
        assert (message.role, message.content, message.metadata) == (old.role, old.content, old.metadata)
        assert message.parent == (new[old.parent] if old.parent else None) and message.frame == copy.id
        assert message.id > tree[-1].id and message.created_at == old.created_at
    for old_call, call in zip(tree[4].calls[:2], again[4].calls[:2], strict=True):
        for name in (
            "name",
            "arguments",
            "effective",
            "state",
            "result",
            "result_kind",
            "media",
            "extras",
            "duration_ms",
        ):
            assert getattr(call, name) == getattr(old_call, name), name
    assert again[4].calls[2].result_kind == "interrupted" and await store.open_calls(B) == ()
    assert new[q1] == done.id and (await store.checkpoints(copy.id))[0].covered_up_to == new[a1]
    await store.apply([SetHead(copy.id, again[4].id)])
    loaded = await store.load(copy.id)
    assert loaded is not None and [m.content for m in loaded.messages] == ["q2", "o"]


async def history_comes_in_pages(store: Store) -> None:
    frame = await _open(store)
    ids = await _say(store, frame, *"abcdefg")
    await store.apply([UpdateMessage(ids[5], status="failed", metadata={"cause": "x"})])
    page = await store.history(A, limit=3)
    assert [i.message.content for i in page.items] == ["e", "f", "g"] and page.before == ids[4]
    assert page.items[1].message.status == "failed" and page.items[1].message.metadata == {"cause": "x"}
    page = await store.history(A, before=page.before, limit=3)
    assert [i.message.content for i in page.items] == ["b", "c", "d"] and page.before == ids[1]
    page = await store.frame_history(frame, before=page.before, limit=3)
    assert [i.message.content for i in page.items] == ["a"] and page.before is None
    assert await store.history(B) == await store.frame_history(FrameId(999))
    loaded = await store.load(frame)
    assert loaded is not None and [m.content for m in loaded.messages] == list("abcdeg"), "failed ones are left out"


async def a_checkpoint_covers_its_branch(store: Store) -> None:
    frame = await _open(store)
    q1, a1, q2, a2 = await _say(store, frame, "q1", "a1", "q2", "a2")
    first, second = await store.apply(
        [SaveCheckpoint(frame, "old", q1, 10, "m", at=1), SaveCheckpoint(frame, "sum", a1, 10, "m", at=2)]
    )
    assert first.id < second.id
    loaded = await store.load(frame)
    assert loaded is not None and [m.content for m in loaded.messages] == ["q2", "a2"]
    assert loaded.checkpoint is not None and loaded.checkpoint.summary == "sum"
    assert loaded.checkpoint == await store.checkpoint(second.id)
    page = await store.history(A)
    assert len(page.items) == 4 and [k.summary for k in page.checkpoints] == ["old", "sum"]
    await _refused(store, SaveCheckpoint(frame, "of nothing", MessageId(999)))
    await _refused(store, SaveCheckpoint(await _open(store, B), "of another", a1))
    await store.apply([AppendMessage(frame, "user", "other", parent=None)])
    loaded = await store.load(frame)
    assert loaded is not None and loaded.checkpoint is None and len(loaded.messages) == 1
    assert (q2, a2) == tuple(i.message.id for i in page.items[2:])


async def removing_closes_the_gap(store: Store) -> None:
    """Removed messages leave no trace but their client ids; what followed them follows what came before."""
    frame = await _open(store)
    q1, a1 = await _say(store, frame, "q1", "a1")
    ask = AppendMessage(frame, "user", "q2", client_id="q2")
    called, q2 = reversed(
        await store.apply([ask, AppendMessage(frame, "assistant", "", calls=(NewCall("t", "{}"), NewCall("t", "{}")))])
    )
    child, said, *_ = await store.apply(
        [
            OpenFrame(A, "sub", frame, called.calls[0], 1),
            AppendMessage(None, "agent", "inner", calls=(NewCall("t", "{}"),)),
            ResolveCall(called.calls[0], "done", "r", "text"),
        ]
    )
    q3, a3 = await _say(store, frame, "q3", "a3")
    (other,) = await store.apply([AppendMessage(frame, "user", "other", parent=a1)])
    assert other.siblings == (q2.id, other.id), "a new message names those that share its place"
    (inside, outside) = await store.apply([SaveCheckpoint(frame, "sum", a3), SaveCheckpoint(frame, "old", a1)])
    await store.apply([SetHead(frame, a3)])
    (done,) = await store.apply([RemoveMessages(frame, (MessageId(q2.id), MessageId(called.id)))])
    assert done.changed and done.id == a3
    page = await store.history(A)
    assert [i.message.content for i in page.items] == ["q1", "a1", "q3", "a3"]
    assert page.items[2].siblings == (q3, MessageId(other.id)) and page.items[2].message.parent == a1
    assert [m.content for m in await store.tree(frame)] == ["q1", "a1", "q3", "a3", "other"]
    assert await store.call(called.calls[0]) is None and await store.message(MessageId(called.id)) is None
    assert await store.frame(FrameId(child.id)) is None and await store.call(said.calls[0]) is None
    assert await store.checkpoint(inside.id) is None and await store.checkpoint(outside.id) is not None
    assert await store.open_calls(A) == ()
    (again,) = await store.apply([AppendMessage(frame, "user", "q2", client_id="q2")])
    assert again.existing and again.id == 0, "a resend does not bring it back"
    loaded = await store.load(frame)
    assert loaded is not None and [m.content for m in loaded.messages] == ["q3", "a3"] and loaded.checkpoint is not None
    await store.apply([RemoveMessages(frame, (q3, a3))])
    root = await store.root(A)
    assert root is not None and root.head == a1
    (fresh,) = await store.apply([AppendMessage(frame, "user", "fresh")])
    assert fresh.parent == a1 and fresh.id > other.id and fresh.siblings == (other.id, fresh.id)
    await _refused(store, RemoveMessages(frame, (q1, MessageId(q2.id))))
    everything = tuple(m.id for m in await store.tree(frame))
    await store.apply([RemoveMessages(frame, everything)])
    (newest,) = await store.apply([AppendMessage(frame, "user", "first again")])
    assert newest.id > max(everything) and newest.parent is None, "no id is given twice"


async def the_queue_keeps_its_order(store: Store) -> None:
    frame = await _open(store)
    done = await store.apply([Enqueue(A, t, at=2) for t in "xyz"])
    x, y, z = (d.id for d in done)
    await store.apply([Enqueue(B, "other")])
    assert [q.id for q in await store.queued(A)] == [x, y, z]
    await store.apply([ReorderQueue(A, (z, 999, x)), EditQueued(y, "Y", "steer")])
    waiting = await store.queued(A)
    assert [q.content for q in waiting] == ["z", "x", "Y"] and waiting[2].kind == "steer"
    await store.apply([EditQueued(y, metadata={"note": 1})])
    assert (await store.queued(A))[2].metadata == {"note": 1} and (await store.queued(A))[2].content == "Y"
    await store.apply([EditQueued(y, metadata={})])
    assert (await store.queued(A))[2].metadata == {}
    await store.apply([DeleteQueued(x)])
    (moved,) = await store.apply([Dequeue(z, frame, context="note", at=6)])
    message = await store.message(MessageId(moved.id))
    assert message is not None and (message.content, message.role, message.created_at) == ("z", "user", 6)
    assert message.metadata == {"hook_context": "note"}
    assert [q.id for q in await store.queued(A)] == [y]
    await _refused(store, Dequeue(z, frame))
    await _refused(store, EditQueued(x, "late"))
    (gone,) = await store.apply([DeleteQueued(x)])
    assert not gone.changed


async def held_input_stays_held_until_one_is_taken(store: Store) -> None:
    frame = await _open(store)
    x, y = (d.id for d in await store.apply([Enqueue(A, "x"), Enqueue(A, "y")]))
    (nothing,) = await store.apply([HoldQueue(B)])
    (done,) = await store.apply([HoldQueue(A)])
    assert done.changed and not nothing.changed
    await store.apply([Enqueue(A, "z")])
    assert [(q.content, q.held) for q in await store.queued(A)] == [("x", True), ("y", True), ("z", False)]
    await store.apply([EditQueued(y, "Y"), Dequeue((await store.queued(A))[2].id, frame)])
    assert [(q.content, q.held) for q in await store.queued(A)] == [("x", True), ("Y", True)]
    await store.apply([Enqueue(A, "z"), Dequeue(x, frame)])
    assert [(q.content, q.held) for q in await store.queued(A)] == [("Y", False), ("z", False)]


async def a_message_may_go_behind_what_waits(store: Store) -> None:
    frame = await _open(store)
    free, loaded = await store.apply([AppendMessage(frame, "user", "1", behind_queue=True), LoadFrame(frame)])
    assert not free.queued and loaded.loaded == await store.load(frame)
    assert loaded.loaded is not None and [m.id for m in loaded.loaded.messages] == [free.id]
    await store.apply([Enqueue(A, "waits")])
    op = AppendMessage(
        None, "user", "2", behind_queue=True, client_id="c", synthetic=True, metadata={"k": 1},
        attachments=(Attachment("p", "p"),), at=7,
    )  # fmt: skip
    _, behind, skipped, unread = await store.apply([OpenFrame(A), op, OpenRun("r", A, None), LoadFrame()])
    assert behind.queued and skipped == behind == unread and not behind.existing and await store.runs() == ()
    last = (await store.queued(A))[1]
    assert (last.id, last.content, last.kind, last.client_id) == (behind.id, "2", "synthetic", "c")
    assert (last.metadata, last.attachments, last.created_at) == ({"k": 1}, (Attachment("p", "p"),), 7)
    _, again = await store.apply([OpenFrame(A), op])
    assert again.existing and again.queued and again.id == behind.id
    _, _, empty = await store.apply([OpenFrame(B), AppendMessage(None, "user", "b", behind_queue=True), LoadFrame()])
    assert empty.loaded is not None and [m.content for m in empty.loaded.messages] == ["b"]
    await _refused(store, LoadFrame())


async def open_calls_outlive_their_run(store: Store) -> None:
    frame = await _open(store)
    await store.apply([OpenRun("r1", A, frame)])
    calls = (NewCall("t", "{}", "u1"), NewCall("t", "{}", "u2"))
    (one,) = await store.apply([AppendMessage(frame, "assistant", "", calls=calls)])
    await store.apply([ResolveCall(one.calls[0], "done", "r", "text")])
    child, two = await store.apply(
        [
            OpenFrame(A, parent=frame, parent_call=one.calls[1], depth=1),
            AppendMessage(None, "assistant", "", calls=calls),
        ]
    )
    still = [one.calls[1], *two.calls]
    assert [c.id for c in await store.open_calls(A)] == still
    await store.apply([OpenRun("r2", A, frame)])
    assert [c.id for c in await store.open_calls(A)] == still, "a new run leaves the old one's calls open"
    (three,) = await store.apply([AppendMessage(FrameId(child.id), "assistant", "", calls=calls[:1])])
    await store.apply([CloseRun(A)])
    assert [c.id for c in await store.open_calls(A)] == [*still, *three.calls]
    assert [c.state for c in await store.open_calls(A)] == ["running"] * 4 and await store.unfinished() == (A,)
    (settled,) = await store.apply([SettleCalls(FrameId(child.id), "failed", "x", "interrupted")])
    assert settled.settled == (*two.calls, *three.calls)
    assert [c.id for c in await store.open_calls(A)] == [one.calls[1]]
    loaded = await store.load(frame)
    assert loaded is not None and [c.state for c in loaded.messages[0].calls] == ["done", "running"]


async def a_run_is_open_until_closed(store: Store) -> None:
    frame = await _open(store)
    other = await _open(store, B)
    await store.apply([OpenRun("r1", A, frame, at=1), OpenRun("r2", B, other, at=2)])
    assert [r.id for r in await store.runs()] == ["r1", "r2"]
    await store.apply([OpenRun("r3", A, frame, at=3)])
    assert [r.id for r in await store.runs()] == ["r2", "r3"]
    one, two = await store.apply([CloseRun(A), CloseRun(A)])
    assert one.changed and not two.changed and [r.id for r in await store.runs()] == ["r2"]


async def a_draft_grows_until_cleared(store: Store) -> None:
    frame = await _open(store)
    assert await store.draft(frame) is None
    await store.apply([AddDraft(frame, "he", "th", "m")])
    await store.apply([AddDraft(frame, "llo", "ink", "m")])
    draft = await store.draft(frame)
    assert draft is not None and (draft.content, draft.reasoning, draft.model) == ("hello", "think", "m")
    assert await store.unfinished() == (A,)
    await store.apply([ClearDraft(frame)])
    assert await store.draft(frame) is None and await store.unfinished() == ()


async def frames_nest(store: Store) -> None:
    frame = await _open(store)
    (said,) = await store.apply([AppendMessage(frame, "assistant", "", calls=(NewCall("d", "{}"),))])
    await store.apply([ResolveCall(said.calls[0], "done", "", "text")])
    (child,) = await store.apply(
        [OpenFrame(A, agent="sub", parent=frame, parent_call=said.calls[0], depth=1, title="T", meta={"m": 1}, at=4)]
    )
    assert child.id != frame and not child.existing
    found = await store.frame(FrameId(child.id))
    assert found is not None and (found.agent, found.parent, found.parent_call) == ("sub", frame, said.calls[0])
    assert (found.depth, found.title, found.meta) == (1, "T", {"m": 1})
    assert [f.id for f in await store.active_frames(A)] == [frame, child.id]
    assert [f.id for f in await store.child_frames(said.calls[0])] == [child.id]
    assert await store.unfinished() == (A,)
    await store.apply([CloseFrame(FrameId(child.id))])
    assert [f.id for f in await store.active_frames(A)] == [frame] and await store.unfinished() == ()
    assert [f.id for f in await store.child_frames(said.calls[0])] == [child.id]
    root = await store.root(A)
    assert root is not None and root.id == frame


async def unfinished_names_what_recovery_must_see(store: Store) -> None:
    frame = await _open(store)
    other = await _open(store, B)
    assert await store.unfinished() == ()
    (said,) = await store.apply([AppendMessage(frame, "assistant", "", calls=(NewCall("t", "{}"),))])
    assert await store.unfinished() == (A,)
    await store.apply([ResolveCall(said.calls[0], "done", "", "text"), OpenRun("r", B, other)])
    assert await store.unfinished() == (B,)
    (queued, _) = await store.apply([Enqueue(A, "q"), CloseRun(B)])
    assert await store.unfinished() == (A,)
    await store.apply([DeleteQueued(queued.id)])
    assert await store.unfinished() == ()


async def deleting_removes_all_and_reuses_no_id(store: Store) -> None:
    kept = await _open(store, B)
    await _say(store, kept, "kept")
    frame = await _open(store)
    (said,) = await store.apply([AppendMessage(frame, "assistant", "x", client_id="c", calls=(NewCall("t", "{}"),))])
    queued, checkpoint, *_ = await store.apply(
        [Enqueue(A, "q"), SaveCheckpoint(frame, "s", MessageId(said.id)), OpenRun("r", A, frame), AddDraft(frame, "d")]
    )
    await store.delete_conversation(A)
    await store.delete_conversation(A)
    assert (
        await store.root(A) is None
        and await store.load(frame) is None
        and await store.message(MessageId(said.id)) is None
    )
    assert await store.call(said.calls[0]) is None and await store.queued(A) == () and await store.runs() == ()
    assert await store.unfinished() == () and (await store.history(A)).items == ()
    assert await store.checkpoint(checkpoint.id) is None
    assert len((await store.history(B)).items) == 1
    fresh = await _open(store)
    (again,) = await store.apply([AppendMessage(fresh, "assistant", "x", client_id="c", calls=(NewCall("t", "{}"),))])
    (requeued,) = await store.apply([Enqueue(A, "q")])
    assert fresh > frame and again.id > said.id and again.calls[0] > said.calls[0] and requeued.id > queued.id
    assert not again.existing
    (message,) = (await store.load(fresh)).messages  # type: ignore[union-attr]  # the frame exists
    assert message.calls[0].id == again.calls[0]


async def conversations_are_listed_newest_first(store: Store) -> None:
    """With when they began and last changed, their messages counted, and what the host keeps with them."""
    assert await store.conversations() == ()
    assert await store.conversation(A) is None
    first, second = await _open(store, A), await _open(store, B)
    await store.apply([AppendMessage(first, "user", "one", at=10)])
    await store.apply([AppendMessage(second, "user", "two", at=20)])
    await store.apply([AppendMessage(first, "assistant", "three", at=30)])
    await store.apply([OpenFrame(A, "helper", first, CallId(1), 1, at=40)])
    listed = await store.conversations()
    assert [(info.id, info.updated_at, info.message_count) for info in listed] == [(A, 30, 2), (B, 20, 1)]
    assert listed[0].created_at == 5 and listed[0].agent == "main" and listed[0].meta == {}
    assert [info.id for info in await store.conversations(limit=1, offset=1)] == [B]
    assert await store.conversations(offset=2) == ()
    await store.apply([MergeMeta(first, {"title": "T", "n": 1}), MergeMeta(first, {"n": 2})])
    found = await store.conversation(A)
    assert found is not None and found.meta == {"title": "T", "n": 2}
    found.meta["title"] = "changed by a reader"
    again = await store.conversation(A)
    assert again is not None and again.meta["title"] == "T"
    await _refused(store, MergeMeta(FrameId(999), {"n": 3}))
    await store.delete_conversation(A)
    assert [info.id for info in await store.conversations()] == [B]


CHECKS: tuple[Check, ...] = (
    a_root_frame_is_opened_once,
    conversations_are_listed_newest_first,
    a_message_keeps_every_field,
    lone_surrogates_become_replacement_characters,
    messages_follow_the_head,
    calls_nest_in_their_message,
    a_call_is_resolved_once,
    settling_resolves_what_is_open,
    a_client_id_is_stored_once,
    a_failing_op_undoes_its_batch,
    a_batch_may_use_the_frame_it_opens,
    branches_keep_their_siblings,
    a_tree_comes_whole_and_goes_in_again,
    history_comes_in_pages,
    a_checkpoint_covers_its_branch,
    removing_closes_the_gap,
    the_queue_keeps_its_order,
    held_input_stays_held_until_one_is_taken,
    a_message_may_go_behind_what_waits,
    open_calls_outlive_their_run,
    a_run_is_open_until_closed,
    a_draft_grows_until_cleared,
    frames_nest,
    unfinished_names_what_recovery_must_see,
    deleting_removes_all_and_reuses_no_id,
)
