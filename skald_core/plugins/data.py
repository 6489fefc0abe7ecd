"""What a plugin keeps: counted, and on an explicit word removed, without any of its code."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from skald_core.loop.database import Connection, Database
from skald_core.plugins.schema import component

__all__ = ("KeptData", "KeptTable", "kept_data", "kept_plugins", "purge", "purge_owner")

_INSTANCE = ("plugin_values", "plugin_config", "plugin_config_secrets", "plugin_config_aside")
_OWNER = ("plugin_settings", "plugin_settings_secrets", "plugin_settings_aside")


class KeptTable(msgspec.Struct, frozen=True):
    """A table. ``rows`` is None where they cannot be counted: a user's database is locked."""

    bucket: Literal["registry", "owner"]
    name: str
    rows: int | None


class KeptData(msgspec.Struct, frozen=True):
    """Everything a plugin keeps: tables, small values, secrets of the instance, bytes of files."""

    tables: list[KeptTable]
    values: int
    secrets: int
    files: int


def files_dir(data_dir: Path, plugin_id: str) -> Path:
    """The plugin's own folder."""
    return data_dir / "plugins" / plugin_id


async def kept_data(
    system: Database, owners: Sequence[Database], data_dir: Path, plugin_id: str, *, all_open: bool
) -> KeptData:
    """Count what ``plugin_id`` keeps. ``owners`` are the open users' databases, ``all_open`` says whether those are all."""

    def registry(c: Connection) -> tuple[list[tuple[str, str]], dict[str, int], int, int]:
        tables = c.execute(
            "SELECT bucket, name FROM plugin_tables WHERE plugin_id=? AND kind IN ('table', 'virtual') "
            "ORDER BY bucket DESC, name",
            (plugin_id,),
        ).fetchall()
        rows = _counted(c, [name for bucket, name in tables if bucket == "registry"])
        values = c.execute("SELECT count(*) FROM plugin_values WHERE plugin_id=?", (plugin_id,)).fetchone()[0]
        secrets = c.execute("SELECT count(*) FROM plugin_config_secrets WHERE plugin_id=?", (plugin_id,)).fetchone()[0]
        return tables, rows, values, secrets

    tables, rows, values, secrets = await system.read(registry)
    owned = [name for bucket, name in tables if bucket == "owner"]
    totals = dict.fromkeys(owned, 0)
    for database in owners if owned else ():
        for name, count in (await database.read(_counted, owned)).items():
            totals[name] += count
    size = await asyncio.to_thread(_size, files_dir(data_dir, plugin_id))
    return KeptData(
        [
            KeptTable("registry", name, rows.get(name, 0))
            if bucket == "registry"
            else KeptTable("owner", name, totals[name] if all_open else None)
            for bucket, name in tables
        ],
        int(values),
        int(secrets),
        size,
    )


def _counted(c: Connection, names: Sequence[str]) -> dict[str, int]:
    there = {row[0] for row in c.execute("SELECT name FROM sqlite_master")}
    return {n: int(c.execute(f'SELECT count(*) FROM "{n}"').fetchone()[0]) for n in names if n in there}


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else 0


async def kept_plugins(system: Database) -> list[str]:
    """Ids of plugins that keep rows of any kind, installed or not."""
    unions = " UNION ".join(f"SELECT plugin_id FROM {table}" for table in ("plugin_tables", *_INSTANCE))
    rows = await system.read(lambda c: c.execute(f"{unions} ORDER BY 1").fetchall())
    return [row[0] for row in rows]


async def purge(system: Database, owners: Sequence[Database], data_dir: Path, plugin_id: str) -> None:
    """Remove everything ``plugin_id`` keeps. It must not be running.

    Open users' databases are cleaned now; a locked user's is when it is opened next, before anything else uses it.
    """

    def work(c: Connection) -> None:
        tables = c.execute("SELECT bucket, name, kind FROM plugin_tables WHERE plugin_id=?", (plugin_id,)).fetchall()
        owned = {name: kind for bucket, name, kind in tables if bucket == "owner"}
        before = c.execute("SELECT tables FROM plugin_purges WHERE plugin_id=?", (plugin_id,)).fetchone()
        if before is not None:
            owned = {**json.loads(before[0]), **owned}
        c.execute(
            "INSERT INTO plugin_purges(plugin_id, at, tables) VALUES(?,?,?) "
            "ON CONFLICT(plugin_id) DO UPDATE SET at=excluded.at, tables=excluded.tables",
            (plugin_id, time.time(), json.dumps(owned)),
        )
        _drop(c, {name: kind for bucket, name, kind in tables if bucket == "registry"})
        _forget(c, component(plugin_id, "registry"))
        for table in (*_INSTANCE, "plugin_access", "plugin_tables"):
            c.execute(f"DELETE FROM {table} WHERE plugin_id=?", (plugin_id,))
        held = [
            row[0] for row in c.execute("SELECT capability FROM plugin_capabilities WHERE plugin_id=?", (plugin_id,))
        ]
        c.executemany("DELETE FROM role_capabilities WHERE capability=?", [(name,) for name in held])
        c.execute("DELETE FROM plugin_capabilities WHERE plugin_id=?", (plugin_id,))
        c.execute("DELETE FROM plugins WHERE id=?", (plugin_id,))

    await system.write(work)
    for database in owners:
        await purge_owner(system, database)
    await asyncio.to_thread(shutil.rmtree, files_dir(data_dir, plugin_id), ignore_errors=True)


async def purge_owner(system: Database, database: Database) -> None:
    """Remove from one user's database what was purged since it was last open."""
    purges = await system.read(lambda c: c.execute("SELECT plugin_id, at, tables FROM plugin_purges").fetchall())
    if not purges:
        return

    def work(c: Connection) -> None:
        done = dict(c.execute("SELECT plugin_id, at FROM plugin_purged").fetchall())
        for plugin_id, at, tables in purges:
            if done.get(plugin_id, 0.0) >= at:
                continue
            _drop(c, json.loads(tables))
            _forget(c, component(plugin_id, "owner"))
            for table in _OWNER:
                c.execute(f"DELETE FROM {table} WHERE plugin_id=?", (plugin_id,))
            c.execute(
                "INSERT INTO plugin_purged(plugin_id, at) VALUES(?,?) "
                "ON CONFLICT(plugin_id) DO UPDATE SET at=excluded.at",
                (plugin_id, at),
            )

    await database.write(work)


def _drop(c: Connection, objects: dict[str, str]) -> None:
    """Views first, then tables; their indexes, triggers and shadow tables go with them.

    References between them are left to the end of the transaction: what is dropped is dropped together.
    """
    c.execute("PRAGMA defer_foreign_keys=ON")
    for kind, word in (("view", "VIEW"), ("virtual", "TABLE"), ("table", "TABLE")):
        for name, found in objects.items():
            if found == kind:
                c.execute(f'DROP {word} IF EXISTS "{name}"')


def _forget(c: Connection, name: str) -> None:
    if c.execute("SELECT 1 FROM sqlite_master WHERE name='schema_ledger'").fetchone():
        c.execute("DELETE FROM schema_ledger WHERE component=?", (name,))
