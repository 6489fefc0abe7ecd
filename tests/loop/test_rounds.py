"""The calls of one round while people decide: what runs at once, what waits, and what a stop or a crash leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from skald_core.loop.agent import Agent
from skald_core.loop.errors import ToolSuspended
from skald_core.loop.events import (
    Event,
    PermissionRequestEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
    ToolProgressEvent,
)
from skald_core.loop.gate import Allow, AllowAll, Ask, Deny, PendingCall, Suspend, Verdict
from skald_core.loop.memory_store import MemoryStore
from skald_core.loop.records import Call
from skald_core.loop.scripted import ScriptedProvider, call, calls, text
from skald_core.loop.session import Session
from skald_core.loop.store import Store
from skald_core.loop.tools import Tool, ToolContext

from .helpers import Frozen, Gated, Plain, collect, make, of, pairs, path, result, texts

Answer = Allow | Deny | Suspend


class People:
    """Asks about the tools whose names begin with "w", and waits for each answer. Calls are told apart by ``raw["n"]``."""

    def __init__(self) -> None:
        self.answers: dict[int, asyncio.Future[Answer]] = {}
        self.asked: list[int] = []
        self.opened = asyncio.Event()

    async def until_asked(self, count: int) -> None:
        while len(self.asked) < count:
            self.opened.clear()
            await self.opened.wait()

    def _of(self, number: int) -> asyncio.Future[Answer]:
        return self.answers.setdefault(number, asyncio.get_running_loop().create_future())

    def answer(self, number: int, answer: Answer) -> None:
        self._of(number).set_result(answer)

    async def judge(self, pending: Sequence[PendingCall]) -> Sequence[Verdict]:
        return [
            Deny("never") if item.raw.get("bad") else Ask("may it?") if item.tool.name.startswith("w") else Allow()
            for item in pending
        ]

    async def ask(self, pending: PendingCall, verdict: Ask) -> Answer:
        number = pending.raw["n"]
        self.asked.append(number)
        self.opened.set()
        return await asyncio.shield(self._of(number))


class Log:
    """The starts and ends of calls, by ``n``, and a way to wait for one."""

    def __init__(self, agent: Agent) -> None:
        self.seen: list[str] = []
        self._numbers: dict[int, Any] = {}
        self._changed = asyncio.Event()
        agent.on_event(self._take)

    def _take(self, event: Event) -> None:
        if isinstance(event, PermissionRequestEvent):
            self.seen.append("ask " + " ".join(str(view.input["n"]) for view in event.requests))
        elif isinstance(event, ToolCallStartEvent):
            self._numbers[event.call_id] = event.input.get("n", "?")
            self.seen.append(f"start {self._numbers[event.call_id]}")
        elif isinstance(event, ToolCallEndEvent):
            self.seen.append(f"end {self._numbers[event.call_id]} {event.state}")
        self._changed.set()

    async def until(self, entry: str) -> None:
        while entry not in self.seen:
            self._changed.clear()
            await self._changed.wait()


def numbered(*names: str) -> Any:
    """One answer with these calls, numbered from 1."""
    return calls(*(call(name, {"n": number}) for number, name in enumerate(names, 1)))


def begun(store: Store, gate: Any, *names: str, tools: Sequence[Tool] = ()) -> tuple[Session, Log, ScriptedProvider]:
    provider = ScriptedProvider([numbered(*names), text("ok")])
    known = tools or [
        Plain("read", parallel_safe=True, scope="read"),
        Plain("write"),
        Plain("wide", parallel_safe=True),
        Plain("run"),
    ]
    agent = make(provider, *known, gate=gate, store=store)
    return agent.session("c"), Log(agent), provider


async def rounds_calls(store: Store) -> tuple[Call, ...]:
    return next(m for m in await path(store) if m.calls).calls


# --- order -------------------------------------------------------------------------------------------------------


async def test_what_comes_before_a_waiting_call_runs_at_once(store: Store) -> None:
    """Reads before a write run while a person decides about it; the read after it waits for its turn."""
    people = People()
    session, log, _ = begun(store, people, "read", "read", "write", "read")
    stream = asyncio.create_task(collect(session.run("go")))
    await log.until("end 1 done")
    await log.until("end 2 done")
    assert log.seen[0] == "ask 3"
    assert not any("start 3" in entry or "start 4" in entry for entry in log.seen)
    live = session.live()
    assert live is not None
    assert live.phase == "waiting"
    assert [view.input["n"] for view in live.waiting] == [3]
    people.answer(3, Allow())
    events = await stream
    assert log.seen[-4:] == ["start 3", "end 3 done", "start 4", "end 4 done"]
    assert len(of(events, PermissionRequestEvent)) == 1
    assert [c.state for c in await rounds_calls(store)] == ["done"] * 4


async def test_all_questions_come_at_once_and_calls_keep_their_order(store: Store) -> None:
    """Whoever answers the second question first does not make its call overtake the first."""
    people = People()
    session, log, _ = begun(store, people, "write", "write", "run")
    stream = asyncio.create_task(collect(session.run("go")))
    await log.until("ask 1 2")
    await people.until_asked(2)
    assert people.asked == [1, 2]
    people.answer(2, Deny("not that one"))
    for _ in range(20):  # time enough to go wrong
        await asyncio.sleep(0)
    assert log.seen == ["ask 1 2"]
    people.answer(1, Allow())
    await stream
    assert log.seen[1:] == ["start 1", "end 1 done", "start 2", "end 2 rejected", "start 3", "end 3 done"]
    assert [c.result for c in await rounds_calls(store)] == ["ok", "not that one", "ok"]


async def test_parallel_calls_do_not_wait_for_their_neighbours_question(store: Store) -> None:
    """In a batch of parallel-safe calls each begins when it is decided; the next batch waits for all of them."""
    people = People()
    session, log, _ = begun(store, people, "wide", "read", "wide", "run")
    stream = asyncio.create_task(collect(session.run("go")))
    await log.until("end 2 done")
    assert log.seen[0] == "ask 1 3"
    people.answer(3, Allow())
    await log.until("end 3 done")
    assert "start 1" not in log.seen
    assert "start 4" not in log.seen
    people.answer(1, Allow())
    await stream
    assert log.seen[-4:] == ["start 1", "end 1 done", "start 4", "end 4 done"]


async def test_a_denied_parallel_call_does_not_split_its_batch(store: Store) -> None:
    """Its neighbours run beside each other all the same; each waits here until the other has begun."""
    met = asyncio.Barrier(2)

    class Meet(Plain):
        async def run(self, arguments: Any, ctx: ToolContext) -> str:
            await met.wait()
            return "met"

    read = Meet("read", parallel_safe=True)
    provider = ScriptedProvider(
        [calls(call("read", {"n": 1}), call("read", {"n": 2, "bad": True}), call("read", {"n": 3})), text("ok")]
    )
    await collect(make(provider, read, gate=People(), store=store).session("c").run("go"))
    assert [(c.state, c.result) for c in await rounds_calls(store)] == [
        ("done", "met"), ("rejected", "never"), ("done", "met"),
    ]  # fmt: skip


async def test_a_call_left_to_a_person_does_not_hold_up_those_after_it(store: Store) -> None:
    """Nobody can be reached about the first: the second still runs, then the turn ends suspended."""
    people = People()
    people.answer(1, Suspend())
    session, log, provider = begun(store, people, "write", "run")
    assert result(await collect(session.run("go"))).subtype == "suspended"
    assert [c.state for c in await rounds_calls(store)] == ["awaiting", "done"]
    people.answers[1] = asyncio.get_running_loop().create_future()
    people.answer(1, Allow())
    assert result(await collect(session.resume())).final_text == "ok"
    assert [entry for entry in log.seen if entry.startswith("start 2")] == ["start 2"]
    pairs(provider.requests[-1])


async def test_a_gate_that_breaks_off_a_question_denies(store: Store) -> None:
    """A CancelledError of the gate's own making is no stop."""

    class Breaks(People):
        async def ask(self, pending: PendingCall, verdict: Ask) -> Answer:
            raise asyncio.CancelledError

    session, _, _ = begun(store, Breaks(), "write")
    assert result(await collect(session.run("go"))).subtype == "success"
    assert [c.state for c in await rounds_calls(store)] == ["rejected"]


