"""How often each model was asked, and how much it said."""

from __future__ import annotations

import msgspec

from skald_core import api as skald

SCHEMA = skald.Schema(
    "registry",
    (
        skald.Migration(1, "CREATE TABLE parley_usage(model TEXT PRIMARY KEY, calls INTEGER NOT NULL)"),
        skald.Migration(2, "ALTER TABLE parley_usage ADD COLUMN tokens INTEGER NOT NULL DEFAULT 0"),
    ),
)


class Used(msgspec.Struct, frozen=True):
    model: str
    calls: int
    tokens: int


async def count(ctx: skald.PluginContext, model: str, usage: skald.Usage) -> None:
    query = (
        "INSERT INTO parley_usage VALUES(?, 1, ?) "
        "ON CONFLICT(model) DO UPDATE SET calls = calls + 1, tokens = tokens + excluded.tokens"
    )
    await ctx.tables.write(lambda c: c.execute(query, (model, usage.output_tokens)))


async def used(ctx: skald.PluginContext) -> list[Used]:
    query = "SELECT model, calls, tokens FROM parley_usage ORDER BY model"
    return [Used(*row) for row in await ctx.tables.read(lambda c: c.execute(query).fetchall())]
