"""Unique strings planted as somebody's data, and the rule of where each of them may appear again."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator

__all__ = ("Canaries", "Canary")

_PATTERN = re.compile(rb"cnry[0-9a-f]{16}")


class Canary:
    """``owner`` planted it; ``viewers`` may be answered with it besides; ``disk`` are the kinds of place it may lie in plainly.

    A ``secret`` is never answered, not even to its owner.
    """

    def __init__(self, text: str, what: str, owner: str, viewers: frozenset[str], disk: frozenset[str], secret: bool):
        self.text = text
        self.what = what
        self.owner = owner
        self.viewers = viewers
        self.disk = disk
        self.secret = secret

    def __str__(self) -> str:
        return f"{self.what} of {self.owner}"


class Canaries:
    """All that was planted. Tokens nobody can choose, such as session cookies, are added as they are."""

    def __init__(self) -> None:
        self._planted: dict[bytes, Canary] = {}
        self._tokens: dict[bytes, Canary] = {}

    def plant(self, what: str, owner: str, *, viewers: str = "", disk: str = "", secret: bool = False) -> str:
        """A new string; ``viewers`` and ``disk`` are words."""
        text = f"cnry{secrets.token_hex(8)}"
        self._planted[text.encode()] = Canary(
            text, what, owner, frozenset(viewers.split()), frozenset(disk.split()), secret
        )
        return text

    def token(self, text: str, what: str, owner: str) -> str:
        """Watch for a secret the server chose itself."""
        self._tokens[text.encode()] = Canary(text, what, owner, frozenset(), frozenset(), True)
        return text

    def __len__(self) -> int:
        return len(self._planted) + len(self._tokens)

    def of(self, owner: str) -> list[Canary]:
        """What somebody's data hold."""
        return [canary for canary in self._planted.values() if canary.owner == owner]

    def found(self, data: bytes) -> Iterator[Canary]:
        """Every one that is in ``data``, once."""
        for text in set(_PATTERN.findall(data)):
            if text in self._planted:
                yield self._planted[text]
        for token, canary in self._tokens.items():
            if token in data:
                yield canary

    def wrong_for(self, viewer: str, data: bytes) -> Iterator[Canary]:
        """Those that ``viewer`` (empty: nobody in particular) must not be answered with."""
        for canary in self.found(data):
            if canary.secret or (viewer != canary.owner and viewer not in canary.viewers):
                yield canary

    def wrong_on_disk(self, place: str, owner: str, data: bytes) -> Iterator[Canary]:
        """Those that must not lie in a file of this kind of place, which belongs to ``owner``."""
        for canary in self.found(data):
            if place not in canary.disk or (owner and owner != canary.owner):
                yield canary
