"""``skald chat`` and ``skald run``: a client of the running server, over the same HTTP and WebSocket the browser uses."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import getpass
import json
import os
import secrets
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from skald_core.errors import SkaldError

__all__ = ("plugin_over_http", "run")

DEFAULT_URL = "http://127.0.0.1:9000"


class CliError(SkaldError):
    """Told to the person as it is."""


def run(args: argparse.Namespace) -> int:
    return asyncio.run(_chat(args) if args.command == "chat" else _once(args))


def _session_file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "skald" / "sessions.json"


class Client:
    """A signed-in connection. The session token is kept in a file only its owner can read."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.http = httpx.AsyncClient(base_url=self.url, timeout=60.0, trust_env=False)

    @classmethod
    async def sign_in(cls, url: str | None, user: str | None) -> Client:
        """Use the stored session, else ask. Raises CliError with what to do."""
        client = cls(url or os.environ.get("SKALD_URL") or DEFAULT_URL)
        stored = _load_sessions().get(client.url)
        if stored and not user and "SKALD_PASSWORD" not in os.environ:
            client.http.cookies.set("skald_session", stored)
            if (await client._request("GET", "/api/auth/me")).status_code == 200:
                return client
            client.http.cookies.clear()
        name = user or os.environ.get("SKALD_USER")
        password = os.environ.get("SKALD_PASSWORD")
        if name is None or password is None:
            if not sys.stdin.isatty():
                raise CliError(
                    "sign in first: set SKALD_USER and SKALD_PASSWORD, or run 'skald chat' in a terminal once"
                )
            name = name or (await asyncio.to_thread(input, "User name: "))
            password = password or await asyncio.to_thread(getpass.getpass, "Password: ")
        await client.call("POST", "/api/auth/login", {"username": name, "password": password})
        _save_session(client.url, client.http.cookies.get("skald_session") or "")
        return client

    async def _request(self, method: str, path: str, body: Any = None) -> httpx.Response:
        try:
            return await self.http.request(method, path, json=body)
        except httpx.TransportError:
            raise CliError(
                f"no Skald answers at {self.url}; start it with 'skald serve' (or ./run.sh), or give --url"
            ) from None

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """A JSON answer; raises CliError with the server's own sentence."""
        answer = await self._request(method, path, body)
        if answer.status_code >= 400:
            try:
                detail = answer.json()["detail"]
            except (ValueError, KeyError):
                detail = f"the server answered {answer.status_code}"
            raise CliError(str(detail))
        return answer.json() if answer.content else None

    @contextlib.asynccontextmanager
    async def events(self, conversation: str) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """The live events of one conversation; it is subscribed, and its snapshot read, when the block begins.

        Reconnects and resumes by itself; a later ``snapshot`` event means that some events could not be had again.
        """
        async with contextlib.aclosing(self._events(conversation)) as stream:
            await anext(stream)
            yield stream

    async def _events(self, conversation: str) -> AsyncGenerator[dict[str, Any], None]:
        from websockets.asyncio.client import connect
        from websockets.exceptions import WebSocketException

        url = "ws" + self.url.removeprefix("http") + "/api/ws"
        cookie = f"skald_session={self.http.cookies.get('skald_session')}"
        epoch: str | None = None
        after: int | None = None
        pause = 0.2
        while True:
            try:
                async with connect(
                    url, additional_headers={"Cookie": cookie}, max_size=None, max_queue=None, proxy=None
                ) as socket:
                    ask = {"type": "subscribe", "conversation": conversation, "epoch": epoch, "after": after}
                    await socket.send(json.dumps(ask))
                    async for text in socket:
                        event = json.loads(text)
                        pause = 0.2
                        if event["type"] == "signed_out":
                            raise CliError("you were signed out; run the command again")
                        if event.get("conversation") != conversation:
                            continue
                        epoch = event.get("epoch", epoch)
                        if event["type"] != "snapshot" and after is not None and event["seq"] <= after:
                            continue
                        after = event["seq"]
                        yield event
            except (OSError, WebSocketException):
                pass
            await asyncio.sleep(pause)
            pause = min(pause * 2, 5.0)

    async def close(self) -> None:
        await self.http.aclose()


