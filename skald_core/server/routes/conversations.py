"""Conversations: list, history, sending, stopping, branches, the queue."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, Response, delete, get, patch, post
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from litestar.params import FromPath, FromQuery, JSONBody

from skald_core.chat import transfer
from skald_core.loop.types import Attachment
from skald_core.server.guards import context_of, signed_in

__all__ = ("HANDLERS",)

AnyRequest = Request[Any, Any, Any]
ClientId = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
Accepted = dict[str, Any]


class NewConversation(msgspec.Struct):
    client_id: ClientId | None = None
    title: Annotated[str, msgspec.Meta(max_length=400)] = ""
    model: str | None = None
    agent: str = ""


class ChangeConversation(msgspec.Struct):
    title: Annotated[str, msgspec.Meta(max_length=400)] | None = None
    pinned: bool | None = None
    read: bool | None = None
    model: str | msgspec.UnsetType | None = msgspec.UNSET
    agent: str | None = None


class NewMessage(msgspec.Struct):
    client_id: ClientId
    content: str
    attachments: list[Attachment] = []


class EditMessage(msgspec.Struct):
    client_id: ClientId
    message: int
    content: str


class OneMessage(msgspec.Struct):
    message: int


class StopBody(msgspec.Struct):
    reason: Annotated[str, msgspec.Meta(max_length=400)] = ""


class QueuedBody(msgspec.Struct):
    content: str


@get("/api/conversations", guards=[signed_in])
async def page(
    request: AnyRequest,
    before: FromQuery[str | None] = None,
    limit: FromQuery[int] = 50,
    q: FromQuery[str] = "",
    counts: FromQuery[bool] = False,
) -> dict[str, Any]:
    """A page of the caller's conversations, newest first; ``counts`` adds how many messages each has."""
    context = await context_of(request)
    found = await context.conversations.page(before=before, limit=limit, q=q)
    items = [context.conversation_view(row) for row in found.items]
    if counts:
        known = await context.message_counts([row.id for row in found.items])
        items = [{**item, "message_count": known.get(item["id"], 0)} for item in items]
    return {"items": items, "next": found.next}


@post("/api/conversations", guards=[signed_in], status_code=201)
async def create(request: AnyRequest, data: JSONBody[NewConversation]) -> dict[str, Any]:
    """Make a conversation; the same ``client_id`` gives the same one."""
    context = await context_of(request)
    row = await context.create(client_id=data.client_id, title=data.title, model=data.model, agent=data.agent)
    return context.conversation_view(row)


@get("/api/conversations/{conversation:str}", guards=[signed_in])
async def one(request: AnyRequest, conversation: FromPath[str]) -> dict[str, Any]:
    context = await context_of(request)
    return context.conversation_view(await context.conversations.get(conversation))


@patch("/api/conversations/{conversation:str}", guards=[signed_in])
async def change(
    request: AnyRequest, conversation: FromPath[str], data: JSONBody[ChangeConversation]
) -> dict[str, Any]:
    context = await context_of(request)
    row = await context.change(
        conversation,
        title=data.title,
        pinned=data.pinned,
        unread=False if data.read else None,
        model=data.model,
        agent=data.agent,
    )
    return context.conversation_view(row)


@delete("/api/conversations/{conversation:str}", guards=[signed_in], status_code=204)
async def remove(request: AnyRequest, conversation: FromPath[str]) -> None:
    """Stop what runs in it and delete it for good."""
    await (await context_of(request)).delete(conversation)


@get("/api/conversations/{conversation:str}/messages", guards=[signed_in])
async def messages(
    request: AnyRequest, conversation: FromPath[str], before: FromQuery[int | None] = None, limit: FromQuery[int] = 50
) -> dict[str, Any]:
    """A page of the current branch, oldest first."""
    context = await context_of(request)
    items, more = await context.history(conversation, before=before, limit=max(1, min(limit, 200)))
    return {"items": items, "has_more": more}


@post("/api/conversations/{conversation:str}/messages", guards=[signed_in], status_code=202)
async def send(request: AnyRequest, conversation: FromPath[str], data: JSONBody[NewMessage]) -> Accepted:
    """Store a message once and answer it, now or after the running turn."""
    context = await context_of(request)
    return await context.send(conversation, data.content, client_id=data.client_id, attachments=tuple(data.attachments))


