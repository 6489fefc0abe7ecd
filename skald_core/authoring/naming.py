"""The names of a new plugin: its id, its distribution and its package, all from one word."""

from __future__ import annotations

import importlib.metadata
import re

import msgspec

from skald_core.errors import BadInput, Conflict
from skald_core.plugins.discovery import GROUP
from skald_core.plugins.manifest import canonical_id

__all__ = ("PluginNames", "names_for")

_ID = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
MAX_LENGTH = 40
_TAKEN = frozenset({"api", "core", "kernel", "plugin", "skald", "test", "testing", "tests"})
"""Ids that would read as a part of Skald itself."""


class PluginNames(msgspec.Struct, frozen=True):
    """``id`` in URLs, tables and texts; ``distribution`` for installers; ``package`` for imports; ``snake`` in identifiers."""

    id: str
    distribution: str
    package: str
    snake: str
    title: str
    class_name: str


def names_for(name: str) -> PluginNames:
    """The names a plugin called ``name`` gets.

    Raises BadInput for a name that cannot be one (with the nearest that can), and Conflict when the plugin is installed.
    """
    plugin_id = canonical_id(name.strip())
    if not _ID.fullmatch(plugin_id) or len(plugin_id) > MAX_LENGTH:
        near = re.sub(r"[^a-z0-9]+", "-", plugin_id.lower()).strip("-0123456789")[:MAX_LENGTH].strip("-")
        hint = f"; {near!r} would do" if near and near not in _TAKEN else ""
        raise BadInput(
            f"{name!r} cannot name a plugin: begin with a letter, then letters, digits and single hyphens, "
            f"at most {MAX_LENGTH} in all{hint}"
        )
    if plugin_id in _TAKEN:
        raise BadInput(f"{name!r} is a name of Skald itself; choose another")
    owner = next((p.dist for p in importlib.metadata.entry_points(group=GROUP) if p.name == plugin_id), None)
    if owner is not None:
        raise Conflict(f"a plugin {plugin_id!r} is installed already, by {owner.name!r}; choose another name")
    snake = plugin_id.replace("-", "_")
    words = plugin_id.split("-")
    return PluginNames(
        id=plugin_id,
        distribution=f"skald-plugin-{plugin_id}",
        package=f"skald_plugin_{snake}",
        snake=snake,
        title=" ".join(words).capitalize(),
        class_name="".join(word.capitalize() for word in words),
    )
