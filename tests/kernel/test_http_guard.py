"""Outgoing requests reach public addresses only (security list, lines 11 to 13)."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from skald_core.runtime import http
from skald_core.runtime.http import RefusedTarget, client, is_public


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "::1", "::ffff:7f00:1", "::ffff:169.254.169.254", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1",
        "0.0.0.0", "169.254.169.254", "fd00::1", "fe80::1%eth0", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::",
        "224.0.0.1", "255.255.255.255", "::", "::127.0.0.1", "::ffff:0:7f00:1", "64:ff9b:1::7f00:1", "fec0::1", "240.0.0.1",
        "192.0.0.8", "198.18.0.1", "2001:db8::1", "3fff::1", "ff02::1",
    ],
)  # fmt: skip
def test_private_forms_are_not_public(address: str) -> None:
    """Every way of writing a private, loopback, link-local, shared, multicast, reserved or translated address."""
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700:4700::1111", "64:ff9b::101:101", "::ffff:1.1.1.1"])
def test_public_addresses_are(address: str) -> None:
    """Ordinary addresses, also through NAT64."""
    assert is_public(address)


class Web:
    """A server on 127.0.0.1 that notes each request; ``/to?<address>`` redirects there."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.port = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        target = head.split()[1]
        if target.startswith("/to?"):
            writer.write(f"HTTP/1.1 302 Found\r\nLocation: {target[4:]}\r\nContent-Length: 0\r\n".encode())
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n")
        writer.write(b"Connection: close\r\n\r\n" + (b"" if target.startswith("/to?") else b"ok"))
        await writer.drain()
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def _web() -> AsyncIterator[Web]:
    web = Web()
    server = await asyncio.start_server(web.answer, "127.0.0.1", 0)
    web.port = server.sockets[0].getsockname()[1]
    try:
        yield web
    finally:
        server.close()
        await server.wait_closed()


def _resolve_to(monkeypatch: pytest.MonkeyPatch, answers: dict[str, list[list[str]]]) -> None:
    """Have the names' successive look-ups answer with these addresses; the last answer stays."""

    async def look_up(host: str, port: int, **options: Any) -> list[Any]:
        found = answers[host]
        addresses = found.pop(0) if len(found) > 1 else found[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/", "http://[::1]:{port}/", "http://2130706433:{port}/", "http://0x7f.1:{port}/",
        "http://0177.0.0.1:{port}/", "http://localhost:{port}/", "http://localhost.:{port}/", "http://127.1:{port}/",
        "http://example.org@127.0.0.1:{port}/", "http://[::ffff:127.0.0.1]:{port}/", "http://[::ffff:7f00:1]:{port}/",
        "http://0.0.0.0:{port}/", "http://0:{port}/", "http://127。0。0。1:{port}/", "http://①②⑦.0.0.1:{port}/",
        "http://127.0.0.1.:{port}/", "http://127.0.0.1:{port}\\@example.org/", "http://example.org\\@127.0.0.1:{port}/",
        "http://[::]:{port}/", "http://[64:ff9b::7f00:1]:{port}/", "http://100.64.0.1:{port}/", "http://[fd00::1]:{port}/",
        "http://169.254.169.254:{port}/latest/meta-data/", "http://[::ffff:169.254.169.254]:{port}/",
    ],
)  # fmt: skip
async def test_requests_to_private_addresses_are_refused(url: str) -> None:
    """Nothing reaches a server of this machine, whatever the URL looks like: the resolved address decides."""
    async with _web() as web, client(allow_private=False) as outgoing:
        with pytest.raises(Exception) as caught:  # noqa: PT011 -- some of these are no URL, or no name, to begin with
            await outgoing.get(url.format(port=web.port))
        assert type(caught.value).__name__ in {"RefusedTarget", "ConnectError", "InvalidURL"}, caught.value
        assert web.heads == []


async def test_this_machine_is_refused_because_of_its_address() -> None:
    """It is the rule that refuses, not a connection that happened to fail; an exempt client reaches the same server."""
    async with _web() as web:
        url = f"http://127.0.0.1:{web.port}/"
        async with client(allow_private=False) as outgoing:
            with pytest.raises(RefusedTarget):
                await outgoing.get(url)
        async with client(allow_private=True) as outgoing:
            assert (await outgoing.get(url)).text == "ok"


async def test_one_private_answer_among_public_ones_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is public and private at once is not public."""
    _resolve_to(monkeypatch, {"both.example": [["1.1.1.1", "10.0.0.1"]]})
    async with client(allow_private=False) as outgoing:
        with pytest.raises(RefusedTarget):
            await outgoing.get("http://both.example/")


async def test_a_name_is_looked_up_once_and_that_address_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rebinding: the second answer, a private one, is never asked for by the request that was checked, and refused after."""
    monkeypatch.setattr(http, "is_public", lambda address: address == "127.0.0.1")  # stands for a public server
    answers = {"rebinds.example": [["127.0.0.1"], ["127.0.0.2"]]}
    _resolve_to(monkeypatch, answers)
    async with _web() as web, client(allow_private=False) as outgoing:
        url = f"http://rebinds.example:{web.port}/"
        assert (await outgoing.get(url)).text == "ok"
        assert answers["rebinds.example"] == [["127.0.0.2"]]
        with pytest.raises(RefusedTarget):
            await outgoing.get(url)
        assert len(web.heads) == 1


async def test_every_redirect_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A public server cannot send us to a private one."""
    monkeypatch.setattr(http, "is_public", lambda address: address == "127.0.0.1")
    _resolve_to(monkeypatch, {"public.example": [["127.0.0.1"]], "169.254.169.254": [["169.254.169.254"]]})
    async with _web() as web, client(allow_private=False) as outgoing:
        with pytest.raises(RefusedTarget):
            await outgoing.get(f"http://public.example:{web.port}/to?http://169.254.169.254/latest/meta-data/")
        assert len(web.heads) == 1


async def test_a_host_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is pinned is the connection: a relative redirect, the Host and the answer's address are still the server's name,
    which is also what its certificate is checked for."""
    monkeypatch.setattr(http, "is_public", lambda address: address == "127.0.0.1")
    _resolve_to(monkeypatch, {"public.example": [["127.0.0.1"]]})
    async with _web() as web, client(allow_private=False) as outgoing:
        answer = await outgoing.get(f"http://public.example:{web.port}/to?/there")
        assert str(answer.url) == f"http://public.example:{web.port}/there"
        assert all(f"host: public.example:{web.port}\r\n" in head.lower() for head in web.heads)
        assert answer.request.url.host == "public.example"
        assert "sni_hostname" not in answer.request.extensions
