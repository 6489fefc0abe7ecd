"""The files a model is shown in the current turn: loaded once, within bounds, and only for a model that can look at them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

from skald_core.loop.profile import Limits
from skald_core.loop.projection import current_media, media_kinds, visible
from skald_core.loop.records import Message
from skald_core.loop.types import Attachment, MediaPart, ModelInfo

__all__ = ("MediaSource", "TurnMedia")

log = logging.getLogger(__name__)

_MIB = 2**20
_MOST = {"image": 10 * _MIB, "video": 32 * _MIB, "application": 32 * _MIB}
"""Bytes of one file, by the first part of its type."""


class MediaSource(Protocol):
    """Loads what a model may look at. The loop asks only for the current turn's attachments."""

    async def load(self, attachment: Attachment, scope: dict[type[Any], Any]) -> MediaPart | None:
        """The attachment's bytes with the type its bytes show (:func:`~skald_core.loop.sniff.media_type_of`).

        None when it is no media, gone, or too large.
        """
        ...


class TurnMedia:
    """What was loaded so far, by attachment path. A file beyond the bounds is only named to the model, not shown."""

    def __init__(self, source: MediaSource | None, limits: Limits) -> None:
        self._source = source
        self._limits = limits
        self._loaded: dict[str, MediaPart | None] = {}

    async def load(
        self, messages: Sequence[Message], info: ModelInfo, scope: dict[type[Any], Any]
    ) -> dict[str, MediaPart]:
        """What ``info``'s model is shown of the current turn's files, the first ones first."""
        source = self._source
        if source is None or not media_kinds(info):
            return {}
        shown: dict[str, MediaPart] = {}
        size = 0
        for attachment in current_media(messages):
            path = attachment.path
            if path in shown or len(shown) >= self._limits.media_files:
                continue
            if path not in self._loaded:
                self._loaded[path] = await self._read(source, attachment, scope)
            part = self._loaded[path]
            if part is None or not visible(part, info) or size + len(part.data) > self._limits.media_bytes:
                continue
            shown[path] = part
            size += len(part.data)
        return shown

    @staticmethod
    async def _read(source: MediaSource, attachment: Attachment, scope: dict[type[Any], Any]) -> MediaPart | None:
        try:
            part = await source.load(attachment, scope)
        except Exception:
            log.exception("an attachment could not be loaded")
            return None
        if part is not None and len(part.data) > _MOST.get(part.media_type.partition("/")[0], 0):
            return None
        return part
