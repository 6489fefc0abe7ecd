"""Folders that tools show but do not enter: version control, caches and what package managers fill."""

from __future__ import annotations

__all__ = ("SKIPPED_FOLDERS",)

SKIPPED_FOLDERS = frozenset({".cache", ".git", ".hg", ".svn", ".venv", "__pycache__", "node_modules", "target"})
