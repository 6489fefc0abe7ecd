"""What was refused, and how much was done at night."""

from __future__ import annotations

import msgspec

from skald_core import api as skald

SCHEMA = skald.Schema(
    "registry",
    (
        skald.Migration(
            1,
            "CREATE TABLE quiet_hours_log(id TEXT PRIMARY KEY, at REAL NOT NULL, tool TEXT NOT NULL, "
            "user_id TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE)",
        ),
    ),
)


class Refusal(msgspec.Struct, frozen=True):
    at: float
    tool: str
    user_id: str


async def refused(ctx: skald.PluginContext, call: skald.GateCall, reason: str) -> None:
    values = (ctx.new_id(), ctx.now(), call.tool.name, call.user.id)
    query = "INSERT INTO quiet_hours_log(id,at,tool,user_id) VALUES(?,?,?,?)"
    await ctx.tables.write(lambda c: c.execute(query, values))


async def recent(ctx: skald.PluginContext) -> list[Refusal]:
    query = "SELECT at, tool, user_id FROM quiet_hours_log ORDER BY at DESC LIMIT 200"
    return [Refusal(*row) for row in await ctx.tables.read(lambda c: c.execute(query).fetchall())]
