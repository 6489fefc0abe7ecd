"""Where a host may look at a turn and change its course.

``before_tool`` fails closed: an exception or a timeout refuses the call. All others fail open: the turn goes on and a
``hook_error`` event tells of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec

from skald_core.loop.gate import Deny, PendingCall
from skald_core.loop.records import Message
from skald_core.loop.tools import ToolOutput
from skald_core.loop.types import Attachment, ConversationId, FrameId, StopReason

__all__ = (
    "AddContext",
    "Block",
    "HookChain",
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
    """Ask a person even where the gate would allow. A gate's denial still wins."""

    reason: str


ToolHookVerdict = None | Rewrite | Deny | MustAsk


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
    """All of them run in the turn's task and are awaited; ``user_prompt`` and ``stop`` not in sub-agents."""

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


class HookChain:
    """Several hook objects as one, in order.

    Tools: a denial ends the chain, rewrites are seen by later hooks only through the loop's second pass, so the first
    opinion wins. Prompts: the first block wins, contexts are joined. Stop: the first reason wins.
    """

    def __init__(self, *hooks: Hooks) -> None:
        self._hooks = hooks

    async def before_tool(self, call: PendingCall) -> ToolHookVerdict:
        found: ToolHookVerdict = None
        for hook in self._hooks:
            verdict = await hook.before_tool(call)
            if isinstance(verdict, Deny):
                return verdict
            found = found or verdict
        return found

    async def after_tool(self, call: PendingCall, output: ToolOutput, duration_ms: int) -> str | None:
        added = [await hook.after_tool(call, output, duration_ms) for hook in self._hooks]
        return "\n".join(text for text in added if text) or None

    async def user_prompt(self, prompt: Prompt) -> Block | AddContext | None:
        added: list[str] = []
        for hook in self._hooks:
            verdict = await hook.user_prompt(prompt)
            if isinstance(verdict, Block):
                return verdict
            if verdict is not None:
                added.append(verdict.text)
        return AddContext("\n\n".join(added)) if added else None

    async def stop(self, stopping: Stopping) -> str | None:
        for hook in self._hooks:
            reason = await hook.stop(stopping)
            if reason:
                return reason
        return None

    async def before_compaction(
        self, conversation: ConversationId, trigger: str, messages: Sequence[Message], tokens: int
    ) -> None:
        for hook in self._hooks:
            await hook.before_compaction(conversation, trigger, messages, tokens)
