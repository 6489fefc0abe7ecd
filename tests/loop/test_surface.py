"""The loop's public names, errors, limits and small parts, and what closing means."""

from __future__ import annotations

import importlib
from typing import Any, get_args

import pytest

import skald_core.loop as loop
from skald_core.loop import errors, events
from skald_core.loop.agent import Agent
from skald_core.loop.errors import ConfigError, LoopError, PermissionDeniedError, RateLimitError, ServerError, ToolError
from skald_core.loop.gate import DenyList
from skald_core.loop.memory_store import MemoryStore
from skald_core.loop.profile import CONCURRENCY, Limits
from skald_core.loop.scripted import ScriptedProvider, call, calls, text
from skald_core.loop.sqlite_store import SqliteStore
from skald_core.loop.store import Store
from skald_core.loop.types import ConversationId, Usage

from .helpers import Gated, Plain, collect, kinds, make, of, path, result

# --- names -------------------------------------------------------------------------------------------------------


def test_every_public_name_is_its_modules_own() -> None:
    """What the package offers is what type checkers are told: a name of that module's ``__all__``, once."""
    for module, names in loop._HOME.items():
        public = importlib.import_module(f"skald_core.loop.{module}").__all__
        assert set(names) <= set(public), module
        for name in names:
            assert getattr(loop, name) is getattr(importlib.import_module(f"skald_core.loop.{module}"), name)
    assert len(loop.__all__) == sum(map(len, loop._HOME.values()))
    with pytest.raises(AttributeError, match="no_such_name"):
        loop.no_such_name  # noqa: B018 -- asking is the test


def test_every_event_has_a_guard_that_is_true_for_it_alone() -> None:
    """Guards are named after the event's type tag."""
    made: dict[str, Any] = {}
    for kind in get_args(events.Event):
        values = [None] * sum(f not in kind.__struct_defaults__ for f in kind.__struct_fields__)
        made[kind.__struct_config__.tag] = kind(*values[: len(kind.__struct_fields__) - len(kind.__struct_defaults__)])
    guards = {name: getattr(events, name) for name in events.__all__ if name.startswith("is_")}
    assert set(guards) == {f"is_{tag}" for tag in made}
    for name, guard in guards.items():
        assert [tag for tag, event in made.items() if guard(event)] == [name.removeprefix("is_")]


# --- errors ------------------------------------------------------------------------------------------------------


def test_errors_have_a_kind_of_their_own_and_say_whether_to_retry() -> None:
    """One root; every leaf has its own stable code; retryable ones are those of a model call that may succeed."""
    found: list[type[LoopError]] = [getattr(errors, name) for name in errors.__all__]
    assert all(issubclass(kind, LoopError) for kind in found)
    leaves = [kind for kind in found if not kind.__subclasses__()]
    assert len({kind.kind for kind in leaves}) == len(leaves)
    retryable = {kind.__name__ for kind in leaves if kind.retryable}
    assert retryable == {"NetworkError", "ServerError", "RateLimitError", "ProtocolError"}


def test_errors_carry_what_they_are_about() -> None:
    assert RateLimitError("slow down", retry_after=2.5).retry_after == 2.5
    assert (ServerError("down", status=502, detail="bad gateway").status, ServerError("x").status) == (502, None)
    assert ToolError("no", tool_name="book").tool_name == "book"
    denied = PermissionDeniedError("refused", tool_name="book", reason="not on Sundays")
    assert (denied.tool_name, denied.reason) == ("book", "not on Sundays")


def test_usage_adds_up() -> None:
    """All counts, and the cost as far as one is known."""
    total = Usage(1, 2, 3, 4) + Usage(10, 20, 30, 40, 0.5)
    assert total == Usage(11, 22, 33, 44, 0.5)
    assert Usage() + Usage() == Usage()


