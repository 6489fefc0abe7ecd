"""Small plugins for tests: what a plugin under test needs around it."""

from __future__ import annotations

import secrets
import sys
import types
from collections.abc import Callable
from typing import Any

import msgspec

from skald_core.hookspecs import hookimpl
from skald_core.loop.tools import Tool
from skald_core.plugins.contributions import Allow, Decision, GateCall
from skald_core.plugins.discovery import Discovered
from skald_core.plugins.manifest import Contributes, Manifest

__all__ = ("allow_all", "hooks_plugin", "tools_plugin")


def hooks_plugin(plugin_id: str, *, contributes: Contributes | None = None, **hooks: Callable[..., Any]) -> Discovered:
    """A plugin made of functions: ``hooks_plugin("probe", skald_startup=started)``. No file, no manifest to write.

    ``contributes`` is what its manifest would name beside the hooks; what differs counts as a problem.
    """
    module = types.ModuleType(f"skald_test_{plugin_id.replace('-', '_')}_{secrets.token_hex(4)}")
    for name, function in hooks.items():
        setattr(module, name, hookimpl(specname=name)(function))
    sys.modules[module.__name__] = module
    said = msgspec.structs.replace(contributes or Contributes(), hooks=sorted(hooks))
    manifest = Manifest(id=plugin_id, title=plugin_id, api=">=1", contributes=said)
    return Discovered(
        id=plugin_id,
        distribution=f"skald-plugin-{plugin_id}",
        version="0",
        module=module.__name__,
        manifest=manifest,
    )


def allow_all() -> Discovered:
    """A plugin that allows every tool call. Without a plugin that judges, every call is denied."""

    def skald_gate(call: GateCall) -> Decision:
        return Allow()

    return hooks_plugin("allow-all", skald_gate=skald_gate)


def tools_plugin(*tools: Tool) -> Discovered:
    """A plugin that brings these tools, for plugins that judge or watch calls."""

    def skald_tools() -> list[Tool]:
        return list(tools)

    return hooks_plugin("test-tools", contributes=Contributes(tools=[t.name for t in tools]), skald_tools=skald_tools)
