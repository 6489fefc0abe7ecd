"""Small parts the loop's tests share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any

from skald_core.loop.agent import Agent
from skald_core.loop.events import Event, ResultEvent
from skald_core.loop.gate import Allow, AllowAll, Ask, Deny, PendingCall, Suspend, Verdict
from skald_core.loop.ops import Op, Stored
from skald_core.loop.provider import ModelHandle
from skald_core.loop.records import Message
from skald_core.loop.scripted import ScriptedProvider
from skald_core.loop.selectors import StaticModels
from skald_core.loop.store import Store
from skald_core.loop.tools import Tool, ToolContext, ToolOutput
from skald_core.loop.types import CallPart, ModelRequest, ResultPart, TextPart

__all__ = (
    "AskGate",
    "Frozen",
    "Gated",
    "Plain",
    "collect",
    "kinds",
    "make",
    "of",
    "pairs",
    "path",
    "result",
    "selector",
    "texts",
)


class Plain(Tool):
    """A tool that counts its runs and returns what it was told."""

    def __init__(self, name: str, answer: str = "ok", **options: Any) -> None:
        self.name = name
        self.description = name
        self.answer = answer
        self.runs: list[dict[str, Any]] = []
        for key, value in options.items():
            setattr(self, key, value)

    async def run(self, arguments: Any, ctx: ToolContext) -> ToolOutput | str:
        self.runs.append(arguments)
        return self.answer


class Gated(Plain):
    """A tool that waits inside until let go. ``entered`` is set when it runs."""

    def __init__(self, name: str, answer: str = "ok", **options: Any) -> None:
        super().__init__(name, answer, **options)
        self.entered = asyncio.Event()
        self.go = asyncio.Event()

    async def run(self, arguments: Any, ctx: ToolContext) -> ToolOutput | str:
        self.runs.append(arguments)
        self.entered.set()
        await self.go.wait()
        return self.answer


class AskGate:
    """Asks about the named tools and allows the rest. Answers come from ``answer``, or from ``waits`` when set."""

    def __init__(self, *names: str, answer: Allow | Deny | Suspend | None = None) -> None:
        self.names = names
        self.answer = answer
        self.asked: list[int] = []
        self.reached = asyncio.Event()
        self.waits: asyncio.Event | None = None if answer is not None else asyncio.Event()

    async def judge(self, calls: Sequence[PendingCall]) -> Sequence[Verdict]:
        return [Ask("please", {"tool": c.tool.name}) if c.tool.name in self.names else Allow() for c in calls]

    async def ask(self, call: PendingCall, verdict: Ask) -> Allow | Deny | Suspend:
        self.asked.append(call.context.call_id)
        self.reached.set()
        if self.waits is not None:
            await self.waits.wait()
        return self.answer or Allow()


class Frozen:
    """A store whose process dies at its ``after``-th write: later writes never return, and are kept only if ``kept``."""

    def __init__(self, store: Store, after: int, *, kept: bool = False) -> None:
        self._store = store
        self._left = after
        self._kept = kept
        self.dead = asyncio.Event()
        self.writes = 0

    def apply(self, ops: Sequence[Op]) -> Awaitable[tuple[Stored, ...]]:
        self.writes += 1
        if self._left <= 0:
            if self._kept and not self.dead.is_set():
                self._store.apply(ops)
            self.dead.set()
            return asyncio.get_running_loop().create_future()
        self._left -= 1
        return self._store.apply(ops)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


async def collect(stream: AsyncIterator[Event]) -> list[Event]:
    return [event async for event in stream]


def kinds(events: Sequence[Event], *skip: str) -> list[str]:
    """The type tags of events, without the streaming pieces."""
    hidden = {"partial_assistant", "usage", *skip}
    return [tag for tag in (e.__struct_config__.tag for e in events) if tag not in hidden]  # type: ignore[misc]


def of(events: Sequence[Event], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def result(events: Sequence[Event]) -> ResultEvent:
    last = events[-1]
    assert isinstance(last, ResultEvent), last
    assert len(of(events, ResultEvent)) == 1
    return last


def texts(request: ModelRequest) -> list[str]:
    """The wire messages of a request in short form."""
    return [
        f"{message.role}: " + " | ".join(p.text for p in message.parts if isinstance(p, TextPart))
        + "".join(f" [{p.name} {p.arguments}]" for p in message.parts if isinstance(p, CallPart))
        + "".join(f" <{p.content}>" for p in message.parts if isinstance(p, ResultPart))
        for message in request.messages
    ]  # fmt: skip


def pairs(request: ModelRequest) -> None:
    """Every call of a request has its result in the next message, and no result stands alone."""
    open_ids: list[str] = []
    for message in request.messages:
        results = [p.id for p in message.parts if isinstance(p, ResultPart)]
        if open_ids or message.role == "tool":
            assert message.role == "tool"
            assert results == open_ids
        open_ids = [p.id for p in message.parts if isinstance(p, CallPart)]
    assert not open_ids
    assert request.messages[0].role == "user"


async def path(store: Store, conversation: str = "c") -> list[Message]:
    page = await store.history(conversation, limit=1000)  # type: ignore[arg-type]  # a plain str in tests
    return [item.message for item in page.items]


def make(provider: ScriptedProvider, *tools: Tool, **options: Any) -> Agent:
    options.setdefault("gate", AllowAll())
    return Agent(provider=provider, model="m", tools=tools, **options)


def selector(*providers: ScriptedProvider) -> StaticModels:
    return StaticModels([ModelHandle(p.id, p, f"{p.id}-model", p.info("")) for p in providers])
