"""The catalog, detail and *My plugins* pages in states a scripted server brings about; the real thing is test_plugin_life."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.support.server import PASSWORD

pytestmark = pytest.mark.browser

Start = Callable[..., str]
Visit = Callable[..., Page]


def agree(page: Page) -> None:
    page.get_by_label("Your password").fill(PASSWORD)
    page.get_by_label("Your password").press("Enter")


def sent(page: Page, method: str, path: str) -> list[Any]:
    """Bodies of requests to this path from now on, as they are sent."""
    bodies: list[Any] = []

    def note(request: Any) -> None:
        if request.method == method and request.url.endswith(path):
            bodies.append(json.loads(request.post_data or "null"))

    page.on("request", note)
    return bodies


def test_install_survives_a_reload(stand_in: Start, visit: Visit, faults: list[str]) -> None:
    """Plan first, then the password, then steps; a reload in the middle comes back to the same dialog and sees its end."""
    page = visit(stand_in("--pace", "0.6"))
    page.goto("/plugins?show=available")
    page.get_by_role("button", name="Install Tides").click()
    dialog = page.locator("sk-plugin-flow")
    expect(page.get_by_role("dialog", name="Install Tides")).to_be_visible()
    expect(dialog.get_by_role("cell", name="skald-plugin-tides")).to_be_visible()
    expect(dialog.get_by_text("weather_forecast")).to_be_visible()
    expect(dialog.get_by_text("all the rights of the server")).to_be_visible()
    dialog.get_by_role("button", name="Install").click()
    expect(dialog.get_by_text("Enter your password")).to_be_visible()
    agree(page)
    expect(page.get_by_role("list", name="Steps")).to_be_visible()
    page.reload()
    expect(page.get_by_role("list", name="Steps")).to_be_visible()
    expect(page.get_by_text("tides is installed")).to_be_visible()
    page.get_by_role("button", name="Open the plugin").click()
    expect(page).to_have_url(re.compile(r"/plugins/tides$"))
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert faults == []


def test_a_dialog_that_was_closed_is_found_again(stand_in: Start, visit: Visit) -> None:
    """Closing stops nothing: the page says what is under way, on the detail page too, and opens it again."""
    page = visit(stand_in("--pace", "1.5"))
    page.goto("/plugins/weather")
    page.get_by_role("button", name="Update to 1.4.0").click()
    expect(page.get_by_text("Version 1.4.0 is two days old")).to_be_visible()
    agree(page)
    page.get_by_role("list", name="Steps").wait_for()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("link", name="Plugins", exact=True).last.click()
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.get_by_role("list", name="Steps")).to_be_visible()
    expect(page.get_by_text("weather is updated")).to_be_visible(timeout=20_000)
    expect(page.get_by_text("Restart Skald").first).to_be_visible()


def test_a_failed_change_says_why_and_shows_the_log(stand_in: Start, visit: Visit) -> None:
    """Rolled back: the reason, that everything is as before, and the log open."""
    page = visit(stand_in("--pace", "0.2"))
    page.request.post("/mock/fail_job", data={})
    page.goto("/plugins/weather")
    page.get_by_role("button", name="Update to 1.4.0").click()
    agree(page)
    expect(page.get_by_text("The new set did not start: no module named 'pyproj'.")).to_be_visible()
    expect(page.get_by_text("Everything is as it was before.")).to_be_visible()
    expect(page.get_by_role("log", name="Log of the change")).to_contain_text("ImportError")


def test_purge_needs_the_word_and_the_password(stand_in: Start, visit: Visit) -> None:
    """Deleting data lists it first, waits for the typed word, and leads back to the catalog's word that it is gone."""
    page = visit(stand_in("--pace", "0.2"))
    page.goto("/plugins/weather")
    page.get_by_role("button", name="More actions").click()
    page.get_by_role("menuitem", name="Delete its data").click()
    dialog = page.locator("sk-plugin-flow")
    expect(page.get_by_role("dialog", name="Delete the data of Weather")).to_be_visible()
    expect(dialog.get_by_text("weather_stations")).to_be_visible()
    expect(dialog.get_by_text("42 rows")).to_be_visible()
    button = dialog.get_by_role("button", name="Delete its data")
    dialog.get_by_label("Your password").fill(PASSWORD)
    expect(button).to_be_disabled()
    dialog.get_by_label("Type weather to confirm").fill("Weather")
    expect(button).to_be_disabled()
    dialog.get_by_label("Type weather to confirm").fill("weather")
    button.click()
    expect(page.get_by_text("is deleted.")).to_be_visible()
    dialog.get_by_role("button", name="Close").last.click()
    expect(page.get_by_text("is not installed.")).to_be_visible()


