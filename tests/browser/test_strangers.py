"""Three strangers come and go while the server runs and a chat streams in another tab: each is installed from a wheel, used
in Chromium, upgraded with a migration of what it had stored, disabled, uninstalled, and purged."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.support.fake_llm import ThreadedLlm
from tests.support.parley_server import ParleyServer
from tests.support.plugin_admin import PluginAdmin
from tests.support.plugin_venv import PluginVenv
from tests.support.server import PASSWORD, USERNAME, ServerProcess, add_fake_model, messages, wait_until
from tests.support.strangers import NAMES, build

pytestmark = pytest.mark.browser

Audit = Callable[[Page, str], None]

BOB = "a long enough password"
TEA = {"url": "https://example.org/tea", "title": "On tea", "text": "Tea is hot."}
LATE = {"url": "https://example.org/late", "title": "Late"}
JOB_MS = 60_000
DENIED = "These are quiet hours: nothing is changed now."


@pytest.fixture(autouse=True)
def _patience() -> Iterator[None]:
    """The machine is busy: packages are being installed while the pages are looked at."""
    expect.set_options(timeout=20_000)
    yield
    expect.set_options(timeout=5_000)  # Playwright's own default


@pytest.fixture
def parley() -> Iterator[ParleyServer]:
    with ParleyServer("Polly wants a cracker.", words=4) as running:
        yield running


@pytest.fixture
def venv(tmp_path: Path) -> PluginVenv:
    made = PluginVenv(tmp_path / "venv", tmp_path / "wheels")
    for name in ("skald-openai", "skald-approval", "skald-tools-fs"):
        made.link_plugin(name)
    for stranger in NAMES:
        build(stranger, 1, made.wheels)
    return made


@pytest.fixture
def server(venv: PluginVenv) -> Iterator[ServerProcess]:
    with ServerProcess(python=venv.python, env=venv.settings) as running:
        yield running


class Scene(NamedTuple):
    """One run of the server: the administrator over HTTP and in a tab, a member in a tab of another browser profile."""

    server: ServerProcess
    venv: PluginVenv
    llm: ThreadedLlm
    parley: ParleyServer
    admin: PluginAdmin
    page: Page
    bob: Page


SceneOf = Callable[[PluginAdmin], AbstractContextManager[Scene]]


def say(page: Page, text: str) -> None:
    expect(page.get_by_role("button", name="Model: ")).to_be_visible()  # until then it may look as if there were none
    box = page.get_by_role("textbox", name="Message")
    box.fill(text)
    box.press("Enter")


def ask(scene: Scene, page: Page, text: str, *steps: dict[str, Any], allow: int = 0) -> list[dict[str, Any]]:
    """Say something; the model takes these steps, ``allow`` calls are allowed by hand, the last step's text is awaited.
    Returns what the model was sent."""
    before = len(scene.llm.requests)
    scene.llm.script(*steps)
    say(page, text)
    for _ in range(allow):
        page.get_by_role("button", name="Allow once").click()
        expect(page.get_by_role("button", name="Allow once")).to_have_count(0)
    expect(page.get_by_text(steps[-1]["text"], exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    return scene.llm.requests[before:]


def calls(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """A step of the model: it calls a tool."""
    return {"calls": [{"name": name, "arguments": arguments}]}


class Count:
    """A chat whose answer goes on until it is told to end, in a tab of its own."""

    def __init__(self, scene: Scene) -> None:
        self._llm = scene.llm
        self._admin = scene.admin
        self._before = len(self._llm.requests)
        self._page = scene.page.context.new_page()
        self._page.goto("/")
        self._llm.script({"endless": True, "delay": 0.05})
        say(self._page, "Count until I have enough")
        self._text = self._page.get_by_text("1 2 3 4 5 6 7 8")
        self._text.wait_for()
        self._conversation = self._page.url.rpartition("/")[2]

    def goes_on(self) -> None:
        """Words the server of models has not sent yet arrive in the tab."""
        expect(self._text).to_contain_text(f" {self._llm.llm.counted + 3} ")

    def end(self) -> None:
        """It ended by itself, and neither the tab nor the stored answer lost or doubled a word."""
        self._llm.enough()
        path = f"/api/conversations/{self._conversation}"
        wait_until(lambda: self._admin.call("GET", path)["state"] == "idle", "the answer is complete")
        numbers = [str(n) for n in range(1, self._llm.llm.counted + 1)]
        asked, answer = messages(self._admin.client, self._conversation)
        assert (asked["role"], answer["role"], answer.get("error")) == ("user", "assistant", None)
        assert answer["content"].split() == numbers
        assert answer["usage"]["output_tokens"] == len(numbers)
        expect(self._text).to_have_text(" ".join(numbers))
        expect(self._page.get_by_role("button", name="Stop")).to_have_count(0)
        heard = [r for r in self._llm.requests[self._before :] if "Count until" in str(r["messages"][-1])]
        assert len(heard) == 1, "the answer was asked for again"
        self._page.close()


# --- the catalog --------------------------------------------------------------------------------------------------


def agree(page: Page, done: str, word: str = "") -> None:
    """Consent to the plan in the dialog, see the steps, and wait for the end."""
    page.get_by_label("Your password").wait_for(timeout=JOB_MS)
    if word:
        page.get_by_label(f"Type {word} to confirm").fill(word)
    page.get_by_label("Your password").fill(PASSWORD)
    page.get_by_label("Your password").press("Enter")
    expect(page.get_by_role("list", name="Steps")).to_be_visible()
    expect(page.get_by_text(done)).to_be_visible(timeout=JOB_MS)


def choose(page: Page, act: str) -> None:
    page.get_by_role("button", name="More actions").click()
    page.get_by_role("menuitem", name=act).click()


def install_by_name(page: Page, package: str) -> None:
    """From the dialog for a name to the plugin's own page, enabled there."""
    page.goto("/plugins")
    page.get_by_role("button", name="Install by name").click()
    page.get_by_label("Package").fill(package)
    page.get_by_label("Package").press("Enter")
    expect(page.get_by_role("cell", name=package)).to_be_visible(timeout=JOB_MS)
    agree(page, "is installed.")
    page.get_by_role("button", name="Open the plugin").click()
    page.get_by_role("button", name="Enable", exact=True).click()
    expect(page.get_by_text("Running", exact=True)).to_be_visible()


