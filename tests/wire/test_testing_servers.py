"""What authors test their providers with: it has to notice what it says it notices."""

from __future__ import annotations

import asyncio
import sys
import urllib.request

import pytest

from skald_core.testing.programs import running_server
from skald_core.testing.servers import RawServer, Wire, replies, stays_silent

REQUEST = b"POST /x HTTP/1.1\r\nContent-Length: 2\r\nX-Name: Value\r\n\r\n{}"


async def exchange(server: RawServer, request: bytes = REQUEST) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_what_was_heard() -> None:
    """Method, path, headers and body of each request, and the scripts in their turn."""
    async with RawServer("/v1") as server:
        server.answer(replies("[1]"), replies("[2]", "418 Teapot", {"Retry-After": "3"}))
        first, second, third = [await exchange(server) for _ in range(3)]
        assert server.url.endswith(f":{server.port}/v1")
    assert first.startswith(b"HTTP/1.1 200 OK\r\n")
    assert first.endswith(b"\r\nContent-Length: 3\r\nConnection: close\r\n\r\n[1]")
    assert second == third
    assert b"418 Teapot\r\n" in second
    assert b"\r\nRetry-After: 3\r\n" in second
    heard = server.heard[0]
    assert (heard.method, heard.path, heard.headers["x-name"], heard.body) == ("POST", "/x", "Value", {})
    assert not server.hung_up.is_set()


async def test_a_client_that_leaves_is_noticed() -> None:
    """Also by a script that says nothing."""
    async with RawServer() as server:
        server.answer(stays_silent())
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(REQUEST)
        await writer.drain()
        writer.close()
        async with asyncio.timeout(10):
            await server.hung_up.wait()


async def test_events_carry_their_type() -> None:
    """As typed APIs send it; text goes out as it is."""

    async def script(wire: Wire) -> None:
        await wire.events({"type": "start"}, {"n": 1}, "raw", done=True)

    async with RawServer() as server:
        server.answer(script)
        answer = await exchange(server)
    body = answer.partition(b"\r\n\r\n")[2].decode()
    assert body == 'event: start\ndata: {"type": "start"}\n\ndata: {"n": 1}\n\ndata: raw\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize("place", ["{port}", "fd"])
def test_a_program_is_waited_for_and_ended(place: str) -> None:
    """Given a port, or a socket that listens already; any answer counts, a 404 too."""
    by_fd = (
        "import http.server, socket, sys\n"
        "server = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler, False)\n"
        "server.socket = socket.socket(fileno=int(sys.argv[1]))\n"
        "server.serve_forever()\n"
    )
    by_port = ["-m", "http.server", "--bind", "127.0.0.1", "{port}"]
    command = [sys.executable, *(by_port if place == "{port}" else ["-c", by_fd, "{fd}"])]
    with running_server(command, ready="/nothing-here") as origin, urllib.request.urlopen(origin) as answer:
        assert answer.status == 200
    with pytest.raises(OSError, match=r"refused"), urllib.request.urlopen(origin):
        pass


def test_a_program_that_dies_says_why() -> None:
    """What it printed is in the error."""
    with pytest.raises(RuntimeError, match="no such luck"):  # noqa: SIM117 -- the block is never entered
        with running_server([sys.executable, "-c", "raise SystemExit('no such luck')"], ready="/"):
            pytest.fail("it did not start")
