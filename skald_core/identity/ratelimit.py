"""Login rate limit: failures per account and per peer address, and a bound on how many derivations may wait."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from skald_core.errors import TooMany

__all__ = ("LoginLimiter",)


class LoginLimiter:
    """Allows ``per_account`` failures of one account from one address and ``per_address`` of one address per ``window`` seconds.

    ``enter`` raises TooMany with ``retry_after`` seconds; call ``failed`` or ``succeeded`` afterwards, and ``leave`` always.
    The account key holds the address too, so a stranger cannot lock somebody out from elsewhere.
    """

    def __init__(
        self,
        *,
        per_account: int = 5,
        per_address: int = 20,
        window: float = 60.0,
        waiting: int = 8,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = (per_account, per_address)
        self._window = window
        self._max_waiting = waiting
        self._waiting = 0
        self._clock = clock
        self._failures: dict[str, deque[float]] = {}

    def _keys(self, account: str, address: str) -> tuple[str, str]:
        return (f"a\0{account.strip().lower()[:64]}\0{address}", f"p\0{address}")

    def enter(self, account: str, address: str) -> None:
        now = self._clock()
        if len(self._failures) > 10_000:
            self._failures = {k: q for k, q in self._failures.items() if q and q[-1] > now - self._window}
        for key, limit in zip(self._keys(account, address), self._limits, strict=True):
            recent = self._failures.get(key)
            if recent is None:
                continue
            while recent and recent[0] <= now - self._window:
                recent.popleft()
            if len(recent) >= limit:
                wait = max(1, round(recent[0] + self._window - now))
                raise TooMany(f"Too many failed sign-ins. Wait {wait} seconds and try again.", retry_after=wait)
        if self._waiting >= self._max_waiting:
            raise TooMany("Too many people are signing in at this moment. Try again in a few seconds.", retry_after=3)
        self._waiting += 1

    def leave(self) -> None:
        self._waiting -= 1

    def failed(self, account: str, address: str) -> None:
        now = self._clock()
        for key in self._keys(account, address):
            self._failures.setdefault(key, deque(maxlen=64)).append(now)

    def succeeded(self, account: str, address: str) -> None:
        self._failures.pop(self._keys(account, address)[0], None)
