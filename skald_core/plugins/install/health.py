"""Does the new set work? A child process boots a Skald of its own with it, in an empty data directory, before the switch."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from skald_core.errors import SkaldError

__all__ = ("Health", "Unhealthy", "check_health")

TIMEOUT = 180.0
"""Seconds until a check that does not end counts as failed. One plugin may take a minute of its own."""

GOOD = frozenset({"running", "needs_config"})


class Health(msgspec.Struct, frozen=True):
    """By plugin id: its state, and what failed."""

    states: dict[str, str]
    errors: dict[str, str]


class Unhealthy(SkaldError):
    """The new set does not work. ``params``: reason."""

    status = 422
    code = "plugin_unhealthy"


async def check_health(paths: Sequence[Path], plugins: Sequence[str], folder: Path) -> Health:
    """Start these plugins in a child whose first import folders are ``paths``. Raises Unhealthy when the child itself fails."""
    with tempfile.TemporaryDirectory(prefix="health-", dir=folder) as place:
        report = Path(place) / "report.json"
        env = {k: v for k, v in os.environ.items() if not k.startswith("SKALD_")}
        old = [p for p in env.get("PYTHONPATH", "").split(os.pathsep) if p]
        env["PYTHONPATH"] = os.pathsep.join([*map(str, paths), *old])
        env["PYTHONDONTWRITEBYTECODE"] = "1"
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            __name__,
            str(Path(place) / "data"),
            str(report),
            ",".join(plugins),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=env,
            cwd=place,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(TIMEOUT):
                output, _ = await process.communicate()
        except TimeoutError:
            raise Unhealthy(
                f"the check of the new set did not end within {TIMEOUT:g} s; nothing was changed", reason="timeout"
            ) from None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        try:
            return msgspec.json.decode(report.read_bytes(), type=Health)
        except (OSError, msgspec.DecodeError, msgspec.ValidationError):
            lines = output.decode(errors="replace").strip().splitlines()
            reason = lines[-1] if lines else f"it ended with status {process.returncode}"
            raise Unhealthy(
                f"Skald does not start with the new set: {reason[:300]}. Nothing was changed.", reason=reason[:300]
            ) from None


async def _boot(data: Path, report: Path, wanted: frozenset[str]) -> None:
    from skald_core.plugins.discovery import discover
    from skald_core.runtime.app import Skald
    from skald_core.runtime.settings import Settings

    # Discovered here and handed over: the process that asks holds the lock that looking for interrupted changes would take.
    app = await Skald.start(Settings(data_dir=data, only_plugins=wanted), plugins=discover())
    try:
        for plugin_id in sorted(wanted):
            row = app.plugins.rows.get(plugin_id)
            if row is not None and row.state == "disabled":
                await app.plugins.enable(plugin_id)
        await app.plugins.settled()  # routes are built, and a slow start has ended one way or the other
        rows = {i: app.plugins.rows[i] for i in wanted if i in app.plugins.rows}
        health = Health(
            states={i: row.state for i, row in rows.items()} | {i: "missing" for i in wanted if i not in rows},
            errors={i: f"{row.error.phase}: {row.error.message}" for i, row in rows.items() if row.error is not None},
        )
    finally:
        await app.stop()
    await asyncio.to_thread(report.write_bytes, msgspec.json.encode(health))


if __name__ == "__main__":
    asyncio.run(_boot(Path(sys.argv[1]), Path(sys.argv[2]), frozenset(filter(None, sys.argv[3].split(",")))))
