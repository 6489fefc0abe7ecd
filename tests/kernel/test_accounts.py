"""Accounts coming, changing and going: what ends does so before the answer, and nobody reaches above themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from skald_core import api as skald
from skald_core.errors import Conflict, NotSignedIn
from skald_core.loop.database import Connection
from skald_core.runtime import accounts
from skald_core.runtime.feed import Subscriber
from skald_core.testing import AppFactory, ScriptedProvider, TestApp, TestClient, call, calls, scripted_plugin, text
from skald_core.testing.app import PASSWORD
from tests.support.asking import context_of, new, said, waiting_request
from tests.support.plugins import allowing, made, with_tools, write_note

Told = list[tuple[str, str, Any]]
LIFE = ("created", "unlocked", "locked", "deactivated", "deleted")


def diary(told: Told, look: Callable[[skald.PluginContext, skald.User], Any] = lambda ctx, user: None) -> Any:
    """A plugin that notes each hook of an account's life and what ``look`` finds at that moment."""

    def noting(name: str) -> Callable[..., Any]:
        async def hook(ctx: skald.PluginContext, user: skald.User) -> None:
            found = look(ctx, user)
            told.append((name, user.username, await found if asyncio.iscoroutine(found) else found))

        hook.__name__ = f"skald_user_{name}"
        return hook

    return made("diary", *(noting(name) for name in LIFE))


async def readable(ctx: skald.PluginContext, user: skald.User) -> bool:
    """Whether the user's database can be used now."""
    try:
        return bool(await ctx.owner_tables(user).read(lambda c: c.execute("SELECT 1").fetchone()[0]))
    except LookupError:
        return False


def _id(client: TestClient) -> str:
    assert client.user is not None
    return str(client.user["id"])


async def _status(client: TestClient) -> int:
    return (await client.request("GET", "/api/auth/me")).status_code


async def third_role(app: TestApp, *capabilities: str) -> str:
    """A role between member and administrator."""

    def insert(c: Connection) -> None:
        c.execute("INSERT INTO roles(id,label,created_at) VALUES('helper','Helper',0)")
        c.executemany("INSERT INTO role_capabilities VALUES('helper',?)", [(name,) for name in capabilities])

    await app.skald.system_db.write(insert)
    await app.skald.roles.load()
    return "helper"


# -- what plugins hear --------------------------------------------------------------------------------------------


async def test_skald_user_created(skald_app: AppFactory) -> None:
    """Told when an administrator makes an account, whose data is still closed then, and for the first account."""
    told: Told = []
    app = await skald_app(diary(told, readable))
    await app.skald.create_first(username="eve", password=PASSWORD, display_name="", encrypted=False, locale="en")
    admin = await app.client()
    body = {"username": "bo", "password": PASSWORD, "encrypted": True}
    assert (await admin.post("/api/users", body))["username"] == "bo"
    assert [(name, who) for name, who, _ in told if name == "created"] == [("created", "eve"), ("created", "bo")]
    assert told[-1] == ("created", "bo", False)


async def test_skald_user_unlocked(skald_app: AppFactory) -> None:
    """Told at sign-in, at the server's start for users without encryption, and when the plugin starts or is granted while
    the user is open; their database can be used each time."""
    told: Told = []
    plugin = diary(told, readable)
    app = await skald_app(plugin)
    sealed = await app.client("ada", "admin", encrypted=True)
    plain = await app.client("bo", "member")
    await context_of(app, plain)
    await (await context_of(app, sealed))._settle()
    await (await context_of(app, plain))._settle()
    assert told == [("unlocked", "ada", True), ("unlocked", "bo", True)]
    told.clear()
    await app.skald.plugins.disable("diary")
    await app.skald.plugins.enable("diary")
    assert sorted(told) == [("unlocked", "ada", True), ("unlocked", "bo", True)]
    told.clear()
    await app.skald.plugins.change_access("diary", users={_id(plain): False})
    await app.skald.plugins.change_access("diary", users={_id(plain): True})
    assert told == [("unlocked", "bo", True)]
    told.clear()
    app = await skald_app(plugin)
    user = await app.skald.users.get(_id(plain))
    await app.skald.require_open(user)
    await (await app.skald.context(user))._settle()
    assert [entry for entry in told if entry[0] == "unlocked"] == [("unlocked", "bo", True)]


