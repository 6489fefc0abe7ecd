"""Roles are rows; capabilities gate every administrative action on the server."""

from __future__ import annotations

import time
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
    """Reads roles. ``allows`` is the one place that decides whether a role holds a capability."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._cache: dict[str, Role] = {}

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
        """What a role holds, for display; the admin role shows every known capability."""
        if role_id == ADMIN:
            return frozenset(CAPABILITIES)
        role = self._cache.get(role_id)
        return role.capabilities if role else frozenset()
