"""What a person does with a request in the inbox: answer it, also with other arguments, or have an expired one asked again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from skald_core.chat.human import HumanRequest
from skald_core.errors import BadInput, Conflict
from skald_core.loop.errors import ConfigError
from skald_core.loop.tools import InvalidArguments

if TYPE_CHECKING:
    from skald_core.runtime.user_context import UserContext

__all__ = ("answer", "raise_again")


async def answer(
    context: UserContext, request_id: str, choice: str, note: str = "", arguments: dict[str, Any] | None = None
) -> HumanRequest:
    """Give the one answer, from any surface.

    ``arguments`` replace those the model wrote: the tool must accept them, or the request stays open with the tool's words
    as the error; the gate judges them again before anything runs.

    Raises:
        NotFound: there is no such request.
        BadInput: the choice is none of its, or the tool refuses the arguments (``bad_arguments``).
        Conflict: it has its answer (``already_answered``), or its tool is gone (``tool_gone``).
    """
    if arguments is not None:
        request = await context.requests.get(request_id)
        tool = context.tool(str(request.payload.get("tool", "")))
        if tool is None:
            raise Conflict("The tool this request is about is not available any more.", code="tool_gone")
        try:
            tool.validate(arguments)
        except InvalidArguments as error:
            raise BadInput(str(error), code="bad_arguments", reason=str(error)) from None
    return await context.requests.answer(request_id, choice, note, arguments)


async def raise_again(context: UserContext, request_id: str) -> HumanRequest:
    """Have the call of an expired request judged and asked about once more, under a new request.

    The model's next turn begins with a note and the call itself, so it learns how it went. Nothing is allowed by raising: the
    new request needs its own answer. Returns the old request, now ``raised``.

    Raises:
        NotFound: there is no such request, or its conversation is gone.
        Conflict: it has not expired (``not_expired``), an answer is running in its conversation (``busy``), or its tool is
            gone (``tool_gone``).
    """
    request = await context.requests.get(request_id)
    if request.status != "expired":
        raise Conflict(
            f"Only an expired request can be raised again; this one is {request.status}.", code="not_expired"
        )
    name = str(request.payload.get("tool", ""))
    if context.tool(name) is None:
        raise Conflict("The tool this request is about is not available any more.", code="tool_gone")
    await context.conversations.get(request.conversation)
    arguments = msgspec.json.encode(request.payload.get("arguments", {})).decode()
    summary = str(request.payload.get("summary") or name)
    note = context.app.texts.t("request.raised_note", context.user.locale, {"summary": summary})
    try:
        await context.agent.session(request.conversation).call_again(name, arguments, note=note)
    except ConfigError as error:
        raise Conflict(str(error), code="busy") from None
    context.history_changed(request.conversation)
    return await context.requests.mark_raised(request.id)
