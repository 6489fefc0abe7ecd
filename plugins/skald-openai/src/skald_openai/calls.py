"""Putting tool calls together from the pieces servers send."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from skald_core.api import CallDelta, CallEnd, CallStart

__all__ = ("CallAssembler", "NamelessCallError", "is_json_object", "offered_name")

CallEvent = CallStart | CallDelta | CallEnd


class NamelessCallError(ValueError):
    """A call's arguments came, its name never did."""


class _Call:
    """One call in the making. Until id and name are known, its arguments wait in ``text``."""

    __slots__ = ("extra", "id", "name", "sent", "text")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.text: list[str] = []
        self.sent = -1  # how many pieces were passed on; -1 until the call was announced
        self.extra: Any = None

    def whole(self) -> bool:
        return is_json_object("".join(self.text))


class CallAssembler:
    """Feeds on the ``tool_calls`` lists of deltas.

    Calls are told apart by ``index``. Servers that leave it out, or give every call the same one, are understood by id and
    name: a new id, or a name after complete arguments, begins a new call. ``offered`` are the tools the model may call;
    ``new_id`` makes ids for calls that come without.
    """

    def __init__(self, offered: frozenset[str], new_id: Callable[[], str]) -> None:
        self._offered = offered
        self._new_id = new_id
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._ids: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._calls)

    @property
    def extras(self) -> dict[str, Any]:
        """What came with calls and has to go back with them (``extra_content``), by call id."""
        return {call.id: call.extra for call in self._calls if call.extra is not None}

    def feed(self, entries: list[Any]) -> Iterator[CallEvent]:
        """Take one delta's entries and yield what can be told so far."""
        for entry in entries:
            if not isinstance(entry, dict):
                continue
            function = entry.get("function")
            if not isinstance(function, dict):
                function = entry
            call_id = _text(entry.get("id"))
            name = offered_name(_text(function.get("name")), self._offered)
            arguments = _arguments(function.get("arguments"))
            call = self._call_for(entry.get("index"), call_id, name, arguments)
            call.id = call.id or self._unique(call_id)
            call.name = call.name or name
            extra = entry.get("extra_content")
            if isinstance(extra, dict):
                call.extra = extra
            if arguments:
                call.text.append(arguments)
            yield from self._announce(call)

    def finish(self, *, cut: bool) -> Iterator[CallEvent]:
        """The answer is over. ``cut`` says that it ran into its length: a last call left in the middle of its arguments is
        then not ended, since it is not what the model meant.

        Raises:
            NamelessCallError: arguments came for a call without a name.
        """
        for call in self._calls:
            if not call.name:
                if cut:
                    continue
                raise NamelessCallError
            call.id = call.id or self._unique(self._new_id())
            yield from self._announce(call)
            if cut and call is self._calls[-1] and not call.whole():
                continue
            yield CallEnd(call.id)

    def _call_for(self, index: Any, call_id: str, name: str, arguments: str) -> _Call:
        numbered = isinstance(index, int) and not isinstance(index, bool)
        current = self._by_index.get(index) if numbered else (self._calls[-1] if self._calls else None)
        if not numbered and call_id:
            current = next((call for call in reversed(self._calls) if call.id == call_id), current)
        if current is None or self._begins_another(current, call_id, name, arguments):
            current = _Call()
            self._calls.append(current)
        if numbered:
            self._by_index[index] = current
        return current

    @staticmethod
    def _begins_another(current: _Call, call_id: str, name: str, arguments: str) -> bool:
        if not name or not current.name:
            return False  # a piece without a name continues; a name that comes late belongs to what waits for it
        if call_id and current.id:
            return call_id != current.id
        if current.text:
            return bool(arguments) and current.whole()
        return name != current.name

    def _announce(self, call: _Call) -> Iterator[CallEvent]:
        if not call.id or not call.name:
            return
        if call.sent < 0:
            call.sent = 0
            yield CallStart(call.id, call.name)
        for piece in call.text[call.sent :]:
            yield CallDelta(call.id, piece)
        call.sent = len(call.text)

    def _unique(self, call_id: str) -> str:
        """``call_id``, or a new one when another call of this answer already has it."""
        if not call_id:
            return ""
        while call_id in self._ids:
            call_id = self._new_id()
        self._ids.add(call_id)
        return call_id


def offered_name(name: str, offered: frozenset[str]) -> str:
    """The name as the tool is called: models of the gpt-oss and Kimi families prefix or trail it with template words."""
    name = name.strip()
    if name in offered or not name:
        return name
    bare = name.partition("<|")[0].strip()
    for candidate in (bare, bare.removeprefix("functions."), bare.removeprefix("functions.").partition(":")[0]):
        if candidate in offered:
            return candidate
    return name


def is_json_object(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False
    return True


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def _arguments(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (dict, list)):
        return msgspec.json.encode(value).decode()
    return ""
