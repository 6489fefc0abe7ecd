"""Rules for tool calls: what just runs, what asks a person first, and what never runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skald_core import api as skald

__all__ = (
    "skald_conversation_deleted",
    "skald_gate",
    "skald_i18n",
    "skald_routes",
    "skald_schema",
    "skald_web_pages",
)


@skald.hookimpl
def skald_schema() -> Sequence[skald.Schema]:
    from skald_approval.schema import OWNER, REGISTRY

    return (skald.Schema("registry", REGISTRY), skald.Schema("owner", OWNER))


@skald.hookimpl
async def skald_gate(ctx: skald.PluginContext, call: skald.GateCall) -> skald.Decision:
    from skald_approval.judge import judge

    return await judge(ctx, call)


@skald.hookimpl
async def skald_conversation_deleted(ctx: skald.PluginContext, user: skald.User, conversation: str) -> None:
    from skald_approval.store import forget_conversation

    await forget_conversation(ctx, user, conversation)


@skald.hookimpl
def skald_i18n(ctx: skald.PluginContext) -> dict[str, dict[str, str]]:
    return ctx.load_i18n()


@skald.hookimpl
def skald_routes(ctx: skald.PluginContext) -> Sequence[Any]:
    from skald_approval.routes import handlers

    return handlers(ctx)


@skald.hookimpl
def skald_web_pages() -> Sequence[skald.WebPage]:
    return (
        skald.WebPage(
            page_id="rules",
            title="plugin.approval.rules.title",
            icon="shield-check",
            entry="web/rules.js",
            admin_only=True,
            priority=70,
        ),
    )
