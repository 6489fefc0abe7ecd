"""What a turn tells beyond its messages: how it begins, what its rounds brought, and which skills were used."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from skald_core.loop.agent import Agent
from skald_core.loop.errors import StoreError
from skald_core.loop.events import (
    ErrorEvent,
    PartialAssistantEvent,
    SkillCompletedEvent,
    SkillInvokedEvent,
    SkillsLoadedEvent,
    SkillView,
    SubagentEvent,
    SystemEvent,
    ToolCallEndEvent,
    ToolResultView,
    UsageEvent,
    UserEvent,
)
from skald_core.loop.gate import AllowAll, Deny, DenyAll, DenyList, Suspend, mode_of
from skald_core.loop.hooks import Block, NoHooks, Prompt
from skald_core.loop.permissions import PermissionEngine
from skald_core.loop.profile import Limits, Profile
from skald_core.loop.scripted import ScriptedProvider, call, calls, cut, text
from skald_core.loop.store import Store
from skald_core.loop.tools import SkillUse, Tool, ToolContext, ToolOutput
from skald_core.loop.types import Attachment, Usage
from tests.loop.helpers import AskGate, Gated, Plain, collect, kinds, make, of, path, result


def results(events: list[Any]) -> list[UserEvent]:
    return [event for event in of(events, UserEvent) if event.subtype == "tool_result"]


# --- the first event -----------------------------------------------------------------------------------------------


async def test_a_turn_begins_with_where_it_works_and_how_it_is_judged(store: Store, tmp_path: Path) -> None:
    """The folder and mode an embedder chose, and all tools in alphabetical order."""
    agent = make(
        ScriptedProvider([text("ok")]), Plain("b"), Plain("a"), store=store, cwd=tmp_path,
        gate=PermissionEngine(mode="plan", root=tmp_path),
    )  # fmt: skip
    first = (await collect(agent.session("c").run("hi")))[0]
    assert isinstance(first, SystemEvent)
    assert (first.permission_mode, first.cwd, first.tools) == ("plan", str(tmp_path), ("a", "b"))
    assert (first.subtype, first.agent, first.model) == ("init", "", "m")


async def test_a_folder_nobody_chose_is_the_processes_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was when the agent was made; one that was deleted is no reason to fail."""
    monkeypatch.chdir(tmp_path)
    agent = make(ScriptedProvider([text("ok")]))
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    nowhere = make(ScriptedProvider([text("ok")]))
    monkeypatch.chdir("/")
    assert of(await collect(agent.session("c").run("hi")), SystemEvent)[0].cwd == str(tmp_path)
    assert of(await collect(nowhere.session("c").run("hi")), SystemEvent)[0].cwd == ""


def test_gates_name_their_mode() -> None:
    """A gate of one's own need not have one."""
    gates = (AllowAll(), DenyList("rm"), DenyAll(), PermissionEngine(mode="yolo"), AskGate("x"))
    assert [mode_of(gate) for gate in gates] == ["all", "all", "none", "all", ""]


async def test_nothing_is_told_before_the_first_event(store: Store) -> None:
    """Neither what a hook did with the prompt, nor that a queued message left the queue, nor why there is no turn."""

    class Failing(NoHooks):
        async def user_prompt(self, prompt: Prompt) -> Any:
            if "bad" in prompt.content:
                return Block("not that word")
            raise RuntimeError("boom")

    slow = Gated("slow")
    provider = ScriptedProvider([calls(call("slow")), text("ok"), text("ok")])
    session = make(provider, slow, hooks=Failing(), store=store).session("c")
    seen = session.subscribe()
    await session.send("one")
    await slow.entered.wait()
    await session.send("two")
    await session.send("bad three")
    slow.go.set()
    await session.wait()
    seen.close()
    events = await collect(seen)
    turns: list[list[str]] = [[]]
    for tag in kinds(events):
        turns[-1].append(tag)
        if tag == "result":
            turns.append([])
    # While the first turn ran, the queue grew twice.
    assert [turn[0] for turn in turns if turn] == ["system"] * 3
    assert turns[1][:5] == ["system", "hook_error", "queue_changed", "user", "round_started"]
    assert turns[2] == ["system", "queue_changed", "error", "result"]


