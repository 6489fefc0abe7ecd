"""A real server process and a scripted model server for every test."""

from collections.abc import Callable, Iterator

import httpx
import pytest

from tests.support.fake_llm import ThreadedLlm
from tests.support.live import Live
from tests.support.server import ServerProcess, add_fake_model


@pytest.fixture
def llm() -> Iterator[ThreadedLlm]:
    with ThreadedLlm(tokens=5) as running:
        yield running


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    with ServerProcess() as running:
        yield running


@pytest.fixture
def client(server: ServerProcess, llm: ThreadedLlm) -> Iterator[httpx.Client]:
    """The first user, signed in, with one model behind the scripted server."""
    made = server.first_user()
    add_fake_model(made, llm.url)
    yield made
    made.close()


@pytest.fixture
def follow(client: httpx.Client) -> Iterator[Callable[[str], Live]]:
    """Open live sockets that are closed at the end."""
    opened: list[Live] = []

    def start(conversation: str, who: httpx.Client | None = None) -> Live:
        live = Live(who or client, conversation)
        live.until("snapshot")
        opened.append(live)
        return live

    yield start
    for live in opened:
        live.close()
