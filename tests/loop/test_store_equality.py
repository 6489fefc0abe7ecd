"""Any sequence of batches leaves both stores with the same history, and what the durable one remembers is never stale."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skald_core.loop.errors import LoopError
from skald_core.loop.memory_store import MemoryStore
from skald_core.loop.ops import (
    AppendMessage,
    CloseFrame,
    CloseRun,
    Dequeue,
    EditQueued,
    Enqueue,
    HoldQueue,
    LoadFrame,
    MergeCallExtras,
    NewCall,
    Op,
    OpenFrame,
    OpenRun,
    ResolveCall,
    SaveCheckpoint,
    SetCallState,
    SetHead,
    SettleCalls,
    UpdateMessage,
)
from skald_core.loop.sqlite_store import SqliteStore
from skald_core.loop.store import Store
from skald_core.loop.types import CallId, ConversationId, FrameId, MessageId

A, B = ConversationId("a"), ConversationId("b")
CALL = NewCall("t", "{}", "u")


def op(drawn: tuple[str, int, int]) -> Op:
    """One op about frame 1 or 2, some message and some call that may or may not exist."""
    kind, one, two = drawn
    frame, message, call = FrameId(one % 2 + 1), MessageId(two + 1), CallId((two + 1) * 4096)
    made: dict[str, Op] = {
        "user": AppendMessage(
            frame, "user", f"text {two}", client_id=f"c{two}" if one > 7 else "", at=two, behind_queue=one > 8
        ),
        "answer": AppendMessage(frame, "assistant", "a", calls=(CALL,) * (one % 3), at=two),
        "branch": AppendMessage(frame, "user", "b", parent=message if one % 4 else None, at=two),
        "resolve": ResolveCall(call, "done", "r", "text", at=two),
        "await": SetCallState(call, "awaiting", '{"x":1}' if one % 2 else None),
        "extras": MergeCallExtras(call, {"k": two}),
        "settle": SettleCalls(frame, "failed", "x", "interrupted", bool(one % 2), two),
        "update": UpdateMessage(message, "failed" if one % 2 else "ok", {"m": two}),
        "head": SetHead(frame, message if one % 3 else None),
        "checkpoint": SaveCheckpoint(frame, f"s {two}", message, at=two),
        "open run": OpenRun(f"r{two}", A if one % 2 else B, frame, two),
        "close run": CloseRun(A if one % 2 else B),
        "close": CloseFrame(frame),
        "enqueue": Enqueue(A, "q", "task" if one % 5 == 0 else "user", client_id=f"c{two % 3}" if one % 2 else ""),
        "dequeue": Dequeue(two + 1, frame, at=two),
        "hold": HoldQueue(A),
        "fail": EditQueued(999, "no such thing"),
    }
    found = made[kind]
    if kind == "enqueue" and one % 5 == 0:
        return Enqueue(A, '{"task_id":"1","title":"t","result":"r"}', "task")
    return found


KINDS = ["user", "answer", "answer", "branch", "resolve", "resolve", "await", "extras", "settle", "update", "head",
         "checkpoint", "open run", "close run", "close", "enqueue", "dequeue", "hold", "fail"]  # fmt: skip
BATCHES = st.lists(
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 9), st.integers(0, 7)), min_size=1, max_size=4),
    min_size=1,
    max_size=14,
)


async def view(store: Store) -> list[Any]:
    seen: list[Any] = [await store.runs(), await store.unfinished()]
    for conversation in (A, B):
        seen.append(await store.history(conversation, limit=100))
        seen.append(await store.open_calls(conversation))
        seen.append(await store.queued(conversation))
    for frame in (FrameId(1), FrameId(2)):
        seen += [await store.load(frame), await store.tree(frame), await store.checkpoints(frame)]
    return seen


async def attempt(store: Store, ops: list[Op]) -> Any:
    try:
        return await store.apply(ops)
    except LoopError as error:
        return type(error)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(BATCHES)
def test_both_stores_stay_equal(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[str, int, int]]]
) -> None:
    path: Path = tmp_path_factory.mktemp("equal") / "x.db"

    async def main() -> None:
        durable, memory = await SqliteStore.open(path), MemoryStore()
        try:
            for store in (durable, memory):
                await store.apply([OpenFrame(A), OpenFrame(B)])
            for batch in batches:
                ops = [op(drawn) for drawn in batch]
                assert await attempt(durable, ops) == await attempt(memory, ops)
                for frame in (FrameId(1), FrameId(2)):
                    (read,) = await durable.apply([LoadFrame(frame)])
                    assert read.loaded == await durable.load(frame), "what the writer remembers is stale"
            assert await view(durable) == await view(memory)
        finally:
            await durable.close()

    asyncio.run(main())
