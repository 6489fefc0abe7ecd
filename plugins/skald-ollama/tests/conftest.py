"""A server to test against, of bare sockets: no third-party server speaks Ollama's API with streaming and tools."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skald_core.api import RetryPolicy
from skald_ollama.provider import OllamaProvider

sys.path.insert(0, str(Path(__file__).parent))  # for ollama_testkit: test folders are no packages

from ollama_testkit import Make, RawServer, Waits


@pytest.fixture
async def raw() -> AsyncIterator[RawServer]:
    server = RawServer()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    """Makes providers that do not really sleep, and closes them."""
    made: list[OllamaProvider] = []

    def build(base_url: str, **options: Any) -> OllamaProvider:
        options.setdefault("sleep", Waits())
        options.setdefault("retry", RetryPolicy(max_retries=0))
        options.setdefault("timeout", 10.0)
        counter = iter(range(1, 100))
        options.setdefault("new_id", lambda: f"made_{next(counter)}")
        provider = OllamaProvider(provider_id="test", base_url=base_url, **options)
        made.append(provider)
        return provider

    yield build
    for provider in made:
        await provider.close()
