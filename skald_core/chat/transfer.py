"""Taking history out of a conversation, bringing one in, and deleting a turn of one."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import msgspec

from skald_core.chat.conversations import Conversation
from skald_core.errors import BadInput, Conflict, NotFound
from skald_core.loop.archive import ArchiveError, unpack
from skald_core.loop.errors import ConfigError, LoopError
from skald_core.loop.records import Message
from skald_core.loop.types import MessageId

if TYPE_CHECKING:
    from skald_core.runtime.user_context import UserContext

__all__ = ("MAX_ARCHIVE", "delete_turn", "export_conversation", "file_name", "import_conversation", "too_large")

MAX_ARCHIVE = 64 * 1024 * 1024
"""Bytes of an archive that is taken in."""


async def export_conversation(context: UserContext, conversation: str) -> tuple[Conversation, bytes]:
    """The conversation's row and its whole history as JSON, every branch of it (:mod:`skald_core.loop.archive`).

    What a running turn has not stored yet is not in it. Raises NotFound.
    """
    row = await context.conversations.get(conversation)
    return row, await context.agent.session(conversation).export(title=row.title)


def file_name(row: Conversation) -> str:
    """A name for the export that every file system takes."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", row.title).strip("-")[:60]
    return f"{words or 'conversation'}.skald.json"


def too_large() -> BadInput:
    error = BadInput("The export is too large.", code="import_too_large", limit=str(MAX_ARCHIVE // (1024 * 1024)))
    error.status = 413
    return error


async def import_conversation(context: UserContext, data: bytes, *, client_id: str | None = None) -> Conversation:
    """A new conversation with an exported history: the same branches and, for a model, the same messages.

    Ids are given anew. The same ``client_id`` gives the same conversation. Everything is checked before anything is stored.

    Raises:
        BadInput: ``data`` is no export (``not_an_export``), of a version this program does not read (``newer_version``), or
            does not hang together (``damaged``).
    """
    try:
        archive = await asyncio.to_thread(unpack, data)
    except ArchiveError as error:
        raise BadInput(str(error), code=f"import_{error.reason}", reason=str(error)) from None
    archive = msgspec.structs.replace(archive, messages=tuple(_plainly(message) for message in archive.messages))
    row = await context.create(client_id=client_id, title=archive.title, model=None)
    session = context.agent.session(row.id)
    if await context.agent.store.root(session.conversation) is not None:
        return row  # sent again: it is here already
    try:
        await session.import_(archive)
    except LoopError:
        await context.delete(row.id)
        raise
    return row


def _plainly(message: Message) -> Message:
    """A message that shows what models read of it: a file somebody else made must not say one thing and mean another."""
    context = message.metadata.get("hook_context")
    more = f"\n\n<context>\n{context}\n</context>" if isinstance(context, str) and context else ""
    kept = {key: value for key, value in message.metadata.items() if key not in ("prompt", "hook_context")}
    if len(kept) == len(message.metadata):
        return message
    return msgspec.structs.replace(message, content=f"{message.prompt}{more}", metadata=kept)


async def delete_turn(context: UserContext, conversation: str, message: int) -> list[int]:
    """Delete what a person said and every answer to it, for good, with the requests its calls made; the ids of the messages.

    ``message`` is any message of the turn. Later turns and the person's other versions of the message stay.

    Raises:
        NotFound: the message is not (any more) in this conversation.
        Conflict: an answer is running (``busy``).
    """
    await context.conversations.get(conversation)
    session = context.agent.session(conversation)
    found = await context.agent.store.message(MessageId(message))
    root = await context.agent.store.root(session.conversation)
    if found is None or root is None or found.frame != root.id:
        raise NotFound("This message does not exist (any more).", code="message_not_found")
    try:
        gone = await session.remove(found.id)
    except ConfigError as error:
        raise Conflict(str(error), code="busy") from None
    await context.requests.forget_calls(conversation, [call.id for m in gone for call in m.calls])
    # How the last turn ended is told with the newest message, which may be gone.
    await context.conversations.ended(conversation, None, unread=False)
    context.history_changed(conversation)
    return [m.id for m in gone]