async def test_a_turn_stopped_before_it_began_has_both_its_ends(store: Store) -> None:
    """Its first event, the message if that was stored, and its result."""

    class Slow(NoHooks):
        reached = asyncio.Event()

        async def user_prompt(self, prompt: Prompt) -> None:
            self.reached.set()
            await asyncio.Event().wait()

    hooks = Slow()
    session = make(ScriptedProvider(), hooks=hooks, store=store).session("c")
    stream = session.run("hi")
    await hooks.reached.wait()
    session.abort("enough")
    events = await collect(stream)
    assert kinds(events) == ["system", "result"]
    assert (result(events).subtype, result(events).reason) == ("aborted", "enough")


# --- what a round brought ------------------------------------------------------------------------------------------


async def test_results_come_in_call_order_when_all_calls_have_ended(store: Store) -> None:
    """Once a round, after the last end and before the next model call, whichever call ended first."""
    first, second = Gated("first", "1", parallel_safe=True), Gated("second", "2", parallel_safe=True)

    class Pictured(Plain):
        async def run(self, arguments: Any, ctx: ToolContext) -> ToolOutput:
            return ToolOutput("here", media=(Attachment("p.png", "p.png"),))

    made = calls(call("first", id="a"), call("second", id="b"), call("third", id="c"), call("nope", id="d"))
    provider = ScriptedProvider([made, calls(call("third", id="e")), text("ok")])
    agent = make(provider, first, second, Pictured("third"), store=store)
    stream = agent.session("c").run("hi")
    ended = asyncio.Event()
    agent.on_event(lambda event: ended.set() if isinstance(event, ToolCallEndEvent) else None)
    await first.entered.wait()
    await second.entered.wait()
    second.go.set()
    await ended.wait()
    first.go.set()
    events = await collect(stream)
    assert [end.tool_use_id for end in of(events, ToolCallEndEvent)][:2] == ["b", "a"]
    one, two = results(events)
    message = (await path(store))[1]
    assert (one.message_id, one.content, one.parent) == (message.id, "", message.parent)
    assert [(r.tool_use_id, r.call_id, r.tool_name) for r in one.results] == [
        (c.tool_use_id, c.id, c.name) for c in message.calls
    ]
    assert [(r.content, r.is_error) for r in one.results[:3]] == [("1", False), ("2", False), ("here", False)]
    assert one.results[2].media == (Attachment("p.png", "p.png"),)
    assert one.results[3].is_error
    assert "unknown tool" in one.results[3].content
    assert [r.tool_use_id for r in two.results] == ["e"]
    at = events.index(one)
    assert isinstance(events[at - 1], ToolCallEndEvent)
    assert kinds(events[at + 1 :])[0] == "round_started"


async def test_a_long_result_is_cut_in_the_event_and_whole_in_the_store(store: Store) -> None:
    provider = ScriptedProvider([calls(call("long")), text("ok")])
    agent = make(provider, Plain("long", "x" * 5000), store=store, limits=Limits(event_chars=100))
    (found,) = results(await collect(agent.session("c").run("hi")))
    (view,) = found.results
    assert isinstance(view, ToolResultView)
    assert view.truncated
    assert len(view.content) < 400
    assert (await path(store))[1].calls[0].result == "x" * 5000


async def test_a_stop_tells_of_all_results_too(store: Store) -> None:
    """What had ended keeps its result, the rest is cancelled; all before the turn's result."""
    slow = Gated("slow")
    provider = ScriptedProvider([calls(call("quick"), call("slow"), call("quick"))])
    session = make(provider, Plain("quick", "done"), slow, store=store).session("c")
    stream = session.run("hi")
    await slow.entered.wait()
    session.abort("enough")
    events = await collect(stream)
    assert kinds(events)[-2:] == ["user", "result"]
    (found,) = results(events)
    assert [(r.content, r.is_error) for r in found.results] == [
        ("done", False), ("Cancelled: enough.", True), ("Cancelled: enough.", True),
    ]  # fmt: skip


async def test_a_stop_right_after_the_last_end_still_tells_of_the_results(store: Store) -> None:
    """The stop comes from a listener of that very end."""
    agent = make(ScriptedProvider([calls(call("quick"))]), Plain("quick", "done"), store=store)
    session = agent.session("c")
    agent.on_event(lambda event: session.abort() if isinstance(event, ToolCallEndEvent) else None)
    events = await collect(session.run("hi"))
    assert [r.content for r in results(events)[0].results] == ["done"]
    assert (len(results(events)), result(events).subtype) == (1, "aborted")


async def test_a_round_that_waits_for_a_person_has_no_results_yet(store: Store) -> None:
    """They come when it is taken up again and all calls have ended."""
    gate = AskGate("write", answer=Suspend())
    provider = ScriptedProvider([calls(call("look"), call("write")), text("ok")])
    session = make(provider, Plain("look", "seen"), Plain("write", "wrote"), gate=gate, store=store).session("c")
    assert results(await collect(session.run("hi"))) == []
    gate.answer = Deny("no")
    (found,) = results(await collect(session.resume()))
    assert [(r.content, r.is_error) for r in found.results] == [("seen", False), ("no", True)]


