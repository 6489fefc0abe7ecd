"""Slash commands, the work of agents, and the inbox, against the scripted server."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.support.server import wait_until

pytestmark = pytest.mark.browser

Start = Callable[..., str]
Visit = Callable[..., Page]


def test_commands_by_keyboard(stand_in: Start, visit: Visit) -> None:
    """A slash opens the list; arrows, Enter, Tab and Esc work; a complete name is sent by Enter, other text is left alone."""
    page = visit(stand_in())
    page.goto("/")
    box = page.get_by_label("Message", exact=True)
    box.click()
    page.keyboard.type("/")
    options = page.get_by_role("listbox", name="Commands").get_by_role("option")
    expect(options).to_have_count(3)
    expect(box).to_have_attribute("aria-expanded", "true")
    expect(box).to_have_attribute("aria-activedescendant", "command-0")
    page.keyboard.press("ArrowDown")
    expect(box).to_have_attribute("aria-activedescendant", "command-1")
    expect(options.nth(1)).to_have_attribute("aria-selected", "true")
    page.keyboard.type("wea")
    expect(options).to_have_count(1)
    page.keyboard.press("Enter")
    expect(box).to_have_value("/weather ")
    expect(page.get_by_text("place, for example Turin")).to_be_visible()
    expect(page.get_by_role("listbox")).to_have_count(0)
    box.fill("")
    page.keyboard.type("/ra")
    page.keyboard.press("Escape")
    expect(page.get_by_role("listbox")).to_have_count(0)
    expect(box).to_have_value("/ra")
    page.keyboard.type("i")
    page.keyboard.press("Tab")
    expect(box).to_have_value("/rain ")
    box.fill("")
    page.keyboard.type("/rain")
    page.keyboard.press("Enter")
    expect(page.get_by_text("You wrote: /rain")).to_be_visible()
    box.click()
    page.keyboard.type("see /we")
    expect(page.get_by_role("listbox")).to_have_count(0)


def test_commands_by_pointer(stand_in: Start, visit: Visit) -> None:
    """A click takes a command and leaves the caret where its words go."""
    page = visit(stand_in())
    page.goto("/")
    page.get_by_label("Message", exact=True).click()
    page.keyboard.type("/sum")
    page.get_by_role("option", name="/summary").click()
    page.keyboard.type("the plan")
    expect(page.get_by_label("Message", exact=True)).to_have_value("/summary the plan")


def test_the_work_of_an_agent_is_shown_in_its_card(stand_in: Start, visit: Visit) -> None:
    """While it works the line says its newest step; opened, the card lists its calls and what it says."""
    page = visit(stand_in())
    page.goto("/")
    box = page.get_by_role("textbox", name="Message")
    box.fill("delegate this and hold")
    box.press("Enter")
    activity = page.locator("sk-activity")
    expect(activity.get_by_text("Read file: notes/ferries.md")).to_be_visible()
    page.request.post("/mock/go_on", data={})
    activity.get_by_role("button").first.click()
    activity.get_by_role("button", name="Delegate").last.click()
    work = activity.get_by_role("group", name="What Researcher did")
    expect(work.get_by_role("listitem")).to_have_count(3)
    expect(work.get_by_text("2 earlier steps are not shown.")).to_be_visible()
    expect(work.get_by_text("There are two ferries a day.")).to_be_visible()
    expect(page.get_by_text("There are two ferries a day, at 8 and at 20.").first).to_be_visible()


def test_the_inbox_tells_answered_from_expired(stand_in: Start, visit: Visit) -> None:
    """What expired is not among what was answered, can be asked again, and keys answer what is selected."""
    page = visit(stand_in())
    page.goto("/")
    box = page.get_by_role("textbox", name="Message")
    box.fill("write it")
    box.press("Enter")
    page.get_by_role("button", name="Allow once").wait_for()
    page.request.post("/mock/expire_requests", data={})
    page.goto("/inbox")
    main = page.get_by_role("main")
    main.get_by_role("button", name="Answered", exact=True).click()
    expect(main.get_by_text("Nothing answered yet.")).to_be_visible()
    main.get_by_role("button", name="Not answered").click()
    expect(main.get_by_text("Expired without an answer")).to_be_visible()
    main.get_by_role("button", name="Ask again").click()
    expect(main.get_by_text("Expired, and asked again")).to_be_visible()
    main.get_by_role("button", name="Waiting").click()
    card = main.locator("sk-approval")
    expect(card.get_by_role("button", name="Allow once")).to_be_visible()
    main.get_by_role("heading", level=1).click()
    page.keyboard.press("d")
    expect(card).to_have_attribute("selected", "")
    expect(card.get_by_role("button", name="Deny")).to_be_visible()
    # A key counts only once the card was in view for a moment.
    denied = card.get_by_text("Denied")
    wait_until(lambda: page.keyboard.press("d") or denied.count(), "the key denies")
    main.get_by_role("button", name="Answered", exact=True).click()
    expect(main.locator("sk-approval")).to_have_count(1)


def test_a_card_is_edited_before_it_is_allowed(stand_in: Start, visit: Visit) -> None:
    """What the person changed is what is sent; text that is no object is refused in place."""
    page = visit(stand_in())
    bodies: list[dict[str, object]] = []
    page.on("request", lambda r: bodies.append(r.post_data_json) if r.url.endswith("/answer") else None)
    page.goto("/")
    box = page.get_by_role("textbox", name="Message")
    box.fill("write it")
    box.press("Enter")
    page.get_by_role("button", name="Note and details").click()
    page.get_by_text("Everything write_file was given").click()
    page.get_by_role("button", name="Edit", exact=True).last.click()
    field = page.get_by_label("Everything write_file was given")
    field.fill("[1, 2]")
    page.get_by_role("button", name="Allow with these changes").click()
    expect(page.get_by_text("This is not a valid JSON object.")).to_be_visible()
    field.fill('{"path": "notes/list.md", "content": "salt"}')
    page.get_by_role("button", name="Allow with these changes").click()
    expect(page.get_by_text("now has three entries")).to_be_visible()
    assert bodies == [{"choice": "allow_once", "arguments": {"path": "notes/list.md", "content": "salt"}}]