def _load_sessions() -> dict[str, str]:
    try:
        loaded = json.loads(_session_file().read_text())
    except (OSError, ValueError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def _save_session(url: str, token: str) -> None:
    path = _session_file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_suffix(".new")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as handle:
        json.dump(_load_sessions() | {url: token}, handle)
    fresh.replace(path)


async def _conversation(client: Client, args: argparse.Namespace) -> str:
    model = None
    if args.model:
        rows = await client.call("GET", "/api/models")
        found = [m for m in rows if args.model in (m["id"], m["title"], m["model"])]
        if not found:
            raise CliError(f"there is no model {args.model!r}; known: {', '.join(m['title'] for m in rows) or 'none'}")
        model = found[0]["id"]
    if args.conversation:
        if model:
            await client.call("PATCH", f"/api/conversations/{args.conversation}", {"model": model})
        return str(args.conversation)
    made = await client.call("POST", "/api/conversations", {"client_id": secrets.token_hex(12), "model": model})
    return str(made["id"])


async def _send(client: Client, conversation: str, text: str) -> None:
    body = {"client_id": secrets.token_hex(12), "content": text}
    await client.call("POST", f"/api/conversations/{conversation}/messages", body)


class _Printer:
    """Shows one turn: the answer on stdout, everything else on stderr (``quiet``) or inline."""

    def __init__(self, client: Client, conversation: str, *, inline: bool) -> None:
        self._client = client
        self._conversation = conversation
        self._inline = inline
        self._asked: set[str] = set()
        self._mid_line = False

    def _note(self, text: str) -> None:
        if self._inline and self._mid_line:
            print()
            self._mid_line = False
        print(text, file=sys.stdout if self._inline else sys.stderr, flush=True)

    async def show(self, event: dict[str, Any]) -> bool:
        """Returns True when the turn is over."""
        match event["type"]:
            case "token_delta" if event["kind"] == "content" and self._inline:
                print(event["delta"], end="", flush=True)
                self._mid_line = True
            case "assistant_message" if self._inline and self._mid_line:
                print()
                self._mid_line = False
            case "tool_start":
                self._note(f"  · {event['call'].get('summary') or event['call']['name']}")
            case "model_fallback":
                self._note(f"  · {event['from']} failed, asking {event['to']}")
            case "notice":
                self._note(f"  ! {event['text']}")
            case "approval_required":
                await self.decide(event["request"])
            case "turn_finished":
                error = event.get("error")
                if error:
                    self._note(f"  ! {error['message']}")
                return True
        return False

    async def decide(self, request: dict[str, Any]) -> None:
        if request["id"] in self._asked:
            return
        self._asked.add(request["id"])
        self._note(f"\n  {request.get('summary') or request.get('tool')}")
        for change in (request.get("details") or {}).get("changes", []):
            for line in str(change.get("diff", "")).splitlines()[:60]:
                self._note("    " + line)
        if not sys.stdin.isatty():
            self._note("  waiting: answer it in the browser's inbox")
            return
        labels = {"a": "allow_once", "c": "allow_conversation", "d": "deny"}
        offered = {c["id"] for c in request["choices"]}
        question = (
            "  [a]llow once, "
            + ("allow for this [c]onversation, " if "allow_conversation" in offered else "")
            + "[d]eny? "
        )
        while True:
            key = (await asyncio.to_thread(input, question)).strip().lower()[:1]
            choice = labels.get(key)
            if choice in offered:
                break
        try:
            await self._client.call("POST", f"/api/requests/{request['id']}/answer", {"choice": choice})
        except CliError as error:
            self._note(f"  {error.detail}")


async def _turn(
    client: Client, conversation: str, printer: _Printer, events: AsyncIterator[dict[str, Any]], text: str
) -> dict[str, Any]:
    """Send and follow one turn to its end; returns the last event."""
    await _send(client, conversation, text)
    async for event in events:
        if event["type"] == "snapshot":
            for request in event["requests"]:
                await printer.decide(request)
            if event["turn"] is None and not event["queue"]:
                failed = (event["messages"] or [{}])[-1].get("error")
                return {"type": "turn_finished", "outcome": "error" if failed else "success", "error": failed}
            continue
        if await printer.show(event):
            return event
    raise CliError("the connection ended")


async def _once(args: argparse.Namespace) -> int:
    prompt = sys.stdin.read() if args.prompt == "-" else args.prompt
    client = await Client.sign_in(args.url, args.user)
    try:
        conversation = await _conversation(client, args)
        async with client.events(conversation) as events:
            end = await _turn(client, conversation, _Printer(client, conversation, inline=False), events, prompt)
        page = await client.call("GET", f"/api/conversations/{conversation}/messages?limit=20")
        answers = [m for m in page["items"] if m["role"] == "assistant" and m["content"].strip()]
        if answers and page["items"][-1]["role"] == "assistant":
            print(answers[-1]["content"].strip())
        return 0 if end.get("outcome") == "success" else 1
    finally:
        await client.close()


async def _chat(args: argparse.Namespace) -> int:
    client = await Client.sign_in(args.url, args.user)
    loop = asyncio.get_running_loop()
    try:
        conversation = await _conversation(client, args)
        printer = _Printer(client, conversation, inline=True)
        print("Type a message; an empty line or Ctrl-D ends. Ctrl-C stops an answer.")
        async with client.events(conversation) as events:
            while True:
                try:
                    text = (await asyncio.to_thread(input, "\n> ")).strip()
                except EOFError:
                    print()
                    return 0
                if not text:
                    return 0
                stops: set[asyncio.Task[Any]] = set()

                def stop(stops: set[asyncio.Task[Any]] = stops) -> None:
                    task = asyncio.ensure_future(client.call("POST", f"/api/conversations/{conversation}/stop"))
                    stops.add(task)

                loop.add_signal_handler(signal.SIGINT, stop)
                try:
                    await _turn(client, conversation, printer, events, text)
                finally:
                    loop.remove_signal_handler(signal.SIGINT)
                    await asyncio.gather(*stops, return_exceptions=True)
    finally:
        await client.close()


async def plugin_over_http(args: argparse.Namespace) -> int:
    """Enable or disable through the running server, which does it at once."""
    client = await Client.sign_in(args.url, args.user)
    try:
        row = await client.call("POST", f"/api/plugins/{args.id}/{args.act}")
    finally:
        await client.close()
    error = row.get("error")
    print(f"{row['id']} is {row['state']}" + (f": {error['message']}" if error else ""))
    return 1 if args.act == "enable" and row["state"] != "running" else 0
