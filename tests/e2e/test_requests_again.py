"""Requests nobody answered in time, raised again; and answers that change what runs. Real plugins, files and database."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from skald_core.loop.scripted import ScriptedProvider, call, calls
from skald_core.loop.types import ResultPart
from skald_core.testing import AppFactory, TestApp, TestClient, local_plugin, scripted_plugin

Json = dict[str, Any]
SOON = 0.05
LATER = 3600.0
WRITE = '{"path": "a.md", "content": "hello\\n"}'


class Stage:
    """An instance with the approval and file plugins, a scripted model and one signed-in person."""

    def __init__(self, app: TestApp, client: TestClient, provider: ScriptedProvider, conversation: str) -> None:
        self.app = app
        self.client = client
        self.provider = provider
        self.conversation = conversation

    @property
    def home(self) -> Path:
        assert self.client.user is not None
        return self.app.skald.data_dir / "homes" / str(self.client.user["id"])

    async def inbox(self, status: str) -> list[Json]:
        return list((await self.client.get(f"/api/inbox?status={status}"))["items"])

    async def pending(self) -> Json:
        """The one request that waits; it may be on its way."""
        async with asyncio.timeout(20):
            while not (found := await self.inbox("pending")):
                await asyncio.sleep(0)
        (request,) = found
        return request

    async def idle(self) -> None:
        await self.app.idle(self.client, self.conversation)

    async def messages(self) -> list[Json]:
        return list((await self.client.get(f"/api/conversations/{self.conversation}/messages"))["items"])

    def told(self) -> list[str]:
        """Results of calls in the newest request to the model."""
        parts = [part for message in self.provider.requests[-1].messages for part in message.parts]
        return [part.content for part in parts if isinstance(part, ResultPart)]


async def stage(skald_app: AppFactory, steps: Sequence[Any], lifetime: float, before: Stage | None = None) -> Stage:
    """A new start; ``before`` is what was there before it, whose person and conversation go on."""
    provider = ScriptedProvider(list(steps))
    plugins = (local_plugin("skald_approval"), local_plugin("skald_tools_fs"), scripted_plugin(provider))
    app = await skald_app(*plugins, request_lifetime=lifetime)
    if before is not None:
        client = app.anonymous()
        client.user = await client.post("/api/auth/login", {"username": "ada", "password": "correct horse battery"})
        return Stage(app, client, provider, before.conversation)
    await app.add_model()
    client = await app.client()
    conversation = str((await client.post("/api/conversations"))["id"])
    return Stage(app, client, provider, conversation)


async def expired(skald_app: AppFactory) -> Stage:
    """A write that nobody answered in time."""
    here = await stage(skald_app, [calls(call("write_file", WRITE)), "Nobody answered."], SOON)
    await here.client.run_turn("write", here.conversation)
    return here


async def test_silence_is_denial_said_to_the_model_in_words(skald_app: AppFactory) -> None:
    """The call is refused, the model reads why and what not to do, and the request stays in the inbox as expired."""
    here = await expired(skald_app)
    (told,) = here.told()
    assert "Nobody answered this request in time, which counts as no" in told
    assert "Do not try to reach the same goal another way" in told
    assert not (here.home / "a.md").exists()
    (request,) = await here.inbox("expired")
    assert (request["tool"], request["answer"]) == ("write_file", None)
    assert (await here.client.get("/api/inbox"))["pending"] == 0
    late = await here.client.request("POST", f"/api/requests/{request['id']}/answer", {"choice": "allow_once"})
    assert (late.status_code, late.json()["code"]) == (409, "already_answered")
    assert (await here.messages())[1]["calls"][0]["state"] == "rejected"


async def test_an_expired_request_is_raised_again_and_allowed(skald_app: AppFactory) -> None:
    """Raising asks anew and allows nothing by itself; the answer runs the call, and the model goes on from its result."""
    before = await expired(skald_app)
    (old,) = await before.inbox("expired")
    here = await stage(skald_app, ["Written after all."], LATER, before)
    raised = await here.client.request("POST", f"/api/requests/{old['id']}/raise")
    assert (raised.status_code, raised.json()["status"]) == (202, "raised")
    new = await here.pending()
    assert new["id"] != old["id"]
    assert new["details"]["changes"][0]["diff"].count("+hello") == 1
    assert not (here.home / "a.md").exists()
    again = await here.client.request("POST", f"/api/requests/{old['id']}/raise")
    assert (again.status_code, again.json()["code"]) == (409, "not_expired")
    await here.client.post(f"/api/requests/{new['id']}/answer", {"choice": "allow_once"})
    await here.idle()
    assert (here.home / "a.md").read_text() == "hello\n"
    shown = await here.messages()
    assert [(m["role"], m["synthetic"]) for m in shown[3:]] == [
        ("user", True),
        ("assistant", True),
        ("assistant", False),
    ]
    assert "raised again" in shown[3]["content"]
    assert shown[4]["calls"][0]["state"] == "done"
    assert shown[5]["content"] == "Written after all."
    assert len(here.told()) == 2
    assert [m.role for m in here.provider.requests[-1].messages] == [
        "user", "assistant", "tool", "assistant", "user", "assistant", "tool",
    ]  # fmt: skip


async def test_what_nobody_answers_again_can_be_raised_again(skald_app: AppFactory) -> None:
    """The new request expires like any other, with the same words, and is then the one to raise."""
    here = await stage(skald_app, [calls(call("write_file", WRITE)), "Nobody answered.", "Nobody again."], SOON)
    await here.client.run_turn("write", here.conversation)
    (first,) = await here.inbox("expired")
    await here.client.post(f"/api/requests/{first['id']}/raise")
    await here.idle()
    (second,) = await here.inbox("expired")
    assert second["id"] != first["id"]
    assert [r["id"] for r in await here.inbox("raised")] == [first["id"]]
    assert (await here.messages())[-1]["content"] == "Nobody again."


async def test_raising_needs_an_idle_conversation(skald_app: AppFactory) -> None:
    """While an answer runs there is nowhere to put the call; nothing changes, and it works afterwards."""
    before = await expired(skald_app)
    (old,) = await before.inbox("expired")
    here = await stage(skald_app, [calls(call("write_file", WRITE)), "no", "no"], LATER, before)
    body = {"client_id": "m", "content": "write again"}
    await here.client.post(f"/api/conversations/{here.conversation}/messages", body)
    waiting = await here.pending()
    refused = await here.client.request("POST", f"/api/requests/{old['id']}/raise")
    assert (refused.status_code, refused.json()["code"]) == (409, "busy")
    pending = await here.client.request("POST", f"/api/requests/{waiting['id']}/raise")
    assert (pending.status_code, pending.json()["code"]) == (409, "not_expired")
    await here.client.post(f"/api/requests/{waiting['id']}/answer", {"choice": "deny"})
    await here.idle()
    await here.client.post(f"/api/requests/{old['id']}/raise")
    new = await here.pending()
    await here.client.post(f"/api/requests/{new['id']}/answer", {"choice": "deny"})
    await here.idle()
    assert not (here.home / "a.md").exists()


async def test_raising_without_the_tool_or_by_somebody_else(skald_app: AppFactory) -> None:
    """A tool that is gone is told; a stranger's request does not exist."""
    here = await expired(skald_app)
    (old,) = await here.inbox("expired")
    other = await here.app.client("bo", "member")
    assert (await other.request("POST", f"/api/requests/{old['id']}/raise")).status_code == 404
    await here.app.skald.plugins.disable("tools-fs")
    gone = await here.client.request("POST", f"/api/requests/{old['id']}/raise")
    assert (gone.status_code, gone.json()["code"]) == (409, "tool_gone")
    assert [r["id"] for r in await here.inbox("expired")] == [old["id"]]


