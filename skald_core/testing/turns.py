"""One call for what most tests of a plugin need."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import msgspec

from skald_core.loop.scripted import ScriptedProvider, Step
from skald_core.loop.types import ModelRequest
from skald_core.plugins.discovery import Discovered
from skald_core.testing.app import AppFactory, TestApp, TestClient, local_plugin, scripted_plugin
from skald_core.testing.plugins import allow_all

__all__ = ("Turn", "assert_loaded", "run_turn")

AnyPlugin = str | types.ModuleType | Discovered


class Turn(msgspec.Struct, frozen=True):
    """A turn that is over.

    ``messages`` are the conversation's, oldest first, as the HTTP interface gives them; ``requests`` what the model was
    sent. ``app`` and ``client`` go on: ``await turn.client.run_turn("…", turn.conversation)``.
    """

    app: TestApp
    client: TestClient
    conversation: str
    messages: list[dict[str, Any]]
    requests: list[ModelRequest]

    @property
    def answer(self) -> str:
        """The last message's text."""
        return str(self.messages[-1]["content"])

    @property
    def calls(self) -> list[dict[str, Any]]:
        """Every tool call of the conversation: ``name``, ``arguments``, ``state``, ``result`` …"""
        return [made for message in self.messages for made in message.get("calls", ())]


def _plugin(given: AnyPlugin) -> Discovered:
    return given if isinstance(given, Discovered) else local_plugin(given)


async def assert_loaded(skald_app: AppFactory, plugin: AnyPlugin, *others: AnyPlugin) -> TestApp:
    """Start an app with these plugins; fail unless the first one runs without a problem."""
    first = _plugin(plugin)
    app = await skald_app(first, *map(_plugin, others))
    app.assert_loaded(first.id)
    return app


async def run_turn(
    skald_app: AppFactory,
    *plugins: AnyPlugin,
    say: str,
    steps: Sequence[Step | str],
    judge: bool = True,
    role: str = "admin",
    timeout: float = 20.0,
) -> Turn:
    """Start an app with ``plugins``, say something, let a model play ``steps``, wait until the turn is over.

    Every tool call is allowed unless ``judge`` is false, for plugins that judge themselves. ``role`` is the user's. Fails
    when the model was not asked for every step, or a plugin is not running.
    """
    provider = ScriptedProvider(steps)
    found = [_plugin(given) for given in plugins]
    app = await skald_app(*found, scripted_plugin(provider), *([allow_all()] if judge else ()))
    for plugin in found:
        app.assert_loaded(plugin.id)
    await app.add_model()
    client = await app.client(role=role)
    conversation = str((await client.post("/api/conversations"))["id"])
    messages = await client.run_turn(say, conversation, timeout=timeout)
    provider.assert_complete()
    return Turn(app, client, conversation, messages, provider.requests)
