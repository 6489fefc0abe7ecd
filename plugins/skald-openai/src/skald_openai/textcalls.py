"""Tool calls that a model wrote as text.

Small local models often write a call into their answer: bare JSON, a fenced JSON block, or ``<tool_call>`` tags. Text is a
call only when it is nothing else: from its first to its last character it names offered tools with an object of arguments.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import msgspec

from skald_openai.calls import offered_name

__all__ = ("TextCall", "may_become_calls", "read_calls")

MAX_TEXT = 1024 * 1024
"""Characters up to which text is held back in the hope that it is a call."""

_DECODER = json.JSONDecoder(strict=False)  # small models put raw line breaks into strings
_TAGS = ("tool_call", "tool_calls", "function_call", "tools")  # the last one is what Qwen2.5-Coder writes
_OPENERS = tuple(f"<{tag}>" for tag in _TAGS)
_FENCE_WORDS = ("", "json", "tool_call", "tool_code", "tool")
_NAME_KEYS = ("name", "tool", "tool_name", "function")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input")
_KEYS = frozenset((*_NAME_KEYS, *_ARGUMENT_KEYS, "type", "id", "tool_calls"))
_FIRST_KEY = re.compile(r'\{\s*"([^"]*)(")?')
_SPACE = " \t\r\n"


class TextCall(NamedTuple):
    """One call found in text; ``arguments`` is a JSON object."""

    name: str
    arguments: str


def may_become_calls(text: str) -> bool:
    """Could an answer that begins with ``text`` still turn out to be nothing but calls? Wrongly true costs a delay of what
    is shown, so it is answered from the first few characters on."""
    text = text.lstrip(_SPACE)
    if not text:
        return True
    if len(text) > MAX_TEXT:
        return False
    if text[0] == "<":
        for opener in _OPENERS:
            if text.startswith(opener):
                return _json_may_follow(text[len(opener) :])
        return any(opener.startswith(text) for opener in _OPENERS)
    if text[0] == "`":
        return _fence_may_follow(text)
    return _json_may_follow(text)


def _fence_may_follow(text: str) -> bool:
    if not text.startswith("```"):
        return "```".startswith(text)
    word, newline, rest = text[3:].partition("\n")
    word = word.strip().lower()
    if not newline:
        brace = word.find("{")
        if brace >= 0:  # ```json {…} on one line
            word, rest = word[:brace].strip(), text[text.find("{") :]
        else:
            return any(known.startswith(word) for known in _FENCE_WORDS)
    return word in _FENCE_WORDS and _json_may_follow(rest)


def _json_may_follow(text: str) -> bool:
    text = text.lstrip(_SPACE)
    if text[:1] == "[":
        text = text[1:].lstrip(_SPACE)
    if not text:
        return True
    if text[0] != "{":
        return False
    found = _FIRST_KEY.match(text)
    if found is None:
        return not text[1:].strip(_SPACE)
    if found[2]:
        return found[1] in _KEYS
    return any(key.startswith(found[1]) for key in _KEYS)


def read_calls(text: str, offered: frozenset[str]) -> list[TextCall] | None:
    """The calls that ``text`` consists of, or None when it holds anything else."""
    calls: list[TextCall] = []
    at = _skip(text, 0)
    if at == len(text) or len(text) > MAX_TEXT:
        return None
    while at < len(text):
        step = _read_one(text, at, offered)
        if step is None:
            return None
        found, at = step
        calls += found
        at = _skip(text, at)
        if text.startswith((",", ";"), at):
            at = _skip(text, at + 1)
    return calls or None


def _read_one(text: str, at: int, offered: frozenset[str]) -> tuple[list[TextCall], int] | None:
    closer = ""
    if text.startswith("```", at):
        brace = min((i for i in (text.find("{", at), text.find("[", at)) if i >= 0), default=-1)
        if brace < 0 or text[at + 3 : brace].strip().lower() not in _FENCE_WORDS:
            return None
        at, closer = brace, "```"
    else:
        for tag in _TAGS:
            if text.startswith(f"<{tag}>", at):
                at, closer = _skip(text, at + len(tag) + 2), f"</{tag}>"
                break
    calls: list[TextCall] = []
    while text.startswith(("{", "["), at):
        try:
            value, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return None
        found = _calls_in(value, offered)
        if found is None:
            return None
        calls += found
        at = _skip(text, at)
    if not calls:
        return None
    if closer:
        if text.startswith(closer, at):
            at += len(closer)
        elif at < len(text):
            return None  # the end tag may be missing at the very end, where models stop early
    return calls, at


def _calls_in(value: Any, offered: frozenset[str]) -> list[TextCall] | None:
    if isinstance(value, dict) and set(value) == {"tool_calls"}:
        value = value["tool_calls"]
    if isinstance(value, list):
        found = [_call_in(item, offered) for item in value]
        calls = [call for call in found if call is not None]
        return calls if calls and len(calls) == len(found) else None
    call = _call_in(value, offered)
    return None if call is None else [call]


def _call_in(value: Any, offered: frozenset[str]) -> TextCall | None:
    if not isinstance(value, dict):
        return None
    inner = value.get("function")
    if isinstance(inner, dict) and set(value) <= {"function", "type", "id"}:
        value = inner
    if not set(value) <= _KEYS:
        return None
    name = next((value[key] for key in _NAME_KEYS if isinstance(value.get(key), str)), "")
    name = offered_name(name, offered)
    if name not in offered:
        return None
    arguments: Any = next((value[key] for key in _ARGUMENT_KEYS if key in value), {})
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments, strict=False)
        except (ValueError, RecursionError):
            return None
    if not isinstance(arguments, dict):
        return None
    try:
        return TextCall(name, msgspec.json.encode(arguments).decode())
    except (UnicodeEncodeError, RecursionError):
        return None


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at
