"""Tools that are offered once they are needed: on the wire in each way, and through restarts, branches and summaries."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skald_core.loop.agent import Agent
from skald_core.loop.compaction import Compaction, CompactionResult
from skald_core.loop.errors import ServerError
from skald_core.loop.gate import AllowAll
from skald_core.loop.loading import offered
from skald_core.loop.profile import Profile
from skald_core.loop.projection import Projection, ProjectionOptions, project
from skald_core.loop.records import Call, Message
from skald_core.loop.scripted import ScriptedProvider, call, calls, fail, text
from skald_core.loop.sqlite_store import SqliteStore
from skald_core.loop.store import Store
from skald_core.loop.tools import Tool, ToolContext, ToolOutput, ToolRegistry, tool
from skald_core.loop.types import (
    CallId,
    FrameId,
    MessageId,
    ModelInfo,
    ModelRequest,
    ResultPart,
    ToolLoading,
    ToolSpec,
    WireMessage,
)
from tests.loop.helpers import Plain, collect, make, pairs, path, result, selector

F = FrameId(1)
MODES: tuple[ToolLoading, ...] = ("inline", "reference", "system")
INFO = {mode: ModelInfo(tool_loading=mode) for mode in MODES}


def spec(name: str) -> ToolSpec:
    return ToolSpec(name, f"Does {name}.", {"type": "object", "properties": {}})


DEFERRED = {name: spec(name) for name in ("mail", "maps", "music")}


def done(number: int, name: str, *activates: str, state: Any = "done") -> Call:
    extras = {"activates": list(activates)} if activates else {}
    return Call(CallId(number), MessageId(0), 0, f"u{number}", name, "{}", state, result=f"r{number}", extras=extras)


def history(*rounds: tuple[Call, ...]) -> list[Message]:
    """A question, then one message for each round, then an answer."""
    made = [Message(MessageId(1), F, None, "user", "q")]
    made += (Message(MessageId(n), F, None, "assistant", "", calls=found) for n, found in enumerate(rounds, 2))
    return [*made, Message(MessageId(99), F, None, "assistant", "done")]


def short(messages: tuple[WireMessage, ...]) -> list[str]:
    return [
        f"{m.role}:" + "".join(f" {p.id}→{','.join(p.tools)}" for p in m.parts if isinstance(p, ResultPart) and p.tools)
        + "".join(f" +{found.name}" for found in m.tools)
        for m in messages
    ]  # fmt: skip


# --- on the wire ---------------------------------------------------------------------------------------------------

ROUNDS = (
    (done(1, "look"), done(2, "find", "mail", "gone", "maps")),
    (done(3, "find", "maps"),),
    (done(4, "find", "music"),),
)


def test_inline_nothing_is_added_and_nobody_asks_for_the_tools() -> None:
    """The messages are those of a history that activated nothing; what is deferred is never looked at."""

    class Untouchable(Mapping[str, ToolSpec]):
        def _no(self, *_: object) -> NoReturn:
            raise AssertionError("the deferred tools were looked at")

        __getitem__ = _no
        __len__ = cast("Any", _no)

        def __iter__(self) -> Iterator[str]:
            self._no()

    plain = tuple(tuple(msgspec.structs.replace(c, extras={}) for c in found) for found in ROUNDS)
    made = project(history(*ROUNDS), info=INFO["inline"], deferred=Untouchable())
    assert made == project(history(*plain))
    cached = Projection(ProjectionOptions()).request(
        history(*ROUNDS), checkpoint=None, info=INFO["inline"], provider="", media={}, deferred=Untouchable()
    )
    assert cached == made


def test_by_reference_the_result_that_activated_names_them() -> None:
    """Each once, in the order they were named, and only those there are."""
    assert short(project(history(*ROUNDS), info=INFO["reference"], deferred=DEFERRED)) == [
        "user:", "assistant:", "tool: u2→mail,maps", "assistant:", "tool:", "assistant:", "tool: u4→music", "assistant:",
    ]  # fmt: skip


def test_a_configured_tool_carries_the_names_of_its_round() -> None:
    """Where there is no call of it, or none is configured, the first result that brought any does."""
    rounds = ((done(1, "a", "mail"), done(2, "find"), done(3, "b", "maps")), (done(4, "a"), done(5, "b", "music")))
    made = {
        name: short(project(history(*rounds), info=INFO["reference"], deferred=DEFERRED, options=options))
        for name, options in (
            ("find", ProjectionOptions(activation_tool="find")),
            ("", ProjectionOptions()),
        )
    }
    assert [line for line in made["find"] if "→" in line] == ["tool: u2→mail,maps", "tool: u5→music"]
    assert [line for line in made[""] if "→" in line] == ["tool: u1→mail,maps", "tool: u5→music"]


def test_by_message_a_system_message_with_tools_alone_follows_the_results() -> None:
    """Right after the group that activated them, without content."""
    made = project(history(*ROUNDS), info=INFO["system"], deferred=DEFERRED)
    assert short(made) == [
        "user:", "assistant:", "tool:", "system: +mail +maps", "assistant:", "tool:", "assistant:", "tool:",
        "system: +music", "assistant:",
    ]  # fmt: skip
    assert [m.parts for m in made if m.role == "system"] == [(), ()]
    assert made[3].tools == (DEFERRED["mail"], DEFERRED["maps"])


def test_the_host_may_say_how() -> None:
    """Its word goes before the model's."""
    options = ProjectionOptions(tool_loading="inline")
    assert project(history(*ROUNDS), info=INFO["system"], deferred=DEFERRED, options=options) == project(
        history(*ROUNDS), info=INFO["inline"]
    )


