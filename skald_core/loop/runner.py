"""Owns the live turns: at most one per conversation, then whatever waits in its queue, one turn each."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec

from skald_core.loop.errors import AbortError, ConfigError, HookError, LoopError
from skald_core.loop.events import (
    ErrorEvent,
    Event,
    QueueChangedEvent,
    ResultEvent,
    SkillsLoadedEvent,
    SkillView,
    SystemEvent,
)
from skald_core.loop.gate import mode_of
from skald_core.loop.hooks import Block, Prompt
from skald_core.loop.kernel import FrameRun
from skald_core.loop.ops import (
    AppendMessage,
    ClearDraft,
    CloseRun,
    DeleteQueued,
    Dequeue,
    EditQueued,
    Enqueue,
    HoldQueue,
    LoadFrame,
    Op,
    OpenFrame,
    OpenRun,
    SettleCalls,
)
from skald_core.loop.profile import Profile
from skald_core.loop.projection import INTERRUPTED
from skald_core.loop.records import Frame, LoadedFrame, QueuedInput
from skald_core.loop.services import Committer, LiveTurn, Outcome, Services, TurnState
from skald_core.loop.subscription import EventHub
from skald_core.loop.telling import ask_prompt_hook, delivered_events, refuse, user_event
from skald_core.loop.types import Attachment, ConversationId, FrameId, MessageId

__all__ = ("FromQueue", "Opening", "Prompted", "Resumed", "Runner", "Sent", "Waiting", "new_run_id")

log = logging.getLogger(__name__)


_REMEMBERED = 10_000


class Sent(msgspec.Struct, frozen=True):
    """Where a message went: it is ``message_id`` already, or waits as ``queued_id``. Both None: it was deleted since.

    ``existing`` says its client id was known, so nothing was stored again.
    """

    message_id: MessageId | None = None
    queued_id: int | None = None
    existing: bool = False


class Prompted(msgspec.Struct, frozen=True):
    """A turn opened by a new message. ``queue=True`` lets what waits already go first."""

    content: str
    client_id: str = ""
    attachments: tuple[Attachment, ...] = ()
    metadata: dict[str, Any] = {}
    synthetic: bool = False
    parent: MessageId | Literal["head"] | None = "head"
    queue: bool = False


class FromQueue(msgspec.Struct, frozen=True):
    item: QueuedInput


class Resumed(msgspec.Struct, frozen=True):
    """A turn taken up again, after ``ops``."""

    ops: tuple[Op, ...] = ()


class Waiting(msgspec.Struct, frozen=True):
    """A turn with what waits, held or not."""


Begun = Prompted | FromQueue | Resumed
Opening = Begun | Waiting


def new_run_id() -> str:
    return "run_" + secrets.token_hex(8)


class _Active:
    """A claimed conversation."""

    __slots__ = ("begun", "behind", "frame", "idle", "poked", "refused", "task", "turn", "waits")

    def __init__(self) -> None:
        self.begun = False
        self.poked = False  # input was queued since the driver last looked
        self.waits = False  # input waited when the driver last looked
        self.behind = False  # the message that was to begin a turn waits behind others
        self.refused = False  # a hook refused the queued input the turn was to begin with
        self.task: asyncio.Task[None] | None = None
        self.turn: TurnState | None = None
        self.frame = FrameId(0)
        self.idle = asyncio.Event()


class Runner:
    """Starts, stops and follows turns. All methods that are not async act at once, on the event loop."""

    def __init__(self, services: Services, hub: EventHub) -> None:
        self._services = services
        self._hub = hub
        self._active: dict[ConversationId, _Active] = {}
        # Conversations are well formed once recover() has been through, but for those it failed on; without it each is
        # looked at before its first turn here.
        self._recovered = False
        self._broken: set[ConversationId] = set()
        self._seen: set[ConversationId] = set()
        self._skills: dict[ConversationId, tuple[SkillView, ...]] = {}  # those told of last
        self.closed = False

    def recovered(self, failed: Iterable[ConversationId]) -> None:
        """Every conversation but ``failed`` is well formed now."""
        self._recovered = True
        self._broken = set(failed)
        self._seen.clear()

    def _doubtful(self, conversation: ConversationId) -> bool:
        """Whether what a crash left may still be in this conversation; asked once, right before it is repaired."""
        if self._recovered:
            found = conversation in self._broken
            self._broken.discard(conversation)
            return found
        if conversation in self._seen:
            return False
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()  # looking again costs two reads and changes nothing
        self._seen.add(conversation)
        return True

    def running(self, conversation: ConversationId) -> bool:
        return conversation in self._active

    def conversations(self) -> tuple[ConversationId, ...]:
        return tuple(self._active)

    def turn(self, conversation: ConversationId) -> TurnState | None:
        active = self._active.get(conversation)
        return active.turn if active is not None else None

    def live(self, conversation: ConversationId) -> LiveTurn | None:
        active = self._active.get(conversation)
        return active.turn.live(active.frame) if active is not None and active.turn is not None else None

    def claim(self, conversation: ConversationId) -> Callable[[], None]:
        """Reserve an idle conversation for work outside a turn; returns the function that frees it.

        What was queued meanwhile gets its turn one step after that, so the caller may begin its own first.
        """
        self._need_idle(conversation)
        active = self._active[conversation] = _Active()

        def free() -> None:
            self._release(conversation, active)
            if active.poked:
                asyncio.get_running_loop().call_soon(self.run_queue, conversation)

        return free

    def _release(self, conversation: ConversationId, active: _Active) -> None:
        if self._active.get(conversation) is active:
            del self._active[conversation]
        active.idle.set()

    def _need_idle(self, conversation: ConversationId) -> None:
        if self.closed:
            raise ConfigError("the agent is closed")
        if conversation in self._active:
            raise ConfigError(
                f"conversation {conversation!r} has a turn running; wait for it, stop it, or queue the message"
            )

    def start(
        self,
        conversation: ConversationId,
        opening: Opening | None,
        *,
        profile: Profile | None = None,
        run_id: str = "",
        pin: str | None = None,
    ) -> asyncio.Future[Sent | None]:
        """Claim the conversation and begin a turn; ``opening=None`` begins with what waits and is not held.

        The future holds where the message went once that is stored, or the error that kept it out; None when no new
        message was involved. ``pin`` names a model for this turn. Raises ConfigError when a turn is running.
        """
        self._need_idle(conversation)
        active = self._active[conversation] = _Active()
        opened: asyncio.Future[Sent | None] = asyncio.get_running_loop().create_future()
        opened.add_done_callback(_retrieved)
        run_id = run_id or new_run_id()
        active.turn = TurnState(conversation, run_id, self._services.clock())
        active.task = asyncio.create_task(
            self._drive(conversation, active, opening, profile, run_id, pin, opened),
            name=f"turn {conversation}",
        )
        return opened

    def run_queue(self, conversation: ConversationId, profile: Profile | None = None, *, held: bool = False) -> None:
        """See that what waits gets its turn, now or after the running one; ``held`` lets held input go on, too."""
        active = self._active.get(conversation)
        if active is not None:
            active.poked = True
        elif not self.closed:
            self.start(conversation, Waiting() if held else None, profile=profile)

    def abort(self, conversation: ConversationId, reason: str = "") -> bool:
        """Stop the running turn at once. False when none runs or it is stopping already."""
        active = self._active.get(conversation)
        if active is None or active.task is None or active.turn is None:
            return False
        if not active.turn.token.cancel(reason):
            return False
        if active.begun:  # a task cancelled before its first step would never run its own clean-up
            active.task.cancel()
        return True

    def interrupt(self, conversation: ConversationId) -> bool:
        """End the running turn after its current round. False when none runs."""
        turn = self.turn(conversation)
        if turn is None:
            return False
        turn.interrupted = True
        return True

    async def idle(self, conversation: ConversationId) -> None:
        """Wait until no turn runs and nothing of the queue is about to."""
        while (active := self._active.get(conversation)) is not None:
            await active.idle.wait()

    async def close(self) -> None:
        """End every turn as a crash would: what it left is taken up by the next ``recover``."""
        self.closed = True
        tasks = [active.task for active in self._active.values() if active.task is not None]
        for active in self._active.values():
            if active.task is not None and active.begun:
                active.task.cancel()
            elif active.turn is not None:
                active.turn.token.cancel("closing")
        if tasks:
            await asyncio.wait(tasks)

    # -- the queue ---------------------------------------------------------------------------------------------------

    async def queue_changed(self, conversation: ConversationId, frame: FrameId | None = None) -> None:
        self._hub.emit(await self._queue_event(conversation, frame))

    async def _queue_event(self, conversation: ConversationId, frame: FrameId | None = None) -> QueueChangedEvent:
        items = await self._services.store.queued(conversation)
        if frame is None:
            root = await self._services.store.root(conversation)
            frame = root.id if root else FrameId(0)
        return QueueChangedEvent(conversation, frame, items)

    async def enqueue(self, op: Enqueue) -> Sent:
        (stored,) = await asyncio.shield(asyncio.ensure_future(self._services.store.apply([op])))
        if stored.existing and not stored.queued:
            return Sent(MessageId(stored.id), existing=True)
        if not stored.existing:
            await self.queue_changed(op.conversation)
        return Sent(queued_id=stored.id or None, existing=stored.existing)

    # -- turns -------------------------------------------------------------------------------------------------------

    async def _drive(
        self,
        conversation: ConversationId,
        active: _Active,
        opening: Opening | None,
        profile: Profile | None,
        run_id: str,
        pin: str | None,
        opened: asyncio.Future[Sent | None],
    ) -> None:
        active.begun = True
        try:
            going = True
            while going:
                if opening is None or isinstance(opening, Waiting):
                    waiting = await self._services.store.queued(conversation)
                    first = next((item for item in waiting if opening is not None or not item.held), None)
                    if first is None:
                        if active.turn is not None:
                            await self._end_steering(conversation, active.turn)
                        if not active.poked:
                            break
                        active.poked = False
                        continue
                    opening = FromQueue(first)
                elif isinstance(opening, Prompted) and opening.queue and self._services.hooks:
                    opening = await self._behind_queue(conversation, opening, opened)
                ended = await self._turn(conversation, active, opening, profile, run_id, pin, opened)
                # After a stop or a failure what waits is held: it goes on with the next message or Session.run_queue.
                going = ended is None or active.refused or ended.subtype in ("success", "interrupted")
                going = going and (active.waits or active.poked)
                opening = Waiting() if active.behind else None
                run_id, pin = new_run_id(), None
                active.turn = None
                if not going:
                    self._release(conversation, active)  # who reads the result may begin the next turn at once
                if ended is not None:
                    self._hub.emit(ended)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.exception("conversation %s: a turn could not be driven", conversation)
            refuse(opened, error)
        finally:
            refuse(opened, AbortError("the turn was stopped before the message was stored"))
            if active.turn is not None:  # the process ends, or the store failed
                active.turn.steerable = False
                for told in active.turn.steering.values():
                    refuse(told, AbortError("the turn ended before this message could join it"))
            self._release(conversation, active)

    async def _behind_queue(
        self, conversation: ConversationId, prompt: Prompted, opened: asyncio.Future[Sent | None]
    ) -> Begun:
        """Queue a message behind held ones, if there are any, and begin with the first of them."""
        waiting = await self._services.store.queued(conversation)
        if not waiting:
            return prompt
        op = Enqueue(
            conversation, prompt.content, "synthetic" if prompt.synthetic else "user", prompt.client_id,
            prompt.attachments, prompt.metadata, self._services.clock(),
        )  # fmt: skip
        sent = await self.enqueue(op)
        if not opened.done():
            opened.set_result(sent)
        return FromQueue(waiting[0])

    async def _turn(
        self,
        conversation: ConversationId,
        active: _Active,
        opening: Begun,
        profile: Profile | None,
        run_id: str,
        pin: str | None,
        opened: asyncio.Future[Sent | None],
    ) -> ResultEvent | None:
        """One turn, from storing its message to its end; the caller tells the result. None when there was nothing to do."""
        turn = active.turn
        if turn is None or turn.run_id != run_id:
            turn = active.turn = TurnState(conversation, run_id, self._services.clock())
        active.frame = FrameId(0)
        active.poked = active.waits = active.refused = active.behind = False
        run: FrameRun | None = None
        timer: asyncio.TimerHandle | None = None
        committer = Committer(self._services.store, turn.token)
        early: list[Event] = []  # told once the turn has begun, so that nothing comes before its first event
        try:
            committer.checkpoint()
            broken: Exception | None = None
            try:
                profile = profile or await self._services.profiles(conversation, "")
            except Exception as error:  # noqa: BLE001 -- the message is stored first, then the turn fails with this
                broken, profile = error, Profile()
            if pin is not None:
                profile = msgspec.structs.replace(profile, pin=pin)
            limits = profile.limits or self._services.limits
            if limits.seconds is not None:
                reason = "the turn's time limit was reached"
                timer = asyncio.get_running_loop().call_later(limits.seconds, self.abort, conversation, reason)
            entered = await self._enter(conversation, active, opening, profile, turn, committer, opened, early)
            if entered is None:
                await self._end_steering(conversation, turn)
                return None
            loaded, events = entered
            early += events
            committer.checkpoint()
            run = FrameRun(
                self._services, turn, loaded, profile, token=turn.token, emit=self._hub.emit,
                resumed=isinstance(opening, Resumed),
            )  # fmt: skip
            outcome = await run.run(*self._skills_event(conversation, profile), *early, broken=broken)
        except asyncio.CancelledError:
            if not turn.token.cancelled:
                raise
            outcome = Outcome("aborted", "", "error", reason=turn.token.reason)
            if run is None:
                self._tell_not_begun(turn, active.frame, profile, early)
        except Exception as error:  # noqa: BLE001 -- a turn's end must be told whatever happened
            refuse(opened, error)
            self._tell_not_begun(turn, active.frame, profile, early)
            outcome = self._not_entered(conversation, active.frame, error)
        finally:
            if timer is not None:
                timer.cancel()
        if outcome.kind != "aborted" or run is None:
            try:
                held = outcome.kind == "error" and not active.refused
                ops: list[Op] = [HoldQueue(conversation)] if held else []
                active.poked = False
                active.waits = (await committer.commit(*ops, CloseRun(conversation)))[-1].queued
            except LoopError:
                log.exception("conversation %s: the end of a turn could not be stored", conversation)
        await self._end_steering(conversation, turn)
        return ResultEvent(
            conversation, active.frame, run_id, outcome.kind, outcome.stop_reason, turn.usage,
            round((time.monotonic() - turn.started) * 1000), run.rounds if run else 0, outcome.text, outcome.message,
            outcome.reason,
        )  # fmt: skip

    def _skills_event(self, conversation: ConversationId, profile: Profile) -> Iterable[Event]:
        """The event that tells of the agent's skills, once here and again when they are others."""
        if profile.skills == self._skills.get(conversation, ()):
            return
        if len(self._skills) >= _REMEMBERED:
            self._skills.clear()  # telling again harms nobody
        self._skills[conversation] = profile.skills
        active = self._active.get(conversation)
        yield SkillsLoadedEvent(conversation, active.frame if active is not None else FrameId(0), profile.skills)

    def _tell_not_begun(self, turn: TurnState, frame: FrameId, profile: Profile | None, early: Iterable[Event]) -> None:
        """The first event of a turn that ended before anything of it could begin, and what happened until then."""
        profile = profile or Profile()
        self._hub.emit(
            SystemEvent(
                turn.conversation, frame, turn.run_id, profile.agent,
                permission_mode=mode_of(self._services.gate), cwd=profile.cwd,
            )
        )  # fmt: skip
        for event in early:
            self._hub.emit(event)

    def _not_entered(self, conversation: ConversationId, frame: FrameId, error: Exception) -> Outcome:
        if not isinstance(error, LoopError):
            log.error("conversation %s: a turn could not begin", conversation, exc_info=error)
        kind = error.kind if isinstance(error, LoopError) else "internal"
        text = str(error) if isinstance(error, LoopError) else f"the turn could not begin ({type(error).__name__})"
        retryable = bool(getattr(error, "retryable", False))
        self._hub.emit(ErrorEvent(conversation, frame, kind, text, retryable, name=type(error).__name__))
        return Outcome("error", "", "error", reason=text)

    async def _enter(
        self,
        conversation: ConversationId,
        active: _Active,
        opening: Begun,
        profile: Profile,
        turn: TurnState,
        committer: Committer,
        opened: asyncio.Future[Sent | None],
        early: list[Event],
    ) -> tuple[LoadedFrame, tuple[Event, ...]] | None:
        """Store what opens the turn and load its history. None when the message was stored before.

        What there is to tell meanwhile goes to ``early``.
        """
        at = self._services.clock()
        ops: list[Op] = [OpenFrame(conversation, agent=profile.agent, at=at)]
        open_run = OpenRun(turn.run_id, conversation, None, at)
        if not isinstance(opening, Resumed):
            context = await self._prompt_context(conversation, active, opening, profile, committer, early)
            ops.append(_message_op(opening, context, at))
        else:
            ops += opening.ops
        if self._doubtful(conversation):
            ops[1:1] = await self._repairs(conversation, resumed=isinstance(opening, Resumed))
        stored = await committer.commit(*ops, open_run, LoadFrame())
        active.frame = FrameId(stored[0].id)
        said, loaded = stored[-3], stored[-1].loaded
        if isinstance(opening, Prompted) and (said.existing or said.queued):
            if not opened.done():
                known = None if said.queued or not said.id else MessageId(said.id)
                opened.set_result(Sent(known, (said.id or None) if said.queued else None, said.existing))
            active.waits = active.behind = not said.existing
            if active.behind:
                await self.queue_changed(conversation, active.frame)
            return None
        message_id = MessageId(said.id)
        if not opened.done():
            opened.set_result(Sent(message_id) if isinstance(opening, Prompted) else None)
        assert loaded is not None
        if isinstance(opening, Resumed):
            return loaded, ()
        queued = opening.item.id if isinstance(opening, FromQueue) else None
        if queued is not None:
            early.append(await self._queue_event(conversation, active.frame))
        message = next((m for m in reversed(loaded.messages) if m.id == message_id), None)
        assert message is not None
        if message.role == "assistant":
            limits = profile.limits or self._services.limits
            return loaded, tuple(delivered_events(loaded.frame, message, limits.event_chars))
        subtype = "synthetic" if message.synthetic else "prompt"
        return loaded, (user_event(loaded.frame, message, subtype, queued, said.siblings),)

    async def _prompt_context(
        self,
        conversation: ConversationId,
        active: _Active,
        opening: Prompted | FromQueue,
        profile: Profile,
        committer: Committer,
        early: list[Event],
    ) -> str:
        """Text the prompt hooks add. Raises HookError when they refuse the message."""
        limits = profile.limits or self._services.limits
        source = opening.item if isinstance(opening, FromQueue) else opening
        if source.synthetic if isinstance(source, Prompted) else source.kind in ("synthetic", "task"):
            return ""
        prompt = Prompt(conversation, source.content, "run", source.attachments, source.metadata)
        verdict = await ask_prompt_hook(self._services, prompt, limits, active.frame, early.append)
        if isinstance(verdict, Block):
            if isinstance(opening, FromQueue):
                await committer.commit(DeleteQueued(opening.item.id))
                early.append(await self._queue_event(conversation))
                active.refused = True  # those behind it are not to blame
            raise HookError(verdict.reason)
        return verdict.text if verdict is not None else ""

    async def _repairs(self, conversation: ConversationId, *, resumed: bool) -> list[Op]:
        """What a turn cut off by a crash left, put in order: for a host that did not call ``recover``."""
        store = self._services.store
        ops: list[Op] = []
        for frame in await store.active_frames(conversation):
            ops += await draft_ops(self._services, frame)
            if not resumed:
                ops.append(SettleCalls(frame.id, "failed", INTERRUPTED, "interrupted", True, self._services.clock()))
        return ops

    async def _end_steering(self, conversation: ConversationId, turn: TurnState) -> None:
        """Steering that came too late: whoever waits for it is told, the rest becomes ordinary queued input."""
        turn.steerable = False
        left, turn.steering = turn.steering, {}
        ops: list[Op] = []
        for queued, told in left.items():
            ops.append(EditQueued(queued, kind="user") if told is None else DeleteQueued(queued))
            refuse(told, AbortError("the turn ended before this message could join it"))
        if ops:
            try:
                await self._services.store.apply(ops)
                await self.queue_changed(conversation)
            except LoopError:
                log.exception("conversation %s: late steering could not be kept", conversation)


def _message_op(opening: Prompted | FromQueue, context: str, at: int) -> Op:
    if isinstance(opening, FromQueue):
        return Dequeue(opening.item.id, None, context, at)
    return AppendMessage(
        None, "user", opening.content, parent=opening.parent, synthetic=opening.synthetic, client_id=opening.client_id,
        attachments=opening.attachments,
        metadata=opening.metadata | ({"hook_context": context} if context else {}), at=at, behind_queue=opening.queue,
    )  # fmt: skip


async def draft_ops(services: Services, frame: Frame) -> list[Op]:
    """Turn a draft that a crash left into a partial message; a sub-agent's is dropped, it is asked again."""
    draft = await services.store.draft(frame.id)
    if draft is None:
        return []
    ops: list[Op] = []
    if frame.depth == 0 and (draft.content or draft.reasoning):
        ops.append(
            AppendMessage(
                frame.id, "assistant", draft.content, reasoning=draft.reasoning, status="partial", model=draft.model,
                metadata={"interrupted": True}, at=services.clock(),
            )
        )  # fmt: skip
    return [*ops, ClearDraft(frame.id)]


def _retrieved(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