# --- stopping ----------------------------------------------------------------------------------------------------


async def test_c8_stopping_while_two_wait_cancels_exactly_those(store: Store) -> None:
    """C8: three calls, the first was allowed and has ended when the person stops; "continue" sends three results."""
    people = People()
    session, log, provider = begun(store, people, "write", "write", "write")
    stream = asyncio.create_task(collect(session.run("go")))
    people.answer(1, Allow())
    await log.until("end 1 done")
    session.abort()
    assert result(await stream).subtype == "aborted"
    assert [c.state for c in await rounds_calls(store)] == ["done", "cancelled", "cancelled"]
    assert sum(entry.startswith("start") for entry in log.seen) == sum(e.startswith("end") for e in log.seen) == 3
    await collect(session.run("continue"))
    pairs(provider.requests[-1])
    assert texts(provider.requests[-1])[2].lower().count("cancelled") == 2


async def test_stopping_ends_every_question(store: Store) -> None:
    """Those who wait for an answer are told that nobody needs it, also while an earlier call runs."""
    ended: list[int] = []

    class Watching(People):
        async def ask(self, pending: PendingCall, verdict: Ask) -> Answer:
            try:
                return await super().ask(pending, verdict)
            finally:
                ended.append(pending.raw["n"])

    slow = Gated("read")
    session, log, _ = begun(store, Watching(), "read", "write", "write", tools=[slow, Plain("write")])
    stream = asyncio.create_task(collect(session.run("go")))
    await slow.entered.wait()
    session.abort()
    await stream
    assert sorted(ended) == [2, 3]
    assert session.live() is None
    assert [c.state for c in await rounds_calls(store)] == ["cancelled"] * 3
    assert "ask 2 3" in log.seen