async def test_skald_user_locked(skald_app: AppFactory) -> None:
    """Told while the database can still be used, when the account is switched off and when the server stops."""
    told: Told = []
    app = await skald_app(diary(told, readable))
    admin, member = await app.client(), await app.client("bo", "member")
    await context_of(app, admin)
    await context_of(app, member)
    await admin.patch(f"/api/users/{_id(member)}", {"active": False})
    assert ("locked", "bo", True) in told
    await app.stop()
    assert ("locked", "ada", True) in told
    assert [entry[:2] for entry in told].count(("locked", "bo")) == 1


async def test_skald_user_deactivated(skald_app: AppFactory) -> None:
    """Told after everything of the account has ended."""
    told: Told = []
    app: TestApp

    async def look(ctx: skald.PluginContext, user: skald.User) -> Any:
        sessions = await app.skald.system_db.read(
            lambda c: c.execute("SELECT count(*) FROM login_sessions WHERE user_id=?", (user.id,)).fetchone()[0]
        )
        return user.active, sessions, await readable(ctx, user)

    app = await skald_app(diary(told, look))
    admin, member = await app.client(), await app.client("bo", "member")
    await context_of(app, member)
    await admin.patch(f"/api/users/{_id(member)}", {"active": False})
    assert told[-1] == ("deactivated", "bo", (False, 0, False))
    await admin.patch(f"/api/users/{_id(member)}", {"active": True})
    assert told[-1][0] == "deactivated"


async def test_skald_user_deleted(skald_app: AppFactory) -> None:
    """Told when account and database are gone, also to a plugin the user might not use any more."""
    told: Told = []
    app: TestApp

    def look(ctx: skald.PluginContext, user: skald.User) -> Any:
        return app.skald.vault.path(user.id).exists(), app.skald.home_of(user.id).exists()

    app = await skald_app(diary(told, look))
    admin, member = await app.client(), await app.client("bo", "member")
    await app.skald.plugins.change_access("diary", users={_id(member): False})
    told.clear()
    answer = await admin.request("DELETE", f"/api/users/{_id(member)}", {"password": PASSWORD})
    assert answer.status_code == 204, answer.text
    assert told == [("deleted", "bo", (False, False))]


# -- switching off ------------------------------------------------------------------------------------------------


async def test_switching_off_ends_everything_before_it_answers(skald_app: AppFactory) -> None:
    """Session, socket, running turn, waiting card and open database; the other user's go on. Switched on again the account
    signs in anew and finds its turn stopped, not taken up."""
    gate, reached = asyncio.Event(), asyncio.Event()
    provider = ScriptedProvider(
        [
            calls(call("write_note", {"text": "x"})),
            text("never", gate=gate, reached=reached),
            text("never", gate=gate, reached=reached),
        ]
    )
    app = await skald_app(scripted_plugin(provider), with_tools(write_note), allowing("write_note"))
    await app.add_model()
    admin, member = await app.client(), await app.client("bo", "member")
    asking = await new(member)
    await said(member, "write", asking)
    request = await waiting_request(app, member, asking)
    speaking = await new(member)
    await said(member, "speak", speaking)
    async with asyncio.timeout(20):
        await reached.wait()
    reached.clear()
    other = await new(admin)
    await said(admin, "speak", other)
    async with asyncio.timeout(20):
        await reached.wait()
    context = await context_of(app, member)
    mine, theirs = Subscriber(), Subscriber()
    context.feed.attach(mine)
    (await context_of(app, admin)).feed.attach(theirs)
    changed = await admin.patch(f"/api/users/{_id(member)}", {"active": False})
    assert changed["active"] is False
    assert mine.closed_reason == "signed_out"
    assert theirs.closed_reason == ""
    assert await _status(member) == 401
    assert app.skald.vault.get(_id(member)) is None
    assert context.agent.running() == ()
    assert (await app.skald.context(await app.skald.users.get(_id(admin)))).agent.running() == (other,)
    answer = await member.request("POST", "/api/auth/login", {"username": "bo", "password": PASSWORD})
    assert answer.status_code == 401
    await admin.patch(f"/api/users/{_id(member)}", {"active": True})
    assert await _status(member) == 401  # the old session does not come back
    await member.post("/api/auth/login", {"username": "bo", "password": PASSWORD})
    for conversation in (asking, speaking):
        assert (await member.get(f"/api/conversations/{conversation}"))["state"] == "idle"
    items = (await member.get("/api/inbox"))["items"]
    assert [(item["id"], item["status"]) for item in items] == [(request["id"], "cancelled")]
    gate.set()
    await app.idle(admin, other)


