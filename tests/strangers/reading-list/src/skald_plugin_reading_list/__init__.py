"""Reading list: a Skald plugin. The hooks; what they need is in the modules beside this one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from skald_core import api as skald


@skald.hookimpl
def skald_config() -> type[msgspec.Struct] | skald.Settings:
    from skald_plugin_reading_list.settings import SETTINGS

    return SETTINGS


@skald.hookimpl
def skald_user_config() -> type[msgspec.Struct]:
    from skald_plugin_reading_list.settings import UserConfig

    return UserConfig


@skald.hookimpl
def skald_capabilities() -> Sequence[skald.Capability]:
    return [skald.Capability(id="reading-list.share", title="capability.share", default_roles=("member",))]


@skald.hookimpl
def skald_schema() -> Sequence[skald.Schema]:
    from skald_plugin_reading_list.store import OWNER, REGISTRY

    return [REGISTRY, OWNER]


@skald.hookimpl
def skald_tools(ctx: skald.PluginContext) -> Sequence[skald.Tool]:
    from skald_plugin_reading_list.tools import tools

    return tools(ctx)


@skald.hookimpl
def skald_agents(ctx: skald.PluginContext) -> Sequence[skald.AgentSpec]:
    return ctx.load_agents()


@skald.hookimpl
def skald_commands(ctx: skald.PluginContext) -> Sequence[skald.Command]:
    from skald_plugin_reading_list.store import Items

    async def unread(call: skald.CommandCall) -> str:
        items = await Items(ctx, call.user).all(unread=True)
        if not items:
            raise skald.ToolError(ctx.t("command.nothing", call.user.locale))
        lines = "\n".join(f"- {item.title} <{item.url}>" for item in items)
        return f"{ctx.t('command.prompt', call.user.locale)} {call.words}\n\n{lines}"

    return [skald.Command(name="unread", title="command.unread", hint="command.hint", prompt=unread)]


@skald.hookimpl
def skald_cli() -> Sequence[skald.CliCommand]:
    from skald_plugin_reading_list.cli import COMMANDS

    return COMMANDS


@skald.hookimpl
def skald_health(ctx: skald.PluginContext) -> Sequence[skald.HealthCheck]:
    import asyncio
    import os

    async def writable() -> skald.Health:
        if await asyncio.to_thread(os.access, ctx.data_dir, os.W_OK):
            return skald.Health(True, "health.fine")
        return skald.Health(False, "health.readonly")

    return [skald.HealthCheck(id="folder", title="health.folder", check=writable)]


@skald.hookimpl
def skald_routes(ctx: skald.PluginContext) -> Sequence[Any]:
    from skald_plugin_reading_list.routes import handlers

    return handlers(ctx)


@skald.hookimpl
def skald_web_pages() -> Sequence[skald.WebPage]:
    title = "plugin.reading-list.page.title"
    return [skald.WebPage(page_id="list", title=title, icon="bookmark", entry="web/list.js")]


@skald.hookimpl
def skald_i18n(ctx: skald.PluginContext) -> dict[str, dict[str, str]]:
    return ctx.load_i18n()


@skald.hookimpl
async def skald_mounts(ctx: skald.PluginContext, user: skald.User) -> Sequence[skald.Mount]:
    from skald_plugin_reading_list import articles

    return [skald.Mount("reading-list", await articles.make(ctx, user), writable=False)]


@skald.hookimpl
async def skald_prompt_blocks(ctx: skald.PluginContext, turn: skald.TurnInfo) -> Sequence[skald.PromptBlock]:
    from skald_plugin_reading_list.store import Items

    if turn.depth:
        return []
    at_most = (await ctx.user_config(turn.user)).at_most
    items = await Items(ctx, turn.user).all(unread=True, since=ctx.now() - ctx.config.remind_seconds)
    if not items or not at_most:
        return []
    titles = ", ".join(item.title for item in items[:at_most])
    text = f"On the user's reading list, unread: {len(items)} ({titles})."
    return [skald.PromptBlock(text=text, place="tail")]


# --- life ---------------------------------------------------------------------------------------------------------


@skald.hookimpl
async def skald_startup(ctx: skald.PluginContext) -> None:
    await ctx.kv.set("running", True)


@skald.hookimpl
async def skald_shutdown(ctx: skald.PluginContext) -> None:
    """So that a look at the values tells whether it ended by itself."""
    await ctx.kv.set("running", False)


@skald.hookimpl
async def skald_user_created(ctx: skald.PluginContext, user: skald.User) -> None:
    from skald_plugin_reading_list import articles

    await articles.make(ctx, user)


@skald.hookimpl
async def skald_user_unlocked(ctx: skald.PluginContext, user: skald.User) -> None:
    """A list for those who come from before the plugin was installed is made with the tables; tell open pages to load."""
    ctx.publish("changed", {}, user)


@skald.hookimpl
async def skald_user_locked(ctx: skald.PluginContext, user: skald.User) -> None:
    """The last moment to count: the catalog of picks may say how much somebody reads without opening their data."""
    from skald_plugin_reading_list.store import Items

    await ctx.kv.set(f"unread.{user.id}", len(await Items(ctx, user).all(unread=True)))


@skald.hookimpl
async def skald_user_deactivated(ctx: skald.PluginContext, user: skald.User) -> None:
    """Picks of somebody who has left are nobody's advice any more."""
    from skald_plugin_reading_list.store import Picks

    await Picks(ctx).remove_all(user)
    ctx.publish("changed", {})


@skald.hookimpl
async def skald_user_deleted(ctx: skald.PluginContext, user: skald.User) -> None:
    from skald_plugin_reading_list import articles

    await articles.remove(ctx, user)
    await ctx.kv.delete(f"unread.{user.id}")


@skald.hookimpl
async def skald_conversation_deleted(ctx: skald.PluginContext, user: skald.User, conversation: str) -> None:
    """Pages stay; where they came from is forgotten with the conversation."""
    from skald_plugin_reading_list.store import Items

    await Items(ctx, user).forget_conversation(conversation)