async def test_stopping_after_a_tool_suspended_keeps_the_brackets(store: Store) -> None:
    """A call that left itself to a person and is then stopped: every start still has one end."""

    class Later(Plain):
        async def run(self, arguments: Any, ctx: ToolContext) -> str:
            raise ToolSuspended("later")

    slow = Gated("read")
    session, log, _ = begun(store, AllowAll(), "run", "read", tools=[Later("run"), slow])
    stream = asyncio.create_task(collect(session.run("go")))
    await slow.entered.wait()
    session.abort()
    await stream
    assert [c.state for c in await rounds_calls(store)] == ["cancelled"] * 2
    assert sum(entry.startswith("start") for entry in log.seen) == sum(e.startswith("end") for e in log.seen)


@pytest.mark.parametrize("stopped", [False, True])
async def test_progress_after_the_end_is_dropped(store: Store, stopped: bool) -> None:
    """A tool that outlives its call, such as a thread that cannot be stopped, has nothing more to tell."""

    class Chatty(Gated):
        context: ToolContext

        async def run(self, arguments: Any, ctx: ToolContext) -> Any:
            self.context = ctx
            ctx.emit({"at": "work"})
            return await super().run(arguments, ctx)

    tool = Chatty("chatty")
    session = make(ScriptedProvider([calls(call("chatty")), text("ok")]), tool, store=store).session("c")
    stream = asyncio.create_task(collect(session.run("go")))
    await tool.entered.wait()
    following = session.subscribe()
    tool.go.set()
    if stopped:
        session.abort()
    seen = await stream
    tool.context.emit({"at": "home"})
    following.close()
    assert of(await collect(following), ToolProgressEvent) == []
    assert [e.data for e in of(seen, ToolProgressEvent)] == [{"at": "work"}]


# --- crashes -----------------------------------------------------------------------------------------------------


