"""Turns as a host sees them: rounds, tools, models, stops, steering, queues."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from skald_core.loop.errors import (
    AbortError,
    AuthError,
    ConfigError,
    ContextLengthError,
    HookError,
    InvalidRequestError,
    ModelGoneError,
    NetworkError,
    ServerError,
    ToolError,
    ToolSuspended,
)
from skald_core.loop.events import (
    AssistantEvent,
    CompactionEvent,
    ErrorEvent,
    HookErrorEvent,
    Lagged,
    ModelFallbackEvent,
    PartialAssistantEvent,
    PermissionRequestEvent,
    QueueChangedEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
    ToolProgressEvent,
    UserEvent,
)
from skald_core.loop.gate import Allow, Ask, Deny, PendingCall, Suspend, Verdict
from skald_core.loop.hooks import AddContext, Block, MustAsk, NoHooks, Prompt, Rewrite, Stopping
from skald_core.loop.profile import Limits, Profile, SystemContext, SystemPrompt
from skald_core.loop.scripted import ScriptedProvider, Step, call, calls, cut, fail, text
from skald_core.loop.store import Store
from skald_core.loop.tools import ToolContext, ToolOutput, ToolRegistry, tool
from skald_core.loop.types import Attachment, MediaPart, ModelInfo, SystemBlock, TextPart
from tests.loop.helpers import (
    AskGate,
    Gated,
    Plain,
    collect,
    kinds,
    make,
    of,
    pairs,
    path,
    result,
    selector,
    texts,
)


async def test_text_tool_final_over_two_rounds(store: Store) -> None:
    """The plainest turn: three messages and one finished call are stored, events come in order."""
    provider = ScriptedProvider([calls(call("look", {"b": 1, "a": 2}), say="let me look"), text("done")])
    agent = make(provider, Plain("look", "seen"), store=store)
    events = await collect(agent.session("c").run("hi"))
    assert kinds(events) == [
        "system", "user", "round_started", "assistant", "tool_call_start", "tool_call_end", "user",
        "round_started", "assistant", "result",
    ]  # fmt: skip
    messages = await path(store)
    assert [(m.role, m.content) for m in messages] == [
        ("user", "hi"),
        ("assistant", "let me look"),
        ("assistant", "done"),
    ]
    (made,) = messages[1].calls
    assert (made.state, made.result, made.arguments) == ("done", "seen", '{"b": 1, "a": 2}')
    assert texts(provider.requests[1])[1:] == ['assistant: let me look [look {"b": 1, "a": 2}]', "tool:  <seen>"]
    end = result(events)
    assert (end.subtype, end.final_text, end.rounds) == ("success", "done", 2)
    assert end.total_usage.input_tokens == 20
    assert await store.runs() == ()
    assert await store.unfinished() == ()
    provider.assert_complete()


async def test_events_name_what_was_stored(store: Store) -> None:
    """Ids in events are those of the store, also for the parent of each message."""
    provider = ScriptedProvider([calls(call("look")), text("done")])
    events = await collect(make(provider, Plain("look"), store=store).session("c").run("hi", client_id="k"))
    messages = await path(store)
    user, results = of(events, UserEvent)
    first, last = of(events, AssistantEvent)
    assert [user.message_id, first.message_id, last.message_id] == [m.id for m in messages]
    assert [user.parent, first.parent, last.parent] == [None, messages[0].id, messages[1].id]
    assert user.client_id == "k"
    assert (first.final, last.final) == (False, True)
    assert (results.subtype, results.message_id) == ("tool_result", first.message_id)
    (view,) = first.calls
    assert view.call_id == messages[1].calls[0].id == of(events, ToolCallEndEvent)[0].call_id


async def test_deltas_come_before_the_message_and_join_to_it(store: Store) -> None:
    provider = ScriptedProvider([text("a", "b", "c", reasoning=("th", "ink"))])
    events = await collect(make(provider, store=store, partials=True).session("c").run("hi"))
    parts = of(events, PartialAssistantEvent)
    assert "".join(p.text for p in parts if p.kind == "text") == "abc"
    assert "".join(p.text for p in parts if p.kind == "reasoning") == "think"
    assert events.index(parts[-1]) < events.index(of(events, AssistantEvent)[0])
    assert (await path(store))[1].reasoning == "think"


async def test_the_round_limit_ends_with_an_error(store: Store) -> None:
    provider = ScriptedProvider(then=lambda _: calls(call("look")))
    agent = make(provider, Plain("look"), store=store, limits=Limits(rounds=2))
    events = await collect(agent.session("c").run("hi"))
    assert kinds(events)[-2:] == ["error", "result"]
    assert (of(events, ErrorEvent)[0].kind, of(events, ErrorEvent)[0].name) == ("turn_limit", "TurnLimitError")
    assert result(events).subtype == "error"
    assert len(provider.requests) == 2


async def test_a_server_error_falls_back_to_the_next_model(store: Store) -> None:
    """One fallback event, and the later rounds of the turn stay with the model that answered."""
    bad = ScriptedProvider([fail(ServerError("HTTP 500", status=500))], id="bad")
    good = ScriptedProvider([calls(call("look")), text("ok")], id="good")
    agent = make_with(selector(bad, good), store, Plain("look"))
    events = await collect(agent.session("c").run("hi"))
    (fallback,) = of(events, ModelFallbackEvent)
    assert (fallback.from_model, fallback.to_model, fallback.error_kind) == ("bad", "good", "server")
    assert result(events).subtype == "success"
    assert len(bad.requests) == 1
    assert (await path(store))[1].model == "good-model"


def make_with(chosen: Any, store: Store, *tools: Any, **options: Any) -> Any:
    from skald_core.loop.agent import Agent
    from skald_core.loop.gate import AllowAll

    return Agent(selector=chosen, tools=tools, gate=AllowAll(), store=store, **options)


@pytest.mark.parametrize("error", [ModelGoneError("HTTP 404", status=404), AuthError("HTTP 401", status=401)])
async def test_a_terminal_error_fails_the_turn_without_fallback(store: Store, error: Any) -> None:
    bad, good = ScriptedProvider([fail(error)], id="bad"), ScriptedProvider(id="good")
    session = make_with(selector(bad, good), store).session("c")
    events = await collect(session.run("hi"))
    assert kinds(events)[-2:] == ["error", "result"]
    assert not of(events, ModelFallbackEvent)
    assert good.requests == []
    marks = await path(store)
    assert [(m.role, m.status) for m in marks] == [("user", "ok"), ("assistant", "failed")]
    assert marks[1].metadata["error"]["kind"] == error.kind


async def test_at_most_three_models_are_tried(store: Store) -> None:
    providers = [ScriptedProvider([fail(NetworkError("refused"))], id=f"p{i}") for i in range(4)]
    events = await collect(make_with(selector(*providers), store).session("c").run("hi"))
    assert of(events, ErrorEvent)[0].tried == ("p0", "p1", "p2")
    assert providers[3].requests == []


async def test_no_fallback_after_output_was_shown(store: Store) -> None:
    """The text so far is kept, marked partial with its cause, and a retry answers anew beside it."""
    bad, good = ScriptedProvider([cut("half an ans")], id="bad"), ScriptedProvider(id="good")
    session = make_with(selector(bad, good), store).session("c")
    events = await collect(session.run("hi"))
    assert result(events).subtype == "error"
    assert good.requests == []
    partial = (await path(store))[1]
    assert (partial.content, partial.status) == ("half an ans", "partial")
    assert partial.metadata["error"]["kind"] == "network"
    bad.add(text("whole"))
    events = await collect(await session.retry())
    assert result(events).final_text == "whole"
    page = await session.history()
    assert [i.message.content for i in page.items] == ["hi", "whole"]
    assert len(page.items[1].siblings) == 2


async def test_retry_keeps_finished_tool_rounds(store: Store) -> None:
    look = Plain("look")
    provider = ScriptedProvider([calls(call("look")), fail(ServerError("HTTP 503", status=503)), text("fine")])
    session = make(provider, look, store=store, limits=Limits(model_attempts=1)).session("c")
    assert result(await collect(session.run("hi"))).subtype == "error"
    assert result(await collect(await session.retry())).final_text == "fine"
    assert len(look.runs) == 1
    pairs(provider.requests[2])


async def test_a_refused_message_does_not_poison_the_chat(store: Store) -> None:
    """What the model calls invalid stays visible but is not sent again."""
    provider = ScriptedProvider([fail(InvalidRequestError("HTTP 400", status=400)), text("ok")])
    session = make(provider, store=store).session("c")
    await collect(session.run("bad one"))
    await collect(session.run("good one"))
    assert texts(provider.requests[1]) == ["user: good one"]
    assert [m.content for m in await path(store)] == ["bad one", "", "good one", "ok"]


async def test_a_message_no_model_could_answer_is_seen_by_the_next_turn(store: Store) -> None:
    provider = ScriptedProvider([fail(NetworkError("refused")), text("ok")])
    session = make(provider, store=store, limits=Limits(model_attempts=1)).session("c")
    await collect(session.run("question"))
    await collect(session.run("try again"))
    assert texts(provider.requests[1]) == ["user: question\n\ntry again"]


async def test_no_model_at_all_keeps_the_message(store: Store) -> None:
    class Nothing:
        async def select(self, *, pin: str | None = None, exclude: frozenset[str] = frozenset()) -> Any:
            raise ConfigError("no model is set up; add one under Models")

        def report_success(self, handle_id: str) -> None: ...

        def report_failure(self, handle_id: str, error: Exception) -> None: ...

    events = await collect(make_with(Nothing(), store).session("c").run("hi"))
    assert kinds(events) == ["system", "user", "error", "result"]
    assert "add one under Models" in of(events, ErrorEvent)[0].message
    assert (await path(store))[0].content == "hi"


async def test_an_empty_answer_is_a_failure_unless_it_follows_results(store: Store) -> None:
    provider = ScriptedProvider([Step(), calls(call("look")), Step()])
    session = make(provider, Plain("look"), store=store).session("c")
    assert of(await collect(session.run("hi")), ErrorEvent)[0].kind == "protocol"
    assert result(await collect(session.run("again"))).subtype == "success"


# --- stopping ----------------------------------------------------------------------------------------------------


async def test_stopping_a_stream_keeps_the_text_and_frees_the_slot(store: Store) -> None:
    reached = asyncio.Event()
    step = text("so ", "far", "never", gate=asyncio.Event(), gate_after=2, reached=reached)
    provider = ScriptedProvider([step, text("ok")])
    session = make(provider, store=store).session("c")
    stream = session.run("hi")
    await reached.wait()
    assert session.live() is not None
    assert session.live().text == "so far"  # type: ignore[union-attr]  # just checked
    assert await session.stop()
    events = await collect(stream)
    assert result(events).subtype == "aborted"
    assert provider.closed_streams == 1
    partial = (await path(store))[1]
    assert (partial.content, partial.status, partial.metadata) == ("so far", "partial", {"stopped": "stopped"})
    assert not session.abort(), "an idle abort is a no-op"
    assert result(await collect(session.run("more"))).subtype == "success"
    assert texts(provider.requests[1]) == ["user: hi", "assistant: so far", "user: more"]


async def test_stopping_before_any_output_leaves_no_empty_message(store: Store) -> None:
    reached = asyncio.Event()
    provider = ScriptedProvider([text("x", gate=asyncio.Event(), reached=reached)])
    session = make(provider, store=store).session("c")
    stream = session.run("hi")
    await reached.wait()
    await session.stop()
    assert result(await collect(stream)).subtype == "aborted"
    assert [m.content for m in await path(store)] == ["hi"]


async def test_stopping_at_once_ends_the_stream(store: Store) -> None:
    """A stop before the turn's first step still ends it properly."""
    session = make(ScriptedProvider(), store=store).session("c")
    stream = session.run("hi")
    assert session.abort()
    assert result(await collect(stream)).subtype == "aborted"
    assert not session.running


