"""How events get out of the agent: functions called at once, and bounded subscriptions that cannot slow a turn."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from skald_core.loop.events import Event, Lagged, ResultEvent
from skald_core.loop.types import ConversationId

__all__ = ("EventHub", "RunStream", "Subscription")

log = logging.getLogger(__name__)


class Subscription:
    """An async iterator of events. Reading slowly loses events, never time: when more than ``size`` wait, they are
    dropped and one ``Lagged`` event says how many. Ends after :meth:`close`; events that wait are still given out."""

    def __init__(self, hub: EventHub, conversation: ConversationId | None, size: int) -> None:
        self._hub = hub
        self.conversation = conversation
        self._size = size
        self._events: deque[Event] = deque()
        self._missed = 0
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False

    def push(self, event: Event) -> None:
        if self._closed:
            return
        if len(self._events) >= self._size:
            self._missed += len(self._events) - (1 if isinstance(self._events[0], Lagged) else 0)
            self._events.clear()
            self._events.append(Lagged(event.conversation, event.frame, self._missed))
        self._events.append(event)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """Take no more events."""
        self._closed = True
        self._hub.drop(self)
        self._wake()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._closed:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        event = self._events.popleft()
        if isinstance(event, Lagged):
            self._missed = 0
        return event

    async def aclose(self) -> None:
        self.close()


class RunStream(Subscription):
    """The events of one turn, up to its result. Leaving it early stops nothing: the turn belongs to the Agent."""

    def __init__(self, hub: EventHub, conversation: ConversationId, size: int, run_id: str) -> None:
        super().__init__(hub, conversation, size)
        self.run_id = run_id

    def push(self, event: Event) -> None:
        super().push(event)
        if isinstance(event, ResultEvent) and event.run_id == self.run_id:
            self.close()


class EventHub:
    """Sends every event to each listener and subscription, in order. A listener that raises is logged and kept."""

    def __init__(self) -> None:
        self._listeners: tuple[Callable[[Event], None], ...] = ()
        self._everything: tuple[Subscription, ...] = ()
        self._following: dict[ConversationId, tuple[Subscription, ...]] = {}

    def emit(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                log.exception("an event listener failed on %r", type(event).__name__)
        for subscription in self._following.get(event.conversation, ()):
            subscription.push(event)
        for subscription in self._everything:
            subscription.push(event)

    def listen(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call ``listener`` with every event, on the event loop; returns the function that stops it."""
        self._listeners += (listener,)

        def stop() -> None:
            self._listeners = tuple(known for known in self._listeners if known is not listener)

        return stop

    def subscribe(self, conversation: ConversationId | None, size: int) -> Subscription:
        return self.add(Subscription(self, conversation, size))

    def add(self, subscription: Subscription) -> Subscription:
        about = subscription.conversation
        if about is None:
            self._everything += (subscription,)
        else:
            self._following[about] = (*self._following.get(about, ()), subscription)
        return subscription

    def drop(self, subscription: Subscription) -> None:
        about = subscription.conversation
        if about is None:
            self._everything = tuple(known for known in self._everything if known is not subscription)
            return
        left = tuple(known for known in self._following.pop(about, ()) if known is not subscription)
        if left:
            self._following[about] = left

    def close(self) -> None:
        for subscription in (*self._everything, *(s for known in self._following.values() for s in known)):
            subscription.close()