async def asked(skald_app: AppFactory, *steps: Any) -> tuple[Stage, Json]:
    """A write that waits for an answer."""
    here = await stage(skald_app, [calls(call("write_file", WRITE)), *steps], LATER)
    body = {"client_id": "m", "content": "write"}
    await here.client.post(f"/api/conversations/{here.conversation}/messages", body)
    return here, await here.pending()


async def test_an_answer_may_carry_other_arguments(skald_app: AppFactory) -> None:
    """Those run; the history shows them; the model's own words stay what it is sent; the answer keeps them."""
    here, request = await asked(skald_app, "done")
    changed = {"path": "b.md", "content": "mine\n"}
    answered = await here.client.post(
        f"/api/requests/{request['id']}/answer", {"choice": "allow_once", "arguments": changed}
    )
    assert answered["answer"]["arguments"] == changed
    await here.idle()
    assert (here.home / "b.md").read_text() == "mine\n"
    assert not (here.home / "a.md").exists()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"choice": "allow_once", "arguments": {"path": 7}}, "bad_arguments"),
        ({"choice": "allow_once", "arguments": {}}, "bad_arguments"),
        ({"choice": "allow_once", "arguments": {"path": "x.md", "content": "x", "sudo": True}}, "bad_arguments"),
        ({"choice": "deny", "arguments": {"path": "x.md", "content": "x"}}, "bad_choice"),
        ({"choice": "allow_once", "arguments": [1]}, "bad_input"),
    ],
)
async def test_arguments_that_cannot_be_leave_the_request_open(skald_app: AppFactory, body: Json, code: str) -> None:
    """The tool's words are the error, so that the person can put it right."""
    here, request = await asked(skald_app, "done")
    refused = await here.client.request("POST", f"/api/requests/{request['id']}/answer", body)
    assert (refused.status_code, refused.json()["code"]) == (422, code)
    assert (await here.pending())["id"] == request["id"]
    await here.client.post(f"/api/requests/{request['id']}/answer", {"choice": "allow_once"})
    await here.idle()
    assert (here.home / "a.md").exists()


