"""Asking a server for its models."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from skald_core.api import (
    AuthError,
    ModelError,
    ModelGoneError,
    ModelInfo,
    ProtocolError,
    RemoteModel,
    is_web_page,
    read_capped,
    read_json,
    streaming_client,
)
from skald_openai.failures import Failures
from skald_openai.known import known_info, parameters, speaks_chat, with_size
from skald_openai.native import refine
from skald_openai.services import Endpoint
from skald_openai.transport import request_headers

if TYPE_CHECKING:
    import httpx

__all__ = ("list_models", "read_model", "read_rows")

TIMEOUT = 15.0
MAX_LIST = 24 * 1024 * 1024

_OTHER_TYPES = frozenset(
    (
        "embedding",
        "embeddings",
        "image",
        "audio",
        "video",
        "moderation",
        "rerank",
        "reranker",
        "transcribe",
        "tts",
        "stt",
    )
)
_CONTEXT_KEYS = (
    "context_length",
    "context_window",
    "max_context_length",
    "max_model_len",
    "max_context_window",
    "n_ctx",
)
_OUTPUT_KEYS = ("max_completion_tokens", "max_output_tokens", "max_output_length", "max_tokens")
# Capability → keys that say yes or no to it, in whatever object they are found.
_FLAGS: Mapping[str, tuple[str, ...]] = {
    "tools": ("function_calling", "supports_tools", "supports_tool_calling", "supports_function_calling"),
    "vision": ("vision", "supports_vision", "supports_image_input", "supports_image_in"),
    "video": ("supports_video_in", "supports_video_input"),
    "reasoning": ("reasoning", "supports_reasoning"),
    "prompt_cache": ("supports_caching", "supports_prompt_caching"),
}
_MODALITIES = {"image": "vision", "file": "documents", "pdf": "documents", "video": "video"}
_WORDS = {"tools": "tools", "reasoning": "reasoning", "vision": "vision", "prompt_cache": "prompt_cache"}

Json = dict[str, Any]


async def list_models(endpoint: Endpoint, api_key: str) -> list[RemoteModel]:
    """Every chat model the server has, by name, with what it says of them.

    Also the test of a connection: where a service lists its models to everybody, the key is checked first.

    Raises:
        ModelError: with a sentence for the admin.
        ConfigError: the key cannot be sent.
    """
    import httpx

    failures = Failures(endpoint, api_key, wanted="model list")
    service = endpoint.service
    if service.key == "required" and not api_key:
        raise AuthError(f"{endpoint.label} wants an API key. Enter one for this provider.")
    headers = request_headers(endpoint, api_key)
    problem: httpx.HTTPError | None = None
    async with await streaming_client(endpoint.base_url, read_timeout=TIMEOUT, connect_timeout=TIMEOUT) as client:
        try:
            if service.key_check:
                await _get(client, endpoint.url(service.key_check), headers, failures)
            try:
                body = await _get(client, endpoint.url("/models"), headers, failures)
            except (ModelGoneError, ProtocolError) as error:
                raise (await _better_base(client, endpoint, headers, failures)) or error from None
            rows = read_rows(body)
            if rows is None:
                raise failures.not_the_api(200).error
            found = [read_model(row, prefix=service.model_prefix) for row in rows]
            models = {model.id: model for model in found if model is not None}
            models = await refine(client, endpoint, headers, rows, models)
        except httpx.HTTPError as error:
            problem = error
    if problem is not None:
        raise failures.from_transport(problem, timeout=TIMEOUT, connect_timeout=TIMEOUT).error
    return sorted(models.values(), key=lambda model: (model.title or model.id).casefold())


async def _get(client: httpx.AsyncClient, url: str, headers: Mapping[str, str], failures: Failures) -> Any:
    """The decoded body of a GET. Raises ModelError."""
    async with client.stream("GET", url, headers=dict(headers)) as response:
        body = await read_capped(response.aiter_bytes(), MAX_LIST)
        if response.status_code != 200 or is_web_page(response.headers, body):
            raise failures.from_answer(response.status_code, response.headers, body, time.time()).error
        decoded = read_json(body)
        if decoded is None:
            raise failures.not_the_api(response.status_code).error
        error = failures.read_error(decoded) if read_rows(decoded) is None else None
        if error is not None:
            raise failures.from_reply(0, error).error
        return decoded


async def _better_base(
    client: httpx.AsyncClient, endpoint: Endpoint, headers: Mapping[str, str], failures: Failures
) -> ModelError | None:
    """The most common slip is a base URL without its /v1: if that is it, say so."""
    if endpoint.base_url.endswith("/v1"):
        return None
    better = endpoint.base_url + "/v1"
    try:
        body = await _get(client, better + "/models", headers, failures)
    except AuthError:
        pass  # it wants a key there: it is the API
    except ModelError:
        return None
    else:
        if read_rows(body) is None:
            return None
    return ModelGoneError(f"The API is at {better}. Use that as the base URL.", status=404)


def read_rows(body: Any) -> list[Json] | None:
    """The rows of a model list in the shapes servers use, or None when it is no model list."""
    if isinstance(body, dict):
        body = body.get("data") if isinstance(body.get("data"), list) else body.get("models")
    if not isinstance(body, list):
        return None
    rows = [row for row in body if isinstance(row, dict) and _name(row)]
    return rows if rows or not body else None


def read_model(row: Json, *, prefix: str = "") -> RemoteModel | None:
    """One row; None for a model that does not chat. What the server says wins over what is known of the family."""
    name = _name(row).removeprefix(prefix)
    nested = ("capabilities", "metadata", "meta", "top_provider")
    holders = [row, *(row[key] for key in nested if isinstance(row.get(key), dict))]
    if not _chats(row, name):
        return None
    known = known_info(name) or ModelInfo()
    contexts = [value for holder in holders if (value := _number(holder, _CONTEXT_KEYS))]
    outputs = [value for holder in holders if (value := _number(holder, _OUTPUT_KEYS))]
    trained = _number(row.get("meta"), ("n_ctx_train",))
    info = ModelInfo(
        context_window=min(contexts, default=trained or known.context_window),
        max_output_tokens=min(outputs, default=known.max_output_tokens),
        capabilities=_capabilities(row, holders, known.capabilities),
        weak=known.weak,
    )
    title = next((row[k] for k in ("display_name", "name") if isinstance(row.get(k), str) and row[k] != name), "")
    return RemoteModel(id=name, title=title.removeprefix(prefix), info=with_size(info, parameters(name)))


def _name(row: Json) -> str:
    for key in ("id", "model", "name"):
        value = row.get(key)
        if isinstance(value, str) and value:
            return value
    return ""


def _chats(row: Json, name: str) -> bool:
    if str(row.get("type") or "").lower() in _OTHER_TYPES:
        return False
    capabilities = row.get("capabilities")
    said = capabilities.get("completion_chat") if isinstance(capabilities, dict) else row.get("supports_chat")
    if isinstance(said, bool):
        return said
    outputs = _strings(row, "output_modalities") or _strings(row.get("architecture"), "output_modalities")
    if outputs:
        return "text" in outputs
    return speaks_chat(name)


def _capabilities(row: Json, holders: Iterable[Any], known: frozenset[str]) -> frozenset[str]:
    found = set(known)
    for holder in holders:
        for capability, keys in _FLAGS.items():
            for key in keys:
                if isinstance(holder.get(key), bool):
                    (found.add if holder[key] else found.discard)(capability)
    inputs = _strings(row, "input_modalities") or _strings(row.get("architecture"), "input_modalities")
    if inputs:
        found -= set(_MODALITIES.values())
        found |= {_MODALITIES[word] for word in inputs if word in _MODALITIES}
    parameters_known = _strings(row, "supported_parameters") or _strings(row, "supported_features")
    if parameters_known:
        found -= {"tools", "reasoning"}
        found |= {word for word in ("tools", "reasoning") if word in parameters_known}
    tags = _strings(row.get("metadata"), "tags") or _strings(row, "tags")
    found |= {_WORDS[tag] for tag in tags if tag in _WORDS}
    return frozenset(found)


def _number(holder: Any, keys: tuple[str, ...]) -> int | None:
    if isinstance(holder, dict):
        for key in keys:
            value = holder.get(key)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e9:
                return int(value)
    return None


def _strings(holder: Any, key: str) -> list[str]:
    value = holder.get(key) if isinstance(holder, dict) else None
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []
