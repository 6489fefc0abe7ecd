"""A plugin's whole life in the browser against the real server: installed from a wheel while a chat streams, configured,
used, upgraded, uninstalled, purged."""

from collections.abc import Callable, Iterator
from importlib.metadata import distribution
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.fake_llm import ThreadedLlm
from tests.support.plugin_venv import PluginVenv
from tests.support.plugin_wheels import plugin_wheel
from tests.support.server import PASSWORD, ROOT, ServerProcess, wait_until

pytestmark = pytest.mark.browser

Audit = Callable[[Page, str], None]

SOURCE = '''
from typing import Annotated

import msgspec

from skald_core import api as skald
from skald_core.api import Migration, Schema, hookimpl


class Shelf(msgspec.Struct):
    city: Annotated[str, skald.setting("City", "Where the shelf stands.", min_length=2)]
    key: skald.Secret = skald.Secret()
    tags: list[str] = []


class Mine(msgspec.Struct):
    colour: Annotated[str, skald.setting("Colour")] = "blue"


async def try_it(shelf: Shelf) -> str:
    if shelf.city == "Nowhere":
        raise skald.ToolError("There is no such city.")
    return f"Found {shelf.city}."


@skald.tool(scope="read")
async def shelf_version() -> str:
    """Say which version this is."""
    return "VERSION"


@hookimpl
def skald_config(ctx):
    return skald.Settings(type=Shelf, test=try_it)


@hookimpl
def skald_user_config(ctx):
    return Mine


@hookimpl
def skald_tools(ctx):
    return [shelf_version]


@hookimpl
def skald_schema(ctx):
    return [Schema("registry", (Migration(1, "CREATE TABLE shelf_notes(id INTEGER PRIMARY KEY, text TEXT)"),))]


@hookimpl
def skald_web_pages(ctx):
    return [
        skald.WebPage(page_id="main", title="Shelf", icon="book", entry="web/main.js"),
        skald.WebPage(page_id="broken", title="Broken shelf", icon="bug", entry="web/broken.js"),
    ]


@hookimpl
def skald_commands(ctx):
    prompt = "Say that this is shelved: {{args}}"
    return [skald.Command(name="shelve", title="Put on the shelf", prompt=prompt, hint="what to keep")]


@hookimpl
def skald_agents(ctx):
    librarian = skald.AgentSpec(
        id="librarian", name="Librarian", description="Knows every shelf.", prompt="You are the librarian.", type="chat"
    )
    return [librarian]


@hookimpl
def skald_health(ctx):
    async def wood() -> skald.Health:
        return skald.Health(True, "The wood is sound.")

    return [skald.HealthCheck(id="wood", title="Wood", check=wood)]
'''

MANIFEST = """
id = "shelf"
title = "Shelf"
summary = "Keeps things where you find them."
api = ">=1,<2"
capabilities = [{capabilities}]

[contributes]
tools = ["shelf_version"]
pages = ["main", "broken"]
commands = ["shelve"]
agents = ["librarian"]
"""

PAGE = """
import { html } from "lit";
import { SkElement, toast } from "@skald/ui";

export default class Shelf extends SkElement {
  render() {
    return html`<sk-page title="Shelf" purpose="VERSION">
      <sk-button @click=${() => toast("On the shelf", { tone: "done" })}>Keep</sk-button>
    </sk-page>`;
  }
}
"""

BROKEN = 'export default class extends HTMLElement { connectedCallback() { throw new Error("no planks"); } }\n'


def shelf_wheel(folder: Path, version: str, *capabilities: str) -> None:
    plugin_wheel(
        folder,
        "shelf",
        version,
        source=SOURCE.replace("VERSION", version),
        manifest=MANIFEST.format(capabilities=", ".join(f'"{name}"' for name in capabilities)),
        extra={
            "skald_plugin_shelf/web/main.js": PAGE.replace("VERSION", version),
            "skald_plugin_shelf/web/broken.js": BROKEN,
        },
    )


def link_workspace_plugin(venv: PluginVenv, name: str) -> None:
    """Make a plugin of this workspace importable in ``venv``, as an editable install would."""
    home = Path(str(distribution(name)._path))  # type: ignore[attr-defined]  # the library names the folder nowhere else
    target = venv.site / home.name
    target.mkdir()
    for file in home.iterdir():
        if file.is_file():
            (target / file.name).symlink_to(file)
    (venv.site / f"{name}.pth").write_text(f"{ROOT / 'plugins' / name / 'src'}\n")


@pytest.fixture
def venv(tmp_path: Path) -> PluginVenv:
    made = PluginVenv(tmp_path / "venv", tmp_path / "wheels")
    for name in ("skald-openai", "skald-approval"):
        link_workspace_plugin(made, name)
    return made


