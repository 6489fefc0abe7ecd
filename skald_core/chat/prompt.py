"""The system prompt of an agent: a stable prefix for provider caches, and what changes per turn at the tail."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence

import msgspec

from skald_core.chat.turns import TurnWatch
from skald_core.identity.models import User
from skald_core.loop.profile import SystemContext, SystemPrompt
from skald_core.loop.text import clean
from skald_core.loop.types import SystemBlock
from skald_core.plugins.contributions import AgentSpec
from skald_core.plugins.turns import PromptBlock
from skald_core.plugins.user_hooks import UserHooks

__all__ = ("BLOCK_CHARS", "IDLE_SECONDS", "WEAK_CHARS", "Blocks", "PromptBlocks", "system_prompt")

IDLE_SECONDS = 20 * 60.0
"""After so long without a turn no provider has the prefix in its cache any more, so it may as well be made anew."""

BLOCK_SECONDS = 5.0
BLOCK_CHARS = 64_000
"""The most one block may have. A longer one is a mistake, which would fail every turn of the conversation."""

WEAK_CHARS = 2_000
"""What all plugins together may add for a model with little context, about 500 tokens each for prefix and tail. Blocks are
taken whole, by priority, as long as they fit: half an instruction misleads more than none."""

_LANGUAGES = {"en": "English", "it": "Italian", "fr": "French"}


class Blocks(msgspec.Struct, frozen=True):
    """Texts of plugins for one prompt, in their order."""

    prefix: tuple[str, ...] = ()
    tail: tuple[str, ...] = ()


class _Frozen(msgspec.Struct):
    prefix: tuple[str, ...]
    visible: frozenset[str]
    used_at: float


class PromptBlocks:
    """Asks a user's plugins for prompt blocks and keeps each conversation's prefix as it is."""

    def __init__(self, hooks: UserHooks, turns: TurnWatch, *, now: Callable[[], float]) -> None:
        self._hooks = hooks
        self._turns = turns
        self._now = now
        self._frozen: dict[tuple[str, str, bool], _Frozen] = {}
        self._changes = 0

    def thaw(self) -> None:
        """Something a prefix was made of has changed: every conversation's next turn asks again."""
        self._changes += 1
        self._frozen.clear()

    def touch(self, conversation: str) -> None:
        """A turn ended: the idle time begins."""
        for key, frozen in self._frozen.items():
            if key[0] == conversation:
                frozen.used_at = self._now()

    def forget(self, conversation: str) -> None:
        self._frozen = {key: frozen for key, frozen in self._frozen.items() if key[0] != conversation}

    async def of(self, context: SystemContext) -> Blocks:
        """The blocks of a turn. A plugin that fails is left out, and keeps the prefix from being frozen without it."""
        now, visible, changes = self._now(), self._hooks.visible(), self._changes
        key = (context.conversation, context.agent, context.info.weak)
        self._frozen = {k: f for k, f in self._frozen.items() if now - f.used_at <= IDLE_SECONDS}
        frozen = self._frozen.get(key)
        if frozen is not None and frozen.visible != visible:
            frozen = None
        found, complete = await self._ask(context)
        budget = WEAK_CHARS if context.info.weak else None
        tail = _texts(found, "tail", budget)
        if frozen is not None:
            frozen.used_at = now
            return Blocks(frozen.prefix, tail)
        prefix = _texts(found, "prefix", budget)
        if complete and changes == self._changes:
            self._frozen[key] = _Frozen(prefix, visible, now)
        return Blocks(prefix, tail)

    async def _ask(self, context: SystemContext) -> tuple[list[PromptBlock], bool]:
        """Every plugin's blocks, by priority and then plugin; and whether all of them answered well."""
        found: list[tuple[int, str, PromptBlock]] = []
        complete = True
        turn = self._turns.of(context)
        async for outcome in self._hooks.ask("skald_prompt_blocks", {"turn": turn}, timeout=BLOCK_SECONDS):
            if outcome.error is not None:
                complete = False
            elif outcome.value is None:
                continue
            elif _are_blocks(outcome.value):
                found += [(block.priority, outcome.plugin, block) for block in outcome.value]
            else:
                complete = False
                limit = f"PromptBlocks of at most {BLOCK_CHARS:,} characters"
                self._hooks.wrong(outcome, "skald_prompt_blocks", f"a list of {limit}")
        found.sort(key=lambda row: row[:2])
        return [block for _, _, block in found], complete


def _are_blocks(value: object) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(block, PromptBlock)
        and isinstance(block.text, str)
        and len(block.text) <= BLOCK_CHARS
        and block.place in ("prefix", "tail")
        and isinstance(block.priority, int)
        for block in value
    )


def _texts(blocks: Iterable[PromptBlock], place: str, budget: int | None) -> tuple[str, ...]:
    taken: list[str] = []
    for block in blocks:
        text = clean(block.text).strip()
        if block.place != place or not text:
            continue
        if budget is not None:
            if len(text) > budget:
                continue
            budget -= len(text)
        taken.append(text)
    return tuple(taken)


def system_prompt(
    agent: AgentSpec, user: User, context: SystemContext, now: dt.datetime, blocks: Blocks
) -> SystemPrompt:
    """``now`` is local time with its zone. Small models get the agent's short text and only the date, so that their prompt
    stays short and changes once a day; others get the hour at the tail of the turn's message."""
    more = [SystemBlock(text) for text in blocks.prefix]
    if context.info.weak:
        first = SystemBlock(f"{agent.short or agent.prompt}\nToday is {now:%A}, {now:%Y-%m-%d}.")
        return SystemPrompt((first, *more), _joined(blocks.tail))
    person = f"The person you work for is called {user.display_name}."
    language = _LANGUAGES.get(user.locale)
    if language:
        person += f" Their interface is in {language}; answer in the language they write in."
    zone = now.tzname() or "local time"
    offset = now.strftime("%z")
    clock = (
        f"<context>It is {now:%A}, {now:%Y-%m-%d}, about {now:%H}:00 ({zone}, UTC{offset[:3]}:{offset[3:]}); "
        "the minutes are not known.</context>"
    )
    return SystemPrompt((SystemBlock(agent.prompt), SystemBlock(person), *more), _joined((clock, *blocks.tail)))


def _joined(texts: Sequence[str]) -> str:
    return "\n\n".join(texts)
