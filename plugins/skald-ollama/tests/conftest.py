"""A server to test against, of bare sockets: no third-party server speaks Ollama's API with streaming and tools."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skald_core.testing.servers import RawServer, providers
from skald_ollama.provider import OllamaProvider

sys.path.insert(0, str(Path(__file__).parent))  # for ollama_testkit: test folders are no packages

from ollama_testkit import Make


@pytest.fixture
async def raw() -> AsyncIterator[RawServer]:
    async with RawServer() as server:
        yield server


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    """Makes providers that do not really sleep, and closes them."""
    async with providers(OllamaProvider) as build:
        yield build
