"""What a turn tells of messages and hooks, and whom it answers: small pieces the kernel and the runner share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec

from skald_core.loop.errors import LoopError, ModelError
from skald_core.loop.events import (
    AssistantEvent,
    CallView,
    Event,
    HookErrorEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
    ToolResultView,
    UserEvent,
)
from skald_core.loop.hook_chain import Report
from skald_core.loop.hooks import AddContext, Block, Prompt
from skald_core.loop.profile import Limits
from skald_core.loop.records import Frame, Message
from skald_core.loop.services import Emit, Services
from skald_core.loop.text import cut
from skald_core.loop.types import ConversationId, FrameId, MessageId

__all__ = (
    "ask_prompt_hook", "delivered_events", "error_kind", "plain_words", "refuse", "reporter", "results_event", "user_event",
)  # fmt: skip


def user_event(
    frame: Frame, message: Message, subtype: Any, queued: int | None = None, siblings: tuple[MessageId, ...] = ()
) -> UserEvent:
    return UserEvent(
        frame.conversation, frame.id, message.id, message.content, subtype, message.parent, message.client_id,
        message.attachments, message.metadata, queued, message.created_at, siblings,
    )  # fmt: skip


def results_event(frame: Frame, message: Message, limit: int) -> UserEvent:
    """What tells of a round's results, once all of ``message``'s calls have ended; each at most ``limit`` characters."""
    results: list[ToolResultView] = []
    for call in message.calls:
        whole = call.result or ""
        shown = cut(whole, limit)
        results.append(
            ToolResultView(
                call.id, call.tool_use_id, call.name, shown, call.state != "done", len(shown) != len(whole), call.media
            )
        )
    return UserEvent(
        frame.conversation, frame.id, message.id, "", "tool_result", message.parent, results=tuple(results)
    )


def delivered_events(frame: Frame, message: Message, limit: int) -> Iterator[Event]:
    """What tells of a finished task's message: an assistant message whose one call has its result already."""
    views = tuple(CallView(c.id, c.tool_use_id, c.name, c.arguments) for c in message.calls)
    yield AssistantEvent(
        frame.conversation, frame.id, message.id, message.content, "", views, "tool_use", parent=message.parent,
        created_at=message.created_at,
    )  # fmt: skip
    for call in message.calls:
        yield ToolCallStartEvent(
            frame.conversation, frame.id, message.id, call.id, call.tool_use_id, call.name,
            msgspec.json.decode(call.arguments), call.name,
        )  # fmt: skip
        yield ToolCallEndEvent(
            frame.conversation, frame.id, message.id, call.id, call.tool_use_id, call.name, "done", False,
            call.result or "", "json",
        )  # fmt: skip
    yield results_event(frame, message, limit)


async def ask_prompt_hook(
    services: Services, prompt: Prompt, limits: Limits, frame: FrameId, emit: Emit
) -> Block | AddContext | None:
    """What the prompt hooks say; a failing one is told of and counts as no opinion."""
    if not services.hooks:
        return None
    report = reporter(prompt.conversation, frame, emit)
    return await services.hooks.user_prompt(prompt, seconds=limits.hook_seconds, report=report)


def reporter(conversation: ConversationId, frame: FrameId, emit: Emit) -> Report:
    """Tells of failing hooks that no call is to blame for."""
    return lambda name, text: emit(HookErrorEvent(conversation, frame, name, text))


def refuse(told: asyncio.Future[Any] | None, error: Exception) -> None:
    """Answer whoever waits for a steering message, if anybody does."""
    if told is not None and not told.done():
        told.set_exception(error)


def error_kind(error: Exception) -> str:
    """The stable code an event names an error by."""
    return error.kind if isinstance(error, LoopError) else "internal"


def plain_words(error: Exception) -> str:
    """A sentence for the person. Foreign exceptions may carry content or secrets, so only their type is named."""
    if isinstance(error, LoopError) and str(error):
        return str(error)
    if isinstance(error, ModelError):
        return "the model call failed"
    return f"something went wrong inside ({type(error).__name__}); the server log has the details"