async def test_what_waits_behind_a_question_is_not_taken_for_begun(store: Store) -> None:
    """The process dies while a person decides: the command after the write never ran, so it runs after the restart."""
    people = People()
    session, log, _ = begun(store, people, "read", "write", "run")
    await session.send("go")
    await log.until("end 1 done")
    await session._runner.close()
    run = Plain("run", "ran")
    people = People()
    people.answer(2, Allow())
    tools = [Plain("read", parallel_safe=True, scope="read"), Plain("write", "wrote"), run]
    agent = make(ScriptedProvider([text("ok")]), *tools, gate=people, store=store)
    report = await agent.recover()
    await agent.session("c").wait()
    assert report.calls_interrupted == 0
    assert people.asked == [2]
    assert [c.result for c in await rounds_calls(store)] == ["ok", "wrote", "ran"]
    assert len(run.runs) == 1


async def test_a_waiting_call_that_needs_nobody_any_more_still_runs_once(store: Store) -> None:
    """After a restart the gate allows it; dying while it runs must not run it again."""
    session, log, _ = begun(store, People(), "write")
    await session.send("go")
    await log.until("ask 1")
    await session._runner.close()
    slow = Gated("write")
    agent = make(ScriptedProvider([]), slow, gate=AllowAll(), store=store)
    await agent.recover()
    await slow.entered.wait()
    await agent.close()
    again = Plain("write")
    agent = make(ScriptedProvider([text("ok")]), again, gate=AllowAll(), store=store)
    report = await agent.recover()
    await agent.session("c").wait()
    assert (report.calls_interrupted, again.runs) == (1, [])
    assert [c.result_kind for c in await rounds_calls(store)] == ["interrupted"]


@pytest.mark.parametrize("kept", [False, True], ids=["write lost", "write kept"])
async def test_dying_at_any_write_of_a_mixed_round(kept: bool) -> None:
    """Reads, two asked writes and a command in one round: wherever it dies, no effect comes twice, none is left open."""
    names = ("read", "write", "run", "wide", "write")
    whole = Frozen(MemoryStore(), 10**6)
    session, _, _ = begun(whole, Yes(), *names)  # type: ignore[arg-type]  # behaves as a store
    await collect(session.run("go"))
    for point in range(2, whole.writes):
        store = MemoryStore()
        frozen = Frozen(store, point, kept=kept)
        effects = {name: Plain(name, parallel_safe=name in ("read", "wide")) for name in set(names)}
        effects["read"].restart_hint = "rerun"
        session, _, _ = begun(frozen, Yes(), *names, tools=list(effects.values()))  # type: ignore[arg-type]  # same
        reading = asyncio.create_task(collect(session.run("go")))
        await frozen.dead.wait()
        reading.cancel()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        provider = ScriptedProvider(then=lambda _: text("ok"))
        agent = make(provider, *effects.values(), gate=Yes(), store=store)
        await agent.recover()
        await agent.session("c").wait()
        made = next((m.calls for m in await path(store) if m.calls), ())
        assert all(c.terminal for c in made), f"killed at write {point}"
        for request in provider.requests:
            pairs(request)
        for name in ("run", "write", "wide"):
            numbers = [r["n"] for r in effects[name].runs]
            assert len(numbers) == len(set(numbers)), f"{name} ran {numbers} when killed at write {point}"


class Yes(People):
    """People who say yes at once."""

    async def ask(self, pending: PendingCall, verdict: Ask) -> Answer:
        await asyncio.sleep(0)
        return Allow()


async def test_a_round_costs_two_writes() -> None:
    """The answer with its calls, and their results; with a question one more for asking and one for each release."""

    async def writes(gate: Any, *names: str) -> int:
        counting = Frozen(MemoryStore(), 10**6)
        session, _, _ = begun(counting, gate, *names)  # type: ignore[arg-type]  # behaves as a store
        await collect(session.run("go"))
        return counting.writes

    around = 3  # the message, the last answer, the turn's end
    assert await writes(AllowAll(), "run") == around + 2
    assert await writes(Yes(), "run") == around + 2
    assert await writes(Yes(), "write") == around + 4
