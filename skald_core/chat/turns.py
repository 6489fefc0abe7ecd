"""Which turns of a user run, and telling plugins of their two ends without making a turn wait."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from skald_core.files.userfs import UserFs
from skald_core.identity.models import User
from skald_core.loop import events as e
from skald_core.loop.profile import SystemContext
from skald_core.loop.types import FrameId
from skald_core.plugins.turns import TurnEnd, TurnInfo
from skald_core.plugins.user_hooks import UserHooks

__all__ = ("TELL_SECONDS", "TurnWatch")

TELL_SECONDS = 30.0
"""How long one plugin may take over one of a turn's ends before it is given up."""


class TurnWatch:
    """A listener of one user's agent.

    ``later(key, work)`` runs work off the turn's path, that of one key in order. ``weak`` says whether a model, by its id,
    is one with little context.
    """

    def __init__(
        self,
        *,
        hooks: UserHooks,
        user: Callable[[], User],
        files: UserFs,
        weak: Callable[[str], bool],
        later: Callable[[str, Coroutine[Any, Any, None]], object],
    ) -> None:
        self._hooks = hooks
        self._user = user
        self._files = files
        self._weak = weak
        self._later = later
        self._turns: dict[str, TurnInfo] = {}
        self._models: dict[str, dict[FrameId, str]] = {}

    def __call__(self, event: e.Event) -> None:
        inner = event
        while isinstance(inner, e.SubagentEvent):
            inner = inner.event
        if isinstance(inner, e.SystemEvent):
            self._models.setdefault(inner.conversation, {})[inner.frame] = inner.model_id
            if inner is event:
                self._began(inner)
        elif isinstance(inner, e.ModelFallbackEvent):
            self._models.setdefault(inner.conversation, {})[inner.frame] = inner.to_model
            turn = self._turns.get(inner.conversation)
            if inner is event and turn is not None:
                model = inner.to_model
                self._turns[inner.conversation] = msgspec.structs.replace(turn, model=model, weak=self._weak(model))
        elif isinstance(event, e.ResultEvent):
            self._ended(event)

    def turn(self, conversation: str) -> TurnInfo:
        """The running turn, or what is known of one about to begin."""
        return self._turns.get(conversation) or TurnInfo(
            user=self._user(), conversation=conversation, agent="", files=self._files
        )

    def of(self, context: SystemContext) -> TurnInfo:
        """The turn as the agent of a frame is told of it."""
        return msgspec.structs.replace(
            self.turn(context.conversation),
            agent=context.agent,
            model=self._models.get(context.conversation, {}).get(context.frame, ""),
            weak=context.info.weak,
            depth=context.depth,
        )

    def _began(self, event: e.SystemEvent) -> None:
        turn = TurnInfo(
            user=self._user(),
            conversation=event.conversation,
            agent=event.agent,
            run_id=event.run_id,
            model=event.model_id,
            weak=self._weak(event.model_id),
            files=self._files,
        )
        self._turns[event.conversation] = turn
        self._tell(turn, "skald_turn_started", {"turn": turn})

    def _ended(self, event: e.ResultEvent) -> None:
        self._models.pop(event.conversation, None)
        turn = self._turns.pop(event.conversation, None)
        if turn is None or turn.run_id != event.run_id:
            return  # it ended before it began: nobody was told of it
        end = TurnEnd(
            outcome="interrupted" if event.subtype == "suspended" else event.subtype,
            duration_ms=event.duration_ms,
            usage=event.total_usage,
            text=event.final_text,
            error=event.reason if event.subtype == "error" else "",
        )
        self._tell(turn, "skald_turn_finished", {"turn": turn, "end": end})

    def _tell(self, turn: TurnInfo, hook: str, arguments: dict[str, Any]) -> None:
        if self._hooks.implemented(hook):
            self._later(f"turn {turn.conversation}", self._hooks.tell(hook, arguments, timeout=TELL_SECONDS))
