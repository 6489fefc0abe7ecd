"""From the loop's wire messages to the ``messages`` of chat completions.

Pure: equal input gives equal bytes, so that the server's prompt cache keeps its prefix.
"""

from __future__ import annotations

import base64
import hashlib
import string
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from skald_core.api import (
    CallPart,
    MediaPart,
    ModelRequest,
    ReasoningPart,
    ResultPart,
    SystemBlock,
    TextPart,
    ToolSpec,
    WireMessage,
)
from skald_openai.dialect import Dialect

__all__ = (
    "METADATA_KEY",
    "NO_OUTPUT",
    "as_object",
    "data_url",
    "fit_call_id",
    "left_out",
    "media_kind",
    "replay_state",
    "system_text",
    "to_messages",
    "to_tool",
)

METADATA_KEY = "openai"
"""Where this provider keeps its replay state in a message's metadata; answer.py writes it."""

BRIDGE = "Understood."
NO_OUTPUT = "(no output)"
SKIP_SIGNATURE = "skip_thought_signature_validator"  # Gemini API, "Thought signatures": for calls other models made
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_LETTERS = string.digits + string.ascii_letters
_MARK = {"type": "ephemeral"}

Json = dict[str, Any]


def to_messages(request: ModelRequest, dialect: Dialect) -> list[Json]:
    """The request's system blocks and messages as chat completions want them.

    System blocks become one system message, the stable ones first, joined by blank lines. An assistant message keeps
    its text and calls together; each result is a ``tool`` message of its own. Media goes out as a data URL where the
    model can look at it, else as a note. Reasoning goes back only where the model wants it. Tools that were activated on the
    way are a system message without content.
    """
    out: list[Json] = []
    mark = dialect.marks and request.cache
    system = _system(request.system, mark=mark)
    if system is not None:
        out.append(system)
    for message in request.messages:
        match message.role:
            case "assistant":
                wire = _assistant(message, request, dialect)
                if wire is not None:
                    out.append(wire)
            case "tool":
                out.extend(_tool(message, request, dialect))
            case "user":
                content = _content(message.parts, request)
                if content:
                    if dialect.bridge and out and out[-1]["role"] == "tool":
                        out.append({"role": "assistant", "content": BRIDGE})
                    out.append({"role": "user", "content": content})
            case "system":
                if message.tools and dialect.tool_messages:
                    out.append({"role": "system", "tools": [to_tool(spec) for spec in message.tools]})
    if mark:
        _mark_last(out)
    return out


def to_tool(spec: ToolSpec) -> Json:
    """A tool as chat completions declare it."""
    parameters = spec.parameters or {"type": "object", "properties": {}}
    return {
        "type": "function",
        "function": {"name": spec.name, "description": spec.description, "parameters": parameters},
    }


def system_text(blocks: Sequence[SystemBlock]) -> tuple[str, str]:
    """The stable blocks and the others, each joined by blank lines."""
    stable = "\n\n".join(block.text for block in blocks if block.stable and block.text)
    moving = "\n\n".join(block.text for block in blocks if not block.stable and block.text)
    return stable, moving


def _system(blocks: Sequence[SystemBlock], *, mark: bool) -> Json | None:
    stable, moving = system_text(blocks)
    if not stable and not moving:
        return None
    if mark and stable:
        parts: list[Json] = [{"type": "text", "text": stable, "cache_control": _MARK}]
        if moving:
            parts.append({"type": "text", "text": moving})
        return {"role": "system", "content": parts}
    return {"role": "system", "content": "\n\n".join(text for text in (stable, moving) if text)}


