"""Tool calls that a model wrote as text.

Small local models often write the call into the answer instead of the structured field: as ``<tool_call>…</tool_call>`` or
``<tools>…</tools>``, as a fenced JSON block, or as a bare JSON object. When a whole answer is nothing but that and every call
names an offered tool, it is read as calls; anything else stays text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator

import msgspec

__all__ = ("TextCall", "TextCallHold", "parse_text_calls")

_MAX = 200_000  # longer answers are text
_TAGS = ("<tool_call>", "<tools>")
_FENCE = re.compile(r"```(?:json|tool_call|tool_code|tool|xml)?[ \t]*\r?\n(.*?)```", re.DOTALL)
_NAME_KEYS = ("name", "tool", "tool_name", "function")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input")
_OTHER_KEYS = frozenset({"id", "type"})


class TextCall(msgspec.Struct, frozen=True):
    """``arguments`` is JSON text: what the model wrote where it can be kept, else written anew."""

    name: str
    arguments: str


def parse_text_calls(text: str, names: Collection[str]) -> tuple[TextCall, ...]:
    """The calls ``text`` consists of, in order; empty when it is anything else or names a tool not in ``names``."""
    body = text.strip()
    if not body or len(body) > _MAX or not names:
        return ()
    calls: list[TextCall] = []
    for piece in _pieces(body):
        found = _calls_in(piece, names)
        if not found:
            return ()
        calls += found
    return tuple(calls)


def _pieces(body: str, depth: int = 0) -> Iterator[str]:
    """The JSON texts ``body`` is made of; one unparsable piece when it is made of anything else."""
    if depth > 3:  # a fence, a tag, and a tag within; more is no call
        yield ""
    elif body.startswith(_TAGS):
        rest = body
        while rest:
            tag = next((tag for tag in _TAGS if rest.startswith(tag)), None)
            if tag is None:
                yield ""
                return
            # Models that stop at the end token often leave the closing tag out.
            inner, _, rest = rest[len(tag) :].partition(tag.replace("<", "</"))
            inner = inner.strip()
            if inner.startswith((*_TAGS, "```")):
                yield from _pieces(inner, depth + 1)
            else:
                yield inner
            rest = rest.strip()
    elif body.startswith("```"):
        end = 0
        for found in _FENCE.finditer(body):
            if body[end : found.start()].strip():
                yield ""
                return
            inner = found[1].strip()
            if inner.startswith(_TAGS):
                yield from _pieces(inner, depth + 1)
            else:
                yield inner
            end = found.end()
        if body[end:].strip():
            yield ""
    else:
        yield body


def _calls_in(piece: str, names: Collection[str]) -> list[TextCall]:
    """Calls of one JSON text: an object, an array of objects, or objects one after the other."""
    values: list[object] = []
    rest = piece.strip()
    decoder = json.JSONDecoder()
    while rest:
        try:
            value, end = decoder.raw_decode(rest)
        except (ValueError, RecursionError):
            return []
        values += value if isinstance(value, list) else [value]
        rest = rest[end:].lstrip(" \t\r\n;")
    calls = [_call(value, names) for value in values]
    return [call for call in calls if call is not None] if None not in calls else []


def _call(value: object, names: Collection[str]) -> TextCall | None:
    if not isinstance(value, dict):
        return None
    inner = value.get("function")
    if isinstance(inner, dict) and value.keys() <= {"function", *_OTHER_KEYS}:
        return _call(inner, names)
    name_keys = [key for key in _NAME_KEYS if key in value]
    argument_keys = [key for key in _ARGUMENT_KEYS if key in value]
    if len(name_keys) != 1 or len(argument_keys) > 1:
        return None
    if value.keys() - {*name_keys, *argument_keys, *_OTHER_KEYS}:
        return None
    name = value[name_keys[0]]
    if not isinstance(name, str) or name not in names:
        return None
    if not argument_keys:
        return TextCall(name, "{}")
    arguments = value[argument_keys[0]]
    if isinstance(arguments, str):
        try:
            if not isinstance(json.loads(arguments), dict):
                return None
        except (ValueError, RecursionError):
            return None
        return TextCall(name, arguments)
    if arguments is None:
        return TextCall(name, "{}")
    if not isinstance(arguments, dict):
        return None
    return TextCall(name, json.dumps(arguments, ensure_ascii=False, separators=(",", ":")))


_STARTS = (*_TAGS, "```json", "```tool_call", "```tool_code", "```tool", "```xml", "```\n", "```\r\n")


class TextCallHold:
    """Holds back streamed text that may still become a call, so that nobody sees raw JSON flash by.

    ``feed`` returns what may be shown now; ``finish`` returns what is left when the answer turned out to be text. Once
    something was shown the rest is never held.
    """

    __slots__ = ("_held", "_names", "_open")

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)
        self._held = ""
        self._open = not names

    def feed(self, text: str) -> str:
        if self._open:
            return text
        self._held += text
        if self._may_be_call():
            return ""
        self._open = True
        held, self._held = self._held, ""
        return held

    def finish(self) -> str:
        self._open = True
        held, self._held = self._held, ""
        return held

    @property
    def held(self) -> str:
        return self._held

    def _may_be_call(self) -> bool:
        text = self._held.lstrip()
        if not text:
            return len(self._held) < 200
        if len(text) > _MAX:
            return False
        if text[0] in "{[":
            return _json_may_be_call(text, self._names)
        for start in _STARTS:
            if start.startswith(text):
                return True
            if text.startswith(start):
                inner = text[len(start) :].lstrip()
                return not inner or inner[0] == "<" or (inner[0] in "{[" and _json_may_be_call(inner, self._names))
        return False


_KEY = re.compile(r'\[?\s*\{\s*"([^"\\]*)"\s*:\s*(?:"([^"\\]*)")?')
_PARTIAL_KEY = re.compile(r'\[?\s*(?:\{\s*(?:"([^"\\]*)"?)?)?\s*:?\s*\Z')
_FIRST_KEYS = (*_NAME_KEYS, *_ARGUMENT_KEYS, *_OTHER_KEYS)


def _json_may_be_call(text: str, names: frozenset[str]) -> bool:
    """Whether JSON that begins like ``text`` can still be a call: its first key, and the name where that is given."""
    partial = _PARTIAL_KEY.match(text)
    if partial:
        begun = partial[1]
        return begun is None or any(key.startswith(begun) for key in _FIRST_KEYS)
    found = _KEY.match(text)
    if found is None or found[1] not in _FIRST_KEYS:
        return False
    if found[1] in _NAME_KEYS and found[2] is not None:
        return found[2] in names
    if found[1] in _OTHER_KEYS:
        # Much JSON begins with "id" or "type"; a call names its tool soon.
        return len(text) < 300 or any(f'"{key}"' in text[:300] for key in _NAME_KEYS)
    return True
