"""How often each model was asked."""

from __future__ import annotations

import msgspec

from skald_core import api as skald

SCHEMA = skald.Schema(
    "registry",
    (skald.Migration(1, "CREATE TABLE parley_usage(model TEXT PRIMARY KEY, calls INTEGER NOT NULL)"),),
)


class Used(msgspec.Struct, frozen=True):
    model: str
    calls: int


async def count(ctx: skald.PluginContext, model: str, usage: skald.Usage) -> None:
    query = "INSERT INTO parley_usage VALUES(?, 1) ON CONFLICT(model) DO UPDATE SET calls = calls + 1"
    await ctx.tables.write(lambda c: c.execute(query, (model,)))


async def used(ctx: skald.PluginContext) -> list[Used]:
    query = "SELECT model, calls FROM parley_usage ORDER BY model"
    return [Used(*row) for row in await ctx.tables.read(lambda c: c.execute(query).fetchall())]
