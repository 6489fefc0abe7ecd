"""What the caller's conversations have: agents and slash commands."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, get

from skald_core.server.guards import context_of, runtime, signed_in

__all__ = ("HANDLERS",)

AnyRequest = Request[Any, Any, Any]


class AgentView(msgspec.Struct):
    """``plugin`` is None for an agent shipped with the server."""

    id: str
    name: str
    description: str
    type: str
    plugin: str | None


class CommandView(msgspec.Struct):
    name: str
    title: str
    hint: str
    plugin: str


@get("/api/agents", guards=[signed_in])
async def agents(request: AnyRequest) -> list[AgentView]:
    """The caller's agents: one to talk with, and those that work can be delegated to."""
    context = await context_of(request)
    locale = runtime(request).texts.resolve(context.user.locale)
    return [
        AgentView(known.spec.id, known.title(locale), known.spec.description, known.spec.type, known.plugin)
        for known in context.agents.all(context.hooks.visible()).values()
    ]


@get("/api/commands", guards=[signed_in])
async def commands(request: AnyRequest) -> list[CommandView]:
    """The slash commands the caller may use, by name."""
    context = await context_of(request)
    texts = runtime(request).texts

    def text(plugin: str, key: str) -> str:
        """A text of the plugin's by its key, with or without the plugin's own prefix; else plain text."""
        own = texts.find(f"plugin.{plugin}.{key}", context.user.locale)
        return own if own is not None else texts.t(key, context.user.locale)

    return [
        CommandView(command.name, text(plugin, command.title), text(plugin, command.hint), plugin)
        for plugin, command in context.commands.all()
    ]


HANDLERS = (agents, commands)
