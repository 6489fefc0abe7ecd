"""The system prompt of a conversation's agent: a stable prefix for provider caches, and what changes per turn at the tail."""

from __future__ import annotations

import datetime as dt

from skald_core.chat.agents import Agent
from skald_core.identity.models import User
from skald_core.loop.profile import SystemContext, SystemPrompt
from skald_core.loop.types import SystemBlock

__all__ = ("system_prompt",)

_LANGUAGES = {"en": "English", "it": "Italian", "fr": "French"}


def system_prompt(agent: Agent, user: User, context: SystemContext, now: dt.datetime) -> SystemPrompt:
    """``now`` is local time with its zone. Small models get the short text and only the date, so that their prompt stays
    short and changes once a day; others get the hour at the tail of the turn's message."""
    if context.info.weak:
        return SystemPrompt((SystemBlock(f"{agent.short}\nToday is {now:%A}, {now:%Y-%m-%d}."),))
    person = f"The person you work for is called {user.display_name}."
    language = _LANGUAGES.get(user.locale)
    if language:
        person += f" Their interface is in {language}; answer in the language they write in."
    zone = now.tzname() or "local time"
    offset = now.strftime("%z")
    tail = (
        f"<context>It is {now:%A}, {now:%Y-%m-%d}, about {now:%H}:00 ({zone}, UTC{offset[:3]}:{offset[3:]}); "
        "the minutes are not known.</context>"
    )
    return SystemPrompt((SystemBlock(agent.prompt), SystemBlock(person)), tail)
