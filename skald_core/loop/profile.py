"""What one agent is in one conversation: its prompt, tools, model choice, limits and scope."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from skald_core.loop.errors import ConfigError
from skald_core.loop.projection import ProjectionOptions
from skald_core.loop.tools import ToolRegistry
from skald_core.loop.types import ConversationId, FrameId, ModelInfo, SystemBlock

__all__ = ("Limits", "Profile", "ProfileSource", "SystemContext", "SystemPrompt", "SystemSource", "ToolSource")


class Limits(msgspec.Struct, frozen=True):
    """Bounds of a turn. ``None`` means none.

    ``seconds`` is wall time of the whole turn, waiting for people included. ``result_chars`` is how much of one tool
    result a model sees, ``event_chars`` how much an event carries; the store keeps all.
    """

    rounds: int = 100
    output_tokens: int | None = None
    seconds: float | None = None
    model_attempts: int = 3
    parallel_calls: int = 10
    depth: int = 5
    event_chars: int = 20_000
    stop_continues: int = 10
    hook_seconds: float = 60.0

    def __post_init__(self) -> None:
        for name in ("rounds", "model_attempts", "parallel_calls", "depth"):
            if getattr(self, name) < 1:
                raise ConfigError(f"limit {name!r} must be at least 1, not {getattr(self, name)!r}")
        if self.output_tokens is not None and self.output_tokens < 1:
            raise ConfigError(f"limit 'output_tokens' must be at least 1, not {self.output_tokens!r}")


class SystemContext(msgspec.Struct, frozen=True):
    """For whom a system prompt is made: asked once per turn and again after a change of model."""

    conversation: ConversationId
    frame: FrameId
    agent: str
    info: ModelInfo
    tools: tuple[str, ...]
    scope: dict[type[Any], Any]
    depth: int = 0


class SystemPrompt(msgspec.Struct, frozen=True):
    """``blocks`` go before the history. ``tail`` is text for this turn only, put at the end of its user message."""

    blocks: tuple[SystemBlock, ...] = ()
    tail: str = ""


SystemSource = Callable[[SystemContext], Awaitable[SystemPrompt]]
ToolSource = ToolRegistry | Callable[[ModelInfo], ToolRegistry]
"""The tools of a frame, read again in every round."""


class Profile(msgspec.Struct, frozen=True):
    """An agent as the loop runs it.

    ``pin`` names a model for the selector; a sub-agent never inherits its parent's. ``scope`` is what tools find in
    their context by type. ``limits=None`` means the Agent's own.
    """

    agent: str = ""
    system: SystemSource | str = ""
    tools: ToolSource = msgspec.field(default_factory=ToolRegistry)
    pin: str | None = None
    scope: dict[type[Any], Any] = {}
    limits: Limits | None = None
    projection: ProjectionOptions = ProjectionOptions()
    temperature: float | None = None
    effort: str | None = None
    extra: dict[str, Any] = {}

    def registry(self, info: ModelInfo) -> ToolRegistry:
        return self.tools if isinstance(self.tools, ToolRegistry) else self.tools(info)

    async def prompt(self, context: SystemContext) -> SystemPrompt:
        if isinstance(self.system, str):
            return SystemPrompt((SystemBlock(self.system),) if self.system else ())
        return await self.system(context)


ProfileSource = Callable[[ConversationId, str], Awaitable[Profile]]
"""Gives the profile of an agent id (empty: the conversation's own agent). Raises ConfigError for an unknown id."""
