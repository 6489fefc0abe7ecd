"""Rules and what they match: pure values, no storage.

Rules are tried in order of priority (lower first); the first that matches decides. When none matches, a person is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

__all__ = ("Action", "Facts", "Rule", "clean_path_pattern", "decide", "path_matches", "tool_matches")

Action = Literal["allow", "require", "deny"]
HOME = "~"
CLASSES = ("@fs_read", "@fs_write", "@fs_any")


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule. ``None`` means any.

    agent
        The agent's id, exactly.
    tool
        A tool's name, the beginning of one (``mcp_*``), ``*``, or a class of tools that act on one file or folder:
        ``@fs_read``, ``@fs_write``, ``@fs_any``. Classes go by what a tool declares, not by its name.
    path
        ``dir/*`` is the folder and everything below it, ``notes/2026*`` a beginning, anything else one exact path.
        ``~/…`` looks at the home alone, so ``~/*`` is all of the home but nothing mounted beside it.
    """

    id: str
    priority: int
    agent: str | None = None
    tool: str
    path: str | None = None
    action: Action
    note: str = ""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What rules look at. ``path`` is canonical; ``folder`` says that it is a folder, whose whole content is concerned."""

    tool: str
    scope: Literal["read", "write", "exec"]
    agent: str = ""
    path: str | None = None
    in_home: bool = False
    folder: bool = False


def tool_matches(pattern: str, facts: Facts) -> bool:
    if pattern in CLASSES:
        if facts.path is None:
            return False
        return facts.scope in {"@fs_read": ("read",), "@fs_write": ("write",)}.get(pattern, ("read", "write"))
    if pattern.endswith("*"):
        return facts.tool.startswith(pattern[:-1])
    return facts.tool == pattern


def clean_path_pattern(pattern: str) -> str:
    """``pattern`` the way paths are written: ``./a``, ``/root/a`` become ``a`` and ``~/a``; no empty or dot parts."""
    home = ""
    if pattern in {HOME, "/root"}:
        return HOME
    for prefix in ("~/", "/root/"):
        if pattern.startswith(prefix):
            home, pattern = "~/", pattern[len(prefix) :]
    return home + "/".join(part for part in pattern.split("/") if part not in {"", "."})


def _base(pattern: str) -> str:
    """The folder or beginning a pattern speaks of: ``private`` for ``private/*``."""
    return pattern.removesuffix("*").removesuffix("/")


def path_matches(pattern: str, facts: Facts) -> bool:
    """Whether the call's one path is meant by ``pattern``."""
    path = facts.path
    if path is None:
        return False
    if pattern == HOME or pattern.startswith("~/"):
        if not facts.in_home:
            return False
        pattern = pattern[2:] or HOME
    if pattern == "*":
        return True
    if pattern.endswith("/*"):
        return path == pattern[:-2] or path.startswith(pattern[:-1])
    if pattern.endswith("*"):
        return path.startswith(pattern[:-1])
    return path == pattern


def _reaches(pattern: str, facts: Facts) -> bool:
    """Whether ``pattern`` speaks of something inside the folder the call is about."""
    if facts.path is None or not facts.folder:
        return False
    inner = _base(pattern.removeprefix("~/"))
    return facts.path == HOME or inner.startswith(f"{facts.path}/")


def decide(rules: Sequence[Rule], facts: Facts) -> Rule | None:
    """The first rule that matches, in the order given.

    A rule that restricts also matches a call on a folder around what it protects: a search through the home would read
    the private folder in it. A rule that allows matches only what it names.
    """
    for rule in rules:
        if rule.agent is not None and rule.agent != facts.agent:
            continue
        if not tool_matches(rule.tool, facts):
            continue
        if rule.path is None or path_matches(rule.path, facts):
            return rule
        if rule.action != "allow" and _reaches(rule.path, facts):
            return rule
    return None
