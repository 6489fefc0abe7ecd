"""``skald plugin install|upgrade|uninstall|purge|lock``: the same job runner as the page, with a server or without one.

A running server does the work itself, as one of its administrators. Without one this process does it, holding the data
directory so that no server starts meanwhile. No plugin is ever imported here; the health check has a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import getpass
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from skald_core.cli.client import EXIT_USAGE, Client, CliError
from skald_core.loop.database import Connection, Database
from skald_core.plugins.install.engine import Engine
from skald_core.plugins.install.job import Job, audit_detail, job_view
from skald_core.plugins.install.purge import PluginData, apply_purges, measure, plugin_folder
from skald_core.runtime.i18n import Texts

__all__ = ("run",)

POLL_SECONDS = 0.2


def run(args: argparse.Namespace, data_dir: Path, *, server_runs: bool) -> int:
    """0 done, 1 refused, failed or not wanted, 2 wrong use; further ones when the server does not let in (docs/cli.md)."""
    if args.act == "lock":
        return asyncio.run(_lock(data_dir, write=not args.print_only))
    if args.act == "install" and bool(args.requirement) == args.from_lock:
        raise CliError("name a plugin, or give --from-lock", EXIT_USAGE)
    return asyncio.run(_over_http(args) if server_runs else _here(args, data_dir))


def _body(args: argparse.Namespace) -> dict[str, str]:
    """What is asked for, as the plan's request says it."""
    if args.act == "install" and args.from_lock:
        return {"act": "restore"}
    if args.act == "install":
        return {"act": "install", "requirement": args.requirement}
    if args.act == "upgrade":
        from skald_core.plugins.discovery import discover

        known = {plugin.id for plugin in discover()}
        key = "plugin" if args.requirement in known else "requirement"
        return {"act": "upgrade", key: args.requirement}
    return {"act": args.act, "plugin": args.plugin}


# -- what a person sees ------------------------------------------------------------------------------------------------


class _Screen:
    """Prints a job's log as it grows, on standard error; what a plan changes on standard output."""

    def __init__(self) -> None:
        self._said = 0

    def follow(self, view: dict[str, Any]) -> None:
        for line in view["log"][self._said :]:
            print(f"  {line}", file=sys.stderr, flush=True)
        self._said = len(view["log"])

    def plan(self, view: dict[str, Any]) -> None:
        plan = view["plan"]
        for change in plan["changes"]:
            before, after = change["from"] or "not installed", change["to"] or "removed"
            print(f"{change['name']}: {before} → {after}")
        for what, parts in (
            ("may also", plan["capabilities"]["added"]),
            ("may no longer", plan["capabilities"]["removed"]),
        ):
            if parts:
                print(f"{what}: {', '.join(parts)}")
        for word, kinds in (("adds", plan["contributes"]["added"]), ("takes away", plan["contributes"]["removed"])):
            for kind, names in sorted(kinds.items()):
                print(f"{word} {kind}: {', '.join(names)}")
        if plan["data"] is not None:
            _print_data(plan["data"])
        if plan["restart_needed"]:
            print("The server has to be restarted afterwards.")
        for warning in plan["warnings"]:
            print(f"! {warning}")


def _print_data(data: dict[str, Any]) -> None:
    for table in data["tables"]:
        rows = "some" if table["rows"] is None else table["rows"]
        whose = "the instance's" if table["bucket"] == "registry" else "people's"
        print(f"table {table['name']} ({whose}): {rows} rows")
    print(f"values: {data['values']}, secrets: {data['secrets']}, bytes of files: {data['files']}")


async def _agreed(args: argparse.Namespace) -> bool:
    if args.yes:
        return True
    if not sys.stdin.isatty():
        raise CliError("there is no terminal to ask in; give --yes to go on without a question", EXIT_USAGE)
    answer = await asyncio.to_thread(input, "Go on? [y/N] ")
    return answer.strip().lower() in {"y", "yes"}


def _settled(view: dict[str, Any]) -> None:
    """Raises CliError unless the job ended well."""
    if view["state"] == "done":
        return
    said = view.get("error", {}).get("message", view["state"])
    tail = " Everything was put back." if view["state"] == "rolled_back" else ""
    raise CliError(said + tail)


async def _both(
    args: argparse.Namespace,
    make: Callable[[], Awaitable[dict[str, Any]]],
    carry_out: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]],
) -> int:
    """A plan, the question, the job."""
    screen = _Screen()
    planned = await make()
    _settled(planned)
    screen.plan(planned)
    if planned.get("command"):
        print(f"This environment is not changed from here. Run:\n  {planned['command']}")
        return 1
    if not await _agreed(args):
        print("Nothing was changed.", file=sys.stderr)
        return 1
    done = await carry_out(planned)
    _settled(done)
    if args.act == "install" and not args.from_lock:
        print(f"Installed. It is off until you enable it: skald plugin enable {done['plugin']}", file=sys.stderr)
    return 0


# -- with a server -----------------------------------------------------------------------------------------------------


async def _over_http(args: argparse.Namespace) -> int:
    body = _body(args)
    client = await Client.sign_in(args.url, args.user)

    async def followed(view: dict[str, Any]) -> dict[str, Any]:
        screen = _Screen()
        while True:
            screen.follow(view)
            if view["state"] != "running":
                return view
            await asyncio.sleep(POLL_SECONDS)
            view = await client.call("GET", f"/api/plugins/jobs/{view['id']}")

    async def make() -> dict[str, Any]:
        return await followed(await client.call("POST", "/api/plugins/plans", body))

    async def carry_out(planned: dict[str, Any]) -> dict[str, Any]:
        password = os.environ.get("SKALD_PASSWORD")
        if password is None:
            if not sys.stdin.isatty():
                raise CliError("your password is needed once more: set SKALD_PASSWORD", EXIT_USAGE)
            password = await asyncio.to_thread(getpass.getpass, "Your password: ")
        started = await client.call("POST", "/api/plugins/jobs", {"plan": planned["id"], "password": password})
        return await followed(started)

    try:
        return await _both(args, make, carry_out)
    finally:
        await client.close()


