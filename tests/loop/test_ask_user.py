"""The tool that asks the person: what it takes, what the model gets to read, and who has it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from skald_core.loop.agent import Agent
from skald_core.loop.ask_user import Answered, AskUserTool, Declined, HumanGone, Questions
from skald_core.loop.delegate import DelegateTool
from skald_core.loop.errors import ConfigError
from skald_core.loop.gate import AllowAll
from skald_core.loop.permissions import PermissionEngine
from skald_core.loop.profile import Profile
from skald_core.loop.scripted import ScriptedProvider, call, calls, text
from skald_core.loop.store import Store
from skald_core.loop.tools import InvalidArguments, ToolRegistry
from skald_core.loop.types import ConversationId

from .helpers import Plain, collect, make, path, result


class Channel:
    """Answers as told, or waits for ever when told nothing."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.asked: list[Questions] = []
        self.reached = asyncio.Event()

    async def ask(self, asked: Questions) -> Any:
        self.asked.append(asked)
        self.reached.set()
        if self.answer is None:
            await asyncio.Event().wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def question(**more: Any) -> dict[str, Any]:
    return {"question": "Which colour?", **more}


def options(*labels: str) -> list[dict[str, str]]:
    return [{"label": label} for label in labels]


@pytest.mark.parametrize(
    "arguments",
    [
        {"questions": [question()]},
        {"questions": [question(header="x" * 12, options=options("red", "blue"), multi_select=True)]},
        {"questions": [question()] * 4},
        {"questions": [question(options=[{"label": "red", "description": "like fire"}, {"label": "blue"}])]},
        {"question": "Which colour?"},
        {"title": "Paint", "question": "Which colour?", "suggested": ["red", "blue"]},
        {"question": "Which colour?", "suggested_answers": ["red", "red", "blue", "green", "black", "white"]},
    ],
)
def test_what_it_takes(arguments: dict[str, Any]) -> None:
    made = AskUserTool(Channel()).validate(arguments)
    assert made.questions[0].question == "Which colour?"
    assert len(made.questions[0].options) in (0, 2, 4)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"questions": []},
        {"questions": [question()] * 5},
        {"questions": [{"question": ""}]},
        {"questions": [question(header="")]},
        {"questions": [question(header="x" * 13)]},
        {"questions": [question(options=options("red"))]},
        {"questions": [question(options=options("a", "b", "c", "d", "e"))]},
        {"questions": [question(options=options("red", "red"))]},
        {"questions": [question(options=options("red", ""))]},
        {"questions": [question(colour="red")]},
        {"questions": "Which colour?"},
    ],
)
def test_what_it_refuses(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments):
        AskUserTool(Channel()).validate(arguments)


def test_its_line_is_the_first_question() -> None:
    """Cut at sixty characters, with how many more there are."""
    tool = AskUserTool(Channel())
    assert tool.summarize(tool.validate({"questions": [question()]})) == "Which colour?"
    assert tool.summarize(tool.validate({"questions": [question()] * 3})) == "Which colour? (+2 more)"
    assert len(tool.summarize(tool.validate({"question": "x" * 100}))) == 60


async def asked(store: Store, channel: Channel, *questions: dict[str, Any]) -> tuple[str, str]:
    """State and result of one call."""
    provider = ScriptedProvider([calls(call("ask_user", {"questions": list(questions)}, id="u1")), text("ok")])
    agent = make(provider, AskUserTool(channel), gate=PermissionEngine(), store=store)
    await collect(agent.session("c").run("hi"))
    made = (await path(store))[1].calls[0]
    return made.state, made.result or ""


async def test_answers_reach_the_model(store: Store) -> None:
    """One, several of several, and the person's own words; asking needs no permission."""
    channel = Channel(Answered((("red",), ("walls", "doors"), ("not on Sundays",))))
    state, told = await asked(
        store, channel, question(), {"question": "What?", "multi_select": True}, {"question": "When?"}
    )
    assert (state, told) == ("done", "Which colour? → red\nWhat? → walls, doors\nWhen? → not on Sundays")
    assert channel.asked[0].tool_use_id == "u1"
    assert channel.asked[0].conversation == "c"


