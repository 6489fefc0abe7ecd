"""Everything a run tells the outside: a closed union of frozen structs, told apart by ``type``.

Each event names its ``conversation`` and ``frame``. An event is emitted after what it reports was stored, except
``partial_assistant`` and ``tool_progress``, which report work that is still going on. A turn begins with ``system`` and
ends with exactly one ``result``; every ``tool_call_start`` has its ``tool_call_end`` before that, also on a stop. When the
calls of a round have ended, one ``user`` event with the subtype ``tool_result`` holds their results in call order.
"""

from __future__ import annotations

from typing import Any, Literal, TypeGuard

import msgspec

from skald_core.loop.records import MessageStatus, QueuedInput
from skald_core.loop.types import (
    Attachment,
    CallId,
    CallState,
    ConversationId,
    FrameId,
    MessageId,
    ResultKind,
    StopReason,
    Usage,
)

__all__ = (
    "AssistantEvent",
    "CallView",
    "CompactionEvent",
    "ErrorEvent",
    "Event",
    "HookErrorEvent",
    "Lagged",
    "ModelFallbackEvent",
    "PartialAssistantEvent",
    "PermissionRequestEvent",
    "PermissionView",
    "QueueChangedEvent",
    "ResultEvent",
    "ResultSubtype",
    "RoundStartedEvent",
    "SkillCompletedEvent",
    "SkillInvokedEvent",
    "SkillView",
    "SkillsLoadedEvent",
    "SubagentEvent",
    "SystemEvent",
    "ToolCallEndEvent",
    "ToolCallStartEvent",
    "ToolProgressEvent",
    "ToolResultView",
    "UsageEvent",
    "UserEvent",
    "is_assistant",
    "is_compaction",
    "is_error",
    "is_hook_error",
    "is_lagged",
    "is_model_fallback",
    "is_partial_assistant",
    "is_permission_request",
    "is_queue_changed",
    "is_result",
    "is_round_started",
    "is_skill_completed",
    "is_skill_invoked",
    "is_skills_loaded",
    "is_subagent_event",
    "is_system",
    "is_tool_call_end",
    "is_tool_call_start",
    "is_tool_progress",
    "is_usage",
    "is_user",
)

ResultSubtype = Literal["success", "aborted", "error", "interrupted", "suspended"]
"""``aborted``: stopped at once. ``interrupted``: stopped after the round. ``suspended``: a call waits for a person whom
nobody could reach; ``Session.resume`` goes on."""


class SystemEvent(msgspec.Struct, frozen=True, tag_field="type", tag="system"):
    """First event of a turn, before any model call, tool or other event of it; what opens the turn is stored by then.

    ``resumed`` marks a turn taken up again after a restart or a suspension. ``tools`` are sorted. ``permission_mode`` is
    the gate's own word for how it judges (:func:`~skald_core.loop.gate.mode_of`), ``cwd`` the profile's: both may be empty.
    A turn that ends before it could begin (a refused message) has one, too, without a model and tools.
    """

    conversation: ConversationId
    frame: FrameId
    run_id: str
    agent: str
    model: str = ""
    model_id: str = ""
    tools: tuple[str, ...] = ()
    resumed: bool = False
    depth: int = 0
    parent_call: CallId | None = None
    permission_mode: str = ""
    cwd: str = ""
    subtype: Literal["init"] = "init"


class SkillView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A skill as it is announced: what it is for, when to use it, and what its argument is."""

    name: str
    description: str
    when_to_use: str = ""
    argument_hint: str = ""


class SkillsLoadedEvent(msgspec.Struct, frozen=True, tag_field="type", tag="skills_loaded"):
    """The skills of the conversation's agent: right after ``system``, once, and again only when they have changed."""

    conversation: ConversationId
    frame: FrameId
    skills: tuple[SkillView, ...]


class RoundStartedEvent(msgspec.Struct, frozen=True, tag_field="type", tag="round_started"):
    """A model call begins. ``round`` counts from 1 within the turn."""

    conversation: ConversationId
    frame: FrameId
    round: int
    model: str
    model_id: str