async def test_a_turn_that_fails_with_open_calls_ends_them_all(store: Store) -> None:
    """Every start has its end and the round its results, although the store failed in its middle."""

    class Once:
        """A store whose write of a result fails once."""

        def __init__(self) -> None:
            self.broken = False

        def apply(self, ops: Any) -> Any:
            if not self.broken and any(type(op).__name__ == "ResolveCall" for op in ops):
                self.broken = True
                failed = asyncio.get_running_loop().create_future()
                failed.set_exception(StoreError("the disk hiccuped"))
                return failed
            return store.apply(ops)

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

    provider = ScriptedProvider([calls(call("look"))])
    agent = make(provider, Plain("look"), store=Once())
    events = await collect(agent.session("c").run("hi"))
    assert kinds(events)[-5:] == ["tool_call_start", "tool_call_end", "user", "error", "result"]
    assert of(events, ErrorEvent)[0].name == "StoreError"
    assert [r.is_error for r in results(events)[0].results] == [True]


async def test_final_text_is_the_whole_last_message_and_usage_adds_up(store: Store) -> None:
    """Not its first piece; each usage event holds the call's own tokens and the turn's so far."""
    provider = ScriptedProvider(
        [calls(call("look"), say="looking", usage=Usage(10, 1)), text("a", "b", usage=Usage(20, 2))]
    )
    events = await collect(make(provider, Plain("look"), store=store).session("c").run("hi"))
    assert result(events).final_text == "ab"
    assert [(u.usage.input_tokens, u.cumulative.input_tokens) for u in of(events, UsageEvent)] == [(10, 10), (20, 30)]
    assert result(events).total_usage == Usage(30, 3)


async def test_pieces_of_call_arguments_come_only_when_asked_for(store: Store) -> None:
    """They name their call and join to its arguments."""
    for wanted in (False, True):
        provider = ScriptedProvider([calls(call("look", {"path": "a"}, id="u")), text("ok")])
        agent = make(provider, Plain("look"), store=store, partials=wanted)
        parts = of(await collect(agent.session(f"c{wanted}").run("hi")), PartialAssistantEvent)
        inputs = [p for p in parts if p.kind == "tool_input"]
        assert {(p.tool_use_id, p.tool_name) for p in inputs} == ({("u", "look")} if wanted else set())
        assert "".join(p.text for p in inputs) == ('{"path": "a"}' if wanted else "")


async def test_calls_of_an_answer_that_was_cut_off_by_its_length_are_answered(store: Store) -> None:
    """Whatever the stop reason says, no call is left without a result."""
    provider = ScriptedProvider([calls(call("look"), call("look", '{"a": '), stop_reason="max_tokens"), text("ok")])
    events = await collect(make(provider, Plain("look"), store=store).session("c").run("hi"))
    assert [r.is_error for r in results(events)[0].results] == [False, True]
    assert result(events).subtype == "success"


# --- skills --------------------------------------------------------------------------------------------------------

SKILLS = (SkillView("tidy", "Tidies up.", when_to_use="when it is messy"), SkillView("cook", "Cooks."))


class SkillTool(Tool):
    """A tool that reads a skill out, as a plugin's would."""

    name = "skill"
    description = "Use a skill."

    def __init__(self) -> None:
        self.entered = asyncio.Event()

    def skill(self, raw: dict[str, Any]) -> SkillUse | None:
        if raw.get("name") == "broken":
            raise RuntimeError("boom")
        return SkillUse(raw["name"], str(raw.get("args", "")), "large", ("read",)) if "name" in raw else None

    async def run(self, arguments: Any, ctx: ToolContext) -> ToolOutput | str:
        self.entered.set()
        if arguments.get("args") == "forever":
            await asyncio.Event().wait()
        return ToolOutput("no such skill", is_error=True) if arguments["name"] == "nope" else "do this"


def skill_events(events: list[Any]) -> list[tuple[str, ...]]:
    return [
        (kind, event.name) if kind.startswith("skill") else (kind, event.tool_name)
        for kind, event in zip((e.__struct_config__.tag for e in events), events, strict=True)
        if kind in ("skill_invoked", "skill_completed", "tool_call_start", "tool_call_end")
    ]


