"""Quiet hours: a Skald plugin that judges by the clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skald_core import api as skald
from skald_plugin_quiet_hours.clock import SETTINGS, is_quiet

ANY_HOUR = "quiet-hours.any-hour"
SLOW_MS = 10_000


@skald.hookimpl
def skald_config() -> Any:
    return SETTINGS


@skald.hookimpl
def skald_capabilities() -> Sequence[skald.Capability]:
    return [skald.Capability(id=ANY_HOUR, title="capability.any_hour")]


@skald.hookimpl
def skald_schema() -> Sequence[skald.Schema]:
    from skald_plugin_quiet_hours.log import SCHEMA

    return [SCHEMA]


@skald.hookimpl
def skald_i18n(ctx: skald.PluginContext) -> dict[str, dict[str, str]]:
    return ctx.load_i18n()


@skald.hookimpl
def skald_routes(ctx: skald.PluginContext) -> Sequence[Any]:
    from skald_plugin_quiet_hours.routes import handlers

    return handlers(ctx)


# --- judging ------------------------------------------------------------------------------------------------------


@skald.hookimpl
def skald_before_tool(ctx: skald.PluginContext, call: skald.GateCall) -> skald.MustAsk | None:
    """Those who may work at any hour are asked all the same: at night nothing happens by itself."""
    if call.tool.scope != "read" and is_quiet(ctx) and ctx.allows(call.user, ANY_HOUR) and call.interactive:
        return skald.MustAsk(ctx.t("ask", call.user.locale))
    return None


@skald.hookimpl
async def skald_gate(ctx: skald.PluginContext, call: skald.GateCall) -> skald.Decision | None:
    """Refuse at night what changes something; everything else is for other plugins to judge."""
    if call.tool.scope == "read" or not is_quiet(ctx):
        return None
    if ctx.allows(call.user, ANY_HOUR) and call.interactive:
        return None
    from skald_plugin_quiet_hours.log import refused

    reason = ctx.t("denied", call.user.locale)
    await refused(ctx, call, reason)
    await ctx.kv.set(f"refused.{call.conversation}", call.tool.name)
    return skald.Deny(reason)


@skald.hookimpl
def skald_after_tool(ctx: skald.PluginContext, call: skald.GateCall, duration_ms: int) -> str | None:
    """A slow step at night wakes somebody's machine: have the model think of that."""
    if duration_ms >= SLOW_MS and is_quiet(ctx):
        return f"(This took {duration_ms // 1000} s, and it is night: prefer quick steps.)"
    return None


# --- the turn -----------------------------------------------------------------------------------------------------


@skald.hookimpl
def skald_user_prompt(ctx: skald.PluginContext, prompt: skald.UserPrompt) -> skald.AddContext | None:
    if is_quiet(ctx) and not prompt.steering:
        return skald.AddContext(
            "It is night here: what changes files or runs programs is refused. Offer to do it later."
        )
    return None


@skald.hookimpl
async def skald_stop(ctx: skald.PluginContext, stopping: skald.TurnStopping) -> str | None:
    """Once in a turn: an answer that hides that something was refused is no answer."""
    key = f"refused.{stopping.turn.conversation}"
    tool = await ctx.kv.get(key)
    if tool is None or stopping.continued:
        return None
    await ctx.kv.delete(key)
    if "later" in stopping.text.lower() or "night" in stopping.text.lower():
        return None
    return f"You could not use {tool} because it is night. Say so, and offer to do it in the morning."


@skald.hookimpl
async def skald_turn_started(ctx: skald.PluginContext, turn: skald.TurnInfo) -> None:
    if is_quiet(ctx) and not turn.depth:
        await ctx.kv.set(f"since.{turn.conversation}", ctx.now())


@skald.hookimpl
async def skald_turn_finished(ctx: skald.PluginContext, turn: skald.TurnInfo, end: skald.TurnEnd) -> None:
    """Count what somebody's assistant does at night."""
    if turn.depth or await ctx.kv.get(f"since.{turn.conversation}") is None:
        return
    await ctx.kv.delete(f"since.{turn.conversation}")
    spent = await ctx.kv.get(f"night.{turn.user.id}", 0)
    await ctx.kv.set(f"night.{turn.user.id}", spent + end.usage.output_tokens)


@skald.hookimpl
async def skald_before_compaction(ctx: skald.PluginContext, compaction: skald.Compaction) -> None:
    """A summary may lose that something waits for the morning: forget it, so that no turn is held up by it later."""
    await ctx.kv.delete(f"refused.{compaction.conversation}")
