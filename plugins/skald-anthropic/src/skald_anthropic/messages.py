"""From the loop's system blocks and wire messages to those of the Messages API.

Pure: equal input gives equal bytes, so that the server's prompt cache keeps its prefix, and the newest models the thoughts
that are bound to it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from skald_anthropic.dialect import Dialect
from skald_anthropic.known import family_of
from skald_core.api import (
    CallPart,
    MediaPart,
    ModelRequest,
    ReasoningPart,
    ResultPart,
    SystemBlock,
    TextPart,
    WireMessage,
)

__all__ = ("METADATA_KEY", "starts_with_thought", "to_messages", "to_system")

METADATA_KEY = "anthropic"
"""Where this provider keeps its replay state in a message's metadata; answer.py writes it."""

NO_OUTPUT = "(no output)"
OPENING = "(conversation continues)"
GO_ON = "(continue)"
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_MARK = {"type": "ephemeral"}
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_THOUGHTS = frozenset({"thinking", "redacted_thinking"})

Json = dict[str, Any]


def to_system(request: ModelRequest, dialect: Dialect) -> list[Json]:
    """The system text in at most two blocks: what is stable, with a cache mark, then what may change, without."""
    out: list[Json] = []
    stable = _joined(request.system, stable=True)
    moving = _joined(request.system, stable=False)
    if stable:
        block: Json = {"type": "text", "text": stable}
        if request.cache and dialect.marks:
            block["cache_control"] = _MARK
        out.append(block)
    if moving:
        out.append({"type": "text", "text": moving})
    return out


def _joined(blocks: Sequence[SystemBlock], *, stable: bool) -> str:
    return "\n\n".join(block.text for block in blocks if block.stable is stable and block.text.strip())


def to_messages(request: ModelRequest, dialect: Dialect, *, thoughts: bool = True) -> list[Json]:
    """The request's messages as alternating ``user`` and ``assistant`` messages, the first and the last by the user.

    Results of tools, and what the person says right after them, are one user message. The last block of the conversation
    carries a cache mark. With ``thoughts``, thinking goes back, unchanged and in its place, to the model family that wrote
    it.
    """
    out: list[Json] = []
    for message in request.messages:
        if message.role == "assistant":
            role, content = "assistant", _assistant(message, request.model if thoughts else "")
        else:
            role, content = "user", list(_user(message, request, dialect))
        if not content:
            continue
        if out and out[-1]["role"] == role:
            out[-1]["content"].extend(content)
        else:
            out.append({"role": role, "content": content})
    if out and out[0]["role"] == "assistant":
        out.insert(0, {"role": "user", "content": [{"type": "text", "text": OPENING}]})
    if out and out[-1]["role"] == "assistant":  # newer models refuse to have their words put into their mouth
        out.append({"role": "user", "content": [{"type": "text", "text": GO_ON}]})
    if out and request.cache and dialect.marks:
        out[-1]["content"][-1] = {**out[-1]["content"][-1], "cache_control": _MARK}
    return out


def starts_with_thought(messages: Sequence[Json]) -> bool:
    """False when the conversation is in the middle of tool calls that began without a thought.

    With a thinking budget such a request is refused; thinking has to stay off until the turn is over.
    """
    if len(messages) < 2 or not any(block["type"] == "tool_result" for block in messages[-1]["content"]):
        return True
    return messages[-2]["content"][0]["type"] in _THOUGHTS


# --- assistant ---------------------------------------------------------------------------------------------------


def _assistant(message: WireMessage, reader: str) -> list[Json]:
    """``reader`` is the model that gets thoughts back, if they are of its family; empty for none."""
    text = "".join(part.text for part in message.parts if isinstance(part, TextPart))
    calls = [_call(part) for part in message.parts if isinstance(part, CallPart)]
    if reader and (text.strip() or calls):
        kept = _kept_blocks(message, reader)
        if kept:
            return _in_place(kept, text, calls)
    return [*_text(text), *calls]


