"""Shipped agents: a folder each with ``meta.json`` and ``AGENT.md`` (and ``AGENT.short.md`` for small models)."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

__all__ = ("Agent", "load_agents")

log = logging.getLogger("skald.agents")

_PACKAGED = Path(__file__).parent.parent / "shipped_agents"
_CHECKOUT = Path(__file__).parent.parent.parent / "agents"


class _Meta(msgspec.Struct):
    name: str
    description: str
    type: str
    i18n: dict[str, dict[str, str]] = {}


class Agent(msgspec.Struct, frozen=True):
    """``prompt`` is the agent's text; ``short`` the one for models with little context."""

    id: str
    name: str
    description: str
    type: str
    prompt: str
    short: str
    names: dict[str, str] = {}


def load_agents(folder: Path | None = None) -> dict[str, Agent]:
    """Agents by id. A folder with a bad meta file is skipped with a warning."""
    root = folder or (_PACKAGED if _PACKAGED.is_dir() else _CHECKOUT)
    found: dict[str, Agent] = {}
    for path in sorted(root.iterdir()) if root.is_dir() else ():
        if not path.is_dir():
            continue
        try:
            meta = msgspec.json.decode((path / "meta.json").read_bytes(), type=_Meta)
            prompt = (path / "AGENT.md").read_text(encoding="utf-8").strip()
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            log.warning("agent %s is skipped: %s", path.name, error)
            continue
        short = path / "AGENT.short.md"
        found[path.name] = Agent(
            id=path.name,
            name=meta.name,
            description=meta.description,
            type=meta.type,
            prompt=prompt,
            short=short.read_text(encoding="utf-8").strip() if short.is_file() else prompt,
            names={locale: texts["name"] for locale, texts in meta.i18n.items() if "name" in texts},
        )
    return found
