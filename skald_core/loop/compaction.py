"""Compaction: a summary takes the place of older messages in what a model sees. The store keeps every message.

A strategy decides what to cover and writes the summary; the loop decides when, stores the result as a checkpoint and
goes on without one when the strategy fails or takes too long.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Literal, Protocol

import msgspec

from skald_core.loop.records import Call, Checkpoint, Message
from skald_core.loop.text import cut
from skald_core.loop.types import ConversationId, FrameId, MessageId, ModelInfo, Usage

__all__ = (
    "Compaction",
    "CompactionContext",
    "CompactionResult",
    "CompactionStrategy",
    "Completion",
    "KeepTail",
    "estimate_tokens",
    "known_tokens",
    "should_compact",
    "transcript",
)

Trigger = Literal["threshold", "forced", "manual"]


class Completion(msgspec.Struct, frozen=True):
    text: str
    usage: Usage = Usage()
    model: str = ""


class CompactionContext(msgspec.Struct, frozen=True):
    """``messages`` is the branch since ``previous``. ``complete(system, prompt, max_tokens)`` asks the model once."""

    conversation: ConversationId
    frame: FrameId
    messages: tuple[Message, ...]
    previous: Checkpoint | None
    info: ModelInfo
    tokens: int
    trigger: Trigger
    complete: Callable[[str, str, int], Awaitable[Completion]]


class CompactionResult(msgspec.Struct, frozen=True):
    """``covered_up_to`` is the last message the summary stands for; at least one message must come after it."""

    summary: str
    covered_up_to: MessageId
    usage: Usage = Usage()
    model: str = ""


class CompactionStrategy(Protocol):
    id: str

    async def compact(self, context: CompactionContext) -> CompactionResult | None:
        """A summary, or None when there is nothing worth covering."""
        ...


def estimate_tokens(messages: Sequence[Message]) -> int:
    """A rough count: four characters a token, as is usual for English text; other scripts need more."""
    count = 0
    for message in messages:
        count += len(message.prompt) + len(message.reasoning) + 16
        for call in message.calls:
            count += len(call.name) + len(call.arguments) + len(call.result or "") + 16
    return count // 4


def known_tokens(messages: Sequence[Message], checkpoint: Checkpoint | None) -> int:
    """The size of a history read from the store: what the last model call reported, and an estimate of what came since.

    A report from before the checkpoint counted messages that are gone, so then all of it is an estimate.
    """
    since = checkpoint.created_at if checkpoint is not None else -1
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message.usage is not None and message.usage.input_tokens and message.created_at > since:
            results = sum(len(call.result or "") for call in message.calls) // 4
            after = estimate_tokens(messages[index + 1 :])
            return message.usage.input_tokens + message.usage.output_tokens + results + after
    summary = len(checkpoint.summary) // 4 if checkpoint is not None else 0
    return estimate_tokens(messages) + summary


def should_compact(tokens: int, info: ModelInfo, *, fraction: float, threshold: int | None = None) -> bool:
    """Whether ``tokens`` of context leave too little room for an answer and for the summary itself.

    Room kept free is the larger of ``1 - fraction`` of the window and the output the model may write, at most half of
    the window. ``threshold`` is an absolute count that wins when smaller.
    """
    window = info.context_window
    reserve = max(window * (1 - fraction), min(info.max_output_tokens or 0, window // 2))
    limit = window - reserve
    return tokens >= (limit if threshold is None else min(limit, threshold))


def _call_line(call: Call) -> str:
    state = "" if call.state == "done" else f" [{'failed' if call.state == 'failed' else call.state}]"
    return f"TOOL {call.name}({cut(call.arguments, 1200)}){state}: {cut(call.result or '', 5500)}"


def transcript(messages: Sequence[Message]) -> Iterator[str]:
    """One piece of text per message, cut where long, for a summary to be made of."""
    for message in messages:
        lines = [f"{message.role.upper()}: {cut(message.prompt, 7500)}"] if message.prompt else []
        lines += [_call_line(call) for call in message.calls]
        if lines:
            yield "\n".join(lines)


_SYSTEM = (
    "You write the checkpoint from which an assistant continues a long conversation it can no longer see. "
    "Write in the language of the user. Replace secrets (keys, passwords, tokens) by [REDACTED]. "
    "Output only the checkpoint."
)
_SECTIONS = """Write the checkpoint with these sections, leaving out empty ones:
## Active task
(most important: the user's latest open request, word for word)
## Goal
## Constraints and preferences
## Completed actions
(numbered; tool used, target, outcome)
## Active state
## In progress
## Blocked
## Decisions
(with the reason)
## Resolved questions
## Pending questions
## Files
(path and what matters about it)
## Remaining work
## Critical context
(exact values, names, errors that must not be lost)"""


class KeepTail:
    """Keeps about the last ``keep`` messages, going back to a user message where one is near, and summarizes the rest.

    The text to summarize goes to the model in as many pieces as its window needs, each with the summary so far.
    """

    id = "keep-tail"

    def __init__(self, keep: int = 6) -> None:
        self.keep = max(1, keep)

    def split(self, messages: Sequence[Message], *, room: int) -> int:
        """How many messages to cover, 0 when too few. What stays should fit in ``room`` tokens."""
        end = len(messages) - self.keep
        if end < 1:
            end = len(messages) - 1 if estimate_tokens(messages) > room else 0
        at = end
        while at > 0 and messages[at].role == "assistant":
            at -= 1
        if at == 0 or estimate_tokens(messages[at:]) > room:
            # One long turn: cut between two of its rounds; calls and results are one message and stay together.
            at = end
            while at < len(messages) - 1 and estimate_tokens(messages[at:]) > room:
                at += 1
        return at

    async def compact(self, context: CompactionContext) -> CompactionResult | None:
        window = context.info.context_window
        covered = self.split(context.messages, room=window // 2)
        if covered < 1:
            return None
        output = max(256, min(4096, window // 4))
        room = max(2000, (window - output - 1000) * 3)
        summary = context.previous.summary if context.previous else ""
        usage = Usage()
        model = ""
        for piece in _pieces(list(transcript(context.messages[:covered])), room - min(len(summary), room // 2)):
            before = f"PREVIOUS CHECKPOINT (update it, do not repeat it):\n{summary}\n\n" if summary else ""
            prompt = f"{before}CONVERSATION:\n{piece}\n\n{_SECTIONS}"
            done = await context.complete(_SYSTEM, prompt, output)
            usage, model = usage + done.usage, done.model
            summary = done.text.strip() or summary
        if not summary:
            return None
        return CompactionResult(summary, context.messages[covered - 1].id, usage, model)


def _pieces(lines: list[str], room: int) -> Iterator[str]:
    """``lines`` joined into texts of at most ``room`` characters; a longer line is cut in the middle."""
    held: list[str] = []
    size = 0
    for line in lines:
        line = cut(line, room)
        if held and size + len(line) > room:
            yield "\n\n".join(held)
            held, size = [], 0
        held.append(line)
        size += len(line) + 2
    if held:
        yield "\n\n".join(held)


class Compaction(msgspec.Struct, frozen=True):
    """When and how. ``threshold`` is an absolute token count besides the share of the window; ``automatic=False`` leaves
    only the manual pass and the one after a model refused a request as too long. ``pin`` names the summary's model."""

    strategy: CompactionStrategy = msgspec.field(default_factory=KeepTail)
    automatic: bool = True
    fraction: float = 0.8
    threshold: int | None = None
    seconds: float = 120.0
    pin: str | None = None
