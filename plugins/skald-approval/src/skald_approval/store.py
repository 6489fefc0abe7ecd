"""Where rules, bypasses and shown effects are kept."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec

from skald_approval.rules import Facts, Rule, path_matches
from skald_core import api as skald

__all__ = ("Bypass", "Bypasses", "Rules", "Shown", "call_key", "forget_conversation")

SHOWN_SECONDS = 90 * 24 * 3600


class Rules:
    """The instance's rules, in system.db. Read anew for every call: a stricter rule works from the next call on."""

    _COLUMNS = "id, priority, agent, tool, path, action, note"

    def __init__(self, ctx: skald.PluginContext) -> None:
        self._ctx = ctx

    async def load(self) -> list[Rule]:
        """All rules in the order they are tried."""
        query = f"SELECT {self._COLUMNS} FROM approval_rules ORDER BY priority, id"
        rows = await self._ctx.tables.read(lambda c: c.execute(query).fetchall())
        return [Rule(id=r[0], priority=r[1], agent=r[2], tool=r[3], path=r[4], action=r[5], note=r[6]) for r in rows]

    async def save(self, rule: Rule) -> None:
        """Store a new rule, or replace the one with its id."""
        values = (rule.id, rule.priority, rule.agent, rule.tool, rule.path, rule.action, rule.note, self._ctx.now())
        await self._ctx.tables.write(
            lambda c: c.execute(
                f"INSERT INTO approval_rules({self._COLUMNS}, created_at) VALUES(?,?,?,?,?,?,?,?) "
                "ON CONFLICT(id) DO UPDATE SET priority=excluded.priority, agent=excluded.agent, tool=excluded.tool, "
                "path=excluded.path, action=excluded.action, note=excluded.note",
                values,
            )
        )

    async def delete(self, rule_id: str) -> bool:
        """False when there is no such rule."""
        return await self._ctx.tables.write(
            lambda c: bool(c.execute("DELETE FROM approval_rules WHERE id=?", (rule_id,)).rowcount)
        )


class Bypass(msgspec.Struct, frozen=True, kw_only=True):
    """What one person allowed for one conversation: an agent's use of one tool, within ``path`` (empty: any).

    ``expires_at`` None lasts as long as the conversation.
    """

    id: str
    conversation: str
    agent: str
    tool: str
    path: str = ""
    created_at: float
    expires_at: float | None = None


class Bypasses:
    """The bypasses of one user, in that user's own database. LookupError while the user is locked."""

    _COLUMNS = "id, conversation, agent, tool, path, created_at, expires_at"

    def __init__(self, ctx: skald.PluginContext, user: skald.User) -> None:
        self._ctx = ctx
        self._tables = ctx.owner_tables(user)

    async def covers(self, conversation: str, facts: Facts) -> bool:
        """Whether a bypass of this conversation covers the call."""
        return any(
            b.agent == facts.agent and b.tool == facts.tool and (not b.path or path_matches(b.path, facts))
            for b in await self.list(conversation)
        )

    async def list(self, conversation: str = "") -> tuple[Bypass, ...]:
        """Those in force, of one conversation or of all, newest first."""
        query = (
            f"SELECT {self._COLUMNS} FROM approval_bypasses WHERE (?1='' OR conversation=?1) "
            "AND (expires_at IS NULL OR expires_at>?2) ORDER BY created_at DESC, id"
        )
        values = (conversation, self._ctx.now())
        rows = await self._tables.read(lambda c: c.execute(query, values).fetchall())
        return tuple(
            Bypass(id=r[0], conversation=r[1], agent=r[2], tool=r[3], path=r[4], created_at=r[5], expires_at=r[6])
            for r in rows
        )

    async def add(self, *, conversation: str, agent: str, tool: str, path: str, seconds: float | None = None) -> None:
        """Remember a bypass; one for the same thing is renewed."""
        now = self._ctx.now()
        expires = None if seconds is None else now + seconds
        values = (self._ctx.new_id(), conversation, agent, tool, path, now, expires)

        def work(c: Any) -> None:
            c.execute("DELETE FROM approval_bypasses WHERE expires_at<=?", (now,))
            c.execute(
                f"INSERT INTO approval_bypasses({self._COLUMNS}) VALUES(?,?,?,?,?,?,?) "
                "ON CONFLICT(conversation, agent, tool, path) DO UPDATE SET "
                "created_at=excluded.created_at, expires_at=excluded.expires_at",
                values,
            )

        await self._tables.write(work)

    async def delete(self, bypass_id: str) -> bool:
        """False when there is no such bypass."""
        return await self._tables.write(
            lambda c: bool(c.execute("DELETE FROM approval_bypasses WHERE id=?", (bypass_id,)).rowcount)
        )


def call_key(call: skald.GateCall) -> str:
    """Names a call across restarts: its stored id, and what it asks for."""
    asked = json.dumps([call.tool.name, call.raw], sort_keys=True, ensure_ascii=True)
    return f"{int(call.pending.context.call_id)}:{hashlib.sha256(asked.encode()).hexdigest()[:32]}"


class Shown:
    """The effect each open request showed when it was first asked, so that it holds over a restart."""

    def __init__(self, ctx: skald.PluginContext, user: skald.User) -> None:
        self._ctx = ctx
        self._tables = ctx.owner_tables(user)

    async def first(self, conversation: str, key: str, digest: str) -> str:
        """Note ``digest`` for the call unless one was noted before; returns the one that counts."""
        now = self._ctx.now()

        def work(c: Any) -> str:
            c.execute("DELETE FROM approval_shown WHERE shown_at<?", (now - SHOWN_SECONDS,))
            c.execute("INSERT OR IGNORE INTO approval_shown VALUES(?,?,?,?)", (conversation, key, digest, now))
            row = c.execute(
                "SELECT digest FROM approval_shown WHERE conversation=? AND call_key=?", (conversation, key)
            ).fetchone()
            return str(row[0])

        return await self._tables.write(work)

    async def forget(self, conversation: str, key: str) -> None:
        await self._tables.write(
            lambda c: c.execute("DELETE FROM approval_shown WHERE conversation=? AND call_key=?", (conversation, key))
        )


async def forget_conversation(ctx: skald.PluginContext, user: skald.User, conversation: str) -> None:
    """Remove what was allowed and shown in a conversation that is gone."""

    def work(c: Any) -> None:
        for table in ("approval_bypasses", "approval_shown"):
            c.execute(f"DELETE FROM {table} WHERE conversation=?", (conversation,))

    await ctx.owner_tables(user).write(work)
