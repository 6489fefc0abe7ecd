"""Every hook a plugin may implement.

An implementation may take any subset of a hook's parameters and may be ``async``. ``ctx`` is always the plugin's own
:class:`~skald_core.plugins.context.PluginContext`. The kernel calls implementations through its dispatcher, which
attributes, times and isolates each one: a failing contribution hook fails that plugin alone; a failing judging hook
(``skald_gate``) is a denial; all others are logged and skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pluggy

if TYPE_CHECKING:
    from skald_core.loop.tools import Tool
    from skald_core.plugins.context import PluginContext
    from skald_core.plugins.contributions import Decision, GateCall, ProviderType, Schema, Service, WebPage

hookspec = pluggy.HookspecMarker("skald")
hookimpl = pluggy.HookimplMarker("skald")


# --- contributions: called once per enable, in this order -------------------------------------------------------


@hookspec
def skald_config(ctx: PluginContext) -> type[msgspec.Struct]:  # type: ignore[empty-body]  # a specification
    """The plugin's instance settings, as a msgspec struct whose fields all have defaults. Called first: ``ctx.config``
    holds an instance of it afterwards. Failure fails the plugin."""


@hookspec
def skald_schema(ctx: PluginContext) -> Sequence[Schema]:  # type: ignore[empty-body]
    """The plugin's tables. Registry migrations run before ``skald_startup``, owner migrations when an owner's database is
    open. Failure fails the plugin."""


@hookspec
def skald_services(ctx: PluginContext) -> Sequence[Service]:  # type: ignore[empty-body]
    """Implementations other plugins look up by protocol with ``ctx.service(...)``. Failure fails the plugin."""


@hookspec
def skald_tools(ctx: PluginContext) -> Sequence[Tool]:  # type: ignore[empty-body]
    """Tools offered to models for every user who may use the plugin. Names are global: the later of two equal names is
    left out and shown as a problem. Failure fails the plugin."""


@hookspec
def skald_llm_providers(ctx: PluginContext) -> Sequence[ProviderType]:  # type: ignore[empty-body]
    """Kinds of model API the plugin speaks. Failure fails the plugin."""


@hookspec
def skald_routes(ctx: PluginContext) -> Sequence[Any]:  # type: ignore[empty-body]
    """Litestar route handlers or routers, mounted below ``/api/plugin/<id>/`` behind sign-in and, where a handler sets
    ``opt={"capability": "…"}``, that capability. They are built in a trial application first. Failure fails the plugin."""


@hookspec
def skald_web_pages(ctx: PluginContext) -> Sequence[WebPage]:  # type: ignore[empty-body]
    """Pages for the browser shell. Failure fails the plugin."""


@hookspec
def skald_i18n(ctx: PluginContext) -> dict[str, dict[str, str]]:  # type: ignore[empty-body]
    """Texts by locale and key; keys are prefixed ``plugin.<id>.`` by the kernel. ``ctx.load_i18n()`` reads the package's
    ``i18n/*.json``. Failure fails the plugin."""


# --- judging: fails closed ---------------------------------------------------------------------------------------


@hookspec
def skald_gate(ctx: PluginContext, call: GateCall) -> Decision | None:
    """May this call run for this user? Asked before every tool call; the strictest answer of all plugins wins (``Deny``,
    then ``Require``, then ``Allow``). ``None`` has no opinion, and no opinion at all is a denial. An exception, a time-out
    or a wrong type is a denial. Order does not matter."""


# --- lifecycle: failures are shown with the plugin, nothing else stops -------------------------------------------


@hookspec
def skald_startup(ctx: PluginContext) -> None:
    """The plugin was enabled, or the server started with it enabled; migrations are done. Warned at 10 s, given up at
    60 s. Failure fails the plugin."""


@hookspec
def skald_shutdown(ctx: PluginContext) -> None:
    """The plugin is being disabled or the server stops. Everything registered through ``ctx`` is undone afterwards."""
