"""Removing what a plugin stored, without its code: tables, rows, values, secrets and files; from every owner's database too.

What a plugin created is known from ``plugin_tables``. Kernel tables keep rows *of* a plugin in a column ``plugin_id``. The
database of an encrypted owner who has not signed in cannot be opened: ``plugin_purges`` in ``system.db`` remembers the
purge, and ``plugin_purged`` in the owner's file that it was done there.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from skald_core.errors import NotFound
from skald_core.loop.database import Connection, Database

__all__ = (
    "PluginData",
    "TableData",
    "apply_purges",
    "measure",
    "plugin_folder",
    "purge_registry",
    "remains",
    "remove_files",
)

Bucket = Literal["registry", "owner"]
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")  # as in a manifest
_KEEP = frozenset({"plugin_purges", "plugin_purged", "plugin_jobs"})


class TableData(msgspec.Struct, frozen=True):
    """``rows`` is None while some owner's database is locked."""

    bucket: Bucket
    name: str
    rows: int | None


class PluginData(msgspec.Struct, frozen=True):
    """What a plugin has stored; ``files`` in bytes."""

    tables: list[TableData] = []
    values: int = 0
    secrets: int = 0
    files: int = 0

    @property
    def empty(self) -> bool:
        return not (self.tables or self.values or self.secrets or self.files)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _names(c: Connection) -> dict[str, tuple[str, str]]:
    """Objects of the file by name: kind and SQL."""
    return {row[0]: (row[1], row[2] or "") for row in c.execute("SELECT name, type, sql FROM sqlite_master")}


def _kernel_tables(c: Connection) -> list[str]:
    """Tables of the kernel that keep rows of plugins."""
    query = (
        "SELECT m.name FROM sqlite_master m JOIN pragma_table_info(m.name) i ON i.name='plugin_id' "
        "WHERE m.type='table' AND m.name LIKE 'plugin\\_%' ESCAPE '\\'"
    )
    return [row[0] for row in c.execute(query) if row[0] not in _KEEP]


def declared_names(c: Connection, plugin_id: str, bucket: Bucket) -> list[str]:
    """What the plugin created in a bucket, from the registry's records."""
    query = "SELECT name FROM plugin_tables WHERE plugin_id=? AND bucket=? ORDER BY name"
    return [row[0] for row in c.execute(query, (plugin_id, bucket))]


def _counted(c: Connection, names: Iterable[str]) -> dict[str, int]:
    there = _names(c)
    return {
        name: int(c.execute(f"SELECT count(*) FROM {_quoted(name)}").fetchone()[0])
        for name in names
        if there.get(name, ("", ""))[0] == "table"
    }


def _rows_of(c: Connection, plugin_id: str) -> tuple[int, int]:
    """Rows of the plugin in the kernel's tables of this file: values, and secrets."""
    values = secrets = 0
    for table in _kernel_tables(c):
        if table in {"plugin_tables", "plugin_capabilities", "plugin_access"}:
            continue
        count = int(c.execute(f"SELECT count(*) FROM {_quoted(table)} WHERE plugin_id=?", (plugin_id,)).fetchone()[0])
        if table.endswith("_secrets"):
            secrets += count
        else:
            values += count
    return values, secrets


async def measure(
    system: Database, plugin_id: str, folder: Path, owners: Sequence[Database], *, locked: bool
) -> PluginData:
    """What :func:`purge` would remove. ``owners`` are the open databases; ``locked`` says that there are others."""

    def registry(c: Connection) -> tuple[dict[str, int], list[str], tuple[int, int]]:
        names = declared_names(c, plugin_id, "registry")
        return _counted(c, names), declared_names(c, plugin_id, "owner"), _rows_of(c, plugin_id)

    tables, owner_names, (values, secrets) = await system.read(registry)

    def owner(c: Connection) -> tuple[dict[str, int], tuple[int, int]]:
        return _counted(c, owner_names), _rows_of(c, plugin_id)

    totals: dict[str, int] = {}
    for database in owners:
        counted, (more, hidden) = await database.read(owner)
        values, secrets = values + more, secrets + hidden
        for name, rows in counted.items():
            totals[name] = totals.get(name, 0) + rows
    owner_tables = [n for n in owner_names if n in totals] if totals else owner_names
    return PluginData(
        tables=[TableData("registry", name, rows) for name, rows in sorted(tables.items())]
        + [TableData("owner", name, None if locked else totals.get(name, 0)) for name in owner_tables],
        values=values,
        secrets=secrets,
        files=folder_bytes(folder),
    )


def plugin_folder(data_dir: Path, plugin_id: str) -> Path:
    """The plugin's own folder of the data directory.

    Raises NotFound for what is no id: a purge removes this folder, so it must not be talked into naming another.
    """
    if not _ID.fullmatch(plugin_id):
        raise NotFound(f"no plugin {plugin_id[:80]!r} is installed", code="plugin_not_found")
    return data_dir / "plugins" / plugin_id


