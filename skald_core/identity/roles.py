"""Roles are rows; capabilities gate every administrative action on the server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from skald_core.identity.models import Role
from skald_core.loop.database import Connection, Database

__all__ = ("ADMIN", "CAPABILITIES", "MEMBER", "Roles")

ADMIN: Final = "admin"
MEMBER: Final = "member"

CAPABILITIES: Final[dict[str, str]] = {
    "users.manage": "create, change and remove accounts",
    "models.manage": "add model providers and choose which models are used",
    "plugin.manage": "enable, disable and configure plugins",
    "approval.manage": "change the rules that decide when a person is asked",
    "instance.manage": "change settings of the whole instance",
}
"""Capabilities the kernel knows. The admin role holds every capability, also those plugins add."""


def seed(c: Connection) -> None:
    """The two roles every instance starts with. Idempotent."""
    for role, label in ((ADMIN, "Administrator"), (MEMBER, "Member")):
        c.execute("INSERT OR IGNORE INTO roles(id,label,created_at) VALUES(?,?,?)", (role, label, time.time()))


class Roles:
    """Reads roles. ``allows`` is the one place that decides whether a role holds a capability.

    ``plugins`` gives the capabilities of the plugins that run now.
    """

    def __init__(self, database: Database, *, plugins: Callable[[], Iterable[str]] = lambda: ()) -> None:
        self._db = database
        self._cache: dict[str, Role] = {}
        self._plugins = plugins

    async def load(self) -> None:
        """Read all roles; call after every change of the tables."""

        def read(c: Connection) -> dict[str, Role]:
            held: dict[str, set[str]] = {}
            for role_id, capability in c.execute("SELECT role_id, capability FROM role_capabilities"):
                held.setdefault(role_id, set()).add(capability)
            rows = c.execute("SELECT id, label FROM roles ORDER BY id").fetchall()
            return {row[0]: Role(row[0], row[1], frozenset(held.get(row[0], ()))) for row in rows}

        self._cache = await self._db.read(read)

    def get(self, role_id: str) -> Role | None:
        return self._cache.get(role_id)

    def all(self) -> list[Role]:
        return list(self._cache.values())

    def allows(self, role_id: str, capability: str) -> bool:
        if role_id == ADMIN:
            return True
        role = self._cache.get(role_id)
        return role is not None and capability in role.capabilities

    def capabilities(self, role_id: str) -> frozenset[str]:
        """What a role holds, for display: of the kernel's capabilities and those of the plugins that run now."""
        known = frozenset(CAPABILITIES) | frozenset(self._plugins())
        if role_id == ADMIN:
            return known
        role = self._cache.get(role_id)
        return role.capabilities & known if role else frozenset()

    async def learn(self, plugin_id: str, defaults: Mapping[str, Sequence[str]]) -> None:
        """Note the capabilities a plugin adds, and give each that is seen for the first time to the roles it names.

        Later starts change nothing: what an admin took from a role stays taken.
        """
        if not defaults:
            return

        def work(c: Connection) -> bool:
            known = {row[0] for row in c.execute("SELECT capability FROM plugin_capabilities")}
            fresh = [name for name in defaults if name not in known]
            for name in fresh:
                c.execute("INSERT INTO plugin_capabilities VALUES(?,?,?)", (name, plugin_id, time.time()))
                c.executemany(
                    "INSERT OR IGNORE INTO role_capabilities(role_id, capability) SELECT id, ? FROM roles WHERE id=?",
                    [(name, role) for role in defaults[name]],
                )
            return bool(fresh)

        if await self._db.write(work):
            await self.load()