def _kept_blocks(message: WireMessage, model: str) -> list[Json]:
    """What the answer was made of, when thoughts were among it and this model's family wrote it."""
    if message.metadata is None:
        # A message an embedder put together: a signature says by itself whose thought it is.
        return [
            {"type": "thinking", "thinking": part.text, "signature": part.signature}
            for part in message.parts
            if isinstance(part, ReasoningPart) and part.signature
        ]
    state = message.metadata.get(METADATA_KEY)
    if not isinstance(state, dict) or state.get("model") != family_of(model):
        return []
    blocks = state.get("blocks")
    return [block for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []


def _in_place(kept: list[Json], text: str, calls: list[Json]) -> list[Json]:
    """Thoughts, text and calls in the order they came; only the leading thoughts when the message is no longer the same."""
    sizes = [(_size(b, "skip"), _size(b, "length")) for b in kept if b.get("type") == "text"]
    whole = sum(map(sum, sizes)) == len(text) and sum(b.get("type") == "tool_use" for b in kept) == len(calls)
    out: list[Json] = []
    if not whole:
        for block in kept:
            if block.get("type") not in _THOUGHTS:
                break
            out.append(block)
        return [*out, *_text(text), *calls]
    at, waiting = 0, iter(calls)
    for block in kept:
        match block.get("type"):
            case "text":
                start = at + _size(block, "skip")
                at = start + _size(block, "length")
                out += _text(text[start:at])
            case "tool_use":
                out.append(next(waiting))
            case _:
                out.append(block)
    return out


def _size(block: Json, key: str) -> int:
    value = block.get(key, 0)
    return value if isinstance(value, int) and value > 0 else 0


def _text(text: str) -> list[Json]:
    return [{"type": "text", "text": text}] if text.strip() else []  # blank text is refused


def _call(call: CallPart) -> Json:
    return {"type": "tool_use", "id": _call_id(call.id), "name": call.name, "input": _input(call.arguments)}


def _input(raw: str) -> msgspec.Raw:
    """The model's own text, byte for byte. Text that is no JSON object is wrapped in one: the API takes nothing else."""
    if not raw.strip():
        return msgspec.Raw(b"{}")
    try:
        msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        return msgspec.Raw(raw.encode())
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return msgspec.Raw(json.dumps({"invalid_arguments": raw}, ensure_ascii=False).encode("utf-8", "replace"))


def _call_id(call_id: str) -> str:
    """An id of another provider made to fit, the same each time so that results still find their calls."""
    if _ID.fullmatch(call_id):
        return call_id
    return "toolu_" + hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:24]


# --- user --------------------------------------------------------------------------------------------------------


def _user(message: WireMessage, request: ModelRequest, dialect: Dialect) -> Iterator[Json]:
    """Results first. One that brings in tools holds references alone, since they go with nothing else: its text comes
    after all results."""
    known = {spec.name for spec in request.tools} if dialect.defers else frozenset()
    after: list[Json] = []
    for part in message.parts:
        if isinstance(part, ResultPart):
            named = [name for name in part.tools if name in known]
            content: str | list[Json] = part.content if part.content.strip() else NO_OUTPUT
            if named:
                content = [{"type": "tool_reference", "tool_name": name} for name in named]
                after += _text(part.content)
            block: Json = {"type": "tool_result", "tool_use_id": _call_id(part.id), "content": content}
            if part.is_error:
                block["is_error"] = True
            yield block
        elif isinstance(part, TextPart):
            yield from _text(part.text)
        elif isinstance(part, MediaPart):
            yield _media(part, request.info.capabilities)
    yield from after


def _media(part: MediaPart, capabilities: frozenset[str]) -> Json:
    kind = part.media_type.lower()
    if kind in _IMAGES and "vision" in capabilities:
        return {"type": "image", "source": _source(kind, part.data)}
    if kind == "application/pdf" and "documents" in capabilities:
        document: Json = {"type": "document", "source": _source(kind, part.data)}
        if part.name:
            document["title"] = part.name
        return document
    what = f"{part.name!r} ({part.media_type})" if part.name else f"A file ({part.media_type})"
    return {"type": "text", "text": f"[{what} was left out: this model cannot look at it.]"}


def _source(media_type: str, data: bytes) -> Json:
    return {"type": "base64", "media_type": media_type, "data": base64.b64encode(data).decode("ascii")}
