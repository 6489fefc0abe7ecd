"""Asking a server for its models."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from skald_anthropic.failures import Failures
from skald_anthropic.known import known_info
from skald_anthropic.provider import request_headers
from skald_core.api import (
    AuthError,
    ModelGoneError,
    ModelInfo,
    RemoteModel,
    ServerAddress,
    is_web_page,
    read_capped,
    read_json,
    streaming_client,
)

if TYPE_CHECKING:
    import httpx

__all__ = ("list_models", "read_model")

TIMEOUT = 15.0
MAX_LIST = 8 * 1024 * 1024
MAX_PAGES = 20
_ABILITIES = {"vision": "image_input", "documents": "pdf_input", "reasoning": "thinking"}

Json = dict[str, Any]


async def list_models(address: ServerAddress, api_key: str) -> list[RemoteModel]:
    """Every model the server has, in its own order (newest first), with what it says of them. Also the test of a
    connection.

    Raises:
        ModelError: with a sentence for the admin.
        ConfigError: the key cannot be sent.
    """
    import httpx

    failures = Failures(address, api_key)
    if address.known and not api_key:
        raise AuthError("Anthropic wants an API key. Enter one for this provider.")
    headers = request_headers(address, api_key)
    found: dict[str, RemoteModel] = {}
    after = ""
    problem: httpx.HTTPError | None = None
    async with await streaming_client(address.base_url, read_timeout=TIMEOUT, connect_timeout=TIMEOUT) as client:
        try:
            for _ in range(MAX_PAGES):
                page = await _page(client, address, headers, failures, after)
                rows = page.get("data")
                assert isinstance(rows, list)
                found |= {model.id: model for row in rows if (model := read_model(row)) is not None}
                last = page.get("last_id")
                if page.get("has_more") is not True or not isinstance(last, str) or last in ("", after):
                    break
                after = last
        except httpx.HTTPError as error:
            problem = error
    if problem is not None:
        raise failures.from_transport(problem, timeout=TIMEOUT, connect_timeout=TIMEOUT).error
    return list(found.values())


async def _page(
    client: httpx.AsyncClient, address: ServerAddress, headers: Mapping[str, str], failures: Failures, after: str
) -> Json:
    """One page of the list. Raises ModelError."""
    url = address.url("/v1/models?limit=1000") + (f"&after_id={quote(after, safe='')}" if after else "")
    async with client.stream("GET", url, headers=dict(headers)) as response:
        body = await read_capped(response.aiter_bytes(), MAX_LIST)
        if response.status_code == 404 and not is_web_page(response.headers, body):
            text = f"{address.label} has no list of models at {address.base_url}. Check the base URL, or add a model by name."
            raise ModelGoneError(text, status=404)
        if response.status_code != 200 or is_web_page(response.headers, body):
            raise failures.from_answer(response.status_code, response.headers, body, time.time()).error
        decoded = read_json(body)
        if isinstance(decoded, dict) and isinstance(decoded.get("data"), list):
            return decoded
        error = failures.read_error(decoded)
        raise (failures.not_the_api(200) if error is None else failures.from_reply(0, error)).error


def read_model(row: Any) -> RemoteModel | None:
    """One row; None for what is no model, or one that is no longer served. What the server says wins over names."""
    if not isinstance(row, dict) or not isinstance(row.get("id"), str) or not row["id"]:
        return None
    if row.get("lifecycle") == "retired":
        return None
    known = known_info(row["id"])
    title = row.get("display_name")
    info = ModelInfo(
        context_window=_size(row.get("max_input_tokens")) or known.context_window,
        max_output_tokens=_size(row.get("max_tokens")) or known.max_output_tokens,
        capabilities=_capabilities(row.get("capabilities"), known.capabilities),
    )
    return RemoteModel(id=row["id"], title=title if isinstance(title, str) else "", info=info)


def _capabilities(said: Any, known: frozenset[str]) -> frozenset[str]:
    found = set(known)
    for ability, key in _ABILITIES.items():
        value = said.get(key) if isinstance(said, dict) else None
        if isinstance(value, dict) and isinstance(value.get("supported"), bool):
            (found.add if value["supported"] else found.discard)(ability)
    return frozenset(found)


def _size(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e9 else None
