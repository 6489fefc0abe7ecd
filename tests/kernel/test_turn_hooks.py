"""What plugins may see and change of a turn, through the real server with a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from skald_core import api as skald
from skald_core.runtime import user_context
from skald_core.testing import AppFactory, ScriptedProvider, call, calls, local_plugin, scripted_plugin, text
from tests.support.asking import answered, history, new, said, wire
from tests.support.plugins import allowing, echo, made, with_tools, write_note

# -- words --------------------------------------------------------------------------------------------------------


def prompt_plugin(plugin_id: str, judge: Callable[[skald.UserPrompt], Any], *, first: bool = False) -> Any:
    def skald_user_prompt(prompt: skald.UserPrompt) -> Any:
        return judge(prompt)

    return made(plugin_id, skald_user_prompt, first=first)


async def test_skald_user_prompt(skald_app: AppFactory) -> None:
    """Added context reaches the model and not the person; a refusal is told with its reason and stores nothing; what
    fails or answers nonsense is passed over and shown with the plugin."""
    seen: list[skald.UserPrompt] = []

    def first(prompt: skald.UserPrompt) -> Any:
        seen.append(prompt)
        return skald.Block("no secrets, please") if "secret" in prompt.content else skald.AddContext("It rains.")

    provider = ScriptedProvider(["fine", "fine again"])
    app = await skald_app(
        scripted_plugin(provider),
        prompt_plugin("weather", first, first=True),
        prompt_plugin("broken", lambda prompt: 1 / 0),
        prompt_plugin("odd", lambda prompt: "text"),
        prompt_plugin("calendar", lambda prompt: skald.AddContext("It is Monday.")),
    )
    await app.add_model()
    client = await app.client()
    conversation = await new(client)
    messages = await client.run_turn("hello", conversation)
    assert [m["content"] for m in messages] == ["hello", "fine"]
    assert "It rains.\n\nIt is Monday." in wire(provider)
    assert (seen[0].user.username, seen[0].conversation, seen[0].steering) == ("ada", conversation, False)
    status, problem = await said(client, "my secret", conversation)
    assert (status, problem["code"]) == (422, "prompt_blocked")
    assert "no secrets, please" in problem["detail"]
    assert len(await history(client, conversation)) == 2
    assert (await client.get(f"/api/conversations/{conversation}"))["state"] == "idle"
    errors = {i: app.skald.plugins.rows[i].error for i in ("broken", "odd")}
    assert all(error is not None and "skald_user_prompt" in error.message for error in errors.values())
    await client.run_turn("again", conversation)
    assert wire(provider).count("It rains.") == 2  # an earlier message keeps what was added to it
    provider.assert_complete()


async def test_a_refused_message_is_refused_before_it_waits(skald_app: AppFactory) -> None:
    """While a turn runs a message would wait; a refusal is still the answer to the one who sent it, who has the words."""
    gate = asyncio.Event()
    provider = ScriptedProvider([text("one", gate=gate), "two"])
    app = await skald_app(
        scripted_plugin(provider),
        prompt_plugin("censor", lambda p: skald.Block("not now") if p.content == "bad" else None),
    )
    await app.add_model()
    client = await app.client()
    conversation = await new(client)
    assert (await said(client, "go", conversation))[0] == 202
    assert (await said(client, "bad", conversation))[0] == 422
    status, waiting = await said(client, "good", conversation)
    assert status == 202
    assert waiting["queued"]["content"] == "good"
    queued = f"/api/conversations/{conversation}/queue/{waiting['queued']['id']}"
    assert (await client.request("PATCH", queued, {"content": "bad"})).status_code == 422
    gate.set()
    await app.idle(client, conversation)
    assert [m["content"] for m in await history(client, conversation)] == ["go", "one", "good", "two"]
    items = await history(client, conversation)
    body = {"client_id": "e", "message": items[2]["id"], "content": "bad"}
    assert (await client.request("POST", f"/api/conversations/{conversation}/edit", body)).status_code == 422


async def test_a_message_sent_again_is_not_asked_about_again(skald_app: AppFactory) -> None:
    """The answer to a message got lost and it is sent once more: plugins hear of it once, and it is stored once."""
    asked: list[str] = []
    provider = ScriptedProvider(["fine"])
    app = await skald_app(scripted_plugin(provider), prompt_plugin("counts", lambda p: asked.append(p.content)))
    await app.add_model()
    client = await app.client()
    conversation = await new(client)
    for _ in range(3):
        assert (await said(client, "hello", conversation, "same"))[0] == 202
    await app.idle(client, conversation)
    assert asked == ["hello"]
    assert len(await history(client, conversation)) == 2


# -- calls --------------------------------------------------------------------------------------------------------


def before_plugin(plugin_id: str, judge: Callable[[skald.GateCall], Any], *, first: bool = False) -> Any:
    def skald_before_tool(call: skald.GateCall) -> Any:
        return judge(call)

    return made(plugin_id, skald_before_tool, first=first)


async def test_skald_before_tool(skald_app: AppFactory) -> None:
    """A rewrite is what later plugins and the gate see and what runs; the call keeps what the model wrote."""
    seen: list[tuple[str, dict[str, Any]]] = []

    def skald_gate(call: skald.GateCall) -> skald.Decision:
        seen.append(("gate", call.raw))
        return skald.Allow()

    def rewrites(call: skald.GateCall) -> Any:
        return skald.Rewrite({"text": call.raw["text"].upper()})

    provider = ScriptedProvider([calls(call("echo", {"text": "hi"})), "done"])
    app = await skald_app(
        scripted_plugin(provider),
        with_tools(echo),
        made("judge", skald_gate),
        before_plugin("rewrites", rewrites, first=True),
        before_plugin("looks", lambda call: seen.append(("later", call.raw))),
    )
    await app.add_model()
    client = await app.client()
    messages = await client.run_turn("go")
    (made_call,) = messages[1]["calls"]
    assert seen == [("later", {"text": "HI"}), ("gate", {"text": "HI"})]
    assert (made_call["state"], made_call["result"]) == ("done", "echo: HI")


@pytest.mark.parametrize(
    ("judge", "words"),
    [
        (lambda call: skald.Deny("not on a Sunday"), "not on a Sunday"),
        (lambda call: 1 / 0, "failed while checking"),
        (lambda call: "yes", "wrong type"),
        (lambda call: skald.Rewrite({"text": 7}), "something the tool refuses"),
        (lambda call: skald.Rewrite({"text": object()}), "no JSON"),
        (lambda call: skald.Rewrite([1]), "no JSON object"),  # type: ignore[arg-type]
    ],
)
async def test_before_tool_fails_closed(skald_app: AppFactory, judge: Callable[[Any], Any], words: str) -> None:
    """A denial, a failure, an answer of the wrong type and arguments that do not fit all keep the call from running."""
    provider = ScriptedProvider([calls(call("echo", {"text": "hi"})), "done"])
    app = await skald_app(
        scripted_plugin(provider), with_tools(echo), allowing(), before_plugin("strict", judge),
        before_plugin("z-mild", lambda call: None),
    )  # fmt: skip
    await app.add_model()
    client = await app.client()
    messages = await client.run_turn("go")
    (made_call,) = messages[1]["calls"]
    assert made_call["state"] == "rejected"
    assert words in made_call["result"]
    assert messages[-1]["content"] == "done"


@pytest.mark.parametrize(("choice", "state"), [("allow_once", "done"), ("deny", "rejected")])
async def test_a_plugin_can_have_a_person_asked_where_the_gate_would_allow(
    skald_app: AppFactory, choice: str, state: str
) -> None:
    """The card has the plugin's reason; a rewrite of another plugin before it is what is asked about and what runs."""
    provider = ScriptedProvider([calls(call("echo", {"text": "hi"})), "done"])
    app = await skald_app(
        scripted_plugin(provider), with_tools(echo), allowing(),
        before_plugin("rewrites", lambda call: skald.Rewrite({"text": "safe"}), first=True),
        before_plugin("asks", lambda call: skald.MustAsk("is this wise?")),
    )  # fmt: skip
    await app.add_model()
    client = await app.client()
    conversation = await new(client)
    await said(client, "go", conversation)
    request = await answered(app, client, conversation, choice)
    assert (request["reason"], request["arguments"]) == ("is this wise?", {"text": "safe"})
    await app.idle(client, conversation)
    (made_call,) = (await history(client, conversation))[1]["calls"]
    assert made_call["state"] == state
    assert (made_call["result"] == "echo: safe") is (state == "done")


