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
    )
    from skald_core.loop.compaction import (
        CompactionContext as CompactionContext,
    )
    from skald_core.loop.compaction import (
        CompactionResult as CompactionResult,
    )
    from skald_core.loop.compaction import (
        CompactionStrategy as CompactionStrategy,
    )
    from skald_core.loop.compaction import (
        Completion as Completion,
    )
    from skald_core.loop.compaction import (
        KeepTail as KeepTail,
    )
    from skald_core.loop.compaction import (
        estimate_tokens as estimate_tokens,
    )
    from skald_core.loop.compaction import (
        known_tokens as known_tokens,
    )
    from skald_core.loop.compaction import (
        should_compact as should_compact,
    )
    from skald_core.loop.database import (
        Database as Database,
    )
    from skald_core.loop.database import (
        DatabaseClosed as DatabaseClosed,
    )
    from skald_core.loop.database import (
        DatabaseError as DatabaseError,
    )
    from skald_core.loop.database import (
        DiskFull as DiskFull,
    )
    from skald_core.loop.database import (
        WrongKey as WrongKey,
    )
    from skald_core.loop.delegate import (
        AsyncExecutor as AsyncExecutor,
    )
    from skald_core.loop.delegate import (
        AsyncTask as AsyncTask,
    )
    from skald_core.loop.delegate import (
        DelegateTool as DelegateTool,
    )
    from skald_core.loop.delegate import (
        Delegation as Delegation,
    )
    from skald_core.loop.errors import (
        AbortError as AbortError,
    )
    from skald_core.loop.errors import (
        AuthError as AuthError,
    )
    from skald_core.loop.errors import (
        ConfigError as ConfigError,
    )
    from skald_core.loop.errors import (
        ContextLengthError as ContextLengthError,
    )
    from skald_core.loop.errors import (
        HookError as HookError,
    )
    from skald_core.loop.errors import (
        InvalidRequestError as InvalidRequestError,
    )
    from skald_core.loop.errors import (
        LoopError as LoopError,
    )
    from skald_core.loop.errors import (
        ModelError as ModelError,
    )
    from skald_core.loop.errors import (
        ModelGoneError as ModelGoneError,
    )
    from skald_core.loop.errors import (
        NetworkError as NetworkError,
    )
    from skald_core.loop.errors import (
        PermissionDeniedError as PermissionDeniedError,
    )
    from skald_core.loop.errors import (
        ProtocolError as ProtocolError,
    )
    from skald_core.loop.errors import (
        RateLimitError as RateLimitError,
    )
    from skald_core.loop.errors import (
        RetryableModelError as RetryableModelError,
    )
    from skald_core.loop.errors import (
        ServerError as ServerError,
    )
    from skald_core.loop.errors import (
        StoreError as StoreError,
    )
    from skald_core.loop.errors import (
        TerminalModelError as TerminalModelError,
    )
    from skald_core.loop.errors import (
        ToolError as ToolError,
    )
    from skald_core.loop.errors import (
        ToolSuspended as ToolSuspended,
    )
    from skald_core.loop.errors import (
        TurnLimitError as TurnLimitError,
    )
    from skald_core.loop.events import (
        AssistantEvent as AssistantEvent,
    )
    from skald_core.loop.events import (
        CallView as CallView,
    )
    from skald_core.loop.events import (
        CompactionEvent as CompactionEvent,
    )
    from skald_core.loop.events import (
        ErrorEvent as ErrorEvent,
    )
    from skald_core.loop.events import (
        Event as Event,
    )
    from skald_core.loop.events import (
        HookErrorEvent as HookErrorEvent,
    )
    from skald_core.loop.events import (
        Lagged as Lagged,
    )
    from skald_core.loop.events import (
        ModelFallbackEvent as ModelFallbackEvent,
    )
    from skald_core.loop.events import (
        PartialAssistantEvent as PartialAssistantEvent,
    )
    from skald_core.loop.events import (
        PermissionRequestEvent as PermissionRequestEvent,
    )
    from skald_core.loop.events import (
        PermissionView as PermissionView,
    )
    from skald_core.loop.events import (
        QueueChangedEvent as QueueChangedEvent,
    )
    from skald_core.loop.events import (
        ResultEvent as ResultEvent,
    )
    from skald_core.loop.events import (
        ResultSubtype as ResultSubtype,
    )
    from skald_core.loop.events import (
        RoundStartedEvent as RoundStartedEvent,
    )
    from skald_core.loop.events import (
        SubagentEvent as SubagentEvent,
    )
    from skald_core.loop.events import (
        SystemEvent as SystemEvent,
    )
    from skald_core.loop.events import (
        ToolCallEndEvent as ToolCallEndEvent,
    )
    from skald_core.loop.events import (
        ToolCallStartEvent as ToolCallStartEvent,
    )
    from skald_core.loop.events import (
        ToolProgressEvent as ToolProgressEvent,
    )
    from skald_core.loop.events import (
        UsageEvent as UsageEvent,
    )
    from skald_core.loop.events import (
        UserEvent as UserEvent,
    )
    from skald_core.loop.events import (
        is_assistant as is_assistant,
    )
    from skald_core.loop.events import (
        is_compaction as is_compaction,
    )
    from skald_core.loop.events import (
        is_error as is_error,
    )
    from skald_core.loop.events import (
        is_hook_error as is_hook_error,
    )
    from skald_core.loop.events import (
        is_model_fallback as is_model_fallback,
    )
    from skald_core.loop.events import (
        is_partial_assistant as is_partial_assistant,
    )
    from skald_core.loop.events import (
        is_permission_request as is_permission_request,
    )
    from skald_core.loop.events import (
        is_queue_changed as is_queue_changed,
    )
    from skald_core.loop.events import (
        is_result as is_result,
    )
    from skald_core.loop.events import (
        is_round_started as is_round_started,
    )
    from skald_core.loop.events import (
        is_subagent_event as is_subagent_event,
    )
    from skald_core.loop.events import (
        is_system as is_system,
    )
    from skald_core.loop.events import (
        is_tool_call_end as is_tool_call_end,
    )
    from skald_core.loop.events import (
        is_tool_call_start as is_tool_call_start,
    )
    from skald_core.loop.events import (
        is_tool_progress as is_tool_progress,
    )
    from skald_core.loop.events import (
        is_usage as is_usage,
    )
    from skald_core.loop.events import (
        is_user as is_user,
    )
    from skald_core.loop.gate import (
        Allow as Allow,
    )
    from skald_core.loop.gate import (
        AllowAll as AllowAll,
    )
    from skald_core.loop.gate import (
        Ask as Ask,
    )
    from skald_core.loop.gate import (
        Deny as Deny,
    )
    from skald_core.loop.gate import (
        DenyAll as DenyAll,
    )
    from skald_core.loop.gate import (
        Gate as Gate,
    )
    from skald_core.loop.gate import (
        PendingCall as PendingCall,
    )
    from skald_core.loop.gate import (
        Suspend as Suspend,
    )
    from skald_core.loop.gate import (
        Verdict as Verdict,
    )
    from skald_core.loop.hook_chain import (
        Hook as Hook,
    )
    from skald_core.loop.hook_chain import (
        HookChain as HookChain,
    )
    from skald_core.loop.hooks import (
        AddContext as AddContext,
    )
    from skald_core.loop.hooks import (
        Block as Block,
    )
    from skald_core.loop.hooks import (
        Hooks as Hooks,
    )
    from skald_core.loop.hooks import (
        MustAsk as MustAsk,
    )
    from skald_core.loop.hooks import (
        NoHooks as NoHooks,
    )
    from skald_core.loop.hooks import (
        Prompt as Prompt,
    )
    from skald_core.loop.hooks import (
        Rewrite as Rewrite,
    )
    from skald_core.loop.hooks import (
        Stopping as Stopping,
    )
    from skald_core.loop.hooks import (
        ToolHookVerdict as ToolHookVerdict,
    )
    from skald_core.loop.memory_store import MemoryStore as MemoryStore
    from skald_core.loop.ops import (
        TASK_COMPLETED as TASK_COMPLETED,
    )
    from skald_core.loop.ops import (
        AppendMessage as AppendMessage,
    )
    from skald_core.loop.ops import (
        HoldQueue as HoldQueue,
    )
    from skald_core.loop.ops import (
        ImportMessages as ImportMessages,
    )
    from skald_core.loop.ops import (
        LoadFrame as LoadFrame,
    )
    from skald_core.loop.ops import (
        OpenFrame as OpenFrame,
    )
    from skald_core.loop.ops import (
        SetHead as SetHead,
    )
    from skald_core.loop.ops import (
        Stored as Stored,
    )
    from skald_core.loop.ops import (
        TaskDone as TaskDone,
    )
    from skald_core.loop.permissions import (
        CanUseTool as CanUseTool,
    )
    from skald_core.loop.permissions import (
        Mode as Mode,
    )
    from skald_core.loop.permissions import (
        PathRule as PathRule,
    )
    from skald_core.loop.permissions import (
        PermissionEngine as PermissionEngine,
    )
    from skald_core.loop.permissions import (
        PermissionQuestion as PermissionQuestion,
    )
    from skald_core.loop.permissions import (
        Rule as Rule,
    )
    from skald_core.loop.permissions import (
        ShellRule as ShellRule,
    )
    from skald_core.loop.permissions import (
        ToolRule as ToolRule,
    )
    from skald_core.loop.profile import (
        Limits as Limits,
    )
    from skald_core.loop.profile import (
        Profile as Profile,
    )
    from skald_core.loop.profile import (
        ProfileSource as ProfileSource,
    )
    from skald_core.loop.profile import (
        SystemContext as SystemContext,
    )
    from skald_core.loop.profile import (
        SystemPrompt as SystemPrompt,
    )
    from skald_core.loop.profile import (
        SystemSource as SystemSource,
    )
    from skald_core.loop.profile import (
        ToolSource as ToolSource,
    )
    from skald_core.loop.projection import (
        Projection as Projection,
    )
    from skald_core.loop.projection import (
        ProjectionOptions as ProjectionOptions,
    )
    from skald_core.loop.projection import (
        project as project,
    )
    from skald_core.loop.provider import (
        CallDelta as CallDelta,
    )
    from skald_core.loop.provider import (
        CallEnd as CallEnd,
    )
    from skald_core.loop.provider import (
        CallStart as CallStart,
    )
    from skald_core.loop.provider import (
        MessageEnd as MessageEnd,
    )
    from skald_core.loop.provider import (
        MessageStart as MessageStart,
    )
    from skald_core.loop.provider import (
        ModelHandle as ModelHandle,
    )
    from skald_core.loop.provider import (
        ModelSelector as ModelSelector,
    )
    from skald_core.loop.provider import (
        Provider as Provider,
    )
    from skald_core.loop.provider import (
        ReasoningDelta as ReasoningDelta,
    )
    from skald_core.loop.provider import (
        StreamEvent as StreamEvent,
    )
    from skald_core.loop.provider import (
        TextDelta as TextDelta,
    )
    from skald_core.loop.records import (
        Call as Call,
    )
    from skald_core.loop.records import (
        Checkpoint as Checkpoint,
    )
    from skald_core.loop.records import (
        Draft as Draft,
    )
    from skald_core.loop.records import (
        Frame as Frame,
    )
    from skald_core.loop.records import (
        HistoryItem as HistoryItem,
    )
    from skald_core.loop.records import (
        HistoryPage as HistoryPage,
    )
    from skald_core.loop.records import (
        LoadedFrame as LoadedFrame,
    )
    from skald_core.loop.records import (
        Message as Message,
    )
    from skald_core.loop.records import (
        MessageStatus as MessageStatus,
    )
    from skald_core.loop.records import (
        QueuedInput as QueuedInput,
    )
    from skald_core.loop.records import (
        QueueKind as QueueKind,
    )
    from skald_core.loop.records import (
        Run as Run,
    )
    from skald_core.loop.recovery import Recovery as Recovery
    from skald_core.loop.runner import Sent as Sent
    from skald_core.loop.scripted import ScriptedProvider as ScriptedProvider
    from skald_core.loop.selectors import SingleModel as SingleModel
    from skald_core.loop.selectors import StaticModels as StaticModels
    from skald_core.loop.services import LiveTurn as LiveTurn
    from skald_core.loop.services import MediaSource as MediaSource
    from skald_core.loop.services import RunningCall as RunningCall
    from skald_core.loop.session import Session as Session
    from skald_core.loop.sqlite_store import SqliteStore as SqliteStore
    from skald_core.loop.store import Store as Store
    from skald_core.loop.subscription import Subscription as Subscription
    from skald_core.loop.text_calls import (
        TextCall as TextCall,
    )
    from skald_core.loop.text_calls import (
        TextCallHold as TextCallHold,
    )
    from skald_core.loop.text_calls import (
        parse_text_calls as parse_text_calls,
    )
    from skald_core.loop.tools import (
        FileChange as FileChange,
    )
    from skald_core.loop.tools import (
        InvalidArguments as InvalidArguments,
    )
    from skald_core.loop.tools import (
        Tool as Tool,
    )
    from skald_core.loop.tools import (
        ToolContext as ToolContext,
    )
    from skald_core.loop.tools import (
        ToolOutput as ToolOutput,
    )
    from skald_core.loop.tools import (
        ToolRegistry as ToolRegistry,
    )
    from skald_core.loop.tools import (
        tool as tool,
    )
    from skald_core.loop.types import (
        Attachment as Attachment,
    )
    from skald_core.loop.types import (
        CallId as CallId,
    )
    from skald_core.loop.types import (
        CallPart as CallPart,
    )
    from skald_core.loop.types import (
        CallState as CallState,
    )
    from skald_core.loop.types import (
        ConversationId as ConversationId,
    )
    from skald_core.loop.types import (
        FrameId as FrameId,
    )
    from skald_core.loop.types import (
        MediaPart as MediaPart,
    )
    from skald_core.loop.types import (
        MessageId as MessageId,
    )
    from skald_core.loop.types import (
        ModelInfo as ModelInfo,
    )
    from skald_core.loop.types import (
        ModelRequest as ModelRequest,
    )
    from skald_core.loop.types import (
        Part as Part,
    )
    from skald_core.loop.types import (
        ReasoningPart as ReasoningPart,
    )
    from skald_core.loop.types import (
        ResultKind as ResultKind,
    )
    from skald_core.loop.types import (
        ResultPart as ResultPart,
    )
    from skald_core.loop.types import (
        Role as Role,
    )
    from skald_core.loop.types import (
        StopReason as StopReason,
    )
    from skald_core.loop.types import (
        SystemBlock as SystemBlock,
    )
    from skald_core.loop.types import (
        TextPart as TextPart,
    )
    from skald_core.loop.types import (
        ToolSpec as ToolSpec,
    )
    from skald_core.loop.types import (
        Usage as Usage,
    )
    from skald_core.loop.types import (
        WireMessage as WireMessage,
    )
    from skald_core.loop.types import (
        WireRole as WireRole,
    )

_HOME = {
    "agent": ("Agent",),
    "cancel": ("CancelToken",),
    "compaction": (
        "known_tokens",
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
    "permissions": (
        "CanUseTool",
        "Mode",
        "PathRule",
        "PermissionEngine",
        "PermissionQuestion",
        "Rule",
        "ShellRule",
        "ToolRule",
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
    "hook_chain": ("Hook", "HookChain"),
    "hooks": (
        "AddContext",
        "Block",
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
        "HoldQueue",
        "ImportMessages",
        "LoadFrame",
        "TASK_COMPLETED",
        "TaskDone",
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
