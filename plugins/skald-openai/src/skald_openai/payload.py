"""The JSON body of one call."""

from __future__ import annotations

from typing import Any

from skald_core.api import ModelRequest
from skald_openai.dialect import Dialect
from skald_openai.effort import asked_effort
from skald_openai.messages import to_messages, to_tool

__all__ = ("build_body",)


def build_body(request: ModelRequest, dialect: Dialect) -> dict[str, Any]:
    """Everything that is sent, in a fixed order.

    The model's extra settings are merged last; a ``None`` among them takes the field out.
    """
    service = dialect.service
    body: dict[str, Any] = {"model": request.model, "messages": to_messages(request, dialect)}
    tools = [*request.tools]
    if not dialect.tool_messages:
        tools += (spec for message in request.messages for spec in message.tools)
    if tools:
        body["tools"] = [to_tool(spec) for spec in tools]
        body["tool_choice"] = "auto"
    body["stream"] = True
    body["stream_options"] = {"include_usage": True}
    if request.max_output_tokens is not None:
        body[dialect.max_tokens] = request.max_output_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.stop_sequences:
        body["stop"] = list(request.stop_sequences)
    body.update(_effort(request, dialect))
    if service.cache == "key" and request.cache and request.cache_key:
        body["prompt_cache_key"] = request.cache_key
    body.update(service.body)
    for field in dialect.left_out:
        body.pop(field, None)
    for field, value in request.extra.items():
        if value is None:
            body.pop(field, None)
        else:
            body[field] = value
    return body


def _effort(request: ModelRequest, dialect: Dialect) -> dict[str, Any]:
    """The reasoning effort in the service's own words; nothing for a model known not to reason."""
    effort = asked_effort(request, insisted=dialect.effort, levels=dialect.efforts)
    if effort is None:
        return {}
    match dialect.service.effort:
        case "reasoning":
            return {"reasoning": {"effort": effort}}
        case "toggle":
            return {"thinking": {"type": "disabled" if effort == "none" else "enabled"}}
        case "thinking":
            if effort == "none":
                return {"thinking": {"type": "disabled"}}
            return {"thinking": {"type": "enabled"}, "reasoning_effort": effort}
        case _:
            return {"reasoning_effort": effort}
