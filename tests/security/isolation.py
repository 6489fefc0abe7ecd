"""Walks every operation of a running instance as everybody who should not, and looks for what should not be seen.

A real server gets an administrator, members with and without encryption, and users of roles with one capability each. In
every place data can lie (conversations, branches, waiting messages, requests, files, settings, notes of a plugin, provider
keys, passwords, sessions) a unique string is planted. Then every operation of the generated OpenAPI document, and the live
socket, is tried: without a session, with a locked one, with each role, with the ids of somebody else, under another host,
from another origin, with bodies, ids and queries that make no sense, and after a change of role, of access, of password, after
sign-out, suspension and deletion. Every answer, every frame, every request to the model, the log, the audit log and every file
of the data directory is searched for strings that must not be there.

Who may call what is written down in ``surface.py``; an operation it does not name is open, so a new route fails here until
somebody says whom it is for.

Counted, in the one JSON object of the last line:

- ``operations`` and ``requests``: what was walked, and how often;
- ``leaks``: strings found where they must not be, each once;
- ``open``: refusals that did not come, or not as documented; changes to somebody else's data;
- ``server_errors``: answers of 500 and above, and tracebacks of the server in its log.

Exits with 1 when one of the last three is not 0. ``--small`` has fewer people, and a share of the odd input.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sqlite3
import stat
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from tests.security import instance as instances
from tests.security.canaries import Canary
from tests.security.instance import CAPABILITY_ROLES, PICTURE, Instance, Listener, Person, cookie
from tests.security.surface import (
    DEEP,
    HUGE_NUMBER,
    PUBLIC,
    SIGNED_IN,
    Operation,
    odd_bodies,
    odd_paths,
    odd_queries,
    operations,
    sample,
)
from tests.support.fake_llm import ThreadedLlm
from tests.support.server import wait_until

UNSAFE = frozenset({"POST", "PUT", "PATCH", "DELETE"})
LOGIN, LOGOUT = "POST /api/auth/login", "POST /api/auth/logout"
OTHER_ORIGINS = (
    "http://evil.example",
    "null",
    "http://127.0.0.1",
    "http://127.0.0.1:1",
    "http://localhost.evil.example",
    "https://evil.example/{host}",
    "http://{host}.evil.example",
    "http://{host}@evil.example",
    "",
)
OTHER_HOSTS = (
    "evil.example",
    "127.0.0.1.evil.example",
    "evil.example:{port}",
    "127.0.0.1@evil.example",
    "evil.example#127.0.0.1",
    "",
)
SOCKET_ORIGINS = ("http://evil.example", "null", "http://127.0.0.1:1", "http://localhost.evil.example")


class Walk:
    """Counts, and what was found. ``small`` shortens lists."""

    def __init__(self, there: Instance, *, small: bool) -> None:
        self.there = there
        self.small = small
        self.began = time.monotonic()
        self.requests = 0
        self.reached: set[str] = set()
        self.operations: list[Operation] = []
        self.problems: dict[str, Counter[str]] = {"leaks": Counter(), "open": Counter(), "server_errors": Counter()}

    def problem(self, kind: str, text: str) -> None:
        self.problems[kind][text] += 1

    def leaked(self, found: Iterable[Canary], where: str) -> None:
        for canary in found:
            self.problem("leaks", f"{where}: {canary}")

    def send(
        self,
        viewer: str,
        operation: Operation | str,
        path: str,
        *,
        token: str = "",
        body: Any = None,
        content: bytes | None = None,
        headers: dict[str, str] | None = None,
        why: str = "",
    ) -> httpx.Response | None:
        """One request, with what holds for every answer checked. None when the server hung up."""
        self.requests += 1
        method = operation.method if isinstance(operation, Operation) else operation
        name = operation.name if isinstance(operation, Operation) else f"{method} {path}"
        more: dict[str, Any] = {"content": content} if content is not None else {}
        if body is not None:
            more["json"] = body
        where = f"{name} as {viewer or 'nobody'}{' ' if why else ''}{why}"
        try:
            answer = self.there.request(method, path, token=token, headers=headers, **more)
        except httpx.HTTPError as error:
            self.problem("server_errors", f"{where}: {type(error).__name__}: {error}")
            return None
        if answer.status_code >= 500:
            self.problem("server_errors", f"{where}: {answer.status_code} {answer.text[:200]}")
        heads = [value for key, value in answer.headers.multi_items() if key != "set-cookie"]
        self.leaked(self.there.canaries.wrong_for(viewer, answer.content + "\n".join(heads).encode()), where)
        for header, value in (("x-content-type-options", "nosniff"), ("access-control-allow-origin", None)):
            if answer.headers.get(header) != value and answer.status_code != 400:
                self.problem("open", f"{where}: {header} is {answer.headers.get(header)!r}")
        if answer.is_success:
            self.reached.add(name)
        return answer

    def refused(self, answer: httpx.Response | None, where: str, *statuses: int, code: str = "") -> None:
        """The answer must be one of these refusals, said as a problem."""
        if answer is None:
            return
        said = answer.json().get("code") if "problem+json" in answer.headers.get("content-type", "") else None
        if answer.status_code not in statuses or said is None or (code and said != code):
            wanted = " or ".join(map(str, statuses)) + (f" {code}" if code else "")
            self.problem("open", f"{where}: {answer.status_code} {said or answer.text[:100]!r} instead of {wanted}")

    # -- the steps -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        there = self.there
        there.start()
        root = there.people["root"]
        old = root.token
        document = there.request("GET", "/api/schema/openapi.json").json()
        self.operations = operations(document)
        self.without_session("with a locked session", old, code="locked")
        self.step("signed out")
        there.fill()
        self.step("filled")
        self.operations = operations(there.ask(root, "GET", "/api/schema/openapi.json"))
        for operation in self.operations:
            if operation.who is None:
                self.problem("open", f"{operation.name}: nobody said in surface.py whom it is for")
        people = there.people
        victims = [people["ada"], people["bo"], root]
        before = {person.name: there.state_of(person) for person in victims}
        for what, token in (("", ""), ("with a made-up session", "x" * 43)):
            self.without_session(what, token)
        self.step("without a session")
        self.roles()
        self.step("roles")
        self.strangers(victims)
        self.step("strangers")
        self.other_places()
        self.step("other hosts and origins")
        self.sockets(victims)
        self.step("sockets")
        for person in victims:
            after = there.state_of(person)
            for path, state in before[person.name].items():
                if state != after[path]:
                    self.problem("open", f"{person.name}'s {path} was changed by somebody else")
        self.rightful()
        self.odd_input()
        self.step("odd input")
        self.limits()
        self.changes(people["mover"])
        self.step("changes")
        self.gone(people["bo"])
        self.end()
        self.step("looked through what is left")

    def step(self, what: str) -> None:
        print(f"{time.monotonic() - self.began:6.1f} s  {self.requests:6,} requests  {what}", flush=True)

    def without_session(self, what: str, token: str, code: str = "not_signed_in") -> None:
        """Everything but what is public says 401; nothing of an answer depends on whether a thing exists."""
        for operation in self.operations:
            if operation.name == LOGOUT and token:
                continue
            ids = self.there.people["ada"].ids if "ada" in self.there.people else {"message": "7", "queued": "7"}
            path = operation.fill({"plugin": "keeper", "file": "notes.js", "locale": "en", **ids})
            # Guessing costs the server a second of work each time, which once is enough.
            body = {} if what and operation.name == LOGIN else sample(operation)
            answer = self.send("", operation, path, token=token, body=body, why=what)
            if operation.who != PUBLIC:
                self.refused(answer, f"{operation.name} {what or 'without a session'}", 401, code=code)

    def _ids(self, person: Person) -> dict[str, str]:
        """Ids an operation of the instance may take without harm, and the person's own."""
        users = {"user": self.there.people["spare"].id, "locale": "en", "file": "notes.js", "plugin": "keeper"}
        return {**users, **self.there.spare, **person.ids}

    def roles(self) -> None:
        """Every capability opens what it is for and nothing else. Administrators are refused nothing."""
        names = ["bo", *self.there.roles, "spareroot"]
        for name in names:
            person = self.there.people[name]
            held = self.there.roles.get(name)
            for operation in self.operations:
                if operation.who in (None, PUBLIC, SIGNED_IN):
                    continue
                allowed = name == "spareroot" or operation.who == held
                if allowed and (operation.method == "DELETE" or operation.path.endswith(("/disable", "/enable"))):
                    continue  # carried out for real with odd input, last
                path = operation.fill(self._ids(person))
                answer = self.send(name, operation, path, token=person.token, body=sample(operation))
                where = f"{operation.name} as {name}"
                if not allowed:
                    self.refused(answer, where, 403)
                elif answer is not None and answer.status_code == 403 and answer.json()["code"] == "forbidden":
                    self.problem("open", f"{where}: refused, though the role holds {operation.who}")

    def strangers(self, victims: list[Person]) -> None:
        """Ids of somebody else name nothing: 404 for members and administrators alike, and nothing changes."""
        names = ("ada", "bo", "spareroot") if self.small else ("ada", "bo", "root", "spareroot", "clerk", "counter")
        for victim in victims:
            for name in names:
                if name == victim.name:
                    continue
                person = self.there.people[name]
                for operation in (o for o in self.operations if o.owned):
                    body = sample(operation)
                    if isinstance(body, dict) and "message" in body:
                        body = {**body, "message": int(victim.ids["message"])}
                    if operation.path.endswith("/answer"):
                        body = {"choice": "allow_once"}
                    answer = self.send(name, operation, operation.fill(victim.ids), token=person.token, body=body)
                    self.refused(answer, f"{operation.name} of {victim.name} as {name}", 404)
                self._borrow(person, victim)

    def _borrow(self, person: Person, victim: Person) -> None:
        """What is the same for two people without belonging to both: ids clients make, numbers of messages, file names."""
        body: dict[str, Any] = {"client_id": "c1"}
        answer = self.send(person.name, "POST", "/api/conversations", token=person.token, body=body)
        if answer is None or answer.status_code != 201:
            return
        own = answer.json()["id"]
        if own == victim.ids["conversation"]:
            self.problem("open", f"{person.name} got {victim.name}'s conversation by its client_id")
        folders = (
            f"../{victim.id}",
            f"{self.there.data}/homes/{victim.id}",
            f"/root/../{victim.id}",
            f"/../{victim.id}",
        )
        attachments = [{"path": f"{folder}/{PICTURE}", "name": "x"} for folder in folders]
        body = {"client_id": f"borrow-{victim.name}", "content": "borrowed", "attachments": attachments}
        if own != person.ids.get("conversation"):
            base = f"/api/conversations/{own}"
            self.send(person.name, "POST", f"{base}/messages", token=person.token, body=body)
            for act in ("regenerate", "head"):
                number = {"message": int(victim.ids["message"]) + 10**6}
                answer = self.send(person.name, "POST", f"{base}/{act}", token=person.token, body=number)
                self.refused(answer, f"{act} of a message that is not there", 404, 409, 422)

    def other_places(self) -> None:
        """Another Host, and for what changes something another Origin, is refused before anything else is looked at."""
        root = self.there.people["root"]
        url = httpx.URL(self.there.server.url)
        host = f"{url.host}:{url.port}"
        for turn, operation in enumerate(self.operations):
            path = operation.fill(self._ids(root))
            token = "" if operation.name == LOGOUT else root.token
            hosts = OTHER_HOSTS[turn % 6 : turn % 6 + 1] if self.small else OTHER_HOSTS
            for other in hosts:
                headers = {"host": other.format(port=url.port)}
                answer = self.send("root", operation, path, token=token, headers=headers, why=f"at {other!r}")
                if answer is not None and not (other == "" and answer.status_code == 400):
                    self.refused(answer, f"{operation.name} at host {other!r}", 403, code="bad_host")
            if operation.method not in UNSAFE:
                continue
            origins = OTHER_ORIGINS[turn % 9 : turn % 9 + 2] if self.small else OTHER_ORIGINS
            for other in origins:
                headers = {"origin": other.format(host=host)}
                answer = self.send("root", operation, path, token=token, headers=headers, body=sample(operation))
                self.refused(answer, f"{operation.name} from origin {other!r}", 403, code="bad_origin")

    def sockets(self, victims: list[Person]) -> None:
        """The live socket: who may open one, what may be followed, and what it makes of odd frames."""
        url, root = self.there.server.url, self.there.people["root"]
        for origin in SOCKET_ORIGINS:
            if not instances.refused_socket(url, {**cookie(root.token), "origin": origin}):
                self.problem("open", f"a socket from origin {origin!r} was taken")
        for headers in ({}, cookie("x" * 43), {"cookie": "b@d=1; skald_session=x"}, {"cookie": '"; a[]=1'}):
            listener = Listener(url, headers, victims[0].ids["conversation"])
            if listener.closed() != 4401:
                self.problem("open", f"a socket with {headers} was closed with {listener.code}, not 4401")
            self._frames("", listener)
        for person in (self.there.people[name] for name in ("ada", "bo", "spareroot")):
            own = [v.ids["conversation"] for v in victims if v is not person]
            listener = Listener(url, cookie(person.token), *own)
            for frame in _odd_frames(own[0]):
                listener.send(frame)
            listener.send({"type": "ping"})
            with contextlib.suppress(AssertionError):
                wait_until(lambda there=listener: there.heard('"pong"') or there.code is not None, "a pong")
            if not listener.heard('"pong"'):
                self.problem("server_errors", f"the socket of {person.name} died of odd frames: {listener.code}")
            refusals = sum(b"conversation_not_found" in frame for frame in listener.frames)
            if refusals < 2 * len(own) or listener.heard('"snapshot"'):
                self.problem("open", f"{person.name} could follow somebody else's conversation")
            listener.close()
            self._frames(person.name, listener)
            self.requests += len(own) * 2

    def _frames(self, viewer: str, listener: Listener) -> None:
        for frame in listener.frames:
            self.leaked(self.there.canaries.wrong_for(viewer, frame), f"a frame of {viewer or 'nobody'}")

    def rightful(self) -> None:
        """What may be read is read by who may: else a refusal of everybody would look like safety."""
        admin = self.there.people["spareroot"]
        ids = {**self._odd_ids(admin), "plugin": "keeper"}
        for operation in self.operations:
            if operation.method == "GET" and "job" not in operation.parameters:
                answer = self.send(admin.name, operation, operation.fill(ids), token=admin.token)
                if answer is None or not answer.is_success:
                    self.problem("open", f"{operation.name}: {answer and answer.status_code} for who may call it")

    def odd_input(self) -> None:
        """Bodies, ids and queries that make no sense get a 4xx from every operation, for those who may call it."""
        admin = self.there.people["spareroot"]
        for turn, operation in enumerate(self.operations):
            token = "" if operation.name == LOGOUT else admin.token
            ids = self._odd_ids(admin)
            for sent in odd_bodies(operation, small=self.small, turn=turn) if operation.method in UNSAFE else ():
                headers = {"content-type": sent.media_type}
                path = operation.fill(ids)
                answer = self.send(
                    admin.name, operation, path, token=token, content=sent.body, headers=headers, why=sent.what
                )
                if answer is not None and answer.status_code == 404 and operation.owned:
                    ids = self._odd_ids(admin)
            for path in odd_paths(operation, ids, small=self.small, turn=turn):
                self.send(admin.name, operation, path, token=token, body=sample(operation), why="with an odd id")
            for query in odd_queries(operation):
                path = f"{operation.fill(ids)}?{query}"
                self.send(admin.name, operation, path, token=token, why=f"with ?{query[:30]}")
        for headers in ({"cookie": "b@d=1; skald_session=x"}, {"cookie": "\x01=;;"}, {"accept-language": "x" * 4000}):
            answer = self.send("", "GET", "/api/auth/me", headers=headers)
            if answer is not None and answer.status_code not in (400, 401):
                self.problem("open", f"headers {headers}: {answer.status_code}")
        for path in (
            "/..%2f..%2fdatabase/system.db",
            "/%00",
            "/assets/..%2f..%2fcsp.json",
            "/%ff",
            "//evil.example",
            "/x" * 3000,
        ):
            self.send("", "GET", path)

    def _odd_ids(self, person: Person) -> dict[str, str]:
        """Ids of things that may break: a fresh conversation with a message, a note, a plugin nothing else needs."""
        there = self.there
        made = there.ask(person, "POST", "/api/conversations", {})["id"]
        there.talk(person, made, "hello")
        first = there.ask(person, "GET", f"/api/conversations/{made}/messages")["items"][0]["id"]
        note = there.ask(person, "POST", "/api/plugin/keeper/notes", {"text": "odd"})["id"]
        person.ids |= {"conversation": made, "message": str(first), "note": note, "queued": "7"}
        return {**self._ids(person), "plugin": "ollama"}

    def limits(self) -> None:
        """Failed sign-ins of one address are limited."""
        body = {"username": "nobody-here", "password": "guess after guess"}
        for _ in range(6):
            answer = self.send("", "POST", "/api/auth/login", body=body, headers={"x-forwarded-for": "192.0.2.1"})
        self.refused(answer, "the sixth wrong password", 429)

    # -- what ends takes effect at once ----------------------------------------------------------------------------

    def changes(self, mover: Person) -> None:
        """Role, access to a plugin, sign-out, password, suspension, deletion: each holds for the very next request."""
        there, root = self.there, self.there.people["root"]
        self._role(mover, "counter", {"keeper.count"})
        self._role(mover, "member", set())
        self._access(mover)

        leaving = there.sign_in(mover)
        socket = Listener(there.server.url, cookie(leaving), mover.ids["conversation"])
        self.send(mover.name, "POST", "/api/auth/logout", token=leaving)
        self.dead("after sign-out", leaving, socket)

        old = [there.sign_in(mover)] if self.small else [there.sign_in(mover), there.sign_in(mover)]
        socket = Listener(there.server.url, cookie(old[0]), mover.ids["conversation"])
        new = there.canaries.plant("password", mover.name, secret=True)
        there.ask(mover, "POST", "/api/auth/password", {"old": mover.password, "new": new})
        for token in old:
            self.dead("after a change of password", token, socket)
        mover.password = new
        there.sign_in(mover)

        reset = there.canaries.plant("password", mover.name, secret=True)
        old = [mover.token]
        socket = Listener(there.server.url, cookie(old[0]), mover.ids["conversation"])
        there.ask(root, "POST", f"/api/users/{mover.id}/password", {"new": reset})
        self.dead("after a reset of the password", old[0], socket)
        mover.password = reset

        token = there.sign_in(mover)
        socket = Listener(there.server.url, cookie(token), mover.ids["conversation"])
        there.ask(root, "PATCH", f"/api/users/{mover.id}", {"active": False})
        self.dead("after suspension", token, socket)
        again = {"username": mover.name, "password": mover.password}
        answer = self.send("", "POST", "/api/auth/login", body=again)
        self.refused(answer, "sign-in of a suspended user", 401)
        there.ask(root, "PATCH", f"/api/users/{mover.id}", {"active": True})
        self.dead("after being let in again", token, None)

        token = there.sign_in(mover)
        socket = Listener(there.server.url, cookie(token), mover.ids["conversation"])
        there.ask(root, "DELETE", f"/api/users/{mover.id}", {"password": root.password})
        self.dead("after deletion", token, socket)
        self.deleted = mover

    def dead(self, what: str, token: str, socket: Listener | None) -> None:
        """This session opens nothing any more, and its socket was closed."""
        self.without_session(what, token)
        if socket is not None and socket.closed() != 4401:
            self.problem("open", f"{what} the socket was closed with {socket.code}, not 4401")
            socket.close()

    def _role(self, mover: Person, role: str, held: set[str]) -> None:
        self.there.ask(self.there.people["root"], "PATCH", f"/api/users/{mover.id}", {"role": role})
        for operation in self.operations:
            if operation.who in (None, PUBLIC, SIGNED_IN) or operation.method == "DELETE":
                continue
            path = operation.fill(self._ids(mover))
            answer = self.send(mover.name, operation, path, token=mover.token, body=sample(operation))
            if operation.who not in held:
                self.refused(answer, f"{operation.name} after becoming {role}", 403)
            elif answer is not None and not answer.is_success:
                self.problem("open", f"{operation.name}: {answer.status_code} after becoming {role}")

    def _access(self, mover: Person) -> None:
        """A plugin that was taken away is not there: its routes, its files, its settings, its events."""
        there, root = self.there, self.there.people["root"]
        assert mover.listener is not None
        there.ask(root, "PUT", "/api/plugins/keeper/access", {"users": {mover.id: False}})
        own = [
            o
            for o in self.operations
            if "/plugin/keeper/" in o.path or o.path.startswith(("/api/my/plugins/{", "/api/plugin/{"))
        ]
        for operation in own:
            path = operation.fill(self._ids(mover))
            answer = self.send(mover.name, operation, path, token=mover.token, body=sample(operation))
            self.refused(answer, f"{operation.name} after keeper was taken away", 404)
        for path in ("/api/my/plugins", "/api/plugins/pages", "/api/i18n/en", "/api/schema/openapi.json"):
            answer = self.send(mover.name, "GET", path, token=mover.token)
            if answer is not None and "keeper" in answer.text:
                self.problem("open", f"GET {path} still tells of keeper after it was taken away")
        there.ask(root, "PUT", "/api/plugins/keeper/access", {"users": {mover.id: None}})
        answer = self.send(mover.name, "GET", "/api/plugin/keeper/notes", token=mover.token)
        if answer is None or not answer.is_success:
            self.problem("open", "keeper does not come back when it is granted again")

    def gone(self, person: Person) -> None:
        """What somebody deletes is gone, from the disk too."""
        there = self.there
        there.ask(person, "POST", f"/api/conversations/{person.ids['conversation']}/stop")
        there.ask(person, "DELETE", f"/api/conversations/{person.ids['conversation']}")
        self.erased = {
            c.text for c in there.canaries.of(person.name) if c.what in ("title", "message", "answer", "queued message")
        }

    # -- afterwards ------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Stop, and look at what was left behind."""
        there = self.there
        for person in there.people.values():
            if person.listener is not None:
                person.listener.close()
                self._frames(person.name, person.listener)
                if len(person.listener.frames) < 3:
                    self.problem("open", f"the socket of {person.name} heard nothing: nothing was proved by it")
        there.stop()
        shown = [json.dumps(request) for request in there.llm.requests]
        if not any("say-ada" in text and "base64," in text for text in shown):
            self.problem("open", "no model was shown a file: nothing was proved by files of others not being shown")
        if not any("borrowed" in text for text in shown) or any("borrowed" in t and "base64," in t for t in shown):
            self.problem("leaks", "a file of somebody else was shown to the model, or nothing was tried")
        for text in map(str.encode, shown):
            owners = {c.owner for c in there.canaries.found(text)}
            if len(owners) > 1:
                self.problem("leaks", f"one request to the model holds data of {sorted(owners)}")
            self.leaked((c for c in there.canaries.found(text) if c.secret), "a request to the model")
        self._log()
        self._disk()
        unreached = {o.name for o in self.operations} - self.reached
        print(f"answered somebody with success: {len(self.reached)}; never: {', '.join(sorted(unreached))}")

    def _log(self) -> None:
        log = "".join(self.there.output)
        self.leaked(self.there.canaries.found(log.encode()), "the log")
        for mark in ("unhandled error", "Exception in ASGI", "Traceback", "never retrieved", "never awaited"):
            for line in (line for line in log.splitlines() if mark in line):
                self.problem("server_errors", f"the log: {line[:200]}")

    def _disk(self) -> None:
        there = self.there
        names = {person.id: person for person in there.people.values()}
        with contextlib.closing(sqlite3.connect(there.data / "database" / "system.db")) as database:
            audit = json.dumps(database.execute("SELECT * FROM audit_log").fetchall()).encode()
        self.leaked(there.canaries.wrong_on_disk("audit", "", audit), "the audit log")
        for path in sorted(p for p in there.data.rglob("*") if p.is_file()):
            relative = path.relative_to(there.data)
            owner = next(
                (names[part.partition(".")[0]] for part in relative.parts if part.partition(".")[0] in names), None
            )
            place = (
                "system"
                if relative.name.startswith("system.db")
                else "home"
                if relative.parts[0] == "homes"
                else "owner"
            )
            data = path.read_bytes() + str(relative).encode()
            if owner is self.deleted:
                self.problem("leaks", f"{relative} is still there after its owner was deleted")
            found = there.canaries.wrong_on_disk(place, owner.name if owner is not None else "", data)
            self.leaked(found, f"{relative.parts[0]} ({place})")
            left = [text for text in self.erased if text.encode() in data]
            if left:
                self.problem("leaks", f"{place}: {len(left)} strings of a deleted conversation lie in the file")
            if any(there.canaries.found(data)) and _readable(path, there.data):
                self.problem("open", f"{relative} can be read by other users of this machine")


