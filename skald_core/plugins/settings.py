"""Settings of plugins: what an author declares, and the type of a secret."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

__all__ = ("Option", "Secret", "Settings", "setting")


class Secret:
    """A value that is stored, handed to the plugin, and shown to nobody else: not to a browser, not in a log or a repr.

    An empty secret is falsy and means *not set*.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str = "") -> None:
        self._value = value

    def reveal(self) -> str:
        """The value itself. Do not log it, do not put it into an error."""
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return "Secret(set)" if self._value else "Secret(not set)"

    __str__ = __repr__


class Option(msgspec.Struct, frozen=True):
    """A value of a computed choice and what a person reads; ``label`` is an i18n key or plain text."""

    value: str
    label: str


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """A struct of settings with what goes beyond it.

    version
        Of the stored form; counts from 1. Raise it when stored values of older versions no longer fit.
    migrate_config
        ``(values, version) -> values``: turns the stored object of an older version into this one's. Values that cannot be
        read are kept aside, never thrown away.
    test
        Awaited with an instance before it is saved, when the person presses *Test*. Returns a sentence for them; raises
        ToolError with what is wrong.
    choices
        By field: the options of a select that are only known at run time.
    """

    type: type[msgspec.Struct]
    version: int = 1
    migrate_config: Callable[[dict[str, Any], int], dict[str, Any]] | None = None
    test: Callable[[Any], Awaitable[str]] | None = None
    choices: Mapping[str, Callable[[], Awaitable[Sequence[Option]]]] = {}


def setting(
    title: str,
    help: str = "",  # noqa: A002 -- the word authors look for
    *,
    kind: Literal["", "textarea", "select", "model", "url"] = "",
    **limits: Any,
) -> msgspec.Meta:
    """How a field is shown in a form: ``Annotated[str, setting("config.city", "config.city.help")]``.

    ``title`` and ``help`` are i18n keys or plain text. ``kind`` is needed only where the type does not say it: bool is a
    switch, int and float a number, Literal and Enum a select, Secret a secret, everything else text. ``limits`` are
    msgspec's own (``ge``, ``le``, ``min_length``, ``pattern`` …).
    """
    extra = {"x-kind": kind} if kind else {}
    return msgspec.Meta(title=title, description=help or None, extra_json_schema=extra or None, **limits)
