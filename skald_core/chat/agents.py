"""The agents a user's conversations may have: those shipped with the server and those of the user's plugins."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from skald_core.plugins.agents import AgentFileError, read_agent
from skald_core.plugins.contributed import Contributed
from skald_core.plugins.contributions import AgentSpec

__all__ = ("MAIN", "Agents", "Known", "load_agents")

log = logging.getLogger("skald.agents")

MAIN = "assistant"
"""The agent every conversation has."""

_PACKAGED = Path(__file__).parent.parent / "shipped_agents"
_CHECKOUT = Path(__file__).parent.parent.parent / "agents"


class Known(msgspec.Struct, frozen=True):
    """An agent and the plugin it comes from; None for a shipped one."""

    spec: AgentSpec
    plugin: str | None = None

    def title(self, locale: str) -> str:
        return self.spec.names.get(locale, self.spec.name)


def load_agents(folder: Path | None = None) -> dict[str, AgentSpec]:
    """The shipped agents by id. One that cannot be read is left out with a warning: the others still work."""
    root = folder or (_PACKAGED if _PACKAGED.is_dir() else _CHECKOUT)
    found: dict[str, AgentSpec] = {}
    for path in sorted(root.iterdir()) if root.is_dir() else ():
        if path.is_dir() and not path.name.startswith((".", "_")):
            try:
                found[path.name] = read_agent(path)
            except AgentFileError as error:
                log.warning("%s", error)
    return found


class Agents:
    """Finds agents by id among ``shipped`` and what plugins contribute. A shipped id cannot be taken over."""

    def __init__(self, shipped: Mapping[str, AgentSpec], contributed: Contributed) -> None:
        self._shipped = shipped
        self._contributed = contributed

    def all(self, visible: Collection[str]) -> dict[str, Known]:
        """Those a user may have whose plugins are ``visible``."""
        found = {spec.id: Known(spec) for spec in self._shipped.values()}
        for plugin, spec in self._contributed.agents(visible):
            found.setdefault(spec.id, Known(spec, plugin))
        return found

    def tasks(self, visible: Collection[str], *, without: str = "") -> dict[str, Known]:
        """Those work can be delegated to, by an agent that is not ``without`` itself."""
        return {key: known for key, known in self.all(visible).items() if known.spec.type == "task" and key != without}

    def taken(self, plugin: str) -> list[str]:
        """Ids of a plugin's agents that are left out because a shipped agent has them."""
        return [spec.id for owner, spec in self._contributed.agents() if owner == plugin and spec.id in self._shipped]
