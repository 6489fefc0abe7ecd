"""Runs the calls of one assistant message: checks them, has them judged, runs them, records what came of it.

Order of judgement: validate, before-tool hooks (what they rewrite is validated and judged again), gate, run, after-tool
hooks. Calls refused anywhere get an error result; nothing but a clear *allow* runs. Neighbouring ``parallel_safe`` calls
run together up to the cap; everything else runs alone, in order.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from skald_core.loop.cancel import CancelToken
from skald_core.loop.errors import LoopError, ToolError, ToolSuspended
from skald_core.loop.events import (
    HookErrorEvent,
    PermissionRequestEvent,
    PermissionView,
    ToolCallEndEvent,
    ToolCallStartEvent,
    ToolProgressEvent,
)
from skald_core.loop.gate import Allow, Ask, Deny, PendingCall, Suspend, Verdict
from skald_core.loop.hooks import MustAsk, NoHooks, Rewrite
from skald_core.loop.ops import CloseFrame, Op, ResolveCall, SetCallState
from skald_core.loop.profile import Limits
from skald_core.loop.projection import CANCELLED
from skald_core.loop.records import Call, Frame
from skald_core.loop.services import Committer, Emit, RunningCall, Services, TurnState
from skald_core.loop.text import cut
from skald_core.loop.tools import InvalidArguments, Tool, ToolContext, ToolOutput, ToolRegistry
from skald_core.loop.types import CallId, FrameId, MessageId

__all__ = ("Scheduler", "parse_arguments")

log = logging.getLogger(__name__)

_REWRITES = 3
"""How often a gate may rewrite one call before it is refused."""

_GRACE = 10.0
"""Seconds a stopped tool has to clean up before it is left behind."""


def parse_arguments(text: str) -> dict[str, Any]:
    """The JSON object a model wrote; nothing at all counts as an empty one. Raises InvalidArguments in plain words."""
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidArguments(f"the arguments are not valid JSON ({error}); call again with one JSON object") from None
    except RecursionError:
        raise InvalidArguments("the arguments are nested too deeply; call again with a flatter JSON object") from None
    if not isinstance(value, dict):
        raise InvalidArguments(f"the arguments must be one JSON object, not {type(value).__name__}")
    return value


def _dump(raw: dict[str, Any]) -> str:
    return json.dumps(raw, ensure_ascii=False, separators=(",", ":"))


State = Literal["done", "failed", "cancelled", "rejected"]


class _Work:
    """One call on its way from the model's text to a result."""

    __slots__ = (
        "arguments", "asked", "call", "context", "duration", "effective", "hooked", "kind", "output", "pending", "raw",
        "started", "state", "suspended", "tool", "verdict",
    )  # fmt: skip

    def __init__(self, call: Call) -> None:
        self.call = call
        self.tool: Tool | None = None
        self.raw: dict[str, Any] = {}
        self.arguments: Any = None
        self.context: ToolContext | None = None
        self.pending: PendingCall | None = None
        self.verdict: Verdict | None = None
        self.hooked: MustAsk | None = None
        self.asked = False
        self.effective: str | None = None  # arguments to store because they differ from the model's
        self.output: ToolOutput | None = None
        self.state: State | None = None
        self.kind: Literal["text", "json", "error", "cancelled", "rejected", "interrupted"] = "text"
        self.started = False
        self.suspended = False
        self.duration = 0

    def refuse(self, state: State, text: str, kind: Literal["error", "rejected", "cancelled", "interrupted"]) -> None:
        self.state = state
        self.output = ToolOutput(text, is_error=True)
        self.kind = kind

    @property
    def ready(self) -> bool:
        """Whether it may run."""
        return self.state is None and not self.suspended


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
        self._scope = scope
        self._token = token
        self._commit = committer
        self._emit = emit
        self._root = frame.depth == 0
        self._thread = threading.get_ident()
        self._loop = asyncio.get_running_loop()
        self.closing: dict[CallId, FrameId] = {}
        self.approved: set[CallId] = set()
        self._started: set[CallId] = set()

    async def execute(self, calls: Sequence[Call], registry: ToolRegistry) -> tuple[list[Call], bool]:
        """Run every open call. Returns all calls as they are now, in order, and whether one waits for a person.

        Raises CancelledError when stopped; what was open then is for the caller to settle, started or not.
        """
        works = [_Work(call) for call in calls if not call.terminal]
        for work in works:
            self._resolve(work, registry)
        await self._judge(works)
        for batch in _batches(works):
            self._commit.checkpoint()
            await self._run_batch(batch)
        for work in works:
            if work.suspended:
                work.call = msgspec.structs.replace(work.call, state="awaiting")
        recorded = {work.call.id: work.call for work in works}
        return [recorded.get(call.id, call) for call in calls], any(work.suspended for work in works)

    # -- checking and judging ----------------------------------------------------------------------------------------

    def _resolve(self, work: _Work, registry: ToolRegistry) -> None:
        call = work.call
        tool = registry.get(call.name)
        if tool is None:
            known = ", ".join(sorted(t.name for t in registry)[:40]) or "none"
            work.refuse("failed", f"unknown tool {call.name!r}: it is not available now. Tools: {known}", "error")
            return
        work.tool = tool
        work.context = ToolContext(
            conversation=self._frame.conversation,
            frame=self._frame.id,
            agent=self._frame.agent,
            call_id=call.id,
            tool_use_id=call.tool_use_id,
            cancelled=self._token.event,
            scope=self._scope,
            emit=lambda data: self._progress(work, data),
        )
        try:
            work.raw = parse_arguments(call.effective if call.effective is not None else call.arguments)
            self._take(work, work.raw)
        except InvalidArguments as error:
            work.refuse("failed", str(error), "error")

    def _take(self, work: _Work, raw: dict[str, Any]) -> None:
        """Make ``raw`` the call's arguments. Raises InvalidArguments."""
        tool, context = work.tool, work.context
        assert tool is not None
        assert context is not None
        try:
            arguments = tool.validate(raw)
        except InvalidArguments:
            raise
        except Exception as error:
            log.exception("tool %r failed to validate its arguments", tool.name)
            raise InvalidArguments(
                f"{tool.name}: the arguments could not be checked ({type(error).__name__})"
            ) from None
        try:
            summary = tool.summarize(arguments)
        except Exception:
            log.exception("tool %r failed to summarize a call", tool.name)
            summary = tool.name
        work.raw, work.arguments = raw, arguments
        work.pending = PendingCall(tool, raw, arguments, summary, context)

    def _rewrite(self, work: _Work, raw: dict[str, Any], who: str) -> bool:
        try:
            self._take(work, raw)
        except InvalidArguments as error:
            work.refuse("rejected", f"{who} changed the arguments to something the tool refuses: {error}", "rejected")
            return False
        work.effective = _dump(raw)
        return True

    async def _judge(self, works: Sequence[_Work]) -> None:
        for work in works:
            if work.ready and work.call.id in self.approved:
                work.verdict = Allow()
        if type(self._services.hooks) is not NoHooks:
            for work in works:
                if work.ready and work.verdict is None:
                    self._commit.checkpoint()
                    await self._before(work)
        await self._ask_gate([work for work in works if work.ready and work.verdict is None])
        asked = [work for work in works if work.ready and isinstance(work.verdict, Ask)]
        ops: list[Op] = [
            SetCallState(work.call.id, "awaiting" if isinstance(work.verdict, Ask) else "running", work.effective)
            for work in works
            if work.ready and (isinstance(work.verdict, Ask) or work.effective is not None)
        ]
        if ops:
            await self._commit.commit(*ops)
        if asked:
            await self._ask_people(asked)

    async def _before(self, work: _Work) -> None:
        assert work.pending is not None
        try:
            async with asyncio.timeout(self._limits.hook_seconds):
                verdict = await self._services.hooks.before_tool(work.pending)
        except Exception as error:
            log.exception("a before-tool hook failed")
            self._hook_error("before_tool", error, work.call.tool_use_id)
            work.refuse("rejected", "a check that runs before tools failed, so this call was refused", "rejected")
            return
        match verdict:
            case None:
                pass
            case Rewrite(raw):
                self._rewrite(work, raw, "a hook")
            case Deny(reason):
                work.refuse("rejected", reason, "rejected")
            case MustAsk():
                work.hooked = verdict
            case _:
                # a hook is foreign code and may return anything.
                work.refuse(  # type: ignore[unreachable]
                    "rejected", "a check that runs before tools gave no clear answer", "rejected"
                )

    async def _ask_gate(self, works: list[_Work]) -> None:
        """Have calls judged, again after each rewrite, until every one has a verdict or is refused."""
        for _ in range(_REWRITES):
            if not works:
                return
            self._commit.checkpoint()
            pending = [work.pending for work in works if work.pending is not None]
            try:
                verdicts = list(await self._services.gate.judge(pending))
                if len(verdicts) != len(works):
                    raise LoopError(f"the gate gave {len(verdicts)} verdicts for {len(works)} calls")
            except Exception:
                log.exception("the gate failed")
                verdicts = [Deny("the permission check failed, so this call was refused")] * len(works)
            again: list[_Work] = []
            for work, verdict in zip(works, verdicts, strict=True):
                if isinstance(verdict, Allow) and verdict.raw is not None:
                    if self._rewrite(work, verdict.raw, "the gate"):
                        again.append(work)
                    continue
                self._take_verdict(work, verdict)
            works = again
        for work in works:
            work.refuse("rejected", "the permission check kept changing this call, so it was refused", "rejected")

    def _take_verdict(self, work: _Work, verdict: Verdict) -> None:
        match verdict:
            case Allow():
                work.verdict = Ask(work.hooked.reason) if work.hooked is not None else verdict
            case Ask():
                work.verdict = verdict
            case Deny(reason):
                work.refuse("rejected", reason, "rejected")
            case _:
                # a gate is foreign code and may return anything.
                work.refuse(  # type: ignore[unreachable]
                    "rejected", "the permission check gave no clear answer, so this call was refused", "rejected"
                )

    async def _ask_people(self, works: list[_Work]) -> None:
        views = tuple(self._view(work) for work in works)
        if self._root:
            self._turn.phase = "waiting"
            self._turn.waiting = {view.call_id: view for view in views}
        self._emit(PermissionRequestEvent(self._frame.conversation, self._frame.id, views))
        self._commit.checkpoint()
        tasks = [asyncio.create_task(self._ask_person(work)) for work in works]
        try:
            await asyncio.gather(*tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            await self._commit.wait(asyncio.wait(tasks, timeout=_GRACE))
            raise
        finally:
            if self._root:
                self._turn.waiting = {}
        # The answers are stored before anything runs: a crash from here on must not ask, or run, a second time.
        ops: list[Op] = [SetCallState(work.call.id, "running", work.effective) for work in works if work.ready]
        if ops:
            await self._commit.commit(*ops)

    async def _ask_person(self, work: _Work) -> None:
        pending, verdict = work.pending, work.verdict
        assert pending is not None
        assert isinstance(verdict, Ask)
        try:
            answer = await self._services.gate.ask(pending, verdict)
        except Exception:
            log.exception("the gate failed while asking")
            answer = Deny("asking for permission failed, so this call was refused")
        match answer:
            case Allow(raw):
                if raw is not None and self._rewrite(work, raw, "the person"):
                    await self._judge_edited(work)
                work.asked = True
            case Suspend():
                work.suspended = True
            case Deny(reason):
                work.refuse("rejected", reason, "rejected")
            case _:
                # a gate is foreign code and may return anything.
                work.refuse(  # type: ignore[unreachable]
                    "rejected", "asking for permission gave no clear answer", "rejected"
                )

    async def _judge_edited(self, work: _Work) -> None:
        """What a person edited is judged again: a denial stands, an *ask* was answered by the edit itself."""
        assert work.pending is not None
        try:
            (verdict,) = await self._services.gate.judge([work.pending])
        except Exception:
            log.exception("the gate failed on an edited call")
            verdict = Deny("the permission check failed, so this call was refused")
        if isinstance(verdict, Deny):
            work.refuse("rejected", verdict.reason, "rejected")

    def _view(self, work: _Work) -> PermissionView:
        pending, verdict, tool = work.pending, work.verdict, work.tool
        assert pending is not None
        assert isinstance(verdict, Ask)
        assert tool is not None
        return PermissionView(
            work.call.id, work.call.message, work.call.tool_use_id, tool.name, work.raw, pending.summary,
            verdict.reason, verdict.details, tool.title, tool.icon, _path(tool, work.arguments),
        )  # fmt: skip

    # -- running -----------------------------------------------------------------------------------------------------

    async def _run_batch(self, batch: list[_Work]) -> None:
        if not batch[0].ready:
            for work in batch:
                if not work.suspended:
                    self._start(work)
            await self._record([work for work in batch if not work.suspended])
            return
        if self._root:
            self._turn.phase = "tools"
        if len(batch) == 1:
            self._start(batch[0])
            await self._run(batch[0])
            await self._record(batch)
            return
        waiting = deque(batch)
        running: dict[asyncio.Task[None], _Work] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self._limits.parallel_calls:
                    work = waiting.popleft()
                    self._start(work)
                    running[asyncio.create_task(self._run(work))] = work
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                ended = sorted((running.pop(task) for task in done), key=lambda work: work.call.index)
                await self._record(ended)
                self._commit.checkpoint()
        except BaseException:
            for task in running:
                task.cancel()
            if running:
                await self._commit.wait(asyncio.wait(list(running), timeout=_GRACE))
                # What ended all the same keeps its result.
                await self._record([work for task, work in running.items() if task.done() and work.state is not None])
            raise

    def _start(self, work: _Work) -> None:
        tool, pending = work.tool, work.pending
        summary = pending.summary if pending is not None else work.call.name
        work.started = True
        self._started.add(work.call.id)
        if self._root:
            self._turn.running[work.call.id] = RunningCall(
                work.call.id, work.call.tool_use_id, work.call.name, summary, self._services.clock()
            )
        self._emit(
            ToolCallStartEvent(
                self._frame.conversation, self._frame.id, work.call.message, work.call.id, work.call.tool_use_id,
                work.call.name, work.raw, summary, tool.title if tool else "", tool.icon if tool else "tool",
                _path(tool, work.arguments) if tool and pending else None,
            )
        )  # fmt: skip

    async def _run(self, work: _Work) -> None:
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
        except Exception as error:
            log.exception("tool %r failed", tool.name)
            work.refuse("failed", f"{type(error).__name__}: {error}" if str(error) else type(error).__name__, "error")
        finally:
            work.duration = round((time.perf_counter() - began) * 1000)
        if type(self._services.hooks) is not NoHooks:
            await self._after(work)

    async def _after(self, work: _Work) -> None:
        pending, output = work.pending, work.output
        assert pending is not None
        assert output is not None
        try:
            async with asyncio.timeout(self._limits.hook_seconds):
                added = await self._services.hooks.after_tool(pending, output, work.duration)
        except Exception as error:
            log.exception("an after-tool hook failed")
            self._hook_error("after_tool", error, work.call.tool_use_id)
            return
        if added:
            work.output = msgspec.structs.replace(output, text=f"{output.text}\n\n<reminder>\n{added}\n</reminder>")

    async def _record(self, works: Sequence[_Work]) -> None:
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
            extras = {"display": output.display} if output.display is not None else {}
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
                result_kind=work.kind, media=output.media, finished_at=at, duration_ms=work.duration,
            )  # fmt: skip
            self._end(work, work.state, output.text, work.kind)

    def _end(
        self,
        work: _Work,
        state: Literal["awaiting", "done", "failed", "cancelled", "rejected"],
        text: str,
        kind: Literal["text", "json", "error", "cancelled", "rejected", "interrupted"],
    ) -> None:
        output = work.output
        shown = cut(text, self._limits.event_chars)
        self._emit(
            ToolCallEndEvent(
                self._frame.conversation, self._frame.id, work.call.message, work.call.id, work.call.tool_use_id,
                work.call.name, state, state not in ("done", "awaiting"), shown, kind, len(shown) != len(text),
                output.media if output else (), output.display if output else None, work.duration,
            )
        )  # fmt: skip

    def settled(self, message: MessageId, call: Call, result: str = CANCELLED) -> None:
        """Tell of a call the caller settled in the store: its end, and its start when that never came."""
        if call.id not in self._started:
            self._emit(
                ToolCallStartEvent(
                    self._frame.conversation, self._frame.id, message, call.id, call.tool_use_id, call.name, {},
                    call.name,
                )
            )  # fmt: skip
        self._turn.running.pop(call.id, None)
        self._emit(
            ToolCallEndEvent(
                self._frame.conversation, self._frame.id, message, call.id, call.tool_use_id, call.name,
                call.state, True, result, call.result_kind or "cancelled",
            )
        )  # fmt: skip

    def _progress(self, work: _Work, data: dict[str, Any]) -> None:
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self._progress, work, data)
        elif work.started and work.state is None:
            self._emit(
                ToolProgressEvent(self._frame.conversation, self._frame.id, work.call.id, work.call.tool_use_id, data)
            )

    def _hook_error(self, hook: Literal["before_tool", "after_tool"], error: Exception, use_id: str) -> None:
        text = "took too long" if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"
        self._emit(HookErrorEvent(self._frame.conversation, self._frame.id, hook, text, use_id))


def _path(tool: Tool, arguments: Any) -> str | None:
    try:
        return tool.target_path(arguments)
    except Exception:
        log.exception("tool %r failed to name its path", tool.name)
        return None


def _batches(works: Sequence[_Work]) -> Iterator[list[_Work]]:
    """Neighbours that run together: parallel-safe ones that may run; and those that need no run at all."""
    batch: list[_Work] = []
    kind = ""
    for work in works:
        parallel = work.ready and work.tool is not None and work.tool.parallel_safe
        now = "parallel" if parallel else "none" if not work.ready else ""
        if batch and (now != kind or not now):
            yield batch
            batch = []
        batch.append(work)
        kind = now
    if batch:
        yield batch
