"""The HTTP client of one model server: made on first use, shared by its calls, closed when the last one is done.

Addresses are what an administrator configured, so private ones are fine; redirects are not followed, since they would carry
the key, or plain text, elsewhere. Heavy imports happen on first use.
"""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from skald_core.loop.errors import ConfigError

if TYPE_CHECKING:
    import httpx

    from skald_core.runtime.wire import WireTransport

__all__ = ("StreamingClient", "streaming_client")

CONNECT_TIMEOUT = 10.0
WRITE_TIMEOUT = 120.0
_KEEP = 45.0
"""Seconds an idle connection is kept. Servers that close earlier are noticed; the rare race is for the caller's retry."""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


async def _transport(base_url: str) -> WireTransport:
    """Loading certificates takes tens of milliseconds, so it happens off the event loop, and not at all for plain HTTP,
    where the empty store trusts nobody. Proxies of the environment apply, but not to this machine."""
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
    return WireTransport(verify=context, keepalive=_KEEP, trust_env=not loopback)


def _timeout(read_timeout: float, connect_timeout: float) -> httpx.Timeout:
    import httpx

    return httpx.Timeout(read_timeout, connect=connect_timeout, write=WRITE_TIMEOUT, pool=None)


async def streaming_client(
    base_url: str, *, read_timeout: float, connect_timeout: float = CONNECT_TIMEOUT
) -> httpx.AsyncClient:
    """A client for one server. ``read_timeout`` is seconds between bytes, ``connect_timeout`` to connect.

    Raises:
        ConfigError: the address cannot be a host's.
    """
    import httpx

    return httpx.AsyncClient(
        transport=await _transport(base_url),
        follow_redirects=False,
        timeout=_timeout(read_timeout, connect_timeout),
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
        self._transport: WireTransport | None = None
        self._making: asyncio.Lock | None = None
        self._urls: dict[str, httpx.URL] = {}
        self._in_use = 0
        self._closed = False

    @asynccontextmanager
    async def post(self, url: str, *, content: bytes, headers: Mapping[str, str]) -> AsyncIterator[httpx.Response]:
        """One streaming POST; leaving the block closes the answer, and the connection when it was not read to its end.

        Cheaper than a client's own ``stream``: no cookies, redirects or authentication flow are looked for.

        Raises:
            httpx.HTTPError: no good answer could be had.
            ConfigError: it is closed, or the address cannot be a host's.
        """
        import httpx

        if self._closed:
            raise ConfigError(f"The provider for {self._label} was closed. Start the request again.")
        self._in_use += 1
        try:
            transport = self._transport or await self._open()
            target = self._urls.get(url)
            if target is None:
                target = self._urls[url] = httpx.URL(url)
            timeout = _timeout(self.read_timeout, self.connect_timeout).as_dict()
            request = httpx.Request("POST", target, content=content, headers=headers, extensions={"timeout": timeout})
            response = await transport.handle_async_request(request)
            try:
                yield response
            finally:
                await response.aclose()
        finally:
            self._in_use -= 1
            await self._close_if_unused()

    async def close(self) -> None:
        self._closed = True
        await self._close_if_unused()

    async def _open(self) -> WireTransport:
        self._making = self._making or asyncio.Lock()
        async with self._making:
            if self._transport is None:
                self._transport = await _transport(self._base_url)
            return self._transport

    async def _close_if_unused(self) -> None:
        if self._in_use or not self._closed:
            return
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.aclose()