@pytest.mark.parametrize("state", ["failed", "rejected", "cancelled", "running", "awaiting"])
@pytest.mark.parametrize("mode", ["reference", "system"])
def test_only_a_call_that_succeeded_activates(mode: ToolLoading, state: str) -> None:
    made = project(history((done(1, "find", "mail", state=state),)), info=INFO[mode], deferred=DEFERRED)
    assert not [line for line in short(made) if "→" in line or "+" in line]


@pytest.mark.parametrize("wrong", ["mail", 7, [7, None], {"mail": 1}])
def test_damaged_notes_activate_nothing(wrong: Any) -> None:
    """What an import or another program left there is not trusted."""
    broken = msgspec.structs.replace(done(1, "find"), extras={"activates": wrong})
    assert not [
        line for line in short(project(history((broken,)), info=INFO["system"], deferred=DEFERRED)) if "+" in line
    ]


def test_what_a_request_offers() -> None:
    """Always first what is not deferred; then what is active, or all with a mark, or nothing more."""
    registry = ToolRegistry([Plain("look"), Plain("mail", deferred=True), Plain("find"), Plain("maps", deferred=True)])
    waiting = registry.deferred()
    assert list(waiting) == ["mail", "maps"]
    made = {mode: offered(registry, waiting, ("maps", "gone"), mode) for mode in MODES}
    assert [(s.name, s.defer_loading) for s in made["inline"]] == [("look", False), ("find", False), ("maps", False)]
    assert [(s.name, s.defer_loading) for s in made["reference"]] == [
        ("look", False), ("find", False), ("mail", True), ("maps", True),
    ]  # fmt: skip
    assert [s.name for s in made["system"]] == ["look", "find"]


def test_a_registry_of_nothing_but_deferred_tools_defers_none() -> None:
    """There would be no call that could activate them."""
    registry = ToolRegistry([Plain("mail", deferred=True), Plain("maps", deferred=True)])
    assert registry.deferred() == {}
    assert [s.name for s in offered(registry, {}, (), "reference")] == ["mail", "maps"]
    assert not any(s.defer_loading for s in offered(registry, {}, (), "reference"))


# --- any history ---------------------------------------------------------------------------------------------------

CALLS = st.lists(
    st.tuples(
        st.sampled_from(["find", "look"]),
        st.sampled_from(["done", "done", "failed", "running", "awaiting"]),
        st.lists(st.sampled_from([*DEFERRED, "gone"]), max_size=3),
    ),
    min_size=1,
    max_size=3,
)
ROUNDS_OF_CALLS = st.lists(CALLS, max_size=6)


def build(drawn: list[Any]) -> list[Message]:
    count = 0
    rounds: list[tuple[Call, ...]] = []
    for found in drawn:
        made = []
        for name, state, activates in found:
            count += 1
            made.append(done(count, name, *activates, state=state))
        rounds.append(tuple(made))
    return history(*rounds)


def without(messages: tuple[WireMessage, ...]) -> list[WireMessage]:
    """The messages without anything that loads tools."""
    return [
        msgspec.structs.replace(
            m, parts=tuple(msgspec.structs.replace(p, tools=()) if isinstance(p, ResultPart) else p for p in m.parts)
        )
        for m in messages
        if m.role != "system"
    ]


