"""What an approval card shows: the effect of a call, and how much is at stake."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from skald_approval.diff import Diff, unified
from skald_core import api as skald

__all__ = ("Risk", "details", "effect_digest", "risk")

Risk = Literal["low", "medium", "high"]

# Files that programs run or trust without asking: a change there does more than it says.
_TRUSTED = frozenset(
    {".bash_login", ".bash_profile", ".bashrc", ".config", ".git", ".gnupg", ".local", ".profile", ".ssh", ".zprofile", ".zshrc"}
)  # fmt: skip


def change_kind(change: skald.FileChange) -> str:
    if change.kind:
        return change.kind
    if change.before is None:
        return "create"
    if change.after is None:
        return "delete"
    return "append" if change.before and change.after.startswith(change.before) else "overwrite"


def _change_risk(change: skald.FileChange, diff: Diff) -> Risk:
    kind = change_kind(change)
    parts = change.path.split("/")
    if kind == "delete" or _TRUSTED.intersection(parts):
        return "high"
    before = (change.before or "").count("\n") + 1
    if kind in {"overwrite", "edit"} and diff.removed > 20 and diff.removed * 2 > before:
        return "high"  # most of a longer file goes
    if kind in {"overwrite", "edit"} or any(part.startswith(".") for part in parts):
        return "medium"
    return "low"


def risk(scope: str, changes: Sequence[skald.FileChange], diffs: Sequence[Diff]) -> Risk:
    """``high`` for programs and what is hard to undo, ``low`` for reading and for what only adds."""
    if scope == "read":
        return "low"
    if scope == "exec":
        return "high"
    if not changes:
        return "medium"
    levels = {_change_risk(change, diff) for change, diff in zip(changes, diffs, strict=True)}
    return "high" if "high" in levels else "medium" if "medium" in levels else "low"


def details(scope: str, raw: Mapping[str, Any], changes: Sequence[skald.FileChange]) -> dict[str, Any]:
    """The card's JSON. Compares texts, so call it on a worker thread."""
    diffs = [unified(change.before, change.after) for change in changes]
    found: dict[str, Any] = {"risk": risk(scope, changes, diffs)}
    if changes:
        found["changes"] = [
            {
                "path": change.path,
                "kind": change_kind(change),
                "diff": diff.text,
                "added": diff.added,
                "removed": diff.removed,
                **({"truncated": True} if diff.truncated else {}),
            }
            for change, diff in zip(changes, diffs, strict=True)
        ]
    command = raw.get("command")
    if scope == "exec" and isinstance(command, str):
        found["command"] = command
    return found


def effect_digest(changes: Sequence[skald.FileChange]) -> str:
    """Names the effect a person agreed to.

    For an append that is the text added, so that a file others add to meanwhile stays the same request; otherwise both
    texts, so that a file that was changed meanwhile is not.
    """
    digest = hashlib.sha256()
    for change in changes:
        kind = change_kind(change)
        before = change.before
        after = change.after
        if kind == "append" and before is not None and after is not None and after.startswith(before):
            before, after = "", after[len(before) :].lstrip("\n")
        for part in (kind, change.path, before, after):
            text = "\0absent" if part is None else part
            data = text.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()
