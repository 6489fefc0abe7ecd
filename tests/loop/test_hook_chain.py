"""Several hooks as one: who is asked, in which order, and what a failing one means."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from skald_core.loop.errors import ConfigError
from skald_core.loop.events import HookErrorEvent, PermissionRequestEvent, ToolCallStartEvent, UserEvent
from skald_core.loop.gate import Allow, Deny, PendingCall
from skald_core.loop.hook_chain import Hook, HookChain
from skald_core.loop.hooks import AddContext, Block, MustAsk, NoHooks, Prompt, Rewrite, Stopping
from skald_core.loop.profile import Limits
from skald_core.loop.scripted import ScriptedProvider, call, calls, text
from skald_core.loop.store import Store
from skald_core.loop.tools import ToolOutput, tool
from skald_core.loop.types import ConversationId

from .helpers import AskGate, Plain, collect, make, of, path, result, texts


class Says(NoHooks):
    """Gives one answer about every call and notes which it saw."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.saw: list[dict[str, Any]] = []

    async def before_tool(self, call: PendingCall) -> Any:
        self.saw.append(call.raw)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Adds(NoHooks):
    """Adds a text wherever a hook may, or fails everywhere."""

    def __init__(self, added: str | Exception | None) -> None:
        self.added = added

    def _add(self) -> str | None:
        if isinstance(self.added, Exception):
            raise self.added
        return self.added

    async def after_tool(self, call: PendingCall, output: ToolOutput, duration_ms: int) -> str | None:
        return self._add()

    async def user_prompt(self, prompt: Prompt) -> Block | AddContext | None:
        added = self._add()
        return AddContext(added) if added is not None else None

    async def stop(self, stopping: Stopping) -> str | None:
        return self._add() if stopping.continued == 0 else None

    async def before_compaction(self, *about: Any) -> None:
        self._add()


@tool(scope="read")
async def double(n: int) -> str:
    """Double a number."""
    return str(2 * n)


async def played(store: Store, *hooks: Any, gate: Any = None, name: str = "double", arguments: Any = None) -> list[Any]:
    """The events of a turn with one call, with these hooks."""
    provider = ScriptedProvider([calls(call(name, arguments or {"n": 1})), *[text("ok")] * 3])
    options = {"gate": gate} if gate is not None else {}
    tools = [double] if name == "double" else [Plain(name)]
    agent = make(provider, *tools, hooks=HookChain(*hooks), store=store, **options)
    return await collect(agent.session("c").run("hi"))


async def outcome(store: Store) -> tuple[str, str | None]:
    made = next(m for m in await path(store) if m.calls).calls[0]
    return made.state, made.result


# --- which hooks are asked ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("matcher", "name", "seen"),
    [
        ("*", "Write", True),
        ("Write", "Write", True),
        ("Write", "write", False),
        ("Write", "WriteAll", False),
        ("Wr*", "WriteAll", True),
        ("mcp__*", "mcp__files__read", True),
        ("mcp__*", "read", False),
    ],
)
async def test_matchers(store: Store, matcher: str, name: str, seen: bool) -> None:
    """An exact name, or a pattern with a star; upper and lower case are told apart."""
    hook = Says()
    await played(store, Hook(hook, matcher=matcher), name=name)
    assert bool(hook.saw) is seen


@pytest.mark.parametrize("seconds", [0, -5])
def test_times_must_be_above_zero(seconds: float) -> None:
    with pytest.raises(ConfigError, match="above zero"):
        Hook(NoHooks(), seconds=seconds)


@pytest.mark.parametrize("matcher", [3, "", None])
def test_matchers_are_text(matcher: Any) -> None:
    with pytest.raises(ConfigError, match="matcher"):
        Hook(NoHooks(), matcher=matcher)


def test_an_object_without_hooks_is_refused() -> None:
    """Here and where an Agent is made."""

    class Half:
        async def before_tool(self, call: PendingCall) -> None:
            return None

    with pytest.raises(ConfigError, match="after_tool"):
        HookChain(Half())  # type: ignore[arg-type]  # what is tested
    with pytest.raises(ConfigError, match="NoHooks"):
        make(ScriptedProvider(), hooks=Half())


