"""What waits: held over a restart after a stop, never blocked by a refused neighbour; results of tasks come in once."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from skald_core.loop.errors import AbortError, HookError, ServerError
from skald_core.loop.events import AssistantEvent, ErrorEvent, ToolCallEndEvent, ToolCallStartEvent, UserEvent
from skald_core.loop.hooks import AddContext, Block, NoHooks, Prompt
from skald_core.loop.runner import Sent
from skald_core.loop.scripted import ScriptedProvider, call, calls, fail, text
from skald_core.loop.store import Store

from .helpers import Gated, collect, kinds, make, of, pairs, path, result, texts


class Refuses(NoHooks):
    """Refuses prompts that say so."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def user_prompt(self, prompt: Prompt) -> Block | AddContext | None:
        self.asked.append(prompt.content)
        return Block("not this") if "bad" in prompt.content else None


async def stopped_with_queue(store: Store) -> None:
    """Leave conversation ``c`` stopped by a person with two messages waiting."""
    reached = asyncio.Event()
    provider = ScriptedProvider([text("never", gate=asyncio.Event(), reached=reached)])
    session = make(provider, store=store).session("c")
    await session.send("first")
    await reached.wait()
    await session.send("second")
    await session.send("third")
    await session.stop("enough")


async def test_what_a_stop_holds_a_restart_does_not_run(store: Store) -> None:
    """After a restart held input still waits; the person's next message lets all of it go on, in order."""
    await stopped_with_queue(store)
    provider = ScriptedProvider(["2", "3", "4"])
    agent = make(provider, store=store)
    report = await agent.recover()
    assert (report.resumed, report.queued, agent.running()) == ([], [], ())
    session = agent.session("c")
    assert [(item.content, item.held) for item in await session.queue()] == [("second", True), ("third", True)]
    sent = await session.send("fourth")
    assert sent.queued_id is not None
    await session.wait()
    provider.assert_complete()
    asked = [m.content for m in await path(store) if m.role == "user"]
    assert asked == ["first", "second", "third", "fourth"]


async def test_a_failed_turn_holds_its_queue_too(store: Store) -> None:
    """Also after a failure nothing runs by itself, here or after a restart."""
    slow = Gated("slow")
    provider = ScriptedProvider([calls(call("slow")), fail(ServerError("down"))])
    session = make(provider, slow, store=store).session("c")
    await session.send("first")
    await slow.entered.wait()
    await session.send("second")
    slow.go.set()
    await session.wait()
    assert [item.held for item in await session.queue()] == [True]
    again = make(ScriptedProvider(["2"]), store=store)
    assert (await again.recover()).queued == []
    again.session("c").run_queue()
    await again.session("c").wait()
    assert [m.content for m in await path(store) if m.role == "user"] == ["first", "second"]


async def test_an_unstopped_queue_goes_on_after_a_restart_when_one_was_let_go(store: Store) -> None:
    """Letting the queue go lets all of it go: a crash in the middle does not hold the rest again."""
    await stopped_with_queue(store)
    reached = asyncio.Event()
    agent = make(ScriptedProvider([text("cut", gate=asyncio.Event(), reached=reached)]), store=store)
    agent.session("c").run_queue()
    await reached.wait()
    await agent.close()
    again = make(ScriptedProvider(["2", "3"]), store=store)
    report = await again.recover()
    assert report.queued == ["c"]
    await again.session("c").wait()
    assert [m.content for m in await path(store) if m.role == "user"] == ["first", "second", "third"]


async def test_a_refused_queued_message_does_not_hold_those_behind_it(store: Store) -> None:
    """The hook's refusal is told as an error; the next message gets its turn all the same."""
    slow = Gated("slow")
    hooks = Refuses()
    provider = ScriptedProvider([calls(call("slow")), text("1"), text("3")])
    session = make(provider, slow, store=store, hooks=hooks).session("c")
    seen = session.subscribe()
    await session.send("one")
    await slow.entered.wait()
    await session.send("bad two")
    await session.send("three")
    slow.go.set()
    await session.wait()
    seen.close()
    (error,) = of(await collect(seen), ErrorEvent)
    assert (error.kind, error.message) == (HookError.kind, "not this")
    assert [m.content for m in await path(store) if m.role == "user"] == ["one", "three"]
    assert await session.queue() == ()
    assert hooks.asked == ["one", "bad two", "three"]


