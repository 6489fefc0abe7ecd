"""Calling hooks: attributed, awaited, bounded in time, isolated. Nobody calls ``pm.hook.x()``.

pluggy keeps specs, validation and order; its own caller is synchronous and does not say whose result it returns, so the
kernel walks ``get_hookimpls()`` itself.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
import traceback
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import Any

import msgspec
import pluggy

from skald_core import hookspecs
from skald_core.plugins.context import PluginContext

__all__ = ("Dispatcher", "HookFailure", "Outcome")

log = logging.getLogger("skald.plugins")


class HookFailure(msgspec.Struct, frozen=True):
    """An exception of a hook, as text only: no payloads travel with it."""

    kind: str
    message: str
    traceback: str


class Outcome(msgspec.Struct, frozen=True):
    """What one plugin's implementation did: a value or a failure, and how long it took in milliseconds."""

    plugin: str
    value: Any
    error: HookFailure | None
    ms: float


def describe(error: BaseException) -> HookFailure:
    text = "".join(traceback.format_exception(error))
    return HookFailure(type(error).__name__, str(error) or type(error).__name__, text[-8000:])


class Dispatcher:
    """One per app; contexts are bound to plugin ids by the lifecycle."""

    def __init__(self, *, trace: Callable[[str], None] | None = None) -> None:
        self.manager = pluggy.PluginManager("skald")
        self.manager.add_hookspecs(hookspecs)
        self._contexts: dict[str, PluginContext] = {}
        self._trace = trace
        self.on_failure: Callable[[str, str, HookFailure], None] = lambda plugin, hook, failure: None

    def bind(self, plugin_id: str, module: Any, context: PluginContext) -> None:
        """Register a plugin's hooks. Raises pluggy's PluginValidationError, leaving nothing registered."""
        try:
            self.manager.register(module, name=plugin_id)
            unknown = [
                impl.function.__name__
                for caller in self.manager.get_hookcallers(module) or ()
                if not caller.has_spec()
                for impl in caller.get_hookimpls()
                if impl.plugin is module and not impl.optionalhook
            ]
            if unknown:
                raise pluggy.PluginValidationError(
                    module, f"unknown hook {unknown[0]!r}; check the spelling, or mark it optionalhook=True"
                )
        except BaseException:
            self.unbind(plugin_id)
            raise
        self._contexts[plugin_id] = context

    def unbind(self, plugin_id: str) -> None:
        if self.manager.has_plugin(plugin_id):
            self.manager.unregister(name=plugin_id)
        self._contexts.pop(plugin_id, None)

    def hooks_of(self, plugin_id: str) -> list[str]:
        plugin = self.manager.get_plugin(plugin_id)
        callers = self.manager.get_hookcallers(plugin) if plugin is not None else None
        return sorted(c.name for c in callers or ())

    async def call(
        self,
        hook: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        only: Collection[str] | None = None,
        timeout: float = 60.0,
    ) -> AsyncIterator[Outcome]:
        """Call ``hook`` of every bound plugin (or of ``only`` these), one after the other, yielding each outcome.

        Cancellation of the caller passes through; everything else a plugin raises becomes an outcome with ``error``.
        """
        caller = getattr(self.manager.hook, hook)
        for impl in reversed(caller.get_hookimpls()):
            plugin_id = impl.plugin_name
            context = self._contexts.get(plugin_id)
            if context is None or (only is not None and plugin_id not in only):
                continue
            yield await self._one(hook, impl, plugin_id, context, arguments or {}, timeout)

    async def _one(
        self,
        hook: str,
        impl: pluggy.HookImpl,
        plugin_id: str,
        context: PluginContext,
        arguments: Mapping[str, Any],
        timeout: float,
    ) -> Outcome:
        started = time.perf_counter()
        value: Any = None
        failure: HookFailure | None = None
        try:
            kwargs = {
                name: context if name == "ctx" else arguments[name]
                for name in (*impl.argnames, *impl.kwargnames)
                if name == "ctx" or name in arguments
            }
            value = impl.function(**kwargs)
            if inspect.isawaitable(value):
                async with asyncio.timeout(timeout):
                    value = await value
        except TimeoutError:
            failure = HookFailure("TimeoutError", f"{hook} did not return within {timeout:g} s", "")
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            failure = HookFailure("CancelledError", f"{hook} cancelled itself", "")
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- the plugin boundary: one plugin's fault stays its own
            failure = describe(error)
        ms = (time.perf_counter() - started) * 1000
        if self._trace is not None:
            what = failure.kind if failure else type(value).__name__
            self._trace(f"{hook} {plugin_id} {ms:.2f} ms -> {what}")
        if failure is not None:
            value = None
            log.warning("plugin %s: %s failed: %s", plugin_id, hook, failure.message)
            self.on_failure(plugin_id, hook, failure)
        return Outcome(plugin_id, value, failure, ms)

    async def one(
        self, hook: str, plugin_id: str, arguments: Mapping[str, Any] | None = None, *, timeout: float = 60.0
    ) -> Outcome | None:
        """Call ``hook`` of a single plugin; None when it does not implement it."""
        async for outcome in self.call(hook, arguments, only=(plugin_id,), timeout=timeout):
            return outcome
        return None
