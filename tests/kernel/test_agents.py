"""Agents: shipped ones, those of plugins, and work delegated from one to another, through the real server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skald_core import api as skald
from skald_core.plugins.agents import AgentFileError, read_agents
from skald_core.testing import (
    AppFactory,
    ScriptedProvider,
    TestApp,
    TestClient,
    call,
    calls,
    scripted_plugin,
    text,
)
from tests.support.asking import answered, context_of, history, new, said, until_event, waiting_request, wire
from tests.support.plugins import allowing, echo, made, with_tools, write_note

AGENTS = Path(__file__).parent.parent.parent / "agents"

SCOUT = skald.AgentSpec(
    id="scout", name="Scout", description="Looks around.", prompt="You are the scout.", names={"it": "Esploratore"}
)


def agents_plugin(*agents: skald.AgentSpec, plugin_id: str = "crew") -> Any:
    def skald_agents() -> list[skald.AgentSpec]:
        return list(agents)

    return made(plugin_id, skald_agents)


def delegate(agent: str, prompt: str = "look at the notes", **more: Any) -> Any:
    return call("execute_subtask", {"agent_id": agent, "prompt": prompt, **more})


def offered(provider: ScriptedProvider, request: int = 0) -> list[str]:
    return [tool.name for tool in provider.requests[request].tools]


# -- what there is ------------------------------------------------------------------------------------------------


def test_shipped_metadata_parses() -> None:
    """A typo in a shipped agent fails here; the server itself would only leave the agent out."""
    found = {agent.id: agent for agent in read_agents(AGENTS)}
    assert found["assistant"].type == "chat"
    assert found["worker"].type == "task"
    for agent in found.values():
        assert agent.description
        assert {"it", "fr"} <= agent.names.keys()


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"AGENT.md": "x"}, "meta.json"),
        ({"meta.json": '{"name": "N", "description": "d", "type": "task"}'}, "AGENT.md"),
        ({"meta.json": '{"name": "N", "description": "d", "type": "tasks"}', "AGENT.md": "x"}, "tasks"),
        ({"meta.json": '{"name": "N", "description": "d", "type": "task", "modle": "m"}', "AGENT.md": "x"}, "modle"),
        ({"meta.json": '{"name": "N", "description": "d", "type": "task"}', "AGENT.md": " \n"}, "empty"),
    ],
)
def test_a_broken_agent_folder_says_what_is_wrong(tmp_path: Path, files: dict[str, str], words: str) -> None:
    """The folder and the mistake are named."""
    (tmp_path / "helper").mkdir()
    for name, content in files.items():
        (tmp_path / "helper" / name).write_text(content)
    with pytest.raises(AgentFileError, match=words) as told:
        read_agents(tmp_path)
    assert "'helper'" in str(told.value)


async def test_skald_agents(skald_app: AppFactory) -> None:
    """A plugin's task agents are listed and offered for delegation while it runs; an id that is taken is left out."""
    twin = skald.AgentSpec(id="worker", name="Twin", description="Not the shipped one.", prompt="p")
    talker = skald.AgentSpec(id="poet", name="Poet", description="Writes verse.", prompt="p", type="chat")
    provider = ScriptedProvider(["one", "two"])
    app = await skald_app(scripted_plugin(provider), agents_plugin(SCOUT, talker, twin))
    await app.add_model()
    client = await app.client()
    await client.request("PUT", "/api/auth/profile", {"locale": "it"})
    listed = {agent["id"]: agent for agent in await client.get("/api/agents")}
    assert listed["scout"] == {
        "id": "scout", "name": "Esploratore", "description": "Looks around.", "type": "task", "plugin": "crew",
    }  # fmt: skip
    assert (listed["poet"]["type"], listed["worker"]["plugin"], listed["assistant"]["plugin"]) == ("chat", None, None)
    assert any("'worker'" in problem for problem in app.skald.plugins.rows["crew"].problems)
    conversation = await new(client)
    await client.run_turn("go", conversation)
    (tool,) = provider.requests[0].tools
    assert tool.parameters["properties"]["agent_id"]["enum"] == ["scout", "worker"]
    await app.skald.plugins.disable("crew")
    assert "scout" not in {agent["id"] for agent in await client.get("/api/agents")}
    await client.run_turn("again", conversation)
    (tool,) = provider.requests[1].tools
    assert tool.parameters["properties"]["agent_id"]["enum"] == ["worker"]