def _readable(path: Path, top: Path) -> bool:
    """Whether the modes let other accounts of the machine read the file."""
    if not path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        return False
    while path != top.parent:
        path = path.parent
        if not path.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH):
            return False
        if path == top:
            return True
    return True


def _odd_frames(conversation: str) -> list[str | bytes]:
    huge = f'{{"type":"subscribe","conversation":"{conversation}","epoch":"x","after":{HUGE_NUMBER}}}'
    return [
        "", "null", "[]", "{}", '{"type":"nothing"}', '{"type":"subscribe"}', '{"type":"subscribe","conversation":7}', huge,
        b"\xff\xfe", b"", "[" * DEEP, '{"type":"ping","x":' + "[" * DEEP + "]" * DEEP + "}",
        '{"type":"subscribe","conversation":"' + "x" * 100_000 + '"}', '{"type":"unsubscribe","conversation":"\\u0000"}',
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="fewer people, a share of the odd input")
    small = parser.parse_args().small
    with tempfile.TemporaryDirectory(prefix="skald-isolation-") as folder, ThreadedLlm() as llm:
        roles = {name: CAPABILITY_ROLES[name] for name in ("clerk", "counter")} if small else CAPABILITY_ROLES
        there = Instance(Path(folder), llm, roles)
        walk = Walk(there, small=small)
        try:
            walk.run()
        except Exception as error:
            walk.problem("open", f"the walk could not go on: {type(error).__name__}: {str(error)[:300]}")
            traceback.print_exc()
            print("".join([*there.output, *there.server.output][-60:]), file=sys.stderr)
        finally:
            if there.server.process is not None and there.server.process.poll() is None:
                there.server.kill()
            there.http.close()
    for kind, found in walk.problems.items():
        for text, count in found.most_common(40):
            print(f"{kind}: {text}" + (f" (×{count})" if count > 1 else ""))
        if len(found) > 40:
            print(f"{kind}: {len(found) - 40} more")
    counts = {kind: len(found) for kind, found in walk.problems.items()}
    print(json.dumps({"operations": len(walk.operations), "requests": walk.requests, **counts}))
    return int(any(counts.values()))


if __name__ == "__main__":
    sys.exit(main())
