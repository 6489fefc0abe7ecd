"""What reviewers say of installed plugins: which must not run, under whatever spelling, and which have a newer version.

The catalog index and this server's own list are asked as far as they are known; nothing is fetched here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from skald_core.plugins.discovery import Discovered

if TYPE_CHECKING:
    from skald_core.plugins.install.catalog_index import Entry, IndexState

__all__ = ("Reviews",)


class Reviews:
    """``index`` gives the index as it is known now, or None where there is none."""

    def __init__(self, index: Callable[[], IndexState | None]) -> None:
        self._index = index
        self._judged: object = None

    def news(self) -> bool:
        """Whether another index is known than at the last call."""
        state = self._index()
        entries = None if state is None else state.entries
        before, self._judged = self._judged, entries
        return entries is not before

    def _entry(self, found: Discovered) -> Entry | None:
        state = self._index()
        return None if state is None else state.entries.get(str(canonicalize_name(found.distribution)))

    def latest(self, found: Discovered) -> str | None:
        """The newest version the index has."""
        entry = self._entry(found)
        return None if entry is None else entry.latest

    def block_reason(self, found: Discovered) -> str | None:
        """Why this distribution in this version must not run; None when it may. Names are compared as PEP 503 says."""
        name = str(canonicalize_name(found.distribution))
        own = os.environ.get("SKALD_PLUGIN_BLOCK", "").split(",")
        if name in {str(canonicalize_name(part.strip())) for part in own if part.strip()}:
            return f"{name!r} is blocked on this server (SKALD_PLUGIN_BLOCK)"
        entry = self._entry(found)
        if entry is None:
            return None
        if entry.blocked:
            return f"{name!r} is blocked by the catalog index: {entry.blocked}"
        try:
            good = entry.is_good(found.version)
        except InvalidVersion:
            return None
        if good:
            return None
        return (
            f"version {found.version} of {name!r} must not be used, says the catalog index; "
            f"upgrade to {entry.min_good_version} or newer"
        )
