"""Agents on disk: a folder each with ``meta.json``, ``AGENT.md``, and ``AGENT.short.md`` for models with little context."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import msgspec

from skald_core.plugins.contributions import AgentSpec

__all__ = ("AgentFileError", "read_agent", "read_agents")

_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


class AgentFileError(ValueError):
    """An agent's folder cannot be used; the sentence names the folder and what is wrong with it."""


class _Meta(msgspec.Struct, forbid_unknown_fields=True):
    """``meta.json``. ``i18n`` holds a ``name`` by locale."""

    name: str
    description: str
    type: Literal["chat", "task"]
    tools: tuple[str, ...] | None = None
    model: str | None = None
    i18n: dict[str, dict[str, str]] = {}


def read_agent(folder: Path) -> AgentSpec:
    """The agent in ``folder``, whose name is its id. Raises AgentFileError."""
    if not _ID.fullmatch(folder.name):
        raise AgentFileError(
            f"the agent folder {folder.name!r} needs a name of lower-case letters, digits and hyphens: it is the agent's id"
        )
    short = folder / "AGENT.short.md"
    try:
        meta = msgspec.json.decode((folder / "meta.json").read_bytes(), type=_Meta)
        prompt = (folder / "AGENT.md").read_text(encoding="utf-8").strip()
        brief = short.read_text(encoding="utf-8").strip() if short.is_file() else ""
    except FileNotFoundError as error:
        raise AgentFileError(f"the agent {folder.name!r} lacks its {Path(str(error.filename)).name!r}") from None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise AgentFileError(f"the agent {folder.name!r} cannot be read: {error}") from None
    if not prompt:
        raise AgentFileError(f"the agent {folder.name!r} has an empty 'AGENT.md'")
    return AgentSpec(
        id=folder.name,
        name=meta.name,
        description=meta.description,
        prompt=prompt,
        type=meta.type,
        short=brief,
        tools=meta.tools,
        model=meta.model,
        names={locale: texts["name"] for locale, texts in meta.i18n.items() if "name" in texts},
    )


def read_agents(root: Path) -> list[AgentSpec]:
    """Every agent below ``root``, by id; hidden folders are passed over. Raises AgentFileError for the first broken one."""
    folders = sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    return [read_agent(path) for path in folders if not path.name.startswith((".", "_"))]
