"""Uses of what will go away, told to the author where they make them and to the admin in the catalog."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import msgspec

__all__ = ("Deprecated", "listen", "warn_deprecated")

_KERNEL = Path(__file__).parent.parent


class Deprecated(msgspec.Struct, frozen=True):
    """A use: in which file and line, of what, since which kernel API it is deprecated, until which it works, what to use."""

    file: str
    line: int
    what: str
    since: str
    until: str
    instead: str

    def __str__(self) -> str:
        return (
            f"{self.what} is deprecated since kernel API {self.since} and stops working in {self.until}; "
            f"use {self.instead} ({self.file}:{self.line})"
        )


_listeners: list[Callable[[Deprecated], None]] = []
"""Whoever keeps a catalog. Deprecated functions of the public surface have no application at hand, like a logger."""


def listen(listener: Callable[[Deprecated], None]) -> Callable[[], None]:
    """Have ``listener`` told of each use; returns what ends it."""
    _listeners.append(listener)

    def stop() -> None:
        _listeners.remove(listener)

    return stop


def warn_deprecated(what: str, *, since: str, until: str, instead: str) -> None:
    """Say that the plugin code that got here uses ``what``. Call it in the deprecated function itself.

    The line told is the nearest caller outside the kernel. A DeprecationWarning is issued for it as well, which tests of the
    plugin see.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and Path(frame.f_code.co_filename).is_relative_to(_KERNEL):
        frame = frame.f_back
    use = Deprecated(frame.f_code.co_filename, frame.f_lineno, what, since, until, instead)
    for listener in list(_listeners):
        listener(use)
    warnings.warn_explicit(str(use), DeprecationWarning, use.file, use.line)
