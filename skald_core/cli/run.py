"""``skald run``: one prompt, or a program's conversation with a conversation, through the running server.

With ``--json`` the program speaks the line protocol (docs/cli.md): every event of the loop for each of its runs on standard
output, exactly as the server encoded it, and commands on standard input. Everything that can happen (an event, a line, the end
of input, a signal, a reader that went away) arrives in one queue and is dealt with in order, one at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import secrets
import signal
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from skald_core.cli.client import (
    EXIT_AUTH,
    EXIT_CONFIG,
    EXIT_ERROR,
    EXIT_INTERRUPTED,
    EXIT_TERMINATED,
    EXIT_USAGE,
    Client,
    CliError,
    ServerError,
)
from skald_core.cli.line_protocol import Abort, BadLine, LineReader, LineWriter, PermissionResponse, Prompt, parse
from skald_core.loop.events import ErrorEvent, Lagged, ResultEvent
from skald_core.loop.types import ConversationId, FrameId, Usage

__all__ = ("Signals", "open_conversation", "run", "send", "status_of")

STOP_SECONDS = 20.0
"""How long a stopped run may take to tell its end before the program ends without it."""

FLUSH_SECONDS = 10.0
SEND_TRIES = 4

_CONFIG = "config"
_STATUS_OF_KIND = {"auth": EXIT_AUTH, _CONFIG: EXIT_CONFIG, "no_model": EXIT_CONFIG}


def status_of(outcome: str, error_kind: str) -> int:
    """The exit status of a run that ended so. ``error_kind`` is what its error event said."""
    if outcome == "success":
        return 0
    if outcome in ("aborted", "interrupted"):
        return EXIT_INTERRUPTED
    return _STATUS_OF_KIND.get(error_kind, EXIT_ERROR)


def run(args: argparse.Namespace) -> int:
    """Raises CliError for wrong use and for whatever keeps a run from beginning."""
    if args.prompt is None and not args.json:
        raise CliError("give a prompt, '-' to read it from standard input, or --json", EXIT_USAGE)
    if args.prompt == "-" and args.json:
        raise CliError("with --json standard input carries commands; send the prompt as a line", EXIT_USAGE)
    if args.interactive_permissions and not args.json:
        raise CliError("--interactive-permissions belongs to --json", EXIT_USAGE)
    if args.prompt is not None and args.prompt != "-" and not args.prompt.strip():
        raise CliError("the prompt is empty", EXIT_USAGE)
    return asyncio.run(_main(args))


class Signals:
    """SIGINT and SIGTERM: the first one is told to ``heard`` or cancels the work, the second ends the program at once."""

    def __init__(self) -> None:
        self.status = 0
        self.heard: Callable[[], None] | None = None
        self._work: asyncio.Task[Any] | None = None

    def install(self, work: asyncio.Task[Any]) -> None:
        self._work = work
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._on, EXIT_INTERRUPTED)
        loop.add_signal_handler(signal.SIGTERM, self._on, EXIT_TERMINATED)

    def _on(self, status: int) -> None:
        if self.status:
            os._exit(status)
        self.status = status
        if self.heard is not None:
            self.heard()
        elif self._work is not None:
            self._work.cancel()


async def _main(args: argparse.Namespace) -> int:
    signals = Signals()
    if args.json:
        work = asyncio.create_task(_lines(args, signals))
    else:
        from skald_core.cli.chat import once

        work = asyncio.create_task(once(args, signals))
    signals.install(work)
    try:
        return await work
    except asyncio.CancelledError:
        return signals.status or EXIT_INTERRUPTED


async def check_choices(client: Client, args: argparse.Namespace) -> str | None:
    """The id of the model asked for, or None. Raises CliError when it or the conversation does not exist."""
    if args.conversation:
        try:
            await client.call("GET", f"/api/conversations/{args.conversation}")
        except ServerError as error:
            raise CliError(error.detail, EXIT_CONFIG if error.http_status == 404 else error.exit_status) from None
    if not args.model:
        return None
    rows = await client.call("GET", "/api/models")
    found = [m for m in rows if args.model in (m["id"], m["title"], m["model"])]
    if not found:
        known = ", ".join(m["title"] for m in rows) or "none"
        raise CliError(f"there is no model {args.model!r}; known: {known}", EXIT_CONFIG)
    return str(found[0]["id"])


async def open_conversation(client: Client, args: argparse.Namespace, model: str | None) -> str:
    """The conversation to talk in: the one asked for, or a new one."""
    if args.conversation:
        if model:
            await client.call("PATCH", f"/api/conversations/{args.conversation}", {"model": model})
        return str(args.conversation)
    made = await client.call("POST", "/api/conversations", {"client_id": secrets.token_hex(12), "model": model})
    return str(made["id"])


async def send(client: Client, conversation: str, text: str, client_id: str) -> dict[str, Any]:
    """Store a message once; a server that does not answer is tried again, since the id keeps it from being stored twice."""
    body = {"client_id": client_id, "content": text}
    for tried in range(1, SEND_TRIES + 1):
        try:
            answer: dict[str, Any] = await client.call("POST", f"/api/conversations/{conversation}/messages", body)
            return answer
        except ServerError:
            raise
        except CliError:
            if tried == SEND_TRIES:
                raise
            await asyncio.sleep(2.0 ** (tried - 2))
    raise AssertionError("unreachable")


# --- the line protocol ---------------------------------------------------------------------------------------------


async def _lines(args: argparse.Namespace, signals: Signals) -> int:
    client = await Client.sign_in(args.url, args.user)
    try:
        model = await check_choices(client, args)
        return await _Lines(client, args, model, signals).work()
    finally:
        await client.close()


class _Envelope(msgspec.Struct):
    """A frame of a conversation's loop events."""

    type: str
    seq: int
    epoch: str = ""
    event: msgspec.Raw = msgspec.Raw(b"null")
    request: dict[str, Any] = {}
    requests: list[dict[str, Any]] = []
    turn: dict[str, Any] | None = None


