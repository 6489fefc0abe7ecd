"""Texts of the server: user's locale → instance's locale → English, with ``{name}`` placeholders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

__all__ = ("LOCALES", "Texts")

LOCALES = ("en", "it", "fr")
_FOLDER = Path(__file__).parent.parent / "i18n"


class _Keep(dict[str, object]):
    """A placeholder nobody filled stays visible instead of raising."""

    def __missing__(self, key: str) -> str:
        return "{" + key + "}"


class Texts:
    """``plugins`` gives the merged plugin bundle of a locale; plugins come and go, so it is asked every time."""

    def __init__(self, plugins: Callable[[str], dict[str, str]] = lambda locale: {}) -> None:
        self._own = {
            locale: msgspec.json.decode((_FOLDER / f"{locale}.json").read_bytes(), type=dict[str, str])
            for locale in LOCALES
        }
        self._plugins = plugins
        self.instance_locale = "en"

    def resolve(self, locale: str) -> str:
        """The supported locale nearest to ``locale``."""
        for candidate in (locale, locale.partition("-")[0], self.instance_locale):
            if candidate in LOCALES:
                return candidate
        return "en"

    def find(self, key: str, locale: str) -> str | None:
        for candidate in dict.fromkeys((self.resolve(locale), self.instance_locale, "en")):
            bundle = self._plugins(candidate) if key.startswith("plugin.") else self._own.get(candidate, {})
            if key in bundle:
                return bundle[key]
        return None

    def t(self, key: str, locale: str = "", values: dict[str, object] | None = None) -> str:
        """The text, or the key itself when nobody has it."""
        text = self.find(key, locale)
        if text is None:
            return key
        return text.format_map(_Keep(values or {})) if values else text