@pytest.fixture
def server(venv: PluginVenv, tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", env=venv.settings, python=venv.python) as running:
        yield running


@pytest.fixture
def signed(browser: Browser, server: ServerProcess, client: httpx.Client, faults: list[str]) -> Iterator[Page]:
    """A page of the administrator's, signed in."""
    context = browser.new_context(base_url=server.url, viewport={"width": 1440, "height": 900}, locale="en-US")
    context.set_default_timeout(20_000)
    context.add_cookies(
        [{"name": "skald_session", "value": client.cookies["skald_session"], "url": server.url, "sameSite": "Strict"}]
    )
    page = context.new_page()
    page.on("pageerror", lambda error: faults.append(str(error)))
    yield page
    context.close()


def agree(page: Page) -> None:
    page.get_by_label("Your password").fill(PASSWORD)
    page.get_by_label("Your password").press("Enter")


def close(page: Page) -> None:
    page.locator("sk-plugin-flow").get_by_role("button", name="Close").last.click()


def say(page: Page, text: str) -> None:
    page.get_by_label("Message", exact=True).fill(text)
    page.get_by_label("Message", exact=True).press("Enter")


def talk_with_the_librarian(page: Page, client: httpx.Client, llm: ThreadedLlm, audit: Audit) -> None:
    """A chat with the plugin's agent, opened from the palette; the agent changed and changed back by keyboard."""
    page.keyboard.press("Control+k")
    page.keyboard.type("new chat with lib")
    expect(page.get_by_role("option", name="New chat with Librarian")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    pill = page.get_by_role("button", name="Agent: Librarian")
    expect(pill).to_be_visible()
    llm.script({"text": "On the third shelf."})
    say(page, "Where is the atlas?")
    expect(page.get_by_text("On the third shelf.")).to_be_visible()
    assert "You are the librarian." in str(llm.requests[-1]["messages"][0])
    expect(page.get_by_title("This chat is with Librarian")).to_have_text("Librarian")
    conversation = f"/api/conversations/{page.url.rpartition('/')[2]}"
    for letter, name, agent in (("a", "Assistant", "assistant"), ("l", "Librarian", "librarian")):
        page.get_by_role("button", name="Agent:").focus()
        page.keyboard.press("ArrowDown")
        expect(page.get_by_role("menuitemradio", checked=True)).to_be_focused()
        audit(page, "the agents to choose from")
        page.keyboard.press(letter)
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name=f"Agent: {name}")).to_be_focused()
        assert client.get(conversation).json()["agent"] == agent


def go_on_without_the_librarian(page: Page, llm: ThreadedLlm, audit: Audit) -> None:
    """Its chat says that the agent is gone, sends nothing meanwhile, and goes on with another one."""
    expect(page.get_by_text("“librarian”, is not available any more")).to_be_visible()
    expect(page.get_by_role("button", name="Agent:")).to_have_count(0)
    audit(page, "a chat whose agent is gone")
    say(page, "Are you there?")
    expect(page.get_by_label("Message", exact=True)).to_have_value("Are you there?")
    page.get_by_role("button", name="Go on with Assistant").click()
    expect(page.get_by_text("is not available any more")).to_have_count(0)
    llm.script({"text": "The assistant is."})
    page.get_by_label("Message", exact=True).press("Enter")
    expect(page.get_by_text("The assistant is.")).to_be_visible()
    assert "You are the librarian." not in str(llm.requests[-1]["messages"][0])


def choose_again(page: Page, client: httpx.Client, llm: ThreadedLlm) -> None:
    """A new chat refused because its agent went away a moment ago: the words wait, and go out with the next choice."""
    page.goto("/")
    page.get_by_role("button", name="Agent: Assistant").click()
    page.get_by_role("menuitemradio", name="Librarian").click()
    gone = {"status": 422, "code": "unknown_agent", "detail": "This agent is not available."}
    body = {"status": 422, "content_type": "application/problem+json", "json": gone}
    page.route("**/api/conversations", lambda route: route.fulfill(**body), times=1)
    llm.script({"text": "Good evening to you."})
    with page.expect_request("**/api/agents"):
        say(page, "Good evening")
    expect(page.get_by_role("alert").filter(has_text="This agent is not available.")).to_be_visible()
    page.get_by_role("button", name="Agent: Librarian").click()
    page.get_by_role("menuitemradio", name="Assistant").click()
    expect(page.get_by_text("Good evening to you.")).to_be_visible()
    assert client.get(f"/api/conversations/{page.url.rpartition('/')[2]}").json()["agent"] == "assistant"


