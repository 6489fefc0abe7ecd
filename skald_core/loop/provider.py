"""The model seam: one streaming call, normalized events out, typed errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol, runtime_checkable

import msgspec

from skald_core.loop.types import ModelInfo, ModelRequest, StopReason, Usage

__all__ = (
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
)


class MessageStart(msgspec.Struct, frozen=True, tag="message_start"):
    """The server accepted the call. Not output yet: a failure after it may still be retried."""

    model: str = ""


class TextDelta(msgspec.Struct, frozen=True, tag="text_delta"):
    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, tag="reasoning_delta"):
    text: str
    signature: str = ""


class CallStart(msgspec.Struct, frozen=True, tag="call_start"):
    """A tool call begins. ``id`` is the model's id, or one the provider made when the model gave none."""

    id: str
    name: str


class CallDelta(msgspec.Struct, frozen=True, tag="call_delta"):
    id: str
    text: str


class CallEnd(msgspec.Struct, frozen=True, tag="call_end"):
    id: str


class MessageEnd(msgspec.Struct, frozen=True, tag="message_end"):
    """Always the last event. ``metadata`` is replay state the provider wants back with this message."""

    stop_reason: StopReason
    usage: Usage = Usage()
    metadata: dict[str, Any] | None = None


StreamEvent = MessageStart | TextDelta | ReasoningDelta | CallStart | CallDelta | CallEnd | MessageEnd


@runtime_checkable
class Provider(Protocol):
    """One model API.

    ``stream`` sends the request when first iterated and yields events; the last one is always ``MessageEnd``. It
    raises a :class:`~skald_core.loop.errors.ModelError`; a stream that ends without its API's end mark raises
    ``NetworkError``. Retries happen in here and only before the first event other than ``MessageStart``. Closing the
    iterator early closes the HTTP stream.
    """

    id: str

    def info(self, model: str) -> ModelInfo:
        """What this provider knows of ``model``; defaults for an unknown one."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]: ...

    async def close(self) -> None: ...


class ModelHandle(msgspec.Struct, frozen=True):
    """A selected model. ``id`` is the host's bookkeeping id, ``model`` what goes on the wire."""

    id: str
    provider: Provider
    model: str
    info: ModelInfo
    extra: dict[str, Any] = {}


class ModelSelector(Protocol):
    """Chooses a model for a turn and its fallbacks.

    ``select`` raises ``ConfigError`` with a sentence for the person when nothing fits: no model at all, an unknown pin,
    or nothing left outside ``exclude``. A pin counts on the first attempt only.
    """

    async def select(self, *, pin: str | None = None, exclude: frozenset[str] = frozenset()) -> ModelHandle: ...

    def report_success(self, handle_id: str) -> None: ...

    def report_failure(self, handle_id: str, error: Exception) -> None: ...
