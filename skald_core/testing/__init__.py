"""For tests of plugins and of the kernel itself: an app without discovery, signed-in clients, a scripted model, and for
providers a server of bare sockets with faults (:mod:`skald_core.testing.servers`) and a way to start servers that others
wrote (:mod:`skald_core.testing.programs`).

``pip install skald-core`` brings a pytest plugin with the fixtures ``skald_app``, ``skald_provider``, ``skald_clock`` and
``skald_network``; this package holds what they are made of. Import it in tests only.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skald_core.loop.scripted import ScriptedProvider, call, calls, cut, fail, text
    from skald_core.testing.app import AppFactory, TestApp, TestClient, local_plugin, scripted_plugin
    from skald_core.testing.clock import FakeClock
    from skald_core.testing.network import NetworkRefused, refuse_network
    from skald_core.testing.plugins import allow_all, hooks_plugin, tools_plugin
    from skald_core.testing.turns import Turn, assert_loaded, run_turn

__all__ = (
    "AppFactory",
    "FakeClock",
    "NetworkRefused",
    "ScriptedProvider",
    "TestApp",
    "TestClient",
    "Turn",
    "allow_all",
    "assert_loaded",
    "call",
    "calls",
    "cut",
    "fail",
    "hooks_plugin",
    "local_plugin",
    "refuse_network",
    "run_turn",
    "scripted_plugin",
    "text",
    "tools_plugin",
)

_HOMES = {
    "skald_core.loop.scripted": ("ScriptedProvider", "call", "calls", "cut", "fail", "text"),
    "skald_core.testing.app": ("AppFactory", "TestApp", "TestClient", "local_plugin", "scripted_plugin"),
    "skald_core.testing.clock": ("FakeClock",),
    "skald_core.testing.network": ("NetworkRefused", "refuse_network"),
    "skald_core.testing.plugins": ("allow_all", "hooks_plugin", "tools_plugin"),
    "skald_core.testing.turns": ("Turn", "assert_loaded", "run_turn"),
}


def __getattr__(name: str) -> Any:
    """Import a name on first use: every pytest of the environment loads this package, few of them need a server."""
    for module, names in _HOMES.items():
        if name in names:
            value = getattr(importlib.import_module(module), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
