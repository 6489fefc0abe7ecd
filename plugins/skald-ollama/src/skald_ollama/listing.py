"""The models of an Ollama, and finding one that already runs on this machine."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from skald_core.api import (
    FoundServer,
    ModelError,
    ModelInfo,
    RemoteModel,
    ServerAddress,
    is_web_page,
    read_capped,
    read_json,
    streaming_client,
)
from skald_ollama.address import HEADERS
from skald_ollama.failures import Failures

if TYPE_CHECKING:
    import httpx

__all__ = ("DEFAULT_CONTEXT", "discover", "list_models", "read_model")

DEFAULT_CONTEXT = 16_384
"""Tokens of context a model gets unless its Modelfile, the server or an admin says more: Ollama's own 4,096 is too little for
an assistant with tools, and the hundred thousands some models allow fill a small machine's memory."""
WEAK_BELOW = 4.5
"""Billions of parameters below which a model is treated as weak: its prompts are kept short."""
WITHIN = 0.9
"""Seconds a look around may take altogether."""
TIMEOUT = 15.0
MAX_BODY = 8 * 1024 * 1024
_AT_ONCE = 6
_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)", re.MULTILINE)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([bm])", re.IGNORECASE)
_ABILITIES = {"tools": "tools", "vision": "vision", "thinking": "reasoning"}
_SEEING = frozenset({"clip", "mllama", "gemma3", "qwen25vl"})

Json = dict[str, Any]


async def list_models(address: ServerAddress) -> list[RemoteModel]:
    """Every model that can chat, by name, with what Ollama says of it. Also the test of a connection.

    Raises:
        ModelError: with a sentence for the admin.
    """
    import httpx

    failures = Failures(address)
    problem: httpx.HTTPError | None = None
    async with await streaming_client(address.base_url, read_timeout=TIMEOUT, connect_timeout=TIMEOUT) as client:
        ask = _Asking(client, address, failures)
        try:
            names = _names(await ask("/api/tags"))
            if names is None:
                raise failures.not_the_api(200).error
            found = await _details(ask, names)
        except httpx.HTTPError as error:
            problem = error
    if problem is not None:
        raise failures.from_transport(problem, timeout=TIMEOUT, connect_timeout=TIMEOUT).error
    return found


async def discover(address: ServerAddress, *, within: float = WITHIN) -> list[FoundServer]:
    """The Ollama at ``address``, if one answers in time, with its models; slow details are left out. Never raises."""
    import httpx

    left = within
    began = time.monotonic()
    server: FoundServer | None = None
    async with await streaming_client(address.base_url, read_timeout=left, connect_timeout=left) as client:
        ask = _Asking(client, address, Failures(address))
        try:
            async with asyncio.timeout(max(0.05, left - (time.monotonic() - began))):
                names = _names(await ask("/api/tags"))
                if names is None:
                    return []
                server = _found(address, (RemoteModel(id=name, info=_default()) for name in names))
                server = _found(address, await _details(ask, names))
        except (TimeoutError, httpx.HTTPError, ModelError):
            pass  # nothing there, or too slow to say more than it has
    return [] if server is None else [server]


def _found(address: ServerAddress, models: Iterable[RemoteModel]) -> FoundServer:
    return FoundServer(title="Ollama", settings={"base_url": address.base_url}, models=tuple(models))


def _default() -> ModelInfo:
    return ModelInfo(context_window=DEFAULT_CONTEXT)


class _Asking:
    """GET and POST for JSON objects. Raises ModelError, or httpx.HTTPError where nothing came back."""

    def __init__(self, client: httpx.AsyncClient, address: ServerAddress, failures: Failures) -> None:
        self._client = client
        self._address = address
        self._failures = failures

    async def __call__(self, path: str, body: Json | None = None) -> Json:
        method = "GET" if body is None else "POST"
        async with self._client.stream(method, self._address.url(path), headers=HEADERS, json=body) as response:
            text = await read_capped(response.aiter_bytes(), MAX_BODY)
            if response.status_code != 200 or is_web_page(response.headers, text):
                raise self._failures.from_answer(response.status_code, response.headers, text, time.time()).error
        decoded = read_json(text)
        if not isinstance(decoded, dict):
            raise self._failures.not_the_api(200).error
        error = self._failures.read_error(decoded)
        if error is not None:
            raise self._failures.from_reply(0, error).error
        return decoded


async def _details(ask: _Asking, names: list[str]) -> list[RemoteModel]:
    """What ``/api/show`` and ``/api/ps`` say of the models named; one that cannot be shown keeps the defaults."""
    import httpx

    async def shown(path: str, body: Json | None = None) -> Json:
        try:
            return await ask(path, body)
        except (ModelError, httpx.HTTPError):
            return {}

    running = await shown("/api/ps")
    rows = running.get("models")
    loaded = {
        str(row.get("model") or row.get("name")): _number(row.get("context_length"))
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, dict)
    }
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(name: str) -> RemoteModel | None:
        async with gate:
            return read_model(name, await shown("/api/show", {"model": name}), loaded.get(name, 0))

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(name)) for name in names]
    return [model for task in tasks if (model := task.result()) is not None]


def _names(body: Json) -> list[str] | None:
    rows = body.get("models")
    if not isinstance(rows, list):
        return None
    found = {str(row.get("model") or row.get("name") or "") for row in rows if isinstance(row, dict)} - {""}
    return sorted(found, key=str.casefold)


def read_model(name: str, shown: Json, loaded: int = 0) -> RemoteModel | None:
    """A model from the answer of ``/api/show``; None for one that does not chat. ``loaded`` is the context it runs with."""
    details = shown.get("details")
    details = details if isinstance(details, dict) else {}
    capabilities = _capabilities(shown, details)
    if capabilities is None:
        return None
    facts = shown.get("model_info")
    trained = next(
        (_number(v) for k, v in (facts.items() if isinstance(facts, dict) else ()) if k.endswith(".context_length")), 0
    )
    set_to = _NUM_CTX.search(str(shown.get("parameters") or ""))
    if set_to:
        context = int(set_to[1])
    elif shown.get("remote_host"):
        context = trained or DEFAULT_CONTEXT  # runs in Ollama's cloud, with all its context
    else:
        context = min(trained or DEFAULT_CONTEXT, max(DEFAULT_CONTEXT, loaded))
    size = _SIZE.match(str(details.get("parameter_size") or "").strip())
    weak = size is not None and float(size[1]) / (1000 if size[2].lower() == "m" else 1) < WEAK_BELOW
    return RemoteModel(id=name, info=ModelInfo(context, None, capabilities, weak))


def _capabilities(shown: Json, details: Json) -> frozenset[str] | None:
    said = shown.get("capabilities")
    if isinstance(said, list):
        if "completion" not in said:
            return None
        return frozenset(word for ability, word in _ABILITIES.items() if ability in said)
    if not shown:
        return _default().capabilities
    # Before 0.6.4 the template and the families are all there is to tell from.
    families = details.get("families")
    families = families if isinstance(families, list) else []
    if any("bert" in str(family) for family in families):
        return None
    found = {"tools"} if ".Tools" in str(shown.get("template") or "") else set()
    return frozenset(found | ({"vision"} if _SEEING & set(map(str, families)) else set()))


def _number(value: Any) -> int:
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e9 else 0
