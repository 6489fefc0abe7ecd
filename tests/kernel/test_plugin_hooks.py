"""One test per hook of a plugin's contributions and life, through a running instance."""

import asyncio
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from litestar import Controller, Router, WebSocket, get, post, websocket
from litestar.params import FromPath

from skald_core import api as skald
from skald_core.cli.main import main
from skald_core.plugins import health
from skald_core.plugins.manifest import Manifest
from skald_core.testing import AppFactory, ScriptedProvider, TestClient, local_plugin, scripted_plugin, text
from tests.support.plugins import echo, made, with_tools
from tests.support.server import PASSWORD, USERNAME, ServerProcess


async def test_skald_tools(skald_app: AppFactory) -> None:
    """A running plugin's tools are offered; a disabled one's are gone at once."""
    app = await skald_app(with_tools(echo))
    client = await app.client()
    contributed = app.skald.plugins.contributed
    assert [t.name for _, t in contributed.tools()] == ["echo"]
    assert (await client.get("/api/plugins"))[0]["contributes"]["tools"] == ["echo"]
    assert (await client.get("/api/my/plugins"))[0]["tools"] == [{"name": "echo", "title": "echo"}]
    await client.post("/api/plugins/tools/disable")
    assert contributed.tools() == []
    assert await client.get("/api/my/plugins") == []


async def test_skald_services(skald_app: AppFactory) -> None:
    """Others find an implementation by its type, for a user only where that user may use it."""
    found: list[skald.PluginContext] = []

    def skald_services() -> list[skald.Service]:
        return [skald.Service(skald.ChatCompletions, "the service")]

    def skald_startup(ctx: skald.PluginContext) -> None:
        found.append(ctx)

    app = await skald_app(made("giver", skald_services), made("taker", skald_startup))
    (ctx,) = found
    client = await app.client()
    assert client.user is not None
    ada = await app.skald.users.get(client.user["id"])
    assert ctx.service(skald.ChatCompletions) == "the service"
    assert ctx.service(skald.ChatCompletions, ada) == "the service"
    await app.skald.plugins.change_access("giver", users={ada.id: False})
    assert ctx.service(skald.ChatCompletions, ada) is None
    assert (await client.get("/api/plugins/giver"))["contributes"]["services"] == ["ChatCompletions"]
    await app.skald.plugins.disable("giver")
    assert ctx.service(skald.ChatCompletions) is None


async def test_skald_llm_providers(skald_app: AppFactory) -> None:
    """A kind of model API is there while its plugin runs; models of one that is gone do not work."""
    provider = ScriptedProvider([text("Hello.")])
    app = await skald_app(scripted_plugin(provider))
    client = await app.client()
    await app.add_model()
    messages = await client.run_turn("Hi")
    assert messages[-1]["content"] == "Hello."
    assert [t["id"] for t in await client.get("/api/provider-types")] == ["scripted"]
    await client.post("/api/plugins/scripted/disable")
    assert await client.get("/api/provider-types") == []
    (model,) = await client.get("/api/models")
    tried = await client.request("POST", f"/api/models/{model['id']}/test", {})
    assert tried.json().get("ok") is not True


async def test_skald_schema(skald_app: AppFactory) -> None:
    """Registry tables are in system.db before the start; owner tables in every open database, and later in the others."""
    rows: list[int] = []

    def skald_schema() -> list[skald.Schema]:
        registry = skald.Migration(1, "CREATE TABLE notes_shared(x); INSERT INTO notes_shared VALUES(1)")
        owner = skald.Migration(1, "CREATE TABLE notes_own(x); CREATE VIRTUAL TABLE notes_words USING fts5(text)")
        return [skald.Schema("registry", (registry,)), skald.Schema("owner", (owner,))]

    async def skald_startup(ctx: skald.PluginContext) -> None:
        rows.append(await ctx.tables.read(lambda c: int(c.execute("SELECT count(*) FROM notes_shared").fetchone()[0])))

    app = await skald_app()
    client = await app.client(encrypted=True)
    plugin = made("notes", skald_schema, skald_startup)
    await app.skald.plugins.rescan([plugin])
    await client.post("/api/plugins/notes/enable")
    assert rows == [1]
    assert client.user is not None
    context = app.skald.plugins.context("notes")
    assert context is not None
    await context.owner_tables(client.user["id"]).write(lambda c: c.execute("INSERT INTO notes_own VALUES(7)"))
    late = await app.client("bo", "member", encrypted=True)
    assert late.user is not None
    await context.owner_tables(late.user["id"]).write(lambda c: c.execute("INSERT INTO notes_own VALUES(8)"))
    kept = (await client.get("/api/plugins/notes"))["data"]
    tables = {t["name"]: (t["bucket"], t["rows"]) for t in kept["tables"]}
    assert tables["notes_shared"] == ("registry", 1)
    assert tables["notes_own"] == ("owner", 2)
    await client.post("/api/plugins/notes/disable")
    assert (await client.get("/api/plugins/notes"))["data"] == kept


