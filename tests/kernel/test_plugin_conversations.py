"""`ctx.conversation` and `ctx.say`: what channels are made of."""

import asyncio
from typing import Any

import pytest

from skald_core import api as skald
from skald_core.testing import AppFactory, ScriptedProvider, TestApp, hooks_plugin, scripted_plugin


class Channel:
    """A plugin that keeps its context, and the turns that ended."""

    def __init__(self) -> None:
        self.ctx: Any = None
        self.ended: asyncio.Queue[tuple[skald.TurnInfo, skald.TurnEnd]] = asyncio.Queue()

    def plugin(self) -> Any:
        def skald_startup(ctx: skald.PluginContext) -> None:
            self.ctx = ctx

        async def skald_turn_finished(turn: skald.TurnInfo, end: skald.TurnEnd) -> None:
            await self.ended.put((turn, end))

        return hooks_plugin("channel", skald_startup=skald_startup, skald_turn_finished=skald_turn_finished)


async def start(skald_app: AppFactory, provider: ScriptedProvider, channel: Channel) -> TestApp:
    app = await skald_app(channel.plugin(), scripted_plugin(provider))
    await app.add_model()
    return app


async def test_what_is_said_is_answered_where_it_was_said(
    skald_app: AppFactory, skald_provider: ScriptedProvider
) -> None:
    """One conversation for each key; a message of a key is asked once; the answer comes with skald_turn_finished."""
    channel = Channel()
    app = await start(skald_app, skald_provider, channel)
    ada = await app.client()
    user = await app.skald.users.get(ada.user["id"])  # type: ignore[index]  # signed in above
    skald_provider.add("Not today.")
    where = await channel.ctx.conversation(user, "messenger", "From the messenger")
    assert await channel.ctx.conversation(user, "messenger") == where
    assert await channel.ctx.conversation(user, "another") != where
    for _ in range(2):
        await channel.ctx.say(user, "Is it raining?", where, key="7")
    async with asyncio.timeout(20):
        turn, end = await channel.ended.get()
    assert (turn.conversation, turn.user.id, end.outcome, end.text) == (where, user.id, "success", "Not today.")
    items = (await ada.get(f"/api/conversations/{where}/messages"))["items"]
    assert [(m["role"], m["content"]) for m in items] == [("user", "Is it raining?"), ("assistant", "Not today.")]
    titles = {c["title"] for c in (await ada.get("/api/conversations"))["items"]}
    assert "From the messenger" in titles


async def test_a_conversation_that_was_deleted_is_made_anew(
    skald_app: AppFactory, skald_provider: ScriptedProvider
) -> None:
    """Words for the old one are refused, and nothing is brought back to life."""
    channel = Channel()
    app = await start(skald_app, skald_provider, channel)
    ada = await app.client()
    user = await app.skald.users.get(ada.user["id"])  # type: ignore[index]  # signed in above
    where = await channel.ctx.conversation(user, "messenger")
    await ada.delete(f"/api/conversations/{where}")
    with pytest.raises(LookupError, match="does not exist"):
        await channel.ctx.say(user, "Hello?", where)
    assert await channel.ctx.conversation(user, "messenger") != where


async def test_nobody_speaks_for_those_who_cannot(skald_app: AppFactory, skald_provider: ScriptedProvider) -> None:
    """Locked data, a switched-off account, a plugin that was taken away: each is a LookupError, and an empty text a ToolError."""
    channel = Channel()
    app = await start(skald_app, skald_provider, channel)
    ada = await app.client("ada")
    bob = await app.client("bob", role="member")
    user = await app.skald.users.get(bob.user["id"])  # type: ignore[index]  # signed in above
    where = await channel.ctx.conversation(user, "messenger")
    with pytest.raises(skald.ToolError, match="empty"):
        await channel.ctx.say(user, "  ", where)
    await ada.put("/api/plugins/channel/access", {"users": {user.id: False}})
    with pytest.raises(LookupError, match="may not use"):
        await channel.ctx.say(user, "Hello?", where)
    await ada.put("/api/plugins/channel/access", {"users": {user.id: True}})
    await ada.patch(f"/api/users/{user.id}", {"active": False})
    with pytest.raises(LookupError, match="switched off"):
        await channel.ctx.say(user, "Hello?", where)
    await app.client("eve", encrypted=True)
    app = await start(skald_app, skald_provider, channel)  # a restart locks what is encrypted
    eve = next(u for u in await app.skald.users.all() if u.username == "eve")
    with pytest.raises(LookupError, match="locked"):
        await channel.ctx.conversation(eve, "messenger")