async def test_skald_gate(skald_app: AppFactory) -> None:
    """The strictest answer of all plugins wins, whatever their order; no opinion at all is a denial; so are a failure
    and an answer of the wrong type."""
    verdicts: dict[str, Any] = {}

    def gate(plugin_id: str) -> Any:
        def skald_gate(call: skald.GateCall) -> Any:
            verdict = verdicts.get(plugin_id)
            return verdict() if callable(verdict) else verdict

        return made(plugin_id, skald_gate)

    def then(request: skald.ModelRequest) -> Any:
        return "done" if request.messages[-1].role == "tool" else calls(call("echo", {"text": "x"}))

    provider = ScriptedProvider(then=then)
    app = await skald_app(scripted_plugin(provider), with_tools(echo), gate("one"), gate("two"))
    await app.add_model()
    client = await app.client()

    async def state(**now: Any) -> str:
        verdicts.clear()
        verdicts.update(now)
        (made_call,) = (await client.run_turn("go"))[1]["calls"]
        return str(made_call["state"])

    assert await state(one=skald.Allow(), two=None) == "done"
    assert await state(one=None, two=None) == "rejected"
    assert await state(one=skald.Allow(), two=skald.Deny("no")) == "rejected"
    assert await state(one=skald.Deny("no"), two=skald.Allow()) == "rejected"
    assert await state(one=skald.Allow(), two=lambda: 1 / 0) == "rejected"
    assert await state(one=skald.Allow(), two="allow") == "rejected"
    verdicts.update(one=skald.Require(reason="please"), two=skald.Allow())
    conversation = await new(client)
    await said(client, "go", conversation)
    request = await answered(app, client, conversation, "allow_once")
    assert request["reason"] == "please"
    await app.idle(client, conversation)
    assert (await history(client, conversation))[1]["calls"][0]["state"] == "done"


