"""From the loop's wire messages to the input items of the Responses API.

Pure: equal input gives equal bytes, so that the server's prompt cache keeps its prefix.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from skald_core.api import CallPart, MediaPart, ModelRequest, ResultPart, TextPart, WireMessage
from skald_openai.messages import NO_OUTPUT, as_object, data_url, fit_call_id, left_out, media_kind, replay_state
from skald_openai.responses.dialect import ResponsesDialect

__all__ = ("previous_response", "to_input")

CALL_ID_LENGTH = 64
_FILES = TextPart("Files from the tool results above:")

Json = dict[str, Any]


def to_input(request: ModelRequest, dialect: ResponsesDialect, *, start: int = 0) -> list[Json]:
    """The request's messages from number ``start`` on, as items.

    A message this model wrote goes back as the items it came in: thoughts encrypted as they were, text and calls in their
    places. Any other becomes a message and its calls. Results are items of their own, with the media that came with them.
    """
    out: list[Json] = []
    for message in request.messages[start:]:
        match message.role:
            case "assistant":
                out.extend(_assistant(message, request, dialect))
            case "tool":
                out.extend(_results(message, request))
            case "user":
                content = _content(message.parts, request)
                if content:
                    out.append({"role": "user", "content": content})
    return out


def previous_response(request: ModelRequest, dialect: ResponsesDialect) -> tuple[str, int]:
    """The stored response the request can build on, and the number of the first message that is not in it.

    Empty and 0 when there is none, when the server has forgotten it, or when what led to it is no longer all there (a
    compaction, a cut history): the server would remember what was meant to be left out.
    """
    for number in range(len(request.messages) - 1, -1, -1):
        message = request.messages[number]
        if message.role == "assistant":
            state = replay_state(message)
            response = state.get("response")
            known = isinstance(response, str) and response and response not in dialect.refused
            if known and state.get("model") == request.model and state.get("after") == number:
                return str(response), number + 1
            break
    return "", 0


# --- what the model said -------------------------------------------------------------------------------------------


def _assistant(message: WireMessage, request: ModelRequest, dialect: ResponsesDialect) -> list[Json]:
    text = "".join(part.text for part in message.parts if isinstance(part, TextPart))
    calls = [part for part in message.parts if isinstance(part, CallPart)]
    if not text and not calls:
        return []  # nothing but thoughts: servers refuse them without what follows
    state = replay_state(message)
    if state.get("model") == request.model:
        items = _as_it_came(state.get("items"), text, calls, dialect)
        if items:
            return items
    said: list[Json] = [{"role": "assistant", "content": text}] if text else []
    return [*said, *({"type": "function_call", **_called(call), "name": call.name} for call in calls)]


def _as_it_came(kept: Any, text: str, calls: list[CallPart], dialect: ResponsesDialect) -> list[Json]:
    """The items with their texts and arguments put back; nothing when the message is no longer what they held, or when
    the server cannot read one of its thoughts: a call or a text that belongs to a thought is refused without it."""
    if not isinstance(kept, list):
        return []
    out: list[Json] = []
    at, waiting = 0, iter(calls)
    for entry in kept:
        item, lengths = dict(entry["item"]), entry.get("texts", [])
        match item.get("type"):
            case "message":
                parts = []
                for part, (skipped, length) in zip(item["content"], lengths, strict=True):
                    at += skipped
                    field = "refusal" if part.get("type") == "refusal" else "text"
                    parts.append({**part, field: text[at : at + length]})
                    at += length
                item["content"] = parts
            case "function_call":
                call = next(waiting, None)
                if call is None:
                    return []
                item.update(_called(call))
            case "reasoning" if str(item.get("id")) in dialect.refused:
                return []
            case _:
                pass
        out.append(item)
    whole = at == len(text) and next(waiting, None) is None
    return out if whole else []


def _called(call: CallPart) -> Json:
    """Arguments are the model's own text, byte for byte."""
    return {"call_id": fit_call_id(call.id, CALL_ID_LENGTH), "arguments": as_object(call.arguments)}


# --- what it was told ----------------------------------------------------------------------------------------------


def _results(message: WireMessage, request: ModelRequest) -> Iterator[Json]:
    """One item for each result, with the media right after it; media before any result follow as a user message."""
    stray: list[MediaPart] = []
    results: list[tuple[ResultPart, list[MediaPart]]] = []
    for part in message.parts:
        if isinstance(part, ResultPart):
            results.append((part, []))
        elif isinstance(part, MediaPart):
            (results[-1][1] if results else stray).append(part)
    for result, media in results:
        parts = (TextPart(result.content), *media) if media else (TextPart(result.content or NO_OUTPUT),)
        output = _content(parts, request) or NO_OUTPUT
        call_id = fit_call_id(result.id, CALL_ID_LENGTH)
        yield {"type": "function_call_output", "call_id": call_id, "output": output}
    if stray:
        yield {"role": "user", "content": _content((_FILES, *stray), request)}


def _content(parts: Sequence[object], request: ModelRequest) -> str | list[Json]:
    """Plain text where there is no media to send, else a list of parts in the order given."""
    out: list[Json] = []
    for part in parts:
        if isinstance(part, TextPart):
            piece: Json = {"type": "input_text", "text": part.text}
        elif isinstance(part, MediaPart):
            piece = _media(part, request.info.capabilities)
        else:
            continue
        if piece["type"] != "input_text":
            out.append(piece)
        elif piece["text"]:
            if out and out[-1]["type"] == "input_text":
                out[-1] = {"type": "input_text", "text": f"{out[-1]['text']}\n\n{piece['text']}"}
            else:
                out.append(piece)
    if not out:
        return ""
    if len(out) == 1 and out[0]["type"] == "input_text":
        return str(out[0]["text"])
    return out


def _media(part: MediaPart, capabilities: frozenset[str]) -> Json:
    kind = part.media_type.lower()
    match media_kind(part, capabilities):
        case "image":
            return {"type": "input_image", "detail": "auto", "image_url": data_url(kind, part.data)}
        case "document":
            name = part.name or "document.pdf"
            return {"type": "input_file", "filename": name, "file_data": data_url(kind, part.data)}
        case _:  # this API has no place for video
            return {"type": "input_text", "text": left_out(part)}