async def test_owner_tables_that_cannot_be_made_withhold_the_plugin(skald_app: AppFactory) -> None:
    """From that user alone; the reason is shown, and everybody else goes on."""

    def skald_schema() -> list[skald.Schema]:
        return [skald.Schema("owner", (skald.Migration(1, "CREATE TABLE notes_own(x)"),))]

    app = await skald_app()
    ada, bo = await app.client(), await app.client("bo", "member")
    assert ada.user is not None
    await app.skald.vault.require(ada.user["id"]).write(lambda c: c.execute("CREATE TABLE notes_own(other)"))
    await app.skald.plugins.rescan([made("notes", skald_schema)])
    row = await ada.post("/api/plugins/notes/enable")
    assert row["state"] == "running"
    assert any("could not be made for one user" in problem for problem in row["problems"])
    assert await ada.get("/api/my/plugins") == []
    assert [p["id"] for p in await bo.get("/api/my/plugins")] == ["notes"]


async def test_skald_capabilities(skald_app: AppFactory) -> None:
    """Roles get a new right once; what an admin takes away stays away; a route asks for it; it goes with its plugin."""
    asked: list[bool] = []

    @get("/report", opt={"capability": "stats.read"})
    async def report() -> str:
        return "numbers"

    def skald_capabilities() -> list[skald.Capability]:
        return [skald.Capability(id="stats.read", title="right.read", default_roles=("member", "nobody-has-this"))]

    def skald_routes() -> list[Any]:
        return [report]

    def skald_i18n() -> dict[str, dict[str, str]]:
        return {"en": {"right.read": "Read the numbers"}}

    async def skald_startup(ctx: skald.PluginContext) -> None:
        member = skald.User("1", "bo", "Bo", "member", encrypted=False)
        asked.append(ctx.allows(member, "stats.read"))

    plugin = made("stats", skald_capabilities, skald_routes, skald_i18n, skald_startup)
    app = await skald_app(plugin)
    admin, member = await app.client(), await app.client("bo", "member")
    assert asked == [True]
    assert (await member.request("GET", "/api/plugin/stats/report")).status_code == 200
    assert "stats.read" in (await member.get("/api/auth/me"))["capabilities"]
    row = (await admin.get("/api/plugins"))[0]
    assert row["rights"] == [{"id": "stats.read", "title": "Read the numbers"}]
    await app.skald.system_db.write(lambda c: c.execute("DELETE FROM role_capabilities"))
    await app.skald.roles.load()
    await admin.post("/api/plugins/stats/disable")
    assert "stats.read" not in (await admin.get("/api/auth/me"))["capabilities"]
    await admin.post("/api/plugins/stats/enable")
    refused = await member.request("GET", "/api/plugin/stats/report")
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert (await admin.request("GET", "/api/plugin/stats/report")).status_code == 200


async def test_a_capability_of_somebody_else_is_refused(skald_app: AppFactory) -> None:
    """A plugin cannot hand out the kernel's rights, or another plugin's."""

    def skald_capabilities() -> list[skald.Capability]:
        return [skald.Capability(id="users.manage", title="All", default_roles=("member",))]

    app = await skald_app(made("greedy", skald_capabilities), strict=False)
    row = app.skald.plugins.get("greedy")
    assert row.state == "failed"
    assert row.error is not None
    assert "must start with 'greedy.'" in row.error.message
    assert not app.skald.roles.allows("member", "users.manage")


