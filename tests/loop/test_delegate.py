"""Handing work to another agent: what the tool offers, which model works, what comes back, and how it is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from skald_core.loop.agent import Agent
from skald_core.loop.delegate import AsyncTask, DelegateTool
from skald_core.loop.errors import ConfigError
from skald_core.loop.events import ResultEvent, SubagentEvent, SystemEvent, UsageEvent
from skald_core.loop.gate import AllowAll
from skald_core.loop.profile import Profile
from skald_core.loop.provider import ModelHandle
from skald_core.loop.scripted import ScriptedProvider, Step, call, calls, text
from skald_core.loop.selectors import StaticModels
from skald_core.loop.store import Store
from skald_core.loop.tools import InvalidArguments, Tool, ToolContext, ToolRegistry
from skald_core.loop.types import ConversationId, ModelRequest, Usage

from .helpers import Gated, Plain, collect, kinds, of, path, result

AGENTS = {"helper": "helps", "clerk": "writes"}


def handing(
    store: Store, answers: Any, *tools: Tool, delegate: DelegateTool, pins: dict[str, str] | None = None
) -> Agent:
    """An agent whose model hands one task to ``helper``, with two models to choose from."""
    mine = ToolRegistry([delegate, Plain("write")])
    theirs = ToolRegistry(tools)

    async def profiles(conversation: ConversationId, agent: str) -> Profile:
        if agent and agent not in AGENTS:
            raise ConfigError(f"there is no agent {agent!r}")
        return Profile(
            agent=agent, system=agent or "main", tools=theirs if agent else mine, pin=(pins or {}).get(agent)
        )

    providers = [ScriptedProvider(then=answers, id="big"), ScriptedProvider(then=answers, id="small")]
    selector = StaticModels([ModelHandle(p.id, p, f"{p.id}-model", p.info("")) for p in providers])
    return Agent(selector=selector, profiles=profiles, gate=AllowAll(), store=store)


def script(*helper: Step, task: dict[str, Any] | None = None) -> Any:
    """The main model hands over once, then says "ok"; the helper plays ``helper``."""
    steps = iter(helper)

    def answer(request: ModelRequest) -> Step:
        if request.system[0].text in AGENTS:
            return next(steps)
        made = {"agent_id": "helper", "prompt": "do it", "title": "Doing"} | (task or {})
        return calls(call("execute_subtask", made), usage=Usage(100, 10)) if len(request.messages) == 1 else text("ok")

    return answer


async def test_child_events_come_wrapped_and_its_usage_counts(store: Store) -> None:
    """The envelope names parent, child, call, agent and title; the parent's totals include the child's tokens."""
    child = (calls(call("look"), usage=Usage(1000, 1)), text("found", usage=Usage(2000, 2)))
    agent = handing(store, script(*child), Plain("look"), delegate=DelegateTool(AGENTS))
    seen = await collect(agent.session("c").run("hi"))
    wrapped = of(seen, SubagentEvent)
    made = (await path(store))[1].calls[0]
    root = await store.root(ConversationId("c"))
    assert root is not None
    assert {(e.frame, e.parent_call, e.agent, e.title) for e in wrapped} == {(root.id, made.id, "helper", "Doing")}
    inner = [e.event for e in wrapped]
    assert kinds(inner, "round_started") == [
        "system", "user", "assistant", "tool_call_start", "tool_call_end", "user", "assistant",
        "result",
    ]  # fmt: skip
    assert (of(inner, SystemEvent)[0].depth, of(inner, SystemEvent)[0].parent_call) == (1, made.id)
    assert of(inner, ResultEvent)[0].final_text == made.result == "found"
    total = result(seen).total_usage
    assert (total.input_tokens, total.output_tokens) == (100 + 1000 + 2000 + 10, 10 + 1 + 2 + 5)
    assert of(inner, UsageEvent)[-1].cumulative.input_tokens == 3100


@pytest.mark.parametrize("empty", ["", "   "])
async def test_an_empty_answer_is_an_error(store: Store, empty: str) -> None:
    """The parent is told that nothing came of it."""
    agent = handing(store, script(calls(call("look")), text(empty)), Plain("look"), delegate=DelegateTool(AGENTS))
    await collect(agent.session("c").run("hi"))
    made = (await path(store))[1].calls[0]
    assert (made.state, "without an answer" in (made.result or "")) == ("failed", True)


@pytest.mark.parametrize(
    ("task", "pins", "worked"),
    [
        ({}, {}, "big"),
        ({"model": "small"}, {}, "small"),
        ({}, {"helper": "small"}, "small"),
        ({"model": "big"}, {"helper": "small"}, "big"),
        ({}, {"": "small"}, "big"),
    ],
)
async def test_the_model_is_chosen_not_inherited(
    store: Store, task: dict[str, Any], pins: dict[str, str], worked: str
) -> None:
    """The argument, else the agent's own pin, else the selector; never the parent's model."""
    delegate = DelegateTool(AGENTS, models=("big", "small"))
    agent = handing(store, script(text("done"), task=task), delegate=delegate, pins=pins)
    seen = await collect(agent.session("c").run("hi"))
    inner = [e.event for e in of(seen, SubagentEvent)]
    assert of(inner, SystemEvent)[0].model_id == worked


async def test_a_chosen_model_outlives_a_crash(store: Store) -> None:
    """The sub-agent is taken up with the model it was given."""
    slow = Gated("slow", restart_hint="rerun")
    delegate = DelegateTool(AGENTS, models=("big", "small"))
    agent = handing(store, script(calls(call("slow")), task={"model": "small"}), slow, delegate=delegate)
    await agent.session("c").send("hi")
    await slow.entered.wait()
    await agent.close()
    agent = handing(store, script(text("done"), task={"model": "small"}), Plain("slow"), delegate=delegate)
    seen: list[Any] = []
    agent.on_event(seen.append)
    await agent.recover()
    await agent.session("c").wait()
    inner = [e.event for e in of(seen, SubagentEvent)]
    assert [e.model_id for e in of(inner, SystemEvent)] == ["small"]
    assert (await path(store))[-1].content == "ok"


@pytest.mark.parametrize(
    "arguments",
    [
        {"agent_id": "helper"},
        {"agent_id": "helper", "prompt": "  "},
        {"agent_id": "nobody", "prompt": "x"},
        {"agent_id": "helper", "prompt": "x", "mode": "async"},
        {"agent_id": "helper", "prompt": "x", "model": "huge"},
        {"agent_id": "helper", "prompt": "x", "shoe_size": 3},
    ],
)
def test_what_it_refuses(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments):
        DelegateTool(AGENTS, models=("big",)).validate(arguments)


def test_it_offers_what_there_is() -> None:
    """The description lists the agents; background work and models only where there are some."""
    plain = DelegateTool(AGENTS)
    assert "- clerk: writes\n- helper: helps" in plain.description
    assert not {"mode", "model"} & plain.parameters["properties"].keys()
    with pytest.raises(InvalidArguments, match="leave it out"):
        plain.validate({"agent_id": "helper", "prompt": "x", "model": "big"})
    full = DelegateTool(AGENTS, executor=Executor(), models=("big",))
    assert full.parameters["properties"]["model"]["enum"] == ["big"]
    assert "async" in full.parameters["properties"]["mode"]["enum"]


class Executor:
    """Takes background work and remembers it."""

    def __init__(self) -> None:
        self.tasks: list[AsyncTask] = []

    async def submit(self, ctx: ToolContext, task: AsyncTask) -> str:
        self.tasks.append(task)
        return "t1"


async def test_background_work_goes_to_the_executor(store: Store) -> None:
    """The model gets a receipt at once; the result comes home as a finished call and the agent goes on."""
    executor = Executor()
    task = {"mode": "async", "model": "small", "description": "why"}
    delegate = DelegateTool(AGENTS, executor=executor, models=("small",))
    agent = handing(store, script(task=task), delegate=delegate)
    session = agent.session("c")
    await collect(session.run("hi"))
    assert executor.tasks == [AsyncTask("helper", "Doing", "do it", "why", "small")]
    assert (await path(store))[1].calls[0].result == '{"task_id":"t1","status":"started"}'
    await session.deliver_result("t1", "it is done", title="Doing")
    await session.wait()
    assert [c.name for m in await path(store) for c in m.calls] == ["execute_subtask", "task_completed"]


async def test_a_sub_agent_has_its_own_tools_only(store: Store) -> None:
    """What its profile gives it; the parent's tools are unknown to it."""
    agent = handing(
        store, script(calls(call("write")), text("could not")), Plain("look"), delegate=DelegateTool(AGENTS)
    )
    await collect(agent.session("c").run("hi"))
    made = (await path(store))[1].calls[0]
    (frame,) = await store.child_frames(made.id)
    inner = (await store.frame_history(frame.id)).items
    assert "unknown tool 'write'" in (inner[1].message.calls[0].result or "")


async def test_stopping_the_parent_stops_every_child(store: Store) -> None:
    """Two at once: each start has its end, inside and outside."""
    slow = Gated("slow")

    def answer(request: ModelRequest) -> Step:
        if request.system[0].text in AGENTS:
            return calls(call("slow"))
        return calls(*(call("execute_subtask", {"agent_id": name, "prompt": "go"}) for name in AGENTS))

    agent = handing(store, answer, slow, delegate=DelegateTool(AGENTS))
    session = agent.session("c")
    stream = asyncio.create_task(collect(session.run("hi")))
    while len(slow.runs) < 2:
        await asyncio.sleep(0)
    session.abort()
    seen = await stream
    flat = [e.event if isinstance(e, SubagentEvent) else e for e in seen]
    assert kinds(flat).count("tool_call_start") == kinds(flat).count("tool_call_end") == 4
    assert [c.state for c in (await path(store))[1].calls] == ["cancelled"] * 2
    assert await store.unfinished() == ()
