"""From the chunks of one streamed answer to normalised events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from skald_core.api import (
    CallDelta,
    CallEnd,
    CallStart,
    MessageEnd,
    MessageStart,
    ModelRequest,
    ReasoningDelta,
    StopReason,
    StreamEvent,
    TextDelta,
    Usage,
)

__all__ = ("Answer", "Chunk", "EmptyAnswerError", "NamelessCallError")

_STOP: dict[str, StopReason] = {"": "end_turn", "stop": "end_turn", "length": "max_tokens", "load": "end_turn"}


class Function(msgspec.Struct, frozen=True):
    """``arguments`` is the JSON text itself, so that numbers and the order of keys stay as the server wrote them."""

    name: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


class ToolCall(msgspec.Struct, frozen=True):
    id: str | None = None
    function: Function = Function()


class Message(msgspec.Struct, frozen=True):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[ToolCall] | None = None


class Chunk(msgspec.Struct, frozen=True):
    """One line of an answer. ``error`` ends it; ``done`` marks the last one, which alone has counts."""

    model: str | None = None
    message: Message | None = None
    done: bool | None = None
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    error: Any = None


class EmptyAnswerError(Exception):
    """The answer ended and held nothing."""


class NamelessCallError(Exception):
    """A tool was called without its name."""


class Answer:
    """One answer in the making. Feed it chunks; after the one that is ``done``, :meth:`finish` gives its last events."""

    def __init__(self, request: ModelRequest, new_id: Callable[[], str]) -> None:
        self._request = request
        self._new_id = new_id
        self._started = False
        self._spoke = False
        self._ids: set[str] = set()
        self._last: Chunk | None = None

    @property
    def ended(self) -> bool:
        return self._last is not None

    def feed(self, chunk: Chunk) -> Iterator[StreamEvent]:
        """Take one chunk.

        Raises:
            NamelessCallError: a call has no name.
        """
        if not self._started:
            self._started = True
            yield MessageStart(chunk.model or self._request.model)
        message = chunk.message or Message()
        if message.thinking:
            self._spoke = True
            yield ReasoningDelta(message.thinking)
        if message.content:
            self._spoke = True
            yield TextDelta(message.content)
        for call in message.tool_calls or ():
            yield from self._call(call)
        if chunk.done:
            self._last = chunk

    def finish(self) -> Iterator[StreamEvent]:
        """The last event, ``MessageEnd``.

        Raises:
            EmptyAnswerError: nothing was said, thought or called, and nothing explains it.
        """
        last = self._last or Chunk()
        stop = _STOP.get(last.done_reason or "", "error")
        if stop != "max_tokens":
            if self._ids:
                stop = "tool_use"
            elif not self._spoke and not self._may_be_empty():
                raise EmptyAnswerError
        usage = Usage(max(last.prompt_eval_count or 0, 0), max(last.eval_count or 0, 0))
        yield MessageEnd(stop, usage)

    def _call(self, call: ToolCall) -> Iterator[StreamEvent]:
        name = call.function.name.strip()
        if not name:
            raise NamelessCallError
        call_id = call.id or ""
        while not call_id or call_id in self._ids:
            call_id = self._new_id()
        self._ids.add(call_id)
        yield CallStart(call_id, name)
        yield CallDelta(call_id, _arguments(bytes(call.function.arguments)))
        yield CallEnd(call_id)

    def _may_be_empty(self) -> bool:
        """A model that has just seen results may have nothing to add, and one told where to stop may stop at once."""
        messages = self._request.messages
        return bool(self._request.stop_sequences) or (bool(messages) and messages[-1].role == "tool")


def _arguments(raw: bytes) -> str:
    """The JSON text of an object; servers in between also send it as a string, or null for none."""
    text = raw.decode("utf-8", "replace").strip()
    if text.startswith('"'):
        return str(msgspec.json.decode(raw))
    return "{}" if text in ("", "null") else text
