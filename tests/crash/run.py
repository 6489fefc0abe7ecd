"""Kills a conversation with SIGKILL at every store write in turn, restarts it, and checks what became of it.

One scripted conversation (two parallel reads, a write that waits for approval between a read and a command in one round, a
command that must not run twice, a sub-agent, a compaction, a streamed answer, a message queued meanwhile) runs in a real
child process on an encrypted store. For every commit of the database's writer the child dies in two ways: between the
statements and the COMMIT, and right after the COMMIT, before anybody hears of it. A second child then opens the same files,
recovers and drives the conversation to its end. Where the store writes is thus where it dies; what the tools did to the world
is on disk, too.

Counted over all points, in the one JSON object of the last line:

- ``points``: how many times a child was killed;
- ``lost``: messages whose sending had been acknowledged and that are not in the history afterwards;
- ``repeated``: commands run twice that must not be, messages there twice, results delivered twice;
- ``unanswered``: calls left without a result;
- ``failed``: points after which anything differs from the undisturbed conversation but interruption marks.

``--small`` takes every third point and lets the restart live; else that is killed once, too. Exits with 1 when anything but
``points`` is not 0.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from skald_core.loop.agent import Agent
from skald_core.loop.answer import DRAFT_CHARS
from skald_core.loop.compaction import Compaction, KeepTail
from skald_core.loop.database import Database
from skald_core.loop.delegate import DelegateTool
from skald_core.loop.errors import ConfigError
from skald_core.loop.gate import Allow, Ask, Deny, PendingCall, Suspend, Verdict
from skald_core.loop.profile import Profile
from skald_core.loop.provider import StreamEvent
from skald_core.loop.records import Message
from skald_core.loop.scripted import ScriptedProvider, Step, call, calls
from skald_core.loop.session import Session
from skald_core.loop.sqlite_store import SqliteStore
from skald_core.loop.tools import Tool, ToolRegistry, tool
from skald_core.loop.types import CallPart, ConversationId, ModelInfo, ModelRequest, TextPart, Usage

KEY = bytes(range(32))
FIRST, SECOND = "do everything", "and now?"
LONG = "x" * (DRAFT_CHARS + 10)
STEPS = ("read", "write_note", "run_command", "execute_subtask")
HOW = ("inside", "after")


class World:
    """What happened outside the store, one line each; a killed process leaves what it wrote."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / "world.log", os.O_CREAT | os.O_APPEND | os.O_RDWR)
        self._path = folder / "world.log"

    def add(self, line: str) -> None:
        os.write(self._file, f"{line}\n".encode())

    def lines(self) -> list[str]:
        return self._path.read_text().splitlines()

    def close(self) -> None:
        os.close(self._file)


# --- the conversation --------------------------------------------------------------------------------------------


def said(request: ModelRequest) -> tuple[set[str], str]:
    """The tools called so far, as far as this request tells (a summary names the earlier ones), and all its text."""
    parts = [part for message in request.messages for part in message.parts]
    text = "\n".join(part.text for part in parts if isinstance(part, TextPart))
    names = {part.name for part in parts if isinstance(part, CallPart)}
    return names | {step for step in (*STEPS, "look") if f"called {step}" in text}, text


class Model(ScriptedProvider):
    """Answers by what the request shows and not by how often it was asked, as a real model would."""

    def __init__(self) -> None:
        super().__init__(then=self._answer, info=ModelInfo(context_window=100_000))

    def _answer(self, request: ModelRequest) -> Step:
        names, text = said(request)
        system = "".join(block.text for block in request.system)
        if "checkpoint" in system:
            return Step(
                tuple(f"called {step}. " for step in STEPS if f"TOOL {step}(" in text or f"called {step}" in text)
            )
        if system == "helper":
            return Step(("looked",)) if "look" in names else calls(call("look", {}, id="look"))
        if "read" not in names:
            return calls(
                call("read", {"name": "a"}, id="ra"), call("read", {"name": "b"}, id="rb"), say="First I read."
            )
        if "write_note" not in names:
            return calls(
                call("read", {"name": "c"}, id="rc"),
                call("write_note", {"text": "n"}, id="w"),
                call("stamp", {}, id="s"),
            )
        if "run_command" not in names:
            return calls(call("run_command", {"command": "c"}, id="c"))
        if "execute_subtask" not in names:
            delegate = call("execute_subtask", {"agent_id": "helper", "prompt": "look"}, id="d")
            return Step(calls=(delegate,), usage=Usage(5000, 10))
        if SECOND in text and LONG[:100] in text:
            return Step(("All is done.",))
        return Step((LONG, "end"))

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        async for event in super().stream(request):
            yield event
            await asyncio.sleep(0)