def save_form(page: Page, path: str, fields: dict[str, int]) -> None:
    """Fill fields of a plugin's form and save."""
    page.goto(path)
    for label, value in fields.items():
        page.get_by_label(label).fill(str(value))
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Saved", exact=True)).to_be_visible()


# --- used ---------------------------------------------------------------------------------------------------------


def use_reading_list(scene: Scene, audit: Audit) -> None:
    """Page, tool, mount, prompt block, slash command, agent, settings of both kinds, health check, and the terminal."""
    page = scene.page
    save_form(page, "/plugins/reading-list", {"Remind for (days)": 3})
    expect(page.get_by_text("Texts can be saved.")).to_be_visible()

    page.get_by_role("link", name="Reading list").first.click()
    page.get_by_label("Address").fill("https://example.org/coffee")
    page.get_by_label("Title").fill("On coffee")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("link", name="On coffee")).to_be_visible()
    page.get_by_role("button", name="Share On coffee").click()
    expect(page.get_by_role("link", name="On coffee")).to_have_count(2)
    audit(page, "the reading list")

    page.goto("/")
    ask(scene, page, "Keep it", calls("reading_list_save", TEA), {"text": "It is on your list."}, allow=1)
    text = calls("read_file", {"path": "reading-list/on-tea.md"})
    heard = ask(scene, page, "What does it say?", text, {"text": "It says that tea is not cold."}, allow=1)
    assert "unread: 2 (On tea, On coffee)" in str(heard[0])
    assert "Tea is hot." in str(heard[-1]["messages"][-1])
    (command,) = ask(scene, page, "/unread of drinks", {"text": "Read about tea first."})
    assert f"of drinks\n\n- On tea <{TEA['url']}>" in command["messages"][-1]["content"]
    task = calls("execute_subtask", {"agent_id": "librarian", "title": "Sort", "prompt": "Sort it all"})
    steps = (task, calls("reading_list_unread", {}), {"text": "Two about drinks."}, {"text": "It is sorted."})
    _, _, at_work, _ = ask(scene, page, "Have my list sorted", *steps, allow=1)
    assert "You keep a reading list in order." in str(at_work["messages"][0])
    assert "On coffee" in str(at_work["messages"][-1])

    save_form(page, "/profile/plugins/reading-list", {"At most": 1})
    page.goto("/")
    (fewer,) = ask(scene, page, "Good morning", {"text": "And to you."})
    assert "unread: 2 (On tea)" in str(fewer)
    assert in_terminal(scene, "add", LATE["url"], LATE["title"])
    assert in_terminal(scene, "list").splitlines()[0] == f" * {LATE['title']}  {LATE['url']}"


