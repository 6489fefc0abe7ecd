"""The plugin platform, users and commands of the stand-in server: docs/http-api.md, with jobs that only pretend."""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]

PASSWORD = "correct horse battery"
SAMPLES: Json = json.loads((Path(__file__).resolve().parent / "plugins.json").read_text())
STEPS = ("resolve", "download", "check", "switch", "start")
EMPTY_DATA: Json = {"tables": [], "values": 0, "secrets": 0, "files": 0}

WEATHER_DATA: Json = {
    "tables": [
        {"bucket": "registry", "name": "weather_stations", "rows": 42},
        {"bucket": "owner", "name": "weather_places", "rows": None},
    ],
    "values": 3,
    "secrets": 1,
    "files": 1_204_224,
}


class Refused(Exception):
    """An error answer of these routes: status, code, sentence, extra members."""

    def __init__(self, status: int, code: str, detail: str, **extra: Any) -> None:
        super().__init__(code)
        self.status, self.code, self.detail, self.extra = status, code, detail, extra


class PluginWorld:
    """``broadcast`` reaches every socket; ``pace`` is how long a step of a job takes, in seconds."""

    def __init__(self, broadcast: Callable[[Json], None], *, advice: bool = False, pace: float = 0.8) -> None:
        self.broadcast = broadcast
        self.pace = pace
        self.fail_next = False
        self.advice: Json | None = {"reason": "This Python belongs to the operating system."} if advice else None
        self.plugins: list[Json] = copy.deepcopy(SAMPLES["plugins"])
        self.available: list[Json] = copy.deepcopy(SAMPLES["available"])
        self.access: dict[str, dict[str, bool]] = {}
        self.config: Json = {
            "greeting": "Hello",
            "limit": 5,
            "loud": False,
            "style": "calm",
            "cities": ["Turin", "Lyon"],
            "area": {"radius": 20, "label": "home"},
        }
        self.secrets = {"token": True}
        self.mine: Json = {"city": "Turin", "units": "metric"}
        self.missing: list[Json] = []
        self.remains: list[Json] = [{"id": "old-radio", "data": {**EMPTY_DATA, "values": 2, "files": 88_000}}]
        self.jobs: dict[str, Json] = {}
        self.ids = itertools.count(1)
        self.tasks: set[asyncio.Task[None]] = set()
        self.users: list[Json] = copy.deepcopy(SAMPLES["users"])

    # --- catalog --------------------------------------------------------------------------------------------------

    def find(self, ident: str) -> Json:
        for plugin in self.plugins:
            if plugin["id"] == ident:
                return plugin
        raise Refused(404, "plugin_not_found", f"There is no plugin {ident!r}.")

    def changed(self, ident: str) -> None:
        self.broadcast({"type": "plugins_changed", "id": ident})

    def detail(self, ident: str) -> Json:
        plugin = self.find(ident)
        texts = SAMPLES["texts"] if ident == "weather" else {"readme": "", "changelog": ""}
        data = WEATHER_DATA if ident == "weather" else EMPTY_DATA
        return {**plugin, **texts, "data": data, "access": self.access_of(plugin)}

    def access_of(self, plugin: Json) -> Json:
        explicit = self.access.get(plugin["id"], {})
        return {
            "default_on": plugin["default_on"],
            "users": [
                {
                    "id": user["id"],
                    "display_name": user["display_name"],
                    "role": user["role"],
                    "explicit": explicit.get(user["id"]),
                    "allowed": explicit.get(user["id"], plugin["default_on"]),
                }
                for user in self.users
            ],
        }

    def set_access(self, ident: str, data: Json) -> Json:
        plugin = self.find(ident)
        if "default_on" in data:
            plugin["default_on"] = data["default_on"]
        explicit = self.access.setdefault(ident, {})
        for user, value in data.get("users", {}).items():
            if value is None:
                explicit.pop(user, None)
            else:
                explicit[user] = value
        self.changed(ident)
        return self.access_of(plugin)

    def health(self, ident: str) -> list[Json]:
        if ident != "weather":
            return []
        return [
            {"id": "reach", "title": "The service answers", "ok": True, "text": "Answered with 200.", "ms": 84},
            {"id": "quota", "title": "Quota", "ok": False, "text": "3 of 1,000 requests are left today.", "ms": 12},
        ]

    def config_form(self, ident: str) -> Json:
        self.find(ident)
        return {**SAMPLES["form"], "values": self.config, "secrets": self.secrets, "testable": True}

    def check_config(self, values: Json) -> None:
        errors = []
        if values.get("greeting") == "bad":
            errors.append({"field": "greeting", "message": "This greeting is not polite."})
        if values.get("area", {}).get("radius", 0) > 90:
            errors.append({"field": "area.radius", "message": "The service looks at most 90 km far."})
        if errors:
            raise Refused(422, "bad_settings", "Some settings are not right.", errors=errors)

    def save_config(self, ident: str, values: Json) -> Json:
        self.check_config(values)
        token = values.pop("token", "")
        if token is None:
            self.secrets["token"] = False
        elif token:
            self.secrets["token"] = True
        self.config = values
        plugin = self.find(ident)
        plugin.update(state="running", problems=[])
        self.changed(ident)
        return plugin

    async def test_config(self, values: Json) -> Json:
        self.check_config(values)
        await asyncio.sleep(0.3)
        if values.get("greeting") == "fail":
            return {"ok": False, "text": "The service refused the token. Check it, or make a new one."}
        return {"ok": True, "text": "It is 14 °C in Turin now."}

    def my_plugins(self) -> list[Json]:
        return list(SAMPLES["my"])

    def my_form(self) -> Json:
        return {**SAMPLES["my_form"], "values": self.mine}

    # --- jobs -----------------------------------------------------------------------------------------------------

    def job(self, act: str, plugin: str | None, requirement: str | None) -> Json:
        ident = f"j{next(self.ids)}"
        self.jobs[ident] = {
            "id": ident,
            "act": act,
            "plugin": plugin,
            "requirement": requirement,
            "state": "running",
            "step": "resolve",
            "log": [],
            "created_at": time.time(),
            "ended_at": None,
        }
        return self.jobs[ident]

    def tell(self, job: Json, **changes: Any) -> None:
        line = changes.pop("line", None)
        job.update(changes)
        if line:
            job["log"].append(line)
        self.broadcast({"type": "plugin_job", "job": job})

    def spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def plan(self, data: Json) -> Json:
        act = data["act"]
        requirement = data.get("requirement")
        if requirement is not None and re.search(r"^-|[ /:@\[;]", requirement):
            raise Refused(
                422, "bad_requirement", "Write the name of a package, at most with versions, such as name>=1.2."
            )
        job = self.job("plan", data.get("plugin"), requirement)
        self.spawn(self.run_plan(job, act))
        return job

    async def run_plan(self, job: Json, act: str) -> None:
        self.tell(job, line="Looking at what is installed")
        await asyncio.sleep(self.pace)
        name = job["requirement"] or f"skald-plugin-{job['plugin']}"
        if name.startswith("missing"):
            message = f"No package {name!r} was found in the index."
            self.tell(job, state="failed", ended_at=time.time(), error={"message": message}, line=message)
            return
        job["plugin"] = job["plugin"] or name.removeprefix("skald-plugin-").removeprefix("skald-")
        changes = {
            "install": [
                {"name": name, "from": None, "to": "1.4.0"},
                {"name": "pyproj", "from": None, "to": "3.7.1"},
            ],
            "upgrade": [{"name": name, "from": "1.2.0", "to": "1.4.0"}],
            "uninstall": [{"name": name, "from": "1.2.0", "to": None}, {"name": "pyproj", "from": "3.7.1", "to": None}],
        }.get(act, [])
        brings = act in ("install", "upgrade")
        plan = {
            "act": act,
            "changes": changes,
            "hashes": act == "install",
            "capabilities": {"added": ["weather.admin"] if brings else [], "removed": []},
            "contributes": {
                "added": {"tools": ["weather_forecast"], "pages": ["alerts"]} if brings else {},
                "removed": {"commands": ["rain"]} if act == "upgrade" else {},
            },
            "data": WEATHER_DATA if act in ("purge", "uninstall") else EMPTY_DATA,
            "restart_needed": act in ("upgrade", "uninstall"),
            "warnings": ["Version 1.4.0 is two days old."] if act == "upgrade" else [],
        }
        extra = {"command": f"uv pip install '{name}==1.4.0'"} if self.advice else {}
        self.tell(job, state="done", step="done", ended_at=time.time(), plan=plan, line="Planned", **extra)

    def start(self, data: Json) -> Json:
        plan = self.jobs.get(data["plan"])
        if plan is None:
            raise Refused(409, "plan_stale", "This plan is out of date. Plan again.")
        if self.advice:
            raise Refused(409, "advice_only", "Run the command by hand.", command=plan.get("command"))
        if data["password"] != PASSWORD:
            raise Refused(403, "bad_password", "This is not your password.")
        if any(j["state"] == "running" and j["act"] != "plan" for j in self.jobs.values()):
            raise Refused(409, "job_running", "Another change is under way. Wait for its end.")
        job = self.job(plan["plan"]["act"], plan["plugin"], plan["requirement"])
        job["plan"] = plan["plan"]
        self.spawn(self.run_job(job))
        return job

    async def run_job(self, job: Json) -> None:
        fails, self.fail_next = self.fail_next, False
        for step in STEPS:
            self.tell(job, step=step, line=f"{step}: begun")
            await asyncio.sleep(self.pace)
            self.tell(job, line=f"{step}: well")
            if fails and step == "check":
                self.tell(job, step="rollback", line="ImportError: no module named 'pyproj'")
                await asyncio.sleep(self.pace)
                message = "The new set did not start: no module named 'pyproj'."
                self.tell(job, state="rolled_back", ended_at=time.time(), error={"message": message}, line="Restored")
                return
        self.apply(job)
        self.tell(job, state="done", step="done", ended_at=time.time(), line="Done")

    def apply(self, job: Json) -> None:
        ident = job["plugin"]
        known = next((p for p in self.plugins if p["id"] == ident), None)
        if job["act"] == "install" and known is None:
            made = copy.deepcopy(self.plugins[-1])
            made.update(
                id=ident,
                title=ident.capitalize(),
                distribution=job["requirement"] or f"skald-plugin-{ident}",
                state="running",
                enabled=True,
                bundled=False,
                problems=[],
                error=None,
            )
            self.plugins.append(made)
        elif job["act"] == "upgrade" and known is not None:
            known.update(running_version=known["version"], version="1.4.0", latest_version="1.4.0", restart_needed=True)
        elif job["act"] in ("uninstall", "purge") and known is not None:
            self.plugins.remove(known)
        self.remains = [row for row in self.remains if row["id"] != ident or job["act"] != "purge"]
        for entry in self.available:
            if entry["name"] == job["requirement"]:
                entry["installed"] = entry["latest"]
        self.changed(ident)

    # --- users ----------------------------------------------------------------------------------------------------

    def user(self, ident: str) -> Json:
        for user in self.users:
            if user["id"] == ident:
                return user
        raise Refused(404, "user_not_found", "There is no such user.")

    def add_user(self, data: Json) -> Json:
        if any(u["username"] == data["username"] for u in self.users):
            raise Refused(409, "username_taken", "This user name is taken. Choose another one.")
        made = {
            "id": f"u{next(self.ids) + 100}",
            "active": True,
            "created_at": time.time(),
            **{k: v for k, v in data.items() if k != "password"},
        }
        made["display_name"] = made["display_name"] or made["username"]
        self.users.append(made)
        return made

    def change_user(self, ident: str, data: Json) -> Json:
        user = self.user(ident)
        if ident == "u1" and data.get("active") is False:
            raise Refused(409, "yourself", "You cannot switch off your own account.")
        if ident == "u1" and data.get("role", "admin") != "admin":
            raise Refused(409, "last_admin", "Somebody must remain who manages this server.")
        user.update(data)
        return user

    def delete_user(self, ident: str, data: Json) -> None:
        if data.get("password") != PASSWORD:
            raise Refused(403, "bad_password", "This is not your password.")
        self.users.remove(self.user(ident))
