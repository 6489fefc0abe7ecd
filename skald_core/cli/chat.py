"""``skald chat``, and ``skald run`` without ``--json``: a client of the running server."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

from skald_core.cli.client import EXIT_USAGE, Client, CliError, ServerError
from skald_core.cli.run import Signals, check_choices, open_conversation, send, status_of

__all__ = ("once", "plugin_over_http", "run")


def run(args: argparse.Namespace) -> int:
    return asyncio.run(_chat(args))


async def _conversation(client: Client, args: argparse.Namespace) -> str:
    return await open_conversation(client, args, await check_choices(client, args))


class _Printer:
    """Shows one turn: the answer on stdout, everything else on stderr (``quiet``) or inline."""

    def __init__(self, client: Client, conversation: str, *, inline: bool) -> None:
        self._client = client
        self._conversation = conversation
        self._inline = inline
        self._asked: set[str] = set()
        self._steps: dict[int, int] = {}
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
            case "tool_progress" if isinstance(event["data"].get("steps"), list):
                self._agent_at_work(event["call_id"], event["data"])
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

    def _agent_at_work(self, call: int, data: dict[str, Any]) -> None:
        """The calls of an agent that works for this one, each once."""
        total = data["steps_before"] + len(data["steps"])
        fresh = total - self._steps.get(call, 0)
        self._steps[call] = total
        for step in data["steps"][-fresh:] if fresh > 0 else ():
            self._note(f"    · {step['agent'] or data['name']}: {step['summary']}")

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
    await send(client, conversation, text, secrets.token_hex(12))
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


async def once(args: argparse.Namespace, signals: Signals) -> int:
    """Ask once and print the answer; the exit status is the line protocol's. A signal stops the run."""
    prompt = sys.stdin.read() if args.prompt == "-" else args.prompt
    if not prompt.strip():
        raise CliError("the prompt is empty", EXIT_USAGE)
    client = await Client.sign_in(args.url, args.user)
    stops: set[asyncio.Task[Any]] = set()
    try:
        conversation = await _conversation(client, args)
        path = f"/api/conversations/{conversation}"
        signals.heard = lambda: stops.add(asyncio.ensure_future(client.call("POST", f"{path}/stop")))
        async with client.events(conversation) as events:
            end = await _turn(client, conversation, _Printer(client, conversation, inline=False), events, prompt)
        page = await client.call("GET", f"{path}/messages?limit=20")
        answers = [m for m in page["items"] if m["role"] == "assistant" and m["content"].strip()]
        if answers and page["items"][-1]["role"] == "assistant":
            print(answers[-1]["content"].strip())
        return signals.status or status_of(str(end.get("outcome")), str((end.get("error") or {}).get("kind", "")))
    finally:
        await asyncio.gather(*stops, return_exceptions=True)
        await client.close()


async def _chat(args: argparse.Namespace) -> int:
    client = await Client.sign_in(args.url, args.user)
    loop = asyncio.get_running_loop()
    try:
        conversation = await _conversation(client, args)
        printer = _Printer(client, conversation, inline=True)
        print("Type a message; an empty line or Ctrl-D ends. Ctrl-C stops an answer.")
        for command in await client.call("GET", "/api/commands"):
            print(f"  {'/' + ' '.join(filter(None, (command['name'], command['hint']))):<24} {command['title']}")
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
                except ServerError as error:
                    if error.http_status not in (413, 422):
                        raise
                    print(f"  ! {error.detail}")  # the words were not taken, and nothing of them was stored
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
