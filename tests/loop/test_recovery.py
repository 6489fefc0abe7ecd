"""Restarts: every case of what a crash can leave, and a sweep that dies after each single write."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from skald_core.loop.agent import Agent
from skald_core.loop.answer import DRAFT_CHARS
from skald_core.loop.delegate import DelegateTool
from skald_core.loop.errors import ConfigError
from skald_core.loop.events import AssistantEvent, SubagentEvent, SystemEvent, ToolCallEndEvent
from skald_core.loop.gate import Allow, AllowAll, Suspend
from skald_core.loop.memory_store import MemoryStore
from skald_core.loop.ops import AppendMessage, Enqueue, NewCall, OpenFrame, OpenRun
from skald_core.loop.profile import Profile
from skald_core.loop.records import Message
from skald_core.loop.scripted import ScriptedProvider, calls, text
from skald_core.loop.scripted import call as made_call
from skald_core.loop.store import Store
from skald_core.loop.tools import Tool, ToolRegistry
from skald_core.loop.types import ConversationId, ModelRequest, ResultPart
from tests.loop.helpers import AskGate, Frozen, Gated, Plain, collect, make, of, pairs, path, result, texts

C = ConversationId("c")


async def crash_in(agent: Agent, conversation: str, ready: asyncio.Event, prompt: str = "hi") -> None:
    """Run until ``ready``, then end as a crash does: nothing more is written."""
    agent.session(conversation).run(prompt)
    await ready.wait()
    await agent.close()


async def test_c3a_a_cut_stream_keeps_its_text_and_offers_a_retry(store: Store) -> None:
    """C3 (a): the text on disk is kept, marked interrupted; nothing is running; retry answers anew."""
    reached = asyncio.Event()
    long = "x" * DRAFT_CHARS
    provider = ScriptedProvider([text(long, "y", gate=asyncio.Event(), gate_after=1, reached=reached)])
    await crash_in(make(provider, store=store), "c", reached)
    again = ScriptedProvider([text("whole")])
    agent = make(again, store=store)
    report = await agent.recover()
    assert (report.partial, report.resumed) == ([C], [])
    partial = (await path(store))[1]
    assert (partial.content, partial.status, partial.metadata) == (long, "partial", {"interrupted": True})
    assert await store.unfinished() == ()
    assert agent.running() == ()
    assert result(await collect(await agent.session("c").retry())).final_text == "whole"
    assert (await agent.recover()).partial == []


async def test_c3b_an_interrupted_call_gets_a_result_and_the_turn_goes_on(store: Store) -> None:
    """C3 (b): a call that must not be repeated is recorded as interrupted, and not run again."""
    slow = Gated("slow")
    await crash_in(make(ScriptedProvider([calls(made_call("slow"))]), slow, store=store), "c", slow.entered)
    assert [c.state for c in await store.open_calls(C)] == ["running"]
    provider = ScriptedProvider([text("noted")])
    agent = make(provider, slow, store=store)
    report = await agent.recover()
    assert (report.calls_interrupted, report.calls_rerun) == (1, 0)
    assert await store.open_calls(C) == (), "the result is on disk when recover returns"
    await agent.session("c").wait()
    done = (await path(store))[1].calls[0]
    assert (done.state, done.result_kind) == ("failed", "interrupted")
    assert len(slow.runs) == 1
    assert (await path(store))[-1].content == "noted"
    pairs(provider.requests[0])


async def test_a_repeatable_call_runs_again_exactly_once(store: Store) -> None:
    slow = Gated("slow", "fine", restart_hint="rerun")
    await crash_in(make(ScriptedProvider([calls(made_call("slow"))]), slow, store=store), "c", slow.entered)
    again = Plain("slow", "fine", restart_hint="rerun")
    agent = make(ScriptedProvider([text("ok")]), again, store=store)
    report = await agent.recover()
    await agent.session("c").wait()
    assert (report.calls_rerun, len(again.runs)) == (1, 1)
    assert [m.content for m in await path(store)] == ["hi", "", "ok"]


async def test_c3c_a_waiting_call_is_asked_again_under_the_same_id(store: Store) -> None:
    """C3 (c): the approval is raised again and works."""
    gate = AskGate("write")
    tool = Plain("write", "written")
    await crash_in(make(ScriptedProvider([calls(made_call("write"))]), tool, gate=gate, store=store), "c", gate.reached)
    (waiting,) = await store.open_calls(C)
    assert waiting.state == "awaiting"
    second = AskGate("write", answer=Allow())
    agent = make(ScriptedProvider([text("ok")]), tool, gate=second, store=store)
    report = await agent.recover()
    await agent.session("c").wait()
    assert report.calls_waiting == 1
    assert gate.asked == second.asked == [waiting.id]
    assert (await path(store))[1].calls[0].result == "written"


async def test_a_suspended_call_is_asked_again_after_a_restart(store: Store) -> None:
    tool = Plain("write")
    first = make(
        ScriptedProvider([calls(made_call("write"))]), tool, gate=AskGate("write", answer=Suspend()), store=store
    )
    assert result(await collect(first.session("c").run("hi"))).subtype == "suspended"
    await first.close()
    agent = make(ScriptedProvider([text("ok")]), tool, store=store)
    await agent.recover()
    await agent.session("c").wait()
    assert len(tool.runs) == 1


async def test_c7_queued_messages_survive_a_restart(store: Store) -> None:
    """C7: two messages wait behind a turn that ended right before the restart: each answered once, in order."""
    await store.apply([OpenFrame(C), AppendMessage(None, "user", "1"), AppendMessage(None, "assistant", "one")])
    await store.apply([Enqueue(C, "2"), Enqueue(C, "3")])
    agent = make(ScriptedProvider([text("two"), text("three")]), store=store)
    report = await agent.recover()
    await agent.session("c").wait()
    assert report.queued == [C]
    assert [m.content for m in await path(store)] == ["1", "one", "2", "two", "3", "three"]


async def test_a_stored_answer_is_not_asked_for_again(store: Store) -> None:
    """The process died after the answer was stored and before the turn was closed."""
    await store.apply(
        [OpenFrame(C), AppendMessage(None, "user", "q"), AppendMessage(None, "assistant", "a"), OpenRun("r", C, None)]
    )
    provider = ScriptedProvider()
    agent = make(provider, store=store)
    assert (await agent.recover()).resumed == [C]
    await agent.session("c").wait()
    assert provider.requests == []
    assert await store.unfinished() == ()


async def test_an_unanswered_message_is_answered_after_a_restart(store: Store) -> None:
    await store.apply([OpenFrame(C), AppendMessage(None, "user", "q"), OpenRun("r", C, None)])
    agent = make(ScriptedProvider([text("a")]), store=store)
    seen: list[Any] = []
    agent.on_event(seen.append)
    await agent.recover()
    await agent.session("c").wait()
    assert [m.content for m in await path(store)] == ["q", "a"]
    assert of(seen, SystemEvent)[0].resumed


async def test_recovery_leaves_live_turns_alone_and_can_only_repair(store: Store) -> None:
    slow = Gated("slow")
    agent = make(ScriptedProvider([calls(made_call("slow")), text("ok")]), slow, store=store)
    session = agent.session("c")
    stream = session.run("hi")
    await slow.entered.wait()
    report = await agent.recover()
    assert (report.resumed, report.calls_interrupted) == ([], 0)
    slow.go.set()
    assert result(await collect(stream)).subtype == "success"


async def test_recovery_can_only_repair(store: Store) -> None:
    await store.apply([OpenFrame(C), AppendMessage(None, "user", "q"), OpenRun("r", C, None)])
    agent = make(ScriptedProvider(), store=store)
    assert (await agent.recover(resume=False)).resumed == [C]
    assert agent.running() == ()


async def test_a_new_message_on_an_unrecovered_chat_repairs_it_first(store: Store) -> None:
    """A host that forgot to recover still sends well-formed requests."""
    await store.apply(
        [
            OpenFrame(C),
            AppendMessage(None, "user", "q"),
            AppendMessage(None, "assistant", "", calls=(NewCall("t", "{}"),)),
            OpenRun("r", C, None),
        ]
    )
    provider = ScriptedProvider([text("ok")])
    await collect(make(provider, store=store).session("c").run("hello?"))
    pairs(provider.requests[0])
    assert (await path(store))[1].calls[0].result_kind == "interrupted"


# --- sub-agents --------------------------------------------------------------------------------------------------


def with_helper(provider: ScriptedProvider, child_tools: list[Tool], store: Store, **options: Any) -> Agent:
    """An agent that may delegate to 'helper', which has its own prompt, tools and model pin."""
    own = Profile(tools=ToolRegistry([DelegateTool({"helper": "helps"})]), system="boss")
    helper = Profile(agent="helper", tools=ToolRegistry(child_tools), system="helper")

    async def profiles(conversation: ConversationId, agent: str) -> Profile:
        if agent not in ("", "helper"):
            raise ConfigError(f"no agent {agent!r}")
        return helper if agent else own

    return Agent(
        provider=provider, model="m", profiles=profiles, gate=options.pop("gate", AllowAll()), store=store, **options
    )


def delegate(prompt: str = "do it", **more: Any) -> Any:
    return made_call("execute_subtask", {"agent_id": "helper", "prompt": prompt, **more})


async def test_a_sub_agents_answer_is_the_calls_result(store: Store) -> None:
    provider = ScriptedProvider([calls(delegate()), text("child says"), text("boss says")])
    events = await collect(with_helper(provider, [], store).session("c").run("hi"))
    call = (await path(store))[1].calls[0]
    assert call.result == "child says"
    (child,) = await store.child_frames(call.id)
    assert (child.active, child.agent, child.depth, child.parent_call) == (False, "helper", 1, call.id)
    assert [b.text for b in provider.requests[1].system] == ["helper"]
    assert texts(provider.requests[1]) == ["user: do it"]
    inner = [e.event for e in of(events, SubagentEvent)]
    assert isinstance(inner[0], SystemEvent)
    assert inner[0].depth == 1
    assert result(inner).final_text == "child says"
    assert result(events).total_usage.input_tokens == 30, "a sub-agent's usage counts for the turn"


async def test_two_sub_agents_work_at_once(store: Store) -> None:
    def then(request: ModelRequest) -> Any:
        said = texts(request)
        return text("both done") if any("tool:" in s for s in said) else text(f"did {said[0][6:]}")

    provider = ScriptedProvider([calls(delegate("A"), delegate("B"))], then=then)
    await collect(with_helper(provider, [], store).session("c").run("hi"))
    assert [c.result for c in (await path(store))[1].calls] == ["did A", "did B"]


async def test_delegation_is_bounded(store: Store) -> None:
    """Unknown agents, calls to itself, too deep a nesting and async work without an executor are errors, not crashes."""
    own = Profile(agent="same", tools=ToolRegistry([DelegateTool({"same": "me", "gone": "?"})]))

    async def profiles(conversation: ConversationId, agent: str) -> Profile:
        if agent == "gone":
            raise ConfigError("no agent 'gone'")
        return own

    provider = ScriptedProvider(
        [
            calls(
                made_call("execute_subtask", {"agent_id": "same", "prompt": "x"}),
                made_call("execute_subtask", {"agent_id": "gone", "prompt": "x"}),
                made_call("execute_subtask", {"agent_id": "same", "prompt": "x", "mode": "async"}),
            ),
            text("ok"),
        ]
    )
    agent = Agent(provider=provider, model="m", profiles=profiles, gate=AllowAll(), store=store)
    events = await collect(agent.session("c").run("hi"))
    ends = [e.result for e in sorted(of(events, ToolCallEndEvent), key=lambda e: e.call_id)]
    assert "cannot call itself" in ends[0]
    assert "no agent 'gone'" in ends[1]
    assert "background" in ends[2]


async def test_stopping_reaches_a_sub_agent(store: Store) -> None:
    slow = Gated("slow")
    provider = ScriptedProvider([calls(delegate()), calls(made_call("slow"))])
    agent = with_helper(provider, [slow], store)
    session = agent.session("c")
    stream = session.run("hi")
    await slow.entered.wait()
    await session.stop()
    events = await collect(stream)
    assert result(events).subtype == "aborted"
    call = (await path(store))[1].calls[0]
    assert call.state == "cancelled"
    (child,) = await store.child_frames(call.id)
    assert not child.active
    page = await store.frame_history(child.id)
    assert page.items[1].message.calls[0].state == "cancelled"
    assert await store.unfinished() == ()


async def test_an_interrupted_sub_agent_finishes_as_itself(store: Store) -> None:
    """It keeps its frame, prompt and tools; its parent then goes on."""
    slow = Gated("slow")
    provider = ScriptedProvider([calls(delegate()), calls(made_call("slow"))])
    await crash_in(with_helper(provider, [slow], store), "c", slow.entered)
    again = ScriptedProvider([text("child done"), text("boss done")])
    agent = with_helper(again, [slow], store)
    report = await agent.recover()
    await agent.session("c").wait()
    assert report.calls_interrupted == 1
    assert [b.text for b in again.requests[0].system] == ["helper"]
    pairs(again.requests[0])
    call = (await path(store))[1].calls[0]
    assert call.result == "child done"
    assert len(await store.child_frames(call.id)) == 1
    assert (await path(store))[-1].content == "boss done"
    assert await store.unfinished() == ()


async def test_a_sub_agents_approval_is_raised_again(store: Store) -> None:
    gate = AskGate("write")
    tool = Plain("write", "written")
    provider = ScriptedProvider([calls(delegate()), calls(made_call("write"))])
    await crash_in(with_helper(provider, [tool], store, gate=gate), "c", gate.reached)
    second = AskGate("write", answer=Allow())
    agent = with_helper(ScriptedProvider([text("child"), text("boss")]), [tool], store, gate=second)
    await agent.recover()
    await agent.session("c").wait()
    assert gate.asked == second.asked
    assert len(tool.runs) == 1
    assert (await path(store))[-1].content == "boss"


async def test_parallel_sub_agents_are_all_taken_up(store: Store) -> None:
    """An interrupted batch of sub-agents: each goes on in its own frame."""
    slow = Gated("slow")
    both = asyncio.Event()

    def first(request: ModelRequest) -> Any:
        return calls(made_call("slow"))

    async def count(arguments: Any, ctx: Any) -> str:
        slow.runs.append(arguments)
        if len(slow.runs) == 2:
            both.set()
        await slow.go.wait()
        return ""

    slow.run = count  # type: ignore[method-assign,assignment]
    await crash_in(
        with_helper(ScriptedProvider([calls(delegate("A"), delegate("B"))], then=first), [slow], store), "c", both
    )

    def then(request: ModelRequest) -> Any:
        return text("all done" if any("execute_subtask" in s for s in texts(request)) else "one done")

    agent = with_helper(ScriptedProvider(then=then), [slow], store)
    report = await agent.recover()
    await agent.session("c").wait()
    assert (report.calls_interrupted, report.calls_rerun) == (2, 2)
    assert [c.result for c in (await path(store))[1].calls] == ["one done", "one done"]
    assert (await path(store))[-1].content == "all done"


# --- the sweep ---------------------------------------------------------------------------------------------------


class Once(Plain):
    """Must not run twice for the same arguments."""


def script(request: ModelRequest) -> Any:
    """What the model says depends only on what it sees, so a restart changes nothing."""
    said = texts(request)
    results = sum(len([p for p in m.parts if isinstance(p, ResultPart)]) for m in request.messages)
    if [b.text for b in request.system] == ["helper"]:
        return calls(made_call("look", {"n": 9})) if results == 0 else text("child answer")
    if any("second question" in s for s in said):
        return text("second answer")
    if results == 0:
        return calls(made_call("look", {"n": 1}), made_call("look", {"n": 2}), say="looking")
    if results == 2:
        return calls(made_call("write", {"n": 3}), made_call("once", {"n": 4}))
    if results == 4:
        return calls(made_call("execute_subtask", {"agent_id": "helper", "prompt": "help"}))
    return text("first answer")


def sweep_agent(store: Store, once: Once, gate: AskGate) -> Agent:
    look = Plain("look", "seen", parallel_safe=True, restart_hint="rerun")
    write = Plain("write", "written", restart_hint="rerun")
    own = Profile(tools=ToolRegistry([look, write, once, DelegateTool({"helper": "helps"})]), system="boss")
    helper = Profile(agent="helper", tools=ToolRegistry([look]), system="helper")

    async def profiles(conversation: ConversationId, agent: str) -> Profile:
        return helper if agent else own

    return Agent(provider=ScriptedProvider(then=script), model="m", profiles=profiles, gate=gate, store=store)


def shape(messages: list[Message]) -> list[Any]:
    """A history without ids and times; an interrupted result counts as the one it stands for."""
    return [
        (
            m.role,
            m.content,
            m.status,
            [(c.name, c.state if c.result_kind != "interrupted" else "done") for c in m.calls],
        )
        for m in messages
    ]


async def drive(store: Any, once: Once) -> None:
    session = sweep_agent(store, once, AskGate("write", answer=Allow())).session("c")
    await session.send("first question", client_id="1")
    await session.send("second question", client_id="2")
    await session.wait()


@pytest.mark.parametrize("kept", [False, True], ids=["write lost", "write kept"])
async def test_dying_at_every_single_write_loses_and_repeats_nothing(kept: bool) -> None:
    """Whatever write is the last: after a restart the same history comes out, calls answered, nothing run twice."""
    whole = Frozen(MemoryStore(), 10**6)
    await drive(whole, Once("once", "done"))
    wanted = shape(await path(whole))  # type: ignore[arg-type]  # behaves as a store
    assert len(wanted) == 7
    assert whole.writes > 10
    for point in range(whole.writes):
        store, once = MemoryStore(), Once("once", "done")
        frozen = Frozen(store, point, kept=kept)
        task = asyncio.create_task(drive(frozen, once))
        await frozen.dead.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for _ in range(3):
            for left in asyncio.all_tasks() - {asyncio.current_task()}:
                left.cancel()
            await asyncio.sleep(0)
        before = len(once.runs)
        agent = sweep_agent(store, once, AskGate("write", answer=Allow()))
        requests = agent._services.selector._handles[0].provider.requests  # type: ignore[attr-defined]
        await agent.recover()
        await agent.session("c").wait()
        # The client never saw an acknowledgement, so it sends again.
        for content, client_id in (("first question", "1"), ("second question", "2")):
            await agent.session("c").send(content, client_id=client_id)
            await agent.session("c").wait()
        assert shape(await path(store)) == wanted, f"killed at write {point}"
        assert len(once.runs) <= 1, f"run twice when killed at write {point} ({before} before)"
        assert await store.unfinished() == ()
        for request in requests:
            pairs(request)


async def test_events_of_a_resumed_turn_are_complete(store: Store) -> None:
    slow = Gated("slow", restart_hint="rerun")
    await crash_in(make(ScriptedProvider([calls(made_call("slow"))]), slow, store=store), "c", slow.entered)
    agent = make(ScriptedProvider([text("ok")]), Plain("slow", restart_hint="rerun"), store=store)
    seen: list[Any] = []
    agent.on_event(seen.append)
    await agent.recover()
    await agent.session("c").wait()
    assert of(seen, SystemEvent)[0].resumed
    assert len(of(seen, ToolCallEndEvent)) == 1
    assert of(seen, AssistantEvent)[-1].final
    assert result(seen).subtype == "success"
