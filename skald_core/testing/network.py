"""No test reaches the network by accident: connections to anything but this machine are refused, and the test fails."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ("NetworkRefused", "refuse_network")


class NetworkRefused(RuntimeError):
    """A test tried to leave this machine."""


def _is_here(host: object) -> bool:
    if not isinstance(host, str | bytes):
        return True
    name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
    if name.lower() in {"", "localhost"}:
        return True
    try:
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _is_address(host: object) -> bool:
    try:
        ipaddress.ip_address(str(host).partition("%")[0])
    except ValueError:
        return False
    return True


@contextmanager
def refuse_network() -> Iterator[list[str]]:
    """Refuse names and addresses outside this machine with NetworkRefused, in every thread, until the block ends.

    Yields the list of what was tried, also when the code under test swallowed the error: check that it is empty.
    """
    tried: list[str] = []
    connect, connect_ex, getaddrinfo = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo

    def refuse(what: str) -> None:
        tried.append(what)
        raise NetworkRefused(
            f"this test tried to reach {what}; use a server on 127.0.0.1, or mark the test with @pytest.mark.skald_network"
        )

    def check(address: Any) -> None:
        if isinstance(address, tuple) and not _is_here(address[0]):
            refuse(f"{address[0]}:{address[1]}")

    def guarded_connect(self: socket.socket, address: Any, /) -> None:
        check(address)
        connect(self, address)

    def guarded_connect_ex(self: socket.socket, address: Any, /) -> int:
        check(address)
        return connect_ex(self, address)

    def guarded_getaddrinfo(host: Any, *args: Any, **options: Any) -> Any:
        if not _is_here(host) and not _is_address(host):  # an address asks no name server; connecting to it is refused
            refuse(str(host))
        return getaddrinfo(host, *args, **options)

    setattr(socket.socket, "connect", guarded_connect)  # noqa: B010 -- mypy refuses to assign to a method
    setattr(socket.socket, "connect_ex", guarded_connect_ex)  # noqa: B010
    socket.getaddrinfo = guarded_getaddrinfo
    try:
        yield tried
    finally:
        setattr(socket.socket, "connect", connect)  # noqa: B010
        setattr(socket.socket, "connect_ex", connect_ex)  # noqa: B010
        socket.getaddrinfo = getaddrinfo
