"""The order in which plugins start."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

from skald_core.plugins.discovery import Discovered

__all__ = ("start_order",)


def start_order(plugins: Sequence[Discovered]) -> tuple[list[str], dict[str, str]]:
    """Ids by declared ``before`` and ``after``, ties by id; and a problem for each plugin of a circle, which is ignored."""
    graph: dict[str, set[str]] = {plugin_id: set() for plugin_id in sorted(p.id for p in plugins)}
    for plugin in plugins:
        if plugin.manifest is None:
            continue
        graph[plugin.id] |= set(plugin.manifest.after) & graph.keys()
        for later in set(plugin.manifest.before) & graph.keys():
            graph[later].add(plugin.id)
    problems: dict[str, str] = {}
    while True:
        sorter = TopologicalSorter(graph)
        try:
            sorter.prepare()
        except CycleError as error:
            circle = [str(node) for node in error.args[1]]
            text = f"load order is a circle: {' → '.join(circle)}; started by name instead"
            for plugin_id in dict.fromkeys(circle):
                problems[plugin_id] = text
                graph[plugin_id] -= set(circle)
            continue
        order: list[str] = []
        while sorter.is_active():
            ready = sorted(sorter.get_ready())
            order += ready
            sorter.done(*ready)
        return order, problems
