"""``skald plugin …`` for admins: never imports a plugin. A running server acts at once; otherwise the state is stored."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from skald_core.errors import NotFound
from skald_core.plugins.discovery import Discovered, bundled_names, discover
from skald_core.plugins.state import Failure, State
from skald_core.runtime.settings import default_data_dir

__all__ = ("run",)

INSTALL_ACTS = frozenset({"install", "upgrade", "uninstall", "purge", "lock"})


def run(args: argparse.Namespace) -> int:
    data_dir = (args.data or default_data_dir()).resolve()
    if args.act == "list":
        return asyncio.run(_list(data_dir, as_json=args.json, verbose=args.verbose))
    if args.act in INSTALL_ACTS:
        from skald_core.cli import plugin_install

        return plugin_install.run(args, data_dir, server_runs=_server_runs(data_dir))
    found = {row.id: row for row in discover()}
    if args.id not in found:
        known = ", ".join(sorted(found)) or "none"
        raise NotFound(f"no plugin {args.id!r} is installed here (installed: {known})")
    if _server_runs(data_dir):
        from skald_core.cli.chat import plugin_over_http

        return asyncio.run(plugin_over_http(args))
    return asyncio.run(_store(data_dir, args.id, enabled=args.act == "enable"))


def _server_runs(data_dir: Path) -> bool:
    try:
        with (data_dir / "skald.lock").open() as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


Stored = tuple[bool, State, Failure | None]
"""Whether it is enabled, its last state, and what went wrong last."""


async def _stored(data_dir: Path) -> dict[str, Stored]:
    """What the last server noted, by plugin id."""
    from skald_core.loop.database import Database

    path = data_dir / "database" / "system.db"
    if not path.is_file():
        return {}
    database = await Database.open(path, readers=1)
    try:
        rows = await database.read(lambda c: c.execute("SELECT id, enabled, state, error FROM plugins").fetchall())
    finally:
        await database.close()
    return {
        row[0]: (bool(row[1]), row[2], msgspec.json.decode(row[3], type=Failure) if row[3] else None) for row in rows
    }


async def _list(data_dir: Path, *, as_json: bool, verbose: bool) -> int:
    stored = await _stored(data_dir)
    bundled = bundled_names()
    rows = [_row(plugin, stored, bundled) for plugin in discover()]
    if as_json:
        print(json.dumps(rows))
        return 0
    if not rows:
        print("No plugins are installed.")
        return 0
    width = max(len(r["id"]) for r in rows)
    states = {row["id"]: _state_word(row) for row in rows}
    column = max(map(len, states.values()))
    for row in rows:
        said = f"{row['phase']}: {row['error']}" if row["error"] else row["title"]
        first, *more = said.splitlines() or [""]
        print(f"{row['id']:<{width}}  {row['version']:<10}  {states[row['id']]:<{column}}  {first}")
        for line in [*more, *(row["traceback"].splitlines() if verbose else ())]:
            print(f"    {line}")
    return 0


def _state_word(row: dict[str, Any]) -> str:
    """A state worth a word of its own, else whether the plugin is meant to run."""
    if row["phase"] == "manifest":
        return "failed"
    if row["enabled"] and row["state"] in {"failed", "incompatible", "blocked", "needs_config"}:
        return "needs settings" if row["state"] == "needs_config" else str(row["state"])
    return "enabled" if row["enabled"] else "disabled"


def _row(plugin: Discovered, stored: dict[str, Stored], bundled: frozenset[str]) -> dict[str, Any]:
    nothing: Stored = (plugin.distribution in bundled, "discovered", None)
    enabled, state, failure = stored.get(plugin.id, nothing)
    if plugin.error:  # of what is installed now
        state, failure = "failed", Failure("manifest", plugin.error)
    elif failure is not None and failure.phase == "manifest":  # it was mended since
        failure = None
    return {
        "id": plugin.id,
        "version": plugin.version,
        "distribution": plugin.distribution,
        "title": plugin.manifest.title if plugin.manifest else "",
        "enabled": enabled,
        "state": state,
        "bundled": plugin.distribution in bundled,
        "phase": failure.phase if failure is not None else "",
        "error": failure.message if failure is not None else "",
        "traceback": failure.traceback if failure is not None else "",
    }


async def _store(data_dir: Path, plugin_id: str, *, enabled: bool) -> int:
    from skald_core.db import schema
    from skald_core.db.migrations import apply_migrations
    from skald_core.loop.database import Database
    from skald_core.plugins.lifecycle import set_enabled_offline

    (data_dir / "database").mkdir(parents=True, exist_ok=True, mode=0o700)
    database = await Database.open(data_dir / "database" / "system.db", readers=1)
    try:
        await apply_migrations(database, "kernel", schema.REGISTRY)
        await database.write(lambda c: set_enabled_offline(c, plugin_id, enabled))
    finally:
        await database.close()
    print(
        f"{plugin_id} is {'enabled' if enabled else 'disabled'}; it takes effect when the server starts.",
        file=sys.stderr,
    )
    return 0
