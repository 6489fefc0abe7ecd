"""httpx over aiohttp's connections.

Measured with thirty streams starting at once: httpx's own transport takes 2 to 3 ms of processor time a request, aiohttp's
connector half a millisecond. httpx stays the interface; failures get the httpx names that say the same.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import aiohttp
import httpx
from yarl import URL

__all__ = ("WireTransport",)


@contextmanager
def _named() -> Iterator[None]:
    """Failures of aiohttp as the httpx exceptions that say the same."""
    try:
        yield
        return
    except (aiohttp.ClientError, TimeoutError, OSError) as caught:
        error = _meaning(caught)
    # Outside of the handler: the original may hold headers, and with them the key.
    raise error


def _meaning(cause: BaseException) -> httpx.HTTPError:
    text = str(cause)
    match cause:
        case aiohttp.ConnectionTimeoutError():
            return httpx.ConnectTimeout(text)
        case aiohttp.SocketTimeoutError() | TimeoutError():
            return httpx.ReadTimeout(text)
        case aiohttp.ClientConnectorError() | aiohttp.ServerFingerprintMismatch():
            named = httpx.ConnectError(text)
            named.__cause__ = cause.__cause__ or getattr(cause, "os_error", None)
            return named
        case aiohttp.ServerDisconnectedError():
            return httpx.RemoteProtocolError("the server closed the connection without an answer")
        case aiohttp.ClientPayloadError():
            return httpx.RemoteProtocolError(text)
        case aiohttp.ClientResponseError():
            return httpx.RemoteProtocolError(text)
        case aiohttp.InvalidURL():
            return httpx.UnsupportedProtocol(text)
        case _:
            return httpx.ReadError(text)


class _Body(httpx.AsyncByteStream):
    """A response's bytes as they come. Closing it early closes the connection, so that the server stops working."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _named():
            async for chunk in self._response.content.iter_any():
                yield chunk

    async def aclose(self) -> None:
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()
            await asyncio.sleep(0)  # the socket is closed in the event loop's next turn


class WireTransport(httpx.AsyncBaseTransport):
    """Connections of one endpoint. ``keepalive`` is seconds an idle one is kept; a proxy of the environment applies with
    ``trust_env``."""

    def __init__(self, *, verify: ssl.SSLContext, keepalive: float, trust_env: bool) -> None:
        self._verify = verify
        self._keepalive = keepalive
        self._trust_env = trust_env
        self._session: aiohttp.ClientSession | None = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=0, ssl=self._verify, keepalive_timeout=self._keepalive, ttl_dns_cache=60
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                trust_env=self._trust_env,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,  # httpx does it
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
            )
        return self._session

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        timeout = request.extensions.get("timeout", {})
        with _named():
            response = await self._open().request(
                request.method,
                URL(str(request.url), encoded=True),
                headers=[(k, v) for k, v in request.headers.multi_items() if k != "content-length"],
                data=await request.aread() or None,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(sock_connect=timeout.get("connect"), sock_read=timeout.get("read")),
            )
        return httpx.Response(
            response.status,
            headers=response.raw_headers,
            stream=_Body(response),
            request=request,
            extensions={"http_version": b"HTTP/1.1", "reason_phrase": (response.reason or "").encode()},
        )

    async def aclose(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()
