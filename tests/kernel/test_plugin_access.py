"""Who may use a plugin: the default, a word for single users, and what a revocation takes away before it is answered."""

from typing import Any

import msgspec
import pytest
from litestar import get

from skald_core import api as skald
from skald_core.loop.scripted import ScriptedProvider
from skald_core.plugins.access import Change
from skald_core.runtime.feed import Subscriber
from skald_core.testing import AppFactory, TestApp, TestClient, call, calls, scripted_plugin, text
from tests.support.asking import history, new, said, waiting_request
from tests.support.plugins import allowing, echo, made, with_tools


@get("/hello")
async def hello() -> str:
    return "hello"


def skald_routes() -> list[Any]:
    return [hello]


def skald_tools() -> list[skald.Tool]:
    return [echo]


def skald_commands() -> list[skald.Command]:
    return [skald.Command(name="hey", title="Hey", prompt="Say hey")]


def skald_agents() -> list[skald.AgentSpec]:
    return [skald.AgentSpec(id="helper", name="Helper", description="Helps", prompt="Help.")]


def skald_web_pages() -> list[skald.WebPage]:
    return [skald.WebPage(page_id="main", title="Main", entry="web/main.js")]


class UserConfig(msgspec.Struct):
    city: str = "Rome"


def skald_user_config() -> Any:
    return UserConfig


def skald_i18n() -> dict[str, dict[str, str]]:
    return {"en": {"greeting": "Hello"}}


HOOKS = (skald_i18n, skald_routes, skald_tools, skald_commands, skald_agents, skald_web_pages, skald_user_config)


async def _access(client: TestClient, body: dict[str, Any]) -> dict[str, Any]:
    answer = await client.request("PUT", "/api/plugins/shared/access", body)
    assert answer.is_success, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def _seen(app: TestApp, client: TestClient) -> dict[str, bool]:
    """By which ways this user meets the plugin."""
    assert client.user is not None
    user = client.user["id"]
    visible = app.skald.plugins.visible_to(user)
    contributed = app.skald.plugins.contributed
    return {
        "mine": bool(await client.get("/api/my/plugins")),
        "page": bool(await client.get("/api/plugins/pages")),
        "route": (await client.request("GET", "/api/plugin/shared/hello")).status_code == 200,
        "config": (await client.request("GET", "/api/my/plugins/shared/config")).status_code == 200,
        "text": "plugin.shared.greeting" in await client.get("/api/i18n/en"),
        "openapi": "/api/plugin/shared/hello" in (await client.get("/api/schema/openapi.json"))["paths"],
        "tool": bool(contributed.tools(visible)),
        "command": any(c["name"] == "hey" for c in await client.get("/api/commands")),
        "agent": any(a["id"] == "helper" for a in await client.get("/api/agents")),
    }


async def test_a_revocation_takes_everything_away_before_it_is_answered(skald_app: AppFactory) -> None:
    """Tools, pages, routes, commands, agents and settings go for that user alone; a grant brings them back."""
    app = await skald_app(made("shared", *HOOKS))
    admin, bo = await app.client(), await app.client("bo", "member")
    assert bo.user is not None
    everything = await _seen(app, bo)
    assert set(everything.values()) == {True}
    access = await _access(admin, {"users": {bo.user["id"]: False}})
    row = next(u for u in access["users"] if u["id"] == bo.user["id"])
    assert (row["allowed"], row["explicit"], row["display_name"], row["role"]) == (False, False, "bo", "member")
    assert set((await _seen(app, bo)).values()) == {False}
    assert set((await _seen(app, admin)).values()) == {True}
    await _access(admin, {"users": {bo.user["id"]: None}})
    assert await _seen(app, bo) == everything


async def test_who_is_nobody_here_hears_of_no_plugin(skald_app: AppFactory) -> None:
    """Without signing in the texts are empty and the API's description is the kernel's; who manages plugins sees all."""
    app = await skald_app(made("shared", *HOOKS))
    admin = await app.client()
    assert admin.user is not None
    await app.skald.plugins.change_access("shared", users={admin.user["id"]: False})
    seen = await _seen(app, admin)
    assert (seen["text"], seen["openapi"], seen["route"]) == (True, True, False)  # the catalog is theirs all the same
    stranger = app.anonymous()
    assert await stranger.get("/api/i18n/en") == {}
    paths = (await stranger.get("/api/schema/openapi.json"))["paths"]
    assert "/api/plugins" in paths
    assert not any("shared" in path for path in paths)