def test_a_chain_of_nothing_is_false() -> None:
    assert not HookChain()
    assert not HookChain(NoHooks())
    assert HookChain(Says())


# --- calls -------------------------------------------------------------------------------------------------------


async def test_no_opinion_leaves_it_to_the_gate_and_all_are_asked_in_order(store: Store) -> None:
    first, second = Says(), Says()
    await played(store, first, second)
    assert (first.saw, second.saw) == ([{"n": 1}], [{"n": 1}])
    assert await outcome(store) == ("done", "2")


async def test_a_denial_ends_the_chain(store: Store) -> None:
    """The tool does not run, no result hook sees it, and nobody is asked."""
    after = Says()
    gate = AskGate("double", answer=Allow())
    events = await played(store, Says(Deny("not today")), after, gate=gate)
    assert await outcome(store) == ("rejected", "not today")
    assert (after.saw, gate.asked) == ([], [])
    assert of(events, PermissionRequestEvent) == []


async def test_must_ask_outranks_allow(store: Store) -> None:
    """Whichever comes first; the person's answer counts."""
    for hooks in ((Says(Allow()), Says(MustAsk("look"))), (Says(MustAsk("look")), Says(Allow()))):
        gate = AskGate(answer=Deny("no"))
        events = await played(store, *hooks, gate=gate)
        assert len(gate.asked) == 1
        assert [view.reason for event in of(events, PermissionRequestEvent) for view in event.requests] == ["look"]


async def test_allow_spares_the_question_but_not_the_denial(store: Store) -> None:
    """What the gate would ask runs at once; what it denies stays denied."""
    gate = AskGate("double", answer=Deny("no"))
    await played(store, Says(Allow()), gate=gate)
    assert (gate.asked, await outcome(store)) == ([], ("done", "2"))


async def test_allow_does_not_outvote_a_gate(store: Store) -> None:
    class No(AskGate):
        async def judge(self, calls: Any) -> Any:
            return [Deny("never") for _ in calls]

    await played(store, Says(Allow()), gate=No())
    assert await outcome(store) == ("rejected", "never")


async def test_rewrites_chain_and_reach_everything_after(store: Store) -> None:
    """A later hook, the question, the start event and the tool all see what the hooks made of the call."""
    later = Says(MustAsk("look", {"n": 20}))
    last = Says()
    gate = AskGate(answer=Allow())
    events = await played(store, Says(Rewrite({"n": 10})), later, last, gate=gate)
    assert (later.saw, last.saw) == ([{"n": 10}], [{"n": 20}])
    (asked,) = of(events, PermissionRequestEvent)
    assert (asked.requests[0].input, asked.requests[0].summary) == ({"n": 20}, "double(n=20)")
    assert [e.input for e in of(events, ToolCallStartEvent)] == [{"n": 20}]
    assert await outcome(store) == ("done", "40")


async def test_a_rewrite_the_tool_refuses_denies(store: Store) -> None:
    await played(store, Says(Rewrite({"n": "many"})))
    state, told = await outcome(store)
    assert state == "rejected"
    assert "the tool refuses" in (told or "")


@pytest.mark.parametrize("answer", [RuntimeError("boom"), "yes"])
async def test_a_hook_that_fails_or_babbles_denies(store: Store, answer: Any) -> None:
    """The failure is told with the call's id."""
    events = await played(store, Says(answer))
    assert (await outcome(store))[0] == "rejected"
    errors = of(events, HookErrorEvent)
    assert [bool(e.tool_use_id) for e in errors] == ([True] if isinstance(answer, Exception) else [])


