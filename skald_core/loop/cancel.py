"""Cancellation: a token minted per run and handed down by value; a child token ends with its parent, never before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ("CancelToken",)


class CancelToken:
    """Says that work should stop, and why. ``event`` is what tools wait on."""

    __slots__ = ("_children", "_listeners", "event", "reason")

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.reason = ""
        self._children: list[CancelToken] = []
        self._listeners: list[Callable[[], None]] = []

    @property
    def cancelled(self) -> bool:
        return self.event.is_set()

    def child(self) -> CancelToken:
        token = CancelToken()
        if self.cancelled:
            token.cancel(self.reason)
        else:
            self._children.append(token)
        return token

    def on_cancel(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` once when cancelled; at once if that happened already."""
        if self.cancelled:
            listener()
        else:
            self._listeners.append(listener)

    def cancel(self, reason: str = "") -> bool:
        """Cancel this token and its children. False when it was cancelled before; the first reason stays."""
        if self.cancelled:
            return False
        self.reason = reason
        self.event.set()
        for child in self._children:
            child.cancel(reason)
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()
        return True
