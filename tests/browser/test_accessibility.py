"""axe-core over the pages of the plugin platform and the users page, in both themes, wide and narrow: no serious finding."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.support.server import PASSWORD

pytestmark = pytest.mark.browser

Audit = Callable[[Page, str], None]

PAGES = {
    "catalog": "/plugins",
    "available": "/plugins?show=available",
    "problems": "/plugins?show=problems",
    "detail with its form": "/plugins/weather",
    "failed plugin": "/plugins/notes-sync",
    "plugin that is gone": "/plugins/nothing",
    "my plugins": "/profile/plugins/weather",
    "users": "/users",
    "inbox": "/inbox",
    "profile": "/profile",
    "models": "/models",
    "chat": "/",
}


def fits(page: Page, where: str) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), f"{where} scrolls sideways"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_pages(
    stand_in: Callable[..., str], visit: Callable[..., Page], audit: Audit, faults: list[str], width: int, scheme: str
) -> None:
    """Every page at rest: catalog, detail and form, My plugins, users and what was there before."""
    page = visit(stand_in(), viewport={"width": width, "height": 900}, color_scheme=scheme, has_touch=width < 500)
    for name, path in PAGES.items():
        page.goto(path)
        page.get_by_role("heading", level=1).first.wait_for()
        expect(page.get_by_role("status", name="Loading")).to_have_count(0)
        if path == "/plugins/weather":
            page.get_by_label("Greeting", exact=True).wait_for()
            page.get_by_text("Read me").click()
        audit(page, f"{name}, {width}, {scheme}")
        fits(page, f"{name}, {width}, {scheme}")
    assert faults == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
def test_dialogs_and_what_opens(
    stand_in: Callable[..., str], visit: Callable[..., Page], audit: Audit, faults: list[str], width: int, scheme: str
) -> None:
    """What opens over a page: plan, refusal, progress, roll back, purge, users' dialogs, a form with errors, commands."""
    page = visit(
        stand_in("--pace", "0.3"),
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        has_touch=width < 500,
    )

    def look(name: str) -> None:
        audit(page, f"{name}, {width}, {scheme}")
        fits(page, f"{name}, {width}, {scheme}")

    page.goto("/plugins?show=available")
    page.get_by_role("button", name="Install Tides").click()
    page.get_by_label("Your password").fill("wrong")
    look("install plan")
    page.get_by_label("Your password").press("Enter")
    expect(page.get_by_text("This is not your password")).to_be_visible()
    look("refused password")
    page.request.post("/mock/fail_job", data={})
    page.get_by_label("Your password").fill(PASSWORD)
    page.get_by_label("Your password").press("Enter")
    page.get_by_role("list", name="Steps").wait_for()
    look("progress")
    expect(page.get_by_text("Everything is as it was before")).to_be_visible()
    look("rolled back")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Install by name").first.click()
    look("install by name")
    page.keyboard.press("Escape")
    page.goto("/plugins/weather")
    page.get_by_label("Greeting", exact=True).fill("x")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Use at least 2 characters")).to_be_visible()
    look("form with an error")
    page.get_by_role("button", name="Discard changes").click()
    page.get_by_role("button", name="More actions").click()
    look("menu")
    page.get_by_role("menuitem", name="Delete its data").click()
    page.get_by_label("Type weather to confirm").wait_for()
    look("purge plan")
    page.keyboard.press("Escape")
    page.goto("/users")
    page.get_by_role("button", name="Add a user").first.click()
    page.get_by_role("button", name="Create account").click()
    expect(page.get_by_text("Choose a user name")).to_be_visible()
    look("add a user")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Actions for Chloé Martin").click()
    page.get_by_role("menuitem", name="Delete account").click()
    look("delete a user")
    page.keyboard.press("Escape")
    page.goto("/")
    page.get_by_label("Message", exact=True).click()
    page.keyboard.type("/")
    page.get_by_role("listbox", name="Commands").wait_for()
    look("commands")
    assert faults == []


def test_axe_finds_what_is_wrong(stand_in: Callable[..., str], visit: Callable[..., Page], audit: Audit) -> None:
    """The audit itself can fail: a field without a name is reported, also inside a shadow root."""
    page = visit(stand_in())
    page.goto("/profile")
    page.get_by_role("heading", level=1).first.wait_for()
    page.evaluate(
        "document.querySelector('skald-app').shadowRoot.querySelector('main').append(document.createElement('input'))"
    )
    with pytest.raises(AssertionError, match="label"):
        audit(page, "spoiled")


def test_axe_is_not_shipped() -> None:
    """axe-core is for tests: nothing of it is in the bundle."""
    dist = Path(__file__).parents[2] / "skald_core" / "web_dist" / "assets"
    scripts = [path for path in dist.glob("*.js") if re.search("axe-core|axe\\.run", path.read_text(encoding="utf-8"))]
    assert scripts == []
