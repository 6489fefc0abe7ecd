"""Sentences of a job, kept as a key with values so that everyone reads them in their own language."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from skald_core.errors import SkaldError

__all__ = ("Message", "Translator", "message_of")


class Translator(Protocol):
    """What :class:`skald_core.runtime.i18n.Texts` offers."""

    def find(self, key: str, locale: str) -> str | None: ...
    def t(self, key: str, locale: str = "", values: dict[str, object] | None = None) -> str: ...


class Message(msgspec.Struct, frozen=True):
    """``key`` below ``install.`` or ``error.``, or empty: then ``text`` is shown as it is (output of a tool)."""

    key: str
    params: dict[str, Any] = {}
    text: str = ""

    def say(self, texts: Translator, locale: str = "") -> str:
        if self.key and texts.find(self.key, locale) is not None:
            return texts.t(self.key, locale, self.params)
        return self.text or self.key


def message_of(error: BaseException) -> Message:
    """An error as a kept sentence; never a traceback."""
    if isinstance(error, SkaldError):
        return Message(f"error.{error.code}", {k: str(v) for k, v in error.params.items()}, error.detail)
    return Message("", {}, f"{type(error).__name__}: {error}"[:500])
