"""Login sessions: a random token in a cookie, its SHA-256 in ``system.db``.

A session is valid while its row exists, the user is active and the row's token version is the user's current one. What was
found is remembered until an account or session changes: this process is the only writer of the file, and every change goes
through ``Users`` or this class, which forget first. So a suspension or password change works on the next request.
"""

from __future__ import annotations

import hashlib
import secrets
import time

from skald_core.identity.models import User
from skald_core.identity.users import _COLUMNS, Users, _user
from skald_core.loop.database import Connection, Database

__all__ = ("LIFETIME", "LoginSessions", "token_hash")

LIFETIME = 30 * 24 * 3600.0
"""Seconds a sign-in lasts."""


def token_hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


class LoginSessions:
    """Issues and checks tokens."""

    def __init__(self, database: Database, users: Users) -> None:
        self._db = database
        self._known: dict[bytes, tuple[User, float]] = {}
        users.on_change(self._known.clear)

    async def issue(self, user: User, token_version: int, client: str = "") -> str:
        token = secrets.token_urlsafe(32)
        now = time.time()
        row = (token_hash(token), user.id, token_version, now, now + LIFETIME, client[:120])

        def insert(c: Connection) -> None:
            c.execute("DELETE FROM login_sessions WHERE expires_at < ?", (now,))
            c.execute("INSERT INTO login_sessions VALUES(?,?,?,?,?,?)", row)

        await self._db.write(insert)
        return token

    async def check(self, token: str) -> User | None:
        """The active user this token belongs to, or None."""
        digest = token_hash(token)
        known = self._known.get(digest)
        if known is not None and known[1] > time.time():
            return known[0]
        columns = ", ".join(f"u.{name.strip()}" for name in _COLUMNS.split(","))
        query = (
            f"SELECT {columns}, s.expires_at FROM login_sessions s JOIN users u ON u.id = s.user_id "
            "WHERE s.token_hash=? AND s.expires_at>? AND u.active=1 AND s.token_version=u.token_version"
        )
        row = await self._db.read(lambda c: c.execute(query, (digest, time.time())).fetchone())
        if row is None:
            return None
        if len(self._known) > 1000:
            self._known.clear()
        user = _user(row)
        self._known[digest] = (user, row[-1])
        return user

    async def end(self, token: str) -> None:
        digest = token_hash(token)
        self._known.pop(digest, None)
        await self._db.write(lambda c: c.execute("DELETE FROM login_sessions WHERE token_hash=?", (digest,)))
