from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skald_core.loop.memory_store import MemoryStore
from skald_core.loop.sqlite_store import SqliteStore
from skald_core.loop.store import Store


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """Each test runs on both stores; the durable one is a real encrypted file."""
    if request.param == "memory":
        yield MemoryStore()
        return
    made = await SqliteStore.open(tmp_path / "chats.db", key=os.urandom(32))
    yield made
    await made.close()
