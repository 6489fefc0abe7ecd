"""The pytest plugin of ``skald-core``. Fixtures import the server only when a test asks for one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from skald_core.loop.scripted import ScriptedProvider
    from skald_core.testing.app import AppFactory

try:
    import pytest_asyncio
except ImportError:  # the fixtures below need it; other tests of the environment do not
    pytest_asyncio = None  # type: ignore[assignment]


if pytest_asyncio is not None:

    @pytest_asyncio.fixture
    async def skald_app(tmp_path: Path) -> AsyncIterator[AppFactory]:
        """``app = await skald_app(*plugins)`` starts an instance with exactly these plugins, stopped after the test."""
        from skald_core.testing.app import AppFactory

        factory = AppFactory(tmp_path / "data")
        yield factory
        await factory.close()


@pytest.fixture
def skald_provider() -> ScriptedProvider:
    """A scripted model without steps; add some, or make your own with ``ScriptedProvider([...])``."""
    from skald_core.loop.scripted import ScriptedProvider

    return ScriptedProvider([])
