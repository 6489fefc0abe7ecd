"""What a start of the server has to know of changes that were interrupted, as cheaply as it can: usually there were none."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from skald_core.errors import SkaldError
from skald_core.loop.database import Database
from skald_core.plugins.install.environment import snapshot, work_folder
from skald_core.plugins.install.lockfile import lock_path, missing, read_lock

__all__ = ("announce_missing", "needs_settling", "recover_environment")

log = logging.getLogger("skald.install")


def recover_environment() -> None:
    """Undo or finish what a dead process left in the environment, waiting for one that is alive. Before plugins are looked up.

    Raises StartError when another process does not end.
    """
    folder = work_folder()
    if not folder.is_dir():
        return
    from skald_core.plugins.install.switch import recover_at_start

    recover_at_start()


async def needs_settling(database: Database) -> bool:
    """Whether a job or plan was running when the last process ended."""
    query = "SELECT 1 FROM plugin_jobs WHERE state='running' LIMIT 1"
    return await database.read(lambda c: c.execute(query).fetchone()) is not None


async def announce_missing(data_dir: Path) -> None:
    """Say in the log what plugins.lock names and the environment lacks, as after the environment was built anew."""
    if not lock_path(data_dir).exists():
        return
    try:
        rows = await asyncio.to_thread(lambda: missing(read_lock(data_dir), snapshot()))
    except SkaldError as error:
        log.warning("%s", error.detail)
        return
    for row in rows:
        log.warning(
            "plugins.lock names %s %s, which is not installed here; restore it on the page Plugins or with "
            "'skald plugin install --from-lock'",
            row.name,
            row.version,
        )
