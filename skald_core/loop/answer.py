"""One model answer put together from its stream, and the draft that keeps it while it streams."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from skald_core.loop.ops import AddDraft, NewCall
from skald_core.loop.provider import (
    CallDelta,
    CallEnd,
    CallStart,
    MessageEnd,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
)
from skald_core.loop.store import Store
from skald_core.loop.types import FrameId, StopReason, Usage

__all__ = ("Answer", "DraftWriter")

log = logging.getLogger(__name__)

DRAFT_SECONDS = 0.25
DRAFT_CHARS = 2048


class _OpenCall:
    __slots__ = ("ended", "id", "name", "pieces")

    def __init__(self, use_id: str, name: str) -> None:
        self.id = use_id
        self.name = name
        self.pieces: list[str] = []
        self.ended = False


class Answer:
    """Collects a stream. ``shown`` turns true with the first piece anybody may have seen."""

    __slots__ = (
        "_calls",
        "_text",
        "_thought",
        "ended",
        "metadata",
        "shown",
        "signature",
        "stop_reason",
        "usage",
        "written",
    )

    def __init__(self) -> None:
        self._text: list[str] = []
        self._thought: list[str] = []
        self._calls: dict[str, _OpenCall] = {}
        self.signature = ""
        self.stop_reason: StopReason = "error"
        self.usage = Usage()
        self.metadata: dict[str, Any] | None = None
        self.ended = False
        self.shown = False
        self.written: tuple[NewCall, ...] = ()  # calls found in the text, when the model made no real ones

    def add(self, event: StreamEvent) -> None:
        if isinstance(event, TextDelta):
            self._text.append(event.text)
        elif isinstance(event, ReasoningDelta):
            self._thought.append(event.text)
            self.signature = event.signature or self.signature
        elif isinstance(event, CallDelta):
            if event.id in self._calls:
                self._calls[event.id].pieces.append(event.text)
        elif isinstance(event, CallStart):
            self._calls[event.id] = _OpenCall(event.id, event.name)
        elif isinstance(event, CallEnd):
            if event.id in self._calls:
                self._calls[event.id].ended = True
        elif isinstance(event, MessageEnd):
            self.stop_reason = event.stop_reason
            self.usage = event.usage
            self.metadata = event.metadata
            self.ended = True

    def name_of(self, call: str) -> str:
        return self._calls[call].name if call in self._calls else ""

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        return "".join(self._thought)

    @property
    def calls(self) -> tuple[NewCall, ...]:
        """The calls to run. One that never ended counts too: its broken arguments become an error the model sees."""
        return tuple(NewCall(c.name, "".join(c.pieces), c.id) for c in self._calls.values())


class DraftWriter:
    """Keeps streaming output in the store, at most every quarter second or two thousand characters, never in its way.

    ``wrote`` says whether a draft must be cleared with the batch that stores the message.
    """

    __slots__ = ("_chars", "_frame", "_model", "_store", "_text", "_thought", "_timer", "_writing", "wrote")

    def __init__(self, store: Store, frame: FrameId, model: str) -> None:
        self._store = store
        self._frame = frame
        self._model = model
        self._text: list[str] = []
        self._thought: list[str] = []
        self._chars = 0
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[Any] | None = None
        self.wrote = False

    def add(self, text: str, reasoning: str) -> None:
        self._text.append(text)
        self._thought.append(reasoning)
        self._chars += len(text) + len(reasoning)
        if self._chars >= DRAFT_CHARS:
            self._flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(DRAFT_SECONDS, self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._chars or (self._writing is not None and not self._writing.done()):
            return
        op = AddDraft(self._frame, "".join(self._text), "".join(self._thought), self._model)
        self._text.clear()
        self._thought.clear()
        self._chars = 0
        self.wrote = True
        self._writing = asyncio.ensure_future(self._store.apply([op]))
        self._writing.add_done_callback(self._written)

    def _written(self, done: asyncio.Future[Any]) -> None:
        if not done.cancelled() and done.exception() is not None:
            log.warning("a draft could not be stored: %s", done.exception())
        if self._chars and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(DRAFT_SECONDS, self._flush)

    def stop(self, *, keep: bool = False) -> None:
        """End. With ``keep`` what is left is written: the process is going away and nobody stores the message."""
        if keep:
            self._flush()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._chars = 0
