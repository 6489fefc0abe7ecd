"""Both stores pass the public conformance suite; what only the durable one promises is tested beside it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skald_core.loop.conformance import CHECKS, Check
from skald_core.loop.database import Connection, Database, WrongKey
from skald_core.loop.ledger import SchemaAhead, migrate
from skald_core.loop.memory_store import MemoryStore
from skald_core.loop.ops import AppendMessage, NewCall, OpenFrame, ResolveCall, SetHead
from skald_core.loop.sqlite_store import COMPONENT, MIGRATIONS, SqliteStore
from skald_core.loop.types import ConversationId, FrameId, MessageId

KEY = os.urandom(32)
A = ConversationId("a")


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(tmp_path / "x.db", key=KEY)
    yield store
    await store.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
async def test_memory_store_conforms(check: Check) -> None:
    await check(MemoryStore())


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
async def test_sqlite_store_conforms(check: Check, sqlite: SqliteStore) -> None:
    await check(sqlite)


async def test_content_survives_reopening_and_is_not_readable_without_the_key(tmp_path: Path) -> None:
    """The file holds the conversation encrypted, and the right key gives it back."""
    path = tmp_path / "x.db"
    store = await SqliteStore.open(path, key=KEY)
    await store.apply([OpenFrame(A), AppendMessage(None, "user", "find me if you can")])
    await store.close()
    assert b"find me" not in path.read_bytes()
    with pytest.raises(WrongKey):
        await SqliteStore.open(path, key=os.urandom(32))
    store = await SqliteStore.open(path, key=KEY)
    assert [i.message.content for i in (await store.history(A)).items] == ["find me if you can"]
    await store.close()


async def test_a_ledger_ahead_of_the_code_is_refused(tmp_path: Path) -> None:
    """Data of a newer version is not touched."""
    path = tmp_path / "x.db"
    store = await SqliteStore.open(path, key=KEY)
    insert = "INSERT INTO schema_ledger VALUES ('loop', 99, 0, 'x', 'skald 9.1')"
    await store.db.write(lambda c: c.execute(insert).rowcount)
    await store.close()
    with pytest.raises(SchemaAhead, match=r"version 99, written by skald 9\.1; this program knows 1: start the newer"):
        await SqliteStore.open(path, key=KEY)


async def test_a_ledger_from_before_its_writer_column_gets_one(tmp_path: Path) -> None:
    """An older file is brought up to date, and later steps say who applied them."""
    db = await Database.open(tmp_path / "x.db", key=KEY)

    def older(c: Connection) -> None:
        c.execute(
            "CREATE TABLE schema_ledger(component, version, applied_at, checksum, PRIMARY KEY(component, version))"
        )
        c.execute("INSERT INTO schema_ledger VALUES ('c', 1, 0, 'x')")

    await db.write(older)
    assert await db.write(migrate, "c", ("CREATE TABLE one(a)", "CREATE TABLE two(a)"), "skald 0.2") == 1
    rows = await db.read(lambda c: c.execute("SELECT version, written_by FROM schema_ledger ORDER BY 1").fetchall())
    assert rows == [(1, ""), (2, "skald 0.2")]
    await db.close()


async def test_a_failing_migration_leaves_no_trace(tmp_path: Path) -> None:
    """Migrations run in one transaction, statement by statement."""
    db = await Database.open(tmp_path / "x.db", key=KEY)
    with pytest.raises(Exception, match="syntax"):
        await db.write(migrate, "c", ("CREATE TABLE one(a); INSERT INTO one VALUES ('a;b');", "CREATE TABLE one two"))
    tables = await db.read(lambda c: c.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    assert tables == 0
    assert await db.write(migrate, COMPONENT, MIGRATIONS) == len(MIGRATIONS)
    assert await db.write(migrate, COMPONENT, MIGRATIONS) == 0
    await db.close()


async def test_both_stores_give_equal_records(sqlite: SqliteStore) -> None:
    """The same batches lead to the same history in both stores."""
    pages = []
    for store in (MemoryStore(), sqlite):
        await store.apply([OpenFrame(A), AppendMessage(None, "user", "q", at=1)])
        (said,) = await store.apply(
            [AppendMessage(FrameId(1), "assistant", "a", calls=(NewCall("t", "{}", "u"), NewCall("t", "[", "")), at=2)]
        )
        await store.apply([ResolveCall(said.calls[0], "done", "r", "text", at=3)])
        await store.apply([AppendMessage(FrameId(1), "assistant", "b", parent=MessageId(1), at=4)])
        await store.apply([SetHead(FrameId(1), MessageId(2))])
        pages.append((await store.history(A), await store.load(FrameId(1))))
    assert pages[0] == pages[1]
