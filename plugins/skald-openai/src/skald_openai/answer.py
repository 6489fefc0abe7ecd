"""From the chunks of one streamed answer to normalised events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from skald_core.api import (
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
from skald_openai.calls import CallAssembler
from skald_openai.characters import CharacterJoiner
from skald_openai.inline import InlineText
from skald_openai.messages import METADATA_KEY
from skald_openai.reading import EmptyAnswerError, ServerFinishError
from skald_openai.usage import read_usage

__all__ = ("Answer",)

_STOP: dict[str, StopReason] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "model_length": "max_tokens",
    "content_filter": "refusal",
    "safety": "refusal",
    "refusal": "refusal",
    "sensitive": "refusal",
}
_BROKEN = frozenset({"error", "insufficient_system_resource", "network_error", "abort", "aborted"})


class Answer:
    """One answer in the making. Feed it chunks; when the stream is over, :meth:`finish` gives its last events."""

    def __init__(self, request: ModelRequest, new_id: Callable[[], str]) -> None:
        offered = frozenset(tool.name for tool in request.tools)
        self._request = request
        self._inline = InlineText()
        self._calls = CallAssembler(offered, new_id)
        self._started = False
        self._usage = Usage()
        self._finish: str | None = None
        self._stopped_at: str | None = None
        self._spoke = False  # any text or reasoning so far
        self._refused = False
        self._characters = CharacterJoiner()
        self._reasoning_field = ""
        self._details: list[dict[str, Any]] = []

    @staticmethod
    def takes(body: dict[str, Any]) -> bool:
        """Is this a whole completion?"""
        return isinstance(body.get("choices"), list)

    @property
    def ended(self) -> bool:
        """The server has given its reason to stop; only usage may still come."""
        return self._finish is not None

    @property
    def complete(self) -> bool:
        """Never known: usage may still come, or not."""
        return False

    def feed(self, chunk: dict[str, Any]) -> Iterator[StreamEvent]:
        """Take one decoded chunk (or one whole completion, from a server that does not stream)."""
        if not self._started:
            self._started = True
            model = chunk.get("model")
            yield MessageStart(model if isinstance(model, str) and model else self._request.model)
        self._take_usage(chunk)
        choice = _first_choice(chunk)
        if choice is None:
            return
        self._take_usage(choice)
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            delta = choice.get("message")
        if isinstance(delta, dict):
            yield from self._delta(delta)
        elif isinstance(choice.get("text"), str):
            yield from self._content(choice["text"])
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self._finish = reason
            if isinstance(choice.get("stop_reason"), str):
                self._stopped_at = choice["stop_reason"]

    def finish(self) -> Iterator[StreamEvent]:
        """The last events, ``MessageEnd`` at the end.

        Raises:
            EmptyAnswerError: nothing was said, thought or called, and nothing explains it.
            NamelessCallError: a tool was called without its name.
            ServerFinishError: the server says that it failed.
        """
        if (self._finish or "").lower() in _BROKEN:
            raise ServerFinishError
        stop = self._stop_reason()
        cut = stop == "max_tokens"
        yield from self._text(self._characters.finish())
        yield from self._settle()
        called = False
        for event in self._calls.finish(cut=cut):
            called = True
            yield event
        if called and not cut:
            stop = "tool_use"
        elif stop == "tool_use":
            stop = "end_turn"
        if stop == "end_turn" and not called and not self._spoke and not self._may_be_empty():
            raise EmptyAnswerError
        if self._refused and not called:
            stop = "refusal"
        if not self._started:
            self._started = True
            yield MessageStart(self._request.model)
        yield MessageEnd(stop, self._usage, self._metadata())

    # --- pieces ------------------------------------------------------------------------------------------------------

    def _delta(self, delta: dict[str, Any]) -> Iterator[StreamEvent]:
        yield from self._reasoning(delta)
        content = delta.get("content")
        if isinstance(content, str):
            yield from self._content(content)
        elif isinstance(content, list):
            yield from self._parts(content)
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._refused = True
            yield from self._content(refusal)
        entries = delta.get("tool_calls")
        if isinstance(entries, list) and entries:
            yield from self._settle()
            yield from self._calls.feed(entries)

    def _reasoning(self, delta: dict[str, Any]) -> Iterator[StreamEvent]:
        shown = False
        for field in ("reasoning_content", "reasoning", "thinking"):
            text = delta.get(field)
            if isinstance(text, str) and text:
                # Some servers send the same piece under two names; the first one counts.
                self._reasoning_field = self._reasoning_field or field
                self._spoke = shown = True
                yield ReasoningDelta(whole_characters(text))
                break
        details = delta.get("reasoning_details")
        if isinstance(details, list):
            for detail in details:
                if isinstance(detail, dict):
                    text = self._keep_detail(detail)
                    if text and not shown:
                        self._spoke = True
                        yield ReasoningDelta(whole_characters(text))

    def _keep_detail(self, detail: dict[str, Any]) -> str:
        """Join a piece of OpenRouter's ``reasoning_details`` to the one it continues; gives its readable text."""
        last = self._details[-1] if self._details else None
        if last is not None and all(last.get(key) == detail.get(key) for key in ("type", "index")):
            for key, value in detail.items():
                if key in ("text", "summary", "data") and isinstance(value, str) and isinstance(last.get(key), str):
                    last[key] += value
                elif value is not None:
                    last[key] = value
        else:
            self._details.append(dict(detail))
        text = detail.get("text") or detail.get("summary")
        return text if isinstance(text, str) else ""

    def _parts(self, parts: list[Any]) -> Iterator[StreamEvent]:
        """Content as a list: Mistral's thinking models, and servers that answer in parts."""
        for part in parts:
            if isinstance(part, str):
                yield from self._content(part)
            elif isinstance(part, dict):
                thinking = part.get("thinking")
                if isinstance(thinking, list):
                    thinking = "".join(str(p.get("text") or "") for p in thinking if isinstance(p, dict))
                if isinstance(thinking, str) and thinking:
                    self._spoke = True
                    yield ReasoningDelta(whole_characters(thinking))
                elif isinstance(part.get("text"), str):
                    yield from self._content(part["text"])

    def _content(self, text: str) -> Iterator[StreamEvent]:
        yield from self._text(self._characters.feed(text))

    def _text(self, text: str) -> Iterator[StreamEvent]:
        if not text:
            return
        for piece in self._inline.feed(text):
            yield self._shown(piece.kind, piece.text)

    def _settle(self) -> Iterator[StreamEvent]:
        for piece in self._inline.finish():
            yield self._shown(piece.kind, piece.text)

    def _shown(self, kind: str, text: str) -> StreamEvent:
        self._spoke = True
        return ReasoningDelta(text) if kind == "reasoning" else TextDelta(text)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _take_usage(self, holder: dict[str, Any]) -> None:
        raw = holder.get("usage")
        if not isinstance(raw, dict):
            groq = holder.get("x_groq")
            raw = groq.get("usage") if isinstance(groq, dict) else None
        if isinstance(raw, dict) and raw:
            self._usage = read_usage(raw)  # servers that send it with every chunk count up

    def _stop_reason(self) -> StopReason:
        if self._stopped_at is not None and self._stopped_at in self._request.stop_sequences:
            return "stop_sequence"
        # An unknown word still ended a complete answer.
        return _STOP.get((self._finish or "stop").lower().partition(":")[0].strip(), "end_turn")

    def _may_be_empty(self) -> bool:
        """A model that has just seen results may have nothing to add, and one told where to stop may stop at once."""
        messages = self._request.messages
        return bool(self._request.stop_sequences) or (bool(messages) and messages[-1].role in ("tool", "system"))

    def _metadata(self) -> dict[str, Any] | None:
        state: dict[str, Any] = {}
        if self._reasoning_field:
            state["reasoning_field"] = self._reasoning_field
        if self._details:
            state["reasoning_details"] = self._details
        if self._calls.extras:
            state["calls"] = self._calls.extras
        if not state:
            return None
        return {METADATA_KEY: {"model": self._request.model, **state}}


def _first_choice(chunk: dict[str, Any]) -> dict[str, Any] | None:
    choices = chunk.get("choices")
    if not isinstance(choices, list):
        return None
    for choice in choices:
        if isinstance(choice, dict) and not choice.get("index"):
            return choice
    return None