@given(ROUNDS_OF_CALLS, st.sampled_from(MODES), st.sampled_from(["", "find"]), st.none() | st.integers(0, 6))
def test_loading_breaks_no_rule(drawn: list[Any], mode: ToolLoading, anchor: str, window: int | None) -> None:
    """No call without its result, no result alone; each tool once; and but for the tools the wire is the inline one."""
    options = ProjectionOptions(activation_tool=anchor, window=window)
    made = project(build(drawn), options=options, info=INFO[mode], deferred=DEFERRED)
    bare = without(made)
    if bare:
        pairs(ModelRequest("m", (), tuple(bare)))
    assert bare == list(project(build(drawn), options=options))
    named = [n for m in made for p in m.parts if isinstance(p, ResultPart) for n in p.tools]
    named += [s.name for m in made for s in m.tools]
    assert len(named) == len(set(named))
    assert set(named) <= set(DEFERRED)
    assert mode != "inline" or not named
    for before, message in itertools.pairwise(made):
        assert message.role != "system" or (before.role == "tool" and message.tools and not message.parts)


@given(ROUNDS_OF_CALLS, st.sampled_from(MODES))
def test_what_was_sent_stays_as_it_was(drawn: list[Any], mode: ToolLoading) -> None:
    """A longer history only adds to the messages of a shorter one, so that a prompt cache keeps its prefix; the cache of
    the projection gives the same, and knows what is active."""
    messages = build([[(n, "done", a) for n, _, a in found] for found in drawn])[:-1]
    cache = Projection(ProjectionOptions())
    growing: list[Message] = []
    before: tuple[WireMessage, ...] = ()
    for message in messages:
        growing.append(message)
        made = project(growing, info=INFO[mode], deferred=DEFERRED)
        assert made[: len(before)] == before
        cached = cache.request(growing, checkpoint=None, info=INFO[mode], provider="", media={}, deferred=DEFERRED)
        assert cached == made
        before = made
    activated = dict.fromkeys(n for m in messages for c in m.calls for n in c.extras.get("activates", ()))
    assert list(cache.active) == list(activated)


# --- in a conversation ---------------------------------------------------------------------------------------------


class Find(Tool):
    """Activates what it is asked for."""

    name = "find"
    description = "Find tools."
    scope = "read"

    async def run(self, arguments: Any, ctx: ToolContext) -> ToolOutput:
        return ToolOutput("found", activates=tuple(arguments["names"]), is_error=bool(arguments.get("fail")))


def finding(*names: str, **more: Any) -> Any:
    return calls(call("find", {"names": list(names), **more}))


def tools(*extra: Tool) -> list[Tool]:
    return [Plain("mail", "sent", deferred=True), Find(), Plain("maps", deferred=True), *extra]


def declared(request: ModelRequest) -> list[str]:
    return [s.name + ("~" if s.defer_loading else "") for s in request.tools]


async def test_a_tool_is_offered_from_its_activation_on(store: Store) -> None:
    """Not before; and it is still there in the next turn."""
    provider = ScriptedProvider([finding("mail", "nothing"), calls(call("mail")), text("ok"), text("ok")])
    session = make(provider, *tools(), store=store).session("c")
    await collect(session.run("hi"))
    await collect(session.run("more"))
    assert [declared(r) for r in provider.requests] == [["find"], *[["find", "mail"]] * 3]
    assert (await path(store))[2].calls[0].result == "sent"
    assert (await path(store))[1].calls[0].extras == {"activates": ["mail", "nothing"]}


@pytest.mark.parametrize(("mode", "want"), [("reference", ["find", "mail~", "maps~"]), ("system", ["find"])])
async def test_the_tools_of_a_request_never_change(store: Store, mode: ToolLoading, want: list[str]) -> None:
    """Where the model is told in the conversation: what stands before the activation stays byte for byte."""
    provider = ScriptedProvider([finding("maps"), calls(call("maps")), text("ok")], info=INFO[mode])
    await collect(make(provider, *tools(), store=store).session("c").run("hi"))
    assert [declared(r) for r in provider.requests] == [want] * 3
    first, second, third = (r.messages for r in provider.requests)
    assert second[: len(first)] == first
    assert third[: len(second)] == second
    shown = short(third)
    assert ("tool: use_1→maps" in shown) if mode == "reference" else ("system: +maps" in shown)


async def test_a_call_written_as_text_may_be_of_an_active_tool(store: Store) -> None:
    """Although the request's own list does not have it."""
    written = json.dumps({"name": "maps", "arguments": {}})
    provider = ScriptedProvider([finding("maps"), text(written), text("ok")], info=INFO["system"])
    await collect(make(provider, *tools(), store=store).session("c").run("hi"))
    assert (await path(store))[2].calls[0].name == "maps"


