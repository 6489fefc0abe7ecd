"""A virtual environment, a folder of wheels and a real server for tests that change what is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.plugin_venv import PluginVenv
from tests.support.server import PASSWORD, ServerProcess, wait_until

Answer = dict[str, Any]


@pytest.fixture
def venv(tmp_path: Path) -> PluginVenv:
    return PluginVenv(tmp_path / "venv", tmp_path / "wheels")


class Catalog:
    """A server in a virtual environment, and its administrator, who plans and carries out."""

    def __init__(self, venv: PluginVenv, data: Path) -> None:
        self.venv = venv
        self.server = ServerProcess(data, env=venv.settings, python=venv.python)
        self.server.start()
        self.client = self.server.first_user(encrypted=False)

    def ended(self, job: Answer) -> Answer:
        def look() -> Answer | None:
            view: Answer = self.client.get(f"/api/plugins/jobs/{job['id']}").raise_for_status().json()
            return view if view["state"] != "running" else None

        return dict(wait_until(look, f"job {job['id']} to end", timeout=120))

    def ask(self, **body: str) -> httpx.Response:
        return self.client.post("/api/plugins/plans", json=body)

    def plan(self, **body: str) -> Answer:
        answer = self.ask(**body)
        assert answer.status_code == 202, answer.text
        return self.ended(answer.json())

    def start(self, plan: Answer, password: str = PASSWORD) -> httpx.Response:
        return self.client.post("/api/plugins/jobs", json={"plan": plan["id"], "password": password})

    def do(self, **body: str) -> Answer:
        """Plan and carry out; returns the job at its end."""
        plan = self.plan(**body)
        assert plan["state"] == "done", plan
        started = self.start(plan)
        assert started.status_code == 202, started.text
        return self.ended(started.json())

    def row(self, plugin_id: str) -> Answer | None:
        rows = self.client.get("/api/plugins").raise_for_status().json()
        return next((row for row in rows if row["id"] == plugin_id), None)

    def jobs(self) -> list[Answer]:
        return list(self.client.get("/api/plugins/jobs").raise_for_status().json())

    def restart(self) -> None:
        self.client.close()
        self.server.stop()
        self.server.start()
        self.client = self.server.sign_in()

    def close(self) -> None:
        self.client.close()
        if self.server.process is not None and self.server.process.poll() is None:
            self.server.stop()


@pytest.fixture
def open_catalog(tmp_path: Path) -> Iterator[Callable[[PluginVenv], Catalog]]:
    opened: list[Catalog] = []

    def start(venv: PluginVenv) -> Catalog:
        opened.append(Catalog(venv, tmp_path / "data"))
        return opened[-1]

    yield start
    for catalog in opened:
        catalog.close()


@pytest.fixture
def catalog(venv: PluginVenv, open_catalog: Callable[[PluginVenv], Catalog]) -> Catalog:
    return open_catalog(venv)
