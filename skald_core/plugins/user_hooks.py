"""The hooks of one user: every call goes to the plugins that user may use, and to no other."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from skald_core.plugins.dispatcher import Dispatcher, HookFailure, Outcome, describe

__all__ = ("UserHooks",)


class UserHooks:
    """``visible`` is asked for each call: what was just taken away is not called any more."""

    def __init__(self, dispatcher: Dispatcher, visible: Callable[[], frozenset[str]]) -> None:
        self._dispatcher = dispatcher
        self.visible = visible

    async def ask(self, hook: str, arguments: Mapping[str, Any], *, timeout: float) -> AsyncGenerator[Outcome, None]:
        """Each plugin's outcome, one after the other; ``timeout`` is seconds for one. ``arguments`` may be changed between
        two of them."""
        async for outcome in self._dispatcher.call(hook, arguments, only=self.visible(), timeout=timeout):
            yield outcome

    def implemented(self, hook: str) -> bool:
        """Whether anybody would be told: most hooks of a turn have no listener, and a turn's start should cost nothing then."""
        return self._dispatcher.implemented(hook, self.visible())

    async def tell(self, hook: str, arguments: Mapping[str, Any], *, timeout: float) -> None:
        """Call them all; what they return does not matter and a failure is shown with its plugin."""
        async for _ in self._dispatcher.call(hook, arguments, only=self.visible(), timeout=timeout):
            pass

    async def one(self, hook: str, plugin: str, arguments: Mapping[str, Any], *, timeout: float) -> Outcome | None:
        """A single plugin's outcome; None when it does not implement the hook or the user may not use it."""
        if plugin not in self.visible():
            return None
        return await self._dispatcher.one(hook, plugin, arguments, timeout=timeout)

    def wrong(self, outcome: Outcome, hook: str, wanted: str) -> None:
        """Show that a plugin answered something of the wrong type."""
        self._dispatcher.fault(outcome.plugin, hook, f"{hook} returned {type(outcome.value).__name__}, not {wanted}")

    def failed(self, plugin: str, what: str, error: Exception) -> None:
        """Show what a plugin's own function raised where no hook was called."""
        failure: HookFailure = describe(error)
        self._dispatcher.on_failure(plugin, what, failure)
