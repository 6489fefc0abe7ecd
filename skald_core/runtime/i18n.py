"""Texts of the server and of its plugins: user's locale → instance's locale → English, with ``{name}`` placeholders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

__all__ = ("LOCALES", "Texts")

LOCALES = ("en", "it", "fr")
_FOLDER = Path(__file__).parent.parent / "i18n"


class _Keep(dict[str, object]):
    """A placeholder nobody filled stays visible instead of raising."""

    def __missing__(self, key: str) -> str:
        return "{" + key + "}"


def _no_plugins(*locales: str) -> Mapping[str, str]:
    return {}


class Texts:
    """``plugins`` gives the texts of the running plugins, each from the first of some locales that has it."""

    def __init__(self, plugins: Callable[..., Mapping[str, str]] = _no_plugins) -> None:
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
        if key.startswith("plugin."):
            return self.of_plugins(locale).get(key)
        for candidate in (self.resolve(locale), self.instance_locale, "en"):
            text = self._own.get(candidate, {}).get(key)
            if text is not None:
                return text
        return None

    def t(self, key: str, locale: str = "", values: dict[str, object] | None = None) -> str:
        """The text, or the key itself when nobody has it. A text whose placeholders are broken is shown as it is."""
        text = self.find(key, locale)
        if text is None:
            return key
        if not values:
            return text
        try:
            return text.format_map(_Keep(values))
        except (ValueError, IndexError, KeyError, AttributeError):
            return text

    def of_plugins(self, locale: str) -> Mapping[str, str]:
        """All plugins' texts for somebody of this locale."""
        return self._plugins(self.resolve(locale), self.instance_locale)

    def of_plugin(self, plugin_id: str, text: str, locale: str) -> str:
        """What a plugin wrote where a key of its texts or plain text may stand. Keys may carry their prefix."""
        prefix = f"plugin.{plugin_id}."
        return self.of_plugins(locale).get(text if text.startswith(prefix) else prefix + text, text)