async def test_skald_after_tool(skald_app: AppFactory) -> None:
    """Text of every plugin is added for the model, in order, to calls that ran and to no others."""
    heard: list[tuple[str, str, bool]] = []

    def after(plugin_id: str, answer: Callable[[], Any], *, first: bool = False) -> Any:
        def skald_after_tool(call: skald.GateCall, output: skald.ToolOutput, duration_ms: int) -> Any:
            heard.append((plugin_id, output.text, duration_ms >= 0))
            return answer()

        return made(plugin_id, skald_after_tool, first=first)

    provider = ScriptedProvider([calls(call("echo", {"text": "hi"}), call("write_note", {"text": "n"})), "done"])

    def skald_gate(call: skald.GateCall) -> skald.Decision:
        return skald.Allow() if call.tool.name == "echo" else skald.Deny("no notes")

    app = await skald_app(
        scripted_plugin(provider), with_tools(echo, write_note), made("judge", skald_gate),
        after("a", lambda: "first thought", first=True), after("b", lambda: 1 / 0), after("c", lambda: 7),
        after("d", lambda: "second"),
    )  # fmt: skip
    await app.add_model()
    client = await app.client()
    messages = await client.run_turn("go")
    ran, refused = messages[1]["calls"]
    assert "first thought\nsecond" in ran["result"]
    assert refused["result"] == "no notes"
    assert heard[0][0] == "a"
    assert sorted(heard) == [(plugin, "echo: hi", True) for plugin in "abcd"]
    assert "skald_after_tool" in str(app.skald.plugins.rows["c"].error)


# -- turns --------------------------------------------------------------------------------------------------------


async def test_skald_stop(skald_app: AppFactory) -> None:
    """The first reason sends the turn on, as a message of nobody's; each plugin hears how often that happened."""
    heard: list[tuple[str, int, str]] = []

    def skald_stop(stopping: skald.TurnStopping) -> Any:
        heard.append((stopping.text, stopping.continued, stopping.turn.model))
        return "look once more" if stopping.continued < 2 else None

    def broken(stopping: skald.TurnStopping) -> Any:
        raise RuntimeError("no")

    broken.__name__ = "skald_stop"
    provider = ScriptedProvider(["one", "two", "three"])
    app = await skald_app(scripted_plugin(provider), made("a-broken", broken), made("b-goes-on", skald_stop))
    model = await app.add_model()
    client = await app.client()
    messages = await client.run_turn("go")
    assert [m["content"] for m in messages if m["role"] == "assistant"] == ["one", "two", "three"]
    assert [m["content"] for m in messages if m["synthetic"]] == ["look once more", "look once more"]
    assert heard == [("one", 0, model), ("two", 1, model), ("three", 2, model)]