async def test_skald_health(skald_app: AppFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """All checks run at once; one that raises, or does not end, is not well and says so."""
    both = asyncio.Barrier(2)

    async def meet() -> skald.Health:
        await both.wait()  # ends only when two checks run at the same time
        return skald.Health(True, "fine")

    async def breaks() -> skald.Health:
        raise RuntimeError("no server")

    async def hangs() -> skald.Health:
        await asyncio.Event().wait()
        return skald.Health(True)

    async def lies() -> Any:
        return True

    def skald_health() -> list[skald.HealthCheck]:
        checks = {"one": meet, "two": meet, "breaks": breaks, "hangs": hangs, "lies": lies}
        return [skald.HealthCheck(id=name, title=f"check.{name}", check=check) for name, check in checks.items()]

    def skald_i18n() -> dict[str, dict[str, str]]:
        return {"en": {"check.one": "The first", "fine": "All is well."}}

    monkeypatch.setattr(health, "CHECK_SECONDS", 0.2)
    app = await skald_app(made("checked", skald_health, skald_i18n))
    client = await app.client()
    found = {c["id"]: c for c in await client.post("/api/plugins/checked/health")}
    assert (found["one"]["title"], found["one"]["ok"], found["one"]["text"]) == ("The first", True, "All is well.")
    assert found["two"]["ok"]
    assert (found["breaks"]["ok"], found["breaks"]["text"]) == (False, "no server")
    assert (found["hangs"]["ok"], found["hangs"]["text"]) == (False, "The check did not end in time.")
    assert "must return Health" in found["lies"]["text"]
    await client.post("/api/plugins/checked/disable")
    assert await client.post("/api/plugins/checked/health") == []


class Notes(Controller):
    path = "/notes"

    @get()
    async def all(self) -> list[str]:
        return ["a"]

    @post("/{note:str}")
    async def add(self, note: FromPath[str]) -> str:
        return note


async def test_skald_routes(skald_app: AppFactory, tmp_path: Path) -> None:
    """Handlers, routers and controllers, signed in, described in the one OpenAPI document, gone with their plugin."""

    @get("/hello")
    async def hello() -> dict[str, str]:
        """Say hello."""
        return {"say": "hello"}

    @get("/fail")
    async def fail() -> None:
        raise skald.ToolError("It did not work.")

    def skald_routes() -> list[Any]:
        return [hello, fail, Notes, Router("/more", route_handlers=[hello])]

    app = await skald_app(made("routed", skald_routes), made("other"))
    client = await app.client()
    for path in ("hello", "more/hello"):
        assert await client.get(f"/api/plugin/routed/{path}") == {"say": "hello"}
    assert await client.get("/api/plugin/routed/notes") == ["a"]
    refused = await client.request("GET", "/api/plugin/routed/fail")
    assert (refused.status_code, refused.headers["content-type"]) == (422, "application/problem+json")
    for path in ("routed/nothing", "other/hello", "nobody/hello"):
        answer = await client.request("GET", f"/api/plugin/{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert (await app.anonymous().request("GET", "/api/plugin/routed/hello")).status_code == 401
    document = await client.get("/api/schema/openapi.json")
    assert {"/api/plugin/routed/hello", "/api/plugin/routed/notes", "/api/plugins"} <= document["paths"].keys()
    await client.post("/api/plugins/routed/disable")
    assert (await client.request("GET", "/api/plugin/routed/hello")).status_code == 404
    assert "/api/plugin/routed/hello" not in (await client.get("/api/schema/openapi.json"))["paths"]


def _twice() -> list[Any]:
    @get("/same")
    async def one() -> None: ...

    @get("/same/")
    async def two() -> None: ...

    return [one, two]


def _twice_in_router() -> list[Any]:
    @get("/notes")
    async def mine() -> None: ...

    return [mine, Notes]


def _annotation() -> list[Any]:
    async def bad(x: "NowhereToBeFound") -> None: ...  # type: ignore[name-defined]  # noqa: F821 -- the fault under test

    return [get("/bad")(bad)]


def _live() -> list[Any]:
    @websocket("/live")
    async def live(socket: WebSocket[Any, Any, Any]) -> None: ...

    return [live]


@pytest.mark.parametrize("routes", [_twice, _twice_in_router, _annotation, _live, lambda: [print]])
async def test_routes_that_cannot_be_built_fail_their_plugin(skald_app: AppFactory, routes: Any) -> None:
    """A path twice, an unknown annotation, a WebSocket, no handler at all: the server and the others go on."""

    def skald_routes() -> Any:
        return routes()

    @get("/hello")
    async def hello() -> str:
        return "hello"

    def others() -> list[Any]:
        return [hello]

    others.__name__ = "skald_routes"
    app = await skald_app(made("bad", skald_routes), made("good", others), strict=False)
    await app.skald.plugins.settled()
    row = app.skald.plugins.get("bad")
    assert (row.state, row.error.phase if row.error else "") == ("failed", "register")
    client = await app.client()
    assert (await client.request("GET", "/api/plugin/good/hello")).status_code == 200
    await app.skald.plugins.enable("bad")
    assert app.skald.plugins.get("bad").state == "failed"


async def test_routes_that_cannot_be_built_are_found_after_a_restart(skald_app: AppFactory) -> None:
    """A start leaves the routes until the server listens; a plugin whose routes broke meanwhile fails then, by itself or by
    the first request."""
    faults: list[Any] = []

    def skald_routes() -> Any:
        @get("/hello")
        async def hello() -> str:
            return "hello"

        return [hello, *faults]

    plugin = made("fragile", skald_routes)
    app = await skald_app(plugin)
    assert app.skald.plugins.get("fragile").state == "running"
    faults += [*_twice()]
    app = await skald_app(plugin, strict=False)
    client = await app.client()
    assert (await client.request("GET", "/api/plugin/fragile/hello")).status_code == 404
    await app.skald.plugins.settled()
    row = app.skald.plugins.get("fragile")
    assert (row.state, row.enabled, row.error.phase if row.error else "") == ("failed", True, "register")


async def test_routes_cannot_reach_out_of_their_place(skald_app: AppFactory) -> None:
    """A path that looks like the kernel's or another plugin's stays below the plugin's own, with its own guard."""

    @get(["/api/plugins", "/api/plugin/victim/hello", "/../victim/hello"], opt={"plugin": "victim"})
    async def shadow() -> str:
        return "shadow"

    @get("/hello")
    async def hello() -> str:
        return "victim"

    def evil() -> list[Any]:
        return [shadow]

    def victim() -> list[Any]:
        return [hello]

    evil.__name__ = victim.__name__ = "skald_routes"
    app = await skald_app(made("evil", evil), made("victim", victim))
    client = await app.client()
    assert isinstance(await client.get("/api/plugins"), list)
    assert (await client.request("GET", "/api/plugin/victim/hello")).text == "victim"
    assert (await client.request("GET", "/api/plugin/evil/api/plugins")).text == "shadow"
    await app.skald.plugins.change_access("evil", default_on=False)
    assert (await client.request("GET", "/api/plugin/evil/api/plugins")).status_code == 404


async def test_web_files_are_served_from_their_folder_only(skald_app: AppFactory, tmp_path: Path) -> None:
    """A page's module comes with its type; what lies outside the folder does not come at all."""
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "page.js").write_text("export default 1")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "web" / "link.txt").symlink_to(tmp_path / "secret.txt")
    plugin = msgspec.structs.replace(made("paged"), package_dir=tmp_path)
    app = await skald_app(plugin)
    client = await app.client()
    answer = await client.request("GET", "/api/plugin/paged/web/page.js")
    assert (answer.status_code, answer.text) == (200, "export default 1")
    assert answer.headers["content-type"].startswith("text/javascript")
    for name in ("link.txt", "../secret.txt", "..%2Fsecret.txt", "nothing.js", "x" * 300, "%00"):
        assert (await client.request("GET", f"/api/plugin/paged/web/{name}")).status_code == 404, name