async def test_stopping_a_slow_tool_records_it_cancelled(store: Store) -> None:
    slow = Gated("slow")
    session = make(ScriptedProvider([calls(call("slow"), call("slow"))]), slow, store=store).session("c")
    stream = session.run("hi")
    await slow.entered.wait()
    await session.stop()
    events = await collect(stream)
    one, two = (await path(store))[1].calls
    assert (one.state, two.state) == ("cancelled", "cancelled")
    assert one.result == "Cancelled by the user."
    starts = [e.call_id for e in of(events, ToolCallStartEvent)]
    assert starts == [e.call_id for e in of(events, ToolCallEndEvent)] == [one.id, two.id]
    assert await store.unfinished() == ()


async def test_c8_stop_in_a_batch_then_continue(store: Store) -> None:
    """C8: three parallel calls, stopped after the first ended: the next request has three calls and three results."""
    quick, slow = Plain("quick", "first", parallel_safe=True), Gated("slow", parallel_safe=True)
    provider = ScriptedProvider([calls(call("quick"), call("slow"), call("slow")), text("went on")])
    agent = make(provider, quick, slow, store=store)
    session = agent.session("c")
    ended = asyncio.Event()
    agent.on_event(lambda e: ended.set() if isinstance(e, ToolCallEndEvent) else None)
    stream = session.run("hi")
    await ended.wait()
    await session.stop()
    await collect(stream)
    await collect(session.run("continue"))
    pairs(provider.requests[1])
    assert texts(provider.requests[1])[2] == "tool:  <first> <Cancelled by the user.> <Cancelled by the user.>"