def in_terminal(scene: Scene, *words: str) -> str:
    """What ``skald reading-list …`` prints."""
    command = ("-m", "skald_core", "reading-list", *words)
    where = ("--data", str(scene.server.data), "--url", scene.server.url)
    return scene.venv.run(*command, *where, env={"SKALD_USER": USERNAME, "SKALD_PASSWORD": PASSWORD}).stdout


def set_up_parley(scene: Scene) -> None:
    """The key under the plugin, the server and its model under *Models*, with its live test."""
    page = scene.page
    page.goto("/plugins/parley")
    page.get_by_role("textbox", name="Key").fill("s3cret")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("button", name="Replace")).to_be_visible()
    page.goto("/models")
    page.get_by_role("button", name="Add models").click()
    page.get_by_role("button", name="Parley").click()
    page.get_by_label("Address").fill(scene.parley.url)
    expect(page.get_by_role("checkbox", name="polly")).to_be_checked()
    page.get_by_role("button", name="Save with 1 model").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_text("polly").first).to_be_visible()


def talk_with_polly(scene: Scene) -> None:
    """A conversation of its own with the model of the stranger."""
    page = scene.page
    page.goto("/")
    page.get_by_role("button", name="Model: Automatic").click()
    page.get_by_role("menuitemradio", name="polly").click()
    say(page, "Do you want a cracker?")
    expect(page.get_by_text("Polly wants a cracker.")).to_be_visible()
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    assert "Do you want a cracker?" in str(scene.parley.turns[-1].body["messages"])
    assert scene.parley.turns[-1].headers["authorization"] == "Bearer s3cret"


def be_refused(scene: Scene) -> None:
    """A member's assistant may not save at this hour; the reason is in the chat, and the answer has to own up to it."""
    page = scene.bob
    page.goto("/")
    heard = ask(
        scene,
        page,
        "Keep this page",
        calls("reading_list_save", TEA),
        {"text": "All is well."},
        {"text": "I could not, because it is night. I can do it later."},
    )
    assert "It is night here" in str(heard[0])
    assert "You could not use reading_list_save because it is night." in str(heard[-1])
    activity = page.locator("sk-activity")
    activity.get_by_role("button").first.click()
    activity.get_by_role("listitem").get_by_role("button").first.click()
    expect(activity.get_by_text(DENIED)).to_be_visible()


def save_at_last(scene: Scene) -> None:
    """Without the stranger the member is asked, as ever, and the page is saved."""
    page = scene.bob
    page.goto("/")
    ask(scene, page, "Keep this page", calls("reading_list_save", TEA), {"text": "Kept."}, allow=1)


def hours_around_now() -> tuple[int, int]:
    hour = dt.datetime.now().astimezone().hour
    return hour, (hour + 2) % 24


# --- the walk -----------------------------------------------------------------------------------------------------


