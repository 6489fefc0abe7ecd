"""Bringing a database file up to date: the ledger of :mod:`skald_core.loop.ledger`, plus the prefix rule for plugins."""

from __future__ import annotations

from collections.abc import Sequence

from skald_core.errors import StartError
from skald_core.loop import ledger
from skald_core.loop.database import Connection, Database
from skald_core.plugins.contributions import Migration

__all__ = ("DatabaseNewer", "SchemaPrefixError", "apply_migrations")


class DatabaseNewer(StartError):
    """The file has a newer schema than this code knows; it was not changed."""

    code = "database_newer"


class SchemaPrefixError(StartError):
    """A plugin's migration created something outside its own prefix; it was rolled back."""

    code = "schema_prefix"


async def apply_migrations(
    database: Database, component: str, migrations: Sequence[Migration | ledger.Migration], *, prefix: str | None = None
) -> int:
    """Apply what ``component`` misses in one transaction; returns how many steps that were.

    Raises DatabaseNewer when the ledger is ahead of ``migrations``, and SchemaPrefixError when a step creates a table, index,
    trigger or view whose name does not start with ``prefix``.
    """
    steps: list[ledger.Migration] = []
    numbers = [step.version for step in migrations if isinstance(step, Migration)]
    if numbers != sorted(numbers) or (numbers and numbers != list(range(1, len(numbers) + 1))):
        raise StartError(f"the schema of {component!r} must number its steps 1, 2, 3 …", code="schema_numbering")
    steps = [step.sql if isinstance(step, Migration) else step for step in migrations]

    def work(c: Connection) -> int:
        before = _names(c) if prefix is not None else set()
        try:
            applied = ledger.migrate(c, component, steps)
        except ledger.SchemaAhead as error:
            raise DatabaseNewer(
                f"{database.path.name!r} was last used by a newer version and was not changed: {error}. "
                "Start the newer version again, or use another data directory."
            ) from None
        if prefix is not None:
            strangers = sorted(n for n in _names(c) - before if not n.startswith((prefix, "sqlite_", "schema_ledger")))
            if strangers:
                raise SchemaPrefixError(
                    f"the schema of {component!r} creates {strangers[0]!r}; its names must start with {prefix!r}"
                )
        return applied

    return await database.write(work)


def _names(c: Connection) -> set[str]:
    return {row[0] for row in c.execute("SELECT name FROM sqlite_master")}
