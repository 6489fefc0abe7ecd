"""What the tests of skald-anthropic share beside ``skald_core.testing``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from skald_anthropic.provider import AnthropicProvider
from skald_core.api import ModelInfo
from skald_core.testing.servers import ask as any_request

INFO = ModelInfo(200_000, 64_000, frozenset({"tools", "vision", "documents", "reasoning", "prompt_cache"}))

ask = functools.partial(any_request, model="claude-sonnet-4-5", info=INFO)
"""A request of one user message."""

Make = Callable[..., AnthropicProvider]


# --- what the API says ---------------------------------------------------------------------------------------------


def start(**usage: int) -> dict[str, Any]:
    message = {"id": "msg_1", "model": "claude-x", "role": "assistant", "content": [], "usage": usage}
    return {"type": "message_start", "message": message}


def opened(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": {"type": kind, **fields}}


def delta(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def closed(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def text_block(index: int, *pieces: str) -> list[dict[str, Any]]:
    return [opened(index, "text", text=""), *(delta(index, "text_delta", text=p) for p in pieces), closed(index)]


def ended(stop: str | None = "end_turn", **usage: int) -> list[dict[str, Any]]:
    """The end of an answer."""
    return [{"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage}, {"type": "message_stop"}]
