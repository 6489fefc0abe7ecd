"""Characters that servers tear apart: one beyond the basic plane may come as two halves in two pieces of a stream."""

from __future__ import annotations

from skald_core.api import whole_characters

__all__ = ("CharacterJoiner",)


class CharacterJoiner:
    """Takes text in pieces and gives it out without halves of characters."""

    def __init__(self) -> None:
        self._half = ""

    def feed(self, text: str) -> str:
        """What can be shown now; a half at the end waits for what follows."""
        if self._half:
            text, self._half = self._half + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return whole_characters(text)

    def finish(self) -> str:
        """Nothing follows: a half that still waits becomes U+FFFD."""
        half, self._half = self._half, ""
        return "\N{REPLACEMENT CHARACTER}" if half else ""
