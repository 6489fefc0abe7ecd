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
from skald_core.loop.tools import Tool
from skald_core.plugins.contributions import Allow, Answer, Choice, Deny, GateCall, Require
from skald_core.plugins.dispatcher import Dispatcher

__all__ = ("JUDGE_SECONDS", "Interactive", "PluginGate", "gate_call")

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

    ``mode`` is what a turn calls this way of judging: by what plugins say. ``no_judge`` words the denial when no enabled
    plugin judges; ``card`` adds what the kernel knows to a request's card; ``offered`` says whether
    the user still has a tool.
    """

    mode = "plugins"

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        visible: Callable[[str], frozenset[str]],
        requests: HumanRequests,
        no_judge: Callable[[], str],
        unjudged: Callable[[str], None],
        card: Callable[[PendingCall], Any],
        offered: Callable[[Tool], bool],
        lifetime: float | None,
    ) -> None:
        self._dispatcher = dispatcher
        self._visible = visible
        self._requests = requests
        self._no_judge = no_judge
        self._unjudged = unjudged
        self._card = card
        self._offered = offered
        self._lifetime = lifetime
        self._opening = asyncio.Lock()
        self._hooked: set[int] = set()
        self._edited: dict[int, Answer] = {}  # calls a person allowed with other arguments, until those are judged

    def expect(self, call: PendingCall) -> None:
        """A hook wants a person asked about ``call``, which is judged next: a card of it from before a restart stays."""
        self._hooked.add(int(call.context.call_id))

    async def judge(self, calls: Sequence[PendingCall]) -> Sequence[Verdict]:
        verdicts: list[Verdict] = []
        for call in calls:
            verdict = await self._judge(call)
            edited = self._edited.pop(int(call.context.call_id), None)
            if edited is not None and isinstance(verdict, Ask):
                verdict = await self._settle(verdict.state, edited)  # whoever wrote the arguments has answered this
            hooked = int(call.context.call_id) in self._hooked
            self._hooked.discard(int(call.context.call_id))
            if not (isinstance(verdict, Ask) or (hooked and isinstance(verdict, loop_gate.Allow))):
                # Judged anew after a restart, the call may need nobody any more: its old card must not stay.
                await self._requests.withdraw(call.context.conversation, int(call.context.call_id))
            verdicts.append(verdict)
        return verdicts

    async def _judge(self, call: PendingCall) -> Verdict:
        try:
            question = gate_call(call)
        except LookupError as error:
            return loop_gate.Deny(f"refused: {error}")
        if not self._offered(call.tool):
            return _taken_away(call)
        user = question.user
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
                    wrong = f"skald_gate returned {type(other).__name__}, not Allow, Deny, Require or None"
                    self._dispatcher.fault(outcome.plugin, "skald_gate", wrong)
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
        # Without a state it is no judge that asks but a hook, about a call the judges allow.
        require = Require(reason=verdict.reason) if verdict.state is None else verdict.state
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
        if not self._offered(call.tool):  # the plugin was disabled or taken from the user while they were asked
            return _taken_away(call)
        if answer.allow and answer.arguments is not None:
            # The call as it was shown will not run, so that is what its judge hears. The loop validates the new arguments
            # and has them judged like any call's; see `judge`.
            await self._settle(require, _refused(answer, require.choices or _CHOICES))
            self._edited[call_id] = answer
            return loop_gate.Allow(answer.arguments)
        return await self._settle(require, answer)

    @staticmethod
    async def _settle(require: Any, answer: Answer) -> loop_gate.Allow | loop_gate.Deny:
        """What an answer comes to, after the plugin that asked has heard it."""
        if not isinstance(require, Require):
            return loop_gate.Deny("refused: the question was lost")
        if require.on_answer is not None:
            try:
                await require.on_answer(answer)
            except ToolError as error:  # what was shown is no longer what would happen; the model is told
                return loop_gate.Deny(str(error))
        if answer.allow:
            return loop_gate.Allow()
        note = f" They wrote: {answer.note}" if answer.note else ""
        return loop_gate.Deny(f"The person said no.{note} Do not try to reach the same goal another way.")


def _taken_away(call: PendingCall) -> loop_gate.Deny:
    return loop_gate.Deny(f"refused: the tool {call.tool.name!r} is not available any more")


def _refused(answer: Answer, choices: Sequence[Choice]) -> Answer:
    """The same answer as a refusal."""
    deny = next((choice.id for choice in choices if not choice.allow), answer.choice)
    return msgspec.structs.replace(answer, choice=deny, allow=False, arguments=None)


def gate_call(call: PendingCall) -> GateCall:
    """A call as plugins judge it. Raises LookupError for a turn that belongs to no user."""
    return GateCall(
        user=call.context.get(User),
        conversation=call.context.conversation,
        agent=call.context.agent,
        tool=call.tool,
        raw=call.raw,
        arguments=call.arguments,
        summary=call.summary,
        path=call.tool.target_path(call.arguments),
        files=call.context.get(UserFs),
        interactive=_interactive(call),
        pending=call,
    )


def _interactive(call: PendingCall) -> bool:
    try:
        return call.context.get(Interactive).value
    except LookupError:
        return False
