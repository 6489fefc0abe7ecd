"""A clock that stands still until a test moves it."""

from __future__ import annotations

__all__ = ("FakeClock",)


class FakeClock:
    """What ``ctx.now()`` and the kernel's own times read. ``start`` is in seconds since the epoch."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> float:
        """Move on; returns the new time. Raises ValueError for a step back."""
        if seconds < 0:
            raise ValueError("time does not go back")
        self._now += seconds
        return self._now