async def test_skald_turn_started(skald_app: AppFactory) -> None:
    """Plugins are told of each turn's begin with its user, agent and model; a slow one does not keep the turn waiting."""
    told: list[skald.TurnInfo] = []
    slow = asyncio.Event()

    async def skald_turn_started(turn: skald.TurnInfo) -> None:
        await slow.wait()
        told.append(turn)

    provider = ScriptedProvider(["one", "two"])
    app = await skald_app(scripted_plugin(provider), made("watch", skald_turn_started))
    model = await app.add_model(weak=True)
    client = await app.client()
    conversation = await new(client)
    await client.run_turn("go", conversation)
    await client.run_turn("again", conversation)
    assert told == []  # both turns are over although the plugin has not come back from the first
    slow.set()
    await app.stop()
    assert [(t.user.username, t.conversation, t.agent, t.model, t.weak, t.depth) for t in told] == [
        ("ada", conversation, "assistant", model, True, 0)
    ] * 2
    assert len({t.run_id for t in told}) == 2
    assert told[0].files is not None


async def test_skald_turn_finished(skald_app: AppFactory) -> None:
    """However a turn ends, plugins are told once, after its start: what it said, what it used, or why it failed."""
    told: list[tuple[str, str]] = []
    ends: list[skald.TurnEnd] = []

    def skald_turn_started(turn: skald.TurnInfo) -> None:
        told.append(("started", turn.run_id))

    def skald_turn_finished(turn: skald.TurnInfo, end: skald.TurnEnd) -> None:
        told.append(("finished", turn.run_id))
        ends.append(end)

    gate, reached = asyncio.Event(), asyncio.Event()
    provider = ScriptedProvider(
        ["fine", text("never", gate=gate, reached=reached), text(error=skald.AuthError("the key is wrong"))]
    )
    app = await skald_app(scripted_plugin(provider), made("watch", skald_turn_started, skald_turn_finished))
    await app.add_model()
    client = await app.client()
    conversation = await new(client)
    await client.run_turn("one", conversation)
    await said(client, "two", conversation)
    async with asyncio.timeout(20):
        await reached.wait()
    await client.post(f"/api/conversations/{conversation}/stop")
    await app.idle(client, conversation)
    await client.run_turn("three", conversation)
    await app.stop()
    assert [kind for kind, _ in told] == ["started", "finished"] * 3
    assert all(told[i][1] == told[i + 1][1] for i in (0, 2, 4))
    assert [end.outcome for end in ends] == ["success", "aborted", "error"]
    assert (ends[0].text, ends[0].usage.output_tokens) == ("fine", 5)
    assert "the key is wrong" in ends[2].error


