"""The pytest plugin of ``skald-core``. Fixtures import the server only when a test asks for one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from skald_core.loop.scripted import ScriptedProvider
    from skald_core.testing.app import AppFactory
    from skald_core.testing.clock import FakeClock

try:
    import pytest_asyncio
except ImportError:  # the fixtures below need it; other tests of the environment do not
    pytest_asyncio = None  # type: ignore[assignment]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "skald_network: this test may reach the network although it uses skald_app")


@pytest.fixture
def skald_network(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Only this machine can be reached; what else was tried is in the list, and fails the test. ``skald_app`` brings it."""
    if request.node.get_closest_marker("skald_network") is not None:
        yield []
        return
    from skald_core.testing.network import refuse_network

    with refuse_network() as tried:
        yield tried


if pytest_asyncio is not None:

    @pytest_asyncio.fixture
    async def skald_app(tmp_path: Path, skald_network: list[str]) -> AsyncIterator[AppFactory]:
        """``app = await skald_app(*plugins)`` starts an instance with exactly these plugins, stopped after the test."""
        from skald_core.testing.app import AppFactory

        factory = AppFactory(tmp_path / "data")
        yield factory
        await factory.close()


@pytest.fixture
def skald_provider() -> ScriptedProvider:
    """A scripted model without steps: ``skald_provider.add(…)``. A step nobody asked for fails the test."""
    from skald_core.loop.scripted import ScriptedProvider

    return ScriptedProvider([])


@pytest.fixture
def skald_clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The time of every instance in this test; ``skald_clock.advance(60)`` moves it. Ask for it before ``skald_app``."""
    from skald_core.runtime.app import Skald
    from skald_core.testing.clock import FakeClock

    clock = FakeClock()
    monkeypatch.setattr(Skald, "now", lambda self: clock.now())
    return clock


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """After a test that passed: every scripted answer was asked for, and nobody tried to leave this machine."""
    result = yield
    arguments: dict[str, Any] = pyfuncitem.funcargs
    provider = arguments.get("skald_provider")
    if provider is not None:
        provider.assert_complete()
    tried = arguments.get("skald_network")
    if tried:
        pytest.fail(f"the network was tried: {', '.join(tried)}", pytrace=False)
    return result
