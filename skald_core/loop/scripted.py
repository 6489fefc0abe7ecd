"""A model that does as written: for tests of the loop, of tools and of plugins."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec

from skald_core.loop.errors import ModelError, NetworkError
from skald_core.loop.provider import (
    CallDelta,
    CallEnd,
    CallStart,
    MessageEnd,
    MessageStart,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
)
from skald_core.loop.types import ModelInfo, ModelRequest, StopReason, Usage

__all__ = ("ScriptedCall", "ScriptedProvider", "Step", "call", "calls", "cut", "fail", "text")


class ScriptedCall(msgspec.Struct, frozen=True):
    """``arguments`` is JSON text, sent in two pieces."""

    name: str
    arguments: str
    id: str = ""


class Step(msgspec.Struct, frozen=True):
    """One answer.

    ``pieces`` are streamed one by one. ``gate`` is awaited after ``gate_after`` pieces (None: before the first), so a
    test decides when the stream goes on. ``error`` is raised at the end instead of the end mark. ``check`` sees the
    request first and may raise AssertionError.
    """

    pieces: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    calls: tuple[ScriptedCall, ...] = ()
    error: ModelError | None = None
    stop_reason: StopReason | None = None
    usage: Usage = Usage(10, 5)
    gate: asyncio.Event | None = None
    gate_after: int | None = None
    reached: asyncio.Event | None = None
    check: Callable[[ModelRequest], object] | None = None
    metadata: dict[str, Any] | None = None


def text(*pieces: str, **more: Any) -> Step:
    """An answer of these pieces."""
    return Step(pieces, **more)


def call(name: str, arguments: dict[str, Any] | str | None = None, *, id: str = "") -> ScriptedCall:  # noqa: A002 -- the field's word
    """A call for :func:`calls`; a ``str`` is sent as it is, also when it is not JSON."""
    return ScriptedCall(name, arguments if isinstance(arguments, str) else json.dumps(arguments or {}), id)


def calls(*made: ScriptedCall, say: str = "", **more: Any) -> Step:
    """An answer that calls tools, after saying ``say``."""
    return Step((say,) if say else (), calls=made, **more)


def fail(error: ModelError) -> Step:
    """Fail before any output."""
    return Step(error=error)


def cut(*pieces: str, error: ModelError | None = None, **more: Any) -> Step:
    """Stream these pieces, then break off."""
    return Step(pieces, error=error or NetworkError("the stream ended before its end mark"), **more)


class ScriptedProvider:
    """Plays ``steps`` in order, one per request, and keeps the requests.

    A request past the last step raises AssertionError, unless ``then`` makes further steps. :meth:`assert_complete`
    fails when steps are left. ``hang`` as a step's gate keeps a stream open until it is set or closed.
    """

    def __init__(
        self,
        steps: Sequence[Step | str] = (),
        *,
        id: str = "scripted",  # noqa: A002 -- the protocol's word
        info: ModelInfo | None = None,
        then: Callable[[ModelRequest], Step | str] | None = None,
    ) -> None:
        self.id = id
        self.requests: list[ModelRequest] = []
        self.closed_streams = 0
        self._steps = [Step((s,)) if isinstance(s, str) else s for s in steps]
        self._at = 0
        self._info = info or ModelInfo()
        self._then = then
        self._made = 0

    def add(self, *steps: Step | str) -> None:
        """Add answers to the end of the script."""
        self._steps += [Step((s,)) if isinstance(s, str) else s for s in steps]

    def info(self, model: str) -> ModelInfo:
        return self._info

    async def close(self) -> None:
        return None

    def assert_complete(self) -> None:
        """Fail unless every step was played."""
        left = len(self._steps) - self._at
        assert left <= 0, f"{left} of {len(self._steps)} scripted answers were never asked for"

    def _next(self, request: ModelRequest) -> Step:
        self.requests.append(request)
        if self._at < len(self._steps):
            self._at += 1
            return self._steps[self._at - 1]
        if self._then is None:
            raise AssertionError(
                f"request {len(self.requests)} has no scripted answer; the script has {len(self._steps)}"
            )
        made = self._then(request)
        return Step((made,)) if isinstance(made, str) else made

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        step = self._next(request)
        if step.check is not None:
            step.check(request)
        try:
            yield MessageStart(request.model)
            if step.gate is not None and step.gate_after is None:
                await self._wait(step)
            for piece in step.reasoning:
                yield ReasoningDelta(piece)
            for count, piece in enumerate(step.pieces, 1):
                yield TextDelta(piece)
                if step.gate is not None and count == step.gate_after:
                    await self._wait(step)
            for made in step.calls:
                self._made += 1
                use_id = made.id or f"use_{self._made}"
                yield CallStart(use_id, made.name)
                middle = len(made.arguments) // 2
                yield CallDelta(use_id, made.arguments[:middle])
                yield CallDelta(use_id, made.arguments[middle:])
                if step.error is None:
                    yield CallEnd(use_id)
            if step.error is not None:
                raise step.error
            yield MessageEnd(step.stop_reason or ("tool_use" if step.calls else "end_turn"), step.usage, step.metadata)
        finally:
            self.closed_streams += 1

    @staticmethod
    async def _wait(step: Step) -> None:
        if step.reached is not None:
            step.reached.set()
        assert step.gate is not None
        await step.gate.wait()
