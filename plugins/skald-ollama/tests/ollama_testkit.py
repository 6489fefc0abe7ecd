"""What the tests of skald-ollama share beside ``skald_core.testing``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from skald_core.api import ModelInfo
from skald_core.testing.servers import ask as any_request
from skald_ollama.provider import OllamaProvider

INFO = ModelInfo(16_384, None, frozenset({"tools", "vision", "reasoning"}))

ask = functools.partial(any_request, model="qwen3:8b", info=INFO)
"""A request of one user message."""

Make = Callable[..., OllamaProvider]


# --- what Ollama says ----------------------------------------------------------------------------------------------


def chunk(content: str = "", **message: Any) -> dict[str, Any]:
    return {"model": "qwen3:8b", "message": {"role": "assistant", "content": content, **message}, "done": False}


def call(name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    return {**more, "function": {"name": name, "arguments": arguments}}


def last(reason: str | None = "stop", **counts: int) -> dict[str, Any]:
    return {**chunk(), "done": True, **({} if reason is None else {"done_reason": reason}), **counts}
