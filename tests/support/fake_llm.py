"""A small OpenAI-compatible server for tests, with full control over bytes and time.

It answers ``POST /v1/chat/completions`` with the next step of its script; without one it streams ``tokens`` numbered words.
Steps (JSON objects): ``{"text": "…"}``, ``{"tokens": 200, "delay": 0.05}``, ``{"calls": [{"name", "arguments"}], "text"?}``,
``{"status": 500, "body"?}``, ``{"html": true}``, ``{"cut_after": 3, "tokens": 9}``, ``{"hold": true}`` (waits for ``/release``),
``{"endless": true, "delay": 0.05}`` (numbered words until :meth:`ThreadedLlm.enough`),
``{"text": "…", "when": "word"}`` (only for a request whose last message holds the word). ``POST /script`` sets the steps,
``GET /requests`` returns the bodies received. Run as a program it prints its port.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import threading
import time
from collections.abc import Iterable
from typing import Any, Self

Step = dict[str, Any]


class FakeLlm:
    """The server; ``requests`` are the decoded bodies of model calls, ``first_byte`` when each first token was sent.

    ``counted`` is how many words the latest endless answer has sent; setting ``enough`` ends it.
    """

    def __init__(self, *, tokens: int = 20, delay: float = 0.0) -> None:
        self.tokens = tokens
        self.delay = delay
        self.steps: list[Step] = []
        self.requests: list[dict[str, Any]] = []
        self.first_token: list[float] = []
        self.release = asyncio.Event()
        self.enough = asyncio.Event()
        self.counted = 0
        self._server: asyncio.Server | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            return  # the client went, or the test ends
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, path, _ = head.split(" ", 2)
        length = 0
        for line in head.split("\r\n")[1:]:
            name, _, value = line.partition(":")
            if name.lower() == "content-length":
                length = int(value)
        body = json.loads(await reader.readexactly(length)) if length else {}
        if path == "/script":
            self.steps = body["steps"]
            return await _reply(writer, 200, {})
        if path == "/release":
            self.release.set()
            return await _reply(writer, 200, {})
        if path == "/requests":
            return await _reply(writer, 200, self.requests)
        if method == "GET" and path.endswith("/models"):
            return await _reply(writer, 200, {"object": "list", "data": [{"id": "fake-model", "object": "model"}]})
        if not path.endswith("/chat/completions"):
            return await _reply(writer, 404, {"error": {"message": "no such path"}})
        self.requests.append(body)
        return await self._answer(writer, body, self._next(body))

    def _next(self, body: dict[str, Any]) -> Step:
        last = json.dumps(body["messages"][-1])
        for index, step in enumerate(self.steps):
            if step.get("when", "") in last:
                return self.steps.pop(index)
        return {"tokens": self.tokens, "delay": self.delay}

    async def _answer(self, writer: asyncio.StreamWriter, body: dict[str, Any], step: Step) -> bool:
        if step.get("hold"):
            await self.release.wait()
        if "status" in step:
            return await _reply(writer, step["status"], step.get("body") or {"error": {"message": "scripted failure"}})
        if step.get("html"):
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 20\r\n\r\n<html>welcome</html>"
            )
            await writer.drain()
            return True
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: keep-alive\r\n\r\n"
        )
        pieces: Iterable[str]
        if "text" in step:
            words = [p + " " for p in step["text"].split(" ")]
            pieces = [*words[:-1], words[-1][:-1]]
        elif "calls" in step:
            pieces = []
        elif step.get("endless"):
            self.enough.clear()
            pieces = (f"{n} " for n in itertools.takewhile(lambda _: not self.enough.is_set(), itertools.count(1)))
        else:
            pieces = [f"{n} " for n in range(1, int(step.get("tokens", 3)) + 1)]
        delay = float(step.get("delay", 0.0))
        sent = 0
        for piece in pieces:
            if sent == 0:
                self.first_token.append(time.monotonic())
            _event(writer, {"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]})
            await writer.drain()
            sent += 1
            if step.get("endless"):
                self.counted = sent
            if step.get("cut_after") == sent:
                writer.transport.abort()
                return False
            if delay:
                await asyncio.sleep(delay)
        for index, call in enumerate(step.get("calls", ())):
            arguments = call["arguments"] if isinstance(call["arguments"], str) else json.dumps(call["arguments"])
            function = {"name": call["name"], "arguments": arguments}
            delta = {
                "tool_calls": [
                    {
                        "index": index,
                        "id": f"call_{len(self.requests)}_{index}",
                        "type": "function",
                        "function": function,
                    }
                ]
            }
            _event(writer, {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        reason = "tool_calls" if step.get("calls") else "stop"
        _event(writer, {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        usage = {"prompt_tokens": 100, "completion_tokens": sent, "total_tokens": 100 + sent}
        _event(writer, {"choices": [], "usage": usage})
        _chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


def _event(writer: asyncio.StreamWriter, data: dict[str, Any]) -> None:
    full = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "fake-model", **data}
    _chunk(writer, f"data: {json.dumps(full)}\n\n".encode())


def _chunk(writer: asyncio.StreamWriter, payload: bytes) -> None:
    writer.write(f"{len(payload):x}\r\n".encode() + payload + b"\r\n")


async def _reply(writer: asyncio.StreamWriter, status: int, body: Any) -> bool:
    payload = json.dumps(body).encode()
    writer.write(
        f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(payload)}\r\n\r\n".encode()
        + payload
    )
    await writer.drain()
    return True


class ThreadedLlm:
    """The same server on a thread of its own, for tests that are not asynchronous."""

    def __init__(self, **options: Any) -> None:
        self.llm = FakeLlm(**options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self.llm.start())
        self._ready.set()
        self._loop.run_forever()

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *exc: object) -> None:
        async def finish() -> None:
            await self.llm.stop()
            mine = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
            for task in mine:
                task.cancel()
            await asyncio.gather(*mine, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(finish(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def script(self, *steps: Step) -> None:
        self.llm.steps = list(steps)

    def release(self) -> None:
        self._loop.call_soon_threadsafe(self.llm.release.set)

    def enough(self) -> None:
        """End the endless answer that is under way, as a complete one."""
        self._loop.call_soon_threadsafe(self.llm.enough.set)

    def release_once(self) -> None:
        """Let go of what is held now; later steps hold again."""

        def pulse() -> None:
            self.llm.release.set()
            self.llm.release.clear()

        self._loop.call_soon_threadsafe(pulse)

    @property
    def url(self) -> str:
        return self.llm.url

    @property
    def requests(self) -> list[dict[str, Any]]:
        return self.llm.requests


async def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--delay", type=float, default=0.0)
    args = parser.parse_args()
    server = FakeLlm(tokens=args.tokens, delay=args.delay)
    await server.start()
    print(server.port, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main())
