"""From the loop's wire messages to the ``messages`` of Ollama's chat.

Pure: equal input gives equal bytes, so that the model's own cache of the conversation keeps its prefix.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

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

__all__ = ("to_messages",)

NO_OUTPUT = "(no output)"
FROM_TOOLS = "Files from the tool results above:"
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp"})

Json = dict[str, Any]


def to_messages(request: ModelRequest, *, tools: bool) -> list[Json]:
    """The request's system blocks and messages.

    System blocks become one message, the stable ones first. ``tools`` says whether the model's template knows of tools; if
    not, what earlier tools gave is told to it in words, since its template would leave it out.
    """
    out: list[Json] = []
    system = _system(request.system)
    if system:
        out.append({"role": "system", "content": system})
    names: dict[str, str] = {}
    for message in request.messages:
        match message.role:
            case "assistant":
                names |= {part.id: part.name for part in message.parts if isinstance(part, CallPart)}
                out.extend(_assistant(message, request, tools=tools))
            case "tool":
                out.extend(_results(message, request, names, tools=tools))
            case "user":
                out.extend(_user(message.parts, request))
    return out


def _system(blocks: Sequence[SystemBlock]) -> str:
    texts = [block.text for wanted in (True, False) for block in blocks if block.stable is wanted and block.text]
    return "\n\n".join(texts)


def _assistant(message: WireMessage, request: ModelRequest, *, tools: bool) -> Iterator[Json]:
    text = "".join(part.text for part in message.parts if isinstance(part, TextPart))
    calls = [part for part in message.parts if isinstance(part, CallPart)] if tools else []
    if not text and not calls:
        return
    wire: Json = {"role": "assistant", "content": text}
    if calls:
        # In the middle of its work a model that thinks goes on from its own thoughts; of finished turns it needs none.
        thoughts = "".join(part.text for part in message.parts if isinstance(part, ReasoningPart))
        if thoughts and "reasoning" in request.info.capabilities:
            wire["thinking"] = thoughts
        wire["tool_calls"] = [
            {"id": call.id, "function": {"name": call.name, "arguments": _arguments(call.arguments)}} for call in calls
        ]
    yield wire


def _arguments(raw: str) -> msgspec.Raw:
    """The model's own text, byte for byte. Text that is no JSON object is wrapped in one: the API takes nothing else."""
    if not raw.strip():
        return msgspec.Raw(b"{}")
    try:
        msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        return msgspec.Raw(raw.encode())
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        safe = raw.encode("utf-8", "replace").decode()
        return msgspec.Raw(msgspec.json.encode({"invalid_arguments": safe}))


def _results(message: WireMessage, request: ModelRequest, names: dict[str, str], *, tools: bool) -> Iterator[Json]:
    media: list[object] = []
    for part in message.parts:
        if isinstance(part, ResultPart):
            content, name = part.content or NO_OUTPUT, names.get(part.id, "")
            if tools:
                yield {"role": "tool", "tool_name": name, "tool_call_id": part.id, "content": content}
            else:
                yield {"role": "user", "content": f"Result of {name or 'a tool'}:\n{content}"}
        elif isinstance(part, MediaPart):
            media.append(part)
    if media:
        yield from _user([TextPart(FROM_TOOLS), *media], request)


def _user(parts: Sequence[object], request: ModelRequest) -> Iterator[Json]:
    texts: list[str] = []
    images: list[str] = []
    for part in parts:
        if isinstance(part, TextPart):
            texts.append(part.text)
        elif isinstance(part, MediaPart):
            if part.media_type.lower() in _IMAGES and "vision" in request.info.capabilities:
                images.append(base64.b64encode(part.data).decode("ascii"))
            else:
                what = f"{part.name!r} ({part.media_type})" if part.name else f"A file ({part.media_type})"
                texts.append(f"[{what} was left out: this model cannot look at it.]")
    content = "\n\n".join(text for text in texts if text)
    if not content and not images:
        return
    wire: Json = {"role": "user", "content": content}
    if images:
        wire["images"] = images
    yield wire