async def test_a_restart_keeps_what_was_activated(tmp_path: Path) -> None:
    """It is read from the calls, not from memory."""
    for number in range(2):
        store = await SqliteStore.open(tmp_path / "x.db")
        provider = ScriptedProvider([finding("mail"), text("ok")] if number == 0 else [text("ok")])
        await collect(make(provider, *tools(), store=store).session("c").run("hi"))
        assert declared(provider.requests[-1]) == ["find", "mail"]
        await store.close()


async def test_a_branch_has_what_it_activated_itself(store: Store) -> None:
    """Another version of the message that led to the activation does not have the tool; going back does."""
    provider = ScriptedProvider([finding("mail"), text("one"), text("two"), text("three")])
    session = make(provider, *tools(), store=store).session("c")
    await collect(session.run("hi"))
    first, *_, last = await path(store)
    await collect(session.edit(first, "hello"))
    assert declared(provider.requests[-1]) == ["find"]
    await session.select(last.id)
    await collect(session.run("go on"))
    assert declared(provider.requests[-1]) == ["find", "mail"]


async def test_an_export_brings_it_along(store: Store) -> None:
    provider = ScriptedProvider([finding("mail"), text("one"), text("two")])
    agent = make(provider, *tools(), store=store)
    await collect(agent.session("c").run("hi"))
    await agent.session("d").import_(await agent.session("c").export())
    await collect(agent.session("d").run("go on"))
    assert declared(provider.requests[-1]) == ["find", "mail"]


async def test_what_a_summary_stands_for_has_to_be_activated_anew(store: Store) -> None:
    """The model is not shown the call any more. One that it makes from memory runs all the same, when the gate lets it."""

    class Everything:
        id = "everything"

        async def compact(self, context: Any) -> Any:
            return CompactionResult("They talked.", covered_up_to=context.messages[-2].id)

    provider = ScriptedProvider([finding("mail"), text("one"), calls(call("mail")), text("two")])
    session = make(provider, *tools(), store=store, compaction=Compaction(strategy=Everything())).session("c")
    await collect(session.run("hi"))
    assert await session.compact()
    await collect(session.run("more"))
    assert [declared(r) for r in provider.requests[-2:]] == [["find"], ["find"]]
    assert [c.result for m in await path(store) for c in m.calls] == ["found", "sent"]


async def test_another_model_is_told_its_own_way(store: Store) -> None:
    """A fallback in the middle of a turn."""
    one = ScriptedProvider([finding("mail"), fail(ServerError("down", status=503))], id="one", info=INFO["reference"])
    two = ScriptedProvider([text("ok")], id="two")
    registry = ToolRegistry(tools())

    async def profiles(conversation: str, agent: str) -> Profile:
        return Profile(tools=registry)

    agent = Agent(selector=selector(one, two), profiles=profiles, gate=AllowAll(), store=store)
    assert result(await collect(agent.session("c").run("hi"))).subtype == "success"
    assert declared(one.requests[-1]) == ["find", "mail~", "maps~"]
    assert declared(two.requests[-1]) == ["find", "mail"]
    assert "→" not in "".join(short(two.requests[-1].messages))


async def test_a_tool_that_is_gone_is_no_longer_referred_to(store: Store) -> None:
    """A plugin may be turned off; the API would refuse the name."""
    provider = ScriptedProvider([finding("mail"), text("ok"), text("ok")], info=INFO["reference"])
    registry = ToolRegistry(tools()[1:])
    remove = registry.register(Plain("mail", deferred=True))
    agent = Agent(provider=provider, model="m", tools=registry, gate=AllowAll(), store=store)
    await collect(agent.session("c").run("hi"))
    assert "tool: use_1→mail" in short(provider.requests[-1].messages)
    remove()
    await collect(agent.session("c").run("more"))
    assert "→" not in "".join(short(provider.requests[-1].messages))
    assert declared(provider.requests[-1]) == ["find", "maps~"]


async def test_a_result_that_is_an_error_activates_nothing(store: Store) -> None:
    provider = ScriptedProvider([finding("mail", fail=True), text("ok")])
    await collect(make(provider, *tools(), store=store).session("c").run("hi"))
    assert declared(provider.requests[-1]) == ["find"]
    assert (await path(store))[1].calls[0].extras == {}


def test_a_function_can_be_deferred() -> None:
    """As a decorator's option."""

    @tool(deferred=True, scope="read")
    async def stars(city: str) -> str:
        """Say which stars are up."""
        return city

    assert ToolRegistry([stars, Find()]).deferred() == {"stars": stars.spec()}
