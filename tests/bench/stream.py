"""What Skald adds to the time to first token, for one stream and for thirty at once (five users, six tabs each), with storage on.

A local OpenAI-compatible server emits 200 tokens per answer. Each sample sends a message over HTTP and waits for the first
``token_delta`` on the WebSocket; the same is measured at the bare server; the difference of the medians is what Skald adds: at
most 10 ms for one stream, 60 ms for thirty; no token lost. Last line: one JSON object with ``ttft_added_ms_1``,
``ttft_added_ms_30``, ``tokens_per_s_30``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import secrets
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

import aiohttp
from websockets.asyncio.client import connect
from yarl import URL

from tests.support.server import PASSWORD, USERNAME, ServerProcess, add_fake_model

TOKENS = 200
OTHERS = ("bo", "cy", "di", "ed")
BOUND_1 = 10.0
BOUND_30 = 60.0


class Live:
    """One WebSocket that follows one conversation."""

    def __init__(self, http: aiohttp.ClientSession, socket: Any, conversation: str) -> None:
        self.http = http
        self.socket = socket
        self.conversation = conversation

    async def turn(self) -> tuple[float, list[str]]:
        """Send a message; (seconds to the first token, all tokens)."""
        body = {"client_id": secrets.token_hex(8), "content": "count"}
        started = time.perf_counter()
        posted = asyncio.create_task(post(self.http, f"/api/conversations/{self.conversation}/messages", body))
        first = 0.0
        text: list[str] = []
        async for raw in self.socket:
            event = json.loads(raw)
            if event["type"] == "token_delta" and event["kind"] == "content":
                first = first or time.perf_counter() - started
                text.append(event["delta"])
            elif event["type"] == "turn_finished":
                assert event["outcome"] == "success", event
                break
        await posted
        return first, text


async def post(http: aiohttp.ClientSession, path: str, body: Any) -> Any:
    async with http.post(path, json=body) as answer:
        answer.raise_for_status()
        return await answer.json()


async def bare(http: aiohttp.ClientSession, url: str) -> float:
    """The same from the model server itself, with the same client."""
    body = {"model": "fake-model", "stream": True, "messages": [{"role": "user", "content": "count"}]}
    started = time.perf_counter()
    first = 0.0
    async with http.post(url + "/chat/completions", json=body) as answer:
        async for line in answer.content:
            if not first and b'"content"' in line:
                first = time.perf_counter() - started
    return first


async def open_streams(http: aiohttp.ClientSession, server: ServerProcess, username: str, count: int) -> list[Live]:
    """Sign a user in; ``count`` sockets, each following a conversation of its own, as so many open tabs would."""
    await post(http, "/api/auth/login", {"username": username, "password": PASSWORD})
    cookie = http.cookie_jar.filter_cookies(URL(server.url))["skald_session"].value
    headers = {"Cookie": f"skald_session={cookie}"}
    address = "ws" + server.url.removeprefix("http") + "/api/ws"
    lives = []
    for _ in range(count):
        conversation = (await post(http, "/api/conversations", {}))["id"]
        socket = await connect(address, additional_headers=headers, max_size=None, max_queue=None, proxy=None)
        await socket.send(json.dumps({"type": "subscribe", "conversation": conversation, "epoch": None, "after": None}))
        while json.loads(await socket.recv())["type"] != "snapshot":
            pass
        lives.append(Live(http, socket, conversation))
    return lives


async def measure(server: ServerProcess, llm: str, rounds: int) -> dict[str, Any]:
    async with contextlib.AsyncExitStack() as stack:

        async def client(base_url: str | None) -> aiohttp.ClientSession:
            made = aiohttp.ClientSession(
                base_url, cookie_jar=aiohttp.CookieJar(unsafe=True), connector=aiohttp.TCPConnector(limit=0)
            )
            return await stack.enter_async_context(made)

        http = await client(None)
        lives = [
            live
            for username in (USERNAME, *OTHERS)
            for live in await open_streams(await client(server.url), server, username, 30 // (1 + len(OTHERS)))
        ]
        expected = "".join(f"{n} " for n in range(1, TOKENS + 1))
        lost = 0

        def check(tokens: list[str]) -> None:
            nonlocal lost
            lost += "".join(tokens) != expected

        for live in lives[:3]:  # warm up
            check((await live.turn())[1])
            await bare(http, llm)
        singles, bare_singles = [], []
        for n in range(rounds * 3):
            first, tokens = await lives[n % 30].turn()
            check(tokens)
            singles.append(first)
            bare_singles.append(await bare(http, llm))
        many, bare_many, rates = [], [], []
        for _ in range(rounds):
            started = time.perf_counter()
            results = await asyncio.gather(*(live.turn() for live in lives))
            rates.append(30 * TOKENS / (time.perf_counter() - started))
            for first, tokens in results:
                check(tokens)
                many.append(first)
            bare_many += await asyncio.gather(*(bare(http, llm) for _ in lives))
        for live in lives:
            await live.socket.close()
    ms = 1000
    return {
        "ttft_added_ms_1": round((statistics.median(singles) - statistics.median(bare_singles)) * ms, 2),
        "ttft_added_ms_30": round((statistics.median(many) - statistics.median(bare_many)) * ms, 2),
        "tokens_per_s_30": round(statistics.median(rates)),
        "ttft_ms_1": round(statistics.median(singles) * ms, 2),
        "ttft_ms_30": round(statistics.median(many) * ms, 2),
        "bare_ms_1": round(statistics.median(bare_singles) * ms, 2),
        "bare_ms_30": round(statistics.median(bare_many) * ms, 2),
        "streams_with_lost_tokens": lost,
        "bounds": {"ttft_added_ms_1": BOUND_1, "ttft_added_ms_30": BOUND_30},
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--delay", type=float, default=0.02, help="seconds between the model server's tokens")
    args = parser.parse_args()
    script = Path(__file__).parent.parent / "support" / "fake_llm.py"
    command = [sys.executable, str(script), "--tokens", str(TOKENS), "--delay", str(args.delay)]
    model = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert model.stdout is not None
        llm = f"http://127.0.0.1:{model.stdout.readline().strip()}/v1"
        with ServerProcess() as server:
            client = server.first_user()
            add_fake_model(client, llm)
            for name in OTHERS:
                client.post("/api/users", json={"username": name, "password": PASSWORD}).raise_for_status()
            client.close()
            result = asyncio.run(measure(server, llm, args.rounds))
    finally:
        model.terminate()
        model.wait(10)
    print(json.dumps(result))
    good = (
        result["ttft_added_ms_1"] <= BOUND_1
        and result["ttft_added_ms_30"] <= BOUND_30
        and result["streams_with_lost_tokens"] == 0
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