def come_and_be_used(scene: Scene, audit: Audit, quiet: tuple[int, int]) -> None:
    """The first run of the server."""
    admin, page = scene.admin, scene.page
    count = Count(scene)
    install_by_name(page, "skald-plugin-reading-list")
    count.goes_on()
    for name in ("parley", "quiet-hours"):
        admin.install(name, f"skald-plugin-{name}")
        count.goes_on()
    for name in NAMES:
        assert admin.standing(name) == ("running", "1.0.0", "1.0.0", False)
    admin.call("PUT", "/api/plugins/quiet-hours/config", {"values": {"start": 0, "end": 0}})  # whatever the clock says

    use_reading_list(scene, audit)
    count.goes_on()
    set_up_parley(scene)
    talk_with_polly(scene)
    count.goes_on()
    save_form(page, "/plugins/quiet-hours", {"From (hour)": quiet[0], "Until (hour)": quiet[1]})
    be_refused(scene)
    count.goes_on()
    assert [r["tool"] for r in admin.call("GET", "/api/plugin/quiet-hours/log")] == ["reading_list_save"]
    (used,) = admin.call("GET", "/api/plugin/parley/usage")
    assert used == {"model": "polly", "calls": 1}

    for name in NAMES:
        build(name, 2, scene.venv.wheels)
    page.goto("/plugins/reading-list")
    choose(page, "Look for an update")
    agree(page, "is updated.")
    page.locator("sk-plugin-flow").get_by_role("button", name="Close").last.click()
    for name in ("parley", "quiet-hours"):
        job = admin.job("upgrade", plugin=name, requirement=f"skald-plugin-{name}==2.0.0")
        assert job["plan"]["restart_needed"] is True
    for name in NAMES:
        assert admin.standing(name) == ("running", "2.0.0", "1.0.0", True)
        page.goto(f"/plugins/{name}")
        expect(page.get_by_text("Restart needed")).to_be_visible()
    count.goes_on()
    talk_with_polly(scene)  # the code that runs is the one that was imported
    count.end()


def be_newer_and_go(scene: Scene, quiet: tuple[int, int]) -> None:
    """The second run: what was stored has become what the new versions keep; then they go, one act after another."""
    admin, page = scene.admin, scene.page
    count = Count(scene)
    for name in NAMES:
        assert admin.standing(name) == ("running", "2.0.0", "2.0.0", False)
    page.goto("/plugins/reading-list")
    expect(page.get_by_label("Remind for (hours)")).to_have_value("72")
    expect(page.get_by_text("Restart needed")).to_have_count(0)
    page.get_by_role("link", name="Reading list").first.click()
    expect(page.get_by_role("columnheader", name="Note")).to_be_visible()
    for title in ("On coffee", "On tea", "Late"):
        expect(page.get_by_role("link", name=title).first).to_be_visible()
    assert admin.call("GET", "/api/my/plugins/reading-list/config")["values"] == {"at_most": 1}
    assert [pick["title"] for pick in admin.call("GET", "/api/plugin/reading-list/picks")] == ["On coffee"]
    (used,) = admin.call("GET", "/api/plugin/parley/usage")
    assert used == {"model": "polly", "calls": 2, "tokens": 0}
    talk_with_polly(scene)
    (used,) = admin.call("GET", "/api/plugin/parley/usage")
    assert used == {"model": "polly", "calls": 3, "tokens": 4}
    page.goto("/plugins/quiet-hours")
    expect(page.get_by_label("From (hour)")).to_have_value(f"{quiet[0]:02d}:00")
    expect(page.get_by_label("Until (hour)")).to_have_value(f"{quiet[1]:02d}:00")
    be_refused(scene)
    log = admin.call("GET", "/api/plugin/quiet-hours/log")
    assert [refusal["reason"] for refusal in log] == [DENIED, ""]
    count.goes_on()

    # Disabled: gone at once, for others too; its data stays.
    page.goto("/plugins/quiet-hours")
    page.get_by_role("button", name="Disable", exact=True).click()
    expect(page.get_by_role("button", name="Enable", exact=True)).to_be_visible()
    save_at_last(scene)
    page.goto("/plugins/reading-list")
    page.get_by_role("button", name="Disable", exact=True).click()
    expect(scene.bob.get_by_role("link", name="Reading list")).to_have_count(0)
    admin.call("POST", "/api/plugins/parley/disable")
    for path in ("reading-list/items", "quiet-hours/log", "parley/usage"):
        assert admin.client.get(f"/api/plugin/{path}").status_code == 404
    count.goes_on()

    # Uninstalled: the packages go, the data stays and is told of.
    choose(page, "Uninstall")
    agree(page, "is uninstalled.")
    for name in ("parley", "quiet-hours"):
        admin.job("uninstall", plugin=name)
    for name in NAMES:
        assert scene.venv.version_of(f"skald-plugin-{name}") is None
        row = admin.row(name)  # Python keeps what it imported, so the catalog tells of it until the next restart
        assert row is None or (row["state"] != "running" and row["restart_needed"]), row
    assert {row["id"] for row in admin.call("GET", "/api/plugins/remains")} == set(NAMES)
    count.goes_on()

    # Purged: what goes is listed first, and then gone.
    page.goto("/plugins")
    page.get_by_role("button", name="Delete its data: reading-list").click()
    dialog = page.locator("sk-plugin-flow")
    for what in ("reading_list_items", "reading_list_picks", "files, 22"):
        expect(dialog.get_by_text(what)).to_be_visible(timeout=JOB_MS)
    agree(page, "is deleted.", word="reading-list")
    for name, table, secrets in (("parley", "parley_usage", 1), ("quiet-hours", "quiet_hours_log", 0)):
        data = admin.job("purge", plugin=name)["plan"]["data"]
        assert [t["name"] for t in data["tables"] if t["rows"]] == [table]
        assert data["secrets"] == secrets
        assert data["values"] > 0
    count.goes_on()
    assert admin.call("GET", "/api/plugins/remains") == []
    count.end()


