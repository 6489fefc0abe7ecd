"""The open databases of owners. An open database *is* the unlock token: dropping it locks the user.

Owner files live at ``database/<user id>.db``. Migrations of every component that has owner tables are applied when a file
is opened; plugins enabled later add theirs to every open file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from skald_core.loop.database import Database

__all__ = ("Vault",)

Migrate = Callable[[Database], Awaitable[None]]


class Vault:
    """``migrate`` brings a freshly opened owner file up to date; it raises when the file is newer than the code."""

    def __init__(self, folder: Path, migrate: Migrate) -> None:
        self._folder = folder
        self._migrate = migrate
        self._open: dict[str, Database] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    def path(self, user_id: str) -> Path:
        return self._folder / f"{user_id}.db"

    def get(self, user_id: str) -> Database | None:
        """The user's open database, or None while locked."""
        return self._open.get(user_id)

    def require(self, user_id: str) -> Database:
        """Raises LookupError while the user is locked."""
        database = self._open.get(user_id)
        if database is None:
            raise LookupError(f"user {user_id!r} is locked: they have not signed in since the server started")
        return database

    def unlocked(self) -> list[tuple[str, Database]]:
        return list(self._open.items())

    async def unlock(self, user_id: str, key: bytes | None) -> Database:
        """Open the user's file (creating it when new). Of two racing unlocks one opens and the other gets the same."""
        async with self._locks.setdefault(user_id, asyncio.Lock()):
            existing = self._open.get(user_id)
            if existing is not None:
                return existing
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            database = await Database.open(self.path(user_id), key=key)
            try:
                self.path(user_id).chmod(0o600)
                await self._migrate(database)
            except BaseException:
                await database.close()
                raise
            self._open[user_id] = database
            return database

    async def lock(self, user_id: str) -> None:
        database = self._open.pop(user_id, None)
        if database is not None:
            await database.close()

    async def close(self) -> None:
        for user_id in list(self._open):
            await self.lock(user_id)

    async def delete_file(self, user_id: str) -> None:
        """Lock, then remove the file and its side files. Irreversible."""
        await self.lock(user_id)
        for suffix in ("", "-wal", "-shm"):
            self.path(user_id).with_name(self.path(user_id).name + suffix).unlink(missing_ok=True)