@pytest.mark.parametrize("reason", ["", "too early"])
async def test_declining_is_no_error(store: Store, reason: str) -> None:
    state, told = await asked(store, Channel(Declined(reason)), question())
    assert state == "done"
    assert "assumption" in told
    assert reason in told


@pytest.mark.parametrize(
    "answer",
    [
        Answered(()), Answered((("red", "blue"),)), Answered(((),)), Answered((("",),)), Answered("red"),  # type: ignore[arg-type]
        Answered((3,)), "red", False, RuntimeError("boom"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
async def test_what_is_no_answer_is_an_error_result(store: Store, answer: Any) -> None:
    """The count must fit, and only a question for several takes several."""
    assert (await asked(store, Channel(answer), question()))[0] == "failed"


async def test_stopping_ends_the_question(store: Store) -> None:
    channel = Channel()
    provider = ScriptedProvider([calls(call("ask_user", {"question": "Which?"}))])
    session = make(provider, AskUserTool(channel), store=store).session("c")
    stream = asyncio.create_task(collect(session.run("hi")))
    await channel.reached.wait()
    session.abort()
    assert result(await stream).subtype == "aborted"
    assert (await path(store))[1].calls[0].state == "cancelled"


async def test_when_nobody_is_there_the_question_waits(store: Store) -> None:
    """The turn ends suspended; resuming asks again, and so does a restart."""
    channel = Channel(HumanGone())
    provider = ScriptedProvider([calls(call("ask_user", {"question": "Which?"})), text("ok")])
    session = make(provider, AskUserTool(channel), store=store).session("c")
    assert result(await collect(session.run("hi"))).subtype == "suspended"
    assert (await path(store))[1].calls[0].state == "awaiting"
    channel.answer = Answered((("red",),))
    assert result(await collect(session.resume())).final_text == "ok"
    assert (await path(store))[1].calls[0].result == "red"


async def test_a_question_is_asked_again_after_a_crash(store: Store) -> None:
    channel = Channel()
    agent = make(ScriptedProvider([calls(call("ask_user", {"question": "Which?"}))]), AskUserTool(channel), store=store)
    await agent.session("c").send("hi")
    await channel.reached.wait()
    await agent.close()
    again = Channel(Answered((("blue",),)))
    agent = make(ScriptedProvider([text("ok")]), AskUserTool(again), store=store)
    await agent.recover()
    await agent.session("c").wait()
    assert (await path(store))[1].calls[0].result == "blue"


async def test_sub_agents_do_not_have_it(store: Store) -> None:
    """Whatever their tools are; a call of it there is an unknown tool."""
    tools = ToolRegistry([AskUserTool(Channel()), Plain("look"), DelegateTool({"helper": "helps"})])

    def then(request: Any) -> Any:
        if request.system[0].text == "helper":
            return (
                calls(call("ask_user", {"question": "Which?"})) if len(request.messages) == 1 else text("did without")
            )
        if len(request.messages) == 1:
            return calls(call("execute_subtask", {"agent_id": "helper", "prompt": "go"}))
        return text("ok")

    async def profiles(conversation: ConversationId, agent: str) -> Profile:
        return Profile(agent=agent, system=agent or "main", tools=tools)

    provider = ScriptedProvider(then=then)
    agent = Agent(provider=provider, model="m", profiles=profiles, gate=AllowAll(), store=store)
    await collect(agent.session("c").run("hi"))
    offered = {request.system[0].text: [spec.name for spec in request.tools] for request in provider.requests}
    assert "ask_user" in offered["main"]
    assert offered["helper"] == ["look", "execute_subtask"]
    assert (await path(store))[1].calls[0].result == "did without"


def test_two_tools_of_one_name_clash() -> None:
    """Another name may be chosen."""
    with pytest.raises(ConfigError, match="ask_user"):
        ToolRegistry([AskUserTool(Channel()), AskUserTool(Channel())])
    ToolRegistry([AskUserTool(Channel()), AskUserTool(Channel(), name="ask_boss")])
