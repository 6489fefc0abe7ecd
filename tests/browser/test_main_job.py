"""The walk of a person through the product, in Chromium against the real server."""

from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.support.fake_llm import ThreadedLlm
from tests.support.server import PASSWORD, ServerProcess, messages, wait_until

pytestmark = pytest.mark.browser

WRITE = {"name": "write_file", "arguments": {"path": "notes/todo.md", "content": "milk\nbread\n"}}


def composer(page: Page):  # type: ignore[no-untyped-def]  # a locator
    return page.get_by_role("textbox", name="Message")


def say(page: Page, text: str) -> None:
    composer(page).fill(text)
    composer(page).press("Enter")


def home(server: ServerProcess, client: httpx.Client) -> Path:
    return server.data / "homes" / client.get("/api/auth/me").json()["id"]


def test_set_up_choose_a_model_and_write_a_file(
    server: ServerProcess, page: Page, llm: ThreadedLlm, faults: list[str]
) -> None:
    """From the console's link to a file on disk, all by hand: account, model with a live test, question, card, allow."""
    page.goto(f"/setup#token={server.setup_token}")
    page.get_by_label("User name").fill("ada")
    page.get_by_label("Display name").fill("Ada")
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_label("Password again").fill(PASSWORD)
    page.get_by_role("button", name="Create account").click()
    page.get_by_role("link", name="Choose a model").or_(page.get_by_role("button", name="Choose a model")).first.click()
    page.get_by_role("button", name="llama.cpp server").or_(
        page.get_by_role("link", name="llama.cpp server")
    ).first.click()
    page.get_by_label("Base URL").fill(llm.url)
    page.get_by_role("button", name="Test connection").or_(page.get_by_role("button", name="Test")).first.click()
    page.get_by_text("fake-model").first.wait_for()
    page.get_by_role("button", name="Save").first.click()
    expect(page.get_by_role("button", name="Save")).to_have_count(0)
    page.goto("/")
    llm.script({"text": "I will note that.", "calls": [WRITE]}, {"text": "Done, it is in notes/todo.md."})
    say(page, "Write a shopping list")
    expect(page.get_by_text("+milk").or_(page.get_by_text("milk", exact=True)).first).to_be_visible()
    page.get_by_role("button", name="Allow once").click()
    expect(page.get_by_text("Done, it is in notes/todo.md.")).to_be_visible()
    (written,) = server.data.glob("homes/*/notes/todo.md")
    assert written.read_text() == "milk\nbread\n"
    assert faults == []


def test_denying_with_a_note(signed_in: Page, client: httpx.Client, server: ServerProcess, llm: ThreadedLlm) -> None:
    """The model reads the note; the card is gone; nothing was written."""
    llm.script({"calls": [WRITE]}, {"text": "Then I will not."})
    say(signed_in, "Write a shopping list")
    signed_in.get_by_role("button", name="Deny").first.click()
    note = signed_in.get_by_role("textbox", name="Note")
    if note.count():
        note.first.fill("use paper")
        signed_in.get_by_role("button", name="Deny").last.click()
    expect(signed_in.get_by_text("Then I will not.")).to_be_visible()
    expect(signed_in.get_by_role("button", name="Allow once")).to_have_count(0)
    assert not (home(server, client) / "notes/todo.md").exists()


def test_two_tabs_and_a_reload_agree_while_it_streams(
    signed_in: Page, context: BrowserContext, client: httpx.Client, llm: ThreadedLlm
) -> None:
    """Case C1 in the browser: both tabs show every token once; a reload in the middle loses none; the draft stays."""
    llm.script({"tokens": 150, "delay": 0.03})
    say(signed_in, "count")
    signed_in.get_by_text("20 21 22").wait_for()
    url = signed_in.url
    second = context.new_page()
    second.goto(url)
    second.get_by_text("30 31 32").wait_for()
    composer(signed_in).fill("a draft")
    signed_in.reload()
    whole = " ".join(str(n) for n in range(1, 151))
    for page in (signed_in, second):
        expect(page.get_by_text(whole)).to_be_visible(timeout=30_000)
        expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    expect(composer(signed_in)).to_have_value("a draft")
    conversation = url.rpartition("/")[2]
    assert len(messages(client, conversation)) == 2


def test_an_approval_is_answered_in_another_tab(signed_in: Page, context: BrowserContext, llm: ThreadedLlm) -> None:
    """Answered from the inbox of a second tab, the first tab's card goes away and the answer streams in both."""
    llm.script({"calls": [WRITE]}, {"text": "Written."})
    say(signed_in, "write")
    signed_in.get_by_role("button", name="Allow once").wait_for()
    second = context.new_page()
    second.goto("/inbox")
    second.get_by_role("button", name="Allow once").first.click()
    expect(signed_in.get_by_text("Written.")).to_be_visible()
    expect(signed_in.get_by_role("button", name="Allow once")).to_have_count(0)