async def test_a_tool_that_ends_cleanly_on_stop_keeps_its_result(store: Store) -> None:
    class Polite(Gated):
        async def run(self, arguments: Any, ctx: ToolContext) -> str:
            self.entered.set()
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                assert ctx.cancelled.is_set()
                return "partial output"
            return ""

    polite = Polite("polite", parallel_safe=True)
    session = make(ScriptedProvider([calls(call("polite"), call("polite"))]), polite, store=store).session("c")
    stream = session.run("hi")
    await polite.entered.wait()
    await session.stop()
    await collect(stream)
    assert {c.result for c in (await path(store))[1].calls} == {"partial output"}


async def test_stopping_while_a_person_is_asked_cancels_the_call(store: Store) -> None:
    gate = AskGate("write")
    write = Plain("write")
    session = make(ScriptedProvider([calls(call("write"))]), write, gate=gate, store=store).session("c")
    stream = session.run("hi")
    await gate.reached.wait()
    live = session.live()
    assert live is not None
    assert live.phase == "waiting"
    assert [w.tool_name for w in live.waiting] == ["write"]
    (waiting,) = await store.open_calls(session.conversation)
    assert waiting.state == "awaiting"
    await session.stop()
    await collect(stream)
    assert (await path(store))[1].calls[0].state == "cancelled"
    assert write.runs == []


async def test_interrupt_finishes_the_round(store: Store) -> None:
    slow = Gated("slow")
    provider = ScriptedProvider([calls(call("slow"))])
    session = make(provider, slow, store=store).session("c")
    assert not session.interrupt(), "an idle interrupt is a no-op"
    stream = session.run("hi")
    await slow.entered.wait()
    assert session.interrupt()
    slow.go.set()
    end = result(await collect(stream))
    assert (end.subtype, end.stop_reason) == ("interrupted", "error")
    assert (await path(store))[1].calls[0].state == "done"
    provider.assert_complete()


async def test_the_time_limit_stops_the_turn(store: Store) -> None:
    slow = Gated("slow")
    session = make(ScriptedProvider([calls(call("slow"))]), slow, store=store, limits=Limits(seconds=0.01)).session("c")
    end = result(await collect(session.run("hi")))
    assert end.subtype == "aborted"
    assert "time limit" in end.reason


async def test_a_reader_that_leaves_or_stalls_stops_nothing(store: Store) -> None:
    provider = ScriptedProvider([text(*"abcdefgh"), text("second")])
    session = make(provider, store=store, buffer=4).session("c")
    async for _ in session.run("hi"):
        break
    await session.wait()
    assert (await path(store))[-1].content == "abcdefgh"
    stalled = session.run("more")
    await session.wait()
    events = await collect(stalled)
    assert isinstance(events[0], Lagged)
    assert result(events).subtype == "success"


async def test_a_second_run_is_refused_at_once(store: Store) -> None:
    step = text("x", gate=asyncio.Event())
    session = make(ScriptedProvider([step]), store=store).session("c")
    stream = session.run("hi")
    with pytest.raises(ConfigError, match="turn running"):
        session.run("again")
    assert step.gate is not None
    step.gate.set()
    await collect(stream)


async def test_an_empty_message_is_refused(store: Store) -> None:
    session = make(ScriptedProvider(), store=store).session("c")
    with pytest.raises(ConfigError, match="empty"):
        session.run("  \n")
    with pytest.raises(ConfigError, match="empty"):
        await session.send("")
    assert await store.root(session.conversation) is None


# --- sending, queueing, steering ---------------------------------------------------------------------------------


async def test_c4_a_resent_message_is_stored_once(store: Store) -> None:
    """C4: the same client id three times, running or not: one message, one answer."""
    step = text("answer", gate=asyncio.Event())
    provider = ScriptedProvider([step])
    session = make(provider, store=store).session("c")
    first = await session.send("hi", client_id="k")
    second = await session.send("hi", client_id="k")
    assert step.gate is not None
    step.gate.set()
    await session.wait()
    third = await session.send("hi", client_id="k")
    await session.wait()
    assert first.message_id == second.message_id == third.message_id
    assert (first.existing, second.existing, third.existing) == (False, True, True)
    assert [m.content for m in await path(store)] == ["hi", "answer"]
    assert await collect(session.run("hi", client_id="k")) == []


