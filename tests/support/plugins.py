"""Plugins made on the spot: a module of the given functions, each of which implements the hook it is named after."""

from __future__ import annotations

import secrets
import sys
import types
from collections.abc import Callable
from typing import Any

from skald_core import api as skald
from skald_core.plugins.discovery import Discovered
from skald_core.plugins.manifest import Manifest
from skald_core.testing import local_plugin

__all__ = ("allowing", "echo", "made", "with_tools", "write_note")


def made(plugin_id: str, *hooks: Callable[..., Any], first: bool = False) -> Discovered:
    """A plugin with these hooks; ``first`` has them called before those of other plugins."""
    module = types.ModuleType(f"skald_made_{plugin_id.replace('-', '_')}_{secrets.token_hex(4)}")
    for hook in hooks:
        setattr(module, hook.__name__, skald.hookimpl(hook, tryfirst=first))
    sys.modules[module.__name__] = module
    return local_plugin(module, Manifest(id=plugin_id, title=plugin_id, api=">=1"))


@skald.tool(scope="read")
async def echo(text: str) -> str:
    """Say it again.

    text: what to say
    """
    return f"echo: {text}"


@skald.tool(scope="write")
async def write_note(text: str) -> str:
    """Write something down.

    text: what to write
    """
    return f"noted: {text}"


def with_tools(*tools: skald.Tool) -> Discovered:
    """A plugin that brings these tools."""

    def skald_tools() -> list[skald.Tool]:
        return list(tools)

    return made("tools", skald_tools)


def allowing(*ask: str) -> Discovered:
    """A gate that allows every call but those of the tools ``ask``, about which a person decides."""

    def skald_gate(call: skald.GateCall) -> skald.Decision:
        return skald.Require(reason="it writes") if call.tool.name in ask else skald.Allow()

    return made("allowing", skald_gate)
