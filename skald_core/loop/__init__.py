"""The agent loop: durable, recoverable, and a library of its own.

    agent = Agent(provider=…, model="…", tools=[…], gate=AllowAll(), store=await SqliteStore.open("chats.db"))
    async for event in agent.session("first").run("Hello"):
        ...

Names load on first use, so importing this package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skald_core.loop.agent import Agent as Agent
    from skald_core.loop.cancel import CancelToken as CancelToken
    from skald_core.loop.compaction import (
        Compaction as Compaction,
        CompactionContext as CompactionContext,
        CompactionResult as CompactionResult,
        CompactionStrategy as CompactionStrategy,
        Completion as Completion,
        KeepTail as KeepTail,
        estimate_tokens as estimate_tokens,
        should_compact as should_compact,
    )
    from skald_core.loop.database import (
        Database as Database,
        DatabaseClosed as DatabaseClosed,
        DatabaseError as DatabaseError,
        DiskFull as DiskFull,
        WrongKey as WrongKey,
    )
    from skald_core.loop.delegate import (
        AsyncExecutor as AsyncExecutor,
        AsyncTask as AsyncTask,
        DelegateTool as DelegateTool,
        Delegation as Delegation,
    )
    from skald_core.loop.errors import (
        AbortError as AbortError,
        AuthError as AuthError,
        ConfigError as ConfigError,
        ContextLengthError as ContextLengthError,
        HookError as HookError,
        InvalidRequestError as InvalidRequestError,
        LoopError as LoopError,
        ModelError as ModelError,
        ModelGoneError as ModelGoneError,
        NetworkError as NetworkError,
        PermissionDeniedError as PermissionDeniedError,
        ProtocolError as ProtocolError,
        RateLimitError as RateLimitError,
        RetryableModelError as RetryableModelError,
        ServerError as ServerError,
        StoreError as StoreError,
        TerminalModelError as TerminalModelError,
        ToolError as ToolError,
        ToolSuspended as ToolSuspended,
        TurnLimitError as TurnLimitError,
    )
    from skald_core.loop.events import (
        AssistantEvent as AssistantEvent,
        CallView as CallView,
        CompactionEvent as CompactionEvent,
        ErrorEvent as ErrorEvent,
        Event as Event,
        HookErrorEvent as HookErrorEvent,
        Lagged as Lagged,
        ModelFallbackEvent as ModelFallbackEvent,
        PartialAssistantEvent as PartialAssistantEvent,
        PermissionRequestEvent as PermissionRequestEvent,
        PermissionView as PermissionView,
        QueueChangedEvent as QueueChangedEvent,
        ResultEvent as ResultEvent,
        ResultSubtype as ResultSubtype,
        RoundStartedEvent as RoundStartedEvent,
        SubagentEvent as SubagentEvent,
        SystemEvent as SystemEvent,
        ToolCallEndEvent as ToolCallEndEvent,
        ToolCallStartEvent as ToolCallStartEvent,
        ToolProgressEvent as ToolProgressEvent,
        UsageEvent as UsageEvent,
        UserEvent as UserEvent,
        is_assistant as is_assistant,
        is_compaction as is_compaction,
        is_error as is_error,
        is_hook_error as is_hook_error,
        is_model_fallback as is_model_fallback,
        is_partial_assistant as is_partial_assistant,
        is_permission_request as is_permission_request,
        is_queue_changed as is_queue_changed,
        is_result as is_result,
        is_round_started as is_round_started,
        is_subagent_event as is_subagent_event,
        is_system as is_system,
        is_tool_call_end as is_tool_call_end,
        is_tool_call_start as is_tool_call_start,
        is_tool_progress as is_tool_progress,
        is_usage as is_usage,
        is_user as is_user,
    )
    from skald_core.loop.gate import (
        Allow as Allow,
        AllowAll as AllowAll,
        Ask as Ask,
        Deny as Deny,
        DenyAll as DenyAll,
        Gate as Gate,
        PendingCall as PendingCall,
        Suspend as Suspend,
        Verdict as Verdict,
    )
    from skald_core.loop.hooks import (
        AddContext as AddContext,
        Block as Block,
        HookChain as HookChain,
        Hooks as Hooks,
        MustAsk as MustAsk,
        NoHooks as NoHooks,
        Prompt as Prompt,
        Rewrite as Rewrite,
        Stopping as Stopping,
        ToolHookVerdict as ToolHookVerdict,
    )
    from skald_core.loop.memory_store import MemoryStore as MemoryStore
    from skald_core.loop.ops import (
        AppendMessage as AppendMessage,
        OpenFrame as OpenFrame,
        SetHead as SetHead,
        Stored as Stored,
    )
    from skald_core.loop.profile import (
        Limits as Limits,
        Profile as Profile,
        ProfileSource as ProfileSource,
        SystemContext as SystemContext,
        SystemPrompt as SystemPrompt,
        SystemSource as SystemSource,
        ToolSource as ToolSource,
    )
    from skald_core.loop.projection import (
        Projection as Projection,
        ProjectionOptions as ProjectionOptions,
        project as project,
    )
    from skald_core.loop.provider import (
        CallDelta as CallDelta,
        CallEnd as CallEnd,
        CallStart as CallStart,
        MessageEnd as MessageEnd,
        MessageStart as MessageStart,
        ModelHandle as ModelHandle,
        ModelSelector as ModelSelector,
        Provider as Provider,
        ReasoningDelta as ReasoningDelta,
        StreamEvent as StreamEvent,
        TextDelta as TextDelta,
    )
    from skald_core.loop.records import (
        Call as Call,
        Checkpoint as Checkpoint,
        Draft as Draft,
        Frame as Frame,
        HistoryItem as HistoryItem,
        HistoryPage as HistoryPage,
        LoadedFrame as LoadedFrame,
        Message as Message,
        MessageStatus as MessageStatus,
        QueueKind as QueueKind,
        QueuedInput as QueuedInput,
        Run as Run,
    )
    from skald_core.loop.recovery import Recovery as Recovery
    from skald_core.loop.runner import Sent as Sent
    from skald_core.loop.scripted import ScriptedProvider as ScriptedProvider
    from skald_core.loop.selectors import SingleModel as SingleModel, StaticModels as StaticModels
    from skald_core.loop.services import LiveTurn as LiveTurn, MediaSource as MediaSource, RunningCall as RunningCall
    from skald_core.loop.session import Session as Session
    from skald_core.loop.sqlite_store import SqliteStore as SqliteStore
    from skald_core.loop.store import Store as Store
    from skald_core.loop.subscription import Subscription as Subscription
    from skald_core.loop.text_calls import (
        TextCall as TextCall,
        TextCallHold as TextCallHold,
        parse_text_calls as parse_text_calls,
    )
    from skald_core.loop.tools import (
        FileChange as FileChange,
        InvalidArguments as InvalidArguments,
        Tool as Tool,
        ToolContext as ToolContext,
        ToolOutput as ToolOutput,
        ToolRegistry as ToolRegistry,
        tool as tool,
    )
    from skald_core.loop.types import (
        Attachment as Attachment,
        CallId as CallId,
        CallPart as CallPart,
        CallState as CallState,
        ConversationId as ConversationId,
        FrameId as FrameId,
        MediaPart as MediaPart,
        MessageId as MessageId,
        ModelInfo as ModelInfo,
        ModelRequest as ModelRequest,
        Part as Part,
        ReasoningPart as ReasoningPart,
        ResultKind as ResultKind,
        ResultPart as ResultPart,
        Role as Role,
        StopReason as StopReason,
        SystemBlock as SystemBlock,
        TextPart as TextPart,
        ToolSpec as ToolSpec,
        Usage as Usage,
        WireMessage as WireMessage,
        WireRole as WireRole,
    )

_HOME = {
    "agent": ("Agent",),
    "cancel": ("CancelToken",),
    "compaction": (
        "Compaction",
        "CompactionContext",
        "CompactionResult",
        "CompactionStrategy",
        "Completion",
        "KeepTail",
        "estimate_tokens",
        "should_compact",
    ),
    "database": (
        "Database",
        "DatabaseClosed",
        "DatabaseError",
        "DiskFull",
        "WrongKey",
    ),
    "delegate": (
        "AsyncExecutor",
        "AsyncTask",
        "DelegateTool",
        "Delegation",
    ),
    "errors": (
        "AbortError",
        "AuthError",
        "ConfigError",
        "ContextLengthError",
        "HookError",
        "InvalidRequestError",
        "LoopError",
        "ModelError",
        "ModelGoneError",
        "NetworkError",
        "PermissionDeniedError",
        "ProtocolError",
        "RateLimitError",
        "RetryableModelError",
        "ServerError",
        "StoreError",
        "TerminalModelError",
        "ToolError",
        "ToolSuspended",
        "TurnLimitError",
    ),
    "events": (
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
        "SubagentEvent",
        "SystemEvent",
        "ToolCallEndEvent",
        "ToolCallStartEvent",
        "ToolProgressEvent",
        "UsageEvent",
        "UserEvent",
        "is_assistant",
        "is_compaction",
        "is_error",
        "is_hook_error",
        "is_model_fallback",
        "is_partial_assistant",
        "is_permission_request",
        "is_queue_changed",
        "is_result",
        "is_round_started",
        "is_subagent_event",
        "is_system",
        "is_tool_call_end",
        "is_tool_call_start",
        "is_tool_progress",
        "is_usage",
        "is_user",
    ),
    "gate": (
        "Allow",
        "AllowAll",
        "Ask",
        "Deny",
        "DenyAll",
        "Gate",
        "PendingCall",
        "Suspend",
        "Verdict",
    ),
    "hooks": (
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
    ),
    "memory_store": ("MemoryStore",),
    "ops": (
        "AppendMessage",
        "OpenFrame",
        "SetHead",
        "Stored",
    ),
    "profile": (
        "Limits",
        "Profile",
        "ProfileSource",
        "SystemContext",
        "SystemPrompt",
        "SystemSource",
        "ToolSource",
    ),
    "projection": (
        "Projection",
        "ProjectionOptions",
        "project",
    ),
    "provider": (
        "CallDelta",
        "CallEnd",
        "CallStart",
        "MessageEnd",
        "MessageStart",
        "ModelHandle",
        "ModelSelector",
        "Provider",
        "ReasoningDelta",
        "StreamEvent",
        "TextDelta",
    ),
    "records": (
        "Call",
        "Checkpoint",
        "Draft",
        "Frame",
        "HistoryItem",
        "HistoryPage",
        "LoadedFrame",
        "Message",
        "MessageStatus",
        "QueueKind",
        "QueuedInput",
        "Run",
    ),
    "recovery": ("Recovery",),
    "runner": ("Sent",),
    "scripted": ("ScriptedProvider",),
    "selectors": (
        "SingleModel",
        "StaticModels",
    ),
    "services": (
        "LiveTurn",
        "MediaSource",
        "RunningCall",
    ),
    "session": ("Session",),
    "sqlite_store": ("SqliteStore",),
    "store": ("Store",),
    "subscription": ("Subscription",),
    "text_calls": (
        "TextCall",
        "TextCallHold",
        "parse_text_calls",
    ),
    "tools": (
        "FileChange",
        "InvalidArguments",
        "Tool",
        "ToolContext",
        "ToolOutput",
        "ToolRegistry",
        "tool",
    ),
    "types": (
        "Attachment",
        "CallId",
        "CallPart",
        "CallState",
        "ConversationId",
        "FrameId",
        "MediaPart",
        "MessageId",
        "ModelInfo",
        "ModelRequest",
        "Part",
        "ReasoningPart",
        "ResultKind",
        "ResultPart",
        "Role",
        "StopReason",
        "SystemBlock",
        "TextPart",
        "ToolSpec",
        "Usage",
        "WireMessage",
        "WireRole",
    ),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = tuple(sorted(_MODULE_OF))


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULE_OF])
