"""The JSON body of one call to the Responses API."""

from __future__ import annotations

from typing import Any

from skald_core.api import ConfigError, ModelRequest, ToolSpec
from skald_openai.effort import asked_effort, reasons
from skald_openai.messages import system_text
from skald_openai.responses.dialect import CHAINED, ResponsesDialect
from skald_openai.responses.items import previous_response, to_input

__all__ = ("build_body",)

LEAST_TOKENS = 16
"""The smallest output cap the API takes."""
ENCRYPTED = "reasoning.encrypted_content"

Json = dict[str, Any]


def build_body(request: ModelRequest, dialect: ResponsesDialect) -> Json:
    """Everything that is sent, in a fixed order.

    The model's extra settings are merged last; a ``None`` among them takes the field out. The two that let the server
    remember, ``"store": true`` and ``"previous_response_id": "auto"``, together make a request that holds only what came
    after the last stored response.

    Raises:
        ConfigError: the request has stop sequences, which this API does not know.
    """
    if request.stop_sequences:
        raise ConfigError("The Responses API has no stop sequences. Let this provider choose its API automatically.")
    extra = dict(request.extra)
    previous, start = "", 0
    if extra.get("previous_response_id") == CHAINED:
        del extra["previous_response_id"]
        if extra.get("store") is True:
            previous, start = previous_response(request, dialect)
    items = to_input(request, dialect, start=start)
    body: Json = {"model": request.model}
    instructions = "\n\n".join(text for text in system_text(request.system) if text)
    if instructions and dialect.instructions:
        body["instructions"] = instructions
    elif instructions:
        items.insert(0, {"role": "system", "content": instructions})
    if previous:
        body["previous_response_id"] = previous
    body["input"] = items
    if request.tools:
        body["tools"] = [_tool(spec) for spec in request.tools]
        body["tool_choice"] = "auto"
    reasoning = _reasoning(request, dialect)
    if reasoning:
        body["reasoning"] = reasoning
    if reasons(request):
        body["include"] = [ENCRYPTED]
    if request.max_output_tokens is not None:
        body["max_output_tokens"] = max(request.max_output_tokens, LEAST_TOKENS)
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if dialect.service.cache == "key" and request.cache and request.cache_key:
        body["prompt_cache_key"] = request.cache_key
    body["store"] = False
    body["stream"] = True
    for field in dialect.left_out:
        body.pop(field, None)
    for field, value in extra.items():
        if value is None:
            body.pop(field, None)
        else:
            body[field] = value
    return body


def _tool(spec: ToolSpec) -> Json:
    parameters = spec.parameters or {"type": "object", "properties": {}}
    # Strict is the default here, and would refuse every schema with an optional property.
    return {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": parameters,
        "strict": False,
    }


def _reasoning(request: ModelRequest, dialect: ResponsesDialect) -> Json:
    """How much to reason, and that a summary of it is wanted: this API shows thoughts in no other way."""
    reasoning: Json = {}
    effort = asked_effort(request, insisted=None, levels=dialect.efforts)
    if effort is not None and "reasoning.effort" not in dialect.left_out:
        reasoning["effort"] = effort
    if reasons(request) and effort != "none" and "reasoning.summary" not in dialect.left_out:
        reasoning["summary"] = "auto"
    return reasoning
