"""The round loop of one frame: drain steering, project, stream the model, record, run tools, again.

Two durable writes make a round: the assistant message with its calls, and the calls' results. Everything else that can
happen (fallback, compaction, a stop, a person's decision) hangs off these.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from skald_core.loop.answer import Answer, DraftWriter
from skald_core.loop.cancel import CancelToken
from skald_core.loop.compaction import (
    CompactionContext,
    Completion,
    Trigger,
    estimate_tokens,
    known_tokens,
    should_compact,
)
from skald_core.loop.delegate import Delegation
from skald_core.loop.errors import (
    ConfigError,
    ContextLengthError,
    HookError,
    LoopError,
    ProtocolError,
    RetryableModelError,
    TurnLimitError,
)
from skald_core.loop.events import (
    AssistantEvent,
    CallView,
    CompactionEvent,
    ErrorEvent,
    Event,
    ModelFallbackEvent,
    PartialAssistantEvent,
    ResultEvent,
    RoundStartedEvent,
    SubagentEvent,
    SystemEvent,
    UsageEvent,
    UserEvent,
)
from skald_core.loop.gate import mode_of
from skald_core.loop.hooks import AddContext, Block, Prompt, Stopping
from skald_core.loop.loading import offered
from skald_core.loop.media import TurnMedia
from skald_core.loop.ops import (
    AppendMessage,
    ClearDraft,
    CloseFrame,
    CloseRun,
    DeleteQueued,
    Dequeue,
    HoldQueue,
    NewCall,
    Op,
    OpenFrame,
    SaveCheckpoint,
    SettleCalls,
    UpdateMessage,
    message_from,
)
from skald_core.loop.profile import Limits, Profile, SystemContext, SystemPrompt
from skald_core.loop.projection import CANCELLED, Projection, loading_of
from skald_core.loop.provider import CallDelta, ModelHandle, ReasoningDelta, TextDelta
from skald_core.loop.records import Call, Checkpoint, Frame, LoadedFrame, Message, QueuedInput
from skald_core.loop.scheduler import Scheduler
from skald_core.loop.services import Committer, Emit, Outcome, Services, TurnState
from skald_core.loop.telling import (
    ask_prompt_hook,
    error_kind,
    plain_words,
    refuse,
    reporter,
    results_event,
    user_event,
)
from skald_core.loop.text_calls import TextCallHold, parse_text_calls
from skald_core.loop.tools import ToolContext, ToolRegistry
from skald_core.loop.types import (
    CallId,
    FrameId,
    MessageId,
    ModelRequest,
    SystemBlock,
    TextPart,
    ToolSpec,
    WireMessage,
)

__all__ = ("FrameRun",)

log = logging.getLogger(__name__)


class TurnFailed(Exception):
    """Ends a frame's work with an error that was not the frame's own doing; carries what to tell."""

    def __init__(self, error: Exception, *, tried: tuple[str, ...] = (), partial: MessageId | None = None) -> None:
        self.error = error
        self.tried = tried
        self.partial = partial


class FrameRun:
    """One frame at work within a turn. Create it, then :meth:`run` it once."""

    def __init__(
        self,
        services: Services,
        turn: TurnState,
        loaded: LoadedFrame,
        profile: Profile,
        *,
        token: CancelToken,
        emit: Emit,
        resumed: bool = False,
    ) -> None:
        self._services = services
        self._turn = turn
        self._profile = profile
        self._limits: Limits = profile.limits or services.limits
        self._token = token
        self._emit = emit
        self._resumed = resumed
        self._commit = Committer(services.store, token)
        self._frame: Frame = loaded.frame
        self._root = loaded.frame.depth == 0
        self._messages: list[Message] = list(loaded.messages)
        self._checkpoint: Checkpoint | None = loaded.checkpoint
        self._head: MessageId | None = loaded.frame.head
        self._projection = Projection(profile.projection)
        self._media = TurnMedia(services.media, self._limits)
        self._handle: ModelHandle | None = None
        self._prompt = SystemPrompt()
        self._prompt_for: str | None = None
        self._context_tokens = 0
        self._forced_compaction = False
        self._compaction_failed = False
        self._rounds = 0
        self._continued = 0
        self._open_round: MessageId | None = None  # the message whose calls are at work
        scope: dict[type[Any], Any] = {**profile.scope, Delegation: Delegation(self._spawn)}
        self._scheduler = Scheduler(
            services,
            turn,
            loaded.frame,
            limits=self._limits,
            scope=scope,
            token=token,
            committer=self._commit,
            emit=emit,
        )

    # -- the whole of it ---------------------------------------------------------------------------------------------

    async def run(self, *opened: Event, broken: Exception | None = None) -> Outcome:
        """Work until the frame has an answer, fails, or is stopped. Raises CancelledError only when the process ends.

        Emits everything but the turn's ``result``. ``opened`` are the events that begin it, told after ``system``;
        ``broken`` is why the frame cannot work at all.
        """
        try:
            return await self._run(opened, broken)
        except asyncio.CancelledError:
            if not self._token.cancelled:
                raise
            await self._settle()
            return Outcome("aborted", self._said(), "error", reason=self._token.reason)
        except TurnFailed as failed:
            return await self._failed(failed)
        except Exception as error:
            log.exception("a turn failed unexpectedly")
            return await self._failed(TurnFailed(error))

    async def _run(self, opened: Sequence[Event], broken: Exception | None) -> Outcome:
        selection = broken
        try:
            if broken is None:
                self._handle = await self._services.selector.select(pin=self._profile.pin)
        except Exception as error:  # noqa: BLE001 -- told after the turn's first events
            selection = error
        handle = self._handle
        registry = self._registry() if handle else ToolRegistry()
        frame = self._frame
        self._emit(
            SystemEvent(
                frame.conversation, frame.id, self._turn.run_id, frame.agent,
                handle.model if handle else "", handle.id if handle else "",
                tuple(sorted(tool.name for tool in registry)), self._resumed, frame.depth, frame.parent_call,
                mode_of(self._services.gate), self._profile.cwd,
            )
        )  # fmt: skip
        for event in opened:
            self._emit(event)
        if selection is not None:
            raise TurnFailed(selection)
        pending = await self._take_up(registry)
        if pending is not None:
            return pending
        return await self._loop()

    async def _take_up(self, registry: ToolRegistry) -> Outcome | None:
        """Finish calls an earlier run left open. Gives the outcome when nothing is left to do after that.

        Only a resumed turn does: a person who talks on while a call waits has not answered it.
        """
        if not self._resumed:
            return None
        for index, message in enumerate(self._messages):
            if all(call.terminal for call in message.calls):
                continue
            for call in message.calls:
                if not call.terminal and await self._services.store.child_frames(call.id):
                    self._scheduler.approve(call.id)
            self._open_round = message.id
            calls, suspended = await self._scheduler.execute(message.calls, registry)
            self._messages[index] = ended = msgspec.structs.replace(message, calls=tuple(calls))
            self._projection.reset()
            if suspended:
                return Outcome("suspended", self._said(), "tool_use")
            self._answered(ended)
        last = self._messages[-1] if self._messages else None
        if last is not None and last.role == "assistant" and not last.calls and last.status == "ok":
            return Outcome("success", last.content, "end_turn", last.id)
        return None

    async def _loop(self) -> Outcome:
        while True:
            self._commit.checkpoint()
            if self._rounds >= self._limits.rounds:
                raise TurnFailed(
                    TurnLimitError(
                        f"stopped after {self._rounds} rounds of model calls, the most one turn may use; "
                        "say 'continue' to go on"
                    )
                )
            await self._drain_steering()
            await self._compact_if_full()
            message, answer = await self._round()
            if message.calls:
                self._open_round = message.id
                calls, suspended = await self._scheduler.execute(message.calls, self._registry())
                self._messages[-1] = ended = msgspec.structs.replace(message, calls=tuple(calls))
                if not suspended:
                    self._answered(ended)
                self._commit.checkpoint()
                if suspended:
                    return Outcome("suspended", answer.text, "tool_use", message.id)
                if self._turn.interrupted:
                    return Outcome("interrupted", self._said(), "error", message.id)
                continue
            if await self._drain_steering():
                continue
            if await self._stop_hook(answer):
                continue
            return Outcome("success", message.content, answer.stop_reason, message.id)

    # -- one round ---------------------------------------------------------------------------------------------------

    async def _round(self) -> tuple[Message, Answer]:
        self._rounds += 1
        self._forced_compaction = False
        if self._root:
            self._turn.rounds = self._rounds
            self._turn.phase = "model"
        began = time.perf_counter()
        answer, draft = await self._ask_model()
        handle = self._need_handle()
        calls: tuple[NewCall, ...] = answer.calls or answer.written
        content = "" if answer.written else answer.text
        message = await self._append(
            answer, content, calls, handle, status="ok", duration_ms=round((time.perf_counter() - began) * 1000),
            draft=draft, metadata={},
        )  # fmt: skip
        self._turn.usage = self._turn.usage + answer.usage
        frame = self._frame
        self._emit(
            UsageEvent(
                frame.conversation, frame.id, answer.usage, self._turn.usage, handle.model, handle.id,
                handle.info.context_window,
            )
        )  # fmt: skip
        self._context_tokens = answer.usage.input_tokens + answer.usage.output_tokens
        return message, answer

    async def _append(
        self,
        answer: Answer,
        content: str,
        calls: tuple[NewCall, ...],
        handle: ModelHandle,
        *,
        status: Any,
        duration_ms: int,
        draft: bool,
        metadata: dict[str, Any],
    ) -> Message:
        """Store an answer, remember it, and tell of it."""
        at = self._services.clock()
        op = AppendMessage(
            self._frame.id, "assistant", content, reasoning=answer.reasoning, reasoning_signature=answer.signature,
            status=status, metadata=metadata, replay=answer.metadata, provider=handle.provider.id, model=handle.model,
            usage=answer.usage if answer.ended else None, duration_ms=duration_ms, calls=calls, at=at,
        )  # fmt: skip
        ops: list[Op] = [op]
        if draft:
            ops.append(ClearDraft(self._frame.id))
        stored = (await self._commit.commit(*ops))[0]
        message = Message(
            id=MessageId(stored.id), frame=self._frame.id, parent=self._head, role="assistant", content=content,
            reasoning=op.reasoning, reasoning_signature=op.reasoning_signature, status=status, metadata=metadata,
            replay=op.replay, provider=op.provider, model=op.model, usage=op.usage, created_at=at,
            duration_ms=duration_ms,
            calls=tuple(
                Call(CallId(call), MessageId(stored.id), index, use_id, new.name, new.arguments, "running", started_at=at)
                for index, (call, use_id, new) in enumerate(zip(stored.calls, stored.tool_use_ids, calls, strict=True))
            ),
        )  # fmt: skip
        self._messages.append(message)
        self._head = message.id
        if self._root:
            self._turn.text.clear()
            self._turn.reasoning.clear()
        self._emit(
            AssistantEvent(
                self._frame.conversation, self._frame.id, message.id, content, op.reasoning,
                tuple(CallView(c.id, c.tool_use_id, c.name, c.arguments) for c in message.calls),
                answer.stop_reason if answer.ended else "error", status, not calls, op.usage, handle.model, handle.id,
                message.parent, at, duration_ms, stored.siblings,
            )
        )  # fmt: skip
        return message

    async def _ask_model(self) -> tuple[Answer, bool]:
        """An answer, from the first model that gives one; and whether a draft of it is stored.

        Another model is asked only while nothing of an answer was shown.
        """
        tried: list[str] = []
        handle = self._need_handle()
        frame = self._frame
        self._emit(RoundStartedEvent(frame.conversation, frame.id, self._rounds, handle.model, handle.id))
        while True:
            self._commit.checkpoint()
            handle = self._need_handle()
            try:
                answer, draft = await self._stream(handle)
            except ContextLengthError as error:
                if await self._make_room():
                    continue
                raise TurnFailed(error, tried=(*tried, handle.id)) from None
            except (TurnFailed, asyncio.CancelledError):
                raise
            except Exception as error:  # noqa: BLE001 -- a provider may raise anything; all of it ends here
                tried.append(handle.id)
                self._report_failure(handle, error)
                await self._fall_back(handle, error, tried)
                continue
            self._report_success(handle)
            return answer, draft

    async def _fall_back(self, handle: ModelHandle, error: Exception, tried: list[str]) -> None:
        """Take another model, or raise TurnFailed."""
        if not isinstance(error, RetryableModelError) or len(set(tried)) >= self._limits.model_attempts:
            raise TurnFailed(error, tried=tuple(tried)) from None
        try:
            other = await self._services.selector.select(exclude=frozenset(tried))
        except ConfigError:
            raise TurnFailed(error, tried=tuple(tried)) from None
        if other.id in tried:
            raise TurnFailed(error, tried=tuple(tried)) from None
        self._handle = other
        self._emit(
            ModelFallbackEvent(
                self._frame.conversation, self._frame.id, handle.id, other.id, str(error), error_kind(error)
            )
        )  # fmt: skip

    async def _stream(self, handle: ModelHandle) -> tuple[Answer, bool]:
        """One model call. Failing after output stores what there is and raises TurnFailed."""
        registry = self._registry()
        request = await self._request(handle, registry)
        answer = Answer()
        names = list(dict.fromkeys([*(spec.name for spec in request.tools), *self._projection.active]))
        hold = TextCallHold(names)
        draft = DraftWriter(self._services.store, self._frame.id, handle.model)
        began = time.perf_counter()
        stream = handle.provider.stream(request)
        try:
            async for event in stream:
                answer.add(event)
                if answer.ended:
                    break
                self._show(event, answer, hold, draft)
            if not answer.ended:
                raise ProtocolError(f"the provider {handle.provider.id!r} ended its stream without an end mark")
            if not answer.calls and not answer.text and not answer.reasoning and not self._after_tools():
                raise ProtocolError("the model gave an empty answer")
        except asyncio.CancelledError:
            draft.stop(keep=not self._token.cancelled)
            if self._token.cancelled:
                await self._keep_partial(answer, handle, began, draft, {"stopped": self._token.reason or "stopped"})
            raise
        except Exception as error:
            draft.stop()
            if not answer.shown:
                raise
            self._report_failure(handle, error)
            about = {"error": {"kind": error_kind(error), "message": plain_words(error)}}
            partial = await self._keep_partial(answer, handle, began, draft, about)
            raise TurnFailed(error, tried=(handle.id,), partial=partial) from None
        finally:
            draft.stop()
            close: Callable[[], Awaitable[None]] | None = getattr(stream, "aclose", None)
            if close is not None:
                await close()
        if not answer.calls:
            answer.written = tuple(
                NewCall(call.name, call.arguments) for call in parse_text_calls(answer.text, names) or ()
            )
            if hold.held and not answer.written:
                self._tell(hold.finish(), "text")
        return answer, draft.wrote

    def _show(self, event: object, answer: Answer, hold: TextCallHold, draft: DraftWriter) -> None:
        """Pass a piece of output on, unless it may still turn out to be a call written as text."""
        if isinstance(event, TextDelta):
            if event.text:
                draft.add(event.text, "")
                shown = hold.feed(event.text)
                if shown:
                    answer.shown = True
                    self._tell(shown, "text")
        elif isinstance(event, ReasoningDelta):
            if event.text:
                answer.shown = True
                draft.add("", event.text)
                self._tell(event.text, "reasoning")
        elif isinstance(event, CallDelta):
            answer.shown = True
            if not self._services.partials:
                return
            self._emit(
                PartialAssistantEvent(
                    self._frame.conversation, self._frame.id, "tool_input", event.text, event.id,
                    answer.name_of(event.id),
                )
            )  # fmt: skip

    def _tell(self, text: str, kind: Any) -> None:
        if self._root:
            (self._turn.text if kind == "text" else self._turn.reasoning).append(text)
        if self._services.partials:
            self._emit(PartialAssistantEvent(self._frame.conversation, self._frame.id, kind, text))

    async def _keep_partial(
        self, answer: Answer, handle: ModelHandle, began: float, draft: DraftWriter, about: dict[str, Any]
    ) -> MessageId | None:
        """Store the text of an answer that broke off. Calls in it never ran and are left out."""
        if not answer.text and not answer.reasoning:
            if draft.wrote:
                await self._commit.commit(ClearDraft(self._frame.id))
            return None
        message = await self._append(
            answer, answer.text, (), handle, status="partial",
            duration_ms=round((time.perf_counter() - began) * 1000), draft=draft.wrote, metadata=about,
        )  # fmt: skip
        return message.id

    async def _request(self, handle: ModelHandle, registry: ToolRegistry) -> ModelRequest:
        """The request for ``handle``, whose abilities and provider decide how history looks."""
        if self._prompt_for != handle.id:
            self._prompt = await self._profile.prompt(
                SystemContext(
                    self._frame.conversation, self._frame.id, self._frame.agent, handle.info,
                    tuple(tool.name for tool in registry), self._profile.scope, self._frame.depth,
                )
            )  # fmt: skip
            self._prompt_for = handle.id
        media = await self._media.load(self._messages, handle.info, self._profile.scope)
        deferred = registry.deferred()
        messages = self._projection.request(
            self._messages,
            checkpoint=self._checkpoint,
            info=handle.info,
            provider=handle.provider.id,
            media=media,
            tail=self._prompt.tail,
            deferred=deferred,
        )
        tools: tuple[ToolSpec, ...] = ()
        if "tools" in handle.info.capabilities:
            loading = loading_of(self._profile.projection, handle.info)
            tools = offered(registry, deferred, self._projection.active, loading)
        self._turn.request += 1
        return ModelRequest(
            model=handle.model,
            system=self._prompt.blocks,
            messages=messages,
            tools=tools,
            max_output_tokens=self._limits.output_tokens,
            temperature=self._profile.temperature,
            effort=self._profile.effort,
            cache_key=self._frame.conversation,
            request_id=f"{self._turn.run_id}-{self._turn.request}",
            info=handle.info,
            extra={**handle.extra, **self._profile.extra} if self._profile.extra else handle.extra,
        )

    def _registry(self) -> ToolRegistry:
        registry = self._profile.registry(self._need_handle().info)
        if not self._root and any(tool.root_only for tool in registry):
            return registry.filtered(lambda tool: not tool.root_only)
        return registry

    def _need_handle(self) -> ModelHandle:
        if self._handle is None:
            raise ConfigError("no model was selected")
        return self._handle

    def _after_tools(self) -> bool:
        """Whether an empty answer is fine: a model that just saw results may have nothing to add."""
        return bool(self._messages and self._messages[-1].calls)

    def _report_success(self, handle: ModelHandle) -> None:
        try:
            self._services.selector.report_success(handle.id)
        except Exception:
            log.exception("the model selector failed to take a report")

    def _report_failure(self, handle: ModelHandle, error: Exception) -> None:
        try:
            self._services.selector.report_failure(handle.id, error)
        except Exception:
            log.exception("the model selector failed to take a report")

    # -- steering and hooks ------------------------------------------------------------------------------------------

    async def _drain_steering(self) -> bool:
        """Add what people said meanwhile. True when something was added."""
        if not self._root or not self._turn.steering or self._turn.interrupted:
            return False
        added = False
        waiting = {item.id: item for item in await self._services.store.queued(self._frame.conversation)}
        for queued, told in list(self._turn.steering.items()):
            # Taken out only once it is dealt with: what an error leaves here is answered when the turn ends.
            item = waiting.get(queued)
            if item is None:
                refuse(told, ConfigError("the steering message was deleted before it was used"))
            else:
                added = await self._join(item, told) or added
            self._turn.steering.pop(queued, None)
        return added

    async def _join(self, item: QueuedInput, told: asyncio.Future[MessageId] | None) -> bool:
        """Make a steering message part of the turn. False when a hook refuses it."""
        verdict = await self.ask_prompt_hook(
            Prompt(item.conversation, item.content, "steer", item.attachments, item.metadata)
        )
        if isinstance(verdict, Block):
            await self._commit.commit(DeleteQueued(item.id))
            refuse(told, HookError(verdict.reason))
            return False
        context = verdict.text if verdict is not None else ""
        op = Dequeue(item.id, self._frame.id, context, self._services.clock())
        (stored,) = await self._commit.commit(op)
        made = message_from(item, op)
        message = Message(
            id=MessageId(stored.id), frame=self._frame.id, parent=self._head, role="user", content=made.content,
            synthetic=made.synthetic, client_id=item.client_id, attachments=made.attachments, metadata=made.metadata,
            created_at=op.at,
        )  # fmt: skip
        self._messages.append(message)
        self._head = message.id
        self._emit(user_event(self._frame, message, "steering", item.id))
        if told is not None and not told.done():
            told.set_result(message.id)
        return True

    async def ask_prompt_hook(self, prompt: Prompt) -> Block | AddContext | None:
        return await ask_prompt_hook(self._services, prompt, self._limits, self._frame.id, self._emit)

    async def _stop_hook(self, answer: Answer) -> bool:
        """Whether a hook sends the turn on."""
        hooks = self._services.hooks
        if not self._root or not hooks or self._continued >= self._limits.stop_continues:
            return False
        if self._turn.interrupted:
            return False
        frame = self._frame
        reason = await hooks.stop(
            Stopping(frame.conversation, frame.id, answer.stop_reason, answer.text, self._continued),
            seconds=self._limits.hook_seconds, report=reporter(frame.conversation, frame.id, self._emit),
        )  # fmt: skip
        if not reason:
            return False
        self._continued += 1
        at = self._services.clock()
        op = AppendMessage(frame.id, "user", reason, synthetic=True, metadata={"source": "stop_hook"}, at=at)
        (stored,) = await self._commit.commit(op)
        message = Message(
            id=MessageId(stored.id), frame=frame.id, parent=self._head, role="user", content=reason, synthetic=True,
            metadata=op.metadata, created_at=at,
        )  # fmt: skip
        self._messages.append(message)
        self._head = message.id
        self._emit(user_event(frame, message, "stop_hook"))
        return True

    # -- compaction --------------------------------------------------------------------------------------------------

    async def _compact_if_full(self) -> None:
        settings = self._services.compaction
        if not settings.automatic or self._compaction_failed:
            return
        handle = self._need_handle()
        tokens = self._context_tokens
        if not tokens:
            tokens = self._context_tokens = known_tokens(self._messages, self._checkpoint)
        if should_compact(tokens, handle.info, fraction=settings.fraction, threshold=settings.threshold):
            try:
                await self.compact("threshold", tokens)
            except Exception as error:  # noqa: BLE001 -- a strategy is foreign code
                # The turn goes on with the long history; the model itself says when it is too long.
                log.warning("compaction failed: %s", error)
                self._compaction_failed = True

    async def _make_room(self) -> bool:
        """After a request was refused as too long: compact, once a round. True when the next one is shorter."""
        if self._forced_compaction:
            return False
        self._forced_compaction = True
        try:
            return await self.compact("forced", self._context_tokens or estimate_tokens(self._messages))
        except Exception as error:  # noqa: BLE001 -- a strategy is foreign code; the first error is told instead
            log.warning("compaction failed: %s", error)
            return False

    async def compact(self, trigger: Trigger, tokens: int) -> bool:
        """Summarize the older part of the branch. False when there is nothing to cover; raises what the strategy raises."""
        settings = self._services.compaction
        frame = self._frame
        messages = tuple(self._messages)
        if self._handle is None:
            self._handle = await self._services.selector.select(pin=self._profile.pin)
        handle = self._handle
        if settings.pin is not None:
            try:
                handle = await self._services.selector.select(pin=settings.pin)
            except ConfigError as error:
                log.warning("the model chosen for summaries cannot be used: %s", error)
        await self._services.hooks.before_compaction(
            frame.conversation, trigger, messages, tokens, seconds=self._limits.hook_seconds,
            report=reporter(frame.conversation, frame.id, self._emit),
        )  # fmt: skip
        phase = self._turn.phase
        if self._root:
            self._turn.phase = "compacting"
        try:
            async with asyncio.timeout(settings.seconds):
                result = await settings.strategy.compact(
                    CompactionContext(
                        frame.conversation, frame.id, messages, self._checkpoint, handle.info, tokens, trigger,
                        lambda system, prompt, most: self._complete(handle, system, prompt, most),
                    )
                )  # fmt: skip
        finally:
            if self._root:
                self._turn.phase = phase
        ids = [message.id for message in messages]
        if result is None or not result.summary.strip() or result.covered_up_to not in ids[:-1]:
            return False
        op = SaveCheckpoint(
            frame.id, result.summary, result.covered_up_to, tokens, result.model, self._services.clock()
        )
        (stored,) = await self._commit.commit(op)
        self._checkpoint = Checkpoint(
            stored.id, frame.id, op.summary, op.covered_up_to, op.at, op.tokens_before, op.model
        )
        self._messages = self._messages[ids.index(result.covered_up_to) + 1 :]
        self._projection.reset()
        self._context_tokens = estimate_tokens(self._messages) + len(op.summary) // 4
        self._emit(
            CompactionEvent(
                frame.conversation, frame.id, stored.id, op.covered_up_to, trigger, settings.strategy.id,
                len(messages), len(self._messages), tokens, self._context_tokens, result.usage,
            )
        )  # fmt: skip
        return True

    async def _complete(self, handle: ModelHandle, system: str, prompt: str, most: int) -> Completion:
        """One plain answer, for a strategy."""
        answer = Answer()
        self._turn.request += 1
        request = ModelRequest(
            model=handle.model,
            system=(SystemBlock(system),),
            messages=(WireMessage("user", (TextPart(prompt),)),),
            max_output_tokens=most,
            cache=False,
            request_id=f"{self._turn.run_id}-{self._turn.request}",
            info=handle.info,
            extra=handle.extra,
        )
        async for event in handle.provider.stream(request):
            answer.add(event)
        return Completion(answer.text, answer.usage, handle.model)

    # -- ends --------------------------------------------------------------------------------------------------------

    def _said(self) -> str:
        """The text of the last assistant message."""
        return next((m.content for m in reversed(self._messages) if m.role == "assistant" and m.content), "")

    async def _settle(self) -> None:
        """After a stop: every open call of this frame gets its result, its event, and its start if that never came."""
        at = self._services.clock()
        text = f"Cancelled: {self._token.reason}." if self._token.reason else CANCELLED
        ops: list[Op] = [SettleCalls(self._frame.id, "cancelled", text, "cancelled", False, at)]
        if self._root:
            # In one batch: a crash in between must not take up again what a person stopped.
            ops += [HoldQueue(self._frame.conversation), CloseRun(self._frame.conversation)]
        settled = (await self._commit.commit(*ops))[0]
        await self._tell_settled(settled.settled, text)

    async def _tell_settled(self, settled: Sequence[CallId], text: str) -> None:
        """Tell of calls that were given ``text`` as their result, and of the results of every round that ended with it."""
        store = self._services.store
        ended = dict.fromkeys([self._open_round] if self._open_round is not None else [])
        for call_id in settled:
            call = await store.call(call_id)
            if call is not None:
                self._scheduler.settled(call.message, call, text)
                ended[call.message] = None
            for child in await store.child_frames(call_id):
                if child.active:
                    await self._commit.commit(CloseFrame(child.id))
        for message in [message for message in self._messages if message.id in ended]:
            calls = [await store.call(call.id) for call in message.calls]
            whole = msgspec.structs.replace(message, calls=tuple(call for call in calls if call is not None))
            if all(call.terminal for call in whole.calls):
                self._answered(whole)

    def _answered(self, message: Message) -> None:
        """Tell of a round's results: all its calls have ended."""
        self._open_round = None
        self._emit(results_event(self._frame, message, self._limits.event_chars))

    async def _failed(self, failed: TurnFailed) -> Outcome:
        """Tell of a failure, and leave a mark in the history that offers a retry."""
        error = failed.error
        frame = self._frame
        kind, text = error_kind(error), plain_words(error)
        about = {"error": {"kind": kind, "message": text, "tried": list(failed.tried)}}
        broken = "Interrupted: the turn failed."
        ops: list[Op] = [SettleCalls(frame.id, "failed", broken, "interrupted", True, self._services.clock())]
        if failed.partial is None:
            last = self._messages[-1] if self._messages else None
            if last is not None and last.role == "user" and kind in ("invalid_request", "context_length"):
                # The message itself is what the model refuses: left in, it would break every later turn too.
                ops.append(UpdateMessage(last.id, status="failed"))
            if self._root:
                ops.append(
                    AppendMessage(frame.id, "assistant", "", status="failed", metadata=about, at=self._services.clock())
                )
        if self._root:
            ops += [HoldQueue(frame.conversation), CloseRun(frame.conversation)]
        try:
            settled = (await self._commit.commit(*ops))[0]
            await self._tell_settled(settled.settled, broken)
        except LoopError:
            log.exception("a failed turn could not be marked")
        detail = getattr(error, "detail", "")
        self._emit(
            ErrorEvent(
                frame.conversation, frame.id, kind, text, bool(getattr(error, "retryable", False)),
                detail if isinstance(detail, str) else "", failed.tried, type(error).__name__,
            )
        )  # fmt: skip
        exhausted = isinstance(error, TurnLimitError)
        return Outcome("error", self._said(), "error", failed.partial, text, exhausted)

    # -- sub-agents --------------------------------------------------------------------------------------------------

    async def _spawn(self, ctx: ToolContext, agent: str, prompt: str, title: str, model: str | None) -> Outcome:
        """Run another agent in a child frame to answer ``ctx.call_id``; one left over from a crash is taken up again."""
        store = self._services.store
        parent = self._frame
        children = [frame for frame in await store.child_frames(ctx.call_id) if frame.active]
        resumed = bool(children)
        if resumed:
            child_id = children[-1].id
            agent = children[-1].agent
            model = children[-1].meta.get("model")
        else:
            if agent == parent.agent:
                raise ConfigError(f"the agent {agent!r} cannot call itself")
            if parent.depth + 1 > self._limits.depth:
                raise ConfigError(f"sub-agents may nest {self._limits.depth} deep; do this part here instead")
        profile = await self._services.profiles(parent.conversation, agent)
        if model is not None:
            profile = msgspec.structs.replace(profile, pin=model)
        opened: tuple[Event, ...] = ()
        if not resumed:
            at = self._services.clock()
            frame, said = await self._commit.commit(
                OpenFrame(
                    parent.conversation,
                    agent,
                    parent.id,
                    ctx.call_id,
                    parent.depth + 1,
                    title,
                    {"model": model} if model is not None else {},
                    at,
                ),
                AppendMessage(None, "agent", prompt, at=at),
            )
            child_id = FrameId(frame.id)
            opened = (UserEvent(parent.conversation, child_id, MessageId(said.id), prompt, "agent", created_at=at),)
        self._scheduler.closing[ctx.call_id] = child_id
        loaded = await store.load(child_id)
        assert loaded is not None

        def emit(event: Event) -> None:
            self._emit(SubagentEvent(parent.conversation, parent.id, child_id, ctx.call_id, agent, title, event))

        token = self._token.child()
        run = FrameRun(self._services, self._turn, loaded, profile, token=token, emit=emit, resumed=resumed)
        began = time.perf_counter()
        outcome = await run.run(*opened)
        emit(
            ResultEvent(
                parent.conversation, child_id, self._turn.run_id, outcome.kind, outcome.stop_reason, self._turn.usage,
                round((time.perf_counter() - began) * 1000), run.rounds, outcome.text, outcome.message, outcome.reason,
            )
        )  # fmt: skip
        if outcome.kind == "aborted" and self._token.cancelled:
            raise asyncio.CancelledError
        return outcome

    @property
    def rounds(self) -> int:
        return self._rounds
