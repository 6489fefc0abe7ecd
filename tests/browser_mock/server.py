"""A stand-in for the server: docs/http-api.md, with scripted answers. See README.md beside this file."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import mimetypes
import re
import socket
import time
import traceback
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import uvicorn
from plugin_world import SAMPLES as PLATFORM
from plugin_world import PluginWorld, Refused

Json = dict[str, Any]
Send = Callable[[Json], Awaitable[None]]

HERE = Path(__file__).resolve().parent
DIST = HERE.parents[1] / "skald_core" / "web_dist"
PASSWORD = "correct horse battery"
KEEP_EVENTS = 500

SAMPLES: Json = json.loads((HERE / "samples.json").read_text())


class Problem(Exception):
    """An error answer: status, stable code, sentence, extra members."""

    def __init__(self, status: int, code: str, detail: str = "", **extra: Any) -> None:
        super().__init__(code)
        self.status, self.code, self.detail, self.extra = status, code, detail, extra


class Conversation:
    """One conversation: messages, live text, queue, and its numbered events."""

    def __init__(self, world: World, ident: str, client_id: str) -> None:
        self.world = world
        self.id = ident
        self.client_id = client_id
        self.title = ""
        self.created = self.updated = time.time()
        self.pinned = self.unread = False
        self.model: str | None = None
        self.nodes: dict[int, Json] = {}
        self.head: int | None = None
        self.queue: list[Json] = []
        self.turn: Json | None = None
        self.live: Json | None = None
        self.seq = 0
        self.events: deque[Json] = deque(maxlen=KEEP_EVENTS)
        self.task: asyncio.Task[None] | None = None

    def branch(self) -> list[Json]:
        path: list[Json] = []
        at = self.head
        while at is not None:
            node = self.nodes[at]
            path.append(node)
            at = node["parent"]
        path.reverse()
        siblings: dict[tuple[int | None, str], list[int]] = {}
        for node in self.nodes.values():
            siblings.setdefault((node["parent"], node["role"]), []).append(node["id"])
        for node in path:
            node["siblings"] = siblings[node["parent"], node["role"]]
        return path

    def info(self) -> Json:
        waiting = any(r["conversation"] == self.id and r["status"] == "pending" for r in self.world.requests.values())
        state = "waiting" if waiting else "running" if self.turn else "idle"
        return {
            "id": self.id,
            "title": self.title,
            "created_at": self.created,
            "updated_at": self.updated,
            "state": state,
            "unread": self.unread,
            "pinned": self.pinned,
            "model": self.model,
        }

    def emit(self, event_type: str, /, **fields: Any) -> None:
        self.seq += 1
        event = {"type": event_type, "conversation": self.id, "seq": self.seq, **fields}
        self.events.append(event)
        for client in self.world.clients:
            if self.id in client.subscribed:
                client.put(event)

    def changed(self) -> None:
        self.world.broadcast({"type": "conversation_changed", "conversation_info": self.info()})

    def add(self, role: str, content: str, *, alone: bool = False, **fields: Any) -> Json:
        ident = next(self.world.ids)
        node: Json = {
            "id": ident,
            "parent": self.head,
            "siblings": [ident],
            "role": role,
            "content": content,
            "reasoning": "",
            "status": "ok",
            "synthetic": False,
            "client_id": "",
            "attachments": [],
            "model": "mock-1",
            "usage": None,
            "duration_ms": None,
            "created_at": time.time(),
            "calls": [],
            **fields,
        }
        self.nodes[ident] = node
        if not alone:
            node["siblings"] = [
                n["id"] for n in self.nodes.values() if n["parent"] == node["parent"] and n["role"] == role
            ]
        self.head = ident
        self.updated = time.time()
        return node

    def snapshot(self) -> Json:
        path = self.branch()
        return {
            "type": "snapshot",
            "conversation": self.id,
            "epoch": self.world.epoch,
            "seq": self.seq,
            "conversation_info": self.info(),
            "messages": path[-50:],
            "has_more": len(path) > 50,
            "live": self.live,
            "queue": self.queue,
            "requests": [
                r for r in self.world.requests.values() if r["conversation"] == self.id and r["status"] == "pending"
            ],
            "turn": self.turn,
        }

    # --- turns ---------------------------------------------------------------------------------------------------

    def start(self, text: str) -> None:
        self.turn = {"run_id": str(next(self.world.ids)), "started_at": time.time()}
        self.emit("turn_started", **self.turn)
        self.changed()
        self.task = asyncio.get_running_loop().create_task(self.run(text))
        self.task.add_done_callback(report)

    async def run(self, text: str) -> None:
        began = time.monotonic()
        outcome, error = "success", None
        try:
            await self.script(text)
        except asyncio.CancelledError:
            outcome = "aborted"
            self.keep_partial()
            for node in self.branch():
                for call in node["calls"]:
                    if call["state"] in ("running", "awaiting"):
                        self.done(call, "cancelled", "Stopped by the user.", "cancelled")
            for request in self.world.requests.values():
                if request["conversation"] == self.id and request["status"] == "pending":
                    request["status"] = "cancelled"
                    self.emit("approval_resolved", request=request)
            self.world.inbox_changed()
        except Problem as exc:
            outcome = "interrupted" if exc.code == "interrupted" else "error"
            error = {"kind": exc.code, "message": exc.detail, "detail": exc.extra.get("more", ""), "retryable": True}
            self.keep_partial(error)
        self.turn = None
        self.emit(
            "turn_finished",
            outcome=outcome,
            duration_ms=int((time.monotonic() - began) * 1000),
            usage=None,
            **({"error": error} if error else {}),
        )
        if not self.world.watched(self.id):
            self.unread = True
        self.changed()
        if self.queue:
            queued = self.queue.pop(0)
            self.emit("queue_changed", queue=self.queue)
            self.emit("user_message", message=self.add("user", queued["content"], client_id=queued["client_id"]))
            self.start(queued["content"])

    def keep_partial(self, error: Json | None = None) -> None:
        if self.live and (self.live["content"] or self.live["reasoning"]):
            node = self.add("assistant", self.live["content"], reasoning=self.live["reasoning"], status="partial")
            if error:
                node["error"] = error
            self.live = None
            self.emit("assistant_message", message=node)
        self.live = None

    async def script(self, text: str) -> None:
        words = text.lower()
        if "fail" in words:
            await asyncio.sleep(0.6)
            raise Problem(
                502,
                "server_html",
                "The model server answered with a web page. Check its address on the Models page.",
                more="POST /v1/chat/completions\nHTTP 502\n<!doctype html><title>Bad gateway</title>",
            )
        if "think" in words:
            await self.begin()
            await self.say(
                "**Reading the question**\n\nThe person wants a plan. I should keep it short. ", kind="reasoning"
            )
            await self.say(
                "**Choosing an order**\n\nFirst the shop, then the kitchen. That leaves time for a walk.",
                kind="reasoning",
            )
            await self.say("Start with the shop, since it closes first. Then cook, and walk while the oven is warm.")
            self.end()
        elif "read" in words:
            await self.begin()
            await self.say("I will look at the files first.")
            node = self.end(
                calls=[
                    self.call("list_files", "List files", "list", "notes/", "notes/", {"path": "notes/"}),
                    self.call(
                        "read_file", "Read file", "read", "notes/todo.md", "notes/todo.md", {"path": "notes/todo.md"}
                    ),
                    self.call(
                        "grep_files",
                        "Search in files",
                        "search",
                        "“milk” in notes/",
                        None,
                        {"pattern": "milk", "path": "notes/"},
                    ),
                ]
            )
            for call, result in zip(
                node["calls"], ["todo.md\nideas.md", "# To do\n\n- bread\n- call Ada", "no match"], strict=True
            ):
                self.emit("tool_start", message_id=node["id"], call=call)
                await asyncio.sleep(0.7)
                self.done(call, "done", result)
            await self.begin()
            await self.say("Your list has two entries: **bread** and **call Ada**. Nothing mentions milk.")
            self.end()
        elif "delegate" in words:
            await self.delegate(held="hold" in words)
        elif "write" in words or "edit" in words:
            await self.write("edit" in words)
        elif "cut" in words:
            await self.begin()
            await self.say("This answer will not reach its end because the ser")
            raise Problem(0, "interrupted", "")
        elif "markdown" in words:
            await self.begin()
            await self.say((HERE / "sample.md").read_text().strip(), pace=0.004)
            self.end()
        elif "long" in words or "fast" in words:
            await self.begin()
            count = int(m.group()) if (m := re.search(r"\d+", words)) else 200
            for n in range(1, count + 1):
                self.delta("content", f"{n} ")
                await asyncio.sleep(0.01 if "fast" in words else 0.05)
            self.end()
        else:
            await self.begin()
            await asyncio.sleep(0.25)
            await self.say(
                f"You wrote: {text.strip()[:200]}\n\nThis is a scripted answer of the stand-in server. "
                "It has a second paragraph, so that it looks like one."
            )
            self.end()

    async def delegate(self, held: bool) -> None:
        """``held``: the agent stays at its second step until /mock/go_on."""
        await self.begin()
        await self.say("I will have this looked up.")
        call = self.call(
            "delegate", "Delegate", "subagent", "Researcher: ferries to Corsica", None, {"agent": "researcher"}
        )
        node = self.end(calls=[call])
        self.emit("tool_start", message_id=node["id"], call=call)
        work: Json = {
            "agent": "researcher",
            "name": "Researcher",
            "title": "Ferries to Corsica",
            "text": "",
            "steps": [],
        }
        work["steps_before"] = 2
        for tool, title, icon, summary in (
            ("list_files", "List files", "list", "notes/"),
            ("read_file", "Read file", "read", "notes/ferries.md"),
            ("grep_files", "Search in files", "search", "“Bastia” in notes/"),
        ):
            step = {"id": len(work["steps"]) + 1, "tool": tool, "title": title, "icon": icon, "summary": summary}
            work["steps"].append({**step, "state": "running", "agent": None})
            work["step"] = f"{title}: {summary}"
            self.emit("tool_progress", call_id=call["id"], data=work)
            if held and tool == "read_file":
                await self.world.go_on.wait()
            await asyncio.sleep(0.4)
            work["steps"][-1]["state"] = "done"
        work.update(text="There are **two** ferries a day.", step="")
        self.emit("tool_progress", call_id=call["id"], data=work)
        await asyncio.sleep(0.6)
        self.done(call, "done", "Two ferries a day, at 8 and at 20.")
        await self.begin()
        await self.say("There are two ferries a day, at 8 and at 20.")
        self.end()

    async def write(self, edit: bool) -> None:
        await self.begin()
        await self.say("I will add milk to your list, since you said the fridge is empty.")
        content = "# To do\n\n- bread\n- milk\n- call Ada about Sunday\n"
        call = self.call(
            "edit_file" if edit else "write_file",
            "Edit file" if edit else "Write file",
            "edit",
            "notes/todo.md",
            "notes/todo.md",
            {"path": "notes/todo.md", "content": content},
        )
        node = self.end(calls=[call])
        self.emit("tool_start", message_id=node["id"], call=call)
        lines = [f" line {n} stays as it is" for n in range(1, 41)] if "edit" in call["name"] else []
        if edit:
            diff = (
                "--- a/notes/todo.md\n+++ b/notes/todo.md\n@@ -1,44 +1,45 @@\n # To do\n \n"
                "-- bread from the shop at the corner\n+- bread from the bakery at the corner\n+- milk\n"
                " - call Ada about Sunday\n" + "\n".join(lines) + "\n"
            )
            change = {"path": "notes/todo.md", "kind": "edit", "diff": diff, "added": 2, "removed": 1}
        else:
            diff = "--- /dev/null\n+++ b/notes/todo.md\n@@ -0,0 +1,5 @@\n" + "".join(
                f"+{line}\n" for line in content.splitlines()
            )
            change = {"path": "notes/todo.md", "kind": "create", "diff": diff, "added": 5, "removed": 0}
        request = self.world.ask(self, call, change)
        call["state"] = "awaiting"
        self.emit("approval_required", request=request)
        self.changed()
        answer = await self.world.answers[request["id"]]
        self.changed()
        if answer["allow"]:
            call["state"] = "running"
            self.emit("tool_start", message_id=node["id"], call=call)
            await asyncio.sleep(0.4)
            self.done(call, "done", "Wrote 5 lines to notes/todo.md.", display={"changes": [change]})
            await self.begin()
            await self.say("Done. `notes/todo.md` now has three entries.")
        else:
            self.done(call, "rejected", f"The person refused: {answer.get('note') or 'no reason given'}", "rejected")
            await self.begin()
            await self.say("All right, I left the file as it is.")
        self.end()

    async def begin(self) -> None:
        self.live = {
            "message_id": next(self.world.ids),
            "content": "",
            "reasoning": "",
            "model": "mock-1",
            "started_at": time.time(),
        }
        self.emit("assistant_started", model="mock-1")
        await asyncio.sleep(0.35)

    def delta(self, kind: str, text: str) -> None:
        if self.live is not None:
            self.live[kind] += text
        self.emit("token_delta", kind=kind, delta=text)

    async def say(self, text: str, kind: str = "content", pace: float = 0.025) -> None:
        for piece in re.findall(r"\s*\S{1,7}|\s+", text):
            self.delta(kind, piece)
            await asyncio.sleep(pace)

    def end(self, calls: list[Json] | None = None) -> Json:
        live = self.live or {"content": "", "reasoning": ""}
        node = self.add(
            "assistant",
            live["content"],
            reasoning=live["reasoning"],
            calls=calls or [],
            duration_ms=1840,
            usage={"input_tokens": 4812, "output_tokens": len(live["content"]) // 4},
        )
        self.live = None
        self.emit("assistant_message", message=node)
        return node

    def call(self, name: str, title: str, icon: str, summary: str, path: str | None, arguments: Json) -> Json:
        return {
            "id": next(self.world.ids),
            "name": name,
            "title": title,
            "icon": icon,
            "summary": summary,
            "path": path,
            "arguments": json.dumps(arguments),
            "state": "running",
            "result": None,
            "result_kind": None,
            "duration_ms": None,
        }

    def done(self, call: Json, state: str, result: str, kind: str = "text", display: Json | None = None) -> None:
        call.update(state=state, result=result, result_kind=kind, duration_ms=420)
        if display:
            call["display"] = display
        self.emit(
            "tool_done",
            call_id=call["id"],
            state=state,
            result=result,
            result_kind=kind,
            duration_ms=420,
            **({"display": display} if display else {}),
        )


def report(task: asyncio.Task[None]) -> None:
    """A script that breaks is a fault of the stand-in: say so."""
    if not task.cancelled() and (error := task.exception()) is not None:
        traceback.print_exception(error)


class Client:
    """One socket."""

    def __init__(self) -> None:
        self.outbox: asyncio.Queue[Json | None] = asyncio.Queue()
        self.subscribed: set[str] = set()

    def put(self, event: Json) -> None:
        self.outbox.put_nowait(json.loads(json.dumps(event)))


class World:
    """Everything the stand-in knows."""

    def __init__(
        self,
        *,
        setup: bool,
        gate: bool,
        models: bool,
        history: int,
        role: str = "admin",
        advice: bool = False,
        pace: float = 0.8,
    ) -> None:
        self.ids = itertools.count(1)
        self.epoch = f"e{time.time_ns()}"
        self.needs_setup = setup
        self.sessions: set[str] = set()
        self.user: Json = {
            "id": "u1",
            "username": "ada",
            "display_name": "Ada",
            "role": role,
            "encrypted": True,
            "locale": "en",
            "instance_locale": "en",
            "capabilities": ["users.manage", "models.manage", "plugin.manage"] if role == "admin" else [],
            "gate": gate,
            "gate_plugins": [{"id": "approval", "title": "Approval"}],
        }
        self.conversations: dict[str, Conversation] = {}
        self.requests: dict[str, Json] = {}
        self.answers: dict[str, asyncio.Future[Json]] = {}
        self.clients: list[Client] = []
        self.refuse = False
        self.go_on = asyncio.Event()
        self.sends: list[Json] = []
        self.providers: list[Json] = []
        self.models: list[Json] = []
        self.platform = PluginWorld(self.broadcast, advice=advice, pace=pace)
        if models:
            self.providers = [
                {
                    "id": "p1",
                    "type": "openai",
                    "name": "Ollama",
                    "settings": {"base_url": "http://127.0.0.1:11434/v1"},
                    "secrets": {"api_key": True},
                }
            ]
            self.models = [
                self.model("p1", "qwen2.5-coder:7b", "Qwen 2.5 Coder 7B"),
                self.model(
                    "p1",
                    "llama3.2:3b",
                    "Llama 3.2 3B",
                    weak=True,
                    health="degraded",
                    last_error="The server closed the connection twice in ten minutes.",
                ),
            ]
        for days, title in [
            (0, "Shopping for Sunday"),
            (0, "Fix the greeting script"),
            (1, "Letter to the landlord"),
            (3, "Sourdough plan"),
            (40, "Trip to the lakes"),
        ]:
            conversation = self.create(f"seed-{title}", title)
            conversation.pinned = title == "Sourdough plan"
            conversation.unread = title == "Letter to the landlord"
            conversation.add("user", f"About: {title}")
            conversation.add("assistant", f"Here is what I think about *{title.lower()}*.")
            conversation.updated -= days * 86_400 + len(title)
        if history:
            conversation = self.create("seed-history", f"{history} messages")
            for n in range(history // 2):
                conversation.add("user", f"Question {n + 1}: what about item {n + 1}?", alone=True)
                conversation.add(
                    "assistant",
                    f"Answer {n + 1}. " + "It depends on *several* things, such as `size` and colour. " * (1 + n % 5),
                    alone=True,
                )

    def model(
        self,
        provider: str,
        model: str,
        title: str,
        *,
        weak: bool = False,
        health: str = "ok",
        last_error: str | None = None,
    ) -> Json:
        return {
            "id": f"m{next(self.ids)}",
            "provider": provider,
            "provider_name": "Ollama",
            "type": "openai",
            "model": model,
            "title": title,
            "priority": len(self.models),
            "enabled": True,
            "info": {"context_window": 32768, "capabilities": ["tools"], "weak": weak},
            "health": health,
            "last_error": last_error,
        }

    def create(self, client_id: str, title: str = "") -> Conversation:
        for known in self.conversations.values():
            if known.client_id == client_id:
                return known
        conversation = Conversation(self, f"c{next(self.ids)}", client_id)
        conversation.title = title
        self.conversations[conversation.id] = conversation
        return conversation

    def watched(self, ident: str) -> bool:
        return any(ident in client.subscribed for client in self.clients)

    def broadcast(self, event: Json) -> None:
        for client in self.clients:
            client.put(event)

    def pending(self) -> list[Json]:
        return [r for r in self.requests.values() if r["status"] == "pending"]

    def inbox_changed(self) -> None:
        self.broadcast({"type": "inbox_changed", "pending": len(self.pending())})

    def ask(self, conversation: Conversation, call: Json, change: Json) -> Json:
        ident = f"r{next(self.ids)}"
        request: Json = {
            "id": ident,
            "kind": "approval",
            "status": "pending",
            "conversation": conversation.id,
            "conversation_title": conversation.title,
            "call_id": call["id"],
            "tool": call["name"],
            "title": call["title"],
            "icon": call["icon"],
            "summary": call["summary"],
            "path": call["path"],
            "arguments": json.loads(call["arguments"]),
            "reason": "Writing files is not allowed without asking.",
            "why": "I will add milk to your list, since you said the fridge is empty.",
            "agent": "Assistant",
            "details": {"changes": [change], "risk": "medium"},
            "choices": [
                {"id": "allow_once", "label": "Allow once", "allow": True, "note": False},
                {"id": "allow_conversation", "label": "Allow for this conversation", "allow": True, "note": False},
                {"id": "deny", "label": "Deny", "allow": False, "note": True},
            ],
            "created_at": time.time(),
            "expires_at": time.time() + 3600,
        }
        self.requests[ident] = request
        self.answers[ident] = asyncio.get_running_loop().create_future()
        self.inbox_changed()
        return request

    def raise_again(self, ident: str) -> Json:
        old = self.requests[ident]
        if old["status"] != "expired":
            raise Problem(409, "not_expired", "Only an expired request can be raised again.")
        fresh = {**old, "id": f"r{next(self.ids)}", "status": "pending", "expires_at": time.time() + 3600}
        old["status"] = "raised"
        self.requests[fresh["id"]] = fresh
        self.answers[fresh["id"]] = self.answers[ident]
        self.conversations[fresh["conversation"]].emit("approval_required", request=fresh)
        self.inbox_changed()
        return old

    def answer(self, ident: str, body: Json) -> Json:
        request = self.requests.get(ident)
        if request is None:
            raise Problem(404, "not_found")
        if request["status"] != "pending":
            raise Problem(409, "already_answered", "This was already answered.")
        choice = next(c for c in request["choices"] if c["id"] == body["choice"])
        request["status"] = "answered"
        request["answer"] = {"choice": choice["id"], "allow": choice["allow"], "note": body.get("note", "")}
        self.conversations[request["conversation"]].emit("approval_resolved", request=request)
        self.inbox_changed()
        self.answers[ident].set_result(request["answer"])
        return request


class App:
    """The ASGI application."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def __call__(self, scope: Json, receive: Callable[[], Awaitable[Json]], send: Send) -> None:
        if scope["type"] == "lifespan":
            while True:
                message = await receive()
                await send({"type": f"{message['type']}.complete"})
                if message["type"] == "lifespan.shutdown":
                    return
        if scope["type"] == "websocket":
            await self.websocket(scope, receive, send)
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        path, method = scope["path"], scope["method"]
        if not path.startswith(("/api/", "/mock/", "/healthz")):
            await self.static(path, send)
            return
        if path.startswith("/api/plugin/demo/web/"):
            script = HERE / ("broken-page.js" if path.endswith("broken.js") else "demo-page.js")
            await self.reply(send, 200, script.read_bytes(), "text/javascript")
            return
        try:
            data = json.loads(body) if body else {}
            query = {k: v[0] for k, v in parse_qs(scope["query_string"].decode()).items()}
            cookie = dict(scope["headers"]).get(b"cookie", b"").decode()
            result, cookies = self.route(method, path, data, query, cookie)
            if asyncio.iscoroutine(result):
                result = await result
            status = (
                204
                if result is None
                else 202
                if method == "POST"
                and re.search(r"/(messages|stop|retry|continue|edit|regenerate|raise|plans|jobs)$", path)
                else 200
            )
            await self.reply(send, status, b"" if result is None else json.dumps(result).encode(), cookies=cookies)
        except (Problem, Refused) as exc:
            problem = {
                "type": "about:blank",
                "title": exc.code,
                "status": exc.status,
                "detail": exc.detail,
                "code": exc.code,
                **exc.extra,
            }
            await self.reply(send, exc.status, json.dumps(problem).encode(), "application/problem+json")

    async def reply(
        self,
        send: Send,
        status: int,
        body: bytes,
        kind: str = "application/json",
        cookies: str = "",
        extra: list[tuple[bytes, bytes]] | None = None,
    ) -> None:
        headers = [(b"content-type", kind.encode()), (b"x-content-type-options", b"nosniff"), *(extra or [])]
        if cookies:
            headers.append((b"set-cookie", cookies.encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def static(self, path: str, send: Send) -> None:
        if path.startswith("/assets/"):
            file = (DIST / path.lstrip("/")).resolve()
            if DIST not in file.parents or not file.is_file():
                await self.reply(send, 404, b"")
                return
            kind = (
                {".webmanifest": "application/manifest+json", ".js": "text/javascript"}.get(file.suffix)
                or mimetypes.guess_type(file.name)[0]
                or "application/octet-stream"
            )
            cache = [(b"cache-control", b"public, max-age=31536000, immutable")]
            await self.reply(send, 200, file.read_bytes(), kind, extra=cache)
            return
        hashes = " ".join(f"'{h}'" for h in json.loads((DIST / "csp.json").read_text())["script_hashes"])
        csp = (
            f"default-src 'none'; script-src 'self' {hashes}; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
            "font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
            "require-trusted-types-for 'script'; trusted-types lit-html dompurify"
        )
        await self.reply(
            send,
            200,
            (DIST / "index.html").read_bytes(),
            "text/html; charset=utf-8",
            extra=[(b"content-security-policy", csp.encode()), (b"cache-control", b"no-cache")],
        )

    # --- HTTP ----------------------------------------------------------------------------------------------------

    def route(self, method: str, path: str, data: Json, query: Json, cookie: str) -> tuple[Any, str]:
        world = self.world
        if path.startswith("/mock/"):
            return self.control(path.removeprefix("/mock/"), data), ""
        if world.refuse:
            raise Problem(503, "unavailable", "The server is busy. Try again.")
        session = re.search(r"skald_session=(\w+)", cookie)
        signed_in = bool(session and session.group(1) in world.sessions)
        if path == "/healthz":
            return {"status": "ok", "version": "mock"}, ""
        if path == "/api/setup" and method == "GET":
            return {"needed": world.needs_setup, "locales": ["en", "it", "fr"], "password_min": 10}, ""
        if path == "/api/setup":
            if data["token"] != "letmein":
                raise Problem(403, "setup_token", "This set-up link is not valid. Use the newest link in the console.")
            world.needs_setup = False
            world.user.update(
                username=data["username"],
                display_name=data["display_name"],
                encrypted=data["encrypted"],
                locale=data["locale"],
            )
            return world.user, self.sign_in()
        if path == "/api/auth/login":
            if data["username"] != world.user["username"] or data["password"] != PASSWORD:
                raise Problem(401, "bad_credentials", "User name or password is wrong.")
            return world.user, self.sign_in()
        if path.startswith("/api/i18n/"):
            return {"plugin.demo.title": "Demo"}, ""
        if not signed_in:
            raise Problem(401, "not_signed_in", "Sign in first.")
        if path == "/api/auth/logout":
            world.sessions.clear()
            return None, "skald_session=; Max-Age=0; Path=/"
        name, groups = self.match(method, path)
        return getattr(self, f"do_{name}")(*groups, data=data, query=query), ""

    ROUTES = (
        ("GET", r"/api/auth/me", "me"),
        ("PUT", r"/api/auth/profile", "profile"),
        ("POST", r"/api/auth/password", "password"),
        ("GET", r"/api/conversations", "list"),
        ("POST", r"/api/conversations", "create"),
        ("GET|PATCH|DELETE", r"/api/conversations/([^/]+)", "conversation"),
        ("GET", r"/api/conversations/([^/]+)/messages", "messages"),
        ("POST", r"/api/conversations/([^/]+)/messages", "send"),
        ("POST", r"/api/conversations/([^/]+)/(stop|retry|continue|edit|regenerate|head|compact)", "act"),
        ("PATCH|DELETE", r"/api/conversations/([^/]+)/queue/([^/]+)", "queue"),
        ("GET", r"/api/conversations/([^/]+)/export", "export"),
        ("POST", r"/api/conversations/import", "import"),
        ("DELETE", r"/api/conversations/([^/]+)/messages/([^/]+)", "delete_turn"),
        ("GET", r"/api/commands", "commands"),
        ("GET", r"/api/inbox", "inbox"),
        ("POST", r"/api/requests/([^/]+)/raise", "raise"),
        ("POST", r"/api/requests/([^/]+)/answer", "answer"),
        ("GET", r"/api/provider-types", "types"),
        ("GET|POST", r"/api/providers", "providers"),
        ("POST", r"/api/providers/test", "test"),
        ("GET", r"/api/providers/discover", "discover"),
        ("PATCH|DELETE", r"/api/providers/([^/]+)", "provider"),
        ("GET|POST", r"/api/models", "models"),
        ("PUT", r"/api/models/order", "order"),
        ("POST", r"/api/models/([^/]+)/test", "try"),
        ("PATCH|DELETE", r"/api/models/([^/]+)", "model"),
        ("GET", r"/api/plugins", "plugins"),
        ("GET", r"/api/plugins/pages", "pages"),
        ("GET", r"/api/plugins/available", "available"),
        ("GET", r"/api/plugins/remains", "remains"),
        ("POST", r"/api/plugins/plans", "plan"),
        ("GET|POST", r"/api/plugins/jobs", "jobs"),
        ("GET", r"/api/plugins/jobs/([^/]+)", "job"),
        ("GET", r"/api/plugins/([^/]+)", "plugin"),
        ("PUT", r"/api/plugins/([^/]+)/access", "access"),
        ("POST", r"/api/plugins/([^/]+)/health", "health"),
        ("GET|PUT", r"/api/plugins/([^/]+)/config", "config"),
        ("POST", r"/api/plugins/([^/]+)/config/test", "config_test"),
        ("POST", r"/api/plugins/([^/]+)/(enable|disable)", "switch"),
        ("GET", r"/api/my/plugins", "my_plugins"),
        ("GET|PUT", r"/api/my/plugins/([^/]+)/config", "my_config"),
        ("POST", r"/api/my/plugins/([^/]+)/config/test", "config_test"),
        ("GET|POST", r"/api/users", "users"),
        ("PATCH|DELETE", r"/api/users/([^/]+)", "user"),
        ("POST", r"/api/users/([^/]+)/password", "user_password"),
    )

    def match(self, method: str, path: str) -> tuple[str, tuple[str, ...]]:
        for methods, pattern, name in self.ROUTES:
            found = re.fullmatch(pattern, path)
            if found and method in methods.split("|"):
                self.method = method
                return name, found.groups()
        raise Problem(404, "not_found", "There is nothing at this address.")

    def sign_in(self) -> str:
        token = f"s{time.time_ns()}"
        self.world.sessions.add(token)
        return f"skald_session={token}; Path=/; HttpOnly; SameSite=Strict"

    def control(self, act: str, data: Json) -> Json:
        world = self.world
        if act == "drop":
            for client in world.clients:
                client.outbox.put_nowait(None)
        elif act == "refuse":
            world.refuse = bool(data.get("on"))
            if world.refuse:
                for client in world.clients:
                    client.outbox.put_nowait(None)
        elif act == "expire":
            world.sessions.clear()
            world.broadcast({"type": "signed_out", "reason": "expired"})
        elif act == "gate":
            world.user["gate"] = bool(data.get("on"))
            world.broadcast({"type": "plugins_changed", "id": "approval"})
        elif act == "go_on":
            world.go_on.set()
        elif act == "fail_job":
            world.platform.fail_next = True
        elif act == "expire_requests":
            for request in world.pending():
                request["status"] = "expired"
                world.conversations[request["conversation"]].emit("approval_resolved", request=request)
            world.inbox_changed()
        return {
            "sends": world.sends,
            "messages": {c.id: [m["content"] for m in c.branch()] for c in world.conversations.values()},
        }

    def find(self, ident: str) -> Conversation:
        if ident not in self.world.conversations:
            raise Problem(404, "not_found", "This conversation does not exist.")
        return self.world.conversations[ident]

    def do_me(self, **_: Any) -> Json:
        return self.world.user

    def do_profile(self, data: Json, **_: Any) -> Json:
        self.world.user.update(data)
        return self.world.user

    def do_password(self, data: Json, **_: Any) -> None:
        if data["old"] != PASSWORD:
            raise Problem(401, "bad_credentials", "The present password is wrong.")

    def do_list(self, query: Json, **_: Any) -> Json:
        items = sorted(self.world.conversations.values(), key=lambda c: -c.updated)
        if query.get("q"):
            items = [
                c for c in items if query["q"].lower() in (c.title + " ".join(n["content"] for n in c.branch())).lower()
            ]
        return {"items": [c.info() for c in items], "next": None}

    def do_create(self, data: Json, **_: Any) -> Json:
        conversation = self.world.create(data["client_id"], data.get("title", ""))
        conversation.model = data.get("model")
        conversation.changed()
        return conversation.info()

    def do_conversation(self, ident: str, data: Json, **_: Any) -> Json | None:
        conversation = self.find(ident)
        if self.method == "DELETE":
            del self.world.conversations[ident]
            self.world.broadcast({"type": "conversation_deleted", "id": ident})
            return None
        if self.method == "PATCH":
            if data.pop("read", False):
                conversation.unread = False
            for key, value in data.items():
                setattr(conversation, key, value)
            conversation.changed()
        return conversation.info()

    def do_messages(self, ident: str, query: Json, **_: Any) -> Json:
        path = self.find(ident).branch()
        if query.get("before"):
            at = next(i for i, m in enumerate(path) if str(m["id"]) == query["before"])
            path = path[:at]
        limit = int(query.get("limit", 50))
        return {"items": path[-limit:], "has_more": len(path) > limit}

    def do_send(self, ident: str, data: Json, **_: Any) -> Json:
        conversation = self.find(ident)
        self.world.sends.append(data)
        if not data["content"].strip():
            raise Problem(422, "empty_message", "The message is empty.")
        if len(data["content"]) > 1_000_000:
            raise Problem(413, "message_too_large", "The message is longer than 1 MB. Put the text in a file.")
        for node in conversation.nodes.values():
            if node["client_id"] == data["client_id"]:
                return {"message": node}
        if conversation.turn:
            queued = {
                "id": next(self.world.ids),
                "client_id": data["client_id"],
                "content": data["content"],
                "created_at": time.time(),
            }
            conversation.queue.append(queued)
            conversation.emit("queue_changed", queue=conversation.queue)
            return {"queued": queued}
        if not conversation.title:
            conversation.title = data["content"].strip().split("\n")[0][:60]
        node = conversation.add("user", data["content"], client_id=data["client_id"])
        conversation.emit("user_message", message=node)
        conversation.start(data["content"])
        return {"message": node}

    def do_act(self, ident: str, act: str, data: Json, **_: Any) -> Json:
        conversation = self.find(ident)
        if act == "stop":
            if conversation.task:
                conversation.task.cancel()
            return {}
        if act == "compact":
            conversation.emit("compaction", messages_before=42, messages_after=6)
            return {}
        path = conversation.branch()
        if act == "head":
            target = int(data["message"])
            children = [n["id"] for n in conversation.nodes.values() if n["parent"] == target]
            while children:
                target = children[-1]
                children = [n["id"] for n in conversation.nodes.values() if n["parent"] == target]
            conversation.head = target
            conversation.emit("history_changed")
            return {}
        if conversation.turn:
            raise Problem(409, "busy", "Wait for the running answer, or stop it.")
        if act == "edit":
            conversation.head = conversation.nodes[int(data["message"])]["parent"]
            text = data["content"]
            conversation.add("user", text, client_id=data["client_id"])
        elif act == "regenerate":
            conversation.head = conversation.nodes[int(data["message"])]["parent"]
            text = next(m["content"] for m in reversed(conversation.branch()) if m["role"] == "user")
        else:
            last = next(m for m in reversed(path) if m["role"] == "user")
            text = "go on" if act == "continue" else last["content"]
            if act == "retry":
                conversation.head = last["id"]
        conversation.emit("history_changed")
        conversation.start(text.replace("fail", "it works now").replace("cut", "whole"))
        return {}

    def do_queue(self, ident: str, queued: str, data: Json, **_: Any) -> Json | None:
        conversation = self.find(ident)
        if self.method == "DELETE":
            conversation.queue = [q for q in conversation.queue if str(q["id"]) != queued]
        else:
            conversation.queue = [{**q, **data} if str(q["id"]) == queued else q for q in conversation.queue]
        conversation.emit("queue_changed", queue=conversation.queue)
        return None if self.method == "DELETE" else {}

    def do_inbox(self, query: Json, **_: Any) -> Json:
        wanted = query.get("status")
        return {
            "items": [r for r in reversed(self.world.requests.values()) if wanted in (None, r["status"])],
            "pending": len(self.world.pending()),
        }

    def do_answer(self, ident: str, data: Json, **_: Any) -> Json:
        return self.world.answer(ident, data)

    def do_types(self, **_: Any) -> list[Json]:
        types: list[Json] = SAMPLES["provider_types"]
        return types

    def do_providers(self, data: Json, **_: Any) -> Any:
        if self.method == "GET":
            return self.world.providers
        settings = dict(data["settings"])
        secret = settings.pop("api_key", "")
        provider = {
            "id": f"p{next(self.world.ids)}",
            "type": data["type"],
            "name": data["name"],
            "settings": settings,
            "secrets": {"api_key": bool(secret)},
        }
        self.world.providers.append(provider)
        return provider

    def do_provider(self, ident: str, data: Json, **_: Any) -> Any:
        provider = next(p for p in self.world.providers if p["id"] == ident)
        if self.method == "DELETE":
            self.world.providers.remove(provider)
            self.world.models = [m for m in self.world.models if m["provider"] != ident]
            self.world.broadcast({"type": "models_changed"})
            return None
        secret = data["settings"].pop("api_key", "")
        provider.update(name=data["name"], settings=data["settings"])
        provider["secrets"]["api_key"] |= bool(secret)
        return provider

    async def do_test(self, data: Json, **_: Any) -> Json:
        await asyncio.sleep(0.5)
        if "openai.com" in data["settings"].get("base_url", "") and data["settings"].get("api_key") != "good":
            return {
                "ok": False,
                "models": [],
                "error": {
                    "kind": "auth",
                    "message": "The server refused the key. Check it, or make a new one.",
                    "retryable": False,
                },
            }
        return {
            "ok": True,
            "models": [{"id": f"model-{n}", "title": "", "info": {"context_window": 8192 * n}} for n in range(1, 13)],
        }

    def do_discover(self, **_: Any) -> list[Json]:
        return [
            {
                "type": "openai",
                "title": "LM Studio",
                "settings": {"base_url": "http://127.0.0.1:1234/v1"},
                "models": [{"id": "gemma-3-4b", "title": "Gemma 3 4B"}],
            }
        ]

    def do_models(self, data: Json, **_: Any) -> Any:
        if self.method == "GET":
            return self.world.models
        model = self.world.model(data["provider"], data["model"], data.get("title") or data["model"])
        self.world.models.append(model)
        self.world.broadcast({"type": "models_changed"})
        return model

    def do_order(self, data: Json, **_: Any) -> list[Json]:
        self.world.models.sort(key=lambda m: data["ids"].index(m["id"]))
        return self.world.models

    async def do_try(self, ident: str, **_: Any) -> Json:
        await asyncio.sleep(0.4)
        return (
            {"ok": True, "text": "ok"}
            if ident == self.world.models[0]["id"]
            else {
                "ok": False,
                "error": {
                    "kind": "gone",
                    "message": "The server no longer has this model. Choose another one.",
                    "retryable": False,
                },
            }
        )

    def do_model(self, ident: str, data: Json, **_: Any) -> Any:
        model = next(m for m in self.world.models if m["id"] == ident)
        if self.method == "DELETE":
            self.world.models.remove(model)
            return None
        model.update(data)
        return model

    def do_plugins(self, **_: Any) -> list[Json]:
        return self.world.platform.plugins

    def do_plugin(self, ident: str, **_: Any) -> Json:
        return self.world.platform.detail(ident)

    def do_access(self, ident: str, data: Json, **_: Any) -> Json:
        return self.world.platform.set_access(ident, data)

    def do_health(self, ident: str, **_: Any) -> list[Json]:
        return self.world.platform.health(ident)

    def do_available(self, **_: Any) -> Json:
        platform = self.world.platform
        index = {"title": "Skald index", "source": "https://example.org/index.json", "updated_at": time.time() - 86_400}
        return {"index": index, "advice": platform.advice, "items": platform.available, "missing": platform.missing}

    def do_remains(self, **_: Any) -> list[Json]:
        return self.world.platform.remains

    def do_plan(self, data: Json, **_: Any) -> Json:
        return self.world.platform.plan(data)

    def do_jobs(self, data: Json, **_: Any) -> Any:
        platform = self.world.platform
        return list(reversed(platform.jobs.values())) if self.method == "GET" else platform.start(data)

    def do_job(self, ident: str, **_: Any) -> Json:
        job = self.world.platform.jobs.get(ident)
        if job is None:
            raise Problem(404, "job_not_found", "There is no such job.")
        return job

    def do_my_plugins(self, **_: Any) -> list[Json]:
        return self.world.platform.my_plugins()

    def do_my_config(self, ident: str, data: Json, **_: Any) -> Json:
        if self.method == "PUT":
            self.world.platform.mine = {k: v for k, v in data["values"].items() if k != "key"}
        return self.world.platform.my_form()

    def do_users(self, data: Json, **_: Any) -> Any:
        return self.world.platform.users if self.method == "GET" else self.world.platform.add_user(data)

    def do_user(self, ident: str, data: Json, **_: Any) -> Json | None:
        if self.method == "DELETE":
            self.world.platform.delete_user(ident, data)
            return None
        return self.world.platform.change_user(ident, data)

    def do_user_password(self, ident: str, **_: Any) -> None:
        self.world.platform.user(ident)

    def do_commands(self, **_: Any) -> list[Json]:
        commands: list[Json] = PLATFORM["commands"]
        return commands

    def do_raise(self, ident: str, **_: Any) -> Json:
        return self.world.raise_again(ident)

    def do_export(self, ident: str, **_: Any) -> Json:
        conversation = self.find(ident)
        return {"format": "mock", "title": conversation.title, "messages": conversation.branch()}

    def do_import(self, data: Json, query: Json, **_: Any) -> Json:
        if data.get("format") != "mock":
            raise Problem(422, "import_not_an_export", "This file is not an exported conversation.")
        conversation = self.world.create(query["client_id"], data["title"])
        for message in data["messages"]:
            conversation.add(message["role"], message["content"])
        conversation.changed()
        return conversation.info()

    def do_delete_turn(self, ident: str, message: str, **_: Any) -> Json:
        conversation = self.find(ident)
        path = conversation.branch()
        at = next(i for i, m in enumerate(path) if str(m["id"]) == message)
        end = next((i for i in range(at + 1, len(path)) if path[i]["role"] == "user"), len(path))
        for gone in path[at:end]:
            del conversation.nodes[gone["id"]]
        if end < len(path):
            path[end]["parent"] = path[at]["parent"]
        else:
            conversation.head = path[at]["parent"]
        conversation.emit("history_changed")
        return {"deleted": end - at}

    def do_pages(self, **_: Any) -> list[Json]:
        entry = "/api/plugin/demo/web/"
        return [
            {
                "plugin": "demo",
                "page_id": "main",
                "title": "plugin.demo.title",
                "icon": "rocket-takeoff",
                "entry": f"{entry}page.js",
                "admin_only": False,
                "priority": 50,
            },
            {
                "plugin": "demo",
                "page_id": "broken",
                "title": "Broken page",
                "icon": "bug",
                "entry": f"{entry}broken.js",
                "admin_only": False,
                "priority": 60,
            },
        ]

    def do_config(self, ident: str, data: Json, **_: Any) -> Json:
        platform = self.world.platform
        return platform.save_config(ident, data["values"]) if self.method == "PUT" else platform.config_form(ident)

    async def do_config_test(self, ident: str, data: Json, **_: Any) -> Json:
        return await self.world.platform.test_config(data["values"])

    def do_switch(self, ident: str, act: str, **_: Any) -> Json:
        plugin = self.world.platform.find(ident)
        plugin["enabled"] = act == "enable"
        plugin["state"] = "running" if act == "enable" else "disabled"
        plugin["error"] = None
        if ident == "approval":
            self.world.user["gate"] = plugin["enabled"]
        self.world.platform.changed(ident)
        return plugin

    # --- WebSocket -----------------------------------------------------------------------------------------------

    async def websocket(self, scope: Json, receive: Callable[[], Awaitable[Json]], send: Send) -> None:
        await receive()
        cookie = dict(scope["headers"]).get(b"cookie", b"").decode()
        session = re.search(r"skald_session=(\w+)", cookie)
        if self.world.refuse or not session or session.group(1) not in self.world.sessions:
            await send({"type": "websocket.close", "code": 4401})
            return
        await send({"type": "websocket.accept"})
        client = Client()
        self.world.clients.append(client)
        client.put({"type": "hello", "epoch": self.world.epoch, "user": self.world.user["id"]})
        loop = asyncio.get_running_loop()
        tasks = [
            loop.create_task(self.pump(client, send)),
            loop.create_task(self.hear(client, receive)),
            loop.create_task(self.ping(client)),
        ]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        self.world.clients.remove(client)
        for task in tasks:
            task.cancel()
        with contextlib.suppress(Exception):
            await send({"type": "websocket.close"})

    async def pump(self, client: Client, send: Send) -> None:
        while (event := await client.outbox.get()) is not None:
            await send({"type": "websocket.send", "text": json.dumps(event)})

    async def ping(self, client: Client) -> None:
        while True:
            await asyncio.sleep(25)
            client.put({"type": "ping"})

    async def hear(self, client: Client, receive: Callable[[], Awaitable[Json]]) -> None:
        while (message := await receive())["type"] == "websocket.receive":
            data = json.loads(message["text"])
            ident = data.get("conversation")
            if data["type"] == "unsubscribe":
                client.subscribed.discard(ident)
            elif data["type"] == "subscribe" and ident in self.world.conversations:
                conversation = self.world.conversations[ident]
                client.subscribed.add(ident)
                after, events = data.get("after"), list(conversation.events)
                first = events[0]["seq"] if events else conversation.seq + 1
                if data.get("epoch") == self.world.epoch and after is not None and after >= first - 1:
                    for event in events:
                        if event["seq"] > after:
                            client.put(event)
                else:
                    client.put(conversation.snapshot())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=9100, help="0: any free one")
    parser.add_argument("--setup", action="store_true", help="a new instance without an account")
    parser.add_argument("--no-gate", action="store_true", help="no enabled plugin judges calls")
    parser.add_argument("--member", action="store_true", help="the account manages nothing")
    parser.add_argument("--advice", action="store_true", help="packages cannot be installed from here")
    parser.add_argument("--pace", type=float, default=0.8, help="seconds each step of an install takes")
    parser.add_argument("--no-models", action="store_true")
    parser.add_argument("--history", type=int, default=0, help="fill one conversation with this many messages")
    options = parser.parse_args()
    world = World(
        setup=options.setup,
        gate=not options.no_gate,
        models=not options.no_models,
        history=options.history,
        role="member" if options.member else "admin",
        advice=options.advice,
        pace=options.pace,
    )
    listener = socket.create_server(("127.0.0.1", options.port))
    config = uvicorn.Config(App(world), log_level="warning", ws="websockets-sansio")
    link = f"http://127.0.0.1:{listener.getsockname()[1]}/" + ("setup#token=letmein" if options.setup else "")
    print(link, flush=True)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
