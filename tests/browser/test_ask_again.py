"""A request that nobody answered in time, asked again in Chromium against the real server."""

import sys
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.fake_llm import ThreadedLlm
from tests.support.server import PASSWORD, USERNAME, ServerProcess, add_fake_model

pytestmark = pytest.mark.browser

WRITE = {"name": "write_file", "arguments": {"path": "notes/todo.md", "content": "milk\nbread\n"}}

IMPATIENT = """#!{python}
import sys
from functools import partial

import skald_core.cli.serve as serve
from skald_core.cli.main import main

serve.Settings = partial(serve.Settings, request_lifetime=1.0)
sys.exit(main(sys.argv[3:]))
"""
"""``skald`` whose requests wait for a second; like Python it is started with ``-m skald_core``."""


@pytest.fixture
def impatient(tmp_path: Path) -> Path:
    made = tmp_path / "skald-impatient"
    made.write_text(IMPATIENT.format(python=sys.executable))
    made.chmod(0o755)
    return made


def sign_in(browser: Browser, server: ServerProcess, faults: list[str]) -> Page:
    context = browser.new_context(base_url=server.url, viewport={"width": 1440, "height": 900}, locale="en-US")
    context.set_default_timeout(20_000)
    page = context.new_page()
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto("/login")
    page.get_by_label("User name").fill(USERNAME)
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("textbox", name="Message").wait_for()
    return page


def test_what_expired_is_asked_again(
    browser: Browser, impatient: Path, tmp_path: Path, llm: ThreadedLlm, faults: list[str]
) -> None:
    """The card says that it expired; the inbox asks again after a restart; allowed then, the file is written, once."""
    data = tmp_path / "data"
    with ServerProcess(data, python=impatient) as server:
        with closing(server.first_user()) as client:
            add_fake_model(client, llm.url)
        page = sign_in(browser, server, faults)
        llm.script({"text": "I will note that.", "calls": [WRITE]}, {"text": "Nobody answered, so I left it."})
        page.get_by_role("textbox", name="Message").fill("Write a shopping list")
        page.get_by_role("textbox", name="Message").press("Enter")
        expect(page.get_by_text("Nobody answered, so I left it.")).to_be_visible()
        expect(page.get_by_role("button", name="Allow once")).to_have_count(0)
        address = page.url.removeprefix(server.url)
        page.context.close()
    assert not list(data.glob("homes/*/notes"))

    with ServerProcess(data) as server:
        page = sign_in(browser, server, faults)
        page.goto("/inbox")
        main = page.get_by_role("main")
        main.get_by_role("button", name="Not answered").click()
        expect(main.get_by_text("Expired without an answer, so it was not done")).to_be_visible()
        llm.script({"text": "Now it is in notes/todo.md."})
        main.get_by_role("button", name="Ask again").click()
        expect(main.get_by_text("Expired, and asked again")).to_be_visible()
        expect(main.get_by_role("button", name="Ask again")).to_have_count(0)
        main.get_by_role("button", name="Waiting").click()
        expect(main.get_by_text("milk")).to_be_visible()
        assert not list(data.glob("homes/*/notes"))
        main.get_by_role("button", name="Allow once").click()
        expect(main.get_by_text("Allowed once")).to_be_visible()
        page.goto(address)
        expect(page.get_by_text("Now it is in notes/todo.md.")).to_be_visible()
        (written,) = data.glob("homes/*/notes/todo.md")
        assert written.read_text() == "milk\nbread\n"
        page.goto("/inbox")
        main.get_by_role("button", name="Answered", exact=True).click()
        expect(main.locator("sk-approval")).to_have_count(1)
        page.context.close()
    assert faults == []