async def test_the_default_counts_where_nobody_said_otherwise(skald_app: AppFactory) -> None:
    """Off by default with one person allowed, and kept over a restart; a new account follows the default."""
    app = await skald_app(made("shared", *HOOKS))
    admin, bo = await app.client(), await app.client("bo", "member")
    assert bo.user is not None
    access = await _access(admin, {"default_on": False, "users": {bo.user["id"]: True}})
    assert access["default_on"] is False
    assert [(u["display_name"], u["allowed"], u["explicit"]) for u in access["users"]] == [
        ("ada", False, None),
        ("bo", True, True),
    ]
    app = await skald_app(made("shared", *HOOKS))
    cy = await app.client("cy", "member")
    assert cy.user is not None
    assert app.skald.plugins.visible_to(bo.user["id"]) == {"shared"}
    assert app.skald.plugins.visible_to(cy.user["id"]) == frozenset()
    await app.skald.plugins.change_access("shared", default_on=True)
    assert app.skald.plugins.visible_to(cy.user["id"]) == {"shared"}


async def test_sockets_and_listeners_are_told_of_a_change(skald_app: AppFactory) -> None:
    """The user's clients load again; whoever keeps something per user hears exactly whose access changed."""
    app = await skald_app(made("shared", *HOOKS))
    admin, bo = await app.client(), await app.client("bo", "member")
    assert bo.user is not None
    context = await app.skald.context(await app.skald.users.get(bo.user["id"]))
    subscriber = Subscriber()
    context.feed.attach(subscriber)
    told: list[tuple[str, Change]] = []
    through = app.skald.plugins.access_changed

    async def listen(plugin_id: str, change: Change) -> None:
        told.append((plugin_id, change))
        await through(plugin_id, change)

    app.skald.plugins.access_changed = listen
    await _access(admin, {"users": {bo.user["id"]: False}})
    await _access(admin, {"users": {bo.user["id"]: False}})  # nothing changes: nobody is told again
    await _access(admin, {"users": {bo.user["id"]: True, "nobody-has-this": True}})
    only = frozenset({bo.user["id"]})
    assert told == [("shared", Change(frozenset(), only)), ("shared", Change(only, frozenset()))]
    payloads = await subscriber.get()
    assert payloads is not None
    assert sum(b'"plugins_changed"' in payload for payload in payloads) == 2


async def test_a_tool_that_was_taken_away_cannot_be_called(skald_app: AppFactory) -> None:
    """Also in a conversation that has used it: the model is told that there is no such tool."""
    provider = ScriptedProvider(
        [calls(call("echo", {"text": "1"})), text("one"), calls(call("echo", {"text": "2"})), text("two")]
    )
    app = await skald_app(scripted_plugin(provider), allowing(), made("shared", *HOOKS))
    await app.add_model()
    client = await app.client()
    assert client.user is not None
    messages = await client.run_turn("Say 1")
    conversation = (await client.get("/api/conversations"))["items"][0]["id"]
    assert [c["result"] for m in messages for c in m["calls"]] == ["echo: 1"]
    await app.skald.plugins.change_access("shared", users={client.user["id"]: False})
    messages = await client.run_turn("Say 2", conversation)
    states = [c["state"] for m in messages for c in m["calls"]]
    assert states[-1] != "done"
    assert len(states) == 2


@pytest.mark.parametrize("how", ["revoked", "disabled"])
async def test_a_call_that_waits_for_a_person_does_not_outlive_its_plugin(skald_app: AppFactory, how: str) -> None:
    """Allowed after the plugin was taken from the user or disabled, it is refused: the tool does not run."""
    ran: list[str] = []

    @skald.tool(scope="write")
    async def late() -> str:
        """Run late."""
        ran.append("late")
        return "ran"

    provider = ScriptedProvider([calls(call("late", {})), text("so be it")])
    app = await skald_app(scripted_plugin(provider), allowing("late"), with_tools(late))
    await app.add_model()
    client = await app.client()
    assert client.user is not None
    conversation = await new(client)
    await said(client, "go", conversation)
    request = await waiting_request(app, client, conversation)
    if how == "revoked":
        await client.put("/api/plugins/tools/access", {"users": {client.user["id"]: False}})
    else:
        await client.post("/api/plugins/tools/disable")
    await client.post(f"/api/requests/{request['id']}/answer", {"choice": "allow_once"})
    await app.idle(client, conversation)
    (made_call,) = (await history(client, conversation))[1]["calls"]
    assert (made_call["state"], ran) == ("rejected", [])
    assert "not available any more" in made_call["result"]


