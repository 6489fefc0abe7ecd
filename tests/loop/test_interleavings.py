"""Any order of sending, steering, stopping, delivering, retrying and dying keeps what the loop promises.

The promises: what was acknowledged is in the conversation once, every call has a result, a call that must not be repeated
runs at most once, every request to a model is well formed, every start has its end, and nothing is left running.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from skald_core.loop.agent import Agent
from skald_core.loop.errors import LoopError, NetworkError, ServerError
from skald_core.loop.events import Event, ResultEvent, SubagentEvent, ToolCallEndEvent, ToolCallStartEvent
from skald_core.loop.gate import Allow, Ask, Deny, PendingCall, Suspend, Verdict
from skald_core.loop.memory_store import MemoryStore
from skald_core.loop.profile import Limits
from skald_core.loop.provider import StreamEvent
from skald_core.loop.records import Message
from skald_core.loop.scripted import ScriptedProvider, Step, call, calls, cut, fail, text
from skald_core.loop.session import Session
from skald_core.loop.sqlite_store import SqliteStore
from skald_core.loop.store import Store
from skald_core.loop.tools import Tool, ToolContext, ToolOutput
from skald_core.loop.types import CallId, ConversationId, ModelRequest

from .helpers import pairs

ANSWERS: dict[str, Callable[[], Step]] = {
    "text": lambda: text("fine"),
    "long": lambda: text("x" * 3000, "y"),
    "one": lambda: calls(call("once", {})),
    "two reads": lambda: calls(call("look", {}), call("look", {}), say="looking"),
    "mixed": lambda: calls(call("look", {}), call("once", {}), call("nowhere", {}), call("look", "{")),
    "asked": lambda: calls(call("asked", {}), call("look", {})),
    "asked between": lambda: calls(*(call(name, {}) for name in ("look", "asked", "once", "look", "wide", "asked"))),
    "down": lambda: fail(ServerError("down")),
    "cut": lambda: cut("begun ", error=NetworkError("cut")),
    "nothing": lambda: Step(),
}
ACTIONS = (
    "send",
    "steer",
    "send steer",
    "send interrupt",
    "deliver",
    "result",
    "stop",
    "interrupt",
    "crash",
    "retry",
    "queue",
)


class World:
    """What the tools did, and what was acknowledged, over all the lives of the process."""

    def __init__(self, answers: list[str], pauses: list[int]) -> None:
        self.answers = itertools.cycle(answers)
        self.pauses = itertools.cycle(pauses)
        self.asked_for = 0
        self.ran: collections.Counter[CallId] = collections.Counter()
        self.sent: set[str] = set()
        self.results: set[str] = set()
        self.steered: set[str] = set()
        self.numbers = itertools.count(1)

    async def pause(self) -> None:
        for _ in range(next(self.pauses)):
            await asyncio.sleep(0)


class Model(ScriptedProvider):
    def __init__(self, world: World) -> None:
        super().__init__(then=self._answer)
        self._world = world

    def _answer(self, request: ModelRequest) -> Step:
        pairs(request)
        self._world.asked_for += 1
        # Every script ends some time: a model that calls tools for ever says nothing about the loop.
        return ANSWERS[next(self._world.answers)]() if self._world.asked_for < 60 else text("enough")

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        async for event in super().stream(request):
            await self._world.pause()
            yield event


class Act(Tool):
    """A tool that takes its time; ``once`` must not be repeated, ``look`` may be."""

    def __init__(self, name: str, world: World, **options: Any) -> None:
        self.name = self.description = name
        self._world = world
        for key, value in options.items():
            setattr(self, key, value)

    async def run(self, arguments: Any, ctx: ToolContext) -> ToolOutput | str:
        self._world.ran[ctx.call_id] += 1
        for _ in range(8):  # long enough for much to happen meanwhile
            await self._world.pause()
        return "done"


class Person:
    def __init__(self, world: World) -> None:
        self._world = world

    async def judge(self, pending: Any) -> list[Verdict]:
        return [Ask("may it?") if item.tool.name in ("asked", "wide") else Allow() for item in pending]

    async def ask(self, pending: PendingCall, verdict: Ask) -> Allow | Deny | Suspend:
        await self._world.pause()
        return (Allow(), Deny("no"), Suspend())[pending.context.call_id % 3]


class Watch:
    """Checks the order of events of one life."""

    def __init__(self) -> None:
        self.open: set[tuple[int, CallId]] = set()

    def __call__(self, event: Event) -> None:
        while isinstance(event, SubagentEvent):
            event = event.event
        if isinstance(event, ToolCallStartEvent):
            assert (event.frame, event.call_id) not in self.open, "a call started twice"
            self.open.add((event.frame, event.call_id))
        elif isinstance(event, ToolCallEndEvent):
            assert (event.frame, event.call_id) in self.open, "a call ended that had not started"
            self.open.discard((event.frame, event.call_id))
        elif isinstance(event, ResultEvent):
            assert not self.open, "a turn ended with a call still open"


def born(store: Store, world: World, problems: list[AssertionError]) -> Agent:
    """Another life of the process."""
    tools = [
        Act("look", world, scope="read", parallel_safe=True, restart_hint="rerun"),
        Act("once", world),
        Act("asked", world),
        Act("wide", world, parallel_safe=True),
    ]
    agent = Agent(
        provider=Model(world), model="m", tools=tools, gate=Person(world), store=store, limits=Limits(rounds=8),
    )  # fmt: skip
    watch = Watch()

    def listen(event: Event) -> None:
        try:
            watch(event)
        except AssertionError as error:
            problems.append(error)

    agent.on_event(listen)
    return agent


async def act(action: str, session: Session, world: World) -> None:
    number = str(next(world.numbers))
    if action.startswith("send"):
        when: Any = action.removeprefix("send").strip() or "turn"
        await session.send(f"message {number}", client_id=number, when=when)
        world.sent.add(number)
    elif action == "steer":
        message = await session.steer(f"steering {number}")
        world.steered.add(f"steering {number}")
        assert message
    elif action == "deliver":
        await session.deliver(f"news {number}", client_id=number)
        world.sent.add(number)
    elif action == "result":
        await session.deliver_result(number, "r")
        world.results.add(number)
    elif action == "stop":
        session.abort("enough")
    elif action == "interrupt":
        session.interrupt()
    elif action == "retry":
        await session.retry()
    else:
        session.run_queue()


async def live(store: Store, script: list[tuple[str, int]], world: World) -> None:
    """Do the actions of the script at their moments, dying at each ``crash``; then come to rest and check."""
    problems: list[AssertionError] = []
    agent = born(store, world, problems)
    await agent.recover()
    doing: set[asyncio.Task[None]] = set()

    async def attempt(action: str, session: Session) -> None:
        with contextlib.suppress(
            LoopError
        ):  # no turn to steer, nothing to retry, one running already: all of it may be
            await act(action, session, world)

    for action, moment in script:
        for _ in range(moment):
            await asyncio.sleep(0)
        if action == "crash":
            for task in doing:
                task.cancel()
            await asyncio.gather(*doing, return_exceptions=True)
            doing.clear()
            await agent.close()
            agent = born(store, world, problems)
            await agent.recover()
        else:
            doing.add(asyncio.create_task(attempt(action, agent.session("c"))))
    await asyncio.gather(*doing)
    await settle(agent.session("c"))
    await agent.close()
    agent = born(store, world, problems)
    await agent.recover()
    await settle(agent.session("c"))
    assert agent.running() == ()
    await agent.close()
    assert not problems, problems
    await check(store, world)


async def settle(session: Session) -> None:
    """Until nothing runs, nothing waits, and no call is suspended."""
    for _ in range(200):
        await session.wait()
        waiting = await session._store.open_calls(session.conversation)
        for made in waiting:
            await session.resolve_call(made.id, allow=False, reason="no")
            await session.wait()
        if waiting:
            continue
        if not await session.queue():
            return
        session.run_queue()
    raise AssertionError("the conversation does not come to rest")


async def everything(store: Store) -> list[Message]:
    """Every message of the conversation, on all branches."""
    root = await store.root(ConversationId("c"))
    if root is None:
        return []
    found = [await store.message(number) for number in range(1, 2000)]  # type: ignore[arg-type]  # plain ints
    return [message for message in found if message is not None and message.frame == root.id]


async def check(store: Store, world: World) -> None:
    messages = await everything(store)
    ids = collections.Counter(message.client_id for message in messages if message.client_id)
    for number in world.sent:
        assert ids[number] == 1, f"message {number} is there {ids[number]} times"
    for number in world.results:
        assert ids[f"task:{number}"] == 1, f"result {number} is there {ids[f'task:{number}']} times"
    contents = collections.Counter(message.content for message in messages)
    assert all(contents[content] == 1 for content in world.steered)
    made = {c.id: c for message in messages for c in message.calls}
    assert [c for c in made.values() if not c.terminal] == []
    assert all(c.result is not None for c in made.values())
    for call_id, times in world.ran.items():
        assert made[call_id].name == "look" or times == 1, f"{made[call_id].name} ran {times} times"
    assert await store.runs() == ()
    assert await store.unfinished() == ()
    page = await store.history(ConversationId("c"), limit=2000)
    assert [item.message.parent for item in page.items][1:] == [item.message.id for item in page.items][:-1]


SCRIPTS = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 30)), min_size=2, max_size=10)
STEPS = st.lists(st.sampled_from(sorted(ANSWERS)), min_size=1, max_size=8)
PAUSES = st.lists(st.sampled_from([0, 0, 1, 2, 5, 12]), min_size=1, max_size=5)


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 20))


@settings(max_examples=200, deadline=None)
@example([("send", 0), ("crash", 40)], ["one"], [0] * 6 + [12] * 8)  # dies within a call that must not be repeated
@given(SCRIPTS, STEPS, PAUSES)
def test_in_memory(script: list[tuple[str, int]], answers: list[str], pauses: list[int]) -> None:
    """Many short lives, where every step of the event loop is a possible moment."""
    run(live(MemoryStore(), script, World(answers, pauses)))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SCRIPTS, STEPS, PAUSES)
def test_on_disk(
    tmp_path_factory: pytest.TempPathFactory, script: list[tuple[str, int]], answers: list[str], pauses: list[int]
) -> None:
    """The same on an encrypted file, where a write takes its time."""
    path: Path = tmp_path_factory.mktemp("lives") / "x.db"

    async def main() -> None:
        store = await SqliteStore.open(path, key=bytes(32))
        try:
            await live(store, script, World(answers, pauses))
        finally:
            await store.close()

    run(main())
