"""Applies ordered migrations and remembers each in ``schema_ledger``: component, version, when, checksum, and who wrote it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence

from sqlcipher3 import dbapi2 as sqlite

from skald_core.loop.database import Connection, DatabaseError

__all__ = ("Migration", "SchemaAhead", "checksum", "migrate", "statements")

Migration = str | Callable[[Connection], None]
"""SQL text of one or more statements, or a function that changes the schema through the connection it gets."""

_LEDGER = """CREATE TABLE IF NOT EXISTS schema_ledger(
    component TEXT NOT NULL, version INTEGER NOT NULL, applied_at INTEGER NOT NULL, checksum TEXT NOT NULL,
    written_by TEXT NOT NULL DEFAULT '', PRIMARY KEY (component, version)) WITHOUT ROWID"""


class SchemaAhead(DatabaseError):
    """The file was written by a newer version of this program."""

    kind = "schema_ahead"


def statements(script: str) -> Iterator[str]:
    """The single statements of a script. (``executescript`` would commit the transaction a migration runs in.)"""
    pending = ""
    for piece in script.split(";"):
        pending += piece + ";"
        if sqlite.complete_statement(pending):
            if pending.strip(" \t\r\n;"):
                yield pending.strip()
            pending = ""
    if pending.strip(" \t\r\n;"):
        yield pending.strip()


def checksum(migration: Migration) -> str:
    """What the ledger keeps of a step's text."""
    text = migration if isinstance(migration, str) else f"{migration.__module__}.{migration.__qualname__}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def migrate(connection: Connection, component: str, migrations: Sequence[Migration], writer: str = "") -> int:
    """Apply what ``component`` misses, inside the caller's transaction; returns how many were applied.

    ``writer`` names the program and version that does so, for whoever finds the file too new. Raises SchemaAhead when the
    ledger knows more versions than ``migrations`` has.
    """
    connection.execute(_LEDGER)
    if not any(row[1] == "written_by" for row in connection.execute("PRAGMA table_info(schema_ledger)")):
        connection.execute("ALTER TABLE schema_ledger ADD COLUMN written_by TEXT NOT NULL DEFAULT ''")
    row = connection.execute(
        "SELECT version, written_by FROM schema_ledger WHERE component = ? ORDER BY version DESC LIMIT 1", (component,)
    ).fetchone()
    applied = int(row[0]) if row is not None else 0
    if applied > len(migrations):
        by = f", written by {row[1]}" if row[1] else ""
        raise SchemaAhead(
            f"the data of {component!r} has schema version {applied}{by}; this program knows {len(migrations)}: "
            "start the newer version again, or restore a backup made by this one"
        )
    for version, migration in enumerate(migrations[applied:], applied + 1):
        if isinstance(migration, str):
            for statement in statements(migration):
                connection.execute(statement)
        else:
            migration(connection)
        connection.execute(
            "INSERT INTO schema_ledger(component, version, applied_at, checksum, written_by) VALUES (?, ?, ?, ?, ?)",
            (component, version, int(time.time() * 1000), checksum(migration), writer),
        )
    return len(migrations) - applied
