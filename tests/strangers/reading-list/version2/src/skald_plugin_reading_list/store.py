"""The tables: everyone's own list, and the picks for everybody."""

from __future__ import annotations

from typing import Any

import msgspec

from skald_core import api as skald

OWNER = skald.Schema(
    "owner",
    (
        skald.Migration(
            1,
            "CREATE TABLE reading_list_items(id TEXT PRIMARY KEY, url TEXT NOT NULL UNIQUE, title TEXT NOT NULL, "
            "conversation TEXT NOT NULL DEFAULT '', saved_at REAL NOT NULL, read_at REAL)",
        ),
        skald.Migration(2, "ALTER TABLE reading_list_items ADD COLUMN note TEXT NOT NULL DEFAULT ''"),
    ),
)
REGISTRY = skald.Schema(
    "registry",
    (
        skald.Migration(
            1,
            "CREATE TABLE reading_list_picks(url TEXT NOT NULL, title TEXT NOT NULL, shared_at REAL NOT NULL, "
            "user_id TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE, PRIMARY KEY(user_id, url))",
        ),
    ),
)


class Item(msgspec.Struct, frozen=True):
    """A page on somebody's list; ``read_at`` None: not yet."""

    id: str
    url: str
    title: str
    saved_at: float
    read_at: float | None = None
    note: str = ""


class Pick(msgspec.Struct, frozen=True):
    """A page somebody shared."""

    url: str
    title: str
    shared_at: float
    user_id: str


class Items:
    """The list of one user. Raises LookupError while their data is locked."""

    def __init__(self, ctx: skald.PluginContext, user: skald.User) -> None:
        self._ctx = ctx
        self._tables = ctx.owner_tables(user)

    async def all(self, *, unread: bool = False, since: float = 0.0) -> list[Item]:
        """Newest first."""
        where = "saved_at >= ?" + (" AND read_at IS NULL" if unread else "")
        query = f"SELECT id, url, title, saved_at, read_at, note FROM reading_list_items WHERE {where} ORDER BY saved_at DESC"
        rows = await self._tables.read(lambda c: c.execute(query, (since,)).fetchall())
        return [Item(*row) for row in rows]

    async def find(self, item_id: str) -> Item | None:
        return next((item for item in await self.all() if item.id == item_id), None)

    async def save(self, url: str, title: str, conversation: str = "", note: str = "") -> Item:
        """A page that is there already is unread again, under its new title."""
        values = (self._ctx.new_id(), url, title, conversation, note, self._ctx.now())

        def work(c: Any) -> tuple[Any, ...]:
            c.execute(
                "INSERT INTO reading_list_items(id,url,title,conversation,note,saved_at) VALUES(?,?,?,?,?,?) ON CONFLICT(url) "
                "DO UPDATE SET title=excluded.title, note=excluded.note, saved_at=excluded.saved_at, read_at=NULL",
                values,
            )
            query = "SELECT id, url, title, saved_at, read_at, note FROM reading_list_items WHERE url=?"
            row: tuple[Any, ...] = c.execute(query, (url,)).fetchone()
            return row

        return Item(*await self._tables.write(work))

    async def done(self, item_id: str) -> bool:
        """False when there is none."""
        now = self._ctx.now()
        query = "UPDATE reading_list_items SET read_at=? WHERE id=?"
        return await self._tables.write(lambda c: c.execute(query, (now, item_id)).rowcount > 0)

    async def remove(self, item_id: str) -> bool:
        query = "DELETE FROM reading_list_items WHERE id=?"
        return await self._tables.write(lambda c: c.execute(query, (item_id,)).rowcount > 0)

    async def forget_conversation(self, conversation: str) -> None:
        query = "UPDATE reading_list_items SET conversation='' WHERE conversation=?"
        await self._tables.write(lambda c: c.execute(query, (conversation,)))


class Picks:
    """What people shared, newest first."""

    def __init__(self, ctx: skald.PluginContext) -> None:
        self._ctx = ctx

    async def all(self) -> list[Pick]:
        query = "SELECT url, title, shared_at, user_id FROM reading_list_picks ORDER BY shared_at DESC"
        return [Pick(*row) for row in await self._ctx.tables.read(lambda c: c.execute(query).fetchall())]

    async def share(self, user: skald.User, item: Item) -> None:
        values = (item.url, item.title, self._ctx.now(), user.id)
        query = "INSERT OR REPLACE INTO reading_list_picks(url,title,shared_at,user_id) VALUES(?,?,?,?)"
        await self._ctx.tables.write(lambda c: c.execute(query, values))

    async def remove_all(self, user: skald.User) -> None:
        query = "DELETE FROM reading_list_picks WHERE user_id=?"
        await self._ctx.tables.write(lambda c: c.execute(query, (user.id,)))
