"""The routes, below /api/plugin/reading-list/."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, delete, get, post
from litestar.exceptions import HTTPException
from litestar.params import FromPath, JSONBody

from skald_core import api as skald
from skald_plugin_reading_list.store import Item, Items, Pick, Picks
from skald_plugin_reading_list.tools import check_address

AnyRequest = Request[Any, Any, Any]
SHARE = {"capability": "reading-list.share"}


class NewItem(msgspec.Struct, forbid_unknown_fields=True):
    url: str
    title: str = ""


def handlers(ctx: skald.PluginContext) -> list[Any]:
    def gone(user: skald.User) -> HTTPException:
        return HTTPException(status_code=404, detail=ctx.t("error.gone", user.locale))

    @get("/items")
    async def list_items(request: AnyRequest) -> list[Item]:
        return await Items(ctx, ctx.caller(request)).all()

    @post("/items")
    async def add_item(request: AnyRequest, data: JSONBody[NewItem]) -> Item:
        user = ctx.caller(request)
        try:
            url = check_address(data.url)
        except skald.ToolError:
            raise HTTPException(status_code=422, detail=ctx.t("error.address", user.locale)) from None
        item = await Items(ctx, user).save(url, data.title.strip()[:200] or url)
        ctx.publish("changed", {}, user)
        return item

    @post("/items/{item_id:str}/read", status_code=204)
    async def read_item(request: AnyRequest, item_id: FromPath[str]) -> None:
        user = ctx.caller(request)
        if not await Items(ctx, user).done(item_id):
            raise gone(user)
        ctx.publish("changed", {}, user)

    @delete("/items/{item_id:str}")
    async def remove_item(request: AnyRequest, item_id: FromPath[str]) -> None:
        user = ctx.caller(request)
        if not await Items(ctx, user).remove(item_id):
            raise gone(user)
        ctx.publish("changed", {}, user)

    @get("/picks")
    async def list_picks() -> list[Pick]:
        return await Picks(ctx).all()

    @post("/items/{item_id:str}/share", status_code=204, opt=SHARE)
    async def share_item(request: AnyRequest, item_id: FromPath[str]) -> None:
        user = ctx.caller(request)
        item = await Items(ctx, user).find(item_id)
        if item is None:
            raise gone(user)
        await Picks(ctx).share(user, item)
        ctx.publish("changed", {})

    return [list_items, add_item, read_item, remove_item, list_picks, share_item]