def test_advice_mode_shows_the_command(stand_in: Start, visit: Visit) -> None:
    """Where packages cannot be changed from here, the catalog says why, and a plan ends in the exact command, to copy."""
    page = visit(stand_in("--advice", "--pace", "0.2"), permissions=["clipboard-read", "clipboard-write"])
    page.goto("/plugins?show=available")
    expect(page.get_by_text("belongs to the operating system")).to_be_visible()
    page.get_by_role("button", name="Install Tides").click()
    expect(page.get_by_text("uv pip install 'skald-plugin-tides==1.4.0'")).to_be_visible()
    expect(page.get_by_label("Your password")).to_have_count(0)
    page.get_by_role("button", name="Copy command").click()
    expect(page.get_by_text("Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "uv pip install 'skald-plugin-tides==1.4.0'"


@pytest.mark.parametrize("name", ["../evil", "weather @ https://example.org/x.whl", "--index-url=x"])
def test_a_name_that_is_none_is_refused_in_words(stand_in: Start, visit: Visit, name: str) -> None:
    """The dialog for a package's name shows the server's refusal and nothing else happens."""
    page = visit(stand_in())
    page.goto("/plugins")
    page.get_by_role("button", name="Install by name").click()
    page.get_by_label("Package").fill(name)
    page.get_by_label("Package").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Write the name of a package")


def test_tabs_search_and_empty_states(stand_in: Start, visit: Visit) -> None:
    """The place is in the address and survives a reload; search finds tools; nothing found offers the way back."""
    page = visit(stand_in())
    page.goto("/plugins")
    page.get_by_role("button", name="Problems").click()
    expect(page.get_by_role("link", name="Notes sync")).to_be_visible()
    expect(page.get_by_role("link", name="File tools")).to_have_count(0)
    expect(page.get_by_text("Failed in loading: No module named 'webdav4'.")).to_be_visible()
    page.reload()
    expect(page.get_by_role("button", name="Problems")).to_have_attribute("aria-pressed", "true")
    page.go_back()
    search = page.get_by_role("searchbox", name="Search plugins and tools")
    search.fill("grep_files")
    expect(page.get_by_role("link", name="File tools")).to_be_visible()
    expect(page.get_by_role("link", name="Weather", exact=True)).to_have_count(0)
    search.fill("no such thing")
    page.get_by_role("button", name="Clear the search").click()
    expect(page.get_by_role("link", name="Weather", exact=True)).to_be_visible()


def test_the_form_sends_what_was_meant(stand_in: Start, visit: Visit) -> None:
    """Every kind of field by keyboard; a secret left alone is left out, a new one is sent, a removed one is null."""
    page = visit(stand_in())
    bodies = sent(page, "PUT", "/api/plugins/weather/config")
    page.goto("/plugins/weather")
    page.get_by_label("Greeting", exact=True).fill("Good day")
    page.get_by_label("Places per person").fill("7")
    page.get_by_role("switch", name="Loud").press("Space")
    page.get_by_label("Style").select_option("lively")
    page.get_by_label("Station").select_option("Lyon, Bron")
    page.get_by_label("Model for summaries").select_option(index=1)
    page.get_by_label("Radius in km").fill("33")
    page.get_by_label("Cities, entry 2").press("Enter")
    page.keyboard.type("Nice")
    page.get_by_label("Cities, entry 1").fill("")
    page.get_by_label("Cities, entry 1").press("Backspace")
    page.get_by_label("Greeting", exact=True).press("Enter")
    expect(page.get_by_text("Saved")).to_be_visible()
    assert bodies[0]["values"] == {
        "greeting": "Good day",
        "text": "",
        "endpoint": "https://api.example.org",
        "limit": 7,
        "loud": True,
        "style": "lively",
        "station": "ly1",
        "model": bodies[0]["values"]["model"],
        "cities": ["Lyon", "Nice"],
        "area": {"radius": 33, "label": "home"},
    }
    assert bodies[0]["values"]["model"].startswith("m")
    page.get_by_role("button", name="Replace").click()
    page.keyboard.type("fresh")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("button", name="Replace")).to_be_visible()
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(page.get_by_text("Will be removed when you save")).to_be_visible()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Will be removed when you save")).to_have_count(0)
    expect(page.get_by_label("Token")).to_have_value("")
    assert [body["values"].get("token", "left out") for body in bodies] == ["left out", "fresh", None]


def test_what_is_wrong_is_said_at_its_field(stand_in: Start, visit: Visit) -> None:
    """Checked here first, then by the server; the first wrong field gets the focus; Test stores nothing."""
    page = visit(stand_in())
    bodies = sent(page, "PUT", "/api/plugins/weather/config")
    page.goto("/plugins/weather")
    greeting = page.get_by_label("Greeting", exact=True)
    greeting.fill("")
    page.get_by_label("Address of the service").fill("nonsense")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Fill this in.")).to_be_visible()
    expect(page.get_by_text("Enter a full address")).to_be_visible()
    expect(greeting).to_be_focused()
    assert bodies == []
    greeting.fill("bad")
    page.get_by_label("Address of the service").fill("https://api.example.org")
    page.get_by_label("Radius in km").fill("95")
    page.get_by_role("button", name="Test").click()
    expect(page.get_by_text("This greeting is not polite.")).to_be_visible()
    expect(page.get_by_text("at most 90 km far")).to_be_visible()
    greeting.fill("fail")
    page.get_by_label("Radius in km").fill("9")
    page.get_by_role("button", name="Test").click()
    expect(page.get_by_text("The service refused the token.")).to_be_visible()
    greeting.fill("fine")
    page.get_by_role("button", name="Test").click()
    expect(page.get_by_text("It is 14 °C in Turin now.")).to_be_visible()
    assert bodies == []
    page.get_by_role("link", name="Plugins", exact=True).last.click()
    expect(page.get_by_role("dialog", name="Leave without saving?")).to_be_visible()


def test_access_has_three_states(stand_in: Start, visit: Visit) -> None:
    """A person may be allowed, refused, or as everyone; what everyone may is one switch."""
    page = visit(stand_in())
    bodies = sent(page, "PUT", "/api/plugins/weather/access")
    page.goto("/plugins/weather")
    bruno = page.get_by_role("listitem").filter(has_text="Bruno")
    bruno.get_by_label("Access of Bruno").select_option("Never allowed")
    expect(bruno.get_by_text("May not")).to_be_visible()
    page.get_by_role("switch", name="Available to everyone").click()
    expect(page.get_by_role("listitem").filter(has_text="Chloé").get_by_text("May not")).to_be_visible()
    bruno.get_by_label("Access of Bruno").select_option("Always allowed")
    expect(bruno.get_by_text("May use it")).to_be_visible()
    bruno.get_by_label("Access of Bruno").select_option(index=0)
    expect(bruno.get_by_text("May not")).to_be_visible()
    assert bodies == [
        {"users": {"u2": False}},
        {"default_on": False},
        {"users": {"u2": True}},
        {"users": {"u2": None}},
    ]


def test_texts_of_a_stranger_stay_texts(stand_in: Start, visit: Visit, faults: list[str]) -> None:
    """A plugin's read-me and changelog come through the sanitiser: no script runs, nothing is loaded from elsewhere."""
    page = visit(stand_in())
    loads: list[str] = []
    page.on("request", lambda request: loads.append(request.url))
    page.goto("/plugins/weather")
    page.get_by_text("Read me").click()
    expect(page.get_by_role("cell", name="the weather now")).to_be_visible()
    page.get_by_text("What changed").click()
    expect(page.get_by_text("Alerts page")).to_be_visible()
    assert page.evaluate("window.hacked") is None
    assert not any("tracker.invalid" in url for url in loads)
    assert faults == []


def test_a_page_that_throws_leaves_the_rest_alone(stand_in: Start, visit: Visit) -> None:
    """A plugin's page that fails shows that in its own place; chat, side bar and the next page work."""
    page = visit(stand_in())
    page.goto("/page/demo/broken")
    expect(page.get_by_text("has a fault. The rest of Skald works on.")).to_be_visible()
    page.get_by_text("Details").first.click()
    expect(page.get_by_text("this page is broken on purpose").first).to_be_visible()
    composer = page.get_by_role("textbox", name="Message")
    composer.fill("still here")
    composer.press("Enter")
    expect(page.get_by_text("You wrote: still here")).to_be_visible()
    page.get_by_role("link", name="Demo", exact=True).click()
    page.get_by_role("main").get_by_role("button", name="Greet").click()
    expect(page.get_by_text("It works")).to_be_visible()


def test_my_plugins_by_deep_link_for_a_member(stand_in: Start, visit: Visit) -> None:
    """A member finds what each plugin does for them and their own form; the catalog is not theirs."""
    page = visit(stand_in("--member"))
    page.goto("/profile/plugins/weather")
    page.get_by_label("Home town").fill("Lyon")
    page.get_by_role("button", name="Test").click()
    expect(page.get_by_text("It is 14 °C in Turin now.")).to_be_visible()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Home town")).to_have_value("Lyon")
    page.goto("/profile/plugins/secret")
    expect(page.get_by_text("You cannot use plugin “secret” now.")).to_be_visible()
    page.goto("/plugins")
    expect(page.get_by_text("Only someone who manages plugins")).to_be_visible()
    page.goto("/users")
    expect(page.get_by_text("Only someone who manages users")).to_be_visible()
