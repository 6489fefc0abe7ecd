"""When to try again, and how long to wait first."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import msgspec

from skald_core.loop.errors import ConfigError

__all__ = ("RetryPolicy", "parse_retry_after")

_SECONDS = re.compile(r"\d{1,9}(\.\d{1,9})?")


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How a failed call is repeated before its first output.

    ``max_retries`` counts after the first attempt. Waits are seconds: ``base`` doubles each time up to ``cap``, varied
    by ``jitter``. A wait the server asked for is kept exactly, unless it is longer than ``longest_hint``: then the call
    fails at once, and the caller may use another model.

    Raises:
        ConfigError: ``max_retries`` is no whole number, or below 0.
    """

    max_retries: int = 2
    base: float = 1.0
    cap: float = 30.0
    jitter: float = 0.2
    longest_hint: float = 120.0

    def __post_init__(self) -> None:
        if isinstance(self.max_retries, bool) or not isinstance(self.max_retries, int) or self.max_retries < 0:
            raise ConfigError(f"max_retries is {self.max_retries!r}; it must be a whole number, 0 or more")

    def wait(self, retries: int, hint: float | None, random: float) -> float | None:
        """Seconds to wait before retry number ``retries + 1``, or None when there shall be none.

        ``hint`` is what the server asked for, ``random`` a number from 0 up to 1.
        """
        if retries >= self.max_retries:
            return None
        if hint is not None:
            return hint if hint <= self.longest_hint else None
        backoff = min(self.cap, self.base * 2.0 ** min(retries, 60))
        return backoff * (1 + self.jitter * (2 * random - 1))


def parse_retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds from ``Retry-After``: a number, or an HTTP date (RFC 9110 §10.2.3); a past date is 0.

    OpenAI's finer ``retry-after-ms`` goes first. ``now`` is seconds since the epoch. None when there is no such header or
    it makes no sense. ``headers`` has lower-case names or ignores case.
    """
    fine = headers.get("retry-after-ms", "").strip()
    if _SECONDS.fullmatch(fine):
        return float(fine) / 1000
    text = headers.get("retry-after", "").strip()
    if not text:
        return None
    if _SECONDS.fullmatch(text):
        return float(text)
    from email.utils import parsedate_to_datetime  # rarely needed, and not light

    try:
        moment = parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError, IndexError):
        return None
    return max(0.0, moment - now) if math.isfinite(moment) else None