async def test_a_request_that_was_let_in_just_before_opens_nothing(skald_app: AppFactory) -> None:
    """Between the check of a session and the work of a request an account can be switched off: its data stays closed."""
    app = await skald_app()
    admin, member = await app.client(), await app.client("bo", "member")
    user = await app.skald.users.get(_id(member))
    await admin.patch(f"/api/users/{_id(member)}", {"active": False})
    with pytest.raises(NotSignedIn):
        await app.skald.require_open(user)
    with pytest.raises(NotSignedIn):
        await app.skald.context(user)
    assert app.skald.vault.get(user.id) is None


async def test_a_socket_that_came_in_at_the_last_moment_is_closed(skald_app: AppFactory) -> None:
    """A socket whose session ends while it is being opened does not outlive it."""
    app = await skald_app()
    admin, member = await app.client(), await app.client("bo", "member")
    await context_of(app, member)
    sent: list[dict[str, Any]] = []
    closed = asyncio.Event()
    first = True

    async def receive() -> dict[str, Any]:
        nonlocal first
        if first:
            first = False
            return {"type": "websocket.connect"}
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "websocket.accept":  # it was checked, and is not attached yet
            await admin.post(f"/api/users/{_id(member)}/password", {"new": "a fresh long password"})
        sent.append(message)
        if message["type"] == "websocket.close":
            closed.set()

    cookie = f"skald_session={member.http.cookies['skald_session']}"
    scope = {"type": "websocket", "path": "/api/ws", "headers": [(b"host", b"127.0.0.1"), (b"cookie", cookie.encode())]}
    serving = asyncio.ensure_future(app.skald.asgi(scope, receive, send))  # type: ignore[arg-type]
    async with asyncio.timeout(20):
        await closed.wait()
    assert sent[-1]["code"] == 4401
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


# -- roles --------------------------------------------------------------------------------------------------------


async def test_a_role_change_works_from_the_next_request(skald_app: AppFactory) -> None:
    """Up and down, without signing in again."""
    app = await skald_app()
    admin, member = await app.client(), await app.client("bo", "member")
    assert (await member.request("GET", "/api/users")).status_code == 403
    assert (await admin.patch(f"/api/users/{_id(member)}", {"role": "admin"}))["role"] == "admin"
    assert (await member.request("GET", "/api/users")).status_code == 200
    boss = (await context_of(app, member)).user
    assert app.skald.allows(boss, "users.manage")
    await admin.patch(f"/api/users/{_id(member)}", {"role": "member"})
    assert (await member.request("GET", "/api/users")).status_code == 403
    assert not app.skald.allows(boss, "users.manage")  # what a plugin, or a running turn, still has in its hands
    answer = await admin.request("PATCH", f"/api/users/{_id(member)}", {"role": "nothing"})
    assert (answer.status_code, answer.json()["code"]) == (409, "role_not_found")


async def test_names_and_odd_changes(skald_app: AppFactory) -> None:
    """A new name is taken, an empty one is not; unknown fields and unknown accounts are told."""
    app = await skald_app()
    admin, member = await app.client(), await app.client("bo", "member")
    url = f"/api/users/{_id(member)}"
    assert (await admin.patch(url, {"display_name": " Bo B. "}))["display_name"] == "Bo B."
    assert (await admin.patch(url, {}))["display_name"] == "Bo B."
    for body in ({"display_name": " "}, {"activ": True}):
        assert (await admin.request("PATCH", url, body)).status_code == 422
    assert (await admin.request("PATCH", "/api/users/nobody", {"active": False})).status_code == 404
    assert (await admin.request("DELETE", "/api/users/nobody", {"password": PASSWORD})).status_code == 404


