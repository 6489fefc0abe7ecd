"""From the events of one streamed response to normalised events.

Servers tell the same thing up to four times: in deltas, when a part is done, when its item is done, and in the whole response
at the end. What was shown is never shown again; what a server leaves out of its deltas is taken from where it says it first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from skald_core.api import (
    MessageEnd,
    MessageStart,
    ModelRequest,
    ReasoningDelta,
    StopReason,
    StreamEvent,
    TextDelta,
    Usage,
    encode_body,
)
from skald_openai.calls import CallAssembler
from skald_openai.characters import CharacterJoiner
from skald_openai.messages import METADATA_KEY
from skald_openai.reading import EmptyAnswerError, ServerFinishError
from skald_openai.usage import read_usage

__all__ = ("ResponseAnswer",)

_GAP = "\n\n"
_INCOMPLETE: dict[str, StopReason] = {
    "max_output_tokens": "max_tokens",
    "max_tokens": "max_tokens",
    "content_filter": "refusal",
}
_BROKEN = frozenset({"failed", "cancelled"})
# A delta's or a finished part's type: the kind of item it belongs to, what of it it is, and the field that numbers it.
_DELTAS = {
    "response.output_text.delta": ("message", "text", "content_index"),
    "response.refusal.delta": ("message", "refusal", "content_index"),
    "response.reasoning_summary_text.delta": ("reasoning", "summary", "summary_index"),
    "response.reasoning_text.delta": ("reasoning", "content", "content_index"),
    "response.function_call_arguments.delta": ("function_call", "arguments", ""),
}
_DONE = {
    "response.output_text.done": ("message", "text", "content_index", "text"),
    "response.refusal.done": ("message", "refusal", "content_index", "refusal"),
    "response.reasoning_summary_text.done": ("reasoning", "summary", "summary_index", "text"),
    "response.reasoning_text.done": ("reasoning", "content", "content_index", "text"),
    "response.function_call_arguments.done": ("function_call", "arguments", "", "arguments"),
}

Json = dict[str, Any]
_Part = tuple[str, int]


class _Item:
    """One item of the output in the making. ``pieces`` are its texts so far, as the server wrote them, by what they are and
    their number; ``shown`` is for each part of a message how many characters a person saw, after how many of a gap."""

    __slots__ = ("characters", "id", "index", "kind", "number", "pieces", "raw", "shown")

    def __init__(self, kind: str, item_id: str, index: int | None, number: int) -> None:
        self.kind = kind
        self.id = item_id
        self.index = index
        self.number = number
        self.pieces: dict[_Part, str] = {}
        self.characters: defaultdict[_Part, CharacterJoiner] = defaultdict(CharacterJoiner)
        self.shown: dict[int, list[int]] = {}
        self.raw: Json | None = None


class ResponseAnswer:
    """One answer in the making. Feed it events; when the stream is over, :meth:`finish` gives its last ones.

    With ``stored`` the server keeps the response, and the next request may build on it.
    """

    def __init__(self, request: ModelRequest, new_id: Callable[[], str], *, stored: bool = False) -> None:
        self._request = request
        self._stored = stored
        self._calls = CallAssembler(frozenset(tool.name for tool in request.tools), new_id)
        self._items: list[_Item] = []
        self._started = False
        self._response: Json | None = None  # the whole, once the server has sent it
        self._last = ""  # the last character of text shown
        self._thought: _Item | None = None  # the item and part of it that reasoning was last shown of
        self._thought_part = ("", 0)
        self._refused = False

    # --- what comes in ---------------------------------------------------------------------------------------------

    @staticmethod
    def takes(body: Json) -> bool:
        """Is this a whole response?"""
        return isinstance(body.get("output"), list)

    @property
    def ended(self) -> bool:
        """The whole response has come: nothing after it matters."""
        return self._response is not None

    @property
    def complete(self) -> bool:
        """The whole response holds its usage too."""
        return self._response is not None

    def feed(self, chunk: Json) -> Iterator[StreamEvent]:
        """Take one event, or a whole response. Unknown events are ignored: the API adds some without notice."""
        kind = chunk.get("type")
        response = chunk if kind is None and self.takes(chunk) else chunk.get("response")
        if not self._started:
            self._started = True
            model = response.get("model") if isinstance(response, dict) else None
            yield MessageStart(model if isinstance(model, str) and model else self._request.model)
        if isinstance(response, dict) and (kind is None or kind in _ENDS):
            self._response = response
            yield from self._whole(response)
        elif kind == "response.output_item.added":
            if isinstance(chunk.get("item"), dict):
                yield from self._added(chunk["item"], _number(chunk, "output_index"))
        elif kind == "response.output_item.done":
            if isinstance(chunk.get("item"), dict):
                item = self._find(chunk["item"].get("type"), chunk) or self._new(chunk["item"], chunk)
                yield from self._settle(item, chunk["item"])
        elif kind in _DELTAS:
            of, what, number = _DELTAS[kind]
            item = self._find(of, chunk) or self._new({"type": of, "id": chunk.get("item_id")}, chunk)
            if isinstance(chunk.get("delta"), str):
                yield from self._piece(item, what, _number(chunk, number) or 0, chunk["delta"])
        elif kind in _DONE:
            of, what, number, field = _DONE[kind]
            item = self._find(of, chunk) or self._new({"type": of, "id": chunk.get("item_id")}, chunk)
            if of == "function_call":
                yield from self._name(item, chunk)
            yield from self._rest(item, what, _number(chunk, number) or 0, chunk.get(field))

    def finish(self) -> Iterator[StreamEvent]:
        """The last events, ``MessageEnd`` at the end.

        Raises:
            EmptyAnswerError: nothing was said, thought or called, and nothing explains it.
            NamelessCallError: a tool was called without its name.
            ServerFinishError: the server says that it failed.
        """
        response = self._response or {}
        status = str(response.get("status") or "completed")
        if status in _BROKEN:
            raise ServerFinishError
        stop: StopReason = "end_turn"
        cut = status == "incomplete"
        if cut:
            details = response.get("incomplete_details")
            reason = details.get("reason") if isinstance(details, dict) else None
            # Servers that give no reason know one only.
            stop = _INCOMPLETE.get(str(reason), "error") if reason else "max_tokens"
        yield from self._halves()
        called = False
        for event in self._calls.finish(cut=cut):
            called = True
            yield event
        if called and not cut:
            stop = "tool_use"
        spoke = called or bool(self._last) or self._thought is not None
        if not spoke and stop in ("end_turn", "error") and not self._may_be_empty():
            raise EmptyAnswerError
        if self._refused and not called:
            stop = "refusal"
        if not self._started:
            self._started = True
            yield MessageStart(self._request.model)
        usage = response.get("usage")
        yield MessageEnd(
            stop, read_usage(usage) if isinstance(usage, dict) else Usage(), None if cut else self._state()
        )

    # --- items -----------------------------------------------------------------------------------------------------

    def _find(self, kind: Any, chunk: Json) -> _Item | None:
        """The item an event is about: by its id, else by its place, else the last of its kind. Some servers give an item
        another id in every event, some every item the same place."""
        item = chunk.get("item")
        item_id = _string(item.get("id") if isinstance(item, dict) else chunk.get("item_id"))
        index = _number(chunk, "output_index")
        same = [item for item in reversed(self._items) if item.kind == kind]
        named = next((item for item in same if item_id and item.id == item_id), None)
        if named is not None:
            return named
        return next((item for item in same if item.raw is None and index in (None, item.index)), None)

    def _new(self, raw: Json, chunk: Json) -> _Item:
        kind = _string(raw.get("type"))
        number = sum(item.kind == kind for item in self._items)
        item = _Item(kind, _string(raw.get("id")), _number(chunk, "output_index"), number)
        self._items.append(item)
        return item

    def _added(self, raw: Json, index: int | None) -> Iterator[StreamEvent]:
        item = self._new(raw, {"output_index": index})
        if item.kind == "function_call":
            yield from self._name(item, raw)

    def _settle(self, item: _Item, raw: Json) -> Iterator[StreamEvent]:
        """The item is complete: show what has not been."""
        item.raw = raw
        match item.kind:
            case "message":
                for number, part in enumerate(_parts(raw, "content")):
                    what = "refusal" if part.get("type") == "refusal" else "text"
                    yield from self._rest(item, what, number, part.get(what))
            case "reasoning":
                for what in ("summary", "content"):
                    for number, part in enumerate(_parts(raw, what)):
                        yield from self._rest(item, what, number, part.get("text"))
            case "function_call":
                yield from self._name(item, raw)
                yield from self._rest(item, "arguments", 0, raw.get("arguments"))
            case _:
                pass

    def _whole(self, response: Json) -> Iterator[StreamEvent]:
        """The response is complete: its items are those that were streamed, in their order, and what was not."""
        seen: dict[str, int] = {}
        for raw in _parts(response, "output"):
            kind = _string(raw.get("type"))
            number = seen[kind] = seen.get(kind, -1) + 1
            item = next((item for item in self._items if item.kind == kind and item.number == number), None)
            yield from self._settle(item or self._new(raw, {}), raw)

    # --- pieces ----------------------------------------------------------------------------------------------------

    def _rest(self, item: _Item, what: str, number: int, full: Any) -> Iterator[StreamEvent]:
        """What of the full text has not been streamed. A text that is another than what was shown changes nothing."""
        if isinstance(full, (dict, list)) and what == "arguments":
            full = msgspec.json.encode(full).decode()
        before = item.pieces.get((what, number), "")
        if isinstance(full, str) and full != before and full.startswith(before):
            yield from self._piece(item, what, number, full[len(before) :])

    def _piece(self, item: _Item, what: str, number: int, text: str) -> Iterator[StreamEvent]:
        if not text:
            return
        item.pieces[what, number] = item.pieces.get((what, number), "") + text
        shown = item.characters[what, number].feed(text)
        if not shown:
            return
        match what:
            case "arguments":
                yield from self._feed_call(item, {"arguments": shown})
            case "summary" | "content":
                yield from self._reasoning(item, what, number, shown)
            case _:
                self._refused |= what == "refusal"
                yield from self._text(item, number, shown)

    def _halves(self) -> Iterator[StreamEvent]:
        """A text that ended in half a character."""
        for item in self._items:
            for what, number in list(item.characters):
                half = item.characters[what, number].finish()
                if half and item.kind == "message":
                    yield from self._text(item, number, half)

    def _text(self, item: _Item, number: int, text: str) -> Iterator[StreamEvent]:
        shown = item.shown.get(number)
        if shown is None:
            # A second message, or a text after a refusal: without a gap two sentences would stick together.
            gap = self._last and not self._last.isspace()
            shown = item.shown[number] = [len(_GAP) if gap else 0, 0]
            if gap:
                yield TextDelta(_GAP)
        shown[1] += len(text)
        self._last = text[-1]
        yield TextDelta(text)

    def _reasoning(self, item: _Item, what: str, number: int, text: str) -> Iterator[StreamEvent]:
        first = next(iter(item.pieces))[0]
        if what != first:
            return  # a summary of what is shown in full, or the other way round
        if self._thought is not None and (self._thought, self._thought_part) != (item, (what, number)):
            yield ReasoningDelta(_GAP)
        self._thought, self._thought_part = item, (what, number)
        yield ReasoningDelta(text)

    def _name(self, item: _Item, raw: Json) -> Iterator[StreamEvent]:
        """Announce a call, once. Its ``call_id`` is what results refer to; its ``id`` is only the item's."""
        news = {what: _string(raw.get(what)) for what in ("name", "call_id") if (what, 0) not in item.pieces}
        known = {what: text for what, text in news.items() if text}
        item.pieces |= {(what, 0): text for what, text in known.items()}
        if known:
            yield from self._feed_call(item, {"name": known.get("name", "")}, known.get("call_id", ""))

    def _feed_call(self, item: _Item, function: Json, call_id: str = "") -> Iterator[StreamEvent]:
        yield from self._calls.feed([{"index": item.number, "id": call_id, "function": function}])

    # --- what is kept ----------------------------------------------------------------------------------------------

    def _may_be_empty(self) -> bool:
        """A model that has just seen results may have nothing to add."""
        messages = self._request.messages
        return bool(messages) and messages[-1].role == "tool"

    def _state(self) -> Json | None:
        """What it takes to send this message back as it came, and to build on it where the server stores it."""
        state: Json = {}
        items = self._kept()
        if items:
            state["items"] = items
        response_id = (self._response or {}).get("id")
        if self._stored and isinstance(response_id, str):
            state |= {"response": response_id, "after": len(self._request.messages)}
        return {METADATA_KEY: {"model": self._request.model, **state}} if state else None

    def _kept(self) -> list[Json]:
        """The items, without the texts and arguments that the message itself holds.

        Empty when they hold nothing a plain message would not, or a thought that cannot be sent back: the server keeps none,
        and refuses what belongs to a thought without it.
        """
        out: list[Json] = []
        special = False
        for item in self._items:
            raw = item.raw
            if raw is None:
                return []
            entry: Json = {"item": raw}
            match item.kind:
                case "reasoning":
                    if not raw.get("encrypted_content") and not raw.get("content"):
                        return []
                    special = True
                case "message":
                    parts = _parts(raw, "content")
                    special |= "phase" in raw
                    entry = {
                        "item": {**raw, "content": [_blank(part) for part in parts]},
                        "texts": [item.shown.get(number, [0, 0]) for number in range(len(parts))],
                    }
                case "function_call":
                    entry = {"item": {**raw, "arguments": ""}}
                case _:
                    special = True
            out.append(entry)
        # Through JSON and back: halves of characters, which no store could take, stay out.
        return list(msgspec.json.decode(encode_body(out))) if special else []


_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.done"})


def _blank(part: Json) -> Json:
    return {**part, "refusal" if part.get("type") == "refusal" else "text": ""}


def _parts(raw: Json, field: str) -> list[Json]:
    parts = raw.get(field)
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _number(chunk: Json, field: str) -> int | None:
    value = chunk.get(field) if field else 0
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
