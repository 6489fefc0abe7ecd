"""Users, and chats as files, in Chromium against the real server."""

import json
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.support.fake_llm import ThreadedLlm
from tests.support.server import PASSWORD, ServerProcess, messages, wait_until

pytestmark = pytest.mark.browser

BRUNO = "a long enough password"


def say(page: Page, text: str) -> None:
    box = page.get_by_role("textbox", name="Message")
    box.fill(text)
    box.press("Enter")


def test_users_from_first_to_last(signed_in: Page, server: ServerProcess, client: httpx.Client) -> None:
    """Add, change the role, switch off with sessions ending, give a password, delete with the typed name and a password."""
    page = signed_in
    page.goto("/users")
    expect(page.get_by_text("Only you use this server so far.")).to_be_visible()
    page.get_by_role("button", name="Add a user").first.click()
    page.get_by_label("User name").fill("ada")
    page.get_by_label("First password").fill(BRUNO)
    page.get_by_role("button", name="Create account").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_label("User name").fill("bruno")
    page.get_by_label("Display name").fill("Bruno")
    page.get_by_label("Do not encrypt").check()
    page.get_by_role("button", name="Create account").click()
    expect(page.get_by_text("Bruno", exact=True)).to_be_visible()
    with closing(server.sign_in("bruno", BRUNO)) as bruno:
        assert bruno.get("/api/auth/me").json()["role"] == "member"
        page.get_by_label("Role of Bruno").select_option("Administrator")
        wait_until(lambda: bruno.get("/api/auth/me").json()["role"] == "admin", "the role is changed")

    page.get_by_label("Role of ada").select_option("Member")
    expect(page.get_by_text("own").first).to_be_visible()
    expect(page.get_by_label("Role of ada")).to_have_value("admin")

    with closing(server.sign_in("bruno", BRUNO)) as bruno:
        page.get_by_role("button", name="Actions for Bruno").click()
        page.get_by_role("menuitem", name="New password").click()
        page.get_by_label("New password", exact=True).fill("another long password")
        page.get_by_label("New password", exact=True).press("Enter")
        expect(page.get_by_text("New password set.")).to_be_visible(timeout=20_000)
        assert bruno.get("/api/auth/me").status_code == 401

    with closing(server.sign_in("bruno", "another long password")) as bruno:
        page.get_by_role("button", name="Actions for Bruno").click()
        page.get_by_role("menuitem", name="Switch off").click()
        page.get_by_role("button", name="Switch off").last.click()
        expect(page.get_by_text("Switched off")).to_be_visible()
        assert bruno.get("/api/auth/me").status_code == 401

    page.get_by_role("button", name="Actions for Bruno").click()
    page.get_by_role("menuitem", name="Delete account").click()
    page.get_by_label("Type bruno to confirm").fill("bruno")
    page.get_by_label("Your password").fill("wrong")
    page.get_by_label("Your password").press("Enter")
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_label("Your password").fill(PASSWORD)
    page.get_by_label("Your password").press("Enter")
    expect(page.get_by_text("Only you use this server so far.")).to_be_visible()
    assert [user["username"] for user in client.get("/api/users").json()] == ["ada"]


def test_a_chat_goes_out_and_comes_back(
    signed_in: Page, client: httpx.Client, llm: ThreadedLlm, tmp_path: Path
) -> None:
    """Exported to a file and imported as a new chat; a file that is none is refused in words."""
    llm.script({"text": "Two ferries a day."})
    say(signed_in, "When do ferries go?")
    expect(signed_in.get_by_text("Two ferries a day.")).to_be_visible()
    first = signed_in.url.rpartition("/")[2]
    signed_in.get_by_role("button", name="Actions for this chat").click()
    with signed_in.expect_download() as waiting:
        signed_in.get_by_role("menuitem", name="Export").click()
    target = tmp_path / waiting.value.suggested_filename
    waiting.value.save_as(target)
    assert target.name.endswith(".json")
    assert "Two ferries a day." in json.dumps(json.loads(target.read_text()))

    signed_in.get_by_role("button", name="Actions for this chat").click()
    with signed_in.expect_file_chooser() as choosing:
        signed_in.get_by_role("menuitem", name="Import a chat").click()
    choosing.value.set_files(target)
    signed_in.wait_for_url(lambda url: "/c/" in url and first not in url)
    expect(signed_in.get_by_text("Two ferries a day.")).to_be_visible()
    second = signed_in.url.rpartition("/")[2]
    assert [m["content"] for m in messages(client, second)] == [m["content"] for m in messages(client, first)]

    for name, content in (("notes.txt", "no json"), ("other.json", '{"a": 1}')):
        bad = tmp_path / name
        bad.write_text(content)
        signed_in.get_by_role("button", name="Actions for this chat").click()
        with signed_in.expect_file_chooser() as choosing:
            signed_in.get_by_role("menuitem", name="Import a chat").click()
        choosing.value.set_files(bad)
        expect(signed_in.locator("sk-toasts .fail").last).to_be_visible()
    assert len(client.get("/api/conversations").json()["items"]) == 2


def test_a_turn_is_deleted_for_good(signed_in: Page, client: httpx.Client, llm: ThreadedLlm) -> None:
    """After one question the message and its answer are gone, here and on the server; the others stay."""
    for number in ("one", "two"):
        llm.script({"text": f"answer {number}"})
        say(signed_in, f"question {number}")
        expect(signed_in.get_by_text(f"answer {number}")).to_be_visible()
        expect(signed_in.get_by_role("button", name="Stop")).to_have_count(0)
    conversation = signed_in.url.rpartition("/")[2]
    signed_in.get_by_text("question one").last.hover()
    signed_in.get_by_role("button", name="Delete this and its answer").first.click()
    expect(signed_in.get_by_text("every answer to it are deleted for good")).to_be_visible()
    signed_in.get_by_role("button", name="Delete", exact=True).last.click()
    expect(signed_in.get_by_text("answer one")).to_have_count(0)
    expect(signed_in.get_by_text("answer two")).to_be_visible()
    assert [m["content"] for m in messages(client, conversation)] == ["question two", "answer two"]