async def test_a_plugin_reads_its_agents_from_folders(skald_app: AppFactory, tmp_path: Path) -> None:
    """``ctx.load_agents`` takes a package's folders; one that cannot be used fails that plugin, which says why."""
    folder = tmp_path / "agents" / "clerk"
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text(
        '{"name": "Clerk", "description": "Files things.", "type": "task", "tools": ["echo"]}'
    )
    (folder / "AGENT.md").write_text("You file things.")

    def skald_agents(ctx: skald.PluginContext) -> list[skald.AgentSpec]:
        ctx.package_dir = tmp_path
        return ctx.load_agents()

    app = await skald_app(made("office", skald_agents), strict=False)
    client = await app.client()
    assert "clerk" in {agent["id"] for agent in await client.get("/api/agents")}
    (folder / "meta.json").write_text("{")
    await app.skald.plugins.disable("office")
    await app.skald.plugins.enable("office")
    row = app.skald.plugins.rows["office"]
    assert row.state == "failed"
    assert row.error is not None
    assert "clerk" in row.error.message


# -- delegation ---------------------------------------------------------------------------------------------------


async def test_work_is_delegated_and_its_answer_comes_back(skald_app: AppFactory) -> None:
    """The agent works with its own prompt and tools on what it was told alone; its answer is the call's result, its tokens
    count in the turn, and whoever watches sees what it does."""
    provider = ScriptedProvider(
        [
            calls(delegate("scout", title="the notes"), say="I will have it looked at."),
            calls(call("echo", {"text": "found"}), say="Looking."),
            "There is one note.",
            "All done.",
        ]
    )
    app = await skald_app(scripted_plugin(provider), with_tools(echo), allowing(), agents_plugin(SCOUT))
    await app.add_model()
    client = await app.client()
    conversation = await new(client)
    events: list[dict[str, Any]] = []

    def last(event: dict[str, Any]) -> bool:
        events.append(event)
        return bool(event["type"] == "turn_finished")

    ended = asyncio.ensure_future(until_event(app, client, conversation, last))
    await client.run_turn("secret of the person: 42", conversation)
    finished = await ended
    asked = wire(provider, 1)
    assert "You are the scout." in asked
    assert "look at the notes" in asked
    assert "42" not in asked
    assert offered(provider, 1) == ["echo", "execute_subtask"]
    messages = await history(client, conversation)
    (made_call,) = messages[1]["calls"]
    assert (made_call["state"], made_call["result"]) == ("done", "There is one note.")
    assert messages[-1]["content"] == "All done."
    assert finished["usage"]["output_tokens"] == 4 * 5
    progress = [event["data"] for event in events if event["type"] == "tool_progress"]
    assert {event["call_id"] for event in events if event["type"] == "tool_progress"} == {made_call["id"]}
    assert all((data["agent"], data["name"], data["title"]) == ("scout", "Scout", "the notes") for data in progress)
    assert [step["tool"] for step in progress[-1]["steps"]] == ["echo"]
    assert progress[-1]["steps"][0]["state"] == "done"
    assert progress[-1]["text"] == "There is one note."
    assert made_call["progress"] == progress[-1]  # history tells the same afterwards
    kinds = [event["type"] for event in events]
    assert kinds.index("tool_start") < kinds.index("tool_progress") < kinds.index("tool_done")
    provider.assert_complete()


