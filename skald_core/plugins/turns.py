"""What the hooks of a turn are told."""

from __future__ import annotations

from typing import Literal

import msgspec

from skald_core.files.userfs import UserFs
from skald_core.identity.models import User
from skald_core.loop.types import Attachment, StopReason, Usage

__all__ = (
    "Compaction",
    "PastMessage",
    "PromptBlock",
    "TurnEnd",
    "TurnInfo",
    "TurnStopping",
    "UserPrompt",
)


class TurnInfo(msgspec.Struct, frozen=True):
    """A turn of a user's conversation. ``model`` is the model's id once it is chosen; ``weak`` models get short prompts.
    ``depth`` is 0, or how deep a sub-agent is nested."""

    user: User
    conversation: str
    agent: str
    run_id: str = ""
    model: str = ""
    weak: bool = False
    depth: int = 0
    files: UserFs | None = None


class TurnEnd(msgspec.Struct, frozen=True):
    """How a turn ended. ``text`` is the final answer."""

    outcome: Literal["success", "aborted", "error", "interrupted"]
    duration_ms: int
    usage: Usage
    text: str = ""
    error: str = ""


class TurnStopping(msgspec.Struct, frozen=True):
    """A turn about to end by itself, with the answer it would end with."""

    turn: TurnInfo
    stop_reason: StopReason
    text: str
    continued: int


class UserPrompt(msgspec.Struct, frozen=True):
    """Words about to become a user's message. ``steering`` says that they join a running turn."""

    user: User
    conversation: str
    content: str
    attachments: tuple[Attachment, ...] = ()
    steering: bool = False


class PromptBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Text for the system prompt: a stable ``prefix``, or a ``tail`` that may differ in every turn."""

    text: str
    place: Literal["prefix", "tail"] = "prefix"
    priority: int = 100


class PastMessage(msgspec.Struct, frozen=True):
    """A stored message: who said what. ``role`` is ``user``, ``assistant`` or ``agent``."""

    role: str
    text: str


class Compaction(msgspec.Struct, frozen=True):
    """A compaction about to happen.

    ``trigger`` says what for (the loop's ``Trigger``); ``tokens`` is the size of the model's context before it; ``messages``
    are the ones the summary will stand for, oldest first.
    """

    user: User
    conversation: str
    trigger: str
    tokens: int
    messages: tuple[PastMessage, ...] = ()
