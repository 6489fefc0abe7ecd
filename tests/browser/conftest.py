"""A real server, a scripted model and a real Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.support.fake_llm import ThreadedLlm
from tests.support.server import PASSWORD, USERNAME, ServerProcess, add_fake_model

ARGS = [
    "--headless",
    "--no-sandbox",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, or the one SKALD_CHROMIUM names. Not for the session: while it is open Playwright's own event loop
    runs in this thread, and no asynchronous test could."""
    path = os.environ.get("SKALD_CHROMIUM") or shutil.which("chromium")
    assert path, "the browser tests need Chromium; set SKALD_CHROMIUM to its path"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=ARGS)
        yield running
        running.close()


@pytest.fixture
def llm() -> Iterator[ThreadedLlm]:
    with ThreadedLlm(tokens=5) as running:
        yield running


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    with ServerProcess() as running:
        yield running


@pytest.fixture
def client(server: ServerProcess, llm: ThreadedLlm) -> Iterator[httpx.Client]:
    """The first user over HTTP, with one model behind the scripted server."""
    made = server.first_user()
    add_fake_model(made, llm.url)
    yield made
    made.close()


@pytest.fixture
def context(browser: Browser, server: ServerProcess) -> Iterator[BrowserContext]:
    made = browser.new_context(base_url=server.url, viewport={"width": 1440, "height": 900}, locale="en-US")
    made.set_default_timeout(20_000)
    yield made
    made.close()


@pytest.fixture
def faults() -> list[str]:
    """Script errors and refused loads that the page under test reported."""
    return []


@pytest.fixture
def page(context: BrowserContext, faults: list[str]) -> Page:
    made = context.new_page()
    made.on("pageerror", lambda error: faults.append(str(error)))
    made.on("console", lambda m: faults.append(m.text) if "Content Security Policy" in m.text else None)
    return made


@pytest.fixture
def signed_in(client: httpx.Client, page: Page) -> Page:
    """The page after signing in through the form."""
    page.goto("/login")
    page.get_by_label("User name").fill(USERNAME)
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("textbox", name="Message").wait_for()
    return page