async def test_history_keeps_what_agents_at_any_depth_did(skald_app: AppFactory) -> None:
    """After a restart their calls are told in the order they were made, with the name of the agent below, the last thirty."""
    inner = skald.AgentSpec(id="inner", name="Inner", description="d", prompt="I am inner.")
    many = [call("echo", {"text": str(number)}) for number in range(30)]
    provider = ScriptedProvider(
        [
            calls(delegate("scout")),
            calls(call("echo", {"text": "first"}), delegate("inner")),
            calls(*many),
            "inner is done",
            "scout is done",
            "end",
        ]
    )
    plugins = [scripted_plugin(provider), with_tools(echo), allowing(), agents_plugin(SCOUT, inner)]
    app = await skald_app(*plugins)
    await app.add_model()
    client = await app.client()
    conversation = await new(client)
    await client.run_turn("go", conversation)
    before = (await history(client, conversation))[1]["calls"][0]["progress"]
    app = await skald_app(*plugins)
    client = app.anonymous()
    client.user = await client.post("/api/auth/login", {"username": "ada", "password": "correct horse battery"})
    (made_call,) = (await history(client, conversation))[1]["calls"]
    work = made_call["progress"]
    assert work == before
    assert (work["name"], work["text"], work["steps_before"]) == ("Scout", "scout is done", 2)
    assert [(step["tool"], step["agent"], step["state"]) for step in work["steps"]] == [("echo", "Inner", "done")] * 30
    _, payload = await (await context_of(app, client))._snapshot(conversation)
    assert msgspec.json.decode(payload)["messages"][1]["calls"][0]["progress"] == work


async def test_a_client_that_joins_sees_what_the_agent_did_so_far(skald_app: AppFactory) -> None:
    """The snapshot holds the running agent's text and steps beside its call."""
    gate, reached = asyncio.Event(), asyncio.Event()
    provider = ScriptedProvider(
        [calls(delegate("scout")), calls(call("echo", {"text": "x"})), text("half", gate=gate, reached=reached), "end"]
    )
    app = await skald_app(scripted_plugin(provider), with_tools(echo), allowing(), agents_plugin(SCOUT))
    await app.add_model()
    client = await app.client()
    conversation = await new(client)
    await said(client, "go", conversation)
    async with asyncio.timeout(20):
        await reached.wait()
    context = await context_of(app, client)
    _, payload = await context._snapshot(conversation)
    snapshot = msgspec.json.decode(payload)
    (made_call,) = snapshot["messages"][-1]["calls"]
    assert [step["tool"] for step in made_call["progress"]["steps"]] == ["echo"]
    gate.set()
    await app.idle(client, conversation)
    assert context.translator.working(made_call["id"]) is None


@pytest.mark.parametrize(
    ("tools", "expected"), [(None, ["echo", "write_note", "execute_subtask"]), (("echo",), ["echo"])]
)
async def test_an_agent_has_the_tools_it_may_use(
    skald_app: AppFactory, tools: tuple[str, ...] | None, expected: list[str]
) -> None:
    """None is everything the user has; else only what is named, and a call of anything else fails."""
    agent = skald.AgentSpec(id="narrow", name="Narrow", description="d", prompt="p", tools=tools)
    provider = ScriptedProvider(
        [calls(delegate("narrow")), calls(call("write_note", {"text": "x"})), "child", "parent"]
    )
    app = await skald_app(scripted_plugin(provider), with_tools(echo, write_note), allowing(), agents_plugin(agent))
    await app.add_model()
    client = await app.client()
    await client.run_turn("go")
    assert offered(provider, 1) == expected
    assert ("unknown tool" in str(provider.requests[2].messages[-1])) is (tools is not None)


