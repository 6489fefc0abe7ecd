"""Servers to test against: fakellm and llmock, which others wrote, and one of bare sockets for what no library would send."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from skald_core.api import RetryPolicy
from skald_openai.provider import OpenAIProvider

sys.path.insert(0, str(Path(__file__).parent))  # for openai_testkit: test folders are no packages

from openai_testkit import Make, RawServer, Waits


@pytest.fixture
async def raw() -> AsyncIterator[RawServer]:
    server = RawServer()
    await server.start()
    yield server
    await server.stop()


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
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "fakellm.server:app", "--fd", str(listening.fileno())],
        pass_fds=[listening.fileno()],
        cwd=folder,
        env={**os.environ, "FAKELLM_CONFIG": str(config)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    listening.close()
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
