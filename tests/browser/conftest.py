"""A real server, a scripted model and a real Chromium."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.support.fake_llm import ThreadedLlm
from tests.support.server import PASSWORD, ROOT, USERNAME, ServerProcess, add_fake_model

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


AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
SERIOUS = {"serious", "critical"}


@pytest.fixture
def audit() -> Callable[[Page, str], None]:
    """``audit(page, where)``: no serious finding of axe-core in what the page shows now.

    The script is handed to the page by the browser itself, which the page's own security policy does not govern.
    """
    assert AXE.is_file(), f"axe-core is missing at {AXE}: run `npm ci` in web/"
    source = AXE.read_text(encoding="utf-8")

    def run(page: Page, where: str) -> None:
        if not page.evaluate("'axe' in window"):
            page.evaluate(source)
        result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        assert len(result["passes"]) > 10, f"axe looked at next to nothing: {where}"
        found = [
            {
                "rule": violation["id"],
                "impact": violation["impact"],
                "nodes": [[node["target"], node["html"][:200]] for node in violation["nodes"][:3]],
            }
            for violation in result["violations"]
            if violation["impact"] in SERIOUS
        ]
        assert not found, f"{where}: {json.dumps(found, indent=1)}"

    return run


@pytest.fixture
def stand_in() -> Iterator[Callable[..., str]]:
    """``stand_in("--advice")`` starts the scripted server of tests/browser_mock and returns its address. It brings the app
    into states a real server reaches rarely or slowly; that the real one behaves so is tested elsewhere."""
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> str:
        command = [sys.executable, str(ROOT / "tests" / "browser_mock" / "server.py"), "--port", "0", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), address
        return address.rstrip("/")

    yield start
    for process in running:
        process.terminate()
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def visit(browser: Browser, faults: list[str]) -> Iterator[Callable[..., Page]]:
    """``visit(address, **context options)``: a page of the stand-in server, signed in."""
    contexts: list[BrowserContext] = []

    def open_page(address: str, **options: object) -> Page:
        settings = {"viewport": {"width": 1280, "height": 900}, "locale": "en-US", "base_url": address, **options}
        context = browser.new_context(**settings)  # type: ignore[arg-type]  # the options of the caller
        context.set_default_timeout(15_000)
        contexts.append(context)
        answer = context.request.post("/api/auth/login", data={"username": USERNAME, "password": PASSWORD})
        assert answer.ok, answer.text()
        made = context.new_page()
        made.on("pageerror", lambda error: faults.append(str(error)))
        made.on("console", lambda m: faults.append(m.text) if "Content Security Policy" in m.text else None)
        return made

    yield open_page
    for context in contexts:
        context.close()
