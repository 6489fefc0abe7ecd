"""The one mapper from loop events to what clients get (docs/http-api.md). Synchronous and quick: it runs inside the turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from skald_core.chat.agent_work import AgentWork
from skald_core.chat.conversations import LastTurn, TurnError
from skald_core.chat.views import Views
from skald_core.loop import events as e
from skald_core.loop.records import Message
from skald_core.runtime.feed import Feed

__all__ = ("Translator",)


class Translator:
    """``began`` and ``ended`` tell the user context of a turn's two ends; ``texts`` words outcomes in the user's language."""

    def __init__(
        self,
        *,
        feed: Feed,
        views: Views,
        model_title: Callable[[str], str],
        texts: Callable[[str], str],
        agent_title: Callable[[str], str],
        began: Callable[[str], None],
        ended: Callable[[str, LastTurn], None],
    ) -> None:
        self._feed = feed
        self._views = views
        self._model_title = model_title
        self._texts = texts
        self._began = began
        self._ended = ended
        self._errors: dict[str, TurnError] = {}
        self._work = AgentWork(agent_title)

    def __call__(self, event: e.Event) -> None:
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)

    def _emit(self, conversation: str, type_: str, **fields: Any) -> None:
        self._feed.emit(conversation, {"type": type_, **fields})

    def system(self, event: e.SystemEvent) -> None:
        if event.depth:
            return
        self._errors.pop(event.conversation, None)
        self._began(event.conversation)
        self._emit(
            event.conversation, "turn_started", run_id=event.run_id, started_at=time.time(), resumed=event.resumed
        )

    def round_started(self, event: e.RoundStartedEvent) -> None:
        title = self._model_title(event.model_id or event.model)
        self._emit(event.conversation, "assistant_started", model=title, round=event.round)

    def user(self, event: e.UserEvent) -> None:
        if event.subtype == "tool_result":
            return  # each result came with its call's end
        message = Message(
            id=event.message_id,
            frame=event.frame,
            parent=event.parent,
            role="user",
            content=event.content,
            client_id=event.client_id,
            attachments=event.attachments,
            synthetic=event.subtype in {"synthetic", "stop_hook"},
            created_at=event.created_at,
        )
        view = self._views.message(message, event.siblings)
        self._emit(event.conversation, "user_message", message=view, queued_id=event.queued_id)

    def partial(self, event: e.PartialAssistantEvent) -> None:
        if event.kind != "tool_input":
            kind = "content" if event.kind == "text" else "reasoning"
            self._emit(event.conversation, "token_delta", kind=kind, delta=event.text)

    def assistant(self, event: e.AssistantEvent) -> None:
        message = Message(
            id=event.message_id,
            frame=event.frame,
            parent=event.parent,
            role="assistant",
            content=event.content,
            reasoning=event.reasoning,
            status=event.status,
            model=event.model_id or event.model,
            usage=event.usage,
            created_at=event.created_at,
            duration_ms=event.duration_ms,
        )
        view = self._views.message(message, event.siblings)
        view["calls"] = [
            {
                "id": c.call_id,
                "name": c.tool_name,
                "arguments": c.arguments,
                "state": "running",
                "result": None,
                "result_kind": None,
                "duration_ms": None,
                **self._views.describe(c.tool_name, c.arguments),
            }
            for c in event.calls
        ]
        view["stop_reason"] = event.stop_reason
        self._emit(event.conversation, "assistant_message", message=view, final=event.final)

    def tool_start(self, event: e.ToolCallStartEvent) -> None:
        call = {
            "id": event.call_id,
            "name": event.tool_name,
            "title": event.title or event.tool_name,
            "icon": event.icon,
            "summary": event.summary,
            "path": event.path,
            "arguments": msgspec.json.encode(event.input).decode(),
            "state": "running",
            "result": None,
            "result_kind": None,
            "duration_ms": None,
        }
        self._emit(event.conversation, "tool_start", message_id=event.message_id, call=call)

    def tool_progress(self, event: e.ToolProgressEvent) -> None:
        self._emit(event.conversation, "tool_progress", call_id=event.call_id, data=event.data)

    def tool_end(self, event: e.ToolCallEndEvent) -> None:
        self._work.done(event.call_id)
        self._emit(
            event.conversation,
            "tool_done",
            message_id=event.message_id,
            call_id=event.call_id,
            state=event.state,
            result=event.result,
            result_kind=event.result_kind,
            duration_ms=event.duration_ms,
            display=event.display,
        )

    def subagent(self, event: e.SubagentEvent) -> None:
        data = self._work.take(event)
        if data is not None:
            self._emit(event.conversation, "tool_progress", call_id=event.parent_call, data=data)

    def working(self, call: int) -> dict[str, Any] | None:
        """What the agent that answers ``call`` has done so far, as its last ``tool_progress`` told it; None without one."""
        return self._work.view(call)

    def compaction(self, event: e.CompactionEvent) -> None:
        self._emit(
            event.conversation,
            "compaction",
            messages_before=event.messages_before,
            messages_after=event.messages_after,
            tokens_before=event.tokens_before,
            tokens_after=event.tokens_after,
        )

    def fallback(self, event: e.ModelFallbackEvent) -> None:
        self._emit(
            event.conversation,
            "model_fallback",
            **{"from": self._model_title(event.from_model), "to": self._model_title(event.to_model)},
            reason=event.reason,
        )

    def error(self, event: e.ErrorEvent) -> None:
        self._errors[event.conversation] = TurnError(event.kind, event.message, event.detail, event.retryable)

    def queue(self, event: e.QueueChangedEvent) -> None:
        self._emit(event.conversation, "queue_changed", queue=self._views.queued(event.items))

    def result(self, event: e.ResultEvent) -> None:
        self._work.over(event.conversation)
        error = self._errors.pop(event.conversation, None)
        if event.subtype in {"aborted", "interrupted"}:
            error = TurnError(event.subtype, self._texts("turn.stopped"), event.reason)
        elif event.subtype == "error" and error is None:
            error = TurnError("error", event.reason)
        self._ended(event.conversation, LastTurn(event.subtype, error))
        self._emit(
            event.conversation,
            "turn_finished",
            run_id=event.run_id,
            outcome=event.subtype,
            duration_ms=event.duration_ms,
            usage=event.total_usage,
            error=error,
        )


_HANDLERS: dict[type[Any], Callable[[Translator, Any], None]] = {
    e.SystemEvent: Translator.system,
    e.RoundStartedEvent: Translator.round_started,
    e.UserEvent: Translator.user,
    e.PartialAssistantEvent: Translator.partial,
    e.AssistantEvent: Translator.assistant,
    e.ToolCallStartEvent: Translator.tool_start,
    e.ToolProgressEvent: Translator.tool_progress,
    e.ToolCallEndEvent: Translator.tool_end,
    e.SubagentEvent: Translator.subagent,
    e.CompactionEvent: Translator.compaction,
    e.ModelFallbackEvent: Translator.fallback,
    e.ErrorEvent: Translator.error,
    e.QueueChangedEvent: Translator.queue,
    e.ResultEvent: Translator.result,
}