async def test_skald_web_pages(skald_app: AppFactory) -> None:
    """Pages come by priority, with their title in the reader's language, for those who may open them."""

    def skald_web_pages() -> list[skald.WebPage]:
        return [
            skald.WebPage(page_id="later", title="Plain title", entry="web/later.js"),
            skald.WebPage(page_id="first", title="page.first", entry="/web/first.js", icon="sun", priority=1),
            skald.WebPage(page_id="admin", title="Admin", entry="web/admin.js", admin_only=True),
        ]

    def skald_i18n() -> dict[str, dict[str, str]]:
        return {"en": {"page.first": "First"}, "it": {"page.first": "Prima"}}

    app = await skald_app(made("paged", skald_web_pages, skald_i18n))
    admin, member = await app.client(), await app.client("bo", "member")
    assert [p["page_id"] for p in await admin.get("/api/plugins/pages")] == ["first", "admin", "later"]
    await member.request("PUT", "/api/auth/profile", {"locale": "it"})
    pages = await member.get("/api/plugins/pages")
    assert [(p["page_id"], p["title"]) for p in pages] == [("first", "Prima"), ("later", "Plain title")]
    assert pages[0]["entry"] == "/api/plugin/paged/web/first.js"
    await admin.post("/api/plugins/paged/disable")
    assert await member.get("/api/plugins/pages") == []