# --- limits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"rounds": 0}, {"rounds": 2.5}, {"rounds": True}, {"output_tokens": 0}, {"output_tokens": -10},
        {"parallel_calls": 0}, {"depth": 0}, {"model_attempts": -1}, {"hook_seconds": 0}, {"seconds": -1},
        {"media_files": -1}, {"stop_continues": 0.5},
    ],
)  # fmt: skip
def test_limits_are_whole_numbers_and_times_above_zero(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Limits(**wrong)


@pytest.mark.parametrize(
    ("text_", "found"), [(None, 10), ("3", 3), ("0", 10), ("-2", 10), ("many", 10), ("", 10), ("²", 10)]
)
def test_the_environment_may_set_how_many_calls_run_at_once(
    text_: str | None, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read when limits are made; nonsense counts as not set, and what the code says wins."""
    monkeypatch.delenv(CONCURRENCY, raising=False)
    if text_ is not None:
        monkeypatch.setenv(CONCURRENCY, text_)
    assert Limits().parallel_calls == found
    assert Limits(parallel_calls=7).parallel_calls == 7


def test_an_agent_needs_a_model_and_a_session_an_id() -> None:
    for wrong in ({}, {"provider": ScriptedProvider()}, {"provider": ScriptedProvider(), "model": ""}):
        with pytest.raises(ConfigError):
            Agent(**wrong)  # type: ignore[arg-type]  # what is tested
    with pytest.raises(ConfigError):
        make(ScriptedProvider()).session("")


# --- small parts -------------------------------------------------------------------------------------------------


async def test_pieces_are_sent_only_when_wanted(store: Store) -> None:
    """Only who asks gets them; without them the message is whole all the same."""
    agent = make(ScriptedProvider([text("Hel", "lo")]), store=store)
    seen = await collect(agent.session("c").run("hi"))
    assert of(seen, events.PartialAssistantEvent) == []
    assert result(seen).final_text == "Hello"


async def test_a_deny_list_names_tools_or_their_beginning(store: Store) -> None:
    tools = [Plain("read"), Plain("mcp__a"), Plain("rm")]
    provider = ScriptedProvider([calls(*(call(item.name) for item in tools)), text("ok")])
    await collect(make(provider, *tools, gate=DenyList("rm", "mcp__*", reason="no"), store=store).session("c").run("x"))
    assert [(c.state, c.result) for c in (await path(store))[1].calls] == [
        ("done", "ok"), ("rejected", "no"), ("rejected", "no"),
    ]  # fmt: skip


# --- the conversations of a store --------------------------------------------------------------------------------


async def test_conversations_are_listed_and_carry_what_the_host_keeps(store: Store) -> None:
    """Newest first, with the host's own data, merged key by key; an unknown one has none."""
    agent = make(ScriptedProvider(then=lambda _: text("ok")), store=store)
    first, second = agent.session("first"), agent.session("second")
    assert await first.info() is None
    with pytest.raises(ConfigError):
        await first.update_meta({"title": "T"})
    await collect(first.run("hi"))
    await collect(second.run("hi"))
    await collect(second.run("more"))
    await first.update_meta({"title": "T", "pinned": False})
    await first.update_meta({"pinned": True})
    listed = await agent.conversations()
    assert [(info.id, info.message_count) for info in listed] == [("second", 4), ("first", 2)]
    assert listed[1].meta == {"title": "T", "pinned": True}
    assert [info.id for info in await agent.conversations(limit=1, offset=1)] == ["first"]
    await second.delete()
    assert [info.id for info in await agent.conversations()] == ["first"]
    await collect(first.run("again"))
    assert (await first.info()).meta == {"title": "T", "pinned": True}  # type: ignore[union-attr]  # it exists


# --- closing -----------------------------------------------------------------------------------------------------


class Counting(MemoryStore):
    closed = 0

    async def close(self) -> None:
        self.closed += 1


async def test_an_agent_closes_only_what_it_was_told_to_close() -> None:
    """A given store stays open unless asked for, and is closed once."""
    kept, owned = Counting(), Counting()
    await make(ScriptedProvider(), store=kept).close()
    agent = make(ScriptedProvider(), store=owned, close_store=True)
    await agent.close()
    await agent.close()
    assert (kept.closed, owned.closed) == (0, 1)
    with pytest.raises(ConfigError, match="closed"):
        agent.session("c").run("hi")


async def test_leaving_an_agent_ends_its_turns_and_readers() -> None:
    """Who still reads comes to the end, and the turn is there for the next life."""
    slow = Gated("slow", restart_hint="rerun")
    store = MemoryStore()
    async with make(ScriptedProvider([calls(call("slow"))]), slow, store=store) as agent:
        everything = agent.subscribe()
        await agent.session("c").send("hi")
        await slow.entered.wait()
    assert "result" not in kinds([event async for event in everything])
    assert await store.unfinished() == (ConversationId("c"),)
    assert agent.running() == ()


async def test_an_agent_that_was_never_used_touches_no_file(tmp_path: Any) -> None:
    """Making and closing one does no input or output."""
    store = await SqliteStore.open(tmp_path / "x.db")
    async with Agent(provider=ScriptedProvider(), model="m", store=store, close_store=True):
        pass
    with pytest.raises(LoopError):
        await store.runs()
