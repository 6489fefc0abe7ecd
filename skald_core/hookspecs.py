"""Every hook a plugin may implement.

An implementation may take any subset of a hook's parameters, by name, and may be ``async``. ``ctx`` is always the plugin's
own :class:`~skald_core.plugins.context.PluginContext`. The kernel calls implementations one after the other through its
dispatcher, which attributes, times and isolates each one. A synchronous implementation runs on the event loop and must not
block. Hooks made for a user go only to the plugins that user may use.

What a failure (an exception, a time-out, a value of the wrong type) does is stated per hook: a failing *contribution* fails
that plugin alone; a failing *judging* hook (``skald_gate``, ``skald_before_tool``) refuses the call; every other failure is
logged, shown with the plugin, and skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pluggy

if TYPE_CHECKING:
    from skald_core.files.paths import Mount
    from skald_core.identity.models import User
    from skald_core.loop.hooks import AddContext, Block, MustAsk, Rewrite
    from skald_core.loop.tools import Tool, ToolOutput
    from skald_core.plugins.context import PluginContext
    from skald_core.plugins.contributions import (
        AgentSpec,
        Capability,
        CliCommand,
        Command,
        Decision,
        Deny,
        GateCall,
        HealthCheck,
        ProviderType,
        Schema,
        Service,
        WebPage,
    )
    from skald_core.plugins.settings import Settings
    from skald_core.plugins.turns import Compaction, PromptBlock, TurnEnd, TurnInfo, TurnStopping, UserPrompt

hookspec = pluggy.HookspecMarker("skald")
hookimpl = pluggy.HookimplMarker("skald")


# --- contributions: called once per enable, in this order -------------------------------------------------------


@hookspec
def skald_config(ctx: PluginContext) -> type[msgspec.Struct] | Settings:  # type: ignore[empty-body]  # a specification
    """The plugin's instance settings, for which the admin gets a form: a msgspec struct, or ``Settings`` around one when it
    has a version, a test or computed choices. Called first: ``ctx.config`` holds an instance afterwards. While a field
    without a default has no stored value the plugin is *needs_config* and only its texts are asked for. Failure fails the
    plugin."""


@hookspec
def skald_user_config(ctx: PluginContext) -> type[msgspec.Struct] | Settings:  # type: ignore[empty-body]
    """Settings each user makes for themselves under *My plugins*; read them with ``await ctx.user_config(user)``. They are
    stored in the user's own database. Every field needs a default. Failure fails the plugin."""


@hookspec
def skald_i18n(ctx: PluginContext) -> dict[str, dict[str, str]]:  # type: ignore[empty-body]
    """Texts by locale and key, asked right after the settings, whose form needs them; keys are prefixed ``plugin.<id>.`` by
    the kernel. ``ctx.load_i18n()`` reads the package's ``i18n/*.json``. A text missing in a user's locale is taken from the
    instance's, then from English. Failure fails the plugin."""


@hookspec
def skald_capabilities(ctx: PluginContext) -> Sequence[Capability]:  # type: ignore[empty-body]
    """Rights the plugin adds to roles, named ``<plugin id>.<name>``; a route asks for one with
    ``opt={"capability": "<plugin id>.<name>"}`` and code with ``ctx.allows(user, …)``. Roles named in ``default_roles``
    get a capability the first time it is seen. Failure fails the plugin."""


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
def skald_agents(ctx: PluginContext) -> Sequence[AgentSpec]:  # type: ignore[empty-body]
    """Agents for every user who may use the plugin; those of type ``task`` are offered to the assistant for delegation.
    ``ctx.load_agents()`` reads the package's ``agents/<id>/`` folders. Ids are global: the later of two equal ids is left
    out and shown as a problem. Failure fails the plugin."""


@hookspec
def skald_commands(ctx: PluginContext) -> Sequence[Command]:  # type: ignore[empty-body]
    """Slash commands: ``/name words`` in the composer becomes the prompt the command makes of the words. Names are global:
    the later of two equal names is left out and shown as a problem. Failure fails the plugin."""


@hookspec
def skald_cli() -> Sequence[CliCommand]:  # type: ignore[empty-body]
    """Commands below ``skald <plugin id>``. Called in the process of the command line, where nothing of the plugin is
    started and there is no context; a command reaches the running server through the host it is given. There a failure is
    told in the terminal. The server asks too, for the names the catalog shows; there a failure fails the plugin."""


@hookspec
def skald_health(ctx: PluginContext) -> Sequence[HealthCheck]:  # type: ignore[empty-body]
    """Checks the catalog runs when it is opened: is what the plugin depends on there? Failure fails the plugin; a check
    that raises, or needs more than ten seconds, is shown as not well."""


@hookspec
def skald_routes(ctx: PluginContext) -> Sequence[Any]:  # type: ignore[empty-body]
    """Litestar route handlers or routers, mounted below ``/api/plugin/<id>/`` behind sign-in and, where a handler sets
    ``opt={"capability": "…"}``, that capability. They are built in a trial application first. Failure fails the plugin."""


@hookspec
def skald_web_pages(ctx: PluginContext) -> Sequence[WebPage]:  # type: ignore[empty-body]
    """Pages for the browser shell. Failure fails the plugin."""


# --- contributions per user --------------------------------------------------------------------------------------


