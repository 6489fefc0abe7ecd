"""The instance that is walked: a real server, its people, and something of everybody in every place data can lie."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any

import httpx
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from tests.security.canaries import Canaries
from tests.support.fake_llm import ThreadedLlm
from tests.support.server import ServerProcess, wait_until

__all__ = ("CAPABILITY_ROLES", "PICTURE", "Instance", "Listener", "Person", "cookie")

CAPABILITY_ROLES = {
    "clerk": "users.manage",
    "tuner": "models.manage",
    "smith": "plugin.manage",
    "judge": "approval.manage",
    "counter": "keeper.count",
}
"""A user of each of these names has a role of the same name, with this one capability."""

PICTURE = "picture.png"
"""The name of a file everybody has in their home."""

SEES_NAMES = "root spareroot clerk smith"
"""Who manages accounts, or who may use a plugin, is shown people's names."""


class Person:
    """An account. ``ids`` are those of what was planted as theirs, by the parameters of the operations."""

    def __init__(self, name: str, role: str, password: str, *, encrypted: bool) -> None:
        self.name = name
        self.role = role
        self.password = password
        self.encrypted = encrypted
        self.id = ""
        self.token = ""
        self.ids: dict[str, str] = {}
        self.listener: Listener | None = None


def cookie(token: str) -> dict[str, str]:
    return {"cookie": f"skald_session={token}"} if token else {}


class Listener:
    """A live socket that only listens; ``frames`` is all it was told, ``code`` how it was closed."""

    def __init__(self, url: str, headers: dict[str, str], *conversations: str) -> None:
        self.frames: list[bytes] = []
        self.code: int | None = None
        self._socket = connect(
            "ws" + url.removeprefix("http") + "/api/ws", additional_headers=headers, max_size=None, proxy=None
        )
        for conversation in conversations:
            for events in ("client", "loop"):
                self.send({"type": "subscribe", "conversation": conversation, "events": events})
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def send(self, command: Any) -> None:
        with contextlib.suppress(ConnectionClosed):
            self._socket.send(command if isinstance(command, str | bytes) else json.dumps(command))

    def _listen(self) -> None:
        try:
            while True:
                frame = self._socket.recv()
                self.frames.append(frame if isinstance(frame, bytes) else frame.encode())
        except ConnectionClosed as closed:
            self.code = closed.rcvd.code if closed.rcvd is not None else 1006

    def closed(self, timeout: float = 20.0) -> int | None:
        """The code it was closed with; None when it is still open after the time."""
        self._thread.join(timeout)
        return self.code

    def close(self) -> None:
        self._socket.close()
        self._thread.join(10)

    def heard(self, word: str) -> bool:
        return any(word.encode() in frame for frame in self.frames)


def refused_socket(url: str, headers: dict[str, str]) -> bool:
    """Whether the handshake was refused."""
    try:
        with connect("ws" + url.removeprefix("http") + "/api/ws", additional_headers=headers, proxy=None):
            return False
    except InvalidStatus as refused:
        return refused.response.status_code == 403


