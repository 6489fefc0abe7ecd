"""A conversation's history as one JSON document, every branch of it, to keep or to bring into another store."""

from __future__ import annotations

import msgspec

from skald_core.loop.errors import ConfigError
from skald_core.loop.records import Checkpoint, Message
from skald_core.loop.types import MessageId

__all__ = ("VERSION", "Archive", "pack", "unpack")

VERSION = 1


class Archive(msgspec.Struct, frozen=True):
    """What an export holds. ``messages`` are all branches in the order of recording; ids count only within it."""

    messages: tuple[Message, ...]
    head: MessageId | None
    agent: str = ""
    checkpoints: tuple[Checkpoint, ...] = ()
    format: str = "skald-conversation"
    version: int = VERSION


def pack(archive: Archive) -> bytes:
    return msgspec.json.encode(archive)


def unpack(data: bytes) -> Archive:
    """Read an export. Raises ConfigError when it is none, is newer than this program, or does not hang together."""
    try:
        found = msgspec.json.decode(data, type=Archive)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"this is not an exported conversation: {error}") from None
    if found.format != "skald-conversation":
        raise ConfigError(f"this is not an exported conversation but {found.format!r}")
    if found.version > VERSION:
        raise ConfigError(
            f"this export has version {found.version}; this program reads up to {VERSION}. Update it first."
        )
    seen: set[MessageId] = set()
    for message in found.messages:
        if message.id in seen or (message.parent is not None and message.parent not in seen):
            raise ConfigError(f"this export is damaged: message {message.id} does not follow one before it")
        seen.add(message.id)
    if found.head is not None and found.head not in seen:
        raise ConfigError("this export is damaged: the message it shows last is missing")
    return msgspec.structs.replace(
        found, checkpoints=tuple(point for point in found.checkpoints if point.covered_up_to in seen)
    )