async def test_an_agents_model_is_its_own(skald_app: AppFactory) -> None:
    """Pinned by title it gets that one; without a pin, or with one that is not there, the server chooses: a conversation's
    own choice is never handed down."""
    agents = [
        skald.AgentSpec(id=name, name=name, description="d", prompt=f"I am {name}.", model=model)
        for name, model in (("pinned", "special"), ("free", None), ("lost", "gone"))
    ]

    def then(request: Any) -> Any:
        if request.messages[-1].role == "tool" or any("I am" in block.text for block in request.system):
            return "done"
        return calls(*(delegate(agent.id) for agent in agents))

    provider = ScriptedProvider(then=then)
    app = await skald_app(scripted_plugin(provider), allowing(), agents_plugin(*agents))
    await app.add_model(model="usual")
    await app.add_model(model="special")
    chosen = await app.add_model(model="chosen")
    client = await app.client()
    conversation = str((await client.post("/api/conversations", {"model": chosen}))["id"])
    await client.run_turn("go", conversation)
    used = {r.system[0].text: r.model for r in provider.requests if "I am" in r.system[0].text}
    assert used == {"I am pinned.": "special", "I am free.": "usual", "I am lost.": "usual"}
    assert provider.requests[0].model == "chosen"


async def test_a_model_with_little_context_delegates_nothing(skald_app: AppFactory) -> None:
    """The tool is not offered to weak models."""
    provider = ScriptedProvider(["fine"])
    app = await skald_app(scripted_plugin(provider), with_tools(echo), allowing(), agents_plugin(SCOUT))
    await app.add_model(weak=True)
    client = await app.client()
    await client.run_turn("go")
    assert offered(provider) == ["echo"]


async def test_a_plugins_tool_cannot_take_the_kernels_name(skald_app: AppFactory) -> None:
    """It is left out and shown as a problem; delegation works."""

    class Impostor(skald.Tool):
        name = "execute_subtask"

        async def run(self, arguments: Any, ctx: skald.ToolContext) -> str:
            raise AssertionError("never called")

    provider = ScriptedProvider([calls(delegate("worker")), "child", "parent"])
    app = await skald_app(scripted_plugin(provider), with_tools(Impostor()), allowing())
    await app.add_model()
    client = await app.client()
    messages = await client.run_turn("go")
    assert messages[1]["calls"][0]["result"] == "child"
    assert any("execute_subtask" in problem for problem in app.skald.plugins.rows["tools"].problems)


async def test_agents_nest_five_deep_and_no_deeper(skald_app: AppFactory) -> None:
    """The sixth is refused in words the agent can work with; all of them come to an end."""
    agents = [skald.AgentSpec(id=name, name=name, description="d", prompt=f"I am {name}.") for name in ("ping", "pong")]

    def then(request: Any) -> Any:
        if request.messages[-1].role == "tool":
            return "done"
        return calls(delegate("pong" if "I am ping." in request.system[0].text else "ping"))

    provider = ScriptedProvider(then=then)
    app = await skald_app(scripted_plugin(provider), allowing(), agents_plugin(*agents))
    await app.add_model()
    client = await app.client()
    messages = await client.run_turn("go")
    assert messages[-1]["content"] == "done"
    assert sum("I am p" in request.system[0].text for request in provider.requests) == 2 * 5
    assert sum("5 deep" in str(request.messages[-1]) for request in provider.requests) == 1


# -- people, stops and restarts inside an agent's work --------------------------------------------------------------


async def _asks_inside(
    skald_app: AppFactory, *steps: Any
) -> tuple[TestApp, TestClient, str, list[Any], ScriptedProvider]:
    provider = ScriptedProvider(steps)
    plugins = [
        scripted_plugin(provider), with_tools(echo, write_note), allowing("write_note"), agents_plugin(SCOUT),
    ]  # fmt: skip
    app = await skald_app(*plugins)
    await app.add_model()
    client = await app.client()
    conversation = await new(client)
    await said(client, "go", conversation)
    return app, client, conversation, plugins, provider


WRITES = calls(call("write_note", {"text": "n"}), say="I want to write it down.")