def tools(world: World, go: asyncio.Event) -> list[Tool]:
    @tool(scope="read", parallel_safe=True, restart_hint="rerun")
    async def read(name: str) -> str:
        """Read a thing."""
        await go.wait()
        return f"content of {name}"

    @tool(scope="write")
    async def write_note(text: str) -> str:
        """Write a note."""
        world.add("ran write_note")
        return f"wrote {text}"

    @tool(scope="exec")
    async def run_command(command: str) -> str:
        """Run a command."""
        world.add("ran run_command")
        return f"ran {command}"

    @tool(scope="exec")
    async def stamp() -> str:
        """Put a stamp on it."""
        world.add("ran stamp")
        return "stamped"

    return [read, write_note, run_command, stamp, DelegateTool({"helper": "looks"})]


@tool(scope="read", restart_hint="rerun")
async def look() -> str:
    """Look."""
    return "seen"


class Person:
    """Is asked about writes and says yes."""

    async def judge(self, pending: Sequence[PendingCall]) -> Sequence[Verdict]:
        return [Ask("a write") if item.tool.scope == "write" else Allow() for item in pending]

    async def ask(self, pending: PendingCall, verdict: Ask) -> Allow | Deny | Suspend:
        await asyncio.sleep(0)
        return Allow()


async def converse(folder: Path, *, again: bool) -> None:
    """Run the conversation from wherever it is to its end, then write its history next to the database."""
    world = World(folder)
    store = await SqliteStore.open(folder / "chat.db", key=KEY)
    go = asyncio.Event()
    own = Profile(system="main", tools=ToolRegistry(tools(world, go)))
    helper = Profile(agent="helper", system="helper", tools=ToolRegistry([look]))

    async def profiles(conversation: ConversationId, agent: str) -> Profile:
        if agent not in ("", "helper"):
            raise ConfigError(f"no agent {agent!r}")
        return helper if agent else own

    agent = Agent(
        provider=Model(), model="m", profiles=profiles, gate=Person(), store=store,
        compaction=Compaction(strategy=KeepTail(1), threshold=4000),
    )  # fmt: skip
    if again:
        await agent.recover()
    session = agent.session("c")
    for client_id, content in (("m1", FIRST), ("m2", SECOND)):
        if f"acknowledged {client_id}" not in world.lines():
            await session.send(content, client_id=client_id)
            world.add(f"acknowledged {client_id}")
    go.set()
    await session.wait()
    if await session.queue():  # what a failure held
        session.run_queue()
        await session.wait()
    await write_history(session, folder / "history.json")
    await agent.close()
    await store.close()
    world.close()


async def write_history(session: Session, path: Path) -> None:
    page = await session.history(limit=1000)
    store = session._store
    shown = []
    for item in page.items:
        children = [
            [_shown(entry.message) for entry in (await store.frame_history(frame.id)).items] + [frame.active]
            for made in item.message.calls
            for frame in await store.child_frames(made.id)
        ]
        shown.append([*_shown(item.message), children])
    left = [list(await store.runs()), list(await store.queued(session.conversation)), list(await store.unfinished())]
    text = json.dumps({"history": shown, "left": [len(x) for x in left], "checkpoints": len(page.checkpoints)})
    path.write_text(text)


def _shown(message: Message) -> list[Any]:
    made = [[c.name, c.arguments, c.state, c.result, c.result_kind] for c in message.calls]
    return [message.role, message.status, message.content, message.client_id, made]


# --- dying -------------------------------------------------------------------------------------------------------


def arm(point: int, how: str) -> None:
    """Have this process kill itself at the ``point``-th commit of a database's writer."""
    commits = 0
    commit = Database._commit

    class Doomed:
        """The writer's connection, which does not live to see its COMMIT."""

        def __init__(self, connection: Any) -> None:
            self._connection = connection

        def execute(self, sql: str, *parameters: Any) -> Any:
            if sql == "COMMIT":
                os.kill(os.getpid(), signal.SIGKILL)
            return self._connection.execute(sql, *parameters)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._connection, name)

    def counted(self: Database, connection: Any, batch: Any) -> None:
        nonlocal commits
        commits += 1
        if commits == point and how == "inside":
            connection = Doomed(connection)
        commit(self, connection, batch)
        if commits == point:
            os.kill(os.getpid(), signal.SIGKILL)

    Database._commit = counted  # type: ignore[method-assign]  # this process exists to die of it


