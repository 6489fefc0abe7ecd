"""Three strangers come and go while the server runs and a chat streams in another tab: installed from wheels, used in
Chromium, upgraded with a migration, disabled, uninstalled, purged."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect

from skald_core.testing.servers import RawServer, Wire
from tests.support.plugin_venv import PluginVenv
from tests.support.server import PASSWORD, USERNAME, ServerProcess, wait_until
from tests.support.strangers import NAMES, build

pytestmark = pytest.mark.browser


class ParleyServer:
    """A server of models on a thread of its own. It streams a counted word for each :meth:`tick`, until :meth:`end`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._words: asyncio.Queue[str | None] = asyncio.Queue()
        self._server = RawServer()
        self.count = 0
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._wait(self._server.__aenter__())
        self._server.answer(self._answer)

    def _wait(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    @property
    def url(self) -> str:
        return self._server.url

    async def _answer(self, wire: Wire) -> None:
        await wire.head(Content_Type="application/x-ndjson")
        while (word := await self._words.get()) is not None:
            await wire.line({"say": word})
        await wire.line({"end": "stop", "in": 3, "out": self.count})

    def tick(self) -> str:
        """Say one more word; returns it."""
        self.count += 1
        self._wait(self._words.put(f"word{self.count} "))
        return f"word{self.count}"

    def end(self) -> None:
        self._wait(self._words.put(None))

    def close(self) -> None:
        self._wait(self._server.__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@pytest.fixture
def parley() -> Iterator[ParleyServer]:
    made = ParleyServer()
    yield made
    made.close()


class Admin:
    """What an administrator does, over HTTP."""

    def __init__(self, client: httpx.Client, server: ServerProcess) -> None:
        self.client = client
        self._server = server

    def call(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.client.request(method, path, json=body)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}\n" + "".join(
            self._server.output[-30:]
        )
        return answer.json() if answer.content else None

    def row(self, plugin: str) -> dict[str, Any] | None:
        return next((row for row in self.call("GET", "/api/plugins") if row["id"] == plugin), None)

    def job(self, act: str, **what: str) -> dict[str, Any]:
        """Plan an act, carry it out, return the finished job."""
        plan = self._ended(self.call("POST", "/api/plugins/plans", {"act": act, **what}))
        assert plan["state"] == "done", plan
        job = self._ended(self.call("POST", "/api/plugins/jobs", {"plan": plan["id"], "password": PASSWORD}))
        assert job["state"] == "done", job
        return job

    def _ended(self, job: dict[str, Any]) -> dict[str, Any]:
        def look() -> Any:
            found = self.call("GET", f"/api/plugins/jobs/{job['id']}")
            return found if found["state"] != "running" else None

        ended: dict[str, Any] = wait_until(look, f"{job['act']} ends", 120)
        return ended


@pytest.fixture
def venv(tmp_path: Path) -> PluginVenv:
    made = PluginVenv(tmp_path / "venv", tmp_path / "wheels")
    for name in NAMES:
        build(name, 1, made.wheels)
    return made


@pytest.fixture
def server(venv: PluginVenv) -> Iterator[ServerProcess]:
    with ServerProcess(python=venv.python, env=venv.settings) as running:
        yield running


def test_strangers_come_and_go_while_a_chat_streams(
    browser: Browser, server: ServerProcess, venv: PluginVenv, parley: ParleyServer, tmp_path: Path
) -> None:
    """Nothing they do, and nothing done to them, holds up the conversation or hurts another plugin."""
    admin = Admin(server.first_user(), server)
    for name in NAMES:
        admin.job("install", requirement=f"skald-plugin-{name}")
        if not admin.row(name)["enabled"]:  # type: ignore[index]  # it was installed a line above
            admin.call("POST", f"/api/plugins/{name}/enable")
        row = admin.row(name)
        assert row is not None
        assert (row["state"], row["problems"], row["version"]) == ("running", [], "1.0.0"), row
    provider = admin.call(
        "POST", "/api/providers", {"type": "parley", "name": "P", "settings": {"base_url": parley.url}}
    )
    admin.call("POST", "/api/models", {"provider": provider["id"], "model": "polly", "title": "Polly"})
    admin.call("PUT", "/api/plugins/reading-list/config", {"values": {"remind_days": 3}})

    context = browser.new_context(base_url=server.url, viewport={"width": 1280, "height": 800}, locale="en-US")
    context.set_default_timeout(20_000)
    faults: list[str] = []
    chat = context.new_page()
    chat.on("pageerror", lambda error: faults.append(str(error)))
    chat.goto("/login")
    chat.get_by_label("User name").fill(USERNAME)
    chat.get_by_label("Password", exact=True).fill(PASSWORD)
    chat.get_by_role("button", name="Sign in").click()
    composer = chat.get_by_role("textbox", name="Message")
    composer.fill("Count words")
    composer.press("Enter")

    def streams() -> None:
        """One more word reaches the other tab."""
        expect(chat.get_by_text(parley.tick()).first).to_be_visible()

    streams()

    # used
    page = context.new_page()
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto("/")
    page.get_by_role("link", name="Reading list").click()
    page.get_by_label("Address").fill("https://example.org/tea")
    page.get_by_label("Title").fill("On tea")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("link", name="On tea")).to_be_visible()
    page.get_by_role("button", name="Share On tea").click()
    expect(page.get_by_role("link", name="On tea")).to_have_count(2)
    streams()

    # upgraded: tables and settings are carried over; new code runs after a restart, or at once where it was not imported
    for name in NAMES:
        build(name, 2, venv.wheels)
    job = admin.job("upgrade", plugin="reading-list", requirement="skald-plugin-reading-list==2.0.0")
    assert job["plan"]["restart_needed"] is True
    row = admin.row("reading-list")
    assert row is not None
    assert (row["version"], row["running_version"], row["restart_needed"]) == ("2.0.0", "1.0.0", True)
    streams()

    # disabled: gone at once, its data kept
    admin.call("POST", "/api/plugins/quiet-hours/disable")
    assert admin.client.get("/api/plugin/quiet-hours/log").status_code == 404
    streams()

    # uninstalled and purged, while the tab goes on
    admin.job("uninstall", plugin="quiet-hours")
    assert admin.row("quiet-hours") is None or admin.row("quiet-hours")["state"] != "running"  # type: ignore[index]
    admin.job("purge", plugin="quiet-hours")
    streams()
    parley.end()
    expect(chat.get_by_text(f"word{parley.count}").first).to_be_visible()
    wait_until(lambda: admin.call("GET", "/api/conversations")["items"][0]["state"] == "idle", "the answer is complete")
    assert faults == []
    context.close()

    # after the restart the second version runs on the first one's data
    admin.client.close()
    server.stop()
    server.start()
    admin = Admin(server.sign_in(), server)
    row = admin.row("reading-list")
    assert row is not None
    assert (row["state"], row["running_version"], row.get("error")) == (
        "running",
        "2.0.0",
        None,
    )
    (item,) = admin.call("GET", "/api/plugin/reading-list/items")
    assert (item["title"], item["note"]) == ("On tea", "")
    assert admin.call("GET", "/api/plugins/reading-list/config")["values"] == {"remind_hours": 72}
    assert venv.version_of("skald-plugin-quiet-hours") is None
    admin.client.close()