def traces(server: ServerProcess) -> list[str]:
    """What the strangers left in the registry and in the folders of the data directory."""
    with closing(sqlite3.connect(f"file:{server.data}/database/system.db?mode=ro", uri=True)) as c:
        tables = [row[0] for row in c.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        mine = [t for t in tables if t.startswith(tuple(name.replace("-", "_") for name in NAMES))]
        for table in tables:
            columns = {row[1] for row in c.execute(f'PRAGMA table_info("{table}")')}
            if "plugin_id" in columns and table != "plugin_purges":
                mine += [
                    f"{table}: {row[0]}" for row in c.execute(f'SELECT plugin_id FROM "{table}"') if row[0] in NAMES
                ]
    return mine + [path.name for path in (server.data / "plugins").glob("*") if path.name in NAMES]


@pytest.fixture
def scene_of(
    browser: Browser, server: ServerProcess, venv: PluginVenv, llm: ThreadedLlm, parley: ParleyServer, faults: list[str]
) -> SceneOf:
    """``with scene_of(admin) as scene``: two people signed in, each in a browser profile of their own."""

    def profile(session: str) -> BrowserContext:
        context = browser.new_context(base_url=server.url, viewport={"width": 1280, "height": 800}, locale="en-US")
        context.set_default_timeout(20_000)
        context.on("weberror", lambda error: faults.append(str(error.error)))
        context.add_cookies([{"name": "skald_session", "value": session, "url": server.url, "sameSite": "Strict"}])
        return context

    @contextmanager
    def scene(admin: PluginAdmin) -> Iterator[Scene]:
        with closing(admin.client), closing(server.sign_in("bob", BOB)) as bob:
            hers, his = (profile(who.cookies["skald_session"]) for who in (admin.client, bob))
            yield Scene(server, venv, llm, parley, admin, hers.new_page(), his.new_page())
            hers.close()
            his.close()

    return scene


def test_strangers_come_and_go_while_a_chat_streams(
    server: ServerProcess,
    llm: ThreadedLlm,
    scene_of: Callable[[PluginAdmin], AbstractContextManager[Scene]],
    audit: Audit,
    faults: list[str],
) -> None:
    """Nothing they do, and nothing done to them, holds up the conversation or hurts another plugin."""
    admin = PluginAdmin(server.first_user(), server)
    admin.call("POST", "/api/users", {"username": "bob", "display_name": "Bob", "password": BOB, "role": "member"})
    add_fake_model(admin.client, llm.url)
    quiet = hours_around_now()
    with scene_of(admin) as scene:
        come_and_be_used(scene, audit, quiet)
    server.stop()
    server.start()
    with scene_of(PluginAdmin(server.sign_in(), server)) as scene:
        be_newer_and_go(scene, quiet)
    server.stop()
    assert traces(server) == []
    assert faults == []