async def test_nobody_takes_their_own_rights_away(skald_app: AppFactory) -> None:
    """Not by role, not by switching off, not by deletion; a name of one's own is fine."""
    app = await skald_app()
    admin = await app.client()
    await app.client("eve", "admin")
    url = f"/api/users/{_id(admin)}"
    for method, body in (
        ("PATCH", {"role": "member"}),
        ("PATCH", {"active": False}),
        ("DELETE", {"password": PASSWORD}),
    ):
        answer = await admin.request(method, url, body)
        assert (answer.status_code, answer.json()["code"]) == (409, "yourself"), body
    assert (await admin.patch(url, {"display_name": "Ada L.", "role": "admin", "active": True}))["active"] is True


async def test_one_administrator_is_always_left(skald_app: AppFactory) -> None:
    """Two administrators who go for each other at once: one of them stays."""
    app = await skald_app()
    ada, eve = await app.client(), await app.client("eve", "admin")
    answers = await asyncio.gather(
        ada.request("PATCH", f"/api/users/{_id(eve)}", {"role": "member"}),
        eve.request("PATCH", f"/api/users/{_id(ada)}", {"active": False}),
    )
    assert sorted(answer.is_success for answer in answers) == [False, True]
    left = [user for user in await app.skald.users.all() if user.is_admin and user.active]
    assert len(left) == 1
    with pytest.raises(Conflict, match="last administrator"):
        await app.skald.users.change(left[0].id, active=False)


async def test_who_manages_accounts_does_not_reach_above_themselves(skald_app: AppFactory) -> None:
    """A third role with ``users.manage`` handles members, and neither makes nor touches who has rights that it lacks."""
    app = await skald_app()
    admin, member = await app.client(), await app.client("bo", "member")
    role = await third_role(app, "users.manage")
    helper = await app.client("hal", role)
    me, boss, bo = (f"/api/users/{_id(client)}" for client in (helper, admin, member))
    assert (await helper.patch(bo, {"display_name": "Bobby"}))["display_name"] == "Bobby"
    assert (await helper.patch(bo, {"active": False}))["active"] is False
    assert (await helper.patch(bo, {"active": True}))["active"] is True
    assert (await helper.post("/api/users", {"username": "cy", "password": PASSWORD}))["role"] == "member"
    for method, path, body in (
        ("POST", "/api/users", {"username": "dee", "password": PASSWORD, "role": "admin"}),
        ("PATCH", bo, {"role": "admin"}),
        ("PATCH", boss, {"display_name": "X"}),
        ("PATCH", boss, {"active": False}),
        ("DELETE", boss, {"password": PASSWORD}),
        ("POST", f"{boss}/password", {"new": "taken over by me"}),
    ):
        answer = await helper.request(method, path, body)
        assert (answer.status_code, answer.json()["code"]) == (403, "role_above"), (method, path)
    assert (await helper.request("PATCH", me, {"role": "admin"})).status_code in (403, 409)
    for path, method in ((bo, "PATCH"), (me, "PATCH"), (bo, "DELETE")):
        answer = await member.request(method, path, {"password": PASSWORD})
        assert answer.status_code in (401, 403)
    assert (await helper.request("DELETE", bo, {"password": PASSWORD})).status_code == 204


# -- deletion -----------------------------------------------------------------------------------------------------


def keeper() -> Any:
    """A plugin with registry tables about users, one that cascades and one whose author forgot."""

    def skald_schema() -> list[skald.Schema]:
        step = skald.Migration(
            1,
            "CREATE TABLE keeper_notes(user_id TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE, note TEXT);"
            "CREATE TABLE keeper_plain(owner TEXT NOT NULL REFERENCES users(id), note TEXT);",
        )
        return [skald.Schema("registry", (step,))]

    return made("keeper", skald_schema)