class ToolResultView(msgspec.Struct, frozen=True):
    """One result of a round. ``content`` is raw text, cut when long (``truncated``); the store keeps the whole.

    ``media`` are files it brought, which a model that can look at them is shown.
    """

    call_id: CallId
    tool_use_id: str
    tool_name: str
    content: str
    is_error: bool = False
    truncated: bool = False
    media: tuple[Attachment, ...] = ()


class UserEvent(msgspec.Struct, frozen=True, tag_field="type", tag="user"):
    """What models read as the user's side: a user message was stored, or the calls of a round have their results.

    ``queued_id`` is the queued input it was, if it waited. ``siblings`` are the messages that share its place in the tree,
    itself included; empty when it is alone there. With ``subtype="tool_result"``, ``results`` are all of a round in call
    order and ``message_id`` is the assistant message that made the calls: results are kept with it.
    """

    conversation: ConversationId
    frame: FrameId
    message_id: MessageId
    content: str
    subtype: Literal["prompt", "steering", "stop_hook", "synthetic", "agent", "tool_result"] = "prompt"
    parent: MessageId | None = None
    client_id: str = ""
    attachments: tuple[Attachment, ...] = ()
    metadata: dict[str, Any] = {}
    queued_id: int | None = None
    created_at: int = 0
    siblings: tuple[MessageId, ...] = ()
    results: tuple[ToolResultView, ...] = ()


class CallView(msgspec.Struct, frozen=True):
    """A call of an assistant message, before it is judged. ``arguments`` is the model's own JSON text."""

    call_id: CallId
    tool_use_id: str
    tool_name: str
    arguments: str


class AssistantEvent(msgspec.Struct, frozen=True, tag_field="type", tag="assistant"):
    """An assistant message was stored. ``final`` is true for the one that ends the turn; ``siblings`` as in UserEvent."""

    conversation: ConversationId
    frame: FrameId
    message_id: MessageId
    content: str
    reasoning: str = ""
    calls: tuple[CallView, ...] = ()
    stop_reason: StopReason = "end_turn"
    status: MessageStatus = "ok"
    final: bool = False
    usage: Usage | None = None
    model: str = ""
    model_id: str = ""
    parent: MessageId | None = None
    created_at: int = 0
    duration_ms: int = 0
    siblings: tuple[MessageId, ...] = ()


class PartialAssistantEvent(msgspec.Struct, frozen=True, tag_field="type", tag="partial_assistant"):
    """Another piece of output. ``text`` pieces joined are the message's content, unless a call was written as text."""

    conversation: ConversationId
    frame: FrameId
    kind: Literal["text", "reasoning", "tool_input"]
    text: str
    tool_use_id: str = ""
    tool_name: str = ""


class UsageEvent(msgspec.Struct, frozen=True, tag_field="type", tag="usage"):
    """Tokens of one model call, and of the turn so far (sub-agents included)."""

    conversation: ConversationId
    frame: FrameId
    usage: Usage
    cumulative: Usage
    model: str
    model_id: str
    context_window: int = 0


class PermissionView(msgspec.Struct, frozen=True):
    """One call a person must decide. ``details`` comes from the gate and is for the card."""

    call_id: CallId
    message_id: MessageId
    tool_use_id: str
    tool_name: str
    input: dict[str, Any]
    summary: str
    reason: str = ""
    details: dict[str, Any] = {}
    title: str = ""
    icon: str = "tool"
    path: str | None = None


class PermissionRequestEvent(msgspec.Struct, frozen=True, tag_field="type", tag="permission_request"):
    """Calls wait for a person; stored as *awaiting*. At most one per round, before any of the round's starts."""

    conversation: ConversationId
    frame: FrameId
    requests: tuple[PermissionView, ...]


class ToolCallStartEvent(msgspec.Struct, frozen=True, tag_field="type", tag="tool_call_start"):
    """A call begins, or is refused. ``input`` is what runs, after rewrites; empty for arguments that are not JSON."""

    conversation: ConversationId
    frame: FrameId
    message_id: MessageId
    call_id: CallId
    tool_use_id: str
    tool_name: str
    input: dict[str, Any]
    summary: str
    title: str = ""
    icon: str = "tool"
    path: str | None = None


