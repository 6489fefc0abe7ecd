"""Human requests: the inbox and the one answer each request gets."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, get, post
from litestar.params import FromPath, FromQuery, JSONBody

from skald_core.chat import inbox as requests
from skald_core.server.guards import context_of, signed_in

__all__ = ("HANDLERS",)

AnyRequest = Request[Any, Any, Any]


class AnswerBody(msgspec.Struct):
    choice: Annotated[str, msgspec.Meta(max_length=64)]
    note: Annotated[str, msgspec.Meta(max_length=4000)] = ""
    arguments: dict[str, Any] | None = None


@get("/api/inbox", guards=[signed_in])
async def inbox(request: AnyRequest, status: FromQuery[str | None] = None) -> dict[str, Any]:
    """The caller's requests, newest first; ``status`` filters."""
    context = await context_of(request)
    rows = await context.requests.list(status=status)
    return {"items": [context.request_view(row) for row in rows], "pending": await context.requests.pending()}


@post("/api/requests/{request_id:str}/answer", guards=[signed_in], status_code=200)
async def answer(request: AnyRequest, request_id: FromPath[str], data: JSONBody[AnswerBody]) -> dict[str, Any]:
    """Give the one answer, from any surface; ``arguments`` replace the call's own and are judged again."""
    context = await context_of(request)
    answered = await requests.answer(context, request_id, data.choice, data.note, data.arguments)
    return context.request_view(answered)


@post("/api/requests/{request_id:str}/raise", guards=[signed_in], status_code=202)
async def raise_again(request: AnyRequest, request_id: FromPath[str]) -> dict[str, Any]:
    """Have an expired request asked again."""
    context = await context_of(request)
    return context.request_view(await requests.raise_again(context, request_id))


HANDLERS = (inbox, answer, raise_again)
