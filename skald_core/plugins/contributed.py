"""The registries of what enabled plugins contribute. Every addition knows its plugin; removal is by plugin."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import msgspec

from skald_core.loop.tools import Tool
from skald_core.plugins.contributions import ProviderType, Schema, Service, WebPage

__all__ = ("Contributed", "PluginContributions")


class PluginContributions(msgspec.Struct):
    """What one running plugin brought. ``problems`` are sentences for the admin."""

    tools: list[Tool] = []
    providers: list[ProviderType] = []
    pages: list[WebPage] = []
    routes: list[Any] = []
    schemas: list[Schema] = []
    services: list[Service] = []
    i18n: dict[str, dict[str, str]] = {}
    problems: list[str] = []


class Contributed:
    """All running plugins' contributions, in plugin order."""

    def __init__(self) -> None:
        self._by_plugin: dict[str, PluginContributions] = {}
        self.version = 0
        """Rises with every change; what was derived from the contributions may be kept for one version."""

    def add(self, plugin_id: str, brought: PluginContributions) -> None:
        """Record a plugin's contributions, leaving out tools and provider types whose names are taken."""
        taken_tools = {t.name: p for p, c in self._by_plugin.items() for t in c.tools}
        brought.tools = self._unique(brought, brought.tools, taken_tools, lambda t: t.name, "tool")
        taken_types = {t.id: p for p, c in self._by_plugin.items() for t in c.providers}
        brought.providers = self._unique(brought, brought.providers, taken_types, lambda t: t.id, "provider type")
        self._by_plugin[plugin_id] = brought
        self.version += 1

    @staticmethod
    def _unique(
        brought: PluginContributions, items: list[Any], taken: dict[str, str], name: Callable[[Any], str], what: str
    ) -> list[Any]:
        kept = []
        seen = dict(taken)
        for item in items:
            owner = seen.get(name(item))
            if owner is not None:
                brought.problems.append(
                    f"{what} {name(item)!r} is left out: plugin {owner!r} has one of that name already"
                )
                continue
            seen[name(item)] = "itself"
            kept.append(item)
        return kept

    def remove(self, plugin_id: str) -> None:
        self._by_plugin.pop(plugin_id, None)
        self.version += 1

    def of(self, plugin_id: str) -> PluginContributions | None:
        return self._by_plugin.get(plugin_id)

    def tools(self, visible: Collection[str] | None = None) -> list[tuple[str, Tool]]:
        """(plugin id, tool) of the plugins in ``visible``, or of all."""
        return [(p, t) for p, c in self._by_plugin.items() if visible is None or p in visible for t in c.tools]

    def provider_types(self) -> list[tuple[str, ProviderType]]:
        return [(p, t) for p, c in self._by_plugin.items() for t in c.providers]

    def provider_type(self, type_id: str) -> tuple[str, ProviderType] | None:
        return next(((p, t) for p, t in self.provider_types() if t.id == type_id), None)

    def pages(self) -> list[tuple[str, WebPage]]:
        rows = [(p, page) for p, c in self._by_plugin.items() for page in c.pages]
        return sorted(rows, key=lambda row: (row[1].priority, row[0], row[1].page_id))

    def routes(self) -> dict[str, list[Any]]:
        return {p: c.routes for p, c in self._by_plugin.items() if c.routes}

    def schemas(self, bucket: str) -> list[tuple[str, Schema]]:
        return [(p, s) for p, c in self._by_plugin.items() for s in c.schemas if s.bucket == bucket]

    def service(self, protocol: type[Any], visible: Collection[str] | None = None) -> Any | None:
        for plugin_id, brought in self._by_plugin.items():
            if visible is not None and plugin_id not in visible:
                continue
            for service in brought.services:
                if service.protocol is protocol:
                    return service.instance
        return None

    def texts(self, locale: str) -> dict[str, str]:
        """Keys prefixed ``plugin.<id>.``; English fills what a locale lacks."""
        merged: dict[str, str] = {}
        for plugin_id, brought in self._by_plugin.items():
            for source in ("en", locale):
                for key, text in brought.i18n.get(source, {}).items():
                    merged[f"plugin.{plugin_id}.{key.removeprefix(f'plugin.{plugin_id}.')}"] = text
        return merged