async def test_skills_are_announced_once_right_after_the_first_event(store: Store) -> None:
    """For each conversation, however many sessions it has; not at all where there are none."""
    agent = make(ScriptedProvider(then=lambda _: text("ok")), store=store, skills=SKILLS)
    first = await collect(agent.session("c").run("hi"))
    assert kinds(first)[:3] == ["system", "skills_loaded", "user"]
    assert of(first, SkillsLoadedEvent)[0].skills == SKILLS
    assert of(await collect(agent.session("c").run("more")), SkillsLoadedEvent) == []
    assert len(of(await collect(agent.session("other").run("hi")), SkillsLoadedEvent)) == 1
    plain = make(ScriptedProvider([text("ok")]))
    assert of(await collect(plain.session("c").run("hi")), SkillsLoadedEvent) == []


async def test_other_skills_are_announced_anew(store: Store) -> None:
    """Also that there are none any more, so that nobody shows what is gone."""
    now = [SKILLS]

    async def profiles(conversation: str, agent: str) -> Profile:
        return Profile(skills=now[0])

    agent = Agent(provider=ScriptedProvider(then=lambda _: text("ok")), model="m", profiles=profiles, store=store)
    session = agent.session("c")
    told: list[tuple[SkillView, ...]] = []
    for skills in (SKILLS, SKILLS[:1], SKILLS[:1], ()):
        now[0] = skills
        told += [event.skills for event in of(await collect(session.run("hi")), SkillsLoadedEvent)]
    assert told == [SKILLS, SKILLS[:1], ()]


async def test_a_skill_encloses_its_call(store: Store) -> None:
    """From outside, whether the call succeeds, fails, or is refused; other calls have no such events."""
    made = calls(
        call("skill", {"name": "tidy", "args": "now"}), call("skill", {"name": "nope"}), call("skill"),
        call("skill", {"name": "broken"}), call("look"),
    )  # fmt: skip
    provider = ScriptedProvider([made, text("ok"), calls(call("skill", {"name": "tidy"})), text("ok")])
    session = make(provider, SkillTool(), Plain("look"), store=store).session("c")
    events = await collect(session.run("hi"))
    assert skill_events(events)[:8] == [
        ("skill_invoked", "tidy"), ("tool_call_start", "skill"), ("tool_call_end", "skill"), ("skill_completed", "tidy"),
        ("skill_invoked", "nope"), ("tool_call_start", "skill"), ("tool_call_end", "skill"), ("skill_completed", "nope"),
    ]  # fmt: skip
    assert [kind for kind, _ in skill_events(events)[8:]] == ["tool_call_start", "tool_call_end"] * 3
    invoked, completed = of(events, SkillInvokedEvent)[0], of(events, SkillCompletedEvent)
    assert (invoked.args, invoked.model_override, invoked.allowed_tools) == ("now", "large", ("read",))
    assert invoked.call_id == completed[0].call_id == (await path(store))[1].calls[0].id
    assert [event.is_error for event in completed] == [False, True]

    refused = make(provider, SkillTool(), store=store, gate=DenyAll("no")).session("c")
    events = await collect(refused.run("again"))
    assert [kind for kind, _ in skill_events(events)] == [
        "skill_invoked", "tool_call_start", "tool_call_end", "skill_completed",
    ]  # fmt: skip
    assert of(events, SkillCompletedEvent)[0].is_error


async def test_a_stop_closes_every_skill_it_opened(store: Store) -> None:
    """Also those of calls that had not begun."""
    skill = SkillTool()
    made = calls(call("skill", {"name": "tidy", "args": "forever"}), call("skill", {"name": "cook"}))
    session = make(ScriptedProvider([made]), skill, store=store).session("c")
    stream = session.run("hi")
    await skill.entered.wait()
    session.abort()
    assert skill_events(await collect(stream)) == [
        ("skill_invoked", "tidy"), ("tool_call_start", "skill"), ("tool_call_end", "skill"), ("skill_completed", "tidy"),
        ("skill_invoked", "cook"), ("tool_call_start", "skill"), ("tool_call_end", "skill"), ("skill_completed", "cook"),
    ]  # fmt: skip


async def test_a_partial_answer_leaves_no_event_out_of_place(store: Store) -> None:
    """An answer that broke off is told of, then the error, then the end."""
    events = await collect(make(ScriptedProvider([cut("half")]), store=store).session("c").run("hi"))
    assert kinds(events) == ["system", "user", "round_started", "assistant", "error", "result"]
    assert of(events, ErrorEvent)[0].name == "NetworkError"
    assert of(events, SubagentEvent) == []
