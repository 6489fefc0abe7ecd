"""C12: a branched conversation with tool turns is the same after export and import, for people and for models."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from skald_core.loop.archive import VERSION, ArchiveError, unpack
from skald_core.loop.errors import ConfigError
from skald_core.loop.memory_store import MemoryStore
from skald_core.loop.projection import project
from skald_core.loop.scripted import ScriptedProvider, call, calls
from skald_core.loop.session import CONTINUE, Session
from skald_core.loop.sqlite_store import SqliteStore
from skald_core.loop.store import Store
from skald_core.loop.types import CallPart, ResultPart, TextPart, WireMessage

from .helpers import Plain, collect, make, path


@pytest.fixture
async def other(tmp_path: Path) -> AsyncIterator[Store]:
    made = await SqliteStore.open(tmp_path / "other.db", key=os.urandom(32))
    yield made
    await made.close()


async def wire(store: Store, conversation: str) -> tuple[WireMessage, ...]:
    root = await store.root(conversation)  # type: ignore[arg-type]  # a plain str in tests
    assert root is not None
    loaded = await store.load(root.id)
    assert loaded is not None
    return project(loaded.messages, checkpoint=loaded.checkpoint)


async def ten_turns(store: Store) -> Session:
    """Ten turns, a tool turn at 5, a branch at 3 made last, then back to the long one."""
    provider = ScriptedProvider(then=lambda request: f"answer {len(provider.requests)}")
    session = make(provider, Plain("look"), store=store).session("c")
    for number in range(10):
        if number == 4:
            tool_turn = ScriptedProvider([calls(call("look", '{"b":1,  "a":2}'), call("look")), "seen"])
            await collect(make(tool_turn, Plain("look"), store=store).session("c").run(f"question {number}"))
        else:
            await collect(session.run(f"question {number}"))
    long = await path(store)
    await collect(session.edit(long[4], "another question 2"))
    await collect(session.run("and on"))
    await session.select(long[-1].id)
    return session


async def test_a_branched_history_survives_export_and_import(store: Store, other: Store) -> None:
    """The same visible path, the same siblings, and the very same messages for a model, on every branch."""
    session = await ten_turns(store)
    data = await session.export()
    target = make(ScriptedProvider(), store=other).session("new")
    await target.import_(data)
    assert [m.content for m in await path(other, "new")] == [m.content for m in await path(store)]
    before = (await store.history(session.conversation, limit=100)).items
    after = (await other.history(target.conversation, limit=100)).items
    assert [len(item.siblings) for item in before] == [len(item.siblings) for item in after]
    assert await wire(store, "c") == await wire(other, "new")
    made = [part.id for m in await wire(other, "new") for part in m.parts if isinstance(part, CallPart)]
    answered = [part.id for m in await wire(other, "new") for part in m.parts if isinstance(part, ResultPart)]
    assert len(made) == 2
    assert answered == made
    branch = after[4].siblings[1]
    await target.select(branch)
    await session.select(before[4].siblings[1])
    assert await wire(store, "c") == await wire(other, "new")
    assert (await path(other, "new"))[-1].content == (await path(store))[-1].content


async def test_an_imported_chat_goes_on(store: Store, other: Store) -> None:
    """It is a conversation like any other, and an export of it is the same again but for ids."""
    data = await (await ten_turns(store)).export()
    provider = ScriptedProvider(["more"])
    target = make(provider, store=other).session("new")
    await target.import_(data)
    await collect(target.run("one more"))
    assert (await path(other, "new"))[-1].content == "more"
    assert await other.unfinished() == ()
    with pytest.raises(ConfigError, match="messages already"):
        await target.import_(data)


async def test_an_empty_chat_can_be_exported() -> None:
    store = MemoryStore()
    data = await make(ScriptedProvider(), store=store).session("nothing").export()
    await make(ScriptedProvider(), store=store).session("copy").import_(data)
    assert await path(store, "copy") == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "zip"}, "zip"),
        ({"version": VERSION + 1}, "Update it first"),
        ({"head": 99}, "damaged"),
        ({"messages": [{"id": 2, "frame": 1, "parent": 1, "role": "user", "content": "x"}]}, "damaged"),
        ({"messages": 3}, "not an exported conversation"),
    ],
)
async def test_what_is_no_export_is_refused(change: dict[str, object], words: str) -> None:
    """In words, and nothing of it is stored."""
    store = MemoryStore()
    session = make(ScriptedProvider(["a"]), store=store).session("c")
    await collect(session.run("q"))
    data = msgspec.json.decode(await session.export())
    target = make(ScriptedProvider(), store=store).session("new")
    with pytest.raises(ConfigError, match=words):
        await target.import_(msgspec.json.encode(data | change))
    with pytest.raises(ConfigError):
        await target.import_(b"\x00 nonsense")
    assert await store.root(target.conversation) is None


async def test_removing_a_turn_takes_what_continues_it_and_its_other_answers(store: Store) -> None:
    """What the person said goes with every answer to it, also the sibling ones and what a *continue* added; the rest stays."""
    provider = ScriptedProvider(then=lambda request: f"answer {len(provider.requests)}")
    session = make(provider, Plain("look"), store=store).session("c")
    await collect(session.run("one"))
    await collect(session.run("two"))
    await collect(await session.regenerate((await path(store))[-1].id))
    await collect(await session.continue_())
    await collect(session.run("three"))
    long = await path(store)
    assert [m.content for m in long][2:] == ["two", "answer 3", CONTINUE, "answer 4", "three", "answer 5"]
    gone = await session.remove(long[5].id)
    assert {m.content for m in gone} == {"two", "answer 2", "answer 3", CONTINUE, "answer 4"}
    assert [m.content for m in await path(store)] == ["one", "answer 1", "three", "answer 5"]
    with pytest.raises(ConfigError, match="not part"):
        await session.remove(long[2].id)
    await collect(session.run("four"))
    (_, *rest) = provider.requests[-1].messages
    assert [part.text for m in rest for part in m.parts if isinstance(part, TextPart)][-3:] == [
        "three",
        "answer 5",
        "four",
    ]


async def test_removing_everything_leaves_a_chat_that_can_begin_anew(store: Store) -> None:
    provider = ScriptedProvider(["a", "b"])
    session = make(provider, store=store).session("c")
    await collect(session.run("q"))
    await session.remove((await path(store))[0].id)
    assert await path(store) == []
    await collect(session.run("again"))
    assert [m.content for m in await path(store)] == ["again", "b"]
    assert [len(m.parts) for m in provider.requests[-1].messages] == [1]


async def test_a_call_put_again_is_judged_run_and_answered(store: Store) -> None:
    """It goes before the gate like any call; the model gets its result and goes on."""
    look = Plain("look")
    provider = ScriptedProvider(["hello", "seen"])
    session = make(provider, look, store=store).session("c")
    await collect(session.run("hi"))
    await session.call_again("look", '{"n":  1}', note="once more")
    await session.wait()
    shown = await path(store)
    assert [(m.role, m.synthetic, m.content) for m in shown[2:]] == [
        ("user", True, "once more"),
        ("assistant", True, ""),
        ("assistant", False, "seen"),
    ]
    (made,) = shown[3].calls
    assert (made.state, made.arguments) == ("done", '{"n":  1}')
    assert [m.role for m in provider.requests[-1].messages] == ["user", "assistant", "user", "assistant", "tool"]


async def test_an_export_keeps_its_title_and_says_why_it_is_refused() -> None:
    session = make(ScriptedProvider(["a"]), store=MemoryStore()).session("c")
    await collect(session.run("q"))
    data = await session.export(title="Rivers")
    assert unpack(data).title == "Rivers"
    for bad, reason in (
        (data[:-5], "not_an_export"),
        (b'{"format":"skald-conversation","version":9,"messages":7}', "newer_version"),
        (data.replace(b'"id":2', b'"id":1'), "damaged"),
    ):
        with pytest.raises(ArchiveError) as refused:
            unpack(bad)
        assert refused.value.reason == reason