async def test_skald_i18n(skald_app: AppFactory) -> None:
    """Each text is in the user's language, else in the instance's, else in English; a bundle may lack any of them."""
    started: list[skald.PluginContext] = []

    def skald_i18n() -> dict[str, dict[str, str]]:
        return {
            "en": {"a": "A", "b": "B", "c": "C {name} {unfilled}", "plugin.said.d": "D"},
            "it": {"a": "Ait", "b": "Bit"},
            "fr": {"a": "Afr"},
        }

    def skald_startup(ctx: skald.PluginContext) -> None:
        started.append(ctx)

    app = await skald_app(made("said", skald_i18n, skald_startup), made("wordless"))
    client = await app.client()
    app.skald.texts.instance_locale = "it"
    texts = await client.get("/api/i18n/fr")
    assert texts["plugin.said.a"] == "Afr"
    assert texts["plugin.said.b"] == "Bit"
    assert texts["plugin.said.d"] == "D"
    (ctx,) = started
    assert [ctx.t("a", "fr"), ctx.t("b", "fr"), ctx.t("a"), ctx.t("d", "fr")] == ["Afr", "Bit", "Ait", "D"]
    assert ctx.t("c", "fr", name="Ada") == "C Ada {unfilled}"
    assert ctx.t("nothing") == "plugin.said.nothing"


@pytest.mark.parametrize(
    "bundle", [{"en": {"a": 1}}, {"en": {"a": {"b": "nested"}}}, {"en": "text"}, ["en"], {"en": {1: "number"}}]
)
async def test_a_bundle_of_something_else_fails_its_plugin(skald_app: AppFactory, bundle: Any) -> None:
    """Nested or non-text bundles are refused with the shape that is wanted."""

    def skald_i18n() -> Any:
        return bundle

    app = await skald_app(made("said", skald_i18n), strict=False)
    row = app.skald.plugins.get("said")
    assert row.state == "failed"
    assert row.error is not None
    assert "one flat table of texts per locale" in row.error.message


async def test_skald_startup(skald_app: AppFactory) -> None:
    """Called at each start with what the plugin needs in place; its tasks end with it, and a failing one is shown."""
    log: list[str] = []
    ended = asyncio.Event()

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def fails() -> None:
        raise RuntimeError("the task broke")

    def skald_tools() -> list[skald.Tool]:
        log.append("tools")
        return [echo]

    async def skald_startup(ctx: skald.PluginContext) -> None:
        log.append("startup")
        ctx.spawn(forever())
        await asyncio.wait([ctx.spawn(fails())])

    app = await skald_app(made("started", skald_tools, skald_startup), strict=False)
    assert log == ["tools", "startup"]
    client = await app.client()
    row = await client.get("/api/plugins/started")
    assert row["state"] == "running"
    await client.post("/api/plugins/started/disable")
    assert ended.is_set()
    row = await client.post("/api/plugins/started/enable")
    assert (row["state"], log) == ("running", ["tools", "startup"] * 2)


