"""Several hook objects as one: which of them are asked about what, for how long, and what a failing one means."""

from __future__ import annotations

import asyncio
import fnmatch
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Self

import msgspec

from skald_core.loop.errors import ConfigError
from skald_core.loop.gate import Allow, Deny, PendingCall
from skald_core.loop.hooks import AddContext, Block, Hooks, MustAsk, NoHooks, Prompt, Rewrite, Stopping
from skald_core.loop.records import Message
from skald_core.loop.tools import InvalidArguments, ToolOutput
from skald_core.loop.types import ConversationId

__all__ = ("Hook", "HookChain", "HookName", "Report", "ToolOpinion")

log = logging.getLogger(__name__)

HookName = Literal["before_tool", "after_tool", "user_prompt", "stop", "before_compaction"]
Report = Callable[[HookName, str], None]
"""Tells of a hook that failed, in one sentence."""

_METHODS: tuple[HookName, ...] = ("before_tool", "after_tool", "user_prompt", "stop", "before_compaction")


class Hook(msgspec.Struct, frozen=True):
    """A hook object with its bounds.

    ``matcher`` says which tools' calls it sees: an exact name or a pattern with ``*``, upper and lower case told apart.
    ``seconds`` is the time one call of it may take; None means ``Limits.hook_seconds``. Raises ConfigError for an object
    without the five methods, a matcher that is no text, and a time that is not above zero.
    """

    hooks: Hooks
    matcher: str = "*"
    seconds: float | None = None

    def __post_init__(self) -> None:
        missing = [name for name in _METHODS if not callable(getattr(self.hooks, name, None))]
        if missing:
            kind = type(self.hooks).__name__
            raise ConfigError(f"{kind!r} is no hook object: it lacks {', '.join(missing)}; subclass NoHooks")
        if not isinstance(self.matcher, str) or not self.matcher:
            raise ConfigError(
                f"a hook's matcher is the name of a tool or a pattern such as 'mcp__*', not {self.matcher!r}"
            )
        if self.seconds is not None and not self.seconds > 0:
            raise ConfigError(f"a hook's time limit must be above zero seconds, not {self.seconds!r}")

    def sees(self, tool: str) -> bool:
        return self.matcher == "*" or fnmatch.fnmatchcase(tool, self.matcher)


class ToolOpinion(msgspec.Struct, frozen=True):
    """What the hooks make of a call: the call, perhaps rewritten, and a verdict unless they leave it to the gate."""

    call: PendingCall
    verdict: Allow | MustAsk | Deny | None = None


class HookChain:
    """Asks hook objects one after the other.

    - Tools: a denial ends the chain; *must ask* outranks *allow*; a rewrite is checked by the tool and seen by the hooks
      after it. A hook that fails, takes too long, or rewrites to something the tool refuses denies the call.
    - Results: what each adds is joined. Prompts: the first block wins, additions are joined. Stop: the first reason wins.
      In these a hook that fails is reported and passed over.

    ``HookChain()`` asks nobody and is false.
    """

    __slots__ = ("_hooks",)

    def __init__(self, *hooks: Hooks | Hook) -> None:
        made = (hook if isinstance(hook, Hook) else Hook(hook) for hook in hooks)
        self._hooks = tuple(hook for hook in made if type(hook.hooks) is not NoHooks)

    @classmethod
    def of(cls, hooks: Hooks | Hook | HookChain | None) -> Self | HookChain:
        """``hooks`` as a chain."""
        if isinstance(hooks, HookChain):
            return hooks
        return cls(hooks) if hooks is not None else cls()

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def _about(self, tool: str) -> Iterator[Hook]:
        return (hook for hook in self._hooks if hook.sees(tool))

    async def before_tool(self, call: PendingCall, *, seconds: float, report: Report) -> ToolOpinion:
        asks: MustAsk | None = None
        allows: Allow | None = None
        for hook in self._about(call.tool.name):
            verdict = await _ask("before_tool", hook, seconds, report, call)
            match verdict:
                case None:
                    continue
                case Failed():
                    return ToolOpinion(call, Deny("a check that runs before tools failed, so this call was refused"))
                case Deny():
                    return ToolOpinion(call, verdict)
                case Rewrite(raw):
                    pass
                case MustAsk(_, raw):
                    asks = asks or verdict
                case Allow(raw):
                    allows = allows or verdict
                case _:  # a hook is foreign code and may return anything
                    return ToolOpinion(call, Deny("a check that runs before tools gave no clear answer"))
            if raw is not None:
                try:
                    call = call.rewritten(raw)
                except Exception as error:  # noqa: BLE001 -- a tool's check is foreign code
                    return ToolOpinion(call, Deny(_refused(call, error)))
        return ToolOpinion(call, asks or allows)

    async def after_tool(
        self, call: PendingCall, output: ToolOutput, duration_ms: int, *, seconds: float, report: Report
    ) -> str | None:
        added = [
            await _ask("after_tool", hook, seconds, report, call, output, duration_ms)
            for hook in self._about(call.tool.name)
        ]
        return "\n".join(text for text in added if isinstance(text, str) and text) or None

    async def user_prompt(self, prompt: Prompt, *, seconds: float, report: Report) -> Block | AddContext | None:
        added: list[str] = []
        for hook in self._hooks:
            verdict = await _ask("user_prompt", hook, seconds, report, prompt)
            if isinstance(verdict, Block):
                return verdict
            if isinstance(verdict, AddContext) and verdict.text:
                added.append(verdict.text)
        return AddContext("\n\n".join(added)) if added else None

    async def stop(self, stopping: Stopping, *, seconds: float, report: Report) -> str | None:
        for hook in self._hooks:
            reason = await _ask("stop", hook, seconds, report, stopping)
            if isinstance(reason, str) and reason:
                return reason
        return None

    async def before_compaction(
        self,
        conversation: ConversationId,
        trigger: str,
        messages: Sequence[Message],
        tokens: int,
        *,
        seconds: float,
        report: Report,
    ) -> None:
        for hook in self._hooks:
            await _ask("before_compaction", hook, seconds, report, conversation, trigger, messages, tokens)


class Failed:
    """In place of an answer: the hook had none to give, and that was reported."""


async def _ask(name: HookName, hook: Hook, seconds: float, report: Report, *about: Any) -> Any:
    """What a hook answers within its time, or :class:`Failed`."""
    try:
        async with asyncio.timeout(hook.seconds or seconds):
            return await getattr(hook.hooks, name)(*about)
    except Exception as error:
        kind = type(hook.hooks).__name__
        log.exception("the %s hook of %s failed", name, kind)
        report(
            name, "timeout: it took too long" if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"
        )
        return Failed()


def _refused(call: PendingCall, error: Exception) -> str:
    if not isinstance(error, InvalidArguments):
        log.error("tool %r failed to validate its arguments", call.tool.name, exc_info=error)
    why = str(error) if isinstance(error, InvalidArguments) else f"they could not be checked ({type(error).__name__})"
    return f"a hook changed the arguments to something the tool refuses: {why}"
