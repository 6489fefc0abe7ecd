"""Outgoing HTTP with one rule for everyone: resolve once, check the resolved address, connect to exactly that address, and do
it again on every redirect."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from typing import Final

import httpcore
import httpx

from skald_core.errors import SkaldError

__all__ = ("GuardedTransport", "RefusedTarget", "client", "is_public")

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_NOT_PUBLIC: Final = tuple(
    ipaddress.ip_network(block)
    for block in ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20")  # not in the tables of every Python that is supported
)


class RefusedTarget(SkaldError):
    """The address is not a public one."""

    status = 422
    code = "refused_target"


def is_public(address: str) -> bool:
    """Whether an IP address literal is on the public internet, also behind IPv4-mapped, 6to4, Teredo and NAT64 forms."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is None and ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
        if ip.is_site_local:
            return False
    if any(ip in block for block in _NOT_PUBLIC):
        return False
    # Reserved holds whatever else wraps an IPv4 address: the compatible and translated forms, a network's own NAT64.
    return ip.is_global and not ip.is_multicast and not ip.is_reserved


class _GuardedNetwork(httpcore.AsyncNetworkBackend):
    """Opens connections to public addresses only. Below HTTP, the host stays the request's own: its Host, its certificate's
    name, its place among pooled connections and what a redirect is relative to are not touched."""

    def __init__(self) -> None:
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except TimeoutError:
            raise httpcore.ConnectTimeout(f"the name {host!r} was not found in time") from None
        except (OSError, UnicodeError):
            raise httpcore.ConnectError(f"cannot find the address of {host!r}") from None
        addresses = [str(info[4][0]) for info in infos]
        if not addresses or not all(is_public(a) for a in addresses):
            raise RefusedTarget(f"{host!r} is not a public address; it is refused")
        return await self._inner.connect_tcp(addresses[0], port, timeout, local_address, socket_options)

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        raise RefusedTarget("a socket of this machine is not a public address; it is refused")

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


class GuardedTransport(httpx.AsyncHTTPTransport):
    """Refuses private targets; connects to the address that was checked, whatever the name server says the next moment."""

    def __init__(self) -> None:
        super().__init__(trust_env=False)
        self._pool = httpcore.AsyncConnectionPool(  # httpx has no other place for how connections are opened
            ssl_context=httpx.create_ssl_context(trust_env=False),
            max_connections=100,
            max_keepalive_connections=20,
            keepalive_expiry=5.0,
            network_backend=_GuardedNetwork(),
        )


def client(*, allow_private: bool) -> httpx.AsyncClient:
    """A client with sane limits: 10 s to connect, 60 s between bytes, at most 5 redirects."""
    transport = httpx.AsyncHTTPTransport(retries=0) if allow_private else GuardedTransport()
    return httpx.AsyncClient(
        transport=transport,
        timeout=httpx.Timeout(60.0, connect=10.0),
        follow_redirects=not allow_private,
        max_redirects=5,
        trust_env=False,
        headers={"User-Agent": "skald"},
    )
