"""Outgoing HTTP with one rule for everyone: resolve once, check the resolved address, connect to exactly that address, and do
it again on every redirect."""

from __future__ import annotations

import asyncio
import ipaddress
import socket

import httpx

from skald_core.errors import SkaldError

__all__ = ("GuardedTransport", "RefusedTarget", "client", "is_public")

_NAT64 = ipaddress.ip_network("64:ff9b::/96")


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
    return ip.is_global and not ip.is_multicast


class GuardedTransport(httpx.AsyncHTTPTransport):
    """Refuses private targets; pins the checked address against a second, different answer of the name server."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        host = request.url.host
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        try:
            infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError:
            raise httpx.ConnectError(f"cannot find the address of {host!r}", request=request) from None
        addresses = [str(info[4][0]) for info in infos]
        if not addresses or not all(is_public(a) for a in addresses):
            raise RefusedTarget(f"{host!r} is not a public address; it is refused")
        request.extensions = {**request.extensions, "sni_hostname": host}
        request.url = request.url.copy_with(host=addresses[0])
        return await super().handle_async_request(request)


def client(*, allow_private: bool) -> httpx.AsyncClient:
    """A client with sane limits: 10 s to connect, 60 s between bytes, at most 5 redirects."""
    transport = httpx.AsyncHTTPTransport(retries=0) if allow_private else GuardedTransport(retries=0)
    return httpx.AsyncClient(
        transport=transport,
        timeout=httpx.Timeout(60.0, connect=10.0),
        follow_redirects=not allow_private,
        max_redirects=5,
        trust_env=False,
        headers={"User-Agent": "skald"},
    )