def _mark_last(messages: list[Json]) -> None:
    """Put a cache mark on the end of the conversation, so that the next round reads all of it from the cache."""
    last = messages[-1] if messages else None
    if last is None or last["role"] not in ("user", "tool") or not last["content"]:
        return
    content = last["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    parts[-1] = {**parts[-1], "cache_control": _MARK}
    last["content"] = parts


def _assistant(message: WireMessage, request: ModelRequest, dialect: Dialect) -> Json | None:
    text = "".join(part.text for part in message.parts if isinstance(part, TextPart))
    calls = [part for part in message.parts if isinstance(part, CallPart)]
    if not text and not calls:
        return None  # nothing but reasoning, or nothing: servers refuse it
    state = replay_state(message)
    wire: Json = {"role": "assistant", "content": text or None}
    if calls:
        wire["tool_calls"] = [_call(call, state, dialect) for call in calls]
        if dialect.service.signatures and not _old_gemini(request.model):
            first = wire["tool_calls"][0]
            first.setdefault("extra_content", {"google": {"thought_signature": SKIP_SIGNATURE}})
    _add_reasoning(wire, message, state, request, dialect, calls=bool(calls))
    return wire


def _old_gemini(model: str) -> bool:
    return model.removeprefix("models/").startswith(("gemini-1", "gemini-2"))


def _call(call: CallPart, state: Json, dialect: Dialect) -> Json:
    wire: Json = {
        "id": _call_id(call.id, dialect),
        "type": "function",
        "function": {"name": call.name, "arguments": as_object(call.arguments)},
    }
    kept = state.get("calls")
    extra = kept.get(call.id) if isinstance(kept, dict) else None
    if extra and dialect.service.signatures:
        wire["extra_content"] = extra
    return wire


def as_object(raw: str) -> str:
    """The model's own text, byte for byte.

    Text that is no JSON object is wrapped in one: most servers parse what they are sent back and would refuse the whole
    conversation from then on.
    """
    try:
        msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return msgspec.json.encode({"invalid_arguments": _safe(raw)}).decode() if raw.strip() else "{}"
    return raw


def _safe(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _call_id(call_id: str, dialect: Dialect) -> str:
    """An id of another provider made to fit this one, the same each time so that results still find their calls."""
    if dialect.service.call_ids == "nine":
        if len(call_id) == 9 and call_id.isascii() and call_id.isalnum():
            return call_id
        number = int.from_bytes(hashlib.sha256(call_id.encode("utf-8", "replace")).digest(), "big")
        letters = []
        for _ in range(9):
            number, index = divmod(number, len(_LETTERS))
            letters.append(_LETTERS[index])
        return "".join(letters)
    return fit_call_id(call_id, dialect.service.call_id_length)


def fit_call_id(call_id: str, length: int) -> str:
    """``call_id``, or one made from it when it is longer than ``length``."""
    if len(call_id) <= length:
        return call_id
    return "call_" + hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:24]


def replay_state(message: WireMessage) -> Json:
    state = (message.metadata or {}).get(METADATA_KEY)
    return state if isinstance(state, dict) else {}


def _add_reasoning(
    wire: Json, message: WireMessage, state: Json, request: ModelRequest, dialect: Dialect, *, calls: bool
) -> None:
    service = dialect.service
    details = state.get("reasoning_details")
    if service.reasoning_details and isinstance(details, list) and details and state.get("model") == request.model:
        # Signed pieces: worth something only to the model that wrote them, and only as they came.
        wire["reasoning_details"] = details
        return
    if not dialect.echo or not calls:
        return
    field = state.get("reasoning_field") or service.echo_field
    text = "".join(part.text for part in message.parts if isinstance(part, ReasoningPart)) or dialect.placeholder
    if dialect.placeholder and not field:
        field = "reasoning_content"
    if service.echo_field == "both" and text:
        wire["reasoning_content"] = wire["reasoning"] = text
    elif isinstance(field, str) and field and text:
        wire[field] = text


def _tool(message: WireMessage, request: ModelRequest, dialect: Dialect) -> Iterable[Json]:
    media = []
    for part in message.parts:
        if isinstance(part, ResultPart):
            yield {"role": "tool", "tool_call_id": _call_id(part.id, dialect), "content": part.content or NO_OUTPUT}
        elif isinstance(part, MediaPart):
            media.append(part)
    if media:
        # A tool message holds text only; what the tools brought follows as if the person had attached it.
        if dialect.bridge:
            yield {"role": "assistant", "content": BRIDGE}
        lead = TextPart("Files from the tool results above:")
        yield {"role": "user", "content": _content((lead, *media), request)}


def _content(parts: Sequence[object], request: ModelRequest) -> str | list[Json]:
    """Plain text where there is no media to send, else a list of parts in the order given."""
    out: list[Json] = []
    for part in parts:
        if isinstance(part, TextPart):
            piece: Json = {"type": "text", "text": part.text}
        elif isinstance(part, MediaPart):
            piece = _media(part, request.info.capabilities)
        else:
            continue
        if piece["type"] != "text":
            out.append(piece)
        elif piece["text"]:
            if out and out[-1]["type"] == "text":
                out[-1] = {"type": "text", "text": f"{out[-1]['text']}\n\n{piece['text']}"}
            else:
                out.append(piece)
    if not out:
        return ""
    if len(out) == 1 and out[0]["type"] == "text":
        return str(out[0]["text"])
    return out


def _media(part: MediaPart, capabilities: frozenset[str]) -> Json:
    kind = part.media_type.lower()
    match media_kind(part, capabilities):
        case "image":
            return {"type": "image_url", "image_url": {"url": data_url(kind, part.data)}}
        case "document":
            file = {"filename": part.name or "document.pdf", "file_data": data_url(kind, part.data)}
            return {"type": "file", "file": file}
        case "video":
            return {"type": "video_url", "video_url": {"url": data_url(kind, part.data)}}
        case _:
            return {"type": "text", "text": left_out(part)}


def media_kind(part: MediaPart, capabilities: frozenset[str]) -> Literal["image", "document", "video", ""]:
    """What a model of these capabilities can look at it as; empty when it cannot."""
    kind = part.media_type.lower()
    if kind in _IMAGES and "vision" in capabilities:
        return "image"
    if kind == "application/pdf" and "documents" in capabilities:
        return "document"
    return "video" if kind.startswith("video/") and "video" in capabilities else ""


def left_out(part: MediaPart) -> str:
    """The note in place of media a model cannot look at."""
    what = f"{part.name!r} ({part.media_type})" if part.name else f"A file ({part.media_type})"
    return f"[{what} was left out: this model cannot look at it.]"


def data_url(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode('ascii')}"
