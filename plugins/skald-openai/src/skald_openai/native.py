"""What local servers say of their models on their own endpoints, beside the OpenAI-compatible list.

The list alone names them; how much context they were really started with, whether they see images or call tools, stands
elsewhere: Ollama's ``/api/show`` and ``/api/ps``, LM Studio's ``/api/v0/models`` (``/api/v1/models`` since 0.4), llama.cpp's
``/props``. All of it is optional: a server that does not answer keeps what the list said.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from skald_core.api import ModelInfo, RemoteModel, read_capped, read_json
from skald_openai.known import parameters, with_size
from skald_openai.services import Endpoint

if TYPE_CHECKING:
    import httpx

__all__ = ("owner_of", "refine")

OLLAMA_CONTEXT = 4096
"""What Ollama gives a model when nobody says more; a longer prompt loses its beginning without a word."""
LMSTUDIO_CONTEXT = 4096
MAX_BODY = 8 * 1024 * 1024
_AT_ONCE = 6
_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)", re.MULTILINE)
_OWNERS = {"library": "ollama", "organization_owner": "lmstudio", "llamacpp": "llamacpp", "vllm": "vllm"}

Json = dict[str, Any]
Models = dict[str, RemoteModel]


def owner_of(rows: list[Json]) -> str:
    """Which server wrote this model list, by what it names as owner; empty when it cannot be told."""
    return next((_OWNERS[o] for row in rows if isinstance(o := row.get("owned_by"), str) and o in _OWNERS), "")


async def refine(
    client: httpx.AsyncClient, endpoint: Endpoint, headers: Mapping[str, str], rows: list[Json], models: Models
) -> Models:
    """``models`` with what the server's own endpoints add; models that turn out not to chat are left out."""
    asking = _Asking(client, endpoint.base_url.removesuffix("/v1"), headers)
    match owner_of(rows):
        case "ollama":
            return await _ollama(asking, models)
        case "lmstudio":
            return await _lmstudio(asking, models)
        case "llamacpp":
            return await _llamacpp(asking, models)
        case _:
            return models


class _Asking:
    """GET and POST for JSON on one server; anything unexpected is simply no answer."""

    def __init__(self, client: httpx.AsyncClient, root: str, headers: Mapping[str, str]) -> None:
        self._client = client
        self._root = root
        self._headers = dict(headers)

    async def __call__(self, path: str, body: Json | None = None) -> Json:
        import httpx

        try:
            async with self._client.stream(
                "GET" if body is None else "POST", self._root + path, headers=self._headers, json=body
            ) as response:
                if response.status_code != 200:
                    return {}
                decoded = read_json(await read_capped(response.aiter_bytes(), MAX_BODY))
        except httpx.HTTPError:
            return {}
        return decoded if isinstance(decoded, dict) else {}


async def _ollama(ask: _Asking, models: Models) -> Models:
    loaded = {
        str(row.get("model") or row.get("name")): _size(row.get("context_length"))
        for row in _rows(await ask("/api/ps"), "models")
    }
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(model: RemoteModel) -> RemoteModel | None:
        async with gate:
            return _ollama_model(model, await ask("/api/show", {"model": model.id}), loaded.get(model.id, 0))

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(model)) for model in models.values()]
    return {model.id: model for task in tasks if (model := task.result()) is not None}


def _ollama_model(model: RemoteModel, shown: Json, loaded: int) -> RemoteModel | None:
    abilities = shown.get("capabilities")
    capabilities = model.info.capabilities
    if isinstance(abilities, list):
        if "completion" not in abilities:
            return None
        words = {"tools": "tools", "vision": "vision", "thinking": "reasoning"}
        capabilities = frozenset(word for ability, word in words.items() if ability in abilities)
    facts = shown.get("model_info")
    trained = 0
    if isinstance(facts, dict):
        trained = next((_size(v) for k, v in facts.items() if k.endswith(".context_length")), 0)
    set_to = _NUM_CTX.search(str(shown.get("parameters") or ""))
    if loaded:
        context = loaded
    elif set_to:
        context = int(set_to[1])
    elif shown.get("remote_host"):  # runs in Ollama's cloud, with all its context
        context = trained or model.info.context_window
    else:
        context = min(trained or OLLAMA_CONTEXT, OLLAMA_CONTEXT)
    details = shown.get("details")
    size = parameters(str(details.get("parameter_size") or "")) if isinstance(details, dict) else None
    info = ModelInfo(context, model.info.max_output_tokens, capabilities, model.info.weak)
    return RemoteModel(id=model.id, title=model.title, info=with_size(info, size))


async def _lmstudio(ask: _Asking, models: Models) -> Models:
    facts = {str(row.get("id")): row for row in _rows(await ask("/api/v0/models"), "data")}
    if facts:
        return {
            name: _lmstudio_model(
                model,
                row,
                loaded=_size(row.get("loaded_context_length")),
                vision=row.get("type") == "vlm",
                tools=isinstance(row.get("capabilities"), list) and "tool_use" in row["capabilities"],
            )
            for name, model in models.items()
            if (row := facts.get(name, {})).get("type") != "embeddings"
        }
    facts = {str(row.get("key")): row for row in _rows(await ask("/api/v1/models"), "models")}
    out: Models = {}
    for name, model in models.items():
        row = facts.get(name, {})
        if row.get("type") != "embedding":
            able = row.get("capabilities")
            able = able if isinstance(able, dict) else {}
            running = [i.get("config") for i in _rows(row, "loaded_instances")]
            out[name] = _lmstudio_model(
                model,
                row,
                loaded=max((_size(c.get("context_length")) for c in running if isinstance(c, dict)), default=0),
                vision=able.get("vision") is True,
                tools=able.get("trained_for_tool_use") is True,
            )
    return out


def _lmstudio_model(model: RemoteModel, row: Json, *, loaded: int, vision: bool, tools: bool) -> RemoteModel:
    if not row:
        return model
    most = _size(row.get("max_context_length"))
    context = loaded or min(most or LMSTUDIO_CONTEXT, LMSTUDIO_CONTEXT)
    # LM Studio offers tools to every model and parses the answer; the flag only says which were trained for it.
    capabilities = set(model.info.capabilities) - {"vision"}
    capabilities |= {word for word, able in (("vision", vision), ("tools", tools)) if able}
    info = ModelInfo(context, model.info.max_output_tokens, frozenset(capabilities), model.info.weak)
    return RemoteModel(
        id=model.id,
        title=str(row.get("display_name") or model.title),
        info=with_size(info, parameters(str(row.get("params_string") or model.id))),
    )


async def _llamacpp(ask: _Asking, models: Models) -> Models:
    if len(models) != 1:
        return models  # a router: its /props speaks of itself, and asking for a model's would load it
    props = await ask("/props")
    settings = props.get("default_generation_settings")
    context = _size(settings.get("n_ctx")) if isinstance(settings, dict) else 0
    seeing = props.get("modalities")
    (model,) = models.values()
    capabilities = model.info.capabilities
    if isinstance(seeing, dict) and isinstance(seeing.get("vision"), bool):
        capabilities = capabilities - {"vision"} | {word for word in ("vision",) if seeing["vision"]}
    info = msgspec.structs.replace(
        model.info, context_window=context or model.info.context_window, capabilities=capabilities
    )
    return {model.id: RemoteModel(id=model.id, title=model.title, info=info)}


def _rows(body: Json, key: str) -> list[Json]:
    rows = body.get(key)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _size(value: Any) -> int:
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e9 else 0
