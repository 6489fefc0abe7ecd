"""A plugin of the isolation program: it keeps something of everybody in every place the platform gives a plugin.

Notes in each user's own database, settings and secrets of the instance and of users, a tool that asks and one that breaks,
events, a page, and one route that needs a capability of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from litestar import Request, delete, get, post
from litestar.exceptions import HTTPException
from litestar.params import FromPath, JSONBody

from skald_core import api as skald

AnyRequest = Request[Any, Any, Any]


class Config(msgspec.Struct, frozen=True):
    """What the administrator sets."""

    place: Annotated[str, skald.setting("Place")] = ""
    token: Annotated[skald.Secret, skald.setting("Token")] = skald.Secret()


class UserConfig(msgspec.Struct, frozen=True):
    """What everyone sets for themselves."""

    motto: Annotated[str, skald.setting("Motto")] = ""
    pin: Annotated[skald.Secret, skald.setting("PIN")] = skald.Secret()


class Note(msgspec.Struct, frozen=True):
    """A note of its owner's."""

    id: str
    text: str


class NewNote(msgspec.Struct, forbid_unknown_fields=True):
    """A note as it is sent."""

    text: Annotated[str, msgspec.Meta(max_length=1000)]


class Notes:
    """The notes of one user."""

    def __init__(self, ctx: skald.PluginContext, user: skald.User) -> None:
        self._ctx = ctx
        self._tables = ctx.owner_tables(user)

    async def all(self) -> list[Note]:
        """Every note."""
        rows = await self._tables.read(lambda c: c.execute("SELECT id, text FROM keeper_notes").fetchall())
        return [Note(*row) for row in rows]

    async def add(self, text: str) -> Note:
        """Keep one more."""
        note = Note(self._ctx.new_id(), text)
        await self._tables.write(lambda c: c.execute("INSERT INTO keeper_notes VALUES(?,?)", (note.id, note.text)))
        return note

    async def remove(self, note_id: str) -> bool:
        """Whether there was one."""
        query = "DELETE FROM keeper_notes WHERE id=?"
        return await self._tables.write(lambda c: bool(c.execute(query, (note_id,)).rowcount))


@skald.hookimpl
def skald_config() -> type[msgspec.Struct]:
    return Config


@skald.hookimpl
def skald_user_config() -> type[msgspec.Struct]:
    return UserConfig


@skald.hookimpl
def skald_capabilities() -> Sequence[skald.Capability]:
    return [skald.Capability(id="keeper.count", title="Count what is kept")]


@skald.hookimpl
def skald_schema() -> Sequence[skald.Schema]:
    step = skald.Migration(1, "CREATE TABLE keeper_notes(id TEXT PRIMARY KEY, text TEXT NOT NULL)")
    return [skald.Schema("owner", (step,))]


@skald.hookimpl
def skald_web_pages() -> Sequence[skald.WebPage]:
    return [skald.WebPage(page_id="notes", title="Notes", entry="web/notes.js")]


@skald.hookimpl
def skald_tools(ctx: skald.PluginContext) -> Sequence[skald.Tool]:
    @skald.tool(name="keeper_keep", scope="write")
    async def keep(context: skald.ToolContext, text: str) -> str:
        """Keep a note.

        Args:
            text: What to keep.
        """
        await Notes(ctx, context.get(skald.User)).add(text)
        return "kept"

    @skald.tool(name="keeper_break", scope="read")
    async def broken(text: str) -> str:
        """Fail in a way nobody thought of.

        Args:
            text: What the failure tells.
        """
        raise RuntimeError(f"cannot work with {text}")

    return [keep, broken]


@skald.hookimpl
def skald_routes(ctx: skald.PluginContext) -> Sequence[Any]:
    @get("/notes")
    async def notes(request: AnyRequest) -> list[Note]:
        return await Notes(ctx, ctx.caller(request)).all()

    @post("/notes")
    async def add(request: AnyRequest, data: JSONBody[NewNote]) -> Note:
        user = ctx.caller(request)
        note = await Notes(ctx, user).add(data.text)
        ctx.publish("kept", {"text": data.text}, user)
        return note

    @delete("/notes/{note:str}")
    async def remove(request: AnyRequest, note: FromPath[str]) -> None:
        if not await Notes(ctx, ctx.caller(request)).remove(note):
            raise HTTPException(status_code=404, detail="There is no such note.")

    @get("/count", opt={"capability": "keeper.count"})
    async def count(request: AnyRequest) -> int:
        return len(await Notes(ctx, ctx.caller(request)).all())

    return [notes, add, remove, count]
