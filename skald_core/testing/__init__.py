"""For tests of plugins and of the kernel itself: an app without discovery, signed-in clients, a scripted model.

``pip install skald-core`` brings a pytest plugin with the fixtures ``skald_app`` and ``skald_provider``; this package holds what
they are made of. Import it in tests only.
"""

from __future__ import annotations

from skald_core.loop.scripted import ScriptedProvider, call, calls, cut, fail, text
from skald_core.testing.app import AppFactory, TestApp, TestClient, local_plugin, scripted_plugin

__all__ = (
    "AppFactory",
    "ScriptedProvider",
    "TestApp",
    "TestClient",
    "call",
    "calls",
    "cut",
    "fail",
    "local_plugin",
    "scripted_plugin",
    "text",
)