def folder_bytes(folder: Path) -> int:
    """Bytes of the regular files below a folder, links not followed."""
    if not folder.is_dir() or folder.is_symlink():
        return 0
    return sum(p.lstat().st_size for p in folder.rglob("*") if p.is_file() and not p.is_symlink())


def _drop(c: Connection, names: Iterable[str]) -> None:
    """Drop what is still there of ``names``; virtual tables first, since they own others."""
    c.execute("PRAGMA defer_foreign_keys=ON")
    there = _names(c)
    mine = [name for name in names if name in there]
    rank = {"trigger": 0, "view": 1, "table": 3}
    for name in sorted(
        mine, key=lambda n: 2 if there[n][1].upper().startswith("CREATE VIRTUAL") else rank.get(there[n][0], 4)
    ):
        kind = _names(c).get(name, ("", ""))[0]
        if kind in {"trigger", "view", "table", "index"}:
            c.execute(f"DROP {kind.upper()} IF EXISTS {_quoted(name)}")


def purge_registry(c: Connection, plugin_id: str, *, installed: bool) -> None:
    """Everything in ``system.db``, and the note for owners. Run in one transaction."""
    names = declared_names(c, plugin_id, "registry")
    owner_names = set(declared_names(c, plugin_id, "owner"))
    earlier = c.execute("SELECT tables FROM plugin_purges WHERE plugin_id=?", (plugin_id,)).fetchone()
    if earlier is not None:  # an owner may not have signed in since
        owner_names |= set(msgspec.json.decode(earlier[0], type=list[str]))
    _drop(c, names)
    held = c.execute("SELECT capability FROM plugin_capabilities WHERE plugin_id=?", (plugin_id,)).fetchall()
    c.executemany("DELETE FROM role_capabilities WHERE capability=?", held)
    for table in _kernel_tables(c):
        c.execute(f"DELETE FROM {_quoted(table)} WHERE plugin_id=?", (plugin_id,))
    c.execute("DELETE FROM schema_ledger WHERE component=?", (f"plugin:{plugin_id}:registry",))
    if installed:
        c.execute("UPDATE plugins SET enabled=0, error='' WHERE id=?", (plugin_id,))
    else:
        c.execute("DELETE FROM plugins WHERE id=?", (plugin_id,))
    note = msgspec.json.encode(sorted(owner_names)).decode()
    c.execute(
        "INSERT INTO plugin_purges(plugin_id, at, tables) VALUES(?,?,?) "
        "ON CONFLICT(plugin_id) DO UPDATE SET at=excluded.at, tables=excluded.tables",
        (plugin_id, time.time(), note),
    )


async def apply_purges(system: Database, owner: Database) -> int:
    """Do in one owner's file what was purged since it was last open; before any plugin's migrations. Returns how many."""
    noted = await system.read(lambda c: c.execute("SELECT plugin_id, at, tables FROM plugin_purges").fetchall())
    if not noted:
        return 0

    def work(c: Connection) -> int:
        done = dict(c.execute("SELECT plugin_id, at FROM plugin_purged").fetchall())
        due = [row for row in noted if done.get(row[0], 0.0) < row[1]]
        for plugin_id, at, tables in due:
            _drop(c, msgspec.json.decode(tables, type=list[str]))
            for table in _kernel_tables(c):
                c.execute(f"DELETE FROM {_quoted(table)} WHERE plugin_id=?", (plugin_id,))
            c.execute("DELETE FROM schema_ledger WHERE component=?", (f"plugin:{plugin_id}:owner",))
            c.execute(
                "INSERT INTO plugin_purged(plugin_id, at) VALUES(?,?) "
                "ON CONFLICT(plugin_id) DO UPDATE SET at=excluded.at",
                (plugin_id, at),
            )
        return len(due)

    return await owner.write(work)


def remove_files(folder: Path) -> None:
    """Remove the plugin's own folder of the data directory; a link is removed, not followed."""
    if folder.is_symlink():
        folder.unlink()
    elif folder.is_dir():
        shutil.rmtree(folder)


async def remains(system: Database, data_dir: Path, installed: Iterable[str]) -> list[str]:
    """Ids of plugins that are not installed and still have something stored."""
    there = set(installed)

    def read(c: Connection) -> set[str]:
        found = {row[0] for row in c.execute("SELECT plugin_id FROM plugin_tables")}
        for table in _kernel_tables(c):
            found |= {row[0] for row in c.execute(f"SELECT DISTINCT plugin_id FROM {_quoted(table)}")}
        return found

    ids = await system.read(read)
    folder = data_dir / "plugins"
    if folder.is_dir():
        ids |= {p.name for p in folder.iterdir() if _ID.fullmatch(p.name) and folder_bytes(p)}
    return sorted(ids - there)