async def test_queued_messages_are_answered_in_order(store: Store) -> None:
    step = text("one", gate=asyncio.Event())
    provider = ScriptedProvider([step, text("two"), text("three")])
    agent = make(provider, store=store)
    session = agent.session("c")
    seen: list[Any] = []
    agent.on_event(seen.append)
    await session.send("1")
    two = await session.send("2", client_id="two")
    three = await session.send("3")
    assert (two.message_id, two.queued_id is not None) == (None, True)
    assert (await session.send("2", client_id="two")).existing
    assert [q.content for q in await session.queue()] == ["2", "3"]
    assert three.queued_id is not None
    await session.edit_queued(three.queued_id, "3!")
    await session.reorder_queue([three.queued_id])
    assert step.gate is not None
    step.gate.set()
    await session.wait()
    assert [m.content for m in await path(store)] == ["1", "one", "3!", "two", "2", "three"]
    assert (await path(store))[4].client_id == "two"
    assert of(seen, QueueChangedEvent)[-1].items == ()
    assert not await session.delete_queued(three.queued_id)


async def test_what_waits_is_held_after_a_stop_and_goes_first_then(store: Store) -> None:
    reached = asyncio.Event()
    provider = ScriptedProvider([text("x", gate=asyncio.Event(), reached=reached), text("two"), text("three")])
    session = make(provider, store=store).session("c")
    await session.send("1")
    await session.send("2")
    await reached.wait()
    await session.stop()
    assert [q.content for q in await session.queue()] == ["2"]
    sent = await session.send("3")
    assert sent.queued_id is not None
    await session.wait()
    assert [m.content for m in await path(store) if m.role == "user"] == ["1", "2", "3"]


async def test_steering_joins_the_running_turn(store: Store) -> None:
    slow = Gated("slow")
    provider = ScriptedProvider([calls(call("slow")), text("ok")])
    agent = make(provider, slow, store=store)
    session = agent.session("c")
    with pytest.raises(ConfigError):
        await session.steer("too early")
    stream = session.run("hi")
    await slow.entered.wait()
    told = asyncio.create_task(session.steer("also this"))
    queued = agent.subscribe("c")
    async for event in queued:
        if isinstance(event, QueueChangedEvent):
            break
    slow.go.set()
    events = await collect(stream)
    message = await told
    assert texts(provider.requests[1])[-1] == "user: also this"
    (steered,) = [e for e in of(events, UserEvent) if e.subtype == "steering"]
    assert steered.message_id == message


async def test_steering_at_the_end_sends_the_turn_on(store: Store) -> None:
    reached = asyncio.Event()
    step = text("first", gate=asyncio.Event(), reached=reached)
    provider = ScriptedProvider([step, text("second")])
    session = make(provider, store=store).session("c")
    stream = session.run("hi")
    await reached.wait()
    sent = await session.send("wait", when="steer")
    assert sent.queued_id is not None
    assert step.gate is not None
    step.gate.set()
    events = await collect(stream)
    assert len(of(events, AssistantEvent)) == 2
    assert result(events).final_text == "second"


async def test_steering_left_over_is_told_or_kept(store: Store) -> None:
    """steer() that can no longer join raises; steering sent with send() becomes ordinary queued input."""
    reached = asyncio.Event()
    session = make(ScriptedProvider([text("x", gate=asyncio.Event(), reached=reached)]), store=store).session("c")
    stream = session.run("hi")
    await reached.wait()
    told = asyncio.create_task(session.steer("gone"))
    await session.send("kept", when="steer")
    while len(await session.queue()) < 2 or not session._runner.turn(session.conversation).steering:  # type: ignore[union-attr]
        await asyncio.sleep(0)
    await session.stop()
    with pytest.raises(AbortError):
        await told
    await collect(stream)
    assert [(q.content, q.kind) for q in await session.queue()] == [("kept", "user")]


async def test_interrupting_with_a_message_sends_it_next(store: Store) -> None:
    slow = Gated("slow")
    provider = ScriptedProvider([calls(call("slow")), text("new"), text("old")])
    session = make(provider, slow, store=store).session("c")
    stream = session.run("hi")
    await slow.entered.wait()
    await session.send("later")
    await session.send("now", when="interrupt")
    slow.go.set()
    assert result(await collect(stream)).subtype == "interrupted"
    await session.wait()
    assert [m.content for m in await path(store) if m.role == "user"] == ["hi", "now", "later"]


async def test_delivered_text_gets_an_answer_and_is_marked_synthetic(store: Store) -> None:
    session = make(ScriptedProvider([text("noted")]), store=store).session("c")
    await session.deliver("task 3 finished")
    await session.wait()
    first, second = await path(store)
    assert (first.synthetic, first.role, second.content) == (True, "user", "noted")


# --- branches ----------------------------------------------------------------------------------------------------


async def test_edit_and_regenerate_open_branches(store: Store) -> None:
    provider = ScriptedProvider([text("a1"), text("a2"), text("a2'"), text("b2")])
    session = make(provider, store=store).session("c")
    await collect(session.run("q1"))
    await collect(session.run("q2"))
    await collect(await session.retry())
    q2 = (await path(store))[2]
    assert texts(provider.requests[2]) == ["user: q1", "assistant: a1", "user: q2"]
    await collect(session.edit(q2, "Q2"))
    page = await session.history()
    assert [i.message.content for i in page.items] == ["q1", "a1", "Q2", "b2"]
    assert page.items[2].siblings[0] == q2.id
    assert texts(provider.requests[3]) == ["user: q1", "assistant: a1", "user: Q2"]
    await session.select(q2.id)
    assert [m.content for m in await path(store)] == ["q1", "a1", "q2", "a2'"]