async def test_skald_shutdown(skald_app: AppFactory) -> None:
    """Called before what the plugin registered is undone, also at the end of the server; its failure stops nothing."""
    log: list[str] = []

    def skald_startup(ctx: skald.PluginContext) -> None:
        ctx.on_dispose(lambda: log.append("disposed"))

    def skald_shutdown(ctx: skald.PluginContext) -> None:
        log.append("shutdown")
        raise RuntimeError("will not end")

    app = await skald_app(made("ending", skald_startup, skald_shutdown))
    await app.skald.plugins.disable("ending")
    row = app.skald.plugins.get("ending")
    assert log == ["shutdown", "disposed"]
    assert (row.state, row.error.phase if row.error else "") == ("disabled", "stop")
    await app.skald.plugins.enable("ending")
    await app.skald.plugins.shutdown()
    assert log == ["shutdown", "disposed"] * 2


# --- the command line ----------------------------------------------------------------------------------------------

CLI = """
import argparse
from litestar import get
from skald_core.api import CliCommand, ToolError, hookimpl

@get("/greeting")
async def greeting() -> dict[str, str]:
    return {"text": "hello"}

@hookimpl
def skald_routes():
    return [greeting]

def arguments(parser):
    parser.add_argument("name")
    parser.add_argument("--loud", action="store_true")

async def greet(args, host):
    said = await host.request("GET", "greeting")
    line = f"{said['text']} {args.name}"
    print(line.upper() if args.loud else line)
    return 7

def breaks(args, host):
    raise RuntimeError("this broke")

def tells(args, host):
    raise ToolError("This is told.")

def own_names(parser):
    for name in ("url", "user", "data"):
        parser.add_argument(name)

async def save(args, host):
    said = await host.request("GET", "greeting")
    print(said["text"], args.url, args.user, args.data)

@hookimpl
def skald_cli():
    return [
        CliCommand(name="greet", help="Greet somebody", run=greet, arguments=arguments),
        CliCommand(name="breaks", help="Break", run=breaks),
        CliCommand(name="tells", help="Tell", run=tells),
        CliCommand(name="save", help="Save a page", run=save, arguments=own_names),
    ]
"""


