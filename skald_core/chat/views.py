"""What clients see of stored history (the shapes of docs/http-api.md)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

from skald_core.loop.records import Call, HistoryItem, Message, QueuedInput
from skald_core.loop.tools import InvalidArguments, Tool

__all__ = ("Views",)

log = logging.getLogger("skald.chat")

RESULT_CHARS = 20_000
"""How much of a tool result goes to a browser; the store keeps the whole."""

ToolLookup = Callable[[str], Tool | None]
ModelTitle = Callable[[str], str]


class Views:
    """Builds views; ``tool`` finds a tool by name, so that a call gets its title, icon and one-line summary."""

    def __init__(self, tool: ToolLookup, model_title: ModelTitle) -> None:
        self._tool = tool
        self._model_title = model_title

    def message(
        self, message: Message, siblings: Sequence[int] = (), error: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        view: dict[str, Any] = {
            "id": message.id,
            "parent": message.parent,
            "siblings": list(siblings) or [message.id],
            "role": message.role,
            "content": message.content,
            "reasoning": message.reasoning,
            "status": message.status,
            "synthetic": message.synthetic,
            "client_id": message.client_id,
            "attachments": message.attachments,
            "model": self._model_title(message.model) if message.model else "",
            "usage": message.usage,
            "duration_ms": message.duration_ms,
            "created_at": message.created_at / 1000,
            "calls": [self.call(c) for c in message.calls],
        }
        if error is not None:
            view["error"] = error
        return view

    def item(self, item: HistoryItem, error: dict[str, Any] | None = None) -> dict[str, Any]:
        return self.message(item.message, item.siblings, error)

    def describe(self, name: str, arguments: str) -> dict[str, Any]:
        """Title, icon, summary and path of a call, from the tool when it is still there."""
        tool = self._tool(name)
        if tool is None:
            return {"title": name, "icon": "tool", "summary": name, "path": None}
        summary, path = name, None
        try:
            raw = json.loads(arguments or "{}")
            if isinstance(raw, dict):
                valid = tool.validate(raw)
                summary, path = tool.summarize(valid), tool.target_path(valid)
        except (ValueError, InvalidArguments, RecursionError):
            summary = name  # arguments that do not fit have no summary; the call's result says why
        except Exception:
            log.debug("tool %s could not describe a call", name, exc_info=True)
        return {"title": tool.title or name, "icon": tool.icon, "summary": summary, "path": path}

    def call(self, call: Call) -> dict[str, Any]:
        result = call.result
        if result is not None and len(result) > RESULT_CHARS:
            result = result[:RESULT_CHARS] + "\n…"
        view = {
            "id": call.id,
            "name": call.name,
            "arguments": call.effective or call.arguments,
            "state": call.state,
            "result": result,
            "result_kind": call.result_kind,
            "duration_ms": call.duration_ms,
            **self.describe(call.name, call.effective or call.arguments),
        }
        if "display" in call.extras:
            view["display"] = call.extras["display"]
        return view

    @staticmethod
    def queued(items: Sequence[QueuedInput]) -> list[dict[str, Any]]:
        return [
            {"id": q.id, "client_id": q.client_id, "content": q.content, "created_at": q.created_at / 1000}
            for q in items
            if q.kind not in {"synthetic", "task"}
        ]
