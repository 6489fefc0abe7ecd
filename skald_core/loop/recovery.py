"""After a crash: make every history well formed, then run the normal loop. Recovery has no mode of its own.

What a crash can leave, and what becomes of it:

- streamed text no message holds yet: kept as a partial message, marked interrupted; that turn ends, a retry is offered;
- a running call: run again when its tool says ``rerun``, else it gets an *interrupted* result;
- a call waiting for a person: judged and asked again, under the same id;
- a sub-agent: taken up in its own frame with its own prompt, tools and model; its answer resolves the parent's call;
- a turn between two steps: goes on; one whose answer was stored already just ends;
- waiting input: answered in order afterwards, unless it is held since a stop or a failure.
"""

from __future__ import annotations

import logging

import msgspec

from skald_core.loop.errors import LoopError
from skald_core.loop.ops import CloseFrame, CloseRun, Op, ResolveCall
from skald_core.loop.profile import Profile
from skald_core.loop.projection import INTERRUPTED
from skald_core.loop.records import Call, Frame, Run
from skald_core.loop.runner import Resumed, Runner, draft_ops
from skald_core.loop.services import Services
from skald_core.loop.types import ConversationId, ModelInfo

__all__ = ("Recovery", "recover")

log = logging.getLogger(__name__)


class Recovery(msgspec.Struct):
    """What a recovery found and did. ``failed`` names conversations it could not read or repair."""

    resumed: list[ConversationId] = []
    partial: list[ConversationId] = []
    queued: list[ConversationId] = []
    failed: list[ConversationId] = []
    calls_interrupted: int = 0
    calls_rerun: int = 0
    calls_waiting: int = 0


async def recover(services: Services, runner: Runner, *, resume: bool = True) -> Recovery:
    """Repair every unfinished conversation that is not running here, then take up turns and queues in the background.

    Idempotent. Returns when all is repaired; with ``resume=False`` nothing is started.
    """
    report = Recovery()
    runs = {run.conversation: run for run in await services.store.runs()}
    for conversation in await services.store.unfinished():
        if runner.running(conversation):
            continue
        free = runner.claim(conversation)
        try:
            goes_on = await _repair(services, conversation, runs.get(conversation), report)
            waiting = any(not item.held for item in await services.store.queued(conversation))
        except LoopError:
            log.exception("conversation %s could not be recovered", conversation)
            report.failed.append(conversation)
            continue
        finally:
            free()
        if goes_on:
            report.resumed.append(conversation)
        if waiting:
            report.queued.append(conversation)
        if resume and (goes_on or waiting):
            runner.start(conversation, Resumed() if goes_on else None)
    runner.recovered(report.failed)
    return report


async def _repair(services: Services, conversation: ConversationId, run: Run | None, report: Recovery) -> bool:
    """Make one conversation well formed, in one batch. True when its turn is to be taken up."""
    store = services.store
    frames = {frame.id: frame for frame in await store.active_frames(conversation)}
    open_calls = await store.open_calls(conversation)
    owners: dict[int, Frame | None] = {call.id: await store.frame_of_call(call.id) for call in open_calls}
    ops: list[Op] = []
    partial = False
    for frame in frames.values():
        made = await draft_ops(services, frame)
        partial = partial or len(made) > 1
        ops += made
        if frame.depth and frame.parent_call not in owners:
            ops.append(CloseFrame(frame.id))  # its call has a result already: the turn was being stopped
    working = {frame.parent_call for frame in frames.values() if frame.depth}
    left = 0
    profiles: dict[str, Profile | None] = {}
    for call in open_calls:
        owner = owners[call.id]
        if call.state == "awaiting":
            report.calls_waiting += 1
            left += 1
        elif call.id in working or (owner is not None and await _repeatable(services, call, owner, profiles)):
            report.calls_rerun += 1
            left += 1
        else:
            report.calls_interrupted += 1
            ops.append(ResolveCall(call.id, "failed", INTERRUPTED, "interrupted", at=services.clock()))
    root = next((frame for frame in frames.values() if frame.depth == 0), None)
    if root is not None and not partial:
        loaded = await store.load(root.id)
        partial = bool(loaded and loaded.messages and loaded.messages[-1].status == "partial")
    goes_on = bool(left) or (run is not None and not partial)
    if partial:
        report.partial.append(conversation)
    if not goes_on and run is not None:
        ops.append(CloseRun(conversation))
    if ops:
        await store.apply(ops)
    return goes_on


async def _repeatable(services: Services, call: Call, owner: Frame, profiles: dict[str, Profile | None]) -> bool:
    """Whether the call's tool, as its own frame's agent has it, may simply run again."""
    agent = owner.agent if owner.depth else ""
    if agent not in profiles:
        try:
            profiles[agent] = await services.profiles(owner.conversation, agent)
        except Exception:
            log.exception("no profile for agent %r: its calls count as interrupted", agent)
            profiles[agent] = None
    profile = profiles[agent]
    if profile is None:
        return False
    tool = profile.registry(ModelInfo()).get(call.name)
    return tool is not None and tool.restart_hint == "rerun"