def test_skald_cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """``skald <plugin id> <command>`` runs in the terminal, reaches the server as a person, and imports that plugin only."""
    from tests.support.installed import install

    site = tmp_path / "site"
    install(site, "greeter", CLI)
    install(site, "bystander", "raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(site))
    for name in ("skald_plugin_greeter", "skald_plugin_bystander"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    data = tmp_path / "data"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with ServerProcess(data, env={"PYTHONPATH": str(site), "SKALD_STRICT_PLUGINS": "0"}) as server:
        admin = server.first_user(encrypted=False)
        monkeypatch.setenv("SKALD_USER", USERNAME)
        monkeypatch.setenv("SKALD_PASSWORD", PASSWORD)
        there = ["--data", str(data), "--url", server.url]
        assert main(["greeter", "greet", "Bo", *there]) == 1
        assert "disabled; enable it with 'skald plugin enable greeter'" in capsys.readouterr().err
        assert "skald_plugin_greeter" not in sys.modules
        row = admin.post("/api/plugins/greeter/enable").json()
        assert (row["state"], row["contributes"]["cli"]) == ("running", ["greet", "breaks", "tells", "save"])
        assert main(["greeter", "greet", "Bo", "--loud", *there]) == 7
        assert capsys.readouterr().out == "HELLO BO\n"
        assert main(["greeter", "breaks", *there]) == 1
        assert "'breaks' failed: RuntimeError: this broke" in capsys.readouterr().err
        assert main(["greeter", "tells", *there]) == 1
        assert capsys.readouterr().err == "skald: This is told.\n"
        assert (
            main(["greeter", "save", "http://127.0.0.1:9/page", "a", "b", *there]) == 0
        )  # not where the password goes
        assert capsys.readouterr().out == "hello http://127.0.0.1:9/page a b\n"
        with pytest.raises(SystemExit):
            main(["greeter", "--help", *there])
        assert "Greet somebody" in capsys.readouterr().out
        admin.post("/api/plugins/greeter/disable")
        admin.close()
    assert "skald_plugin_bystander" not in sys.modules
    with pytest.raises(SystemExit, match="2"):
        main(["nobody", "greet"])
    assert "neither a command nor an installed plugin 'nobody'" in capsys.readouterr().err


# --- while somebody else is at it ----------------------------------------------------------------------------------


async def test_plugins_come_and_go_while_a_request_of_another_runs(skald_app: AppFactory) -> None:
    """A request that is under way in one plugin is answered, and a stream of others is, whatever an admin does elsewhere."""
    entered, release = asyncio.Event(), asyncio.Event()

    @get("/slow")
    async def slow() -> str:
        entered.set()
        await release.wait()
        return "done"

    @get("/quick")
    async def quick() -> str:
        return "quick"

    def steady() -> list[Any]:
        return [slow, quick]

    @get("/hello")
    async def hello() -> str:
        return "hello"

    def coming() -> list[Any]:
        return [hello]

    steady.__name__ = coming.__name__ = "skald_routes"
    app = await skald_app(made("steady", steady), made("coming", coming, *_contributions()))
    admin = await app.client()
    waiting = asyncio.create_task(admin.request("GET", "/api/plugin/steady/slow"))
    await entered.wait()
    answers: list[int] = []
    stop = asyncio.Event()

    async def keep_asking(client: TestClient) -> None:
        while not stop.is_set():
            answers.append((await client.request("GET", "/api/plugin/steady/quick")).status_code)

    asking = asyncio.create_task(keep_asking(admin))
    for _ in range(5):
        await admin.post("/api/plugins/coming/disable")
        assert (await admin.request("GET", "/api/plugin/coming/hello")).status_code == 404
        assert not [t for t in app.skald.plugins.contributed.tools() if t[0] == "coming"]
        assert await admin.get("/api/plugins/pages") == []
        await admin.post("/api/plugins/coming/enable")
        assert (await admin.request("GET", "/api/plugin/coming/hello")).status_code == 200
        assert app.skald.plugins.contributed.commands() != []
        assert app.skald.plugins.contributed.agents() != []
        assert len(await admin.get("/api/plugins/pages")) == 1
    stop.set()
    await asking
    release.set()
    assert (await waiting).text == "done"
    assert set(answers) == {200}
    assert answers


def _contributions() -> Sequence[Any]:
    def skald_tools() -> list[skald.Tool]:
        return [echo]

    def skald_commands() -> list[skald.Command]:
        return [skald.Command(name="hey", title="Hey", prompt="Say hey")]

    def skald_agents() -> list[skald.AgentSpec]:
        return [skald.AgentSpec(id="helper", name="Helper", description="Helps", prompt="Help.")]

    def skald_web_pages() -> list[skald.WebPage]:
        return [skald.WebPage(page_id="main", title="Main", entry="web/main.js")]

    return skald_tools, skald_commands, skald_agents, skald_web_pages


async def test_every_list_of_the_manifest_is_compared(skald_app: AppFactory) -> None:
    """What the catalog announces before anything is imported must be true of the code."""
    said = Manifest(id="coming", title="T", api=">=1")
    module = types.ModuleType("skald_test_manifest_mismatch")
    for hook in _contributions():
        setattr(module, hook.__name__, skald.hookimpl(hook))
    sys.modules[module.__name__] = module
    app = await skald_app(local_plugin(module, said))
    problems = app.skald.plugins.problems(app.skald.plugins.get("coming"))
    for what in ("tools", "pages", "commands", "agents", "hooks"):
        assert any(f"manifest's {what} " in problem for problem in problems), what
