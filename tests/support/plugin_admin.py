"""What an administrator of plugins does, over HTTP."""

from __future__ import annotations

from typing import Any

import httpx

from tests.support.server import PASSWORD, ServerProcess, wait_until

__all__ = ("PluginAdmin",)

JOB_SECONDS = 120.0


class PluginAdmin:
    """``client`` is signed in at ``server`` as somebody who may manage plugins. A refusal raises AssertionError."""

    def __init__(self, client: httpx.Client, server: ServerProcess) -> None:
        self.client = client
        self._server = server

    def call(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.client.request(method, path, json=body)
        log = "".join(self._server.output[-30:])
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}\n{log}"
        return answer.json() if answer.content else None

    def row(self, plugin: str) -> dict[str, Any] | None:
        """What the catalog shows of an installed plugin."""
        return next((row for row in self.call("GET", "/api/plugins") if row["id"] == plugin), None)

    def standing(self, plugin: str) -> tuple[str, str, str | None, bool]:
        """State, installed version, running version, and whether a restart is needed."""
        row = self.row(plugin)
        assert row is not None, f"{plugin} is not in the catalog"
        assert row["problems"] == [], row
        return row["state"], row["version"], row["running_version"], row["restart_needed"]

    def plan(self, act: str, **what: str) -> dict[str, Any]:
        """The finished plan of an act."""
        planned = self._ended(self.call("POST", "/api/plugins/plans", {"act": act, **what}))
        assert planned["state"] == "done", planned
        return planned

    def job(self, act: str, **what: str) -> dict[str, Any]:
        """Plan an act and carry it out; returns the finished job."""
        plan = self.plan(act, **what)
        job = self._ended(self.call("POST", "/api/plugins/jobs", {"plan": plan["id"], "password": PASSWORD}))
        assert job["state"] == "done", job
        return job

    def install(self, plugin: str, requirement: str) -> None:
        """Install a plugin and have it run."""
        self.job("install", requirement=requirement)
        self.call("POST", f"/api/plugins/{plugin}/enable")

    def _ended(self, job: dict[str, Any]) -> dict[str, Any]:
        def look() -> Any:
            found = self.call("GET", f"/api/plugins/jobs/{job['id']}")
            return found if found["state"] != "running" else None

        ended: dict[str, Any] = wait_until(look, f"{job['act']} ends", JOB_SECONDS)
        return ended
