"""Which content of a file a person saw before saying yes.

``preview`` notes the version it showed; ``run`` of the same call takes the note and passes it as the version the file must
still be. Without a note (a call nobody was asked about) there is nothing to hold it to.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from skald_core import api as skald

__all__ = ("Seen",)

_MOST = 1000


class Seen:
    """Notes by call. Bounded: of calls that were never run the oldest are forgotten."""

    def __init__(self) -> None:
        self._notes: OrderedDict[tuple[object, ...], skald.FileVersion] = OrderedDict()
        self._lock = threading.Lock()

    @staticmethod
    def _key(ctx: skald.ToolContext, arguments: object) -> tuple[object, ...]:
        # Local models repeat their own call ids; the arguments keep a note from reaching another call.
        return ctx.conversation, ctx.frame, ctx.call_id or ctx.tool_use_id, repr(arguments)

    def note(self, ctx: skald.ToolContext, arguments: object, version: skald.FileVersion) -> None:
        with self._lock:
            key = self._key(ctx, arguments)
            self._notes[key] = version
            self._notes.move_to_end(key)
            while len(self._notes) > _MOST:
                self._notes.popitem(last=False)

    def take(self, ctx: skald.ToolContext, arguments: object) -> skald.FileVersion | None:
        with self._lock:
            return self._notes.pop(self._key(ctx, arguments), None)
