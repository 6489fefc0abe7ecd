"""Slash commands: the person sees what they typed, the model reads what the command made of it, whatever happens later."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from skald_core import api as skald
from skald_core.chat import commands as chat_commands
from skald_core.testing import AppFactory, ScriptedProvider, TestApp, scripted_plugin, text
from tests.support.asking import history, new, said, wire
from tests.support.plugins import made


async def _remind(call: skald.CommandCall) -> str:
    if not call.words:
        raise skald.ToolError("Say what to be reminded of.")
    return f"Remind {call.user.username} of: {call.words}"


async def _broken(call: skald.CommandCall) -> str:
    raise ZeroDivisionError("a secret of the plugin")


async def _odd(call: skald.CommandCall) -> Any:
    return 7


async def _slow(call: skald.CommandCall) -> str:
    await asyncio.Event().wait()
    return "never"


def skald_commands() -> list[skald.Command]:
    return [
        skald.Command(
            name="sum", title="command.sum", hint="what", prompt="Summarise this in one line: {{args}} – thanks."
        ),
        skald.Command(name="tidy", title="Tidies up", prompt="Tidy my notes."),
        skald.Command(name="remind", title="Reminds", prompt=_remind),
        skald.Command(name="broken", title="Breaks", prompt=_broken),
        skald.Command(name="odd", title="Is odd", prompt=_odd),
        skald.Command(name="slow", title="Takes long", prompt=_slow),
    ]


def skald_i18n() -> dict[str, dict[str, str]]:
    return {"en": {"command.sum": "Sums up"}, "it": {"command.sum": "Riassume"}}


async def _app(skald_app: AppFactory, provider: ScriptedProvider) -> TestApp:
    app = await skald_app(scripted_plugin(provider), made("words", skald_commands, skald_i18n))
    await app.add_model()
    return app


async def test_skald_commands(skald_app: AppFactory) -> None:
    """Listed for the user in their language; sent, kept as typed, and read by the model as the command's prompt, also in
    every later request."""
    provider = ScriptedProvider(then=lambda request: "fine")
    app = await _app(skald_app, provider)
    client = await app.client()
    await client.request("PUT", "/api/auth/profile", {"locale": "it"})
    listed = await client.get("/api/commands")
    assert [command["name"] for command in listed] == ["broken", "odd", "remind", "slow", "sum", "tidy"]
    assert listed[4] == {"name": "sum", "title": "Riassume", "hint": "what", "plugin": "words"}
    conversation = await new(client)
    messages = await client.run_turn("/sum the  long\nstory", conversation)
    assert messages[0]["content"] == "/sum the  long\nstory"
    assert "Summarise this in one line: the  long\nstory – thanks." in wire(provider)
    assert "/sum" not in wire(provider)
    assert (await client.get(f"/api/conversations/{conversation}"))["title"].startswith("/sum the")
    await client.run_turn("/Tidy", conversation)  # as a phone's keyboard writes it
    await client.run_turn("/tidy the old ones", conversation)
    await client.run_turn("/remind milk", conversation)
    now = wire(provider)
    assert "Tidy my notes.\n\nthe old ones" in now
    assert "Remind ada of: milk" in now
    assert "Summarise this in one line" in now
    await app.skald.plugins.disable("words")
    assert await client.get("/api/commands") == []
    await client.run_turn("/tidy", conversation)
    assert wire(provider).rstrip().count("/tidy") == 1  # no command any more: sent as it is


@pytest.mark.parametrize("words", ["/unknown thing", "/root/notes is where?", "/", "//tidy", "say /tidy", "/tidy!"])
async def test_other_text_with_a_slash_is_sent_as_it_is(skald_app: AppFactory, words: str) -> None:
    """Only a known name, alone or before a space, is a command."""
    provider = ScriptedProvider(["fine"])
    app = await _app(skald_app, provider)
    client = await app.client()
    await client.run_turn(words)
    assert words in wire(provider)
    assert "Tidy my notes." not in wire(provider)


@pytest.mark.parametrize(
    ("words", "told"),
    [("/remind", "Say what to be reminded of."), ("/broken x", "words"), ("/odd", "words"), ("/slow", "long")],
)
async def test_a_command_that_cannot_is_told_and_nothing_is_sent(
    skald_app: AppFactory, monkeypatch: pytest.MonkeyPatch, words: str, told: str
) -> None:
    """Its own sentence, or whose fault it is, without the plugin's inner words."""
    monkeypatch.setattr(chat_commands, "EXPAND_SECONDS", 0.01)
    app = await _app(skald_app, ScriptedProvider([]))
    client = await app.client()
    conversation = await new(client)
    status, problem = await said(client, words, conversation)
    assert (status, problem["code"]) == (422, "command_failed")
    assert told in problem["detail"]
    assert "secret" not in problem["detail"]
    assert await history(client, conversation) == []
    failed = app.skald.plugins.rows["words"].error
    assert (failed is not None and words.split()[0] in failed.message) is (words != "/remind")


async def test_edit_retry_and_the_queue_expand_alike(skald_app: AppFactory) -> None:
    """A waiting command is expanded, and expanded anew when it is edited; so is an edited message; a regenerated answer
    reads the same prompt again."""
    gate = asyncio.Event()
    provider = ScriptedProvider([text("one", gate=gate), "two", "three", "four"])
    app = await _app(skald_app, provider)
    client = await app.client()
    conversation = await new(client)
    await said(client, "go", conversation)
    _, waiting = await said(client, "/sum this", conversation)
    queued = f"/api/conversations/{conversation}/queue/{waiting['queued']['id']}"
    await client.patch(queued, {"content": "/remind milk"})
    assert (await client.request("PATCH", queued, {"content": "/remind"})).status_code == 422
    gate.set()
    await app.idle(client, conversation)
    assert "Remind ada of: milk" in wire(provider)
    assert "Summarise" not in wire(provider)
    items = await history(client, conversation)
    await client.post(f"/api/conversations/{conversation}/regenerate", {"message": items[-1]["id"]})
    await app.idle(client, conversation)
    assert "Remind ada of: milk" in wire(provider)
    edit = {"client_id": "e", "message": items[2]["id"], "content": "/tidy"}
    await client.post(f"/api/conversations/{conversation}/edit", edit)
    await app.idle(client, conversation)
    assert "Tidy my notes." in wire(provider)
    assert "Remind" not in wire(provider)
    assert [m["content"] for m in await history(client, conversation)] == ["go", "one", "/tidy", "four"]


async def test_a_queued_command_edited_to_plain_words_is_plain(skald_app: AppFactory) -> None:
    """Nothing of the old expansion stays behind."""
    gate = asyncio.Event()
    provider = ScriptedProvider([text("one", gate=gate), "two"])
    app = await _app(skald_app, provider)
    client = await app.client()
    conversation = await new(client)
    await said(client, "go", conversation)
    _, waiting = await said(client, "/tidy", conversation)
    await client.patch(f"/api/conversations/{conversation}/queue/{waiting['queued']['id']}", {"content": "plain words"})
    gate.set()
    await app.idle(client, conversation)
    assert "plain words" in wire(provider)
    assert "Tidy my notes." not in wire(provider)
