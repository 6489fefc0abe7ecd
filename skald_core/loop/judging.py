"""Decides about the calls of a round: are they possible, what do hooks and gate say, what does a person say.

Order of judgement: validate, before-tool hooks (what they rewrite is validated and judged like the model's own arguments),
gate, and where that says *ask*, a person. Calls refused anywhere get an error result; nothing but a clear *allow* runs.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from skald_core.loop.cancel import CancelToken
from skald_core.loop.errors import LoopError
from skald_core.loop.events import HookErrorEvent, PermissionRequestEvent, PermissionView
from skald_core.loop.gate import Allow, Ask, Deny, PendingCall, Suspend, Verdict, summary_of
from skald_core.loop.hook_chain import Report
from skald_core.loop.hooks import MustAsk
from skald_core.loop.ops import Op, SetCallState
from skald_core.loop.profile import Limits
from skald_core.loop.records import Frame
from skald_core.loop.services import Committer, Emit, Services, TurnState
from skald_core.loop.tools import InvalidArguments, Tool, ToolContext, ToolRegistry
from skald_core.loop.types import CallId
from skald_core.loop.work import Work, batches, parse_arguments

__all__ = ("Judge", "path_of")

log = logging.getLogger(__name__)

_REWRITES = 3
"""How often a gate may rewrite one call before it is refused."""

_GRACE = 10.0
"""Seconds a gate that is no longer needed has to clean up before it is left behind."""

Progress = Callable[[Work, dict[str, Any]], None]


def _dump(raw: dict[str, Any]) -> str:
    return json.dumps(raw, ensure_ascii=False, separators=(",", ":"))


class Judge:
    """Judges calls for one frame. ``approved`` are calls whose answer is known already: they run without being asked."""

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
        self.approved: set[CallId] = set()

    # -- is it possible ----------------------------------------------------------------------------------------------

    def resolve(self, work: Work, registry: ToolRegistry, progress: Progress) -> None:
        """Find the call's tool and read its arguments; refuse it when either is not there."""
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
            emit=lambda data: progress(work, data),
        )
        try:
            work.raw = parse_arguments(call.effective if call.effective is not None else call.arguments)
            self._take(work, work.raw)
        except InvalidArguments as error:
            work.refuse("failed", str(error), "error")

    def _take(self, work: Work, raw: dict[str, Any]) -> None:
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
        work.raw, work.arguments = raw, arguments
        work.pending = PendingCall(tool, raw, arguments, summary_of(tool, arguments), context)

    def _rewrite(self, work: Work, raw: dict[str, Any], who: str) -> bool:
        try:
            self._take(work, raw)
        except InvalidArguments as error:
            work.refuse("rejected", f"{who} changed the arguments to something the tool refuses: {error}", "rejected")
            return False
        work.effective = _dump(raw)
        return True

    # -- what hooks and gate say -------------------------------------------------------------------------------------

    async def judge(self, works: Sequence[Work]) -> None:
        """Have every call judged. Those a person must decide are stored, told of in one event, and their asking begins.

        Stored as *awaiting* with them is what may only run after them, unless its tool may be repeated: should the process
        die meanwhile, it has not begun. Whoever calls this must :meth:`dismiss` in the end.
        """
        for work in works:
            if work.ready and work.call.id in self.approved:
                work.verdict = Allow()
        if self._services.hooks:
            for work in works:
                if work.ready and work.verdict is None:
                    self._commit.checkpoint()
                    await self._before(work)
        await self._ask_gate([work for work in works if work.ready and work.verdict is None])
        asked = [work for work in works if work.asked]
        waiting = set(asked)
        if asked:
            waiting |= _behind(works)
        ops: list[Op] = []
        for work in works:
            if work in waiting:
                work.held = True
                ops.append(SetCallState(work.call.id, "awaiting", work.effective))
            elif work.ready and work.effective is not None:
                ops.append(SetCallState(work.call.id, "awaiting" if work.held else "running", work.effective))
        if ops:
            await self._commit.commit(*ops)
        if asked:
            self._ask_people(asked)

    async def _before(self, work: Work) -> None:
        assert work.pending is not None
        opinion = await self._services.hooks.before_tool(
            work.pending, seconds=self._limits.hook_seconds, report=self._reporter(work)
        )
        if opinion.call is not work.pending:
            work.pending, work.raw, work.arguments = opinion.call, opinion.call.raw, opinion.call.arguments
            work.effective = _dump(work.raw)
        match opinion.verdict:
            case Deny(reason):
                work.refuse("rejected", reason, "rejected")
            case MustAsk(reason):
                work.hooked = Ask(reason)
            case Allow():
                work.hooked = Allow()

    def _reporter(self, work: Work) -> Report:
        frame = self._frame
        return lambda name, text: self._emit(
            HookErrorEvent(frame.conversation, frame.id, name, text, work.call.tool_use_id)
        )

    async def _ask_gate(self, works: list[Work]) -> None:
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
            again: list[Work] = []
            for work, verdict in zip(works, verdicts, strict=True):
                if isinstance(verdict, Allow) and verdict.raw is not None:
                    if self._rewrite(work, verdict.raw, "the gate"):
                        again.append(work)
                    continue
                self._take_verdict(work, verdict)
            works = again
        for work in works:
            work.refuse("rejected", "the permission check kept changing this call, so it was refused", "rejected")

    @staticmethod
    def _take_verdict(work: Work, verdict: Verdict) -> None:
        """What the gate says, unless it is no denial and a hook knows better."""
        match verdict:
            case Allow():
                work.verdict = work.hooked or verdict
            case Ask():  # keeps what the gate wants to find again in ``ask``
                work.verdict = work.hooked if isinstance(work.hooked, Allow) else verdict
            case Deny(reason):
                work.refuse("rejected", reason, "rejected")
            case _:
                # a gate is foreign code and may return anything.
                work.refuse(  # type: ignore[unreachable]
                    "rejected", "the permission check gave no clear answer, so this call was refused", "rejected"
                )

    # -- what a person says ------------------------------------------------------------------------------------------

    def _ask_people(self, works: Sequence[Work]) -> None:
        views = tuple(self._view(work) for work in works)
        if self._root:
            self._turn.phase = "waiting"
            self._turn.waiting = {view.call_id: view for view in views}
        self._emit(PermissionRequestEvent(self._frame.conversation, self._frame.id, views))
        for work in works:
            work.asking = asyncio.create_task(self._ask_person(work))

    async def _ask_person(self, work: Work) -> None:
        """Leave a person's answer on ``work``. Raises only CancelledError, and only when :meth:`dismiss` ends it."""
        pending, verdict = work.pending, work.verdict
        assert pending is not None
        assert isinstance(verdict, Ask)
        try:
            answer = await self._services.gate.ask(pending, verdict)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            answer = Deny("asking for permission was broken off, so this call was refused")
        except Exception:
            log.exception("the gate failed while asking")
            answer = Deny("asking for permission failed, so this call was refused")
        match answer:
            case Allow(raw):
                if raw is not None and self._rewrite(work, raw, "the person"):
                    await self._judge_edited(work)
            case Suspend():
                work.suspended = True
            case Deny(reason):
                work.refuse("rejected", reason, "rejected")
            case _:
                # a gate is foreign code and may return anything.
                work.refuse(  # type: ignore[unreachable]
                    "rejected", "asking for permission gave no clear answer", "rejected"
                )
        if self._root:
            self._turn.waiting.pop(work.call.id, None)
            if not self._turn.waiting:
                self._turn.phase = "tools"

    async def _judge_edited(self, work: Work) -> None:
        """What a person edited is judged again: a denial stands, an *ask* was answered by the edit itself."""
        assert work.pending is not None
        try:
            (verdict,) = await self._services.gate.judge([work.pending])
        except Exception:
            log.exception("the gate failed on an edited call")
            verdict = Deny("the permission check failed, so this call was refused")
        if isinstance(verdict, Deny):
            work.refuse("rejected", verdict.reason, "rejected")

    async def dismiss(self, works: Sequence[Work]) -> None:
        """End what still asks: nobody needs the answer any more."""
        asking = [work.asking for work in works if work.asking is not None and not work.asking.done()]
        for task in asking:
            task.cancel()
        if asking:
            await self._commit.wait(asyncio.wait(asking, timeout=_GRACE))
        if self._root:
            self._turn.waiting = {}

    def _view(self, work: Work) -> PermissionView:
        pending, verdict, tool = work.pending, work.verdict, work.tool
        assert pending is not None
        assert isinstance(verdict, Ask)
        assert tool is not None
        return PermissionView(
            work.call.id, work.call.message, work.call.tool_use_id, tool.name, work.raw, pending.summary,
            verdict.reason, verdict.details, tool.title, tool.icon, path_of(tool, work.arguments),
        )  # fmt: skip


def _behind(works: Sequence[Work]) -> set[Work]:
    """Calls that cannot begin before a person has decided, and must not count as begun till then."""
    found: set[Work] = set()
    waits = False
    for batch in batches(works):
        if waits:
            found.update(work for work in batch if work.ready and work.tool and work.tool.restart_hint != "rerun")
        waits = waits or any(work.asked for work in batch)
    return found


def path_of(tool: Tool, arguments: Any) -> str | None:
    try:
        return tool.target_path(arguments)
    except Exception:
        log.exception("tool %r failed to name its path", tool.name)
        return None