async def test_continue_goes_on_after_a_cut_answer(store: Store) -> None:
    provider = ScriptedProvider([text("one two", stop_reason="max_tokens"), text(" three")])
    session = make(provider, store=store).session("c")
    events = await collect(session.run("count"))
    assert result(events).stop_reason == "max_tokens"
    await collect(await session.continue_())
    assert [m.role for m in await path(store)] == ["user", "assistant", "user", "assistant"]
    assert texts(provider.requests[1])[1] == "assistant: one two"


# --- tool calls --------------------------------------------------------------------------------------------------


@tool(parallel_safe=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_c10_wrong_calls_get_error_results(store: Store) -> None:
    """C10: unknown tool, wrong types, disabled since the last turn, broken JSON: each an error, the chat goes on."""
    registry = ToolRegistry([add])
    remove = registry.register(Plain("gone"))
    provider = ScriptedProvider(
        [
            calls(call("gone")),
            text("ok"),
            calls(
                call("nope"), call("add", {"a": "x", "b": 1}), call("gone"), call("add", '{"a": 1,'), call("add", "[]")
            ),
            text("sorry"),
        ]
    )
    from skald_core.loop.agent import Agent
    from skald_core.loop.gate import AllowAll

    session = Agent(provider=provider, model="m", tools=registry, gate=AllowAll(), store=store).session("c")
    await collect(session.run("first"))
    remove()
    events = await collect(session.run("second"))
    ends = of(events, ToolCallEndEvent)
    assert [e.is_error for e in ends] == [True] * 5
    assert [e.call_id for e in of(events, ToolCallStartEvent)] == [e.call_id for e in ends]
    assert "unknown tool 'nope'" in ends[0].result
    assert "Expected `int`" in ends[1].result
    assert "unknown tool 'gone'" in ends[2].result
    assert "not valid JSON" in ends[3].result
    assert "must be one JSON object" in ends[4].result
    assert result(events).final_text == "sorry"
    pairs(provider.requests[3])
    assert (await path(store))[4].calls[3].arguments == '{"a": 1,'


async def test_a_cut_call_is_answered_too(store: Store) -> None:
    """Arguments cut by the output limit become an error the model sees, never an unanswered call."""
    provider = ScriptedProvider([calls(call("add", '{"a": 1, "b'), stop_reason="max_tokens"), text("shorter then")])
    events = await collect(make(provider, add, store=store).session("c").run("hi"))
    assert of(events, ToolCallEndEvent)[0].is_error
    assert result(events).subtype == "success"


async def test_tool_failures_are_results(store: Store) -> None:
    @tool
    def breaks() -> str:
        """Raise."""
        raise ValueError("bad thing")

    @tool
    def refuses() -> str:
        """Raise ToolError."""
        raise ToolError("exactly this")

    provider = ScriptedProvider([calls(call("breaks"), call("refuses")), text("ok")])
    events = await collect(make(provider, breaks, refuses, store=store).session("c").run("hi"))
    assert [e.result for e in of(events, ToolCallEndEvent)] == ["ValueError: bad thing", "exactly this"]


async def test_parallel_safe_calls_overlap_and_keep_their_order(store: Store) -> None:
    """Three calls all start before any ends; results are stored in call order whatever the order of ending."""
    barrier = asyncio.Barrier(3)
    order: list[str] = []

    @tool(parallel_safe=True)
    async def meet(n: int) -> str:
        """Meet the others."""
        await barrier.wait()
        for _ in range(4 - n):
            await asyncio.sleep(0)
        order.append(str(n))
        return str(n)

    provider = ScriptedProvider([calls(*(call("meet", {"n": n}) for n in (1, 2, 3))), text("ok")])
    events = await collect(make(provider, meet, store=store).session("c").run("hi"))
    tags = [k for k in kinds(events) if k.startswith("tool_call")]
    assert tags[:3] == ["tool_call_start"] * 3
    starts = [e.call_id for e in of(events, ToolCallStartEvent)]
    assert starts == sorted(starts)
    assert order == ["3", "2", "1"]
    assert texts(provider.requests[1])[2] == "tool:  <1> <2> <3>"


async def test_the_parallel_cap_is_kept(store: Store) -> None:
    running = most = 0

    @tool(parallel_safe=True)
    async def count() -> str:
        """Count."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        return ""

    provider = ScriptedProvider([calls(*[call("count")] * 8), text("ok")])
    await collect(make(provider, count, store=store, limits=Limits(parallel_calls=3)).session("c").run("hi"))
    assert most == 3


async def test_unsafe_calls_split_batches(store: Store) -> None:
    """R,R,W,R: the write runs alone, after the first two and before the last."""
    log: list[str] = []

    def make_tool(name: str, parallel: bool) -> Any:
        class Logged(Plain):
            async def run(self, arguments: Any, ctx: ToolContext) -> str:
                log.append(f"+{name}")
                await asyncio.sleep(0)
                log.append(f"-{name}")
                return name

        return Logged(name, parallel_safe=parallel)

    names = ["r1", "r2", "w", "r3"]
    tools = [make_tool(n, n.startswith("r")) for n in names]
    provider = ScriptedProvider([calls(*(call(n) for n in names)), text("ok")])
    await collect(make(provider, *tools, store=store).session("c").run("hi"))
    assert log == ["+r1", "+r2", "-r1", "-r2", "+w", "-w", "+r3", "-r3"]


async def test_progress_is_shown_between_start_and_end(store: Store) -> None:
    late: list[ToolContext] = []

    @tool
    def works(ctx: ToolContext) -> str:
        """Work on a thread."""
        ctx.emit({"at": 1})
        late.append(ctx)
        return "ok"

    agent = make(ScriptedProvider([calls(call("works")), text("ok")]), works, store=store)
    events = await collect(agent.session("c").run("hi"))
    (progress,) = of(events, ToolProgressEvent)
    assert progress.data == {"at": 1}
    late[0].emit({"at": 2})
    assert kinds(events).index("tool_progress") == kinds(events).index("tool_call_start") + 1


async def test_long_results_are_cut_for_models_and_events_but_stored_whole(store: Store) -> None:
    whole = "start" + "x" * 100_000 + "end"
    provider = ScriptedProvider([calls(call("big")), text("ok")])
    events = await collect(make(provider, Plain("big", whole), store=store).session("c").run("hi"))
    (end,) = of(events, ToolCallEndEvent)
    assert end.truncated
    assert end.result.startswith("start")
    assert end.result.endswith("end")
    assert (await path(store))[1].calls[0].result == whole
    assert len(texts(provider.requests[1])[2]) < 50_000


async def test_display_and_media_reach_the_interface(store: Store) -> None:
    class Shows(Plain):
        async def run(self, arguments: Any, ctx: ToolContext) -> ToolOutput:
            return ToolOutput("saw", media=(Attachment("p.png", "p.png", "image/png"),), display={"w": 1})

    class Files:
        async def load(self, attachment: Attachment, scope: dict[type[Any], Any]) -> MediaPart | None:
            return MediaPart("image/png", b"png", attachment.name)

    provider = ScriptedProvider(
        [calls(call("shows")), text("ok"), text("later")], info=ModelInfo(capabilities=frozenset({"tools", "vision"}))
    )
    session = make(provider, Shows("shows"), store=store, media=Files()).session("c")
    events = await collect(session.run("hi"))
    (end,) = of(events, ToolCallEndEvent)
    assert end.display == {"w": 1}
    stored = (await path(store))[1].calls[0]
    assert stored.media[0].path == "p.png"
    assert stored.extras == {"display": {"w": 1}}
    assert isinstance(provider.requests[1].messages[-1].parts[-1], MediaPart)
    await collect(session.run("next"))
    assert not [p for m in provider.requests[2].messages for p in m.parts if isinstance(p, MediaPart)]


async def test_a_call_written_as_text_is_run_and_not_shown(store: Store) -> None:
    provider = ScriptedProvider([text('{"name": "add",', ' "arguments": {"a": 1, "b": 2}}'), text("3")])
    events = await collect(make(provider, add, store=store, partials=True).session("c").run("1+2?"))
    assert [p.text for p in of(events, PartialAssistantEvent)] == ["3"]
    message = (await path(store))[1]
    assert (message.content, message.calls[0].name, message.calls[0].result) == ("", "add", "3")
    pairs(provider.requests[1])


async def test_json_that_is_no_call_is_shown_as_text(store: Store) -> None:
    answer = '{"name": "addition", "arguments": {}}'
    events = await collect(
        make(ScriptedProvider([text(answer)]), add, store=store, partials=True).session("c").run("hi")
    )
    assert "".join(p.text for p in of(events, PartialAssistantEvent)) == answer
    assert result(events).final_text == answer


# --- the gate ----------------------------------------------------------------------------------------------------


async def test_without_a_gate_every_call_is_refused(store: Store) -> None:
    from skald_core.loop.agent import Agent

    look = Plain("look")
    provider = ScriptedProvider([calls(call("look")), text("ok")])
    events = await collect(Agent(provider=provider, model="m", tools=[look], store=store).session("c").run("hi"))
    (end,) = of(events, ToolCallEndEvent)
    assert (end.state, look.runs) == ("rejected", [])
    assert result(events).subtype == "success"


async def test_asked_calls_make_one_request_before_any_start(store: Store) -> None:
    gate = AskGate("write", answer=Allow())
    provider = ScriptedProvider([calls(call("look"), call("write"), call("write")), text("ok")])
    events = await collect(make(provider, Plain("look"), Plain("write"), gate=gate, store=store).session("c").run("hi"))
    (request,) = of(events, PermissionRequestEvent)
    assert [r.tool_name for r in request.requests] == ["write", "write"]
    assert request.requests[0].details == {"tool": "write"}
    assert events.index(request) < events.index(of(events, ToolCallStartEvent)[0])
    assert {e.state for e in of(events, ToolCallEndEvent)} == {"done"}


async def test_a_denial_tells_the_model_why(store: Store) -> None:
    gate = AskGate("write", answer=Deny("not on a Sunday"))
    provider = ScriptedProvider([calls(call("write")), text("ok")])
    await collect(make(provider, Plain("write"), gate=gate, store=store).session("c").run("hi"))
    assert texts(provider.requests[1])[2] == "tool:  <not on a Sunday>"
    assert (await path(store))[1].calls[0].state == "rejected"


@pytest.mark.parametrize("how", ["judge", "ask", "short", "nonsense"])
async def test_any_failure_in_judging_is_a_denial(store: Store, how: str) -> None:
    class Broken:
        async def judge(self, calls: Any) -> Any:
            if how == "judge":
                raise RuntimeError("boom")
            return [] if how == "short" else [None] if how == "nonsense" else [Ask("?")]

        async def ask(self, call: PendingCall, verdict: Ask) -> Any:
            raise RuntimeError("boom")

    look = Plain("look")
    provider = ScriptedProvider([calls(call("look")), text("ok")])
    events = await collect(make(provider, look, gate=Broken(), store=store).session("c").run("hi"))
    assert of(events, ToolCallEndEvent)[0].state == "rejected"
    assert look.runs == []


class Rewriter:
    """Rewrites calls to 'a', and denies what was rewritten to a dangerous value."""

    def __init__(self, to: Any) -> None:
        self.to = to
        self.judged: list[Any] = []

    async def judge(self, calls: Any) -> list[Verdict]:
        self.judged += [c.raw for c in calls]
        return [
            Deny("dangerous")
            if c.raw["a"] == 666
            else Allow()
            if c.raw["a"] == self.to
            else Allow({**c.raw, "a": self.to})
            for c in calls
        ]

    async def ask(self, call: PendingCall, verdict: Ask) -> Allow:
        return Allow()


async def test_rewritten_arguments_are_judged_again_and_stored(store: Store) -> None:
    gate = Rewriter(5)
    provider = ScriptedProvider([calls(call("add", {"a": 1, "b": 1})), text("ok")])
    events = await collect(make(provider, add, gate=gate, store=store).session("c").run("hi"))
    assert gate.judged == [{"a": 1, "b": 1}, {"a": 5, "b": 1}]
    assert of(events, ToolCallStartEvent)[0].input == {"a": 5, "b": 1}
    made = (await path(store))[1].calls[0]
    assert (made.result, made.effective, made.arguments) == ("6", '{"a":5,"b":1}', '{"a": 1, "b": 1}')


async def test_a_rewrite_to_something_denied_or_invalid_does_not_run(store: Store) -> None:
    provider = ScriptedProvider([calls(call("add", {"a": 1, "b": 1})), text("ok")])
    events = await collect(make(provider, add, gate=Rewriter(666), store=store).session("c").run("hi"))
    assert of(events, ToolCallEndEvent)[0].result == "dangerous"
    provider = ScriptedProvider([calls(call("add", {"a": 1, "b": 1})), text("ok")])
    events = await collect(make(provider, add, gate=Rewriter("x"), store=store).session("d").run("hi"))
    assert of(events, ToolCallEndEvent)[0].state == "rejected"


async def test_a_person_may_edit_but_not_past_a_denial(store: Store) -> None:
    class Edits(AskGate):
        async def judge(self, calls: Any) -> list[Verdict]:
            return [Deny("dangerous") if c.raw["a"] == 666 else Ask("?") for c in calls]

        async def ask(self, call: PendingCall, verdict: Ask) -> Allow:
            return Allow({"a": 666 if call.raw["b"] == 1 else 9, "b": 0})

    provider = ScriptedProvider([calls(call("add", {"a": 1, "b": 1}), call("add", {"a": 1, "b": 2})), text("ok")])
    events = await collect(make(provider, add, gate=Edits(), store=store).session("c").run("hi"))
    assert {e.result for e in of(events, ToolCallEndEvent)} == {"dangerous", "9"}


async def test_suspending_leaves_the_call_waiting_and_resume_runs_it(store: Store) -> None:
    gate = AskGate("write", answer=Suspend())
    write = Plain("write", "written")
    provider = ScriptedProvider([calls(call("write")), text("ok")])
    session = make(provider, write, gate=gate, store=store).session("c")
    assert result(await collect(session.run("hi"))).subtype == "suspended"
    (made,) = (await path(store))[1].calls
    assert (made.state, made.result, write.runs) == ("awaiting", None, [])
    gate.answer = Allow()
    events = await collect(session.resume())
    assert result(events).final_text == "ok"
    assert (await path(store))[1].calls[0].result == "written"


async def test_a_tool_may_suspend_itself(store: Store) -> None:
    class Later(Plain):
        async def run(self, arguments: Any, ctx: ToolContext) -> str:
            self.runs.append(arguments)
            if len(self.runs) == 1:
                raise ToolSuspended("asked a person")
            return "answered"

    provider = ScriptedProvider([calls(call("later")), text("ok")])
    session = make(provider, Later("later"), store=store).session("c")
    assert result(await collect(session.run("hi"))).subtype == "suspended"
    assert result(await collect(session.resume())).final_text == "ok"


async def test_refusing_a_waiting_call_lets_the_agent_go_on(store: Store) -> None:
    provider = ScriptedProvider([calls(call("write")), text("understood")])
    session = make(provider, Plain("write"), gate=AskGate("write", answer=Suspend()), store=store).session("c")
    await collect(session.run("hi"))
    made = (await path(store))[1].calls[0]
    assert await session.resolve_call(made.id, allow=False, reason="no")
    await session.wait()
    assert [m.content for m in await path(store)][-1] == "understood"
    assert not await session.resolve_call(made.id, allow=True), "a call with a result stays as it is"


async def test_talking_on_while_a_call_waits_is_well_formed(store: Store) -> None:
    provider = ScriptedProvider([calls(call("write")), text("ok")])
    session = make(provider, Plain("write"), gate=AskGate("write", answer=Suspend()), store=store).session("c")
    await collect(session.run("hi"))
    await collect(session.run("never mind"))
    pairs(provider.requests[1])
    assert "still waiting" in texts(provider.requests[1])[2]


# --- hooks -------------------------------------------------------------------------------------------------------


async def test_tool_hooks_rewrite_deny_ask_and_add(store: Store) -> None:
    class Hooked(NoHooks):
        async def before_tool(self, call: PendingCall) -> Any:
            return {1: Rewrite({"a": 10, "b": 1}), 2: Deny("hook says no"), 3: MustAsk("hook asks")}.get(call.raw["a"])

        async def after_tool(self, call: PendingCall, output: ToolOutput, duration_ms: int) -> str | None:
            return "note" if call.raw["a"] == 10 else None

    gate = AskGate(answer=Allow())
    provider = ScriptedProvider([calls(*(call("add", {"a": n, "b": 1}) for n in (1, 2, 3, 4))), text("ok")])
    events = await collect(make(provider, add, gate=gate, hooks=Hooked(), store=store).session("c").run("hi"))
    assert [e.result for e in of(events, ToolCallEndEvent)] != []
    states = {c.result for c in (await path(store))[1].calls}
    assert states == {"11\n\n<reminder>\nnote\n</reminder>", "hook says no", "4", "5"}
    assert len(gate.asked) == 1


async def test_a_failing_tool_hook_denies_and_others_do_not_matter(store: Store) -> None:
    class Broken(NoHooks):
        async def before_tool(self, call: PendingCall) -> Any:
            if call.raw["a"] == 1:
                raise RuntimeError("boom")

        async def after_tool(self, call: PendingCall, output: ToolOutput, duration_ms: int) -> str | None:
            raise RuntimeError("boom")

        async def user_prompt(self, prompt: Prompt) -> Any:
            raise RuntimeError("boom")

        async def stop(self, stopping: Stopping) -> str | None:
            raise RuntimeError("boom")

    provider = ScriptedProvider([calls(call("add", {"a": 1, "b": 1}), call("add", {"a": 2, "b": 1})), text("ok")])
    events = await collect(make(provider, add, hooks=Broken(), store=store).session("c").run("hi"))
    assert [c.state for c in (await path(store))[1].calls] == ["rejected", "done"]
    assert [e.hook for e in of(events, HookErrorEvent)] == ["user_prompt", "before_tool", "after_tool", "stop"]
    assert result(events).subtype == "success"


async def test_prompt_hooks_block_or_add_context(store: Store) -> None:
    class Prompted(NoHooks):
        async def user_prompt(self, prompt: Prompt) -> Any:
            return Block("not that word") if "bad" in prompt.content else AddContext("it is raining")

    provider = ScriptedProvider([text("ok")])
    session = make(provider, hooks=Prompted(), store=store).session("c")
    events = await collect(session.run("bad word"))
    assert kinds(events) == ["system", "error", "result"]
    assert await store.root(session.conversation) is None
    with pytest.raises(HookError, match="not that word"):
        await session.send("bad word")
    await session.wait()
    await collect(session.run("weather?"))
    assert "it is raining" in texts(provider.requests[0])[0]
    assert (await path(store))[0].content == "weather?"


async def test_a_stop_hook_sends_the_turn_on(store: Store) -> None:
    class Once(NoHooks):
        async def stop(self, stopping: Stopping) -> str | None:
            return "check again" if stopping.continued == 0 else None

    provider = ScriptedProvider([text("one"), text("two")])
    events = await collect(make(provider, hooks=Once(), store=store).session("c").run("hi"))
    assert [e.subtype for e in of(events, UserEvent)] == ["prompt", "stop_hook"]
    assert result(events).final_text == "two"
    assert (await path(store))[2].synthetic


# --- prompts, profiles, compaction -------------------------------------------------------------------------------


async def test_the_system_prompt_is_made_once_a_turn_and_its_tail_joins_the_user_message(store: Store) -> None:
    made: list[SystemContext] = []

    async def system(context: SystemContext) -> SystemPrompt:
        made.append(context)
        return SystemPrompt((SystemBlock("you are"), SystemBlock("now", stable=False)), "it is noon")

    provider = ScriptedProvider([calls(call("add", {"a": 1, "b": 1})), text("ok")])
    await collect(make(provider, add, system=system, store=store).session("c").run("hi"))
    assert len(made) == 1
    assert made[0].tools == ("add",)
    assert provider.requests[0].system == (SystemBlock("you are"), SystemBlock("now", stable=False))
    assert [texts(r)[0] for r in provider.requests] == ["user: hi\n\nit is noon"] * 2
    assert (await path(store))[0].content == "hi"


async def test_scope_reaches_tools_by_type(store: Store) -> None:
    class Notebook:
        lines: list[str] = []

    @tool
    def note(line: str, ctx: ToolContext) -> str:
        """Write a line."""
        ctx.get(Notebook).lines.append(line)
        return "ok"

    provider = ScriptedProvider([calls(call("note", {"line": "x"})), text("ok")])
    agent = make(provider, note, store=store)
    profile = Profile(tools=ToolRegistry([note]), scope={Notebook: Notebook()})
    await collect(agent.session("c", profile=profile).run("hi"))
    assert Notebook.lines == ["x"]


async def test_too_long_a_request_is_compacted_and_sent_again_once(store: Store) -> None:
    provider = ScriptedProvider([text(f"a{n}") for n in range(5)])
    session = make(provider, store=store).session("c")
    for n in range(5):
        await collect(session.run(f"q{n}"))
    too_long = ContextLengthError("too long", status=400)
    provider.add(fail(too_long), text("SUMMARY"), text("fits"))
    events = await collect(session.run("more"))
    (done,) = of(events, CompactionEvent)
    assert (done.trigger, done.strategy) == ("forced", "keep-tail")
    assert done.messages_after < done.messages_before
    assert result(events).final_text == "fits"
    last = texts(provider.requests[-1])
    assert "SUMMARY" in last[0]
    assert "q0" not in "".join(last)
    provider.add(text("again"))
    await collect(session.run("next"))
    assert "SUMMARY" in texts(provider.requests[-1])[0], "the checkpoint outlives its turn"
    provider.add(fail(too_long), text("S2"), fail(too_long))
    events = await collect(session.run("huge"))
    assert of(events, ErrorEvent)[0].kind == "context_length"


async def test_a_conversation_can_be_deleted_while_it_runs(store: Store) -> None:
    slow = Gated("slow")
    session = make(ScriptedProvider([calls(call("slow")), text("new")]), slow, store=store).session("c")
    stream = session.run("hi")
    await slow.entered.wait()
    await session.delete()
    await collect(stream)
    assert await store.root(session.conversation) is None
    assert await store.unfinished() == ()
    assert result(await collect(session.run("fresh"))).final_text == "new"


async def test_the_message_of_a_user_is_one_text_part(store: Store) -> None:
    provider = ScriptedProvider([text("ok")])
    attached = (Attachment("~/a.txt", "a.txt", "text/plain"),)
    await collect(make(provider, store=store).session("c").run("look", attachments=attached))
    (part,) = provider.requests[0].messages[0].parts
    assert isinstance(part, TextPart)
    assert "~/a.txt" in part.text
