"""The Agent: the parts of a loop put together, and the owner of its running turns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from skald_core.loop.compaction import Compaction
from skald_core.loop.errors import ConfigError
from skald_core.loop.events import Event, SkillView
from skald_core.loop.gate import DenyAll, Gate
from skald_core.loop.hook_chain import Hook, HookChain
from skald_core.loop.hooks import Hooks
from skald_core.loop.media import MediaSource
from skald_core.loop.memory_store import MemoryStore
from skald_core.loop.profile import Limits, Profile, ProfileSource, SystemSource, ToolSource
from skald_core.loop.provider import ModelSelector, Provider
from skald_core.loop.records import ConversationInfo
from skald_core.loop.recovery import Recovery, recover
from skald_core.loop.runner import Runner
from skald_core.loop.selectors import SingleModel
from skald_core.loop.services import Services, now_ms
from skald_core.loop.session import Session
from skald_core.loop.store import Store
from skald_core.loop.subscription import EventHub, Subscription
from skald_core.loop.tools import Tool, ToolRegistry
from skald_core.loop.types import ConversationId

__all__ = ("Agent",)


def _here() -> str:
    """The folder this process works in; empty when that was deleted."""
    try:
        return str(Path.cwd())
    except OSError:
        return ""


class Agent:
    """Runs conversations. One per user in a server, one per process in a script.

    provider, model
        One model; or give a ``selector`` that chooses among several.
    tools, system, scope, cwd, skills
        What the conversation's own agent has: tools, system prompt (text or an async function), objects that tools find in
        their context by type, the folder it works in (the process's own when not given), and skills to tell of.
    profiles
        Instead of those: an async function from (conversation, agent id) to a :class:`Profile`. Sub-agents need it.
    gate
        Judges calls. Without one every call is refused.
    hooks
        An object with hooks, or a :class:`HookChain` of several.
    store
        Where conversations live; in memory when not given. ``close_store`` closes it with the Agent.
    partials
        Send ``partial_assistant`` events, too.

    Making one does no I/O. Raises ConfigError when parts are missing or exclude each other.
    """

    def __init__(
        self,
        *,
        provider: Provider | None = None,
        model: str = "",
        selector: ModelSelector | None = None,
        tools: ToolSource | Iterable[Tool] = (),
        system: SystemSource | str = "",
        scope: dict[type[Any], Any] | None = None,
        cwd: str | os.PathLike[str] = "",
        skills: Iterable[SkillView] = (),
        profiles: ProfileSource | None = None,
        gate: Gate | None = None,
        hooks: Hooks | Hook | HookChain | None = None,
        store: Store | None = None,
        limits: Limits | None = None,
        compaction: Compaction | None = None,
        media: MediaSource | None = None,
        clock: Callable[[], int] = now_ms,
        partials: bool = False,
        close_store: bool = False,
        buffer: int = 4096,
    ) -> None:
        if (provider is None) == (selector is None):
            raise ConfigError("give an Agent either a provider and a model, or a selector")
        if provider is not None:
            selector = SingleModel(provider, model)
        assert selector is not None
        if profiles is None:
            source = tools if isinstance(tools, ToolRegistry) or callable(tools) else ToolRegistry(tools)
            own = Profile(
                system=system, tools=source, scope=scope or {}, cwd=os.fspath(cwd) or _here(), skills=tuple(skills)
            )

            async def profiles_of(conversation: ConversationId, agent: str) -> Profile:
                if agent:
                    raise ConfigError(
                        f"there is no agent {agent!r}; give the Agent a 'profiles' function that knows it"
                    )
                return own

            profiles = profiles_of
        self._services = Services(
            store=store if store is not None else MemoryStore(),
            selector=selector,
            gate=gate if gate is not None else DenyAll(),
            hooks=HookChain.of(hooks),
            profiles=profiles,
            limits=limits if limits is not None else Limits(),
            compaction=compaction if compaction is not None else Compaction(),
            media=media,
            clock=clock,
            partials=partials,
        )
        self._close_store = close_store
        self._buffer = buffer
        self._closed = False
        self._hub = EventHub()
        self._runner = Runner(self._services, self._hub)

    @property
    def store(self) -> Store:
        return self._services.store

    def session(self, conversation: str, *, profile: Profile | None = None) -> Session:
        """A handle on a conversation; an unknown id becomes one with its first message."""
        if not conversation:
            raise ConfigError("a conversation needs an id")
        return Session(
            self._services, self._runner, self._hub, ConversationId(conversation), profile=profile, buffer=self._buffer
        )

    def on_event(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call ``listener`` with every event of every conversation, in order, on the event loop. It must be quick.

        Returns the function that stops it.
        """
        return self._hub.listen(listener)

    def subscribe(self, conversation: str | None = None, *, buffer: int | None = None) -> Subscription:
        """Events as an async iterator. A slow reader gets a ``lagged`` event in place of what it missed."""
        wanted = ConversationId(conversation) if conversation is not None else None
        return self._hub.subscribe(wanted, buffer or self._buffer)

    async def conversations(self, *, limit: int = 50, offset: int = 0) -> tuple[ConversationInfo, ...]:
        """The conversations of the store, the one with the newest message first."""
        return await self._services.store.conversations(limit=limit, offset=offset)

    def running(self) -> tuple[ConversationId, ...]:
        """Conversations with a live turn."""
        return self._runner.conversations()

    async def recover(self, *, resume: bool = True) -> Recovery:
        """Repair what a crash left and take it up again; call it once before anything is sent. Idempotent."""
        return await recover(self._services, self._runner, resume=resume)

    def abort_all(self, reason: str = "") -> int:
        """Stop every live turn at once; returns how many."""
        return sum(self._runner.abort(conversation, reason) for conversation in self._runner.conversations())

    async def close(self) -> None:
        """End live turns so that the next ``recover`` takes them up; to end them for good, ``abort_all`` first.

        No provider is closed, and the store only with ``close_store``: they were given, not made. Idempotent; a session of a
        closed Agent refuses to begin a turn.
        """
        if self._closed:
            return
        self._closed = True
        await self._runner.close()
        self._hub.close()
        if self._close_store:
            await self._services.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
