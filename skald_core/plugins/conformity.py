"""What the manifest says against what the code registers."""

from __future__ import annotations

from collections.abc import Collection

from skald_core.plugins.contributed import PluginContributions
from skald_core.plugins.manifest import Manifest

__all__ = ("manifest_mismatches",)


def manifest_mismatches(manifest: Manifest, brought: PluginContributions, hooks: Collection[str]) -> list[str]:
    """A sentence for each list of ``contributes`` that is not true. Lists the manifest leaves out entirely are compared too:
    the catalog shows them before anything is imported.

    Mounts are made per user, so only a plugin that names mounts without making any, or the other way round, is told.
    """
    said = manifest.contributes
    pairs: tuple[tuple[str, Collection[str], Collection[str]], ...] = (
        ("tools", said.tools, [t.name for t in brought.tools]),
        ("pages", said.pages, [p.page_id for p in brought.pages]),
        ("providers", said.providers, [t.id for t in brought.providers]),
        ("services", said.services, [s.protocol.__name__ for s in brought.services]),
        ("commands", said.commands, [c.name for c in brought.commands]),
        ("agents", said.agents, [a.id for a in brought.agents]),
        ("hooks", said.hooks, hooks),
    )
    told = [
        f"the manifest's {what} {sorted(declared)} differ from what the code registers {sorted(real)}"
        for what, declared, real in pairs
        if set(declared) != set(real)
    ]
    if said.routes != bool(brought.routes):
        told.append(
            f"the manifest says routes = {str(said.routes).lower()}, "
            f"but the code registers {len(brought.routes) or 'none'}"
        )
    if bool(said.mounts) != ("skald_mounts" in hooks):
        told.append(
            f"the manifest's mounts are {sorted(said.mounts)}, "
            f"but the code {'implements' if 'skald_mounts' in hooks else 'does not implement'} skald_mounts"
        )
    return told
