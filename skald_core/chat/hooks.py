"""The loop's hooks, filled by plugins. What a failing one means is said with each hook in :mod:`skald_core.hookspecs`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import msgspec

from skald_core.chat.gate import JUDGE_SECONDS, gate_call
from skald_core.chat.turns import TurnWatch
from skald_core.errors import BadInput
from skald_core.loop import gate as loop_gate
from skald_core.loop.compaction import CompactionContext, CompactionResult, KeepTail
from skald_core.loop.gate import PendingCall
from skald_core.loop.hooks import AddContext, Block, MustAsk, NoHooks, Rewrite, Stopping, ToolHookVerdict
from skald_core.loop.records import Message
from skald_core.loop.store import Store
from skald_core.loop.text import clean, cut
from skald_core.loop.tools import InvalidArguments, ToolOutput
from skald_core.loop.types import Attachment
from skald_core.plugins.contributions import Deny
from skald_core.plugins.turns import Compaction, PastMessage, TurnStopping, UserPrompt
from skald_core.plugins.user_hooks import UserHooks

__all__ = ("KeepTailTold", "TurnHooks")

PROMPT_SECONDS = 20.0
AFTER_SECONDS = 20.0
STOP_SECONDS = 20.0
COMPACTION_SECONDS = 20.0
"""Seconds one plugin has for one call of each."""

ADDED_CHARS = 20_000
"""How much text one plugin may add to a prompt or a result; more is cut in the middle."""


class TurnHooks(NoHooks):
    """Asks a user's plugins about calls, results and a turn's end.

    A person's words are not asked about here but by :meth:`context_for`, before anything of them is stored: so a refusal is
    an answer to the one who sent them, who still has them, also when they would have had to wait for a running turn.
    """

    def __init__(self, hooks: UserHooks, turns: TurnWatch, asks: Callable[[PendingCall], None]) -> None:
        """``asks`` hears of calls a plugin wants a person asked about."""
        self._hooks = hooks
        self._turns = turns
        self._asks = asks

    async def context_for(
        self, conversation: str, content: str, attachments: tuple[Attachment, ...] = (), *, steering: bool = False
    ) -> str:
        """What plugins add for the model to a person's words. Raises BadInput ``prompt_blocked`` when one refuses them."""
        user = self._turns.turn(conversation).user
        prompt = UserPrompt(user, conversation, content, attachments, steering)
        added: list[str] = []
        async with aclosing(
            self._hooks.ask("skald_user_prompt", {"prompt": prompt}, timeout=PROMPT_SECONDS)
        ) as outcomes:
            async for outcome in outcomes:
                match outcome.value:
                    case None:
                        pass
                    case Block(reason) if isinstance(reason, str):
                        raise BadInput(
                            f"The message was not sent: {reason}", code="prompt_blocked", reason=clean(reason)
                        )
                    case AddContext(text) if isinstance(text, str):
                        added.append(cut(clean(text), ADDED_CHARS))
                    case _:
                        self._hooks.wrong(outcome, "skald_user_prompt", "Block, AddContext or None")
        return "\n\n".join(text for text in added if text)

    async def before_tool(self, call: PendingCall) -> ToolHookVerdict:
        """A denial wins; a rewrite is seen by the plugins after it; any wish to ask a person stands."""
        raw: dict[str, Any] | None = None
        asks = ""
        arguments = {"call": gate_call(call)}
        async with aclosing(self._hooks.ask("skald_before_tool", arguments, timeout=JUDGE_SECONDS)) as outcomes:
            async for outcome in outcomes:
                who = f"the plugin {outcome.plugin!r}"
                if outcome.error is not None:
                    return loop_gate.Deny(f"refused: {who} failed while checking this call")
                match outcome.value:
                    case None:
                        continue
                    case Deny(reason) if isinstance(reason, str):
                        return loop_gate.Deny(clean(reason))
                    case MustAsk(reason, changed) if isinstance(reason, str):
                        asks = asks or clean(reason) or who
                    case Rewrite(changed):
                        pass
                    case _:
                        self._hooks.wrong(outcome, "skald_before_tool", "Rewrite, Deny, MustAsk or None")
                        return loop_gate.Deny(f"refused: {who} gave an answer of the wrong type")
                if changed is None:
                    continue
                try:
                    raw = _plain_arguments(changed)
                    call = call.rewritten(raw)
                except InvalidArguments as error:
                    return loop_gate.Deny(f"{who} changed the arguments to something the tool refuses: {error}")
                except Exception as error:  # noqa: BLE001 -- a tool's own check of what a plugin made up
                    self._hooks.failed(outcome.plugin, "skald_before_tool", error)
                    return loop_gate.Deny(f"refused: the arguments {who} gave could not be checked")
                arguments["call"] = gate_call(call)
        if asks:
            self._asks(call)
            return MustAsk(asks, raw)
        return Rewrite(raw) if raw is not None else None

    async def after_tool(self, call: PendingCall, output: ToolOutput, duration_ms: int) -> str | None:
        arguments = {"call": gate_call(call), "output": output, "duration_ms": duration_ms}
        added: list[str] = []
        async for outcome in self._hooks.ask("skald_after_tool", arguments, timeout=AFTER_SECONDS):
            if isinstance(outcome.value, str):
                added.append(cut(clean(outcome.value), ADDED_CHARS))
            elif outcome.value is not None:
                self._hooks.wrong(outcome, "skald_after_tool", "text or None")
        return "\n".join(text for text in added if text) or None

    async def stop(self, stopping: Stopping) -> str | None:
        about = TurnStopping(
            self._turns.turn(stopping.conversation), stopping.stop_reason, stopping.final_text, stopping.continued
        )
        async with aclosing(self._hooks.ask("skald_stop", {"stopping": about}, timeout=STOP_SECONDS)) as outcomes:
            async for outcome in outcomes:
                if isinstance(outcome.value, str):
                    if outcome.value.strip():
                        return cut(clean(outcome.value), ADDED_CHARS)
                elif outcome.value is not None:
                    self._hooks.wrong(outcome, "skald_stop", "text or None")
        return None


def _plain_arguments(raw: object) -> dict[str, Any]:
    """``raw`` as the JSON object it has to be. Raises InvalidArguments."""
    try:
        made = msgspec.json.decode(msgspec.json.encode(raw))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArguments(f"they are no JSON ({error})") from None
    if not isinstance(made, dict):
        raise InvalidArguments(f"they are no JSON object but {type(raw).__name__}")
    return made


class KeepTailTold(KeepTail):
    """The usual compaction; plugins are told of a conversation's messages, not of a sub-agent's, before they go."""

    def __init__(self, hooks: UserHooks, turns: TurnWatch, store: Store) -> None:
        super().__init__()
        self._hooks = hooks
        self._turns = turns
        self._store = store

    async def compact(self, context: CompactionContext) -> CompactionResult | None:
        covered = self.split(context.messages, room=context.info.context_window // 2)
        root = await self._store.root(context.conversation)
        if covered > 0 and root is not None and root.id == context.frame:
            about = Compaction(
                user=self._turns.turn(context.conversation).user,
                conversation=context.conversation,
                trigger=context.trigger,
                tokens=context.tokens,
                messages=tuple(_past(context.messages[:covered])),
            )
            await self._hooks.tell("skald_before_compaction", {"compaction": about}, timeout=COMPACTION_SECONDS)
        return await super().compact(context)


def _past(messages: tuple[Message, ...]) -> list[PastMessage]:
    """What was said, without what no person wrote and no model said."""
    return [PastMessage(m.role, m.content) for m in messages if m.content and not m.synthetic]
