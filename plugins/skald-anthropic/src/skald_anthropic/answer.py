"""From the events of one streamed answer to normalised events."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from skald_anthropic.known import family_of
from skald_anthropic.messages import METADATA_KEY
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
    whole_characters,
)

__all__ = ("Answer", "EmptyAnswerError", "NamelessCallError")

_STOP: dict[str, StopReason] = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "pause_turn": "end_turn",
    "model_context_window_exceeded": "max_tokens",
}
_GAP = "\n\n"

Json = dict[str, Any]


class EmptyAnswerError(Exception):
    """The answer ended and held nothing."""


class NamelessCallError(Exception):
    """A tool was called without its name."""


class _Block:
    """A content block in the making."""

    __slots__ = ("call", "data", "kind", "pieces", "signature", "skip")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.pieces: list[str] = []
        self.signature = ""
        self.data = ""
        self.call = ""
        self.skip = 0  # characters shown before it that the model did not write

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def kept(self) -> Json | None:
        """What has to be known of it to send the message back as it was."""
        match self.kind:
            case "thinking":
                return (
                    {"type": "thinking", "thinking": self.text, "signature": self.signature} if self.signature else None
                )
            case "redacted_thinking":
                return {"type": "redacted_thinking", "data": self.data}
            case "text":
                return {"type": "text", "skip": self.skip, "length": sum(map(len, self.pieces))}
            case "tool_use":
                return {"type": "tool_use"}
            case _:
                return None


class Answer:
    """One answer in the making. Feed it decoded events; after ``message_stop``, :meth:`finish` gives its last ones."""

    def __init__(self, request: ModelRequest, new_id: Callable[[], str]) -> None:
        self._request = request
        self._new_id = new_id
        self._started = False
        self._blocks: list[_Block] = []
        self._open: dict[int, _Block] = {}
        self._ids: set[str] = set()
        self._unended: _Block | None = None  # a call whose arguments are no JSON
        self._counts: dict[str, int] = {}
        self._stop: str | None = None
        self._explanation = ""
        self._shown = ""  # the last character of text shown
        self._thought = False
        self.ended = False
        """``message_stop`` has come: nothing after it matters."""

    def feed(self, event: Json, kind: str) -> Iterator[StreamEvent]:
        """Take one event of the type ``kind``. Unknown types are ignored, as the API's versioning asks.

        Raises:
            NamelessCallError: a call has no name.
        """
        match kind:
            case "message_start":
                yield from self._start(event.get("message"))
            case "content_block_start":
                yield from self._block_start(_index(event), event.get("content_block"))
            case "content_block_delta":
                yield from self._delta(_index(event), event.get("delta"))
            case "content_block_stop":
                yield from self._block_stop(_index(event))
            case "message_delta":
                self._message_delta(event)
            case "message_stop":
                self.ended = True
            case _:
                pass

    def whole(self, message: Json) -> Iterator[StreamEvent]:
        """Take a complete message, from a server that does not stream."""
        yield from self._start(message)
        content = message.get("content")
        for index, block in enumerate(content if isinstance(content, list) else []):
            yield from self._block_start(index, block)
            yield from self._block_stop(index)
        self._message_delta({"delta": message, "usage": message.get("usage")})
        self.ended = True

    def finish(self) -> Iterator[StreamEvent]:
        """The last events, ``MessageEnd`` at the end.

        Raises:
            EmptyAnswerError: nothing was said, thought or called, and nothing explains it.
        """
        for index in list(self._open):
            yield from self._block_stop(index)
        stop = _STOP.get(self._stop or "", "error")
        called = any(block.kind == "tool_use" for block in self._blocks)
        if self._unended is not None and stop != "max_tokens":
            yield CallEnd(self._unended.call)  # broken, but meant: the loop answers the model with an error
        if called and stop != "max_tokens":
            stop = "tool_use"
        elif stop == "tool_use":
            stop = "end_turn"
        spoke = called or self._thought or bool(self._shown)
        if stop == "refusal" and not spoke and self._explanation:
            yield TextDelta(self._explanation)
        elif stop in ("end_turn", "error") and not spoke and not self._may_be_empty():
            raise EmptyAnswerError
        if not self._started:
            yield MessageStart(self._request.model)
        yield MessageEnd(stop, self._usage(), self._metadata())

    # --- the message -------------------------------------------------------------------------------------------------

    def _start(self, message: Any) -> Iterator[StreamEvent]:
        if self._started:
            return
        self._started = True
        message = message if isinstance(message, dict) else {}
        self._count(message.get("usage"))
        model = message.get("model")
        yield MessageStart(model if isinstance(model, str) and model else self._request.model)

    def _message_delta(self, event: Json) -> None:
        self._count(event.get("usage"))
        delta = event.get("delta")
        if not isinstance(delta, dict):
            return
        if isinstance(delta.get("stop_reason"), str):
            self._stop = delta["stop_reason"]
        details = delta.get("stop_details")
        if isinstance(details, dict) and isinstance(details.get("explanation"), str):
            self._explanation = whole_characters(details["explanation"].strip())

    def _count(self, usage: Any) -> None:
        """Counts are cumulative, but some servers leave out later what they said first, or the other way round."""
        for name, value in usage.items() if isinstance(usage, dict) else ():
            if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
                self._counts[name] = max(self._counts.get(name, 0), int(value))

    def _usage(self) -> Usage:
        read = self._counts.get("cache_read_input_tokens", 0)
        written = self._counts.get("cache_creation_input_tokens", 0)
        return Usage(
            input_tokens=self._counts.get("input_tokens", 0) + read + written,
            output_tokens=self._counts.get("output_tokens", 0),
            cache_read_tokens=read,
            cache_write_tokens=written,
        )

    def _may_be_empty(self) -> bool:
        """A model that has just seen results may have nothing to add, and one told where to stop may stop at once."""
        messages = self._request.messages
        return bool(self._request.stop_sequences) or (bool(messages) and messages[-1].role == "tool")

    def _metadata(self) -> Json | None:
        """What it takes to send this message back with its thoughts in place; nothing when there are none."""
        kept = [state for block in self._blocks if (state := block.kept()) is not None]
        if not any(state["type"] in ("thinking", "redacted_thinking") for state in kept):
            return None
        return {METADATA_KEY: {"model": family_of(self._request.model), "blocks": kept}}

    # --- its blocks --------------------------------------------------------------------------------------------------

    def _block_start(self, index: int, content: Any) -> Iterator[StreamEvent]:
        if not isinstance(content, dict):
            return
        block = _Block(str(content.get("type")))
        self._blocks.append(block)
        self._open[index] = block
        match block.kind:
            case "text":
                yield from self._text(block, content.get("text"))
            case "thinking":
                yield from self._reasoning(block, content.get("thinking"))
                block.signature = _string(content.get("signature"))
            case "redacted_thinking":
                block.data = _string(content.get("data"))
                self._thought = True
            case "tool_use":
                name = _string(content.get("name"))
                if not name:
                    raise NamelessCallError
                block.call = self._unique(_string(content.get("id")))
                yield CallStart(block.call, name)
                given = content.get("input")
                if isinstance(given, dict) and given:
                    yield from self._arguments(block, msgspec.json.encode(given).decode())
            case _:
                pass

    def _delta(self, index: int, delta: Any) -> Iterator[StreamEvent]:
        block = self._open.get(index)
        if block is None or not isinstance(delta, dict):
            return
        match delta.get("type"):
            case "text_delta" if block.kind == "text":
                yield from self._text(block, delta.get("text"))
            case "thinking_delta" if block.kind == "thinking":
                yield from self._reasoning(block, delta.get("thinking"))
            case "signature_delta" if block.kind == "thinking":
                block.signature += _string(delta.get("signature"))
            case "input_json_delta" if block.kind == "tool_use":
                yield from self._arguments(block, _string(delta.get("partial_json")))
            case _:
                pass

    def _block_stop(self, index: int) -> Iterator[StreamEvent]:
        block = self._open.pop(index, None)
        if block is None:
            return
        if block.kind == "thinking" and block.signature:
            yield ReasoningDelta("", block.signature)
        elif block.kind == "tool_use":
            if not block.text.strip():
                yield from self._arguments(block, "{}")
            if _is_object(block.text):
                yield CallEnd(block.call)
            else:
                self._unended = block

    def _text(self, block: _Block, value: Any) -> Iterator[StreamEvent]:
        text = whole_characters(_string(value))
        if not text:
            return
        before = self._blocks[-2].kind if len(self._blocks) > 1 else "text"
        if not block.pieces and before != "text" and self._shown and not self._shown.isspace():
            # Text goes on after a thought or a call: without a gap two sentences would stick together.
            block.skip = len(_GAP)
            yield TextDelta(_GAP)
        block.pieces.append(text)
        self._shown = text[-1]
        yield TextDelta(text)

    def _reasoning(self, block: _Block, value: Any) -> Iterator[StreamEvent]:
        text = whole_characters(_string(value))
        if not text:
            return
        if not block.pieces and self._thought:
            yield ReasoningDelta(_GAP)
        self._thought = True
        block.pieces.append(text)
        yield ReasoningDelta(text)

    def _arguments(self, block: _Block, text: str) -> Iterator[StreamEvent]:
        if text:
            text = whole_characters(text)
            block.pieces.append(text)
            yield CallDelta(block.call, text)

    def _unique(self, call_id: str) -> str:
        """``call_id``, or a new one when there is none or another call of this answer already has it."""
        while not call_id or call_id in self._ids:
            call_id = self._new_id()
        self._ids.add(call_id)
        return call_id


def _index(event: Json) -> int:
    value = event.get("index")
    return value if isinstance(value, int) else 0


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _is_object(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return False
    return True
