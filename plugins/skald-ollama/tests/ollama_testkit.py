"""What the tests of skald-ollama share: requests, a server of bare sockets, and a sleep that does not sleep."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from skald_core.api import ModelInfo, ModelRequest, StreamEvent, SystemBlock, TextPart, ToolSpec, WireMessage
from skald_ollama.provider import OllamaProvider

READ_FILE = ToolSpec(
    "read_file",
    "Read a file.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


INFO = ModelInfo(16_384, None, frozenset({"tools", "vision", "reasoning"}))


def user(text: str) -> WireMessage:
    return WireMessage("user", (TextPart(text),))


def ask(text: str = "Hello", **changes: Any) -> ModelRequest:
    """A request of one user message."""
    values: dict[str, Any] = {
        "model": "qwen3:8b",
        "system": (SystemBlock("Be brief."),),
        "messages": (user(text),),
        "info": INFO,
    }
    return ModelRequest(**(values | changes))


async def collect(provider: OllamaProvider, request: ModelRequest) -> list[StreamEvent]:
    async with asyncio.timeout(30):
        return [event async for event in provider.stream(request)]


async def read_into(shown: list[StreamEvent], provider: OllamaProvider, request: ModelRequest) -> None:
    """Like collect, but what came before an error is kept."""
    async for event in provider.stream(request):
        shown.append(event)


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
        lines = [
            f"HTTP/1.1 {status}",
            *(f"{k.replace('_', '-')}: {v}" for k, v in headers.items()),
            "Connection: close",
        ]
        await self.send("\r\n".join(lines) + "\r\n\r\n")

    async def whole(self, body: bytes | str, status: str = "200 OK", **headers: str) -> None:
        data = body.encode() if isinstance(body, str) else body
        await self.head(status, **{"Content_Type": "application/json", **headers, "Content_Length": str(len(data))})
        await self.send(data)

    async def lines(self, *chunks: dict[str, Any]) -> None:
        """A stream of chunks, a line each."""
        await self.head(Content_Type="application/x-ndjson")
        for one in chunks:
            await self.line(one)

    async def line(self, one: dict[str, Any]) -> None:
        await self.send(json.dumps(one) + "\n")

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
        return f"http://127.0.0.1:{self.port}"

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


Make = Callable[..., OllamaProvider]


# --- what Ollama says ----------------------------------------------------------------------------------------------


def chunk(content: str = "", **message: Any) -> dict[str, Any]:
    return {"model": "qwen3:8b", "message": {"role": "assistant", "content": content, **message}, "done": False}


def call(name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    return {**more, "function": {"name": name, "arguments": arguments}}


def last(reason: str | None = "stop", **counts: int) -> dict[str, Any]:
    return {**chunk(), "done": True, **({} if reason is None else {"done_reason": reason}), **counts}