async def test_deletion_takes_everything_also_of_plugins_that_are_gone(skald_app: AppFactory) -> None:
    """Account, sessions, database files, home, and rows in tables of a plugin that is not installed any more; the other
    user's are untouched."""
    app = await skald_app(keeper())
    admin, member = await app.client(), await app.client("bo", "member")
    for client in (admin, member):
        files = (await context_of(app, client)).files
        await files.write_text("notes/a.md", "mine")
        await new(client)

    def insert(c: Connection) -> None:
        for client in (admin, member):
            c.execute("INSERT INTO keeper_notes VALUES(?, 'n')", (_id(client),))
            c.execute("INSERT INTO keeper_plain VALUES(?, 'n')", (_id(client),))

    await app.skald.system_db.write(insert)
    cookies = dict(admin.http.cookies)
    gone, stays = _id(member), _id(admin)
    app = await skald_app()
    admin = app.anonymous()
    admin.http.cookies.update(cookies)
    await admin.get("/api/auth/me")
    assert (await admin.request("DELETE", f"/api/users/{gone}", {"password": PASSWORD})).status_code == 204

    def count(c: Connection) -> dict[str, list[str]]:
        tables = (
            ("users", "id"),
            ("login_sessions", "user_id"),
            ("keeper_notes", "user_id"),
            ("keeper_plain", "owner"),
        )
        return {t: [row[0] for row in c.execute(f"SELECT DISTINCT {column} FROM {t}")] for t, column in tables}

    kept = await app.skald.system_db.read(count)
    assert kept == {table: [stays] for table in ("users", "login_sessions", "keeper_notes", "keeper_plain")}
    left = {path.name for path in (app.skald.data_dir / "database").iterdir()}
    assert not any(name.startswith(gone) for name in left)
    assert any(name.startswith(stays) for name in left)
    assert [path.name for path in (app.skald.data_dir / "homes").iterdir()] == [stays]
    actions = await app.skald.system_db.read(
        lambda c: [tuple(row) for row in c.execute("SELECT action, target FROM audit_log WHERE action LIKE 'user.%'")]
    )
    assert ("user.delete", "bo") in actions
    assert (await admin.request("DELETE", f"/api/users/{gone}", {"password": PASSWORD})).status_code == 404


async def test_deletion_needs_the_callers_own_password(skald_app: AppFactory) -> None:
    """A wrong one is refused and counted; nothing happens to the account."""
    app = await skald_app()
    admin, member = await app.client(), await app.client("bo", "member")
    url = f"/api/users/{_id(member)}"
    for _ in range(5):
        answer = await admin.request("DELETE", url, {"password": "not it at all"})
        assert (answer.status_code, answer.json()["code"]) == (403, "bad_password")
    assert (await admin.request("DELETE", url, {"password": PASSWORD})).status_code == 429
    assert await _status(member) == 200


async def test_a_deletion_cut_short_can_be_done_again(skald_app: AppFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the files cannot be removed the account is off and still listed; the second attempt finishes."""
    app = await skald_app()
    admin, member = await app.client(), await app.client("bo", "member", encrypted=True)
    url = f"/api/users/{_id(member)}"

    def busy(folder: Any) -> None:
        raise OSError(16, "busy")

    with monkeypatch.context() as patch:
        patch.setattr(accounts, "_remove_folder", busy)
        assert (await admin.request("DELETE", url, {"password": PASSWORD})).status_code == 500
    assert await _status(member) == 401
    (left,) = [user for user in await admin.get("/api/users") if user["username"] == "bo"]
    assert left["active"] is False
    assert (await admin.request("DELETE", url, {"password": PASSWORD})).status_code == 204
    assert [user["username"] for user in await admin.get("/api/users")] == ["ada"]


async def test_an_account_of_an_administrators_making_is_closed_until_it_signs_in(skald_app: AppFactory) -> None:
    """Making an encrypted account does not leave its data open on the server."""
    app = await skald_app()
    admin = await app.client()
    made_user = await admin.post("/api/users", {"username": "bo", "password": PASSWORD, "encrypted": True})
    assert app.skald.vault.get(made_user["id"]) is None
    member = app.anonymous()
    await member.post("/api/auth/login", {"username": "bo", "password": PASSWORD})
    assert app.skald.vault.get(made_user["id"]) is not None