class _Asked(msgspec.Struct):
    call_id: int
    tool_use_id: str


class _Event(msgspec.Struct):
    """What of an event decides something here. A later version may have events and fields this one does not know."""

    type: str
    run_id: str = ""
    resumed: bool = False
    client_id: str = ""
    subtype: str = ""
    kind: str = ""
    call_id: int | None = None
    requests: list[_Asked] = []
    event: msgspec.Raw = msgspec.Raw(b"")  # of a sub-agent


_envelope = msgspec.json.Decoder(_Envelope).decode
_event = msgspec.json.Decoder(_Event).decode


class _Run:
    """A prompt of ours from the moment it is sent. ``run_id`` is known once its first events came."""

    def __init__(self) -> None:
        self.client_id = secrets.token_hex(12)
        self.run_id = ""
        self.queued: int | None = None
        self.error_kind = ""


class _Frame(msgspec.Struct, frozen=True):
    text: str


class _Line(msgspec.Struct, frozen=True):
    text: bytes


class _Lost(msgspec.Struct, frozen=True):
    error: CliError


Happening = _Frame | _Line | _Lost | Literal["ended", "signal", "broken"]


class _Lines:
    """The protocol at work. ``_run`` is the run that goes on, ``_prompts`` those to come."""

    def __init__(self, client: Client, args: argparse.Namespace, model: str | None, signals: Signals) -> None:
        self._client = client
        self._args = args
        self._model = model
        self._signals = signals
        self._inbox: asyncio.Queue[Happening] = asyncio.Queue()
        self._writer = LineWriter(1, broken=lambda: self._inbox.put_nowait("broken"))
        self._prompts: deque[str] = deque([args.prompt] if args.prompt is not None else [])
        self._conversation = ""
        self._following: asyncio.Task[None] | None = None
        self._first: asyncio.Future[None] | None = None
        self._seq = 0
        self._epoch = ""
        self._run: _Run | None = None
        self._held: tuple[str, bytes] | None = None  # a turn's first event, until the next one tells whose it is
        self._status = 0
        self._ended = False
        self._stopping = False
        self._broken = False
        self._line = 0
        # Permissions: what our run asked (id for the model to call), the server's requests (call to request), our answers.
        self._asked: dict[str, int] = {}
        self._requests: dict[int, dict[str, Any]] = {}
        self._answers: dict[str, PermissionResponse] = {}

    async def work(self) -> int:
        """Until input has ended and nothing runs, or a signal; returns the exit status."""
        self._signals.heard = lambda: self._inbox.put_nowait("signal")
        self._writer.start()
        if self._reads():
            LineReader(0, line=self._hear, ended=lambda: self._inbox.put_nowait("ended")).start()
        else:
            self._ended = True
        try:
            while True:
                if self._run is None and not self._stopping and self._prompts:
                    await self._begin(self._prompts.popleft())
                if self._run is None and (self._stopping or (self._ended and not self._prompts)):
                    break
                try:
                    async with asyncio.timeout(STOP_SECONDS if self._stopping else None):
                        happening = await self._inbox.get()
                except TimeoutError:
                    _note("the server did not tell the end of the run in time")
                    break
                await self._deal(happening)
        finally:
            if self._following is not None:
                self._following.cancel()
                await asyncio.gather(self._following, return_exceptions=True)
            if not self._broken:
                await asyncio.to_thread(self._writer.close, FLUSH_SECONDS)
        if self._broken:
            return EXIT_INTERRUPTED
        return self._signals.status or self._status

    def _reads(self) -> bool:
        """Whether standard input is for us: not in a terminal, where a person would have to end it by hand to get away."""
        return self._args.prompt is None or self._args.interactive_permissions or not sys.stdin.isatty()

    def _hear(self, line: bytes) -> None:
        self._inbox.put_nowait(_Line(line))

    async def _deal(self, happening: Happening) -> None:
        match happening:
            case _Frame(text):
                await self._frame(_envelope(text.encode()))
            case _Line(text):
                await self._command(text)
            case _Lost(error):
                if self._run is not None:
                    self._fail("connection", error.detail, error.exit_status)
                self._prompts.clear()
                self._status = error.exit_status
                self._stopping = True
            case "ended":
                self._ended = True
                for use_id in list(self._asked):
                    await self._decide(use_id)
            case "signal":
                self._stopping = True
                await self._cancel("interrupted" if self._signals.status == EXIT_INTERRUPTED else "terminated")
            case "broken":
                self._broken = self._stopping = True
                await self._cancel("nobody reads the output")
                self._run = None

    # -- runs --------------------------------------------------------------------------------------------------------

    async def _begin(self, text: str) -> None:
        if not self._conversation:
            self._conversation = await open_conversation(self._client, self._args, self._model)
            await self._follow()
        self._run = run = _Run()
        self._held = None
        try:
            sent = await send(self._client, self._conversation, text, run.client_id)
        except CliError as error:
            self._fail(_CONFIG if error.exit_status == EXIT_CONFIG else "refused", error.detail, error.exit_status)
            return
        if sent["queued"] is not None:
            run.queued = sent["queued"]["id"]

    async def _follow(self) -> None:
        """Begin to follow the conversation; returns once nothing of it can be missed any more."""
        self._first = asyncio.get_running_loop().create_future()
        self._following = asyncio.create_task(self._read_frames(), name="follow")
        await self._first

    async def _read_frames(self) -> None:
        assert self._first is not None
        try:
            async with contextlib.aclosing(self._client.frames(self._conversation, "loop")) as frames:
                async for frame in frames:
                    if self._first.done():
                        self._inbox.put_nowait(_Frame(frame))
                    else:
                        self._begin_at(_envelope(frame.encode()))
                        self._first.set_result(None)
        except CliError as error:
            if self._first.done():
                self._inbox.put_nowait(_Lost(error))
            else:
                self._first.set_exception(error)

    def _begin_at(self, hello: _Envelope) -> None:
        self._seq, self._epoch = hello.seq, hello.epoch
        for request in hello.requests:
            self._requests[request["call_id"]] = request

    async def _frame(self, envelope: _Envelope) -> None:
        if envelope.type == "following":
            await self._gap(envelope)
            return
        self._seq = envelope.seq
        match envelope.type:
            case "loop_event":
                await self._loop_event(bytes(envelope.event))
            case "approval_required":
                self._requests[envelope.request["call_id"]] = envelope.request
                for use_id, call in list(self._asked.items()):
                    if call == envelope.request["call_id"]:
                        await self._decide(use_id)
            case "approval_resolved":
                self._requests.pop(envelope.request["call_id"], None)

    async def _loop_event(self, raw: bytes) -> None:
        """Pass on what belongs to our run; a conversation may have others, begun elsewhere."""
        event = _event(raw)
        run = self._run
        if run is None:
            return
        if event.type == "system":
            self._held = None
            if event.run_id == run.run_id or (event.resumed and run.run_id):
                run.run_id = event.run_id  # the server took our run up again after a restart
            else:
                self._held = (event.run_id, raw)
                return
        elif event.type == "user" and event.client_id == run.client_id and self._held is not None:
            run.run_id, opening = self._held
            self._held = None
            self._writer.write(opening)
        if not run.run_id:
            return
        self._writer.write(raw)
        if event.type == "error":
            run.error_kind = event.kind
        if event.type == "result" and event.run_id == run.run_id:
            self._finish(status_of(event.subtype, run.error_kind))
            return
        await self._permissions(event)

    def _finish(self, status: int) -> None:
        self._status = status
        self._run = None
        self._held = None
        self._asked.clear()
        self._answers.clear()

    def _fail(self, kind: str, message: str, status: int, subtype: Literal["error", "aborted"] = "error") -> None:
        """End our run with events of our own making: it could not begin, or its end cannot be known."""
        run = self._run
        conversation, frame = ConversationId(self._conversation), FrameId(0)
        if subtype == "error":
            self._writer.write(msgspec.json.encode(ErrorEvent(conversation, frame, kind, message)))
        end = ResultEvent(
            conversation, frame, run.run_id if run else "", subtype, "error", Usage(), 0, 0, reason=message
        )
        self._writer.write(msgspec.json.encode(end))
        self._finish(status)

    async def _gap(self, hello: _Envelope) -> None:
        """Events were missed for good: the server was restarted, or we were away for too long."""
        restarted = hello.epoch != self._epoch
        missed = 1 if restarted else max(1, hello.seq - self._seq)
        self._seq, self._epoch = hello.seq, hello.epoch
        self._requests = {request["call_id"]: request for request in hello.requests}
        run = self._run
        if run is None:
            return
        if not run.run_id and not await self._has_begun(run.client_id):
            return  # it still waits; its own events will come
        turn = hello.turn
        if turn is None or (not restarted and run.run_id and turn["run_id"] != run.run_id):
            text = f"the end of the run was missed; see it with: skald sessions show {self._conversation}"
            self._fail("connection", text, EXIT_ERROR)
            return
        run.run_id = turn["run_id"]
        self._writer.write(msgspec.json.encode(Lagged(ConversationId(self._conversation), FrameId(0), missed)))

    async def _has_begun(self, client_id: str) -> bool:
        page = await self._client.call("GET", f"/api/conversations/{self._conversation}/messages?limit=50")
        return any(message["client_id"] == client_id for message in page["items"])

    async def _cancel(self, reason: str) -> None:
        """Stop our run, and nobody else's; forget what was to come."""
        if self._prompts:
            _note(f"{len(self._prompts)} prompt(s) that had not begun were dropped")
        self._prompts.clear()
        run = self._run
        if run is None:
            return
        path = f"/api/conversations/{self._conversation}"
        try:
            if not run.run_id and run.queued is not None:
                with contextlib.suppress(ServerError):  # it begins just now, so it is stopped like any other
                    await self._client.call("DELETE", f"{path}/queue/{run.queued}")
                    self._fail("aborted", reason, EXIT_INTERRUPTED, "aborted")
                    return
            await self._client.call("POST", f"{path}/stop", {"reason": reason})
        except CliError as error:
            _note(f"the run could not be stopped: {error.detail}")

    # -- commands ----------------------------------------------------------------------------------------------------

    async def _command(self, text: bytes) -> None:
        self._line += 1
        try:
            command = parse(text)
        except BadLine as error:
            _note(f"line {self._line} was ignored: {error}")
            return
        match command:
            case Prompt(text=prompt) if self._stopping:
                _note(f"line {self._line} was ignored: the program is ending ({len(prompt)} characters)")
            case Prompt(text=prompt):
                self._prompts.append(prompt)
            case Abort(reason):
                await self._cancel(reason or "aborted")
            case PermissionResponse(tool_use_id):
                if tool_use_id in self._asked:
                    self._answers[tool_use_id] = command
                    await self._decide(tool_use_id)
                else:
                    _note(f"line {self._line} was ignored: no call {tool_use_id!r} waits for an answer")

    async def _permissions(self, event: _Event) -> None:
        """Note what waits for an answer, also inside sub-agents, and what waits no more."""
        while event.event:
            event = _event(bytes(event.event))
        if event.type == "permission_request":
            for asked in event.requests:
                self._asked[asked.tool_use_id] = asked.call_id
                await self._decide(asked.tool_use_id)
        elif event.type == "tool_call_start":
            for use_id in [use_id for use_id, call in self._asked.items() if call == event.call_id]:
                del self._asked[use_id]
                self._answers.pop(use_id, None)

    async def _decide(self, use_id: str) -> None:
        """Answer a call's request when both it and an answer are here. Where nobody can answer, the answer is no."""
        request = self._requests.get(self._asked[use_id])
        answer = self._answers.pop(use_id, None)
        if answer is None and (self._ended or not self._args.interactive_permissions):
            answer = PermissionResponse(use_id, "deny", "nobody is there to ask in this run")
        if request is None or answer is None:
            if answer is not None:
                self._answers[use_id] = answer  # its request is on its way
            return
        del self._requests[self._asked[use_id]]
        try:
            await self._answer(request, answer)
        except ServerError as error:
            if error.code == "already_answered":
                return  # from another surface, or it expired: one answer counts
            _note(f"the answer to {use_id!r} was refused, which counts as no: {error.detail}")
            try:
                await self._answer(request, PermissionResponse(use_id, "deny", f"the changed input: {error.detail}"))
            except CliError as again:
                _note(f"the request of {use_id!r} stays open: {again.detail}")

    async def _answer(self, request: dict[str, Any], answer: PermissionResponse) -> None:
        allow = answer.decision == "allow"
        choice = next(choice["id"] for choice in request["choices"] if choice["allow"] == allow)
        body = {"choice": choice, "note": answer.reason[:4000]}
        if allow and answer.updated_input is not None:
            body["arguments"] = answer.updated_input
        await self._client.call("POST", f"/api/requests/{request['id']}/answer", body)


def _note(text: str) -> None:
    print(f"skald: {text}", file=sys.stderr, flush=True)
