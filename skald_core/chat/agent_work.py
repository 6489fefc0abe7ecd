"""What an agent at work for another has done so far, in the few words a person who watches wants."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from skald_core.loop import events as e
from skald_core.loop.records import Message
from skald_core.loop.store import Store
from skald_core.loop.types import CallId

__all__ = ("AgentWork", "recorded_work")

TEXT_CHARS = 2_000
STEPS = 30
PAUSE = 0.15
"""Seconds between two reports of nothing but more text."""


class _Step(msgspec.Struct):
    """A call of the agent, or of one it gave work to itself (``agent`` is its name then)."""

    id: int
    tool: str
    title: str
    icon: str
    summary: str
    state: str = "running"
    agent: str | None = None


class _Work(msgspec.Struct):
    """``text`` is what the agent is saying; ``step`` its newest call in words; ``steps`` its calls, the newest last."""

    conversation: str
    agent: str
    name: str
    title: str
    text: str = ""
    step: str = ""
    steps: list[_Step] = []
    dropped: int = 0
    told_at: float = 0.0

    def view(self) -> dict[str, Any]:
        return {
            "agent": self.agent,
            "name": self.name,
            "title": self.title,
            "text": self.text,
            "step": self.step or None,
            "steps": [*self.steps],
            "steps_before": self.dropped,
        }


async def recorded_work(
    store: Store, call: int, *, name: Callable[[str], str], describe: Callable[[str, str], dict[str, Any]]
) -> dict[str, Any] | None:
    """The same as :meth:`AgentWork.view` tells, from what is stored: of a call that has its result, or waits since a restart.
    None when no agent answered ``call``. ``describe`` gives title, icon and summary of a call by its name and arguments."""
    frames = await store.child_frames(CallId(call))
    if not frames:
        return None
    frame = frames[-1]
    work = _Work(frame.conversation, frame.agent, name(frame.agent), frame.title)
    messages = await store.tree(frame.id)
    work.text = next((m.content for m in reversed(messages) if m.role == "assistant" and m.content), "")[-TEXT_CHARS:]
    steps = await _recorded_steps(store, messages, None, name, describe)
    steps.sort(key=lambda step: step.id)  # calls are numbered as they are made, those of agents below among the others
    work.steps, work.dropped = steps[-STEPS:], max(0, len(steps) - STEPS)
    work.step = steps[-1].summary if steps else ""
    return work.view()


async def _recorded_steps(
    store: Store,
    messages: Sequence[Message],
    agent: str | None,
    name: Callable[[str], str],
    describe: Callable[[str, str], dict[str, Any]],
) -> list[_Step]:
    """The calls of an agent and of those below it, in no order. ``agent`` names one below."""
    found: list[_Step] = []
    for call in (call for message in messages for call in message.calls):
        about = describe(call.name, call.effective or call.arguments)
        found.append(_Step(call.id, call.name, about["title"], about["icon"], about["summary"], call.state, agent))
        for frame in await store.child_frames(call.id):
            below = await store.tree(frame.id)
            found.extend(await _recorded_steps(store, below, name(frame.agent), name, describe))
    return found


class AgentWork:
    """Collects, by delegating call, what sub-agents tell. Whole states are handed out, so a client that missed some is
    right again with the next. ``name`` gives an agent's name for people."""

    def __init__(self, name: Callable[[str], str]) -> None:
        self._name = name
        self._work: dict[int, _Work] = {}

    def take(self, event: e.SubagentEvent) -> dict[str, Any] | None:
        """The state after an event, or None when it has nothing (new enough) to tell."""
        inner, by = event.event, ""
        while isinstance(inner, e.SubagentEvent):
            by, inner = inner.agent, inner.event
        work = self._work.get(event.parent_call)
        if work is None:
            work = _Work(event.conversation, event.agent, self._name(event.agent), event.title)
            self._work[event.parent_call] = work
        now = time.monotonic()
        match inner:
            case e.SystemEvent() if not by:
                pass  # it begins
            case e.RoundStartedEvent() if not by:
                work.text = ""
                return None
            case e.PartialAssistantEvent(kind="text") if not by:
                work.text = (work.text + inner.text)[-TEXT_CHARS:]
                if now - work.told_at < PAUSE:
                    return None
            case e.AssistantEvent() if not by and inner.content:
                work.text = inner.content[-TEXT_CHARS:]
            case e.ToolCallStartEvent():
                self._begin(work, inner, by)
            case e.ToolCallEndEvent():
                for step in work.steps:
                    if step.id == inner.call_id:
                        step.state = inner.state
            case _:
                return None
        work.told_at = now
        return work.view()

    def _begin(self, work: _Work, event: e.ToolCallStartEvent, by: str) -> None:
        agent = self._name(by) if by else None
        title = event.title or event.tool_name
        work.step = event.summary
        work.steps.append(_Step(event.call_id, event.tool_name, title, event.icon, event.summary, "running", agent))
        while len(work.steps) > STEPS:
            work.steps.pop(0)
            work.dropped += 1

    def view(self, call: int) -> dict[str, Any] | None:
        work = self._work.get(call)
        return None if work is None else work.view()

    def done(self, call: int) -> None:
        """The call has its result, which says it all."""
        self._work.pop(call, None)

    def over(self, conversation: str) -> None:
        """The turn ended, however it did."""
        self._work = {call: work for call, work in self._work.items() if work.conversation != conversation}