def in_child(folder: Path, *, point: int = 0, how: str = "", again: bool = False) -> int:
    """Run the conversation in a process of its own; its exit status, negative for a signal."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            log = os.open(folder / "child.log", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
            os.dup2(log, 2)
            if point:
                arm(point, how)
            asyncio.run(asyncio.wait_for(converse(folder, again=again), 30))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, waited = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(waited)


# --- judging -----------------------------------------------------------------------------------------------------


def differences(undisturbed: list[Any], found: list[Any]) -> list[str]:
    """Where two histories differ in more than marks of an interruption."""
    problems = []
    if len(undisturbed) != len(found):
        return [f"{len(found)} messages instead of {len(undisturbed)}"]
    for number, (want, have) in enumerate(zip(undisturbed, found, strict=True)):
        if (want[0], want[3]) != (have[0], have[3]):
            problems.append(f"message {number}: {have[0]} {have[3]!r} instead of {want[0]} {want[3]!r}")
        partial = have[1] == "partial" and have[2] and want[2].startswith(have[2])
        if not partial and (want[1], want[2]) != (have[1], have[2]):
            problems.append(f"message {number}: {have[1]} {have[2][:40]!r} instead of {want[1]} {want[2][:40]!r}")
        for one, other in zip(want[4], have[4], strict=False):
            interrupted = other[4] == "interrupted" and other[0] in ("write_note", "run_command", "stamp")
            if one[:2] != other[:2] or (one != other and not interrupted):
                problems.append(f"message {number}: call {other} instead of {one}")
        if len(want[4]) != len(have[4]):
            problems.append(f"message {number}: {len(have[4])} calls instead of {len(want[4])}")
        if len(want) > 5 and len(want[5]) != len(have[5]):
            problems.append(f"message {number}: {len(have[5])} sub-agents instead of {len(want[5])}")
        for one, other in zip(want[5], have[5], strict=False) if len(want) > 5 else ():
            problems += [f"sub-agent: {text}" for text in differences(one[:-1], other[:-1])]
            if other[-1]:
                problems.append("a sub-agent's frame is still open")
    return problems


def judge(folder: Path, undisturbed: dict[str, Any], counts: dict[str, int]) -> list[str]:
    world = (folder / "world.log").read_text().splitlines()
    found = json.loads((folder / "history.json").read_text())
    history = found["history"]
    problems = differences(undisturbed["history"], history)
    ids = collections.Counter(message[3] for message in history if message[3])
    for client_id in ("m1", "m2"):
        if ids[client_id] == 0:
            counts["lost"] += 1
            problems.append(f"{client_id} is lost")
        counts["repeated"] += max(0, ids[client_id] - 1)
    effects = collections.Counter(line for line in world if line.startswith("ran "))
    counts["repeated"] += sum(max(0, times - 1) for times in effects.values())
    problems += [f"{line!r} {times} times" for line, times in effects.items() if times != 1]
    made = [c for message in history for c in message[4]]
    made += [c for message in history for child in message[5] for inner in child[:-1] for c in inner[4]]
    open_calls = [c for c in made if c[2] in ("running", "awaiting")]
    counts["unanswered"] += len(open_calls)
    problems += [f"unanswered: {c}" for c in open_calls]
    if found["left"] != [0, 0, 0]:
        problems.append(f"runs, queue, unfinished left over: {found['left']}")
    if not found["checkpoints"]:
        problems.append("no checkpoint")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="every third point")
    parser.add_argument("--keep", type=Path, help="run in this folder and leave the files of failing points there")
    options = parser.parse_args()
    counts = {"points": 0, "failed": 0, "lost": 0, "repeated": 0, "unanswered": 0}
    with tempfile.TemporaryDirectory(prefix="skald-crash-") as temporary:
        base = options.keep or Path(temporary)
        whole = base / "undisturbed"
        whole.mkdir(parents=True)
        if in_child(whole) != 0:
            print((whole / "child.log").read_text())
            print(json.dumps(counts | {"failed": 1}))
            return 1
        undisturbed = json.loads((whole / "history.json").read_text())
        own = judge(whole, undisturbed, dict(counts))
        assert not own, own
        alive = dict.fromkeys(HOW, False)
        point = 0
        while not all(alive.values()):
            point += 1
            for how in HOW:
                if alive[how] or (options.small and (point + HOW.index(how)) % 3):
                    continue
                folder = base / f"{point}-{how}"
                folder.mkdir()
                ended = in_child(folder, point=point, how=how)
                if ended != -signal.SIGKILL:  # fewer commits than this: it came through
                    alive[how] = True
                    problems = judge(folder, undisturbed, counts) if ended == 0 else [f"ended with {ended}"]
                else:
                    counts["points"] += 1
                    if not options.small:  # the recovery dies as well, each time somewhere else
                        second = in_child(folder, point=1 + point % 6, how=HOW[point % 2], again=True)
                        counts["points"] += second == -signal.SIGKILL
                    again = in_child(folder, again=True)
                    problems = judge(folder, undisturbed, counts) if again == 0 else [f"the restart ended with {again}"]
                if problems:
                    counts["failed"] += 1
                    log = folder / "child.log"
                    print(f"killed {how} commit {point}:", *problems, *(log.read_text().splitlines()[-12:]), sep="\n  ")
    print(json.dumps(counts))
    return 1 if any(value for key, value in counts.items() if key != "points") else 0


if __name__ == "__main__":
    sys.exit(main())
