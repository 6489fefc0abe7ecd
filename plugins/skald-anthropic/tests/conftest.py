"""Servers to test against: fakellm and llmock, which others wrote, and one of bare sockets for what no library would send."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from skald_anthropic.provider import AnthropicProvider
from skald_core.testing.programs import running_server
from skald_core.testing.servers import RawServer, providers

sys.path.insert(0, str(Path(__file__).parent))  # for anthropic_testkit: test folders are no packages

from anthropic_testkit import Make


@pytest.fixture
async def raw() -> AsyncIterator[RawServer]:
    async with RawServer() as server:
        yield server


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    """Makes providers that do not really sleep, and closes them."""
    async with providers(AnthropicProvider) as build:
        yield build


@pytest.fixture(scope="session")
def fakellm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of a running fakellm whose rules play a two-round conversation with a tool."""
    folder = tmp_path_factory.mktemp("fakellm")
    rules = Path(__file__).with_name("fakellm.yaml")
    command = [sys.executable, "-m", "uvicorn", "fakellm.server:app", "--fd", "{fd}"]
    with running_server(command, ready="/_fakellm/stats", cwd=folder, env={"FAKELLM_CONFIG": str(rules)}) as origin:
        yield origin