async def test_events_of_a_plugin_reach_only_who_may_use_it(skald_app: AppFactory) -> None:
    """``ctx.publish`` to everyone means everyone with access."""
    app = await skald_app(made("shared", *HOOKS))
    ada, bo = await app.client(), await app.client("bo", "member")
    assert ada.user is not None
    assert bo.user is not None
    await app.skald.plugins.change_access("shared", users={bo.user["id"]: False})
    subscribers = {}
    for client in (ada, bo):
        assert client.user is not None
        subscribers[client.user["username"]] = Subscriber()
        context = await app.skald.context(await app.skald.users.get(client.user["id"]))
        context.feed.attach(subscribers[client.user["username"]])
    ctx = app.skald.plugins.context("shared")
    assert ctx is not None
    ctx.publish("news", {"n": 1})
    ctx.publish("news", {"n": 2}, bo.user["id"])
    for subscriber in subscribers.values():
        subscriber.close("end")
    got = await subscribers["ada"].get()
    assert got is not None
    assert [b'"plugin.shared.news"' in payload for payload in got] == [True]
    assert await subscribers["bo"].get() is None


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("PUT", "/access"),
        ("PUT", "/config"),
        ("POST", "/config/test"),
        ("POST", "/health"),
        ("POST", "/enable"),
        ("POST", "/disable"),
    ],
)
async def test_only_an_admin_acts_and_every_act_is_written_down(skald_app: AppFactory, method: str, path: str) -> None:
    """A member is refused; what an admin changes is in the audit log, a look is not; an unknown plugin is 404."""
    app = await skald_app(made("shared", *HOOKS))
    admin, member = await app.client(), await app.client("bo", "member")
    body: dict[str, Any] | None = {"values": {}} if "config" in path else {} if method != "GET" else None
    assert (await member.request(method, f"/api/plugins/shared{path}", body)).status_code == 403
    assert (await admin.request(method, f"/api/plugins/nobody-has-this{path}", body)).status_code == 404
    await admin.request(method, f"/api/plugins/shared{path}", body)
    logged = await app.skald.system_db.read(
        lambda c: [r[0] for r in c.execute("SELECT action FROM audit_log WHERE target='shared'")]
    )
    word = {"/access": "access", "/config": "configure", "/enable": "enable", "/disable": "disable"}.get(path)
    assert logged == ([f"plugin.{word}"] if word else [])


async def test_the_detail_page_has_what_the_catalog_promises(skald_app: AppFactory) -> None:
    """Versions, size, licence, texts of the distribution, data, access: complete for a plugin of any kind."""
    app = await skald_app(made("shared", *HOOKS))
    client = await app.client()
    detail = await client.get("/api/plugins/shared")
    assert detail["access"]["users"][0]["allowed"] is True
    assert detail["data"] == {"tables": [], "values": 0, "secrets": 0, "files": 0}
    assert (detail["running_version"], detail["latest_version"], detail["restart_needed"]) == ("0", None, False)
    assert (detail["readme"], detail["changelog"], detail["license"], detail["size"]) == ("", "", "", 0)
    assert detail["contributes"]["commands"] == ["hey"]
    assert detail["contributes"]["agents"] == ["helper"]
    context = app.skald.plugins.context("shared")
    assert context is not None
    await context.kv.set("a", 1)
    (context.data_dir / "file").write_bytes(b"12345")
    await app.skald.plugins.disable("shared")
    data = (await client.get("/api/plugins/shared"))["data"]
    assert (data["values"], data["files"]) == (1, 5)
    assert (await client.get("/api/plugins/shared"))["restart_needed"] is True
