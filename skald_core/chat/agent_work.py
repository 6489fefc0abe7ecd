"""What an agent at work for another has done so far, in the few words a person who watches wants."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from skald_core.loop import events as e

__all__ = ("AgentWork",)

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
