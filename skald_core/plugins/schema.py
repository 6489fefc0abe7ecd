"""A plugin's own tables: made by its migrations and nobody else's, remembered in the ledger so that they can be counted and
removed without the plugin's code."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal

from sqlcipher3 import dbapi2 as sqlite

from skald_core.db.migrations import DatabaseNewer, SchemaPrefixError
from skald_core.errors import StartError
from skald_core.loop import ledger
from skald_core.loop.database import Connection, Database
from skald_core.plugins.contributions import Migration

__all__ = ("Bucket", "apply_schema", "component", "remember_tables", "table_prefix")

Bucket = Literal["registry", "owner"]

_CHANGES = {
    getattr(sqlite, name): where
    for name, where in (
        # the argument of an authorizer that names the table an action changes; CREATE and DROP of an index, trigger or view
        # name the object itself, which the comparison of names afterwards looks at
        ("SQLITE_INSERT", 0),
        ("SQLITE_UPDATE", 0),
        ("SQLITE_DELETE", 0),
        ("SQLITE_CREATE_TABLE", 0),
        ("SQLITE_DROP_TABLE", 0),
        ("SQLITE_CREATE_VTABLE", 0),
        ("SQLITE_DROP_VTABLE", 0),
        ("SQLITE_CREATE_INDEX", 1),
        ("SQLITE_DROP_INDEX", 1),
        ("SQLITE_CREATE_TRIGGER", 1),
        ("SQLITE_DROP_TRIGGER", 1),
        ("SQLITE_ALTER_TABLE", 1),
    )
    if hasattr(sqlite, name)
}


def table_prefix(plugin_id: str) -> str:
    """What the name of everything a plugin's schema makes starts with."""
    return plugin_id.replace("-", "_") + "_"


def component(plugin_id: str, bucket: str) -> str:
    """A plugin's entry in the ledger of one bucket."""
    return f"plugin:{plugin_id}:{bucket}"


async def apply_schema(
    database: Database,
    plugin_id: str,
    bucket: Bucket,
    migrations: Sequence[Migration],
    *,
    known: Collection[str],
    writer: str,
    give_up: float = 60.0,
) -> tuple[dict[str, str], list[str]]:
    """Apply what is missing in one transaction. Returns the plugin's tables afterwards (name to kind), and problems.

    ``known`` are the tables it is remembered to have, ``writer`` the distribution and version that does this,
    ``give_up`` the seconds it may take.

    Raises DatabaseNewer, saying who wrote it, when the ledger is ahead of ``migrations``; SchemaPrefixError when a step makes
    or changes anything that is not the plugin's own; StartError for steps that are not numbered 1, 2, 3 ….
    """
    name = component(plugin_id, bucket)
    if [step.version for step in migrations] != list(range(1, len(migrations) + 1)):
        raise StartError(f"the schema of {plugin_id!r} must number its steps 1, 2, 3 …", code="schema_numbering")
    steps = [step.sql for step in migrations]
    prefix = table_prefix(plugin_id)

    def work(c: Connection) -> tuple[dict[str, str], list[str]]:
        before = _objects(c)
        applied = _applied(c, name)
        own = {n for n in before if n in known or (applied and not known and n.startswith(prefix))}
        if applied == len(steps):
            return {n: k for n, k in before.items() if n in own}, _edited(c, name, steps)
        refused: list[str] = []

        def authorize(action: int, *named: Any) -> int:
            where = _CHANGES.get(action)
            table = "" if where is None else str(named[where] or "")
            if not table or table.startswith("sqlite_") or table == "schema_ledger" or _is_own(table):
                return int(sqlite.SQLITE_OK)
            refused.append(table)
            return int(sqlite.SQLITE_DENY)

        def _is_own(table: str) -> bool:
            return table.startswith(prefix) and (table in own or table not in before)

        c.set_authorizer(authorize)
        c.set_progress_handler(_deadline(give_up), 100_000)
        try:
            ledger.migrate(c, name, steps, writer)
        except ledger.SchemaAhead as error:
            raise DatabaseNewer(
                f"the data of the plugin {plugin_id!r} are newer than its code and were not changed: {error}"
            ) from None
        except sqlite.DatabaseError:
            if refused:
                raise SchemaPrefixError(
                    f"the schema of {plugin_id!r} touches {refused[0]!r}; what it makes and changes must be its own, with "
                    f"names that start with {prefix!r}"
                ) from None
            raise
        finally:
            c.set_progress_handler(None, 0)
            c.set_authorizer(None)
        after = _objects(c)
        made = {n: k for n, k in after.items() if n not in before}
        strangers = sorted(n for n in made if not n.startswith((prefix, "sqlite_", "schema_ledger")))
        if strangers:
            raise SchemaPrefixError(
                f"the schema of {plugin_id!r} makes {strangers[0]!r}; its names must start with {prefix!r}"
            )
        tables = {n: k for n, k in after.items() if n in own or (n in made and n.startswith(prefix))}
        return tables, _edited(c, name, steps)

    return await database.write(work)


def remember_tables(c: Connection, plugin_id: str, bucket: Bucket, tables: dict[str, str]) -> None:
    """Note in system.db which tables a bucket has: they can be counted and removed without the plugin's code."""
    known = c.execute("SELECT name FROM plugin_tables WHERE plugin_id=? AND bucket=?", (plugin_id, bucket)).fetchall()
    if {row[0] for row in known} == set(tables):
        return
    c.execute("DELETE FROM plugin_tables WHERE plugin_id=? AND bucket=?", (plugin_id, bucket))
    c.executemany(
        "INSERT INTO plugin_tables(plugin_id, bucket, name, kind) VALUES(?,?,?,?)",
        [(plugin_id, bucket, n, kind) for n, kind in tables.items()],
    )


def _deadline(seconds: float) -> Callable[[], bool]:
    """A progress handler that ends a statement at the deadline: the file has one writer, and others are waiting for it."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def _objects(c: Connection) -> dict[str, str]:
    """Names of everything in the schema with their kinds; the shadow tables of a virtual table count as hidden."""
    shadows = {row[1] for row in c.execute("PRAGMA table_list") if row[2] == "shadow"}
    return {
        row[0]: (
            "shadow" if row[0] in shadows else "virtual" if "VIRTUAL TABLE" in (row[2] or "").upper()[:40] else row[1]
        )
        for row in c.execute("SELECT name, type, sql FROM sqlite_master")
    }


def _has_ledger(c: Connection) -> bool:
    return c.execute("SELECT 1 FROM sqlite_master WHERE name='schema_ledger'").fetchone() is not None


def _applied(c: Connection, name: str) -> int:
    if not _has_ledger(c):
        return 0
    return int(
        c.execute("SELECT coalesce(max(version), 0) FROM schema_ledger WHERE component=?", (name,)).fetchone()[0]
    )


def _edited(c: Connection, name: str, steps: Sequence[str]) -> list[str]:
    """A problem for a step that was applied with another text: old and new installations differ then."""
    if not steps:
        return []
    stored = c.execute(
        "SELECT version, checksum FROM schema_ledger WHERE component=? ORDER BY version", (name,)
    ).fetchall()
    changed = [version for version, checksum in stored if checksum != ledger.checksum(steps[version - 1])]
    return [
        f"step {version} of its schema was edited after it was applied; add a new step instead" for version in changed
    ]
