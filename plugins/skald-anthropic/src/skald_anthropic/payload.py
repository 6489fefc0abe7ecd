"""The JSON body of one call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from skald_anthropic.dialect import BINDING_BETA, Dialect
from skald_anthropic.messages import starts_with_thought, to_messages, to_system
from skald_core.api import ModelRequest, ResultPart, ToolSpec

__all__ = ("betas_of", "build_body")

MAX_TOKENS = 32_768
"""The output cap where neither the request nor the model names one: the API insists on one."""
THOUGHT_ROOM = 4_096
"""Tokens added to a small cap when the model thinks: thoughts count, and an answer shall still fit."""
MIN_BUDGET = 1_024

_BUDGETS = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384, "xhigh": 24_576, "max": 32_000}
_SCALE = ("none", "minimal", "low", "medium", "high", "xhigh", "max")

Json = dict[str, Any]


def build_body(request: ModelRequest, dialect: Dialect) -> Json:
    """Everything that is sent, in a fixed order.

    The model's extra settings are merged last; a ``None`` among them takes the field out. ``betas`` is not of the body:
    see :func:`betas_of`.
    """
    # Where thoughts are bound to their context, a request that does not think cannot say what becomes of broken ones.
    thoughts = dialect.replay and (not dialect.binding or _thinks(request, dialect))
    messages = to_messages(request, dialect, thoughts=thoughts)
    thinking = _thinking(request, dialect, messages)
    most = dialect.most or request.info.max_output_tokens
    cap = request.max_output_tokens or min(MAX_TOKENS, most or MAX_TOKENS)
    if thinking is not None and thinking["type"] == "enabled":
        cap, thinking = _with_budget(cap, most, thinking)
    elif thinking is not None and thinking["type"] == "adaptive" and cap < THOUGHT_ROOM:
        cap += THOUGHT_ROOM
    body: Json = {"model": request.model, "max_tokens": min(cap, most or cap)}
    system = to_system(request, dialect)
    if system:
        body["system"] = system
    body["messages"] = messages
    if request.tools:
        body["tools"] = list(_tools(request, dialect))
    body["stream"] = True
    if request.temperature is not None and dialect.sampling and (thinking is None or thinking["type"] == "disabled"):
        body["temperature"] = min(request.temperature, 1.0)
    stops = [stop for stop in request.stop_sequences if stop.strip()]  # blank ones are refused
    if stops:
        body["stop_sequences"] = stops
    if thinking is not None:
        body["thinking"] = thinking
    effort = _effort(request, dialect)
    if effort:
        body["output_config"] = {"effort": effort}
    for field, value in request.extra.items():
        if value is None:
            body.pop(field, None)
        elif field != "betas":
            body[field] = value
    return body


def betas_of(request: ModelRequest, dialect: Dialect) -> list[str]:
    """The words for the ``anthropic-beta`` header: those of the extra setting ``betas``, and what the body needs."""
    wanted = request.extra.get("betas")
    words = [word for word in wanted if isinstance(word, str)] if isinstance(wanted, list) else []
    return [*words, BINDING_BETA] if dialect.binding and BINDING_BETA not in words else words


def _tools(request: ModelRequest, dialect: Dialect) -> Iterator[Json]:
    """Deferred tools say so where the server takes that; elsewhere those that a result brought in are tools like any other.

    Where nothing else is there, none is deferred: the API refuses that, and no call could bring one in.
    """
    deferred = {spec.name: spec for spec in request.tools if spec.defer_loading}
    if len(deferred) == len(request.tools):
        yield from map(_tool, request.tools)
    elif dialect.defers:
        for spec in request.tools:
            yield {**_tool(spec), "defer_loading": True} if spec.defer_loading else _tool(spec)
    else:
        parts = (part for message in request.messages for part in message.parts if isinstance(part, ResultPart))
        brought = dict.fromkeys(name for part in parts for name in part.tools)
        yield from (_tool(spec) for spec in request.tools if not spec.defer_loading)
        yield from (_tool(deferred[name]) for name in brought if name in deferred)


def _tool(spec: ToolSpec) -> Json:
    tool: Json = {"name": spec.name}
    if spec.description:
        tool["description"] = spec.description
    tool["input_schema"] = spec.parameters or {"type": "object", "properties": {}}
    return tool


def _thinking(request: ModelRequest, dialect: Dialect, messages: list[Json]) -> Json | None:
    """The ``thinking`` field, or None where the model's own way is right."""
    effort = request.effort
    if dialect.form == "none":
        return None
    if dialect.form == "manual":
        wanted = effort is not None and effort != "none" and "reasoning" in request.info.capabilities
        if not wanted or not starts_with_thought(messages):
            return None
        return {"type": "enabled", "budget_tokens": _BUDGETS.get(effort or "", _BUDGETS["medium"])}
    if not _thinks(request, dialect):
        return {"type": "disabled"} if dialect.always else None
    thinking: Json = {"type": "adaptive"}
    if dialect.display:
        thinking["display"] = "summarized"
    if dialect.binding:
        thinking["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
    return thinking


def _thinks(request: ModelRequest, dialect: Dialect) -> bool:
    """Will a model that thinks adaptively be left, or asked, to think?"""
    if request.effort is None:
        return dialect.always
    return request.effort != "none" or not dialect.off


def _with_budget(cap: int, most: int | None, thinking: Json) -> tuple[int, Json | None]:
    """The cap with the budget on top of it, and the budget made smaller where the model cannot give out that much."""
    budget = int(thinking["budget_tokens"])
    room = (most or cap + budget) - min(cap, THOUGHT_ROOM)
    budget = min(budget, room)
    if budget < MIN_BUDGET:
        return cap, None
    return cap + budget, {**thinking, "budget_tokens": budget}


def _effort(request: ModelRequest, dialect: Dialect) -> str:
    """``output_config.effort`` for models that think adaptively, the nearest of their levels; empty to say nothing."""
    effort = request.effort
    if not effort or dialect.form != "adaptive" or not dialect.effort:
        return ""
    if effort == "none":
        return "" if dialect.off else "low"  # the least there is where thinking cannot be turned off
    if effort in dialect.efforts or effort not in _SCALE:
        return effort
    wanted = _SCALE.index(effort)
    return min(dialect.efforts, key=lambda level: (abs(_SCALE.index(level) - wanted), _SCALE.index(level)))