@pytest.mark.parametrize(("choice", "result"), [("allow_once", "noted: n"), ("deny", "The person said no.")])
async def test_a_person_is_asked_about_an_agents_calls(skald_app: AppFactory, choice: str, result: str) -> None:
    """The card names the agent and has its own words; the answer goes to it, and the work goes on."""
    app, client, conversation, _, provider = await _asks_inside(
        skald_app, calls(delegate("scout"), say="the parent's words"), WRITES, "child", "parent"
    )
    request = await answered(app, client, conversation, choice)
    assert (request["agent"], request["tool"], request["why"]) == ("Scout", "write_note", "I want to write it down.")
    await app.idle(client, conversation)
    assert result in str(provider.requests[2].messages[-1])
    messages = await history(client, conversation)
    assert (messages[1]["calls"][0]["result"], messages[-1]["content"]) == ("child", "parent")


async def test_a_restart_while_an_agents_call_waits(skald_app: AppFactory) -> None:
    """After it the same request waits, and its answer takes the agent up where it was: nothing is asked or run twice."""
    app, client, conversation, plugins, provider = await _asks_inside(
        skald_app, calls(delegate("scout")), WRITES, "child", "parent"
    )
    request = await waiting_request(app, client, conversation)
    cookies = dict(client.http.cookies)
    user = client.user
    app = await skald_app(*plugins)
    client = app.anonymous()
    client.http.cookies.update(cookies)
    client.user = user
    await client.get("/api/auth/me")  # opens the user's data
    again = await waiting_request(app, client, conversation)
    assert again["id"] == request["id"]
    await client.post(f"/api/requests/{request['id']}/answer", {"choice": "allow_once"})
    await app.idle(client, conversation)
    messages = await history(client, conversation)
    assert (messages[1]["calls"][0]["result"], messages[-1]["content"]) == ("child", "parent")
    provider.assert_complete()


async def test_a_stop_reaches_through_agents(skald_app: AppFactory) -> None:
    """What runs at any depth ends, its open calls are cancelled, a card of theirs goes, and nothing goes on by itself."""
    inner = skald.AgentSpec(id="inner", name="Inner", description="d", prompt="I am inner.")
    provider = ScriptedProvider([calls(delegate("scout")), calls(delegate("inner")), WRITES])
    app = await skald_app(
        scripted_plugin(provider), with_tools(write_note), allowing("write_note"), agents_plugin(SCOUT, inner)
    )
    await app.add_model()
    client = await app.client()
    conversation = await new(client)
    await said(client, "go", conversation)
    request = await waiting_request(app, client, conversation)
    assert request["agent"] == "Inner"
    await client.post(f"/api/conversations/{conversation}/stop")
    messages = await history(client, conversation)
    assert messages[1]["calls"][0]["state"] == "cancelled"
    assert (await client.get("/api/inbox?status=pending"))["items"] == []
    context = await context_of(app, client)
    assert await context.store.open_calls(conversation) == ()  # type: ignore[arg-type]
    assert len(await context.store.active_frames(conversation)) <= 1  # type: ignore[arg-type]
    assert (await client.get(f"/api/conversations/{conversation}"))["state"] == "idle"
    provider.assert_complete()


async def test_a_person_talks_with_another_agent(skald_app: AppFactory) -> None:
    """A conversation may have a chat agent of a plugin from the start or later; task agents and unknown ones are refused."""
    guide = skald.AgentSpec(id="guide", name="Guide", description="d", prompt="I am the guide.", type="chat")
    provider = ScriptedProvider(["from the guide", "from the assistant"])
    app = await skald_app(scripted_plugin(provider), agents_plugin(SCOUT, guide))
    await app.add_model()
    client = await app.client()
    for wrong in ("scout", "nobody"):
        refused = await client.request("POST", "/api/conversations", {"agent": wrong})
        assert (refused.status_code, refused.json()["code"]) == (422, "unknown_agent")
    made = await client.post("/api/conversations", {"agent": "guide"})
    assert made["agent"] == "guide"
    await client.run_turn("hello", made["id"])
    changed = await client.request("PATCH", f"/api/conversations/{made['id']}", {"agent": "assistant"})
    assert changed.json()["agent"] == "assistant"
    await client.run_turn("and now", made["id"])
    first, second = provider.requests
    assert "I am the guide." in str(first.system)
    assert "I am the guide." not in str(second.system)