async def test_other_arguments_are_judged_like_any(skald_app: AppFactory) -> None:
    """A rule that forbids the path stops the call, though a person wrote it; the model is told the rule's reason."""
    here, request = await asked(skald_app, "I see.")
    rule = {"tool": "write_file", "action": "deny", "path": "~/secret/*", "priority": 1, "note": "off limits"}
    await here.client.post("/api/plugin/approval/rules", rule)
    changed = {"path": "secret/x.md", "content": "x"}
    await here.client.post(f"/api/requests/{request['id']}/answer", {"choice": "allow_once", "arguments": changed})
    await here.idle()
    assert not (here.home / "secret").exists()
    assert not (here.home / "a.md").exists()
    assert "off limits" in here.told()[0]


async def test_other_arguments_may_be_allowed_for_the_conversation(skald_app: AppFactory) -> None:
    """The judge hears the answer with the call as it runs: the next write of the conversation just happens."""
    second = calls(call("write_file", '{"path": "c.md", "content": "c"}'))
    here, request = await asked(skald_app, second, "both")
    changed = {"path": "b.md", "content": "b"}
    await here.client.post(
        f"/api/requests/{request['id']}/answer", {"choice": "allow_conversation", "arguments": changed}
    )
    await here.idle()
    assert sorted(path.name for path in here.home.glob("*.md")) == ["b.md", "c.md"]


async def test_other_arguments_survive_a_restart(skald_app: AppFactory) -> None:
    """An answer that was stored while nobody could run it is found, judged and used after the next start."""
    here, request = await asked(skald_app)
    changed = {"path": "b.md", "content": "b"}
    again = await stage(skald_app, ["done"], LATER, here)
    await again.client.post(f"/api/requests/{request['id']}/answer", {"choice": "allow_once", "arguments": changed})
    await again.idle()
    assert [path.name for path in again.home.glob("*.md")] == ["b.md"]