class ToolProgressEvent(msgspec.Struct, frozen=True, tag_field="type", tag="tool_progress"):
    conversation: ConversationId
    frame: FrameId
    call_id: CallId
    tool_use_id: str
    data: dict[str, Any]


class ToolCallEndEvent(msgspec.Struct, frozen=True, tag_field="type", tag="tool_call_end"):
    """A call has its result. ``result`` is cut when long (``truncated``); the store keeps the whole."""

    conversation: ConversationId
    frame: FrameId
    message_id: MessageId
    call_id: CallId
    tool_use_id: str
    tool_name: str
    state: CallState
    is_error: bool
    result: str
    result_kind: ResultKind
    truncated: bool = False
    media: tuple[Attachment, ...] = ()
    display: dict[str, Any] | None = None
    duration_ms: int = 0


class SkillInvokedEvent(msgspec.Struct, frozen=True, tag_field="type", tag="skill_invoked"):
    """A call uses a skill: right before its ``tool_call_start``, also when the call is refused.

    ``model_override`` and ``allowed_tools`` are what the skill asks for; whether it gets that is up to the tool.
    """

    conversation: ConversationId
    frame: FrameId
    call_id: CallId
    tool_use_id: str
    name: str
    args: str = ""
    model_override: str = ""
    allowed_tools: tuple[str, ...] = ()


class SkillCompletedEvent(msgspec.Struct, frozen=True, tag_field="type", tag="skill_completed"):
    """Right after the ``tool_call_end`` of a call that was told of with ``skill_invoked``."""

    conversation: ConversationId
    frame: FrameId
    call_id: CallId
    tool_use_id: str
    name: str
    is_error: bool


class CompactionEvent(msgspec.Struct, frozen=True, tag_field="type", tag="compaction"):
    """Older messages were replaced by a summary in what models see. Token counts are estimates."""

    conversation: ConversationId
    frame: FrameId
    checkpoint_id: int
    covered_up_to: MessageId
    trigger: Literal["threshold", "forced", "manual"]
    strategy: str
    messages_before: int
    messages_after: int
    tokens_before: int
    tokens_after: int
    summary_usage: Usage = Usage()


class SubagentEvent(msgspec.Struct, frozen=True, tag_field="type", tag="subagent_event"):
    """An event of a sub-agent; ``event`` may be wrapped itself. ``frame`` is the parent's, ``child`` the sub-agent's."""

    conversation: ConversationId
    frame: FrameId
    child: FrameId
    parent_call: CallId
    agent: str
    title: str
    event: Event


class HookErrorEvent(msgspec.Struct, frozen=True, tag_field="type", tag="hook_error"):
    """A hook failed or took too long. Never ends a turn by itself."""

    conversation: ConversationId
    frame: FrameId
    hook: Literal["before_tool", "after_tool", "user_prompt", "stop", "before_compaction"]
    message: str
    tool_use_id: str = ""


class ModelFallbackEvent(msgspec.Struct, frozen=True, tag_field="type", tag="model_fallback"):
    """A model failed before any output and the next one is asked. Names are the host's bookkeeping ids."""

    conversation: ConversationId
    frame: FrameId
    from_model: str
    to_model: str
    reason: str
    error_kind: str


class ErrorEvent(msgspec.Struct, frozen=True, tag_field="type", tag="error"):
    """Why the turn fails; always followed by ``result`` with subtype ``error``.

    ``kind`` is a stable code (:mod:`skald_core.loop.errors`) and ``name`` the error's class, such as ``TurnLimitError``;
    ``message`` is a plain sentence, ``detail`` text to copy.
    """

    conversation: ConversationId
    frame: FrameId
    kind: str
    message: str
    retryable: bool = False
    detail: str = ""
    tried: tuple[str, ...] = ()
    name: str = ""


class QueueChangedEvent(msgspec.Struct, frozen=True, tag_field="type", tag="queue_changed"):
    """The waiting input changed; ``items`` is all of it, in order."""

    conversation: ConversationId
    frame: FrameId
    items: tuple[QueuedInput, ...]


