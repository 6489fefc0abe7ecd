"""Conversation rows of one owner: title, pin, unread mark, chosen model. What was said lives in the loop's store."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import msgspec

from skald_core.errors import BadInput, NotFound
from skald_core.loop.database import Connection, Database

__all__ = ("Conversation", "ConversationPage", "Conversations", "LastTurn", "TurnError", "title_from")

TITLE_LENGTH = 120


class TurnError(msgspec.Struct, frozen=True):
    """Why a turn did not end well, as clients get it."""

    kind: str
    message: str
    detail: str = ""
    retryable: bool = False


class LastTurn(msgspec.Struct, frozen=True):
    """How the latest turn ended, kept so that a reload still offers Retry."""

    outcome: str
    error: TurnError | None = None


class Conversation(msgspec.Struct, frozen=True):
    """A conversation's own row; times are seconds since the epoch. An empty ``agent`` is the assistant."""

    id: str
    title: str
    created_at: float
    updated_at: float
    unread: bool
    pinned: bool
    model: str | None
    source: str
    last_turn: LastTurn | None = None
    agent: str = ""


class ConversationPage(msgspec.Struct, frozen=True):
    items: list[Conversation]
    next: str | None


_COLUMNS = "id, title, created_at, updated_at, unread, pinned, model_pin, source, last_turn, agent"


def _conversation(row: tuple[Any, ...]) -> Conversation:
    last = msgspec.json.decode(row[8], type=LastTurn) if row[8] else None
    return Conversation(row[0], row[1], row[2], row[3], bool(row[4]), bool(row[5]), row[6], row[7], last, row[9])


def title_from(text: str) -> str:
    """A title made of a first message: its first line, cut at a word."""
    line = " ".join(text.strip().partition("\n")[0].split())
    if len(line) <= 60:
        return line
    return line[:60].rsplit(" ", 1)[0].rstrip(",.;:") + "…"


class Conversations:
    """Reads and writes the rows of one owner's database; the database is the owner, so no id of another can be reached.

    Rows that were read stay in memory: every write goes through here, so they are never stale.
    """

    def __init__(self, database: Database, *, now: Callable[[], float]) -> None:
        self._db = database
        self._now = now
        self._rows: dict[str, Conversation] = {}

    def _keep(self, row: tuple[Any, ...]) -> Conversation:
        conversation = self._rows[row[0]] = _conversation(row)
        return conversation

    async def create(
        self,
        *,
        client_id: str | None = None,
        title: str = "",
        model: str | None = None,
        source: str = "web",
        agent: str = "",
    ) -> Conversation:
        """A new row; the same ``client_id`` gives the same one."""
        now = self._now()
        conversation_id = secrets.token_hex(10)  # no dash at its beginning: people give it on command lines

        def work(c: Connection) -> Any:
            c.execute(
                "INSERT INTO conversations(id,client_id,title,source,model_pin,agent,created_at,updated_at) "
                "VALUES(?,?,?,?,?,?,?,?) "
                "ON CONFLICT(client_id) DO NOTHING",
                (conversation_id, client_id, title.strip()[:TITLE_LENGTH], source, model, agent, now, now),
            )
            where, value = ("client_id=?", client_id) if client_id is not None else ("id=?", conversation_id)
            return c.execute(f"SELECT {_COLUMNS} FROM conversations WHERE {where}", (value,)).fetchone()

        return self._keep(await self._db.write(work))

    async def get(self, conversation_id: str) -> Conversation:
        """Raises NotFound."""
        known = self._rows.get(conversation_id)
        if known is not None:
            return known
        query = f"SELECT {_COLUMNS} FROM conversations WHERE id=?"
        row = await self._db.read(lambda c: c.execute(query, (conversation_id,)).fetchone())
        if row is None:
            raise NotFound("This conversation does not exist (any more).", code="conversation_not_found")
        return self._keep(row)

    async def page(self, *, before: str | None = None, limit: int = 50, q: str = "") -> ConversationPage:
        """Pinned ones first, then newest first. ``before`` is the cursor of the last page; ``q`` filters titles."""
        where, values = ["1"], []
        if before is not None:
            try:
                pinned, stamp, last = before.split("~", 2)
                values += [int(pinned), float(stamp), last]
            except ValueError:
                raise BadInput("this is no cursor of a conversation list", code="bad_cursor") from None
            where.append("(pinned, updated_at, id) < (?, ?, ?)")
        if q.strip():
            escaped = q.strip().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
            where.append("title LIKE ? ESCAPE '\\'")
            values.append(f"%{escaped}%")
        limit = max(1, min(limit, 200))
        query = (
            f"SELECT {_COLUMNS} FROM conversations WHERE {' AND '.join(where)} "
            "ORDER BY pinned DESC, updated_at DESC, id DESC LIMIT ?"
        )
        rows = await self._db.read(lambda c: c.execute(query, (*values, limit + 1)).fetchall())
        items = [_conversation(row) for row in rows[:limit]]
        if len(rows) <= limit:
            return ConversationPage(items, None)
        last_row = items[-1]
        return ConversationPage(items, f"{int(last_row.pinned)}~{last_row.updated_at!r}~{last_row.id}")

    async def change(
        self,
        conversation_id: str,
        *,
        title: str | None = None,
        pinned: bool | None = None,
        unread: bool | None = None,
        model: str | msgspec.UnsetType | None = msgspec.UNSET,
        agent: str | None = None,
    ) -> Conversation:
        """Change what is given. Raises NotFound."""
        await self.get(conversation_id)
        changes: dict[str, Any] = {}
        if title is not None:
            changes["title"] = " ".join(title.split())[:TITLE_LENGTH]
        if pinned is not None:
            changes["pinned"] = int(pinned)
        if unread is not None:
            changes["unread"] = int(unread)
        if model is not msgspec.UNSET:
            changes["model_pin"] = model
        if agent is not None:
            changes["agent"] = agent
        await self._update(conversation_id, changes)
        return await self.get(conversation_id)

    async def _update(self, conversation_id: str, changes: dict[str, Any]) -> None:
        """Write the columns and remember the row; an unknown conversation is ignored, it was deleted meanwhile."""
        if not changes:
            return
        sets = ", ".join(f"{k}=?" for k in changes)
        query = f"UPDATE conversations SET {sets} WHERE id=? RETURNING {_COLUMNS}"
        row = await self._db.write(lambda c: c.execute(query, (*changes.values(), conversation_id)).fetchone())
        if row is not None:
            self._keep(row)

    async def began(self, conversation_id: str) -> None:
        """A turn begins: forget how the last one ended."""
        known = self._rows.get(conversation_id)
        if known is None or known.last_turn is not None:
            await self._update(conversation_id, {"last_turn": ""})

    async def ended(self, conversation_id: str, last: LastTurn | None, *, unread: bool) -> None:
        """A turn ended; ``last`` is None when it ended well."""
        text = "" if last is None else msgspec.json.encode(last).decode()
        changes: dict[str, Any] = {"last_turn": text, "updated_at": self._now()}
        if unread:
            changes["unread"] = 1
        await self._update(conversation_id, changes)

    async def name_if_untitled(self, conversation_id: str, text: str) -> None:
        if not (await self.get(conversation_id)).title:
            await self._update(conversation_id, {"title": title_from(text)})

    async def delete(self, conversation_id: str) -> None:
        """Remove the row and its requests."""
        await self._db.write(lambda c: c.execute("DELETE FROM conversations WHERE id=?", (conversation_id,)))
        self._rows.pop(conversation_id, None)