def test_a_server_killed_and_restarted_is_found_again(
    signed_in: Page, server: ServerProcess, client: httpx.Client, llm: ThreadedLlm
) -> None:
    """After kill -9 the page asks to sign in again, keeps the unsent text, and shows the interrupted answer with Retry."""
    llm.script({"tokens": 300, "delay": 0.02}, {"text": "from the start"})
    say(signed_in, "count")
    signed_in.get_by_text("40 41 42").wait_for()
    port = int(server.url.rpartition(":")[2])
    server.kill()
    composer(signed_in).fill("not sent yet")
    server.start(port=port)
    signed_in.get_by_label("Password", exact=True).fill(PASSWORD)
    signed_in.get_by_role("button", name="Sign in").click()
    expect(signed_in.get_by_role("button", name="Retry").first).to_be_visible()
    expect(composer(signed_in)).to_have_value("not sent yet")
    signed_in.get_by_role("button", name="Retry").first.click()
    expect(signed_in.get_by_text("from the start")).to_be_visible()


def test_stop_by_key_and_queue(signed_in: Page, llm: ThreadedLlm) -> None:
    """Escape stops; a message sent meanwhile waits visibly and is answered afterwards."""
    llm.script({"hold": True, "text": "first answer"}, {"text": "second answer"})
    say(signed_in, "one")
    signed_in.get_by_role("button", name="Stop").wait_for()
    say(signed_in, "two")
    expect(signed_in.get_by_text("two", exact=True).first).to_be_visible()
    llm.release()
    expect(signed_in.get_by_text("second answer")).to_be_visible()
    llm.script({"tokens": 500, "delay": 0.02})
    say(signed_in, "three")
    signed_in.get_by_text("10 11 12").wait_for()
    composer(signed_in).press("Escape")
    expect(signed_in.get_by_role("button", name="Retry").first).to_be_visible()


def test_plugins_are_switched_live(signed_in: Page, client: httpx.Client, llm: ThreadedLlm) -> None:
    """Disabling the approval plugin is told in the chat, with the plugin to enable; enabling it works without a reload."""
    signed_in.goto("/plugins")
    switch = signed_in.get_by_role("switch", name="Approval").first
    switch.click()
    wait_until(lambda: client.get("/api/auth/me").json()["gate"] is False, "the plugin is off")
    expect(signed_in.get_by_text("Approval").nth(1)).to_be_visible()
    switch.click()
    wait_until(lambda: client.get("/api/auth/me").json()["gate"] is True, "the plugin is on again")


@pytest.mark.parametrize(("locale", "words"), [("it", "Nuova chat"), ("fr", "Nouvelle")])
def test_the_language_changes_without_a_reload(signed_in: Page, locale: str, words: str) -> None:
    """Choosing a language in the profile changes the page in place."""
    signed_in.goto("/profile")
    signed_in.evaluate("window.stays = true")
    signed_in.get_by_role("combobox").first.select_option(locale)
    expect(signed_in.get_by_text(words).first).to_be_visible()
    assert signed_in.evaluate("window.stays") is True


def test_hostile_text_stays_text(signed_in: Page, llm: ThreadedLlm, faults: list[str]) -> None:
    """Scripts, handlers, odd links and remote images in an answer neither run nor load."""
    hostile = (
        '<script>window.hacked=1</script><img src=x onerror="window.hacked=1"> [click](javascript:window.hacked=1) '
        '<svg onload="window.hacked=1"></svg> ![p](http://tracker.invalid/p.png) <a href="data:text/html,x">d</a> the end'
    )
    loads: list[str] = []
    signed_in.on("request", lambda r: loads.append(r.url))
    llm.script({"text": hostile})
    say(signed_in, "be nasty")
    expect(signed_in.get_by_text("the end")).to_be_visible()
    signed_in.wait_for_function("document.readyState === 'complete'")
    assert signed_in.evaluate("window.hacked") is None
    assert not any("tracker.invalid" in url for url in loads)
    links = signed_in.evaluate("[...document.querySelectorAll('a')].map(a => a.href)")
    assert not any(link.startswith(("javascript:", "data:")) for link in links)


@pytest.mark.parametrize("width", [1440, 1024, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_scrolls_sideways(
    browser: Browser, server: ServerProcess, client: httpx.Client, width: int, scheme: str
) -> None:
    """At every width and in both themes each page fits."""
    context = browser.new_context(
        base_url=server.url, viewport={"width": width, "height": 844}, color_scheme=scheme, storage_state=None
    )
    context.add_cookies(
        [{"name": "skald_session", "value": client.cookies["skald_session"], "url": server.url, "sameSite": "Strict"}]
    )
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    pages = client.get("/api/plugins/pages").json()
    assert pages
    for path in (
        "/",
        "/inbox",
        "/models",
        "/plugins",
        "/profile",
        *(f"/page/{p['plugin']}/{p['page_id']}" for p in pages),
    ):
        page.goto(path)
        page.get_by_role("heading").or_(page.get_by_role("textbox")).first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), path
    assert faults == []
    context.close()
