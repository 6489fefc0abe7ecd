"""The agent loop: durable, recoverable, and a library of its own.

    agent = Agent(provider=…, model="…", tools=[…], gate=AllowAll(), store=await SqliteStore.open("chats.db"))
    async for event in agent.session("first").run("Hello"):
        ...

Names load on first use, so importing this package costs next to nothing.
"""

# ruff: noqa: F403 -- star imports that only type checkers see, so that no name stands here twice

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what each name below is; the loop's tests hold the two lists together
    from skald_core.loop.agent import *
    from skald_core.loop.ask_user import *
    from skald_core.loop.cancel import *
    from skald_core.loop.compaction import *
    from skald_core.loop.database import *
    from skald_core.loop.delegate import *
    from skald_core.loop.errors import *
    from skald_core.loop.events import *
    from skald_core.loop.gate import *
    from skald_core.loop.hook_chain import *
    from skald_core.loop.hooks import *
    from skald_core.loop.loading import *
    from skald_core.loop.media import *
    from skald_core.loop.memory_store import *
    from skald_core.loop.ops import *
    from skald_core.loop.permissions import *
    from skald_core.loop.profile import *
    from skald_core.loop.projection import *
    from skald_core.loop.provider import *
    from skald_core.loop.records import *
    from skald_core.loop.recovery import *
    from skald_core.loop.runner import *
    from skald_core.loop.scripted import *
    from skald_core.loop.selectors import *
    from skald_core.loop.services import *
    from skald_core.loop.session import *
    from skald_core.loop.sniff import *
    from skald_core.loop.sqlite_store import *
    from skald_core.loop.store import *
    from skald_core.loop.subscription import *
    from skald_core.loop.text_calls import *
    from skald_core.loop.tools import *
    from skald_core.loop.types import *

_HOME = {
    "agent": ("Agent",),
    "ask_user": ("Answered", "AskUserTool", "Declined", "HumanChannel", "HumanGone", "Option", "Question", "Questions"),
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
    ),
    "gate": (
        "Allow",
        "AllowAll",
        "Ask",
        "Deny",
        "DenyAll",
        "DenyList",
        "Gate",
        "PendingCall",
        "Suspend",
        "Verdict",
        "mode_of",
    ),
    "hook_chain": (
        "Hook",
        "HookChain",
    ),
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
    "loading": ("offered",),
    "media": ("MediaSource",),
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
        "loading_of",
        "media_kinds",
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
        "ConversationInfo",
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
        "RunningCall",
    ),
    "session": ("Session",),
    "sniff": ("media_type_of",),
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
        "SkillUse",
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
        "ToolLoading",
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
