"""The HTTP client of one model server: made on first use, shared by its calls, closed when the last one is done.

Addresses are what an administrator configured, so private ones are fine; redirects are not followed, since they would carry
the key, or plain text, elsewhere. Heavy imports happen on first use.
"""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from skald_core.loop.errors import ConfigError

if TYPE_CHECKING:
    import httpx

__all__ = ("StreamingClient", "streaming_client")

CONNECT_TIMEOUT = 10.0
WRITE_TIMEOUT = 120.0
_KEEP_NEARBY = 4.0  # seconds; uvicorn and others close idle connections after 5
_KEEP_FAR = 45.0  # a handshake saved is worth more, and public servers wait a minute or longer


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


async def streaming_client(
    base_url: str, *, read_timeout: float, connect_timeout: float = CONNECT_TIMEOUT
) -> httpx.AsyncClient:
    """A client for long streaming answers. ``read_timeout`` is seconds between bytes, ``connect_timeout`` to connect.

    Proxies of the environment apply, but not to this machine. Loading certificates takes tens of milliseconds, so it
    happens off the event loop, and not at all for plain HTTP, where the empty store trusts nobody.

    Raises:
        ConfigError: the address cannot be a host's.
    """
    import httpx

    from skald_core.runtime.wire import WireTransport

    try:
        _ = httpx.URL(base_url).host  # decodes it
        parts = urlsplit(base_url)
    except (httpx.InvalidURL, UnicodeError, ValueError):
        text = f"The base URL {base_url!r} is not a valid address. Check it for typing errors."
        raise ConfigError(text) from None
    loopback = _is_loopback(parts.hostname or "")
    if parts.scheme == "https":
        context = await asyncio.to_thread(httpx.create_ssl_context)
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx.AsyncClient(
        transport=WireTransport(
            verify=context, keepalive=_KEEP_NEARBY if loopback else _KEEP_FAR, trust_env=not loopback
        ),
        follow_redirects=False,
        timeout=httpx.Timeout(read_timeout, connect=connect_timeout, write=WRITE_TIMEOUT, pool=None),
    )


class StreamingClient:
    """Owns the client of ``base_url``; ``label`` names the server in errors.

    Closing lets calls under way end in peace and refuses new ones.
    """

    def __init__(
        self, base_url: str, *, label: str, read_timeout: float, connect_timeout: float = CONNECT_TIMEOUT
    ) -> None:
        self._base_url = base_url
        self._label = label
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
            ConfigError: it is closed, or the address cannot be a host's.
        """
        if self._closed:
            raise ConfigError(f"The provider for {self._label} was closed. Start the request again.")
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
                    self._client = await streaming_client(
                        self._base_url, read_timeout=self.read_timeout, connect_timeout=self.connect_timeout
                    )
        return self._client

    async def _close_if_unused(self) -> None:
        if self._in_use or not self._closed:
            return
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()
