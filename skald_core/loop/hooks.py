"""Where a host may look at a turn and change its course.

``before_tool`` fails closed: an exception or a timeout refuses the call. All others fail open: the turn goes on. A
``hook_error`` event tells of either. Several hook objects, and bounds for single ones:
:class:`~skald_core.loop.hook_chain.HookChain`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec

from skald_core.loop.gate import Allow, Deny, PendingCall
from skald_core.loop.records import Message
from skald_core.loop.tools import ToolOutput
from skald_core.loop.types import Attachment, ConversationId, FrameId, StopReason

__all__ = (
    "AddContext",
    "Block",
    "Hooks",
    "MustAsk",
    "NoHooks",
    "Prompt",
    "Rewrite",
    "Stopping",
    "ToolHookVerdict",
)


class Rewrite(msgspec.Struct, frozen=True):
    """Run the call with these arguments instead. They are validated and judged like the model's own."""

    raw: dict[str, Any]


class MustAsk(msgspec.Struct, frozen=True):
    """Ask a person even where the gate would allow; with ``raw``, about these arguments. A gate's denial still wins."""

    reason: str
    raw: dict[str, Any] | None = None


ToolHookVerdict = None | Rewrite | Allow | Deny | MustAsk
"""``Allow`` spares the person a question the gate would ask. It does not outvote a gate's denial, nor another hook's
``MustAsk``."""


class Block(msgspec.Struct, frozen=True):
    """Refuse the prompt; nothing of it is stored."""

    reason: str


class AddContext(msgspec.Struct, frozen=True):
    """Text the model gets after the prompt; stored with the message, not shown as the person's words."""

    text: str


class Prompt(msgspec.Struct, frozen=True):
    """Text about to become a user message. ``source`` is ``steer`` when it joins a running turn."""

    conversation: ConversationId
    content: str
    source: Literal["run", "steer"]
    attachments: tuple[Attachment, ...] = ()
    metadata: dict[str, Any] = {}


class Stopping(msgspec.Struct, frozen=True):
    """A turn about to end by itself. ``continued`` counts how often stop hooks sent it on already."""

    conversation: ConversationId
    frame: FrameId
    stop_reason: StopReason
    final_text: str
    continued: int


class Hooks(Protocol):
    """All of them are awaited, in order; ``user_prompt`` and ``stop`` are not for sub-agents, the others are."""

    async def before_tool(self, call: PendingCall) -> ToolHookVerdict: ...

    async def after_tool(self, call: PendingCall, output: ToolOutput, duration_ms: int) -> str | None:
        """Text to add to the result for the model, or None. Only for calls that ran."""
        ...

    async def user_prompt(self, prompt: Prompt) -> Block | AddContext | None: ...

    async def stop(self, stopping: Stopping) -> str | None:
        """A reason to go on, given to the model as a user message, or None to let the turn end."""
        ...

    async def before_compaction(
        self, conversation: ConversationId, trigger: str, messages: Sequence[Message], tokens: int
    ) -> None: ...


class NoHooks:
    """Does nothing; also the base to override single hooks of."""

    async def before_tool(self, call: PendingCall) -> ToolHookVerdict:
        return None

    async def after_tool(self, call: PendingCall, output: ToolOutput, duration_ms: int) -> str | None:
        return None

    async def user_prompt(self, prompt: Prompt) -> Block | AddContext | None:
        return None

    async def stop(self, stopping: Stopping) -> str | None:
        return None

    async def before_compaction(
        self, conversation: ConversationId, trigger: str, messages: Sequence[Message], tokens: int
    ) -> None:
        return None
