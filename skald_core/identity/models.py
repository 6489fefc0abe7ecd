"""People as the rest of the system may see them. Key material never appears in these structs."""

from __future__ import annotations

import msgspec

__all__ = ("Role", "User", "UserId")

UserId = str


class Role(msgspec.Struct, frozen=True):
    """A row of the roles table with the capabilities it grants. ``admin`` holds every capability."""

    id: str
    label: str
    capabilities: frozenset[str]


class User(msgspec.Struct, frozen=True):
    """A member of this instance. ``id`` is random and stable; ``locale`` is a BCP 47 tag or empty for the default."""

    id: UserId
    username: str
    display_name: str
    role: str
    encrypted: bool
    active: bool = True
    locale: str = ""
    created_at: float = 0.0

    @property
    def is_admin(self) -> bool:
        return self.role == "admin"
