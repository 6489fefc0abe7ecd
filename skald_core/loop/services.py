"""What every frame of an agent shares, and the state of one turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from skald_core.loop.cancel import CancelToken
from skald_core.loop.compaction import Compaction
from skald_core.loop.database import Written
from skald_core.loop.events import Event, PermissionView, ResultSubtype
from skald_core.loop.gate import Gate
from skald_core.loop.hook_chain import HookChain
from skald_core.loop.media import MediaSource
from skald_core.loop.ops import Op, Stored
from skald_core.loop.profile import Limits, ProfileSource
from skald_core.loop.provider import ModelSelector
from skald_core.loop.store import Store
from skald_core.loop.types import (
    CallId,
    ConversationId,
    FrameId,
    MessageId,
    StopReason,
    Usage,
)

__all__ = ("Committer", "Emit", "LiveTurn", "Outcome", "RunningCall", "Services", "TurnState", "now_ms")

Emit = Callable[[Event], None]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Services:
    """The parts an Agent is made of, as the kernel uses them."""

    __slots__ = ("clock", "compaction", "gate", "hooks", "limits", "media", "partials", "profiles", "selector", "store")

    def __init__(
        self,
        *,
        store: Store,
        selector: ModelSelector,
        gate: Gate,
        hooks: HookChain,
        profiles: ProfileSource,
        limits: Limits,
        compaction: Compaction,
        media: MediaSource | None,
        clock: Callable[[], int],
        partials: bool = False,
    ) -> None:
        self.store = store
        self.selector = selector
        self.gate = gate
        self.hooks = hooks
        self.profiles = profiles
        self.limits = limits
        self.compaction = compaction
        self.media = media
        self.clock = clock
        self.partials = partials


class Outcome(msgspec.Struct, frozen=True):
    """How a frame's work ended. ``text`` is the final answer, ``message`` the message that holds it."""

    kind: ResultSubtype
    text: str = ""
    stop_reason: StopReason = "end_turn"
    message: MessageId | None = None
    reason: str = ""
    exhausted: bool = False


class RunningCall(msgspec.Struct, frozen=True):
    call_id: CallId
    tool_use_id: str
    tool_name: str
    summary: str
    started_at: int


class LiveTurn(msgspec.Struct, frozen=True):
    """What a client that joins now must know of a running turn beyond the stored history.

    ``text`` and ``reasoning`` are the output streamed so far that no stored message holds yet; ``running`` the calls at
    work; ``waiting`` those a person must decide.
    """

    run_id: str
    frame: FrameId
    round: int
    started_at: int
    text: str
    reasoning: str
    running: tuple[RunningCall, ...]
    waiting: tuple[PermissionView, ...]
    phase: Literal["starting", "model", "tools", "waiting", "compacting"]


class TurnState:
    """One turn: what its frames share. Lives only while the turn runs; nothing load-bearing is in here."""

    def __init__(self, conversation: ConversationId, run_id: str, started_at: int) -> None:
        self.conversation = conversation
        self.run_id = run_id
        self.started_at = started_at
        self.started = time.monotonic()
        self.token = CancelToken()
        self.usage = Usage()
        self.rounds = 0
        self.interrupted = False
        self.steering: dict[int, asyncio.Future[MessageId] | None] = {}  # queued id: who waits for it
        self.steerable = True  # until the turn ends; what comes later would never be looked at
        self.request = 0
        # for LiveTurn; only the root frame's
        self.phase: Literal["starting", "model", "tools", "waiting", "compacting"] = "starting"
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.running: dict[CallId, RunningCall] = {}
        self.waiting: dict[CallId, PermissionView] = {}

    def live(self, frame: FrameId) -> LiveTurn:
        return LiveTurn(
            self.run_id, frame, self.rounds, self.started_at, "".join(self.text), "".join(self.reasoning),
            tuple(self.running.values()), tuple(self.waiting.values()), self.phase,
        )  # fmt: skip


class Committer:
    """Writes batches so that a stop never loses their outcome.

    A cancellation that arrives while a batch is written does not interrupt it: the caller gets the result, can do what
    belongs to it (its events), and the cancellation is raised at the next :meth:`checkpoint`.
    """

    __slots__ = ("_late", "_store", "_token")

    def __init__(self, store: Store, token: CancelToken) -> None:
        self._store = store
        self._token = token
        self._late = False

    async def commit(self, *ops: Op) -> tuple[Stored, ...]:
        applied = self._store.apply(ops)
        if isinstance(applied, Written):
            result: tuple[Stored, ...]
            try:
                result = await applied
            except asyncio.CancelledError:
                self._late = True  # it woke up because the write is done, see Written
                result = applied.result()
            return result
        writing = asyncio.ensure_future(applied)
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            if writing.cancelled():
                raise
            self._late = True
        return await asyncio.shield(writing)  # a second cancellation does get through: the store may be stuck

    def checkpoint(self) -> None:
        """Raise CancelledError when the work should stop."""
        if self._late or self._token.cancelled:
            self._late = False
            raise asyncio.CancelledError

    async def wait(self, awaitable: Awaitable[Any]) -> None:
        """Wait for something that must finish, holding back cancellation like :meth:`commit`."""
        waiting = asyncio.ensure_future(awaitable)
        while not waiting.done():
            try:
                await asyncio.wait([waiting])
            except asyncio.CancelledError:
                self._late = True
