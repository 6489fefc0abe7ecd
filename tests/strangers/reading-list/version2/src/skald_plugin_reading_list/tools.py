"""What the assistant can do with the list."""

from __future__ import annotations

from skald_plugin_reading_list import articles
from skald_plugin_reading_list.store import Item, Items

from skald_core import api as skald


def check_address(url: str) -> str:
    """Raises ToolError."""
    url = url.strip()
    if not url.startswith(("http://", "https://")) or len(url) > 2000:
        raise skald.ToolError(f"{url[:80]!r} is no address of a page; it must begin with http:// or https://")
    return url


def tools(ctx: skald.PluginContext) -> list[skald.Tool]:
    @skald.tool(name="reading_list_save", scope="write", title="plugin.reading-list.tool.save")
    async def save(context: skald.ToolContext, url: str, title: str, text: str = "", note: str = "") -> Item:
        """Save a page to the user's reading list.

        Args:
            url: The address of the page.
            title: What it is about, in a few words.
            note: Why it is worth reading, in a sentence.
            text: Its text, to keep a copy. Leave it out for the address alone.
        """
        user = context.get(skald.User)
        item = await Items(ctx, user).save(check_address(url), title.strip()[:200] or url, context.conversation, note)
        if text:
            await articles.keep(ctx, user, item.title, text)
        ctx.publish("changed", {}, user)
        return item

    @skald.tool(name="reading_list_unread", scope="read", parallel_safe=True, title="plugin.reading-list.tool.unread")
    async def unread(context: skald.ToolContext) -> list[Item]:
        """List what the user has not read yet, newest first."""
        return await Items(ctx, context.get(skald.User)).all(unread=True)

    @skald.tool(name="reading_list_done", scope="write", title="plugin.reading-list.tool.done")
    async def done(context: skald.ToolContext, item: str) -> str:
        """Tick off a page the user has read.

        Args:
            item: The id, as the list of unread pages gives it.
        """
        user = context.get(skald.User)
        if not await Items(ctx, user).done(item):
            raise skald.ToolError(f"there is no page {item!r} on the list")
        ctx.publish("changed", {}, user)
        return "ticked off"

    return [save, unread, done]
