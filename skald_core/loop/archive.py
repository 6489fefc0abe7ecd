"""A conversation's history as one JSON document, every branch of it, to keep or to bring into another store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from skald_core.loop.errors import ConfigError
from skald_core.loop.records import CALLS_A_MESSAGE, Checkpoint, Message
from skald_core.loop.types import MessageId

__all__ = ("VERSION", "Archive", "ArchiveError", "pack", "unpack")

VERSION = 1

_LARGEST = 2**63 - 1
"""The largest number a store keeps."""


class ArchiveError(ConfigError):
    """What was given is no export that can be taken over; ``reason`` says in which way."""

    def __init__(self, message: str, reason: Literal["not_an_export", "newer_version", "damaged"]) -> None:
        super().__init__(message)
        self.reason = reason


class Archive(msgspec.Struct, frozen=True):
    """What an export holds. ``messages`` are all branches in the order of recording; ids count only within it."""

    messages: tuple[Message, ...]
    head: MessageId | None
    agent: str = ""
    checkpoints: tuple[Checkpoint, ...] = ()
    format: str = "skald-conversation"
    version: int = VERSION
    title: str = ""


def pack(archive: Archive) -> bytes:
    return msgspec.json.encode(archive)


def unpack(data: bytes) -> Archive:
    """Read an export. Raises ArchiveError when it is none, is newer than this program, or does not hang together."""
    try:
        found = msgspec.json.decode(data, type=Archive)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        _refuse_newer(data)
        raise ArchiveError(f"this is not an exported conversation: {error}", "not_an_export") from None
    if found.format != "skald-conversation":
        raise ArchiveError(f"this is not an exported conversation but {found.format!r}", "not_an_export")
    if not 1 <= found.version <= VERSION:
        raise _other_version(found.version)
    seen: set[MessageId] = set()
    for message in found.messages:
        if message.id < 1 or message.id in seen or (message.parent is not None and message.parent not in seen):
            raise ArchiveError(f"this export is damaged: message {message.id} does not follow one before it", "damaged")
        if len(message.calls) > CALLS_A_MESSAGE or any(abs(n) > _LARGEST for n in _numbers(message)):
            raise ArchiveError(f"this export is damaged: message {message.id} holds what cannot be stored", "damaged")
        seen.add(message.id)
    if found.head is not None and found.head not in seen:
        raise ArchiveError("this export is damaged: the message it shows last is missing", "damaged")
    for point in found.checkpoints:
        if abs(point.created_at) > _LARGEST or abs(point.tokens_before) > _LARGEST:
            raise ArchiveError("this export is damaged: a summary holds what cannot be stored", "damaged")
    return msgspec.structs.replace(
        found, checkpoints=tuple(point for point in found.checkpoints if point.covered_up_to in seen)
    )


class _Version(msgspec.Struct):
    format: str
    version: int


def _refuse_newer(data: bytes) -> None:
    """An export of a later version may look different everywhere but in what says so."""
    try:
        found = msgspec.json.decode(data, type=_Version)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return
    if found.format == "skald-conversation" and not 1 <= found.version <= VERSION:
        raise _other_version(found.version)


def _other_version(version: int) -> ArchiveError:
    return ArchiveError(
        f"this export has version {version}; this program reads up to {VERSION}. Update it first.", "newer_version"
    )


def _numbers(message: Message) -> Iterator[int]:
    yield message.created_at
    yield message.duration_ms or 0
    for call in message.calls:
        yield call.duration_ms or 0
        yield call.finished_at or 0
