"""Accounts: creating, signing in, changing a password. Every fetch by id happens here, at the data layer."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from sqlcipher3 import dbapi2 as sqlite

from skald_core.errors import BadInput, Conflict, NotFound
from skald_core.identity import crypto
from skald_core.identity.crypto import KdfParams, KeyDeriver
from skald_core.identity.models import User
from skald_core.identity.passwords import check_password
from skald_core.identity.roles import ADMIN
from skald_core.identity.vault import Vault
from skald_core.loop.database import Connection, Database

__all__ = ("Unlocked", "Users")

T = TypeVar("T")

_USERNAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}")
_COLUMNS = "id, username, display_name, role_id, encrypted, active, locale, created_at"
_EDITABLE = frozenset({"display_name", "locale"})


class Unlocked(msgspec.Struct, frozen=True):
    """A user whose password was just proved. ``key`` opens their file; keep it no longer than needed."""

    user: User
    key: bytes | None
    token_version: int


def _user(row: tuple[Any, ...]) -> User:
    return User(
        id=row[0],
        username=row[1],
        display_name=row[2],
        role=row[3],
        encrypted=bool(row[4]),
        active=bool(row[5]),
        locale=row[6],
        created_at=row[7],
    )


class Users:
    """The accounts of this instance, over ``system.db`` and the vault."""

    def __init__(self, database: Database, vault: Vault, deriver: KeyDeriver) -> None:
        self._db = database
        self._vault = vault
        self._kdf = deriver
        self._decoy_salt = crypto.new_salt()
        self._listeners: list[Callable[[], None]] = []

    def on_change(self, listener: Callable[[], None]) -> None:
        """Have ``listener`` called whenever an account changed, before the change's caller goes on."""
        self._listeners.append(listener)

    async def _write(self, fn: Callable[[Connection], T]) -> T:
        """Change accounts. Listeners are told on both sides of the commit: nothing read in between stays remembered."""
        for listener in self._listeners:
            listener()
        try:
            return await self._db.write(fn)
        finally:
            for listener in self._listeners:
                listener()

    async def count(self) -> int:
        return await self._db.read(lambda c: int(c.execute("SELECT count(*) FROM users").fetchone()[0]))

    async def all(self) -> list[User]:
        query = f"SELECT {_COLUMNS} FROM users ORDER BY username"
        return [_user(row) for row in await self._db.read(lambda c: c.execute(query).fetchall())]

    async def get(self, user_id: str) -> User:
        """Raises NotFound."""
        query = f"SELECT {_COLUMNS} FROM users WHERE id=?"
        row = await self._db.read(lambda c: c.execute(query, (user_id,)).fetchone())
        if row is None:
            raise NotFound(f"there is no user {user_id!r}", code="user_not_found")
        return _user(row)

    async def create(
        self,
        *,
        username: str,
        password: str,
        display_name: str = "",
        role: str,
        encrypted: bool = True,
        locale: str = "",
        first: bool = False,
    ) -> Unlocked:
        """Create the account and its database file; on any failure neither remains.

        ``first=True`` succeeds only while there are no users (the set-up race has one winner). Raises BadInput for a bad
        name or weak password, Conflict ``username_taken`` or ``already_set_up``.
        """
        name = username.strip().lower()
        if not _USERNAME.fullmatch(name):
            raise BadInput(
                "A user name has 1 to 32 letters a–z, digits, dots, dashes or underscores and starts with a letter or digit.",
                code="bad_username",
            )
        display = (display_name.strip() or name)[:80]
        check_password(password, name)
        await self._check_free(name, first=first)
        user_id = secrets.token_hex(8)
        salt = crypto.new_salt()
        derived = await self._kdf.derive(password, salt)
        key = crypto.new_data_key() if encrypted else None
        sealed = crypto.seal(key, derived, owner=user_id) if key is not None else None
        now = time.time()
        row = (
            user_id, name, display, role, int(encrypted), msgspec.json.encode(self._kdf.params).decode(), salt, sealed,
            None if encrypted else derived, locale, now, now,
        )  # fmt: skip

        def insert(c: Connection) -> None:
            if first and c.execute("SELECT 1 FROM users LIMIT 1").fetchone():
                raise _already_set_up()
            try:
                c.execute(
                    "INSERT INTO users(id,username,display_name,role_id,encrypted,kdf,salt,sealed_key,password_hash,locale,"
                    "created_at,updated_at) VALUES(?,?,?,?,?,?,?,?,?,?,?,?)",
                    row,
                )
            except sqlite.IntegrityError:
                raise _taken(name) from None

        try:
            await self._vault.unlock(user_id, key)
            await self._write(insert)
        except BaseException:
            await self._vault.delete_file(user_id)
            raise
        return Unlocked(await self.get(user_id), key, 1)

    async def _check_free(self, name: str, *, first: bool) -> None:
        def check(c: Connection) -> None:
            if first and c.execute("SELECT 1 FROM users LIMIT 1").fetchone():
                raise _already_set_up()
            if c.execute("SELECT 1 FROM users WHERE username=?", (name,)).fetchone():
                raise _taken(name)

        await self._db.read(check)

    async def verify(self, username: str, password: str) -> Unlocked | None:
        """Prove a password. None for an unknown name, a wrong password or an inactive account, after equal work."""
        query = "SELECT id, kdf, salt, sealed_key, password_hash, active, token_version FROM users WHERE username=?"
        row = await self._db.read(lambda c: c.execute(query, (username.strip().lower(),)).fetchone())
        if row is None:
            await self._kdf.derive(password, self._decoy_salt)
            return None
        user_id, kdf, salt, sealed, stored, active, token_version = row
        derived = await self._kdf.derive(password, salt, msgspec.json.decode(kdf, type=KdfParams))
        key: bytes | None = None
        if sealed is not None:
            key = crypto.unseal(sealed, derived, owner=user_id)
            proved = key is not None
        else:
            proved = stored is not None and crypto.constant_time_equal(stored, derived)
        if not proved or not active:
            return None
        return Unlocked(await self.get(user_id), key, token_version)

    async def change_password(self, user_id: str, old: str, new: str) -> int:
        """Re-seal the same data key under a new password; returns the new token version, which ends every other session.

        Raises BadInput ``wrong_password`` or for a weak new one.
        """
        user = await self.get(user_id)
        proved = await self.verify(user.username, old)
        if proved is None:
            raise BadInput("The current password is not right.", code="wrong_password")
        check_password(new, user.username)
        salt = crypto.new_salt()
        derived = await self._kdf.derive(new, salt)
        sealed = crypto.seal(proved.key, derived, owner=user_id) if proved.key is not None else None
        values = (
            msgspec.json.encode(self._kdf.params).decode(), salt, sealed, None if sealed else derived, time.time(), user_id,
        )  # fmt: skip

        def update(c: Connection) -> int:
            c.execute(
                "UPDATE users SET kdf=?, salt=?, sealed_key=?, password_hash=?, updated_at=?, token_version=token_version+1 "
                "WHERE id=?",
                values,
            )
            c.execute("DELETE FROM login_sessions WHERE user_id=?", (user_id,))
            return int(c.execute("SELECT token_version FROM users WHERE id=?", (user_id,)).fetchone()[0])

        return await self._write(update)

    async def reset_password(self, user_id: str, new: str) -> None:
        """Give an unencrypted user a new password and end their sessions.

        Raises Conflict ``encrypted`` for an encrypted user: only their own password opens their data.
        """
        user = await self.get(user_id)
        if user.encrypted:
            raise Conflict(
                f"{user.username!r} has encrypted data, which only their own password opens; it cannot be reset.",
                code="encrypted",
                name=user.username,
            )
        check_password(new, user.username)
        salt = crypto.new_salt()
        derived = await self._kdf.derive(new, salt)
        values = (msgspec.json.encode(self._kdf.params).decode(), salt, derived, time.time(), user_id)

        def update(c: Connection) -> None:
            c.execute(
                "UPDATE users SET kdf=?, salt=?, password_hash=?, updated_at=?, token_version=token_version+1 WHERE id=?",
                values,
            )
            c.execute("DELETE FROM login_sessions WHERE user_id=?", (user_id,))

        await self._write(update)

    async def change(
        self, user_id: str, *, display_name: str | None = None, role: str | None = None, active: bool | None = None
    ) -> User:
        """Change what is given. A suspended account is out on its next request, for good: its sessions do not come back
        with it.

        Raises NotFound, BadInput ``bad_display_name``, and Conflict ``last_admin`` when no active administrator would be left.
        """
        await self.get(user_id)
        sets: dict[str, object] = {}
        if display_name is not None:
            sets["display_name"] = _display_name(display_name)
        if role is not None:
            sets["role_id"] = role
        if active is not None:
            sets["active"] = int(active)

        def update(c: Connection) -> None:
            if not sets:
                return
            columns = ", ".join(f"{column}=?" for column in sets)
            had = _active_admins(c)
            c.execute(f"UPDATE users SET {columns}, updated_at=? WHERE id=?", (*sets.values(), time.time(), user_id))
            if had and not _active_admins(c):
                raise Conflict(
                    "This is the last administrator who can sign in; make another one first.", code="last_admin"
                )
            if active is False:
                c.execute("UPDATE users SET token_version=token_version+1 WHERE id=?", (user_id,))
                c.execute("DELETE FROM login_sessions WHERE user_id=?", (user_id,))

        await self._write(update)
        return await self.get(user_id)

    async def remove(self, user_id: str) -> None:
        """Delete the account's row and, in every registry table that refers to it, what belongs to it: also in tables whose
        plugin is not there any more."""

        def delete(c: Connection) -> None:
            tables = [str(row[0]) for row in c.execute("SELECT name FROM sqlite_master WHERE type='table'")]
            for table in tables:
                quoted = '"' + table.replace('"', '""') + '"'
                for key in c.execute(f"PRAGMA foreign_key_list({quoted})").fetchall():
                    # (id, seq, table, from, to, on_update, on_delete, match): what cascades goes by itself.
                    if key[2] == "users" and key[6] in ("NO ACTION", "RESTRICT"):
                        column = '"' + str(key[3]).replace('"', '""') + '"'
                        c.execute(f"DELETE FROM {quoted} WHERE {column}=?", (user_id,))
            c.execute("DELETE FROM users WHERE id=?", (user_id,))

        await self._write(delete)

    async def update(self, user_id: str, **changes: str) -> User:
        """Change ``display_name`` or ``locale``."""
        unknown = set(changes) - _EDITABLE
        if unknown:
            raise BadInput(f"a profile has no field {sorted(unknown)[0]!r}")
        if "display_name" in changes:
            _display_name(changes["display_name"])
        sets = ", ".join(f"{k}=?" for k in changes)
        if sets:
            values = (*(v.strip() for v in changes.values()), time.time(), user_id)
            await self._write(lambda c: c.execute(f"UPDATE users SET {sets}, updated_at=? WHERE id=?", values))
        return await self.get(user_id)


def _display_name(text: str) -> str:
    name = text.strip()
    if not 1 <= len(name) <= 80:
        raise BadInput("A display name has 1 to 80 characters.", code="bad_display_name")
    return name


def _active_admins(c: Connection) -> int:
    return int(c.execute("SELECT count(*) FROM users WHERE role_id=? AND active=1", (ADMIN,)).fetchone()[0])


def _already_set_up() -> Conflict:
    return Conflict("This instance has been set up already; sign in instead.", code="already_set_up")


def _taken(name: str) -> Conflict:
    return Conflict(f"The user name {name!r} is taken; choose another.", code="username_taken", name=name)
