"""The permission seam. The loop judges every call before it runs; anything but a clear *allow* means it does not run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from skald_core.loop.tools import Tool, ToolContext

__all__ = (
    "Allow",
    "AllowAll",
    "Ask",
    "Deny",
    "DenyAll",
    "DenyList",
    "Gate",
    "PendingCall",
    "Suspend",
    "Verdict",
    "mode_of",
    "summary_of",
)

log = logging.getLogger(__name__)


class PendingCall(msgspec.Struct, frozen=True):
    """A validated call waiting to be judged. ``raw`` is the JSON object, ``arguments`` what ``tool.validate`` made of it."""

    tool: Tool
    raw: dict[str, Any]
    arguments: Any
    summary: str
    context: ToolContext

    def rewritten(self, raw: dict[str, Any]) -> PendingCall:
        """The same call with other arguments. Raises InvalidArguments, or what the tool's check raises."""
        arguments = self.tool.validate(raw)
        return PendingCall(self.tool, raw, arguments, summary_of(self.tool, arguments), self.context)


def summary_of(tool: Tool, arguments: Any) -> str:
    """The tool's own line about a call, or its name when that fails."""
    try:
        return tool.summarize(arguments)
    except Exception:
        log.exception("tool %r failed to summarize a call", tool.name)
        return tool.name


class Allow(msgspec.Struct, frozen=True):
    """Run it. ``raw`` replaces the arguments; they are validated and judged again before they run."""

    raw: dict[str, Any] | None = None


class Deny(msgspec.Struct, frozen=True):
    """Do not run it; ``reason`` is what the model is told."""

    reason: str


class Ask(msgspec.Struct, frozen=True):
    """A person must decide. ``details`` is JSON for the card; ``state`` is the gate's own and comes back in ``ask``."""

    reason: str
    details: dict[str, Any] = {}
    state: Any = None


class Suspend(msgspec.Struct, frozen=True):
    """Nobody can be reached now: leave the call awaiting and end the turn."""


Verdict = Allow | Deny | Ask


class Gate(Protocol):
    """Judges calls.

    ``judge`` is quick and asks nobody; it returns one verdict per call, in order. The loop then stores every asked call
    as *awaiting*, emits **one** permission_request event for all of them, and calls ``ask`` for each concurrently. An
    exception in either method is a denial. A gate may have a ``mode``, its own word for how it judges, for :func:`mode_of`.
    """

    async def judge(self, calls: Sequence[PendingCall]) -> Sequence[Verdict]: ...

    async def ask(self, call: PendingCall, verdict: Ask) -> Allow | Deny | Suspend: ...


def mode_of(gate: Gate) -> str:
    """What a turn's ``system`` event calls the way its calls are judged; empty for a gate without a ``mode``."""
    mode = getattr(gate, "mode", "")
    return mode if isinstance(mode, str) else ""


class AllowAll:
    """Runs everything; for tests and trusted scripts."""

    mode = "all"

    async def judge(self, calls: Sequence[PendingCall]) -> Sequence[Verdict]:
        return [Allow() for _ in calls]

    async def ask(self, call: PendingCall, verdict: Ask) -> Allow | Deny | Suspend:
        return Deny("nobody to ask")


class DenyList:
    """Runs everything but the named tools; a name that ends in ``*`` is every tool that begins so."""

    mode = "all"

    def __init__(self, *names: str, reason: str = "this tool is not allowed here") -> None:
        self._names = frozenset(name for name in names if not name.endswith("*"))
        self._prefixes = tuple(name[:-1] for name in names if name.endswith("*"))
        self.reason = reason

    async def judge(self, calls: Sequence[PendingCall]) -> Sequence[Verdict]:
        return [Deny(self.reason) if self._denied(call.tool.name) else Allow() for call in calls]

    def _denied(self, name: str) -> bool:
        return name in self._names or name.startswith(self._prefixes)

    async def ask(self, call: PendingCall, verdict: Ask) -> Allow | Deny | Suspend:
        return Deny("nobody to ask")


class DenyAll:
    """Refuses everything with one reason; what an agent without a gate gets."""

    mode = "none"

    def __init__(self, reason: str = "no permission engine is configured, so no tool may run") -> None:
        self.reason = reason

    async def judge(self, calls: Sequence[PendingCall]) -> Sequence[Verdict]:
        return [Deny(self.reason) for _ in calls]

    async def ask(self, call: PendingCall, verdict: Ask) -> Allow | Deny | Suspend:
        return Deny(self.reason)
