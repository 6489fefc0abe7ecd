"""What one agent is in one conversation: its prompt, tools, model choice, limits and scope."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from skald_core.loop.errors import ConfigError
from skald_core.loop.events import SkillView
from skald_core.loop.projection import ProjectionOptions
from skald_core.loop.tools import ToolRegistry
from skald_core.loop.types import ConversationId, FrameId, ModelInfo, SystemBlock

__all__ = ("Limits", "Profile", "ProfileSource", "SystemContext", "SystemPrompt", "SystemSource", "ToolSource")


CONCURRENCY = "SKALD_MAX_TOOL_CONCURRENCY"
"""Environment variable: how many calls of a round run at once where ``Limits`` does not say. Read when Limits are made."""


def _parallel_calls() -> int:
    text = os.environ.get(CONCURRENCY, "")
    return int(text) if text.isascii() and text.isdigit() and 0 < int(text) <= 1000 else 10


class Limits(msgspec.Struct, frozen=True):
    """Bounds of a turn. ``None`` means none.

    ``seconds`` is wall time of the whole turn, waiting for people included. ``event_chars`` is how much of one tool result
    an event carries; the store keeps all. At most ``media_files`` files of at most ``media_bytes`` together are shown to a
    model in a turn. Raises ConfigError for anything that is not a whole number above zero, or no time above zero.
    """

    rounds: int = 100
    output_tokens: int | None = None
    seconds: float | None = None
    model_attempts: int = 3
    parallel_calls: int = msgspec.field(default_factory=_parallel_calls)
    depth: int = 5
    event_chars: int = 20_000
    stop_continues: int = 10
    hook_seconds: float = 60.0
    media_files: int = 4
    media_bytes: int = 48 * 2**20

    def __post_init__(self) -> None:
        for name in ("rounds", "model_attempts", "parallel_calls", "depth", "event_chars"):
            _need_whole(name, getattr(self, name), 1)
        for name in ("stop_continues", "media_files", "media_bytes"):
            _need_whole(name, getattr(self, name), 0)
        if self.output_tokens is not None:
            _need_whole("output_tokens", self.output_tokens, 1)
        for name in ("seconds", "hook_seconds"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"limit {name!r} must be above zero seconds, not {value!r}")


def _need_whole(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"limit {name!r} must be a whole number of at least {least}, not {value!r}")


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
    their context by type. ``limits=None`` means the Agent's own. ``cwd`` is where the agent's tools are at home and
    ``skills`` what it can do beyond them: the loop uses neither, it tells of both.
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
    cwd: str = ""
    skills: tuple[SkillView, ...] = ()

    def registry(self, info: ModelInfo) -> ToolRegistry:
        return self.tools if isinstance(self.tools, ToolRegistry) else self.tools(info)

    async def prompt(self, context: SystemContext) -> SystemPrompt:
        if isinstance(self.system, str):
            return SystemPrompt((SystemBlock(self.system),) if self.system else ())
        return await self.system(context)


ProfileSource = Callable[[ConversationId, str], Awaitable[Profile]]
"""Gives the profile of an agent id (empty: the conversation's own agent). Raises ConfigError for an unknown id."""
