"""Runs the calls of one assistant message and records what came of them; :mod:`skald_core.loop.judging` decides about them.

Calls run in batches, in call order: neighbours whose tools are ``parallel_safe`` run together up to the cap, everything else
runs alone. A batch begins when every earlier one has ended, and a call in it as soon as nobody has to be waited for: while a
person decides about a write, the reads before it run; what comes after it does not overtake. Every question of a round is
asked at once, before any call begins.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from skald_core.loop.cancel import CancelToken
from skald_core.loop.errors import ToolError, ToolSuspended
from skald_core.loop.events import (
    HookErrorEvent,
    SkillCompletedEvent,
    SkillInvokedEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
    ToolProgressEvent,
)
from skald_core.loop.judging import Judge, path_of
from skald_core.loop.loading import ACTIVATES
from skald_core.loop.ops import CloseFrame, Op, ResolveCall, SetCallState
from skald_core.loop.profile import Limits
from skald_core.loop.projection import CANCELLED
from skald_core.loop.records import Call, Frame
from skald_core.loop.services import Committer, Emit, RunningCall, Services, TurnState
from skald_core.loop.text import cut
from skald_core.loop.tools import SkillUse, Tool, ToolOutput, ToolRegistry
from skald_core.loop.types import CallId, FrameId, MessageId
from skald_core.loop.work import Kind, Work, batches

__all__ = ("Scheduler",)

log = logging.getLogger(__name__)

_GRACE = 10.0
"""Seconds a stopped tool has to clean up before it is left behind."""


class Scheduler:
    """Executes calls for one frame. ``closing`` maps a call to the sub-frame that closes with its result."""

    def __init__(
        self,
        services: Services,
        turn: TurnState,
        frame: Frame,
        *,
        limits: Limits,
        scope: dict[type[Any], Any],
        token: CancelToken,
        committer: Committer,
        emit: Emit,
    ) -> None:
        self._services = services
        self._turn = turn
        self._frame = frame
        self._limits = limits
        self._token = token
        self._commit = committer
        self._emit = emit
        self._root = frame.depth == 0
        self._thread = threading.get_ident()
        self._loop = asyncio.get_running_loop()
        self._judge = Judge(
            services, turn, frame, limits=limits, scope=scope, token=token, committer=committer, emit=emit
        )
        self.closing: dict[CallId, FrameId] = {}
        self._started: set[CallId] = set()  # told of and not ended
        self._skills: dict[CallId, SkillUse] = {}  # of this round's calls

    def approve(self, call: CallId) -> None:
        """Let a call run without judging it again: it was judged before a crash interrupted it."""
        self._judge.approved.add(call)

    async def execute(self, calls: Sequence[Call], registry: ToolRegistry) -> tuple[list[Call], bool]:
        """Run every open call. Returns all calls as they are now, in order, and whether one waits for a person.

        Raises CancelledError when stopped; what was open then is for the caller to settle, started or not.
        """
        works = [Work(call) for call in calls if not call.terminal]
        self._skills.clear()
        for work in works:
            self._judge.resolve(work, registry, self._progress)
            skill = _skill_of(work.tool, work.raw) if work.tool is not None else None
            if skill is not None:
                self._skills[work.call.id] = skill
        try:
            await self._judge.judge(works)
            for batch in batches(works):
                self._commit.checkpoint()
                await self._run_batch(batch)
        finally:
            await self._judge.dismiss(works)
        for work in works:
            if work.suspended:
                work.call = msgspec.structs.replace(work.call, state="awaiting")
        recorded = {work.call.id: work.call for work in works}
        return [recorded.get(call.id, call) for call in calls], any(work.suspended for work in works)

    # -- running -----------------------------------------------------------------------------------------------------

    async def _run_batch(self, batch: list[Work]) -> None:
        if len(batch) == 1:
            await self._run_alone(batch[0])
            return
        if all(work.decided and not work.ready for work in batch):
            await self._refuse(batch)
            return
        await self._run_together(batch)

    async def _run_alone(self, work: Work) -> None:
        if work.asking is not None and not work.asking.done():
            await asyncio.wait([work.asking])
            self._commit.checkpoint()
        if not work.ready:
            await self._refuse([work])
            return
        if self._root and not self._turn.waiting:
            self._turn.phase = "tools"
        if work.held:
            await self._release([work])
        self._start(work)
        await self._run(work)
        await self._record([work])

    async def _run_together(self, batch: list[Work]) -> None:
        undecided = [work for work in batch if not work.decided]
        waiting = deque(work for work in batch if work.decided)
        running: dict[asyncio.Task[None], Work] = {}
        try:
            while undecided or waiting or running:
                await self._refuse([work for work in waiting if not work.ready])
                waiting = deque(work for work in waiting if work.ready)
                free = self._limits.parallel_calls - len(running)
                beginning = [waiting.popleft() for _ in range(min(free, len(waiting)))]
                if any(work.held for work in beginning):
                    await self._release([work for work in beginning if work.held])
                if self._root and beginning and not self._turn.waiting:
                    self._turn.phase = "tools"
                for work in beginning:
                    self._start(work)
                    running[asyncio.create_task(self._run(work))] = work
                awaited = [*running, *(work.asking for work in undecided if work.asking is not None)]
                if not awaited:
                    continue
                done, _ = await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
                ended = sorted(
                    (running.pop(task) for task in done if task in running), key=lambda work: work.call.index
                )
                await self._record(ended)
                self._commit.checkpoint()
                waiting.extend(work for work in undecided if work.decided)
                undecided = [work for work in undecided if not work.decided]
        except BaseException:
            for task in running:
                task.cancel()
            if running:
                await self._commit.wait(asyncio.wait(list(running), timeout=_GRACE))
                # What ended all the same keeps its result.
                await self._record([work for task, work in running.items() if task.done() and work.state is not None])
            raise

    async def _release(self, works: Sequence[Work]) -> None:
        """Store that calls which waited begin now: a crash from here on must neither ask nor run them a second time."""
        await self._commit.commit(*(SetCallState(work.call.id, "running", work.effective) for work in works))
        for work in works:
            work.held = False
        self._commit.checkpoint()

    async def _refuse(self, works: Sequence[Work]) -> None:
        """Record calls that will not run; what is left to a person stays as it is."""
        refused = [work for work in works if not work.suspended]
        if not refused:
            return
        for work in refused:
            self._start(work)
        await self._record(refused)
        self._commit.checkpoint()

    def _start(self, work: Work) -> None:
        tool, pending = work.tool, work.pending
        summary = pending.summary if pending is not None else work.call.name
        work.started = True
        self._started.add(work.call.id)
        if self._root:
            self._turn.running[work.call.id] = RunningCall(
                work.call.id, work.call.tool_use_id, work.call.name, summary, self._services.clock()
            )
        self._invoked(work.call)
        self._emit(
            ToolCallStartEvent(
                self._frame.conversation, self._frame.id, work.call.message, work.call.id, work.call.tool_use_id,
                work.call.name, work.raw, summary, tool.title if tool else "", tool.icon if tool else "tool",
                path_of(tool, work.arguments) if tool and pending else None,
            )
        )  # fmt: skip

    async def _run(self, work: Work) -> None:
        """Run a call that may; leaves its result on ``work``. Raises only CancelledError, and only for a stop."""
        tool, context, pending = work.tool, work.context, work.pending
        assert tool is not None
        assert context is not None
        assert pending is not None
        began = time.perf_counter()
        try:
            made = await tool.run(work.arguments, context)
            output = ToolOutput(made) if isinstance(made, str) else made
            if not isinstance(output, ToolOutput):
                raise TypeError(f"a tool returns str or ToolOutput, not {type(made).__name__}")
            work.state = "failed" if output.is_error else "done"
            work.kind = "error" if output.is_error else "json" if output.json else "text"
            work.output = output
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._token.cancelled or (task is not None and task.cancelling()):
                raise
            work.refuse("failed", "the tool stopped itself before it had a result", "error")
        except ToolSuspended:
            work.suspended = True
            return
        except ToolError as error:
            work.refuse("failed", str(error) or f"{tool.name} failed", "error")
        except Exception as error:  # noqa: BLE001 -- a tool may raise anything; it becomes the call's result
            # Where, not what: what it says may be the person's own words, which are not for a log. It is in the result.
            where = "".join(traceback.format_tb(error.__traceback__))
            log.error("tool %r failed with %s\n%s", tool.name, type(error).__name__, where.rstrip())
            work.refuse("failed", f"{type(error).__name__}: {error}" if str(error) else type(error).__name__, "error")
        finally:
            work.duration = round((time.perf_counter() - began) * 1000)
        if self._services.hooks:
            await self._after(work)

    async def _after(self, work: Work) -> None:
        pending, output, frame = work.pending, work.output, self._frame
        assert pending is not None
        assert output is not None
        added = await self._services.hooks.after_tool(
            pending, output, work.duration, seconds=self._limits.hook_seconds,
            report=lambda name, text: self._emit(
                HookErrorEvent(frame.conversation, frame.id, name, text, work.call.tool_use_id)
            ),
        )  # fmt: skip
        if added:
            work.output = msgspec.structs.replace(output, text=f"{output.text}\n\n<reminder>\n{added}\n</reminder>")

    async def _record(self, works: Sequence[Work]) -> None:
        """Store results in call order, then tell of them."""
        at = self._services.clock()
        ops: list[Op] = []
        for work in works:
            if work.suspended:
                ops.append(SetCallState(work.call.id, "awaiting"))
                continue
            output = work.output
            assert output is not None
            assert work.state is not None
            extras = _extras(output)
            ops.append(
                ResolveCall(work.call.id, work.state, output.text, work.kind, output.media, extras, work.duration, at)
            )
            child = self.closing.pop(work.call.id, None)
            if child is not None:
                ops.append(CloseFrame(child))
        if not ops:
            return
        await self._commit.commit(*ops)
        for work in works:
            self._turn.running.pop(work.call.id, None)
            if work.suspended:
                if work.started:
                    self._end(work, "awaiting", "waits for a person", "interrupted")
                continue
            output = work.output
            assert output is not None
            assert work.state is not None
            work.call = msgspec.structs.replace(
                work.call, state=work.state, effective=work.effective or work.call.effective, result=output.text,
                result_kind=work.kind, media=output.media, extras=work.call.extras | _extras(output), finished_at=at,
                duration_ms=work.duration,
            )  # fmt: skip
            self._end(work, work.state, output.text, work.kind)

    def _end(
        self,
        work: Work,
        state: Literal["awaiting", "done", "failed", "cancelled", "rejected"],
        text: str,
        kind: Kind,
    ) -> None:
        output = work.output
        self._started.discard(work.call.id)
        shown = cut(text, self._limits.event_chars)
        self._emit(
            ToolCallEndEvent(
                self._frame.conversation, self._frame.id, work.call.message, work.call.id, work.call.tool_use_id,
                work.call.name, state, state not in ("done", "awaiting"), shown, kind, len(shown) != len(text),
                output.media if output else (), output.display if output else None, work.duration,
            )
        )  # fmt: skip
        self._completed(work.call, state not in ("done", "awaiting"))

    def settled(self, message: MessageId, call: Call, result: str = CANCELLED) -> None:
        """Tell of a call the caller settled in the store: its end, and its start when that never came."""
        if call.id not in self._started:
            self._invoked(call)
            self._emit(
                ToolCallStartEvent(
                    self._frame.conversation, self._frame.id, message, call.id, call.tool_use_id, call.name, {},
                    call.name,
                )
            )  # fmt: skip
        self._started.discard(call.id)
        self._turn.running.pop(call.id, None)
        self._emit(
            ToolCallEndEvent(
                self._frame.conversation, self._frame.id, message, call.id, call.tool_use_id, call.name,
                call.state, True, result, call.result_kind or "cancelled",
            )
        )  # fmt: skip
        self._completed(call, True)

    def _invoked(self, call: Call) -> None:
        skill = self._skills.get(call.id)
        if skill is not None:
            self._emit(
                SkillInvokedEvent(
                    self._frame.conversation, self._frame.id, call.id, call.tool_use_id, skill.name, skill.args,
                    skill.model_override, skill.allowed_tools,
                )
            )  # fmt: skip

    def _completed(self, call: Call, is_error: bool) -> None:
        skill = self._skills.get(call.id)
        if skill is not None:
            self._emit(
                SkillCompletedEvent(
                    self._frame.conversation, self._frame.id, call.id, call.tool_use_id, skill.name, is_error
                )
            )  # fmt: skip

    def _progress(self, work: Work, data: dict[str, Any]) -> None:
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self._progress, work, data)
        elif work.call.id in self._started:
            self._emit(
                ToolProgressEvent(self._frame.conversation, self._frame.id, work.call.id, work.call.tool_use_id, data)
            )


def _skill_of(tool: Tool, raw: dict[str, Any]) -> SkillUse | None:
    try:
        return tool.skill(raw)
    except Exception:
        log.exception("tool %r failed to say which skill a call uses", tool.name)
        return None


def _extras(output: ToolOutput) -> dict[str, Any]:
    """What is kept with a call beside its result."""
    extras: dict[str, Any] = {}
    if output.display is not None:
        extras["display"] = output.display
    if output.activates and not output.is_error:
        extras[ACTIVATES] = list(output.activates)
    return extras
