"""Who may use which plugin: a default per plugin, and a word for or against for single users."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from skald_core.loop.database import Connection, Database

__all__ = ("Access", "Change", "Grant")


class Grant(msgspec.Struct, frozen=True):
    """A user's access to one plugin; ``explicit`` is None where the default decides."""

    id: str
    display_name: str
    role: str
    allowed: bool
    explicit: bool | None


class Change(msgspec.Struct, frozen=True):
    """Users who may use a plugin since a change, and users who may not any more."""

    granted: frozenset[str]
    revoked: frozenset[str]


class Access:
    """The grants, kept in memory: asked before every tool call. A change is stored first, then counts at once."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._default: dict[str, bool] = {}
        self._explicit: dict[str, dict[str, bool]] = {}

    async def load(self) -> None:
        def read(c: Connection) -> tuple[list[tuple[str, int]], list[tuple[str, str, int]]]:
            return (
                c.execute("SELECT id, default_on FROM plugins").fetchall(),
                c.execute("SELECT plugin_id, user_id, allowed FROM plugin_access").fetchall(),
            )

        defaults, explicit = await self._db.read(read)
        self._default = {plugin: bool(on) for plugin, on in defaults}
        self._explicit = {}
        for plugin, user, allowed in explicit:
            self._explicit.setdefault(plugin, {})[user] = bool(allowed)

    def allows(self, plugin_id: str, user_id: str) -> bool:
        """Whether the user may use the plugin, running or not."""
        word = self._explicit.get(plugin_id, {}).get(user_id)
        return self._default.get(plugin_id, True) if word is None else word

    def default_on(self, plugin_id: str) -> bool:
        return self._default.get(plugin_id, True)

    async def grants(self, plugin_id: str) -> list[Grant]:
        """Every account's access, by name."""
        explicit = self._explicit.get(plugin_id, {})
        return [
            Grant(user, name, role, self.allows(plugin_id, user), explicit.get(user))
            for user, name, role in await self._users()
        ]

    async def change(
        self, plugin_id: str, *, default_on: bool | None = None, users: Mapping[str, bool | None] | None = None
    ) -> Change:
        """Change the default, single users' words, or both; ``None`` for a user goes back to the default.

        Users that do not exist are passed over: somebody may have just deleted them.
        """
        everyone = [user for user, _, _ in await self._users()]
        before = {user for user in everyone if self.allows(plugin_id, user)}
        words = {user: word for user, word in (users or {}).items() if user in set(everyone)}

        def work(c: Connection) -> None:
            if default_on is not None:
                c.execute("UPDATE plugins SET default_on=? WHERE id=?", (int(default_on), plugin_id))
            c.executemany(
                "DELETE FROM plugin_access WHERE plugin_id=? AND user_id=?", [(plugin_id, user) for user in words]
            )
            c.executemany(
                "INSERT INTO plugin_access(plugin_id, user_id, allowed) VALUES(?,?,?)",
                [(plugin_id, user, int(word)) for user, word in words.items() if word is not None],
            )

        await self._db.write(work)
        if default_on is not None:
            self._default[plugin_id] = default_on
        known = {**self._explicit.get(plugin_id, {}), **words}
        self._explicit[plugin_id] = {user: word for user, word in known.items() if word is not None}
        after = {user for user in everyone if self.allows(plugin_id, user)}
        return Change(frozenset(after - before), frozenset(before - after))

    async def _users(self) -> Iterable[tuple[str, str, str]]:
        query = "SELECT id, display_name, role_id FROM users ORDER BY display_name, id"
        return await self._db.read(lambda c: c.execute(query).fetchall())