class Instance:
    """Make one with :meth:`start`; ``people`` are there by name afterwards."""

    def __init__(self, folder: Path, llm: ThreadedLlm, roles: dict[str, str]) -> None:
        self.data = folder / "data"
        self.roles = roles
        self.canaries = Canaries()
        self.people: dict[str, Person] = {}
        self.output: list[str] = []
        self.llm = llm
        plugins = folder / "plugins"
        _install_keeper(plugins)
        self.server = ServerProcess(
            self.data, args=("--trusted-proxy", "127.0.0.1"), env={"PYTHONPATH": str(plugins), "SKALD_LOG": "INFO"}
        )
        self.http = httpx.Client(
            timeout=60, trust_env=False, cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[]))
        )
        self._address = 0

    # -- requests --------------------------------------------------------------------------------------------------

    def request(
        self, method: str, path: str, *, token: str = "", headers: dict[str, str] | None = None, **more: Any
    ) -> httpx.Response:
        """Send from an address of its own, so that the limit of failed sign-ins, which counts them by address, holds nobody
        up: what comes from ever new addresses is not what it is for."""
        self._address += 1
        peer = f"10.{self._address >> 16 & 255}.{self._address >> 8 & 255}.{self._address & 255}"
        sent = {"x-forwarded-for": peer, **cookie(token), **(headers or {})}
        return self.http.request(method, self.server.url + path, headers=sent, **more)

    def ask(self, person: Person, method: str, path: str, body: Any = None) -> Any:
        """A request that must succeed; its answer."""
        answer = self.request(method, path, token=person.token, json=body)
        assert answer.is_success, f"{person.name}: {method} {path}: {answer.status_code} {answer.text[:500]}"
        return answer.json() if answer.content else None

    # -- making it -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """The first account; then, over a restart, roles of one capability each, which no route makes yet."""
        self.server.start()
        root = self._person("root", "admin", encrypted=True)
        body = {
            "token": self.server.setup_token,
            "username": root.name,
            "password": root.password,
            "display_name": self._name_of(root),
        }
        answer = self.request("POST", "/api/setup", json=body)
        assert answer.is_success, answer.text
        root.id = answer.json()["id"]
        root.token = self._token(answer, root)
        self.stop()
        with contextlib.closing(sqlite3.connect(self.data / "database" / "system.db")) as database, database:
            for role, capability in self.roles.items():
                database.execute("INSERT INTO roles VALUES(?,?,?)", (role, role, time.time()))
                database.execute("INSERT INTO role_capabilities VALUES(?,?)", (role, capability))
        self.server.start()

    def stop(self) -> None:
        status = self.server.stop()
        self.output += self.server.output
        assert status == 0, "".join(self.server.output[-30:])

    def fill(self) -> None:
        """Sign in, make everyone and everything."""
        root = self.people["root"]
        self.sign_in(root)
        self._instance(root)
        for name, role, encrypted in (
            ("ada", "member", True),
            ("bo", "member", False),
            ("mover", "member", False),
            ("spare", "member", False),
            ("spareroot", "admin", False),
            *((name, name, False) for name in self.roles),
        ):
            self._person(name, role, encrypted=encrypted)
        others = [person for person in self.people.values() if person is not root]
        with ThreadPoolExecutor(2) as pool:  # as many as the server derives keys for at once
            list(pool.map(self._create, others))
        for name in ("root", "ada", "bo", "mover"):
            self._plant(self.people[name])

    def _person(self, name: str, role: str, *, encrypted: bool) -> Person:
        password = self.canaries.plant("password", name, secret=True)
        person = self.people[name] = Person(name, role, password, encrypted=encrypted)
        return person

    def _name_of(self, person: Person) -> str:
        return self.canaries.plant("display name", person.name, viewers=SEES_NAMES, disk="system audit")

    def _token(self, answer: httpx.Response, person: Person) -> str:
        value = answer.headers["set-cookie"]
        assert "HttpOnly" in value, value
        assert "samesite=strict" in value.lower(), value
        return self.canaries.token(value.partition("=")[2].partition(";")[0], "session", person.name)

    def sign_in(self, person: Person) -> str:
        """A new session, which becomes the person's."""
        answer = self.request("POST", "/api/auth/login", json={"username": person.name, "password": person.password})
        assert answer.is_success, answer.text
        person.token = self._token(answer, person)
        return person.token

    def _create(self, person: Person) -> None:
        body = {
            "username": person.name,
            "password": person.password,
            "display_name": self._name_of(person),
            "role": person.role,
            "encrypted": person.encrypted,
        }
        person.id = self.ask(self.people["root"], "POST", "/api/users", body)["id"]
        self.sign_in(person)

    def _instance(self, root: Person) -> None:
        """What belongs to the instance: a provider's key, a plugin's settings."""
        self.ask(root, "POST", "/api/plugins/keeper/enable")
        token = self.canaries.plant("plugin secret", "root", disk="system", secret=True)
        place = self.canaries.plant("plugin setting", "root", viewers="spareroot smith", disk="system")
        self.ask(root, "PUT", "/api/plugins/keeper/config", {"values": {"place": place, "token": token}})
        for name in ("spare", "main"):
            key = self.canaries.plant("provider key", "root", disk="system", secret=True)
            settings = {"base_url": self.llm.url, "api_key": key}
            provider = self.ask(root, "POST", "/api/providers", {"type": "openai", "name": name, "settings": settings})
            info = {"capabilities": ["tools", "vision"]}
            body = {"provider": provider["id"], "model": "fake-model", "title": name, "info": info}
            model = self.ask(root, "POST", "/api/models", body)
            root.ids |= {"provider": provider["id"], "model": model["id"]}
            if name == "spare":
                self.spare = {"provider": provider["id"], "model": model["id"]}
        self.ask(root, "PUT", "/api/models/order", {"ids": [root.ids["model"], self.spare["model"]]})

    # -- what people have ------------------------------------------------------------------------------------------

    def plant(self, person: Person, what: str, *, secret: bool = False, file: bool = False) -> str:
        """A string in the person's data. Files lie plainly on the disk, databases of those who are not encrypted, too."""
        disk = ("" if person.encrypted else "owner ") + ("home" if file else "")
        return self.canaries.plant(what, person.name, disk=disk, secret=secret)

    def talk(self, person: Person, conversation: str, text: str, **more: Any) -> None:
        """Send and wait for the turn to end or to ask."""
        body = {"client_id": f"c{time.monotonic_ns()}", "content": text, **more}
        self.ask(person, "POST", f"/api/conversations/{conversation}/messages", body)
        self.settled(person, conversation)

    def settled(self, person: Person, conversation: str, *states: str) -> None:
        """Wait for the turn to end, or to wait for its person."""

        def look() -> bool:
            state = self.ask(person, "GET", f"/api/conversations/{conversation}")["state"]
            return state in (states or ("idle", "waiting"))

        wait_until(look, f"{person.name}'s turn to end")

    def _plant(self, person: Person) -> None:
        name = person.name
        home = self.data / "homes" / person.id
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        (home / PICTURE).write_bytes(b"\x89PNG\r\n\x1a\n" + self.plant(person, "file", file=True).encode())
        spoken = {what: self.plant(person, what) for what in ("answer", "call", "failure", "breakage")}
        self.llm.llm.steps += [
            {"when": f"say-{name}", "text": f"said {spoken['answer']}"},
            {"when": f"say-{name}", "text": f"said once more {spoken['answer']}"},
            {"when": f"break-{name}", "calls": [_call("keeper_break", text=spoken["breakage"])]},
            {"when": f"fail-{name}", "status": 400, "body": {"error": {"message": f"bad {spoken['failure']}"}}},
            {"when": f"keep-{name}", "calls": [_call("keeper_keep", text=spoken["call"])]},
        ]
        made = self.ask(person, "POST", "/api/conversations", {"title": self.plant(person, "title"), "client_id": "c1"})
        conversation = made["id"]
        first = f"say-{name} {self.plant(person, 'message')}"
        self.talk(person, conversation, first, attachments=[{"path": PICTURE, "name": PICTURE}])
        said = self._messages(person, conversation)
        self.ask(person, "POST", f"/api/conversations/{conversation}/regenerate", {"message": said[-1]["id"]})
        self.settled(person, conversation)
        self.talk(person, conversation, f"break-{name}")
        self._allow(person, conversation, "allow_once")
        failing = self.ask(person, "POST", "/api/conversations", {})["id"]
        self.talk(person, failing, f"fail-{name}")
        self.talk(person, conversation, f"keep-{name}")
        waiting = {"client_id": "queued", "content": self.plant(person, "queued message")}
        queued = self.ask(person, "POST", f"/api/conversations/{conversation}/messages", waiting)["queued"]
        assert queued is not None, "nothing waits, so the call was not asked about"
        request = self._asked(person, conversation)
        note = self.ask(person, "POST", "/api/plugin/keeper/notes", {"text": self.plant(person, "note")})
        own = {"motto": self.plant(person, "own setting"), "pin": self.plant(person, "own secret", secret=True)}
        self.ask(person, "PUT", "/api/my/plugins/keeper/config", {"values": own})
        person.ids |= {
            "conversation": conversation,
            "request_id": request,
            "message": str(said[0]["id"]),
            "queued": str(queued["id"]),
            "note": note["id"],
            "bypass_id": self._bypass(person),
        }
        person.listener = Listener(self.server.url, cookie(person.token), conversation)

    def _bypass(self, person: Person) -> str:
        """Allow a tool in a conversation of its own; the id of what was allowed."""
        text = self.plant(person, "kept by a call")
        self.llm.llm.steps.append({"when": f"bypass-{person.name}", "calls": [_call("keeper_keep", text=text)]})
        conversation = self.ask(person, "POST", "/api/conversations", {})["id"]
        self.talk(person, conversation, f"bypass-{person.name}")
        self._allow(person, conversation, "allow_conversation")
        (bypass,) = self.ask(person, "GET", "/api/plugin/approval/bypasses")
        return str(bypass["id"])

    def _asked(self, person: Person, conversation: str) -> str:
        """The request that waits in a conversation."""

        def look() -> str:
            items = self.ask(person, "GET", "/api/inbox?status=pending")["items"]
            return "".join(r["id"] for r in items if r["conversation"] == conversation)

        return str(wait_until(look, f"{person.name} to be asked"))

    def _allow(self, person: Person, conversation: str, choice: str) -> None:
        request = self._asked(person, conversation)
        self.ask(person, "POST", f"/api/requests/{request}/answer", {"choice": choice})
        self.settled(person, conversation, "idle")

    def _messages(self, person: Person, conversation: str) -> list[dict[str, Any]]:
        found = self.ask(person, "GET", f"/api/conversations/{conversation}/messages")
        return list(found["items"])

    def state_of(self, person: Person) -> Any:
        """All a person has, to see whether somebody else changed it."""
        paths = ("conversations?counts=true", "inbox", "plugin/keeper/notes", "plugin/approval/bypasses", "auth/me")
        base = f"conversations/{person.ids['conversation']}"
        paths += ("my/plugins/keeper/config", f"{base}/messages", f"{base}/export")
        return {path: self.ask(person, "GET", f"/api/{path}") for path in paths}


def _call(name: str, **arguments: str) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def _install_keeper(folder: Path) -> None:
    """The keeper plugin as an installed distribution: its package with metadata beside it."""
    shutil.copytree(
        Path(__file__).parent / "keeper" / "skald_keeper",
        folder / "skald_keeper",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    info = folder / "skald_keeper-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: skald-keeper\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[skald.plugins]\nkeeper = skald_keeper\n")
    (info / "RECORD").write_text("")