@hookspec
def skald_mounts(ctx: PluginContext, user: User) -> Sequence[Mount]:  # type: ignore[empty-body]
    """Folders shown beside the user's home in the file namespace of their agent. Asked when the user's data is opened, when
    the plugin starts or is granted, and after ``ctx.mounts_changed(user)``. The later of two equal prefixes is left out and
    shown as a problem. Failure leaves the plugin's mounts out."""


# --- per turn and call: for the user of the turn -----------------------------------------------------------------


@hookspec
def skald_prompt_blocks(ctx: PluginContext, turn: TurnInfo) -> Sequence[PromptBlock]:  # type: ignore[empty-body]
    """Text for the system prompt of a turn. ``prefix`` blocks are frozen per conversation, so that provider caches hit, and
    asked again only after ``ctx.prompt_changed(user)``, a change of the user's plugins, or twenty idle minutes; ``tail``
    blocks are asked in every turn. Order is by ``priority``, then plugin. Failure leaves the plugin's blocks out."""


@hookspec
def skald_user_prompt(ctx: PluginContext, prompt: UserPrompt) -> Block | AddContext | None:
    """A user's words are about to become a message, or to wait for the running turn (not in sub-agents). ``Block`` refuses
    them, the first one wins and nothing is stored: its reason is told to the one who sent them, who still has them;
    ``AddContext`` adds text the model sees after them, joined in order; ``None`` changes nothing. A slash command is
    asked about as it was typed. Failure is skipped."""


@hookspec
def skald_before_tool(ctx: PluginContext, call: GateCall) -> Rewrite | Deny | MustAsk | None:
    """A validated call is about to be judged. ``Rewrite`` replaces its arguments, which are validated, seen by the plugins
    after this one, and judged like the model's own; ``Deny`` refuses it and wins over all; ``MustAsk`` asks a person even
    where the gate would allow, whatever other plugins say. Failure refuses the call."""


@hookspec
def skald_gate(ctx: PluginContext, call: GateCall) -> Decision | None:
    """May this call run for this user? Asked before every tool call; the strictest answer of all plugins wins (``Deny``,
    then ``Require``, then ``Allow``). ``None`` has no opinion, and no opinion at all is a denial. An exception, a time-out
    or a wrong type is a denial. Order does not matter."""


@hookspec
def skald_after_tool(ctx: PluginContext, call: GateCall, output: ToolOutput, duration_ms: int) -> str | None:
    """A call ran and ``output`` is its result. Returned text is added to the result the model sees, in order. Not called
    for calls that were refused or cancelled. Failure is skipped."""


@hookspec
def skald_stop(ctx: PluginContext, stopping: TurnStopping) -> str | None:
    """A turn is about to end by itself (not in sub-agents). A returned reason is given to the model as a message and the
    turn goes on; the first one wins; ``stopping.continued`` counts how often that happened in this turn. Failure is
    skipped."""


@hookspec
def skald_before_compaction(ctx: PluginContext, compaction: Compaction) -> None:
    """A conversation's older messages are about to be replaced, for the model, by a summary. They stay stored. Failure is
    skipped."""


# --- lifecycle: failures are shown with the plugin, nothing else stops -------------------------------------------


@hookspec
def skald_startup(ctx: PluginContext) -> None:
    """The plugin was enabled, or the server started with it enabled; migrations are done. Warned at 10 s, given up at
    60 s. Failure fails the plugin."""


@hookspec
def skald_shutdown(ctx: PluginContext) -> None:
    """The plugin is being disabled or the server stops. Everything registered through ``ctx`` is undone afterwards."""


@hookspec
def skald_user_created(ctx: PluginContext, user: User) -> None:
    """An account was made. Its data may not be open yet. Failure is skipped."""


@hookspec
def skald_user_unlocked(ctx: PluginContext, user: User) -> None:
    """The user's database was opened (sign-in, or the server's start for users without encryption): ``ctx.owner_tables``
    works from here on. Also called for open users when the plugin starts or is granted. Failure is skipped."""


@hookspec
def skald_user_locked(ctx: PluginContext, user: User) -> None:
    """The user's database is about to be closed: it can be used for the last time. Bounded to ten seconds. Failure is
    skipped."""


@hookspec
def skald_user_deactivated(ctx: PluginContext, user: User) -> None:
    """The account can no longer be used; its sessions and sockets have ended already. A notice to tidy up after, never the
    place where access is revoked. Failure is skipped."""


@hookspec
def skald_user_deleted(ctx: PluginContext, user: User) -> None:
    """The account and its own database are gone. Remove what the plugin keeps of the user in registry tables and files.
    Failure is skipped."""


@hookspec
def skald_conversation_deleted(ctx: PluginContext, user: User, conversation: str) -> None:
    """A conversation and everything said in it are gone. Remove what the plugin keeps of it; the deletion answers after
    that. Failure is skipped."""


@hookspec
def skald_turn_started(ctx: PluginContext, turn: TurnInfo) -> None:
    """A turn of a conversation began (a sub-agent's work is part of it). It does not wait for this hook; one turn's two
    hooks, and a conversation's turns, are called in order. A turn taken up after a restart begins again. Failure is
    skipped."""


@hookspec
def skald_turn_finished(ctx: PluginContext, turn: TurnInfo, end: TurnEnd) -> None:
    """A turn ended, in whatever way. It does not wait for this hook. Failure is skipped."""