@delete("/api/conversations/{conversation:str}/messages/{message:int}", guards=[signed_in], status_code=200)
async def delete_turn(request: AnyRequest, conversation: FromPath[str], message: FromPath[int]) -> Accepted:
    """Delete the turn this message belongs to, for good: what the person said and every answer to it."""
    return {"deleted": await transfer.delete_turn(await context_of(request), conversation, message)}


@get("/api/conversations/{conversation:str}/export", guards=[signed_in])
async def export(request: AnyRequest, conversation: FromPath[str]) -> Response[bytes]:
    """The whole history as one JSON document, every branch of it."""
    row, data = await transfer.export_conversation(await context_of(request), conversation)
    return Response(
        data,
        media_type="application/json",
        headers={"Content-Disposition": f'attachment; filename="{transfer.file_name(row)}"'},
    )


@post("/api/conversations/import", guards=[signed_in], status_code=201, request_max_body_size=transfer.MAX_ARCHIVE)
async def import_(request: AnyRequest, client_id: FromQuery[ClientId | None] = None) -> dict[str, Any]:
    """A new conversation with an exported history; the body is the export. The same ``client_id`` gives the same one."""
    context = await context_of(request)
    try:
        data = await request.body()
    except RequestEntityTooLarge:
        raise transfer.too_large() from None
    return context.conversation_view(await transfer.import_conversation(context, data, client_id=client_id))


@post("/api/conversations/{conversation:str}/stop", guards=[signed_in], status_code=202)
async def stop(request: AnyRequest, conversation: FromPath[str]) -> Accepted:
    """End the running turn; its open calls are recorded as cancelled before this answers. A body may give a ``reason``."""
    body = await request.body()
    reason = msgspec.json.decode(body, type=StopBody).reason if body else ""
    stopped = await (await context_of(request)).stop(conversation, reason)
    return {"stopped": stopped}


@post("/api/conversations/{conversation:str}/retry", guards=[signed_in], status_code=202)
async def retry(request: AnyRequest, conversation: FromPath[str]) -> Accepted:
    await (await context_of(request)).retry(conversation)
    return {}


@post("/api/conversations/{conversation:str}/continue", guards=[signed_in], status_code=202)
async def go_on(request: AnyRequest, conversation: FromPath[str]) -> Accepted:
    await (await context_of(request)).go_on(conversation)
    return {}


@post("/api/conversations/{conversation:str}/edit", guards=[signed_in], status_code=202)
async def edit(request: AnyRequest, conversation: FromPath[str], data: JSONBody[EditMessage]) -> Accepted:
    """Say a user message differently: opens a branch there and answers it."""
    await (await context_of(request)).edit(conversation, data.message, data.content, client_id=data.client_id)
    return {}


@post("/api/conversations/{conversation:str}/regenerate", guards=[signed_in], status_code=202)
async def regenerate(request: AnyRequest, conversation: FromPath[str], data: JSONBody[OneMessage]) -> Accepted:
    """A sibling of an answer."""
    await (await context_of(request)).regenerate(conversation, data.message)
    return {}


@post("/api/conversations/{conversation:str}/head", guards=[signed_in], status_code=200)
async def head(request: AnyRequest, conversation: FromPath[str], data: JSONBody[OneMessage]) -> Accepted:
    """Show the branch that holds this message."""
    await (await context_of(request)).switch(conversation, data.message)
    return {}


@post("/api/conversations/{conversation:str}/compact", guards=[signed_in], status_code=202)
async def compact(request: AnyRequest, conversation: FromPath[str]) -> Accepted:
    """Replace older messages by a summary in what models see."""
    return {"compacted": await (await context_of(request)).compact(conversation)}


@patch("/api/conversations/{conversation:str}/queue/{queued:int}", guards=[signed_in], status_code=204)
async def edit_queued(
    request: AnyRequest, conversation: FromPath[str], queued: FromPath[int], data: JSONBody[QueuedBody]
) -> Response[None]:
    await (await context_of(request)).edit_queued(conversation, queued, data.content)
    return Response(None, status_code=204)


@delete("/api/conversations/{conversation:str}/queue/{queued:int}", guards=[signed_in], status_code=204)
async def delete_queued(request: AnyRequest, conversation: FromPath[str], queued: FromPath[int]) -> None:
    await (await context_of(request)).delete_queued(conversation, queued)


HANDLERS = (
    page, create, import_, one, change, remove, messages, delete_turn, export, send, stop, retry, go_on, edit, regenerate,
    head, compact, edit_queued, delete_queued,
)  # fmt: skip
