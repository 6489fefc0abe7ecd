"""Servers to test against: two that others wrote (llmock, fakellm), and one of bare sockets for what no library would send."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from skald_openai.provider import OpenAIProvider
from skald_openai.retry import RetryPolicy

from skald_core.api import ModelInfo, ModelRequest, StreamEvent, SystemBlock, TextPart, ToolSpec, WireMessage

READ_FILE = ToolSpec(
    "read_file",
    "Read a file.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


def user(text: str) -> WireMessage:
    return WireMessage("user", (TextPart(text),))


def ask(text: str = "Hello", **changes: Any) -> ModelRequest:
    """A request of one user message."""
    values: dict[str, Any] = {
        "model": "gpt-4o-mini",
        "system": (SystemBlock("Be brief."),),
        "messages": (user(text),),
        "info": ModelInfo(context_window=128000),
    }
    return ModelRequest(**(values | changes))


async def collect(provider: OpenAIProvider, request: ModelRequest) -> list[StreamEvent]:
    async with asyncio.timeout(30):
        return [event async for event in provider.stream(request)]


class Waits(list[float]):
    """Stands in for sleeping: notes how long was asked for and goes on at once."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


# --- a server of bare sockets ------------------------------------------------------------------------------------


class Heard(NamedTuple):
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)


class Wire:
    """One connection, to be written to byte for byte."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def send(self, data: bytes | str) -> None:
        self._writer.write(data.encode() if isinstance(data, str) else data)
        await self._writer.drain()

    async def head(self, status: str = "200 OK", **headers: str) -> None:
        lines = [f"HTTP/1.1 {status}", *(f"{k.replace('_', '-')}: {v}" for k, v in headers.items()), "Connection: close"]
        await self.send("\r\n".join(lines) + "\r\n\r\n")

    async def whole(self, body: bytes | str, status: str = "200 OK", **headers: str) -> None:
        data = body.encode() if isinstance(body, str) else body
        await self.head(status, **{"Content_Type": "application/json", **headers, "Content_Length": str(len(data))})
        await self.send(data)

    async def events(self, *payloads: Any, done: bool = True) -> None:
        """A stream of JSON payloads, with its end mark."""
        await self.head(Content_Type="text/event-stream")
        for payload in payloads:
            await self.event(payload)
        if done:
            await self.send("data: [DONE]\n\n")

    async def event(self, payload: Any) -> None:
        await self.send(f"data: {payload if isinstance(payload, str) else json.dumps(payload)}\n\n")

    def reset(self) -> None:
        """Drop the connection without a goodbye."""
        self._writer.transport.abort()


Script = Callable[[Wire], Awaitable[None]]


class RawServer:
    """Answers the n-th connection with the n-th script, the last one for all that follow, and keeps what it heard."""

    def __init__(self) -> None:
        self.scripts: list[Script] = []
        self.heard: list[Heard] = []
        self.hung_up = asyncio.Event()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def answer(self, *scripts: Script) -> None:
        self.scripts = list(scripts)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, path, _ = head[0].split(" ", 2)
            headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
            raw = await reader.readexactly(int(headers.get("content-length", "0")))
            script = self.scripts[min(len(self.heard), len(self.scripts) - 1)]
            self.heard.append(Heard(method, path, headers, raw))
            await script(Wire(writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            self.hung_up.set()
        finally:
            writer.close()


@pytest.fixture
async def raw() -> AsyncIterator[RawServer]:
    server = RawServer()
    await server.start()
    yield server
    await server.stop()


Make = Callable[..., OpenAIProvider]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    """Makes providers that do not really sleep, and closes them."""
    made: list[OpenAIProvider] = []

    def build(base_url: str, **options: Any) -> OpenAIProvider:
        options.setdefault("sleep", Waits())
        options.setdefault("retry", RetryPolicy(max_retries=0))
        options.setdefault("timeout", 10.0)
        counter = iter(range(1, 100))
        options.setdefault("new_id", lambda: f"made_{next(counter)}")
        provider = OpenAIProvider(provider_id="test", base_url=base_url, **options)
        made.append(provider)
        return provider

    yield build
    for provider in made:
        await provider.close()


# --- fakellm, in a process of its own ----------------------------------------------------------------------------


@pytest.fixture(scope="session")
def fakellm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of a running fakellm whose rules play a two-round conversation with a tool."""
    folder = tmp_path_factory.mktemp("fakellm")
    config = folder / "fakellm.yaml"
    config.write_text(Path(__file__).with_name("fakellm.yaml").read_text())
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "fakellm.server:app", "--host", "127.0.0.1", "--port", str(port)],
        cwd=folder,
        env={**os.environ, "FAKELLM_CONFIG": str(config)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(f"http://127.0.0.1:{port}/_fakellm/stats", process)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(10)


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        try:
            with opener.open(url, timeout=2):
                return
        except OSError:
            assert process.poll() is None, "the server died while starting"
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.05)