async def test_a_finished_task_comes_in_as_a_completed_call(store: Store) -> None:
    """A synthetic assistant message with one finished ``task_completed`` call; then the agent goes on, once."""
    provider = ScriptedProvider([text("hi"), text("the report is done")])
    session = make(provider, store=store).session("c")
    await collect(session.run("start it"))
    seen = session.subscribe()
    sent = await session.deliver_result("t7", "42 pages", title="Report")
    assert sent.queued_id is not None
    await session.wait()
    again = await session.deliver_result("t7", "42 pages", title="Report")
    await session.wait()
    seen.close()
    events = await collect(seen)
    assert again == Sent(again.message_id, existing=True)
    provider.assert_complete()
    shown = [tag for tag in kinds(events) if tag != "queue_changed"]
    assert shown == [
        "system", "assistant", "tool_call_start", "tool_call_end", "user", "round_started", "assistant", "result",
    ]  # fmt: skip
    (start,), (end,) = of(events, ToolCallStartEvent), of(events, ToolCallEndEvent)
    assert (start.tool_name, start.input) == ("task_completed", {"task_id": "t7"})
    brought = {"task_id": "t7", "title": "Report", "result": "42 pages"}
    assert msgspec.json.decode(end.result) == brought
    assert [event.subtype for event in of(events, UserEvent)] == ["tool_result"]
    message = (await path(store))[2]
    assert (message.synthetic, message.role, message.id) == (
        True,
        "assistant",
        of(events, AssistantEvent)[0].message_id,
    )
    (done,) = message.calls
    assert (done.state, done.result_kind, msgspec.json.decode(done.result or "")) == ("done", "json", brought)
    pairs(provider.requests[1])
    assert texts(provider.requests[1])[-1].startswith("tool:")
    assert again.message_id == message.id


async def test_a_result_for_a_busy_conversation_waits_for_the_turn_to_end(store: Store) -> None:
    """It never breaks into a running turn's calls."""
    slow = Gated("slow")
    provider = ScriptedProvider([calls(call("slow")), text("one"), text("two")])
    session = make(provider, slow, store=store).session("c")
    stream = session.run("hi")
    await slow.entered.wait()
    await session.deliver_result("t1", "r")
    slow.go.set()
    assert result(await collect(stream)).final_text == "one"
    await session.wait()
    for request in provider.requests:
        pairs(request)
    assert [m.content for m in await path(store)] == ["hi", "", "one", "", "two"]


async def test_a_result_as_the_very_first_thing_is_well_formed(store: Store) -> None:
    """A conversation may begin with a delivered result."""
    provider = ScriptedProvider(["noted"])
    session = make(provider, store=store).session("c")
    await session.deliver_result("t1", "r")
    await session.wait()
    pairs(provider.requests[0])


async def test_a_delivery_leaves_held_messages_alone(store: Store) -> None:
    """A task that ends does not set going what a person stopped."""
    await stopped_with_queue(store)
    provider = ScriptedProvider(["noted", "seen"])
    session = make(provider, store=store).session("c")
    await session.deliver_result("t1", "r")
    await session.wait()
    await session.deliver("news")
    await session.wait()
    provider.assert_complete()
    assert [item.content for item in await session.queue() if item.held] == ["second", "third"]


async def test_results_survive_a_restart(store: Store) -> None:
    """Delivered while a turn ran, lost with the process, answered after the restart."""
    slow = Gated("slow", restart_hint="rerun")
    agent = make(ScriptedProvider([calls(call("slow"))]), slow, store=store)
    await agent.session("c").send("hi")
    await slow.entered.wait()
    await agent.session("c").deliver_result("t1", "r")
    await agent.close()
    slow.go.set()
    provider = ScriptedProvider(["one", "two"])
    again = make(provider, slow, store=store)
    await again.recover()
    await again.session("c").wait()
    assert [m.content for m in await path(store)] == ["hi", "", "one", "", "two"]


async def test_steering_that_meets_the_end_of_its_turn_is_answered(store: Store) -> None:
    """Whenever the turn ends while steer() is on its way, it raises; it never waits for ever."""
    for yields in range(12):
        reached, go = asyncio.Event(), asyncio.Event()
        session = make(ScriptedProvider([text("x", gate=go, reached=reached)]), store=store).session(f"c{yields}")
        stream = session.run("hi")
        await reached.wait()
        told = asyncio.create_task(session.steer("too late?"))
        for _ in range(yields):
            await asyncio.sleep(0)
        session.abort()
        with pytest.raises(AbortError):
            await told
        await collect(stream)
        assert await session.queue() == ()
