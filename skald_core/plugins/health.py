"""Health checks of a plugin: is what it depends on there?"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

import msgspec

from skald_core.plugins.contributions import Health, HealthCheck

__all__ = ("Checked", "run_checks")

log = logging.getLogger("skald.plugins")

CHECK_SECONDS = 10.0


class Checked(msgspec.Struct, frozen=True):
    """What a check found. ``slow`` says that it did not end; ``text`` is as the plugin wrote it."""

    id: str
    title: str
    ok: bool
    text: str
    ms: int
    slow: bool = False


async def run_checks(
    plugin_id: str,
    checks: Sequence[HealthCheck],
    *,
    limit: float = CHECK_SECONDS,
    now: Callable[[], float] = time.monotonic,
) -> list[Checked]:
    """Run all at once, each at most ``limit`` seconds. One that raises or does not end is not well."""

    async def run(check: HealthCheck) -> Checked:
        began = now()
        slow = False
        try:
            async with asyncio.timeout(limit):
                found = await check.check()
            if not isinstance(found, Health):
                raise TypeError(f"a check must return Health, it returned {type(found).__name__}")
        except TimeoutError as error:
            slow = not str(error)
            found = Health(False, str(error))
        except Exception as error:  # noqa: BLE001 -- the plugin boundary; the catalog shows the reason
            log.warning("plugin %s: the check %s failed: %s", plugin_id, check.id, error)
            found = Health(False, str(error) or type(error).__name__)
        return Checked(check.id, check.title, found.ok, found.text, round((now() - began) * 1000), slow)

    return list(await asyncio.gather(*(run(check) for check in checks)))
