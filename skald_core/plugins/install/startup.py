"""What a start of the server has to know of changes that were interrupted, as cheaply as it can: usually there were none."""

from __future__ import annotations

from pathlib import Path

from skald_core.loop.database import Database
from skald_core.plugins.install.environment import work_folder
from skald_core.plugins.install.lockfile import lock_path

__all__ = ("has_lock", "needs_settling", "recover_environment")


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


def has_lock(data_dir: Path) -> bool:
    """Whether ``plugins.lock`` says what should be installed."""
    return lock_path(data_dir).exists()
