"""Calling hooks: attributed, awaited, bounded in time, isolated. Nobody calls ``pm.hook.x()``.

pluggy keeps specs, validation and order; its own caller is synchronous and does not say whose result it returns, so the
kernel walks ``get_hookimpls()`` itself. That is done once per hook and change of plugins; a judging hook runs before every
tool call of everybody, so a call costs about a microsecond per plugin.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import traceback
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Generator, Iterable, Mapping
from time import perf_counter
from types import CoroutineType
from typing import Any

import msgspec
import pluggy

from skald_core import hookspecs
from skald_core.plugins.context import PluginContext

__all__ = ("Dispatcher", "Guard", "HookFailure", "Outcome", "describe")

log = logging.getLogger("skald.plugins")

Guard = Callable[[Callable[[Any], Any], Any], Any]
"""Calls the function with the argument, and sees to it that it returns."""


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
    message = str(error) or type(error).__name__
    if isinstance(error, SystemExit):  # its text may be a bare number
        message = f"it tried to end the server: SystemExit({message})"
    return HookFailure(type(error).__name__, message, text[-8000:])


class _Call:
    """One implementation, ready to be called: the names it takes are looked at once."""

    __slots__ = ("_context", "_defaults", "_function", "_names", "plugin", "run")

    def __init__(self, impl: pluggy.HookImpl, context: PluginContext) -> None:
        self.plugin = impl.plugin_name
        self._function = impl.function
        self._context = context
        self._names = tuple(impl.argnames)
        self._defaults = tuple(impl.kwargnames)
        self.run: Callable[[Mapping[str, Any]], Any] = self._any
        if not self._defaults:  # the usual shapes without a dict
            if self._names == ("ctx",):
                self.run = self._context_only
            elif len(self._names) == 1:
                self.run = self._one
            elif len(self._names) == 2 and self._names[0] == "ctx":
                self.run = self._context_and_one

    def _context_only(self, arguments: Mapping[str, Any]) -> Any:
        return self._function(self._context)

    def _one(self, arguments: Mapping[str, Any]) -> Any:
        return self._function(arguments[self._names[0]])

    def _context_and_one(self, arguments: Mapping[str, Any]) -> Any:
        return self._function(self._context, arguments[self._names[1]])

    def _any(self, arguments: Mapping[str, Any]) -> Any:
        kwargs = {
            name: self._context if name == "ctx" else arguments[name]
            for name in (*self._names, *self._defaults)
            if name == "ctx" or name in arguments
        }
        return self._function(**kwargs)


class _Rest:
    """The rest of a coroutine that ran up to its first wait, which ``pending`` is the future of."""

    __slots__ = ("_coro", "_pending")

    def __init__(self, coro: Coroutine[Any, Any, Any], pending: Any) -> None:
        self._coro = coro
        self._pending = pending

    def __await__(self) -> Generator[Any, Any, Any]:
        coro = self._coro
        pending = self._pending
        try:
            while True:
                try:
                    sent = yield pending
                except GeneratorExit:
                    coro.close()
                    raise
                except BaseException as error:  # noqa: BLE001 -- a cancellation or time-out, for the hook to see first
                    pending = coro.throw(error)
                else:
                    pending = coro.send(sent)
        except StopIteration as end:
            return end.value


class Dispatcher:
    """One per app; contexts are bound to plugin ids by the lifecycle."""

    def __init__(self, *, trace: Callable[[str], None] | None = None) -> None:
        self.manager = pluggy.PluginManager("skald")
        self.manager.add_hookspecs(hookspecs)
        self._contexts: dict[str, PluginContext] = {}
        self._own: dict[str, dict[str, _Call]] = {}
        self._calls: dict[str, tuple[_Call, ...]] = {}
        self._trace = trace
        self.on_failure: Callable[[str, str, HookFailure], None] = lambda plugin, hook, failure: None

    def bind(self, plugin_id: str, module: Any, context: PluginContext) -> None:
        """Register a plugin's hooks. Raises pluggy's PluginValidationError, leaving nothing registered."""
        own: dict[str, _Call] = {}
        try:
            self.manager.register(module, name=plugin_id)
            for caller in self.manager.get_hookcallers(module) or ():
                for impl in caller.get_hookimpls():
                    if impl.plugin is not module:
                        continue
                    if impl.wrapper or impl.hookwrapper:
                        raise pluggy.PluginValidationError(
                            module,
                            f"{impl.function.__name__} is a wrapper; hooks here cannot be wrapped, write a plain one",
                        )
                    if caller.has_spec():
                        own[caller.name] = _Call(impl, context)
                    elif not impl.optionalhook:
                        raise pluggy.PluginValidationError(
                            module,
                            f"unknown hook {impl.function.__name__!r}; check the spelling, or mark it optionalhook=True",
                        )
        except BaseException:
            self.unbind(plugin_id)
            raise
        self._contexts[plugin_id] = context
        self._own[plugin_id] = own
        self._calls.clear()

    def unbind(self, plugin_id: str) -> None:
        if self.manager.has_plugin(plugin_id):
            self.manager.unregister(name=plugin_id)
        self._contexts.pop(plugin_id, None)
        self._own.pop(plugin_id, None)
        self._calls.clear()

    def implemented(self, hook: str, only: Collection[str]) -> bool:
        """Whether any of these plugins would be called."""
        return any(call.plugin in only for call in self._calls_of(hook))

    def hooks_of(self, plugin_id: str) -> list[str]:
        return sorted(self._own.get(plugin_id, ()))

    def _calls_of(self, hook: str) -> tuple[_Call, ...]:
        calls = self._calls.get(hook)
        if calls is None:
            impls = {impl.plugin_name: impl for impl in getattr(self.manager.hook, hook).get_hookimpls()}
            started = [impls[plugin_id] for plugin_id in self._own if plugin_id in impls]
            started.sort(key=lambda impl: (not impl.tryfirst, impl.trylast))  # stable: else in the order of starting
            calls = self._calls[hook] = tuple(self._own[impl.plugin_name][hook] for impl in started)
        return calls

    def call(
        self,
        hook: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        only: Collection[str] | None = None,
        timeout: float = 60.0,
    ) -> AsyncGenerator[Outcome, None]:
        """Call ``hook`` of every bound plugin (or of ``only`` these), one after the other, yielding each outcome.

        The order is that of starting (declared before/after, then id), with ``tryfirst`` before and ``trylast`` behind it.
        A plugin that is unbound meanwhile is not called any more. Cancellation of the caller passes through; everything else
        a plugin raises becomes an outcome with ``error``.
        """
        return self._each(hook, self._calls_of(hook), arguments or {}, only, timeout, None)

    async def _each(
        self,
        hook: str,
        calls: Iterable[_Call],
        given: Mapping[str, Any],
        only: Collection[str] | None,
        timeout: float,
        guard: Guard | None,
    ) -> AsyncGenerator[Outcome, None]:
        for call in calls:
            plugin_id = call.plugin
            if (only is not None and plugin_id not in only) or plugin_id not in self._contexts:
                continue
            started = perf_counter()
            try:
                value = call.run(given) if guard is None else guard(call.run, given)
                if type(value) is CoroutineType:
                    # Most asynchronous hooks never wait: each is run up to its first wait before a timer is set up for it.
                    try:
                        pending = value.send(None) if guard is None else guard(value.send, None)
                    except StopIteration as end:
                        value = end.value
                    else:
                        async with asyncio.timeout(timeout):
                            value = await _Rest(value, pending)
                elif value is not None and inspect.isawaitable(value):
                    async with asyncio.timeout(timeout):
                        value = await value
            except TimeoutError as error:
                yield self._failed(hook, plugin_id, started, _timed_out(hook, error, timeout))
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                failure = HookFailure("CancelledError", f"{hook} cancelled itself", "")
                yield self._failed(hook, plugin_id, started, failure)
            except (Exception, SystemExit) as error:  # noqa: BLE001 -- the plugin boundary: its fault stays its own
                yield self._failed(hook, plugin_id, started, describe(error))
            else:
                ms = (perf_counter() - started) * 1000
                if self._trace is not None:
                    self._trace(f"{hook} {plugin_id} {ms:.2f} ms -> {type(value).__name__}")
                yield Outcome(plugin_id, value, None, ms)

    def _failed(self, hook: str, plugin_id: str, started: float, failure: HookFailure) -> Outcome:
        ms = (perf_counter() - started) * 1000
        if self._trace is not None:
            self._trace(f"{hook} {plugin_id} {ms:.2f} ms -> {failure.kind}")
        self._tell(plugin_id, hook, failure)
        return Outcome(plugin_id, None, failure, ms)

    def _tell(self, plugin_id: str, hook: str, failure: HookFailure) -> None:
        log.warning("plugin %s: %s failed: %s", plugin_id, hook, failure.message)
        self.on_failure(plugin_id, hook, failure)

    def fault(self, plugin_id: str, hook: str, message: str) -> None:
        """Show that what a hook returned cannot be used."""
        self._tell(plugin_id, hook, HookFailure("TypeError", message, ""))

    async def one(
        self,
        hook: str,
        plugin_id: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float = 60.0,
        guard: Guard | None = None,
    ) -> Outcome | None:
        """Call ``hook`` of a single plugin; None when it does not implement it. ``guard`` calls what it does before its first
        wait."""
        call = self._own.get(plugin_id, {}).get(hook)
        if call is None:
            return None
        called = self._each(hook, (call,), arguments or {}, None, timeout, guard)
        async with contextlib.aclosing(called) as outcomes:
            async for outcome in outcomes:
                return outcome
        return None


def _timed_out(hook: str, error: TimeoutError, timeout: float) -> HookFailure:
    """Ours says nothing; one the plugin met itself (a server that did not answer) is told as it is."""
    if str(error):
        return describe(error)
    return HookFailure("TimeoutError", f"{hook} did not return within {timeout:g} s", "")