async def test_a_hook_that_takes_too_long_denies(store: Store) -> None:
    """Its own limit counts before the agent's, and the event names the cause."""

    class Never(NoHooks):
        async def before_tool(self, call: PendingCall) -> Any:
            await asyncio.Event().wait()

    events = await played(store, Hook(Never(), seconds=0.01))
    assert (await outcome(store))[0] == "rejected"
    assert "timeout" in of(events, HookErrorEvent)[0].message


async def test_the_agents_limit_is_for_hooks_without_their_own(store: Store) -> None:
    class Never(NoHooks):
        async def stop(self, stopping: Stopping) -> str | None:
            await asyncio.Event().wait()
            return None

    agent = make(ScriptedProvider([text("ok")]), hooks=Never(), limits=Limits(hook_seconds=0.01), store=store)
    events = await collect(agent.session("c").run("hi"))
    assert [e.hook for e in of(events, HookErrorEvent)] == ["stop"]
    assert result(events).final_text == "ok"


# --- the others go on --------------------------------------------------------------------------------------------


async def test_results_get_what_every_working_hook_adds(store: Store) -> None:
    """Empty additions and a failing hook between them do not matter."""

    class After(Adds):
        async def user_prompt(self, prompt: Prompt) -> None:
            return None

        async def stop(self, stopping: Stopping) -> None:
            return None

    events = await played(store, After("one"), After(""), After(None), After(RuntimeError("boom")), After("two"))
    assert (await outcome(store))[1] == "2\n\n<reminder>\none\ntwo\n</reminder>"
    assert [e.hook for e in of(events, HookErrorEvent)] == ["after_tool"]


async def test_prompt_hooks_add_up_around_a_failing_one(store: Store) -> None:
    provider = ScriptedProvider([text("ok")] * 2)
    chain = HookChain(Adds("rain"), Adds(RuntimeError("boom")), Adds("wind"))
    events = await collect(make(provider, hooks=chain, store=store).session("c").run("hi"))
    assert "rain\n\nwind" in texts(provider.requests[0])[0]
    error = next(e for e in of(events, HookErrorEvent) if e.hook == "user_prompt")
    assert error.tool_use_id == ""


async def test_the_first_block_stops_the_prompt_hooks(store: Store) -> None:
    """Those after it are not asked, and nothing is stored."""

    class Blocks(NoHooks):
        async def user_prompt(self, prompt: Prompt) -> Block:
            return Block("no")

    class Asked(NoHooks):
        asked = False

        async def user_prompt(self, prompt: Prompt) -> None:
            self.asked = True

    last = Asked()
    session = make(ScriptedProvider(), hooks=HookChain(Blocks(), last), store=store).session("c")
    events = await collect(session.run("hi"))
    assert (result(events).subtype, last.asked) == ("error", False)
    assert await store.root(ConversationId("c")) is None


async def test_the_first_reason_to_go_on_wins_after_a_failing_hook(store: Store) -> None:
    """It counts as a round, and the model reads it."""
    provider = ScriptedProvider([text("one"), text("two")])
    chain = HookChain(Adds(RuntimeError("boom")), Adds("check it"), Adds("and that"))
    events = await collect(make(provider, hooks=chain, store=store).session("c").run("hi"))
    assert [e.content for e in of(events, UserEvent) if e.subtype == "stop_hook"] == ["check it"]
    assert result(events).rounds == 2


async def test_going_on_counts_toward_the_round_limit(store: Store) -> None:
    provider = ScriptedProvider([text("one")])
    agent = make(provider, hooks=Adds("again"), limits=Limits(rounds=1), store=store)
    assert result(await collect(agent.session("c").run("hi"))).subtype == "error"


async def test_a_failing_compaction_hook_is_only_told_of(store: Store) -> None:
    """Also when there is nothing to compact after all."""
    seen: list[Any] = []
    agent = make(ScriptedProvider([text("ok")] * 2), hooks=Adds(RuntimeError("boom")), store=store)
    session = agent.session("c")
    await collect(session.run("hi"))
    agent.on_event(seen.append)
    await session.compact()
    assert [e.hook for e in of(seen, HookErrorEvent)] == ["before_compaction"]
