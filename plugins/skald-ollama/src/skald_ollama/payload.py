"""The JSON body of one call."""

from __future__ import annotations

from typing import Any

from skald_core.api import ModelRequest, ToolSpec
from skald_ollama.dialect import Dialect
from skald_ollama.messages import to_messages

__all__ = ("build_body",)

SHORT = 256
"""An answer of at most so many tokens leaves no room for thoughts."""
_LEVELS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}

Json = dict[str, Any]


def build_body(request: ModelRequest, dialect: Dialect, keep_alive: int | str | None = None) -> Json:
    """Everything that is sent, in a fixed order.

    The model's extra settings are merged last, those in ``options`` one by one; a ``None`` among them takes the field out.
    """
    tools = dialect.tools and ("tools" in request.info.capabilities or bool(request.tools))
    body: Json = {"model": request.model, "messages": to_messages(request, tools=tools)}
    if request.tools and tools:
        body["tools"] = [_tool(spec) for spec in request.tools]
    body["stream"] = True
    think = _think(request, dialect)
    if think is not None:
        body["think"] = think
    if keep_alive is not None:
        body["keep_alive"] = keep_alive
    # Without these Ollama leaves out the beginning of a conversation that is too long, and half of one that becomes so,
    # without a word; with them it says so, and the loop can sum it up.
    body["truncate"] = False
    body["shift"] = False
    options: Json = {"num_ctx": request.info.context_window}
    if request.max_output_tokens is not None:
        options["num_predict"] = request.max_output_tokens
    if request.temperature is not None:
        options["temperature"] = request.temperature
    if request.stop_sequences:
        options["stop"] = list(request.stop_sequences)
    body["options"] = options
    for field in dialect.left_out:
        body.pop(field, None)
    _merge(body, request.extra)
    return body


def _merge(into: Json, extra: Json) -> None:
    for field, value in extra.items():
        if value is None:
            into.pop(field, None)
        elif field == "options" and isinstance(value, dict) and isinstance(into.get(field), dict):
            _merge(into[field], value)
        else:
            into[field] = value


def _tool(spec: ToolSpec) -> Json:
    parameters = spec.parameters or {"type": "object", "properties": {}}
    return {
        "type": "function",
        "function": {"name": spec.name, "description": spec.description, "parameters": parameters},
    }


def _think(request: ModelRequest, dialect: Dialect) -> bool | str | None:
    """The ``think`` field; None leaves it to the model, which thinks when it can.

    Turning it off is understood by every model; asking for it is refused by those that cannot.
    """
    if dialect.think == "never":
        return None
    effort = request.effort
    if effort is None:
        return False if request.max_output_tokens is not None and request.max_output_tokens <= SHORT else None
    if effort == "none":
        return False
    if "reasoning" not in request.info.capabilities:
        return None
    return _LEVELS.get(effort, "medium") if dialect.think == "level" else True
