"""The HTTP client of one endpoint: made on first use, shared by its calls, closed when the last one is done."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from skald_core.api import ConfigError
from skald_openai.services import Endpoint

if TYPE_CHECKING:
    import httpx

__all__ = ("CONNECT_TIMEOUT", "Transport", "make_client", "request_headers")

CONNECT_TIMEOUT = 10.0
WRITE_TIMEOUT = 120.0
_KEEP_NEARBY = 4.0  # seconds; uvicorn and others close idle connections after 5
_KEEP_FAR = 45.0  # a handshake saved is worth more, and public servers wait a minute or longer


def request_headers(endpoint: Endpoint, api_key: str) -> dict[str, str]:
    """Headers of every request. A key with characters no header can carry is refused.

    Raises:
        ConfigError: the key cannot be sent.
    """
    headers = {"User-Agent": "skald-openai/0.1", **endpoint.service.headers}
    if api_key:
        if not api_key.isascii() or not api_key.isprintable() or " " in api_key:
            raise ConfigError("The API key holds a space or a letter no key has. Copy it again.")
        headers["Authorization"] = f"Bearer {api_key}"
    return headers


async def make_client(endpoint: Endpoint, *, read_timeout: float, connect_timeout: float) -> httpx.AsyncClient:
    """A client for one endpoint. Redirects are not followed: they would carry the key, or plain text, elsewhere.

    Proxies of the environment apply, but not to this machine. Loading certificates takes tens of milliseconds, so it
    happens off the event loop, and not at all for plain HTTP, where the empty store trusts nobody.

    Raises:
        ConfigError: the address cannot be a host's.
    """
    import httpx

    from skald_openai.wire import WireTransport

    try:
        _ = httpx.URL(endpoint.base_url).host  # decodes it
    except (httpx.InvalidURL, UnicodeError):
        text = f"The base URL {endpoint.base_url!r} is not a valid address. Check it for typing errors."
        raise ConfigError(text) from None
    if endpoint.secure:
        context = await asyncio.to_thread(httpx.create_ssl_context)
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx.AsyncClient(
        transport=WireTransport(
            verify=context,
            keepalive=_KEEP_NEARBY if endpoint.loopback else _KEEP_FAR,
            trust_env=not endpoint.loopback,
        ),
        follow_redirects=False,
        timeout=httpx.Timeout(read_timeout, connect=connect_timeout, write=WRITE_TIMEOUT, pool=None),
    )


class Transport:
    """Owns the client. Closing lets calls under way end in peace and refuses new ones."""

    def __init__(self, endpoint: Endpoint, *, read_timeout: float, connect_timeout: float = CONNECT_TIMEOUT) -> None:
        self._endpoint = endpoint
        self.read_timeout = read_timeout
        self.connect_timeout = connect_timeout
        self._client: httpx.AsyncClient | None = None
        self._making: asyncio.Lock | None = None
        self._in_use = 0
        self._closed = False

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[httpx.AsyncClient]:
        """The client, for one call.

        Raises:
            ConfigError: the transport is closed.
        """
        if self._closed:
            raise ConfigError(f"The provider for {self._endpoint.label} was closed. Start the request again.")
        self._in_use += 1
        try:
            yield await self._ready()
        finally:
            self._in_use -= 1
            await self._close_if_unused()

    async def close(self) -> None:
        self._closed = True
        await self._close_if_unused()

    async def _ready(self) -> httpx.AsyncClient:
        if self._client is None:
            self._making = self._making or asyncio.Lock()
            async with self._making:
                if self._client is None:
                    self._client = await make_client(
                        self._endpoint, read_timeout=self.read_timeout, connect_timeout=self.connect_timeout
                    )
        return self._client

    async def _close_if_unused(self) -> None:
        if self._in_use or not self._closed:
            return
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()
