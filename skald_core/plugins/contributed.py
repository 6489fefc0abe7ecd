"""The registries of what enabled plugins contribute. Every addition knows its plugin; removal is by plugin."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec

from skald_core.loop.tools import Tool
from skald_core.plugins.contributions import (
    AgentSpec,
    Capability,
    Command,
    HealthCheck,
    ProviderType,
    Schema,
    Service,
    WebPage,
)

__all__ = ("Contributed", "PluginContributions")


class PluginContributions(msgspec.Struct):
    """What one running plugin brought. ``app`` is the application made of its routes, None until it is built; ``cli`` are
    names of its commands for the terminal."""

    tools: list[Tool] = []
    providers: list[ProviderType] = []
    pages: list[WebPage] = []
    routes: list[Any] = []
    app: Any = None
    schemas: list[Schema] = []
    services: list[Service] = []
    capabilities: list[Capability] = []
    agents: list[AgentSpec] = []
    commands: list[Command] = []
    health: list[HealthCheck] = []
    cli: list[str] = []


class _Global(msgspec.Struct, frozen=True):
    """A kind of contribution whose names are global. ``words`` name it in a problem."""

    field: str
    words: str
    name: Callable[[Any], str]


_GLOBAL: Final = (
    _Global("tools", "tool", lambda tool: str(tool.name)),
    _Global("providers", "provider type", lambda kind: str(kind.id)),
    _Global("agents", "agent", lambda agent: str(agent.id)),
    _Global("commands", "command", lambda command: str(command.name)),
)


class Contributed:
    """All running plugins' contributions, in the order they started.

    Of two equal global names the later plugin's is left out. It takes its place as soon as the earlier one goes.
    """

    def __init__(self) -> None:
        self._by_plugin: dict[str, PluginContributions] = {}
        self._kept: dict[str, list[tuple[str, Any]]] = {kind.field: [] for kind in _GLOBAL}
        self._problems: dict[str, list[str]] = {}
        self._i18n: dict[str, dict[str, dict[str, str]]] = {}
        self._texts: dict[tuple[str, ...], dict[str, str]] = {}
        self.version = 0
        """Rises with every change; what was derived from the contributions may be kept for one version."""

    def add(self, plugin_id: str, brought: PluginContributions) -> None:
        self._by_plugin[plugin_id] = brought
        self._settle()

    def remove(self, plugin_id: str) -> None:
        self._by_plugin.pop(plugin_id, None)
        self._settle()

    def touch(self) -> None:
        """Who may use what changed: nothing derived from the contributions is good any more."""
        self.version += 1

    def _settle(self) -> None:
        """Decide again which of equal names count."""
        self._problems = {plugin: [] for plugin in self._by_plugin}
        for kind in _GLOBAL:
            owners: dict[str, str] = {}
            kept: list[tuple[str, Any]] = []
            for plugin, brought in self._by_plugin.items():
                for item in getattr(brought, kind.field):
                    name = kind.name(item)
                    if name not in owners:
                        owners[name] = plugin
                        kept.append((plugin, item))
                        continue
                    whose = "it has" if owners[name] == plugin else f"plugin {owners[name]!r} has"
                    self._problems[plugin].append(
                        f"{kind.words} {name!r} is left out: {whose} one of that name already"
                    )
            self._kept[kind.field] = kept
        self.version += 1

    def problems(self, plugin_id: str) -> list[str]:
        """Sentences for the admin about what was left out."""
        return list(self._problems.get(plugin_id, ()))

    def of(self, plugin_id: str) -> PluginContributions | None:
        return self._by_plugin.get(plugin_id)

    def _visible(self, field: str, visible: Collection[str] | None) -> list[tuple[str, Any]]:
        kept = self._kept[field]
        return list(kept) if visible is None else [row for row in kept if row[0] in visible]

    def tools(self, visible: Collection[str] | None = None) -> list[tuple[str, Tool]]:
        """(plugin id, tool) of the plugins in ``visible``, or of all."""
        return self._visible("tools", visible)

    def agents(self, visible: Collection[str] | None = None) -> list[tuple[str, AgentSpec]]:
        """(plugin id, agent) of the plugins in ``visible``, or of all."""
        return self._visible("agents", visible)

    def commands(self, visible: Collection[str] | None = None) -> list[tuple[str, Command]]:
        """(plugin id, command) of the plugins in ``visible``, or of all."""
        return self._visible("commands", visible)

    def provider_types(self) -> list[tuple[str, ProviderType]]:
        return self._visible("providers", None)

    def provider_type(self, type_id: str) -> tuple[str, ProviderType] | None:
        return next(((p, t) for p, t in self._kept["providers"] if t.id == type_id), None)

    def pages(self) -> list[tuple[str, WebPage]]:
        rows = [(p, page) for p, c in self._by_plugin.items() for page in c.pages]
        return sorted(rows, key=lambda row: (row[1].priority, row[0], row[1].page_id))

    def routes(self) -> dict[str, list[Any]]:
        return {p: c.routes for p, c in self._by_plugin.items() if c.routes}

    def schemas(self, bucket: str) -> list[tuple[str, Schema]]:
        return [(p, s) for p, c in self._by_plugin.items() for s in c.schemas if s.bucket == bucket]

    def capabilities(self) -> list[tuple[str, Capability]]:
        """Rights that running plugins add to roles."""
        return [(p, x) for p, c in self._by_plugin.items() for x in c.capabilities]

    def service(self, protocol: type[Any], visible: Collection[str] | None = None) -> Any | None:
        for plugin_id, brought in self._by_plugin.items():
            if visible is not None and plugin_id not in visible:
                continue
            for service in brought.services:
                if service.protocol is protocol:
                    return service.instance
        return None

    # -- texts -----------------------------------------------------------------------------------------------------

    def add_texts(self, plugin_id: str, i18n: dict[str, dict[str, str]]) -> None:
        """A plugin's texts by locale and key. They stay when it stops: its settings may be read and changed then."""
        self._i18n[plugin_id] = i18n
        self._texts.clear()
        self.version += 1

    def forget_texts(self, plugin_id: str) -> None:
        """The plugin is not installed any more."""
        self._i18n.pop(plugin_id, None)
        self._texts.clear()
        self.version += 1

    def texts(self, *locales: str) -> Mapping[str, str]:
        """Keys prefixed ``plugin.<id>.``, each from the first of ``locales`` that has it, and from English at last."""
        chain = tuple(dict.fromkeys((*locales, "en")))
        merged = self._texts.get(chain)
        if merged is None:
            merged = self._texts[chain] = {}
            for plugin_id, i18n in self._i18n.items():
                prefix = f"plugin.{plugin_id}."
                for locale in reversed(chain):
                    for key, text in i18n.get(locale, {}).items():
                        merged[prefix + key.removeprefix(prefix)] = text
        return merged