def test_from_install_to_purge(
    signed: Page, venv: PluginVenv, client: httpx.Client, llm: ThreadedLlm, faults: list[str], audit: Audit
) -> None:
    """Install while a chat streams in another tab, configure with Test, use page and command, upgrade with its diff shown,
    uninstall, purge; a broken page and a bad setting stay where they are."""
    shelf_wheel(venv.wheels, "1.0", "network")
    chat = signed.context.new_page()
    chat.goto("/")
    llm.script({"tokens": 400, "delay": 0.03})
    expect(chat.get_by_role("button", name="Model: Automatic")).to_be_visible()
    expect(chat.get_by_role("button", name="Agent:")).to_have_count(0)
    box = chat.get_by_role("textbox", name="Message")
    box.fill("count")
    box.press("Enter")
    chat.get_by_text("10 11 12").wait_for()

    signed.goto("/plugins")
    signed.get_by_role("button", name="Install by name").click()
    signed.get_by_label("Package").fill("skald-plugin-shelf")
    signed.get_by_label("Package").press("Enter")
    expect(signed.get_by_role("cell", name="skald-plugin-shelf")).to_be_visible(timeout=60_000)
    expect(signed.get_by_text("Connects to other computers").or_(signed.get_by_text("network")).first).to_be_visible()
    signed.get_by_label("Your password").fill("not my password")
    signed.get_by_label("Your password").press("Enter")
    expect(signed.get_by_role("alert").filter(has_text="password")).to_be_visible()
    agree(signed)
    expect(signed.get_by_text("is installed.")).to_be_visible(timeout=60_000)
    signed.get_by_role("button", name="Open the plugin").click()
    expect(chat.get_by_text(" ".join(str(n) for n in range(1, 401)))).to_be_visible(timeout=60_000)

    # What was installed stays off until somebody enables it.
    # It needs a setting before it runs; a bad one is said at its field, Test stores nothing.
    signed.get_by_role("button", name="Enable", exact=True).click()
    expect(signed.get_by_text("Needs settings")).to_be_visible()
    city = signed.get_by_label("City", exact=True)
    city.fill("Nowhere")
    signed.get_by_role("button", name="Test").click()
    expect(signed.get_by_text("There is no such city.")).to_be_visible()
    city.fill("Turin")
    signed.get_by_role("textbox", name="key").fill("s3cret")
    signed.get_by_role("button", name="Add").click()
    signed.keyboard.type("oak")
    signed.get_by_role("button", name="Test").click()
    expect(signed.get_by_text("Found Turin.")).to_be_visible()
    signed.get_by_role("button", name="Save").click()
    expect(signed.get_by_text("Running", exact=True)).to_be_visible()
    expect(signed.get_by_text("The wood is sound.")).to_be_visible()
    expect(signed.get_by_role("button", name="Replace")).to_be_visible()
    form = client.get("/api/plugins/shelf/config").json()
    assert form["values"] == {"city": "Turin", "tags": ["oak"]}
    assert form["secrets"] == {"key": True}

    # The other tab learned of its page and command without a reload.
    chat.get_by_role("link", name="Shelf", exact=True).click()
    expect(chat.get_by_text("1.0", exact=True)).to_be_visible()
    chat.get_by_role("button", name="Keep").click()
    expect(chat.get_by_text("On the shelf")).to_be_visible()
    chat.get_by_role("link", name="Broken shelf").click()
    expect(chat.get_by_text("The rest of Skald works on.")).to_be_visible()
    llm.script({"text": "It is shelved."})
    box = chat.get_by_label("Message", exact=True)
    box.click()
    chat.keyboard.type("/she")
    chat.get_by_role("option", name="/shelve").wait_for()
    chat.keyboard.press("Enter")
    chat.keyboard.type("the lamp")
    chat.keyboard.press("Enter")
    expect(chat.get_by_text("It is shelved.")).to_be_visible()
    assert any("Say that this is shelved: the lamp" in str(request) for request in llm.requests)
    talk_with_the_librarian(chat, client, llm, audit)
    choose_again(chat.context.new_page(), client, llm)
    chat.goto("/profile/plugins/shelf")
    chat.get_by_label("Colour").fill("red")
    chat.get_by_role("button", name="Save").click()
    expect(chat.get_by_text("Saved")).to_be_visible()
    assert client.get("/api/my/plugins/shelf/config").json()["values"] == {"colour": "red"}

    # A newer version asks for more; that is told before anybody agrees.
    shelf_wheel(venv.wheels, "2.0", "network", "files")
    signed.get_by_role("button", name="More actions").click()
    signed.get_by_role("menuitem", name="Look for an update").click()
    expect(signed.get_by_text("Newly asks for")).to_be_visible(timeout=60_000)
    agree(signed)
    expect(signed.get_by_text("is updated.")).to_be_visible(timeout=60_000)
    close(signed)
    expect(signed.get_by_text("Restart needed")).to_be_visible()
    expect(signed.get_by_text("running 1.0")).to_be_visible()

    # Uninstalling keeps what it stored, and the catalog says so until it is purged.
    signed.get_by_role("button", name="More actions").click()
    signed.get_by_role("menuitem", name="Uninstall").click()
    signed.get_by_label("Your password").wait_for(timeout=60_000)
    agree(signed)
    expect(signed.get_by_text("is uninstalled.")).to_be_visible(timeout=60_000)
    close(signed)
    expect(chat.get_by_role("link", name="Shelf", exact=True)).to_have_count(0)
    go_on_without_the_librarian(chat, llm, audit)
    signed.goto("/plugins")
    signed.get_by_role("button", name="Delete its data: shelf").click()
    signed.get_by_label("Type shelf to confirm").wait_for(timeout=60_000)
    signed.get_by_label("Type shelf to confirm").fill("shelf")
    agree(signed)
    expect(signed.get_by_text("is deleted.")).to_be_visible(timeout=60_000)
    close(signed)
    expect(signed.get_by_role("button", name="Delete its data: shelf")).to_have_count(0)
    wait_until(lambda: client.get("/api/plugins/remains").json() == [], "nothing is left")
    assert faults == []