class ResultEvent(msgspec.Struct, frozen=True, tag_field="type", tag="result"):
    """Last event of a turn. ``total_usage`` is the turn's, sub-agents included."""

    conversation: ConversationId
    frame: FrameId
    run_id: str
    subtype: ResultSubtype
    stop_reason: StopReason
    total_usage: Usage
    duration_ms: int
    rounds: int
    final_text: str = ""
    message_id: MessageId | None = None
    reason: str = ""


class Lagged(msgspec.Struct, frozen=True, tag_field="type", tag="lagged"):
    """In a subscription only: ``missed`` events were dropped because the reader was slow. Read the store again."""

    conversation: ConversationId
    frame: FrameId
    missed: int


Event = (
    SystemEvent
    | SkillsLoadedEvent
    | RoundStartedEvent
    | UserEvent
    | AssistantEvent
    | PartialAssistantEvent
    | UsageEvent
    | PermissionRequestEvent
    | ToolCallStartEvent
    | ToolProgressEvent
    | ToolCallEndEvent
    | SkillInvokedEvent
    | SkillCompletedEvent
    | CompactionEvent
    | SubagentEvent
    | HookErrorEvent
    | ModelFallbackEvent
    | ErrorEvent
    | QueueChangedEvent
    | ResultEvent
    | Lagged
)


def is_system(event: Event) -> TypeGuard[SystemEvent]:
    return isinstance(event, SystemEvent)


def is_round_started(event: Event) -> TypeGuard[RoundStartedEvent]:
    return isinstance(event, RoundStartedEvent)


def is_user(event: Event) -> TypeGuard[UserEvent]:
    return isinstance(event, UserEvent)


def is_assistant(event: Event) -> TypeGuard[AssistantEvent]:
    return isinstance(event, AssistantEvent)


def is_partial_assistant(event: Event) -> TypeGuard[PartialAssistantEvent]:
    return isinstance(event, PartialAssistantEvent)


def is_usage(event: Event) -> TypeGuard[UsageEvent]:
    return isinstance(event, UsageEvent)


def is_permission_request(event: Event) -> TypeGuard[PermissionRequestEvent]:
    return isinstance(event, PermissionRequestEvent)


def is_tool_call_start(event: Event) -> TypeGuard[ToolCallStartEvent]:
    return isinstance(event, ToolCallStartEvent)


def is_tool_progress(event: Event) -> TypeGuard[ToolProgressEvent]:
    return isinstance(event, ToolProgressEvent)


def is_tool_call_end(event: Event) -> TypeGuard[ToolCallEndEvent]:
    return isinstance(event, ToolCallEndEvent)


def is_skills_loaded(event: Event) -> TypeGuard[SkillsLoadedEvent]:
    return isinstance(event, SkillsLoadedEvent)


def is_skill_invoked(event: Event) -> TypeGuard[SkillInvokedEvent]:
    return isinstance(event, SkillInvokedEvent)


def is_skill_completed(event: Event) -> TypeGuard[SkillCompletedEvent]:
    return isinstance(event, SkillCompletedEvent)


def is_compaction(event: Event) -> TypeGuard[CompactionEvent]:
    return isinstance(event, CompactionEvent)


def is_subagent_event(event: Event) -> TypeGuard[SubagentEvent]:
    return isinstance(event, SubagentEvent)


def is_hook_error(event: Event) -> TypeGuard[HookErrorEvent]:
    return isinstance(event, HookErrorEvent)


def is_model_fallback(event: Event) -> TypeGuard[ModelFallbackEvent]:
    return isinstance(event, ModelFallbackEvent)


def is_error(event: Event) -> TypeGuard[ErrorEvent]:
    return isinstance(event, ErrorEvent)


def is_queue_changed(event: Event) -> TypeGuard[QueueChangedEvent]:
    return isinstance(event, QueueChangedEvent)


def is_result(event: Event) -> TypeGuard[ResultEvent]:
    return isinstance(event, ResultEvent)


def is_lagged(event: Event) -> TypeGuard[Lagged]:
    return isinstance(event, Lagged)
