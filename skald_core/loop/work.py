"""One call of a round on its way from the model's text to a result."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from skald_core.loop.gate import Ask, PendingCall, Verdict
from skald_core.loop.records import Call
from skald_core.loop.tools import InvalidArguments, Tool, ToolContext, ToolOutput

__all__ = ("Ended", "ErrorKind", "Kind", "Work", "batches", "parse_arguments")

Ended = Literal["done", "failed", "cancelled", "rejected"]
ErrorKind = Literal["error", "rejected", "cancelled", "interrupted"]
Kind = Literal["text", "json", "error", "cancelled", "rejected", "interrupted"]

_decode = msgspec.json.Decoder().decode


def parse_arguments(text: str) -> dict[str, Any]:
    """The JSON object a model wrote; nothing at all counts as an empty one. Raises InvalidArguments in plain words."""
    if not text.strip():
        return {}
    try:
        value = _decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        value = _forgiving(text)
    if not isinstance(value, dict):
        raise InvalidArguments(f"the arguments must be one JSON object, not {type(value).__name__}")
    return value


def _forgiving(text: str) -> Any:
    """What is no JSON by the letter (NaN, raw line breaks in strings) and still clear; else words for the model."""
    try:
        return json.loads(text, strict=False)
    except ValueError as error:
        raise InvalidArguments(f"the arguments are not valid JSON ({error}); call again with one JSON object") from None
    except RecursionError:
        raise InvalidArguments("the arguments are nested too deeply; call again with a flatter JSON object") from None


class Work:
    """A call at work.

    ``verdict`` is the gate's last word before a person's; ``asking`` the task that waits for the person. ``held`` says
    that the store has the call as *awaiting*: it must say *running* before the call runs. ``state`` is set once the
    result is known, ``suspended`` when there will be none in this turn.
    """

    __slots__ = (
        "arguments", "asking", "call", "context", "duration", "effective", "held", "hooked", "kind", "output", "pending",
        "raw", "started", "state", "suspended", "tool", "verdict",
    )  # fmt: skip

    def __init__(self, call: Call) -> None:
        self.call = call
        self.tool: Tool | None = None
        self.raw: dict[str, Any] = {}
        self.arguments: Any = None
        self.context: ToolContext | None = None
        self.pending: PendingCall | None = None
        self.verdict: Verdict | None = None
        self.hooked: Verdict | None = None
        self.asking: asyncio.Task[None] | None = None
        self.held = call.state == "awaiting"
        self.effective: str | None = None  # arguments to store because they differ from the model's
        self.output: ToolOutput | None = None
        self.state: Ended | None = None
        self.kind: Kind = "text"
        self.started = False
        self.suspended = False
        self.duration = 0

    def refuse(self, state: Ended, text: str, kind: ErrorKind) -> None:
        self.state = state
        self.output = ToolOutput(text, is_error=True)
        self.kind = kind

    @property
    def ready(self) -> bool:
        """Whether it may run, as far as is known now."""
        return self.state is None and not self.suspended

    @property
    def decided(self) -> bool:
        """Whether nobody has to be waited for."""
        return self.asking is None or self.asking.done()

    @property
    def asked(self) -> bool:
        """Whether a person must decide."""
        return self.ready and isinstance(self.verdict, Ask)


def batches(works: Sequence[Work]) -> Iterator[list[Work]]:
    """Neighbours that belong together: calls of ``parallel_safe`` tools, whatever is decided about them, and calls that
    can never run (an unknown tool, broken arguments). Everything else is a batch of its own."""
    batch: list[Work] = []
    kind = ""
    for work in works:
        now = "impossible" if work.pending is None else "parallel" if work.pending.tool.parallel_safe else ""
        if batch and (now != kind or not now):
            yield batch
            batch = []
        batch.append(work)
        kind = now
    if batch:
        yield batch
