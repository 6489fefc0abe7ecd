"""The loop's gate, filled by plugins through ``skald_gate``. Anything but a clear allow does not run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from skald_core.chat.human import HumanRequests
from skald_core.files.userfs import UserFs
from skald_core.identity.models import User
from skald_core.loop import gate as loop_gate
from skald_core.loop.errors import ToolError
from skald_core.loop.gate import Ask, PendingCall, Suspend, Verdict
from skald_core.plugins.contributions import Allow, Choice, Deny, GateCall, Require
from skald_core.plugins.dispatcher import Dispatcher

__all__ = ("Interactive", "PluginGate")

log = logging.getLogger("skald.gate")

JUDGE_SECONDS = 20.0

_CHOICES = (
    Choice(id="allow_once", label="request.allow_once", allow=True),
    Choice(id="deny", label="request.deny", allow=False, note=True),
)


class Interactive(msgspec.Struct, frozen=True):
    """In a turn's scope: whether a person is at the other end."""

    value: bool = True


class PluginGate:
    """Judges one user's calls.

    ``no_judge`` words the denial when no enabled plugin judges; ``card`` adds what the kernel knows to a request's card.
    """

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        visible: Callable[[str], frozenset[str]],
        requests: HumanRequests,
        no_judge: Callable[[], str],
        unjudged: Callable[[str], None],
        card: Callable[[PendingCall], Any],
        lifetime: float | None,
    ) -> None:
        self._dispatcher = dispatcher
        self._visible = visible
        self._requests = requests
        self._no_judge = no_judge
        self._unjudged = unjudged
        self._card = card
        self._lifetime = lifetime
        self._opening = asyncio.Lock()

    async def judge(self, calls: Sequence[PendingCall]) -> Sequence[Verdict]:
        verdicts: list[Verdict] = []
        for call in calls:
            verdict = await self._judge(call)
            if not isinstance(verdict, Ask):
                # Judged anew after a restart, the call may need nobody any more: its old card must not stay.
                await self._requests.withdraw(call.context.conversation, int(call.context.call_id))
            verdicts.append(verdict)
        return verdicts

    async def _judge(self, call: PendingCall) -> Verdict:
        try:
            user = call.context.get(User)
            files = call.context.get(UserFs)
        except LookupError as error:
            return loop_gate.Deny(f"refused: {error}")
        question = GateCall(
            user=user,
            conversation=call.context.conversation,
            agent=call.context.agent,
            tool=call.tool,
            raw=call.raw,
            arguments=call.arguments,
            summary=call.summary,
            path=call.tool.target_path(call.arguments),
            files=files,
            interactive=_interactive(call),
            pending=call,
        )
        allowed = False
        required: Require | None = None
        asked = 0
        async for outcome in self._dispatcher.call(
            "skald_gate", {"call": question}, only=self._visible(user.id), timeout=JUDGE_SECONDS
        ):
            asked += 1
            if outcome.error is not None:
                return loop_gate.Deny(f"refused: the plugin {outcome.plugin!r} failed while judging this call")
            match outcome.value:
                case None:
                    continue
                case Deny(reason):
                    return loop_gate.Deny(reason)
                case Require() as require:
                    required = required or require
                case Allow():
                    allowed = True
                case other:
                    log.warning("plugin %s: skald_gate returned %s", outcome.plugin, type(other).__name__)
                    return loop_gate.Deny(f"refused: the plugin {outcome.plugin!r} gave an answer of the wrong type")
        if required is not None:
            return Ask(required.reason, required.details, required)
        if allowed:
            return loop_gate.Allow()
        if not asked:
            self._unjudged(call.context.conversation)
            return loop_gate.Deny(self._no_judge())
        return loop_gate.Deny("refused: no rule allows this call")

    async def ask(self, call: PendingCall, verdict: Ask) -> loop_gate.Allow | loop_gate.Deny | Suspend:
        require = verdict.state
        if not isinstance(require, Require):
            return loop_gate.Deny("refused: the question was lost")
        call_id = int(call.context.call_id)
        async with self._opening:  # calls of one round are asked together; their cards come in the calls' order
            request = await self._requests.open(
                kind="approval",
                conversation=call.context.conversation,
                call_id=call_id,
                card={**await self._card(call), "reason": require.reason, "details": require.details},
                choices=require.choices or _CHOICES,
                lifetime=self._lifetime,
            )
        answer = request.answer or await self._requests.wait(request)
        if answer is None:
            return loop_gate.Deny(
                "Nobody answered this request in time, which counts as no. Do not try to reach the same goal another way; "
                "tell the person what you wanted to do, they can raise it again."
            )
        if require.on_answer is not None:
            try:
                await require.on_answer(answer)
            except ToolError as error:  # what was shown is no longer what would happen; the model is told
                return loop_gate.Deny(str(error))
        if answer.allow:
            return loop_gate.Allow()
        note = f" They wrote: {answer.note}" if answer.note else ""
        return loop_gate.Deny(f"The person said no.{note} Do not try to reach the same goal another way.")


def _interactive(call: PendingCall) -> bool:
    try:
        return call.context.get(Interactive).value
    except LookupError:
        return False