async def test_a_plugin_that_never_comes_back_does_not_keep_the_server_from_stopping(
    skald_app: AppFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopping waits for what plugins still have to be told, within a bound."""
    monkeypatch.setattr(user_context, "CLOSE_SECONDS", 0.05)
    entered, cancelled = asyncio.Event(), asyncio.Event()

    async def skald_turn_finished(turn: skald.TurnInfo, end: skald.TurnEnd) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    provider = ScriptedProvider(["fine"])
    app = await skald_app(scripted_plugin(provider), made("stuck", skald_turn_finished))
    await app.add_model()
    client = await app.client()
    await client.run_turn("go")
    async with asyncio.timeout(20):
        await entered.wait()
        await app.stop()
    assert cancelled.is_set()


async def test_skald_before_compaction(skald_app: AppFactory) -> None:
    """Plugins see exactly the messages the summary will stand for, oldest first; without any they are not called."""
    heard: list[skald.Compaction] = []

    def skald_before_compaction(compaction: skald.Compaction) -> None:
        heard.append(compaction)

    def broken(compaction: skald.Compaction) -> None:
        raise RuntimeError("no")

    broken.__name__ = "skald_before_compaction"
    provider = ScriptedProvider([*(f"answer {n}" for n in range(5)), "the summary", "after"])
    app = await skald_app(scripted_plugin(provider), made("a-broken", broken), made("b-keeps", skald_before_compaction))
    await app.add_model()
    client = await app.client()
    conversation = await new(client)
    await client.run_turn("question 0", conversation)
    assert await client.post(f"/api/conversations/{conversation}/compact") == {"compacted": False}
    assert heard == []
    for n in range(1, 5):
        await client.run_turn(f"question {n}", conversation)
    assert await client.post(f"/api/conversations/{conversation}/compact") == {"compacted": True}
    (compaction,) = heard
    assert (compaction.user.username, compaction.conversation, compaction.trigger) == ("ada", conversation, "manual")
    assert compaction.tokens > 0
    assert [(m.role, m.text) for m in compaction.messages][:3] == [
        ("user", "question 0"), ("assistant", "answer 0"), ("user", "question 1"),
    ]  # fmt: skip
    await client.run_turn("and now?", conversation)
    kept = wire(provider)
    assert "the summary" in kept
    assert not any(m.text in kept for m in compaction.messages)


async def test_skald_conversation_deleted(skald_app: AppFactory) -> None:
    """Plugins have put away what they keep of a conversation when its deletion answers, after hearing of its last turn."""
    told: list[tuple[str, str]] = []

    def skald_turn_finished(turn: skald.TurnInfo, end: skald.TurnEnd) -> None:
        told.append((end.outcome, turn.conversation))

    async def skald_conversation_deleted(user: skald.User, conversation: str) -> None:
        told.append((user.username, conversation))

    gate, reached = asyncio.Event(), asyncio.Event()
    provider = ScriptedProvider([text("never", gate=gate, reached=reached)])
    app = await skald_app(scripted_plugin(provider), made("keeps", skald_turn_finished, skald_conversation_deleted))
    await app.add_model()
    client = await app.client()
    conversation = await new(client)
    await said(client, "go", conversation)
    async with asyncio.timeout(20):
        await reached.wait()
    await client.delete(f"/api/conversations/{conversation}")
    assert told == [("aborted", conversation), ("ada", conversation)]


async def test_what_was_allowed_for_a_conversation_goes_with_it(skald_app: AppFactory) -> None:
    """The approval plugin keeps nothing of a deleted conversation."""
    provider = ScriptedProvider([calls(call("write_note", {"text": "x"})), "done"])
    app = await skald_app(scripted_plugin(provider), with_tools(write_note), local_plugin("skald_approval"))
    await app.add_model()
    client = await app.client()
    conversation = await new(client)
    await said(client, "go", conversation)
    await answered(app, client, conversation, "allow_conversation")
    await app.idle(client, conversation)
    assert [bypass["conversation"] for bypass in await client.get("/api/plugin/approval/bypasses")] == [conversation]
    await client.delete(f"/api/conversations/{conversation}")
    assert await client.get("/api/plugin/approval/bypasses") == []


async def test_hooks_go_only_to_plugins_the_user_may_use(
    skald_app: AppFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin that was not granted to a user neither sees nor changes anything of theirs."""
    seen: list[str] = []

    def skald_user_prompt(prompt: skald.UserPrompt) -> Any:
        seen.append(prompt.user.username)
        return skald.Block("mine alone")

    def skald_turn_started(turn: skald.TurnInfo) -> None:
        seen.append(turn.user.username)

    provider = ScriptedProvider(["fine"])
    app = await skald_app(scripted_plugin(provider), made("private", skald_user_prompt, skald_turn_started))
    await app.add_model()
    ada, bo = await app.client(), await app.client("bo", "member")
    assert bo.user is not None
    every = app.skald.plugins.visible_to

    def visible_to(user_id: str) -> frozenset[str]:
        assert bo.user is not None
        return every(user_id) - ({"private"} if user_id == bo.user["id"] else set())

    monkeypatch.setattr(app.skald.plugins, "visible_to", visible_to)
    assert (await said(ada, "hello", await new(ada)))[0] == 422
    await bo.run_turn("hello")
    await app.stop()
    assert seen == ["ada"]