# -- without one -------------------------------------------------------------------------------------------------------


class _OfflineHost:
    """Implements :class:`skald_core.plugins.install.engine.EngineHost` over files."""

    def __init__(self, data_dir: Path, database: Database, texts: Texts) -> None:
        self._data_dir = data_dir
        self._db = database
        self._texts = texts
        self._screens: dict[str, _Screen] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    def imported(self, modules: frozenset[str]) -> bool:
        return False

    async def enabled(self) -> frozenset[str]:
        rows = await self._db.read(lambda c: c.execute("SELECT id FROM plugins WHERE enabled=1").fetchall())
        return frozenset(row[0] for row in rows)

    async def disable(self, plugin_id: str) -> None:
        from skald_core.plugins.state import set_enabled_offline

        await self._db.write(lambda c: set_enabled_offline(c, plugin_id, False))

    async def refresh(self) -> None:
        """The next start of the server looks for itself."""

    async def data_of(self, plugin_id: str) -> PluginData:
        async with self._owners() as (opened, locked):
            return await measure(self._db, plugin_id, plugin_folder(self._data_dir, plugin_id), opened, locked=locked)

    async def purge_owners(self) -> None:
        async with self._owners() as (opened, _):
            for database in opened:
                await apply_purges(self._db, database)

    @contextlib.asynccontextmanager
    async def _owners(self) -> AsyncIterator[tuple[list[Database], bool]]:
        """The databases that need no password, and whether there are others."""
        people = await self._db.read(lambda c: c.execute("SELECT id, encrypted FROM users").fetchall())
        opened: list[Database] = []
        try:
            for user_id, encrypted in people:
                path = self._data_dir / "database" / f"{user_id}.db"
                if not encrypted and await asyncio.to_thread(path.is_file):
                    opened.append(await Database.open(path, readers=1))
            yield opened, any(encrypted for _, encrypted in people)
        finally:
            for database in opened:
                await database.close()

    async def fetch(self, url: str) -> bytes:
        from skald_core.runtime import http

        async with http.client(allow_private=False) as client:
            answer = await client.get(url)
            answer.raise_for_status()
            return answer.content

    def tell(self, job: Job) -> None:
        self._screens.setdefault(job.id, _Screen()).follow(job_view(job, self._texts))

    def spawn(self, coro: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coro)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task


@contextlib.asynccontextmanager
async def _opened(data_dir: Path, *, alone: bool) -> AsyncIterator[tuple[Engine, _OfflineHost, Database]]:
    """The engine over the data directory; ``alone`` holds the directory against a server. Raises StartError."""
    from skald_core.api import API_VERSION
    from skald_core.db import schema
    from skald_core.db.migrations import apply_migrations
    from skald_core.plugins.discovery import bundled_names
    from skald_core.plugins.install.startup import needs_settling, recover_environment
    from skald_core.runtime.claim import claim

    with contextlib.ExitStack() as held:
        if alone:
            held.enter_context(claim(data_dir))
            await asyncio.to_thread(recover_environment)
        (data_dir / "database").mkdir(parents=True, exist_ok=True, mode=0o700)
        database = await Database.open(data_dir / "database" / "system.db", readers=1)
        try:
            await apply_migrations(database, "kernel", schema.REGISTRY)
            host = _OfflineHost(data_dir, database, Texts())
            engine = Engine(data_dir, database, host, api_version=API_VERSION, bundled=bundled_names)
            if alone and await needs_settling(database):
                await engine.settle()
            yield engine, host, database
        finally:
            await database.close()


async def _here(args: argparse.Namespace, data_dir: Path) -> int:
    body = _body(args)
    actor = f"cli:{getpass.getuser()}"
    async with _opened(data_dir, alone=True) as (engine, host, database):

        async def ended(job: Job) -> dict[str, Any]:
            await asyncio.gather(*host.tasks)
            return job_view(job, Texts())

        async def make() -> dict[str, Any]:
            job = await engine.plan(
                body["act"],  # type: ignore[arg-type]  # one of the acts, from the parser
                requirement=body.get("requirement", ""),
                plugin=body.get("plugin", ""),
                actor=actor,
            )
            return await ended(job)

        async def carry_out(planned: dict[str, Any]) -> dict[str, Any]:
            plan = (await engine.get(planned["id"])).plan
            assert plan is not None
            target, detail = planned["plugin"] or planned["requirement"], audit_detail(plan)
            await database.write(lambda c: _audit(c, actor, f"plugin.{plan.act}", target, detail))
            return await ended(await engine.run(planned["id"], actor=actor))

        return await _both(args, make, carry_out)


def _audit(c: Connection, actor: str, action: str, target: str, detail: str) -> None:
    c.execute(
        "INSERT INTO audit_log(at,actor,action,target,detail) VALUES(unixepoch('subsec'),?,?,?,?)",
        (actor, action, target[:200], detail[:1000]),
    )


async def _lock(data_dir: Path, *, write: bool) -> int:
    from skald_core.plugins.install.lockfile import write_lock

    async with _opened(data_dir, alone=False) as (engine, _, _):
        lock = await engine.current_lock()
    if write:
        await asyncio.to_thread(write_lock, data_dir, lock)
    print(msgspec.json.format(msgspec.json.encode(lock), indent=2).decode())
    return 0
