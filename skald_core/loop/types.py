"""Data the loop stores, sends and hands to its host. All frozen msgspec structs; nothing here does I/O."""

from __future__ import annotations

from typing import Any, Literal, NewType

import msgspec

__all__ = (
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
    "TERMINAL_STATES",
    "TextPart",
    "ToolLoading",
    "ToolSpec",
    "Usage",
    "WireMessage",
    "WireRole",
)

ConversationId = NewType("ConversationId", str)
FrameId = NewType("FrameId", int)
MessageId = NewType("MessageId", int)
CallId = NewType("CallId", int)

Role = Literal["system", "user", "assistant", "agent"]
"""Stored roles. ``agent`` is text one agent sends another; on the wire it is a user message."""

CallState = Literal["running", "awaiting", "done", "failed", "cancelled", "rejected"]
TERMINAL_STATES: frozenset[str] = frozenset({"done", "failed", "cancelled", "rejected"})

ResultKind = Literal["text", "json", "error", "cancelled", "rejected", "interrupted"]
StopReason = Literal["end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal", "error"]
WireRole = Literal["user", "assistant", "tool", "system"]
ToolLoading = Literal["inline", "reference", "system"]
"""How a model is given a deferred tool once it is active.

``inline``: among the request's tools; every model can do that. ``reference``: all deferred tools are declared so from the
start, and the activating result names those it brings (``ResultPart.tools``). ``system``: a ``system`` message with the
tools follows the results. With the last two nothing before the activation changes, so a prompt cache keeps its prefix.
"""


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens of one model call. ``input_tokens`` includes what was read from or written to a cache."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float | None = None

    def __add__(self, other: Usage) -> Usage:
        cost = (
            None if self.cost_usd is None and other.cost_usd is None else (self.cost_usd or 0) + (other.cost_usd or 0)
        )
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            cost_usd=cost,
        )


class Attachment(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file a message refers to, by the path the agent would use."""

    path: str
    name: str
    media_type: str = ""
    size: int = 0


# --- the wire: what a provider receives --------------------------------------------------------------------------


class TextPart(msgspec.Struct, frozen=True, tag="text", tag_field="type"):
    text: str


class MediaPart(msgspec.Struct, frozen=True, tag="media", tag_field="type"):
    """Bytes a model can look at. ``media_type`` comes from the bytes themselves, never from a claim."""

    media_type: str
    data: bytes
    name: str = ""


class ReasoningPart(msgspec.Struct, frozen=True, tag="reasoning", tag_field="type"):
    text: str
    signature: str = ""


class CallPart(msgspec.Struct, frozen=True, tag="call", tag_field="type"):
    """A tool call the model made. ``arguments`` is the JSON text exactly as the model wrote it."""

    id: str
    name: str
    arguments: str


class ResultPart(msgspec.Struct, frozen=True, tag="result", tag_field="type"):
    """``tools`` are deferred tools of the request that this result brings, with ``ModelInfo.tool_loading="reference"``."""

    id: str
    content: str
    is_error: bool = False
    tools: tuple[str, ...] = ()


Part = TextPart | MediaPart | ReasoningPart | CallPart | ResultPart


class SystemBlock(msgspec.Struct, frozen=True):
    """System text. Blocks with ``stable=True`` come first and form the cacheable prefix; the rest may change per turn."""

    text: str
    stable: bool = True


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as models see it. ``parameters`` is a JSON Schema object.

    With ``defer_loading`` the model does not see it until a result names it (``ResultPart.tools``).
    """

    name: str
    description: str
    parameters: dict[str, Any]
    defer_loading: bool = False


class WireMessage(msgspec.Struct, frozen=True):
    """One message of a model request.

    ``assistant`` holds text, reasoning and calls; ``tool`` holds only results and always follows the assistant message
    whose calls it answers; ``user`` holds text and media. ``system`` has no parts but ``tools`` and follows results; only a
    model with ``ModelInfo.tool_loading="system"`` gets one. ``metadata`` is what the same provider returned with this
    message earlier (replay state such as thinking signatures).
    """

    role: WireRole
    parts: tuple[Part, ...]
    metadata: dict[str, Any] | None = None
    tools: tuple[ToolSpec, ...] = ()


class ModelInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of one model. ``capabilities`` uses: tools, vision, documents, video, reasoning, prompt_cache.

    ``weak`` marks small local models: the host keeps their prompts short. ``tool_loading`` is the provider's word on how
    this model is given tools that are activated on the way.
    """

    context_window: int = 32768
    max_output_tokens: int | None = None
    capabilities: frozenset[str] = frozenset({"tools"})
    weak: bool = False
    tool_loading: ToolLoading = "inline"


class ModelRequest(msgspec.Struct, frozen=True):
    """One streaming model call. ``extra`` is merged last into the provider's JSON body."""

    model: str
    system: tuple[SystemBlock, ...]
    messages: tuple[WireMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_output_tokens: int | None = None
    temperature: float | None = None
    stop_sequences: tuple[str, ...] = ()
    effort: str | None = None
    cache: bool = True
    cache_key: str = ""
    request_id: str = ""
    info: ModelInfo = ModelInfo()
    extra: dict[str, Any] = {}
