"""Finding model servers that already run on this machine."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence

from skald_core.api import FoundServer, RemoteModel, read_capped, read_json, streaming_client
from skald_openai.listing import read_model, read_rows
from skald_openai.native import owner_of, refine
from skald_openai.replies import read_error
from skald_openai.services import Endpoint, all_services, parse_endpoint
from skald_openai.transport import request_headers

__all__ = ("WITHIN", "discover", "local_urls")

log = logging.getLogger("skald.plugin.openai")

WITHIN = 0.9
"""Seconds a look around may take altogether."""
MAX_BODY = 4 * 1024 * 1024


def local_urls() -> tuple[str, ...]:
    """Where the known local servers listen unless told otherwise."""
    return tuple(service.base_url for service in all_services() if service.local)


async def discover(urls: Sequence[str], *, within: float = WITHIN) -> list[FoundServer]:
    """The servers that answer at ``urls``, all asked at once, with their models. Never raises.

    A server that answers but is slow to tell details is reported without them; one that wants a key, without models.
    """
    deadline = time.monotonic() + within
    found = await asyncio.gather(*(_look(url, deadline) for url in urls), return_exceptions=True)
    for problem in found:
        if isinstance(problem, Exception):
            log.debug("looking for model servers: %r", problem)
    return [server for server in found if isinstance(server, FoundServer)]


async def _look(url: str, deadline: float) -> FoundServer | None:
    import httpx

    endpoint = parse_endpoint(url)
    headers = request_headers(endpoint, "")
    left = max(0.05, deadline - time.monotonic())
    server: FoundServer | None = None
    async with await streaming_client(endpoint.base_url, read_timeout=left, connect_timeout=left) as client:
        try:
            async with asyncio.timeout(left):
                async with client.stream("GET", endpoint.url("/models"), headers=headers) as response:
                    status = response.status_code
                    body = read_json(await read_capped(response.aiter_bytes(), MAX_BODY))
                if status == 401 and read_error(body) is not None:
                    return _server(endpoint, endpoint.label, ())
                rows = read_rows(body) if status == 200 else None
                if rows is None:
                    return None
                models = {model.id: model for row in rows if (model := read_model(row)) is not None}
                title = _title(endpoint, owner_of(rows))
                server = _server(endpoint, title, models.values())
                server = _server(endpoint, title, (await refine(client, endpoint, headers, rows, models)).values())
        except (TimeoutError, httpx.HTTPError):
            pass  # nothing there, or too slow to say more than it has
    return server


def _title(endpoint: Endpoint, owner: str) -> str:
    """The server's own word on what it is, rather than the port it was found at."""
    by_id = {service.id: service.title for service in all_services()}
    return by_id.get(owner) or endpoint.origin.partition("://")[2]


def _server(endpoint: Endpoint, title: str, models: Iterable[RemoteModel]) -> FoundServer:
    rows = sorted(models, key=lambda model: model.id)
    return FoundServer(title=title, settings={"base_url": endpoint.base_url}, models=tuple(rows))
