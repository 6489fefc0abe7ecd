"""The plugins of an instance: which there are, which run, who may use them.

Phases and their guards are in :mod:`~skald_core.plugins.loader`; a plugin that fails one is shown with the phase, the message
and the traceback, and the server and the other plugins go on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from skald_core.errors import Conflict, NotFound
from skald_core.loop.database import Connection, Database
from skald_core.plugins import deprecations
from skald_core.plugins.access import Access, Change, Grant
from skald_core.plugins.context import Host, PluginContext
from skald_core.plugins.contributed import Contributed
from skald_core.plugins.contributions import Capability
from skald_core.plugins.discovery import Discovered
from skald_core.plugins.dispatcher import Dispatcher, HookFailure
from skald_core.plugins.install.purge import apply_purges
from skald_core.plugins.loader import BuildRoutes, Limits, Loader, NeedsConfig, no_app, no_roles
from skald_core.plugins.order import start_order
from skald_core.plugins.phases import LoadingMark, PhaseError
from skald_core.plugins.state import Failure, Phase, PluginRow, State, set_enabled_offline

__all__ = (
    "Failure",
    "Limits",
    "PluginRow",
    "Plugins",
    "State",
    "only_from_environment",
    "patience_from_environment",
    "set_enabled_offline",
    "strict_from_environment",
)

log = logging.getLogger("skald.plugins")

ROUTES_AFTER_SECONDS = 1.0
"""How long after a start the routes that it left are built: whoever waits for the server to be there comes first."""

BlockReason = Callable[[Discovered], str | None]
"""Why this distribution in this version must not run, or None."""


class _Blocked(Exception):
    """The plugin must not run; the text says why."""


async def _nothing(plugin_id: str) -> None:
    return None


async def _nobody(plugin_id: str, change: Change) -> None:
    return None


def _not_blocked(found: Discovered) -> str | None:
    return None


class Plugins:
    """Loads, enables, disables and lists plugins.

    changed
        Awaited with a plugin's id after it started or stopped, before who asked for it gets an answer.
    access_changed
        Awaited with a plugin's id and the users who may use it now and did not, or the other way round, before who asked
        for it gets an answer. Tools, pages, routes, commands and agents follow by themselves.
    block_reason
        Asked before a plugin is imported; ``recheck_blocked`` asks it again of those that run.
    """

    def __init__(
        self,
        *,
        api_version: str,
        database: Database,
        data_dir: Path,
        dispatcher: Dispatcher,
        host: Host,
        bundled: frozenset[str] = frozenset(),
        strict: bool = False,
        only: frozenset[str] | None = None,
        limits: Limits | None = None,
        build_routes: BuildRoutes = no_app,
        learn_capabilities: Callable[[str, Sequence[Capability]], Awaitable[None]] = no_roles,
    ) -> None:
        self._db = database
        self._data_dir = data_dir
        self._mark = LoadingMark(data_dir / "plugins.loading")
        self.dispatcher = dispatcher
        self._bundled = bundled
        self._strict = strict
        self._only = only
        self._limits = limits or Limits()
        self.rows: dict[str, PluginRow] = {}
        self.contributed = Contributed()
        self.access = Access(database)
        self._loader = Loader(
            api_version=api_version,
            database=database,
            dispatcher=dispatcher,
            contributed=self.contributed,
            host=host,
            mark=self._mark,
            limits=self._limits,
            build_routes=build_routes,
            learn_capabilities=learn_capabilities,
        )
        self._locks: dict[str, asyncio.Lock] = {}
        self._starting: dict[str, asyncio.Task[None]] = {}  # until the plugin runs or does not
        self._begun: set[asyncio.Task[None]] = set()  # until everybody was told, too
        self._started: list[str] = []
        self._failing: set[asyncio.Task[None]] = set()
        self._withheld: dict[str, set[str]] = {}
        self._visible: dict[str, frozenset[str]] = {}
        self._visible_version = -1
        self._booting = False
        self._finishing: asyncio.Task[None] | None = None
        self._closed = False
        self.changed: Callable[[str], Awaitable[None]] = _nothing
        self.access_changed: Callable[[str, Change], Awaitable[None]] = _nobody
        self.block_reason: BlockReason = _not_blocked
        dispatcher.on_failure = self._hook_failed
        self._unlisten = deprecations.listen(self._deprecated)

    # -- boot ------------------------------------------------------------------------------------------------------

    async def boot(self, found: Iterable[Discovered]) -> None:
        """Record every discovered plugin and start the enabled ones.

        One that takes longer than the limit for a warning is left to start by itself: the server does not wait for it.
        """
        await self._loader.load_tables()
        await self._record(found, died=self._mark.leftover())
        await self.access.load()
        self._booting = True
        await self._loader.read_ahead()
        await self._start_all([r for r in self.rows.values() if r.enabled and r.state == "discovered"])
        self._booting = False
        self._loader.forget_ahead()
        await self._remember(*self.rows.values())
        self._finishing = asyncio.get_running_loop().create_task(self._finish_later(), name="build plugin routes")

    async def _finish_later(self) -> None:
        await asyncio.sleep(ROUTES_AFTER_SECONDS)
        await self._finish_routes()

    async def _finish_routes(self) -> None:
        """Build the routes that the boot left, one after the other, with everybody's requests in between. A request that
        comes first builds them itself."""
        for plugin_id in list(self._started):
            self.app(plugin_id)
            await asyncio.sleep(0)

    def app(self, plugin_id: str) -> Any:
        """The ASGI application of a running plugin's routes, or None. A plugin whose routes cannot be built fails."""
        try:
            return self._loader.app(plugin_id)
        except PhaseError as error:
            row = self.rows[plugin_id]
            task = asyncio.get_running_loop().create_task(self._fail(row, error.failure), name=f"stop plugin {row.id}")
            self._failing.add(task)
            task.add_done_callback(self._failing.discard)
            task.add_done_callback(_unraised)
            return None

    async def _fail(self, row: PluginRow, failure: Failure) -> None:
        log.warning("plugin %s: %s failed: %s", row.id, failure.phase, failure.message)
        if row.state == "running" and await self._halt(row, "failed"):
            row.error = failure
            await self._remember(row)
            await self.changed(row.id)
        if self._strict:
            raise RuntimeError(f"plugin {row.id!r} failed in {failure.phase}: {failure.message}")

    async def rescan(self, found: Iterable[Discovered]) -> None:
        """Take up what was installed, upgraded, uninstalled or purged since. New plugins are disabled unless they are
        bundled."""
        found = list(found)
        await self._loader.load_tables()
        there = {plugin.id for plugin in found}
        for row in [r for r in self.rows.values() if r.id not in there]:
            await self._halt(row, "stopped")
            if row.imported:
                row.removed = True
                row.problems = ["it was uninstalled; its code is gone at the next restart of the server"]
            else:
                del self.rows[row.id]
            self.contributed.forget_texts(row.id)
            await self.changed(row.id)
        for plugin in found:
            row_now = self.rows.get(plugin.id)
            if row_now is not None:
                row_now.found = plugin
                if row_now.removed:
                    row_now.removed, row_now.problems = False, []
                    row_now.state = "disabled"
        fresh = [plugin for plugin in found if plugin.id not in self.rows]
        await self._record(fresh, died={})
        await self._start_all([self.rows[p.id] for p in fresh if self.rows[p.id].state == "discovered"])
        await self._remember(*(self.rows[plugin.id] for plugin in fresh))
        await self.access.load()
        self.contributed.touch()
        await self.recheck_blocked()

    async def _record(self, found: Iterable[Discovered], *, died: Mapping[str, Phase]) -> None:
        """Make rows, and decide which of them are to be started: those left in the state *discovered*."""
        query = "SELECT id, enabled, default_on FROM plugins"
        stored = {row[0]: row[1:] for row in await self._db.read(lambda c: c.execute(query).fetchall())}
        now = time.time()
        fresh: list[tuple[Any, ...]] = []
        for plugin in found:
            if plugin.id in self.rows:  # two distributions with one id: the error names both
                continue
            row = PluginRow(plugin, bundled=plugin.distribution in self._bundled)
            known = stored.get(plugin.id)
            row.enabled = row.bundled if known is None else bool(known[0])
            self.rows[plugin.id] = row
            fresh.append((plugin.id, int(row.enabled), plugin.distribution, plugin.version, now, now))
            if plugin.error:
                row.state, row.error = "failed", Failure("manifest", plugin.error)
            elif self._only is not None and plugin.id not in self._only:
                row.state = "stopped"
                row.problems.append("safe mode: SKALD_PLUGINS leaves this plugin out")
            elif plugin.id in died:
                row.enabled = False
                row.state = "disabled"
                row.error = Failure(
                    died[plugin.id],
                    "the server died while loading this plugin, so it was disabled. Enable it to try again.",
                )
            elif not row.enabled:
                row.state = "disabled"

        def remember(c: Connection) -> None:
            c.executemany(
                "INSERT INTO plugins(id,enabled,distribution,version,first_seen,changed_at) VALUES(?,?,?,?,?,?) "
                "ON CONFLICT(id) DO UPDATE SET distribution=excluded.distribution, version=excluded.version",
                fresh,
            )
            c.executemany("UPDATE plugins SET enabled=0 WHERE id=?", [(plugin_id,) for plugin_id in died])

        await self._db.write(remember)

    async def _start_all(self, rows: Sequence[PluginRow]) -> None:
        order, circles = start_order([row.found for row in rows])
        for plugin_id, problem in circles.items():
            self.rows[plugin_id].problems.append(problem)
        for plugin_id in order:
            row = self.rows[plugin_id]
            task = self._begin(row)
            done, _ = await asyncio.wait({task}, timeout=self._limits.slow)
            if done:
                task.result()
            else:
                log.warning("plugin %s takes more than %g s to start", row.id, self._limits.slow)
                task.add_done_callback(_unraised)
                row.problems.append(
                    f"it takes more than {self._limits.slow:g} s to start; the server went on without it"
                )

    # -- start and stop --------------------------------------------------------------------------------------------

    def _lock(self, plugin_id: str) -> asyncio.Lock:
        return self._locks.setdefault(plugin_id, asyncio.Lock())

    def _begin(self, row: PluginRow) -> asyncio.Task[None]:
        """Start a plugin in a task of its own, so that neither a client that goes away nor the boot holds or ends it."""
        row.state = "starting"
        task = asyncio.get_running_loop().create_task(self._start(row), name=f"start plugin {row.id}")
        self._starting[row.id] = task
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)
        return task

    async def _start(self, row: PluginRow) -> None:
        async with self._lock(row.id):
            row.state = "starting"
            row.error = None
            row.problems = [p for p in row.problems if p.startswith("load order")]
            row.deprecations = []
            row.import_ms = 0.0
            began = time.perf_counter()
            failed: PhaseError | None = None
            try:
                blocked = self.block_reason(row.found)
                if blocked is not None:
                    raise _Blocked(blocked)
                await self._loader.start(row, build_routes=not self._booting)
                self._started.append(row.id)
                row.state = "running"
                row.problems = [p for p in row.problems if "to start; the server went on" not in p]
            except _Blocked as reason:
                row.state, row.error = "blocked", Failure("compatibility", str(reason))
                log.warning("plugin %s: %s", row.id, reason)
            except NeedsConfig as needs:
                await self._loader.undo(row.id)
                row.state = "needs_config"
                row.error = None
                log.info("plugin %s waits for settings: %s", row.id, needs)
            except PhaseError as error:
                await self._loader.undo(row.id)
                failed = error
                row.state = "incompatible" if error.failure.phase == "compatibility" else "failed"
                row.error = error.failure
                log.warning("plugin %s: %s failed: %s", row.id, error.failure.phase, error.failure.message)
            except BaseException:
                await self._loader.undo(row.id)
                row.state = "stopped"
                raise
            finally:
                self._starting.pop(row.id, None)
                row.start_ms = max(0.0, (time.perf_counter() - began) * 1000 - row.import_ms)
                self.contributed.touch()
            if not self._booting:
                await self._remember(row)
            await self.changed(row.id)
            if failed is not None and self._strict:
                raise RuntimeError(
                    f"plugin {row.id!r} failed in {failed.failure.phase}: {failed.failure.message}"
                ) from failed

    async def _halt(self, row: PluginRow, state: State) -> bool:
        """Bring a plugin to a stop from wherever it is; whether it was running."""
        task = self._starting.get(row.id)
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        async with self._lock(row.id):
            was_running = row.state == "running"
            row.state = state
            self.contributed.touch()  # nobody sees it any more, however long its shutdown takes
            if was_running:
                self._started.remove(row.id)
                await self._loader.stop(row)
                self._withheld.pop(row.id, None)
            return was_running

    async def _remember(self, *rows: PluginRow) -> None:
        """Keep states, so that the command line can tell them without a server and without loading a plugin."""
        values = [
            (row.state, "" if row.error is None else msgspec.json.encode(row.error).decode(), row.id) for row in rows
        ]
        if values:
            await self._db.write(lambda c: c.executemany("UPDATE plugins SET state=?, error=? WHERE id=?", values))

    async def shutdown(self) -> None:
        """Stop every plugin, the last started first. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._finishing is not None:
            self._finishing.cancel()
        if self._failing:
            await asyncio.wait(self._failing)
        for row in [self.rows[plugin_id] for plugin_id in list(self._starting)]:
            await self._halt(row, "stopped")
        for plugin_id in list(reversed(self._started)):
            await self._halt(self.rows[plugin_id], "stopped")
        self._unlisten()

    # -- acts of an admin ------------------------------------------------------------------------------------------

    def get(self, plugin_id: str) -> PluginRow:
        """Raises NotFound."""
        row = self.rows.get(plugin_id)
        if row is None:
            raise NotFound(f"no plugin {plugin_id!r} is installed", code="plugin_not_found")
        return row

    def context(self, plugin_id: str) -> PluginContext | None:
        """The context of a plugin that runs or is being started."""
        return self._loader.contexts.get(plugin_id)

    async def enable(self, plugin_id: str) -> PluginRow:
        """Start a plugin, now and at every start of the server. It may fail; the row says so."""
        row = self.get(plugin_id)
        if row.state == "running":
            return row
        if row.removed:
            raise Conflict(f"{plugin_id!r} is not installed any more", code="plugin_removed")
        if row.found.manifest is None:
            raise Conflict(f"{plugin_id!r} cannot be enabled: {row.found.error}", code="plugin_broken")
        await self._set_enabled(row, True)
        row.problems = [p for p in row.problems if not p.startswith("safe mode")]
        await self._finish(self._starting.get(plugin_id) or self._begin(row))
        return row

    async def disable(self, plugin_id: str) -> PluginRow:
        """Stop a plugin, now and for good. One that is being started is interrupted."""
        row = self.get(plugin_id)
        await self._set_enabled(row, False)
        before = row.state
        await self._halt(row, "disabled")
        await self._remember(row)
        if before != "disabled":  # also one that failed or waited for settings: every open catalog shows it
            await self.changed(plugin_id)
        return row

    async def restart(self, plugin_id: str) -> PluginRow:
        """Have a plugin read its settings: stop and start one that runs, start one that waited for them or failed."""
        row = self.get(plugin_id)
        again = row.enabled and row.state in {"needs_config", "failed"} and row.found.manifest is not None
        if await self._halt(row, "stopped") if row.state == "running" else again:
            await self._finish(self._begin(row))
        return row

    async def settled(self) -> None:
        """Wait until nothing is being started or stopped; routes that were left are built now. Strict mode raises
        RuntimeError for the first that cannot be."""
        await self._finish_routes()
        failing = set(self._failing)
        while pending := self._begun | self._failing:
            await asyncio.wait(pending)
        for task in failing:
            task.result()  # raises in strict mode only

    async def _finish(self, task: asyncio.Task[None]) -> None:
        await asyncio.wait({task})  # waiting does not cancel it, and a disable that cancels it is no error here
        if not task.cancelled():
            task.result()

    async def recheck_blocked(self) -> None:
        """Stop what runs and must not any more, and let go what was blocked and may run again."""
        for row in list(self.rows.values()):
            reason = self.block_reason(row.found)
            if reason is not None and row.state in {"running", "starting", "needs_config"}:
                await self._halt(row, "blocked")
                row.error = Failure("compatibility", reason)
                await self._remember(row)
                await self.changed(row.id)
            elif reason is None and row.state == "blocked" and row.enabled:
                await self._finish(self._begin(row))

    async def _set_enabled(self, row: PluginRow, enabled: bool) -> None:
        row.enabled = enabled
        values = (int(enabled), time.time(), row.id)
        await self._db.write(lambda c: c.execute("UPDATE plugins SET enabled=?, changed_at=? WHERE id=?", values))

    # -- access ----------------------------------------------------------------------------------------------------

    async def grants(self, plugin_id: str) -> list[Grant]:
        """Every account's access. Raises NotFound."""
        return await self.access.grants(self.get(plugin_id).id)

    async def change_access(
        self, plugin_id: str, *, default_on: bool | None = None, users: Mapping[str, bool | None] | None = None
    ) -> Change:
        """Change who may use a plugin; it holds, for everything of the plugin, when this returns. Raises NotFound."""
        change = await self.access.change(self.get(plugin_id).id, default_on=default_on, users=users)
        self.contributed.touch()
        if change.granted or change.revoked:
            await self.access_changed(plugin_id, change)
        return change

    def visible_to(self, user_id: str) -> frozenset[str]:
        """Running plugins whose hooks, tools, routes and pages work for this user."""
        if self._visible_version != self.contributed.version:
            self._visible.clear()
            self._visible_version = self.contributed.version
        found = self._visible.get(user_id)
        if found is None:
            found = self._visible[user_id] = frozenset(
                plugin_id
                for plugin_id in self._started
                if self.rows[plugin_id].state == "running"
                and self.access.allows(plugin_id, user_id)
                and user_id not in self._withheld.get(plugin_id, ())
            )
        return found

    # -- data ------------------------------------------------------------------------------------------------------

    async def migrate_owner(self, database: Database, *, only: str | None = None) -> None:
        """Bring one user's file up to date with every running plugin, or with one.

        A plugin whose step fails is shown with it and withheld from that user; the file stays usable for the others.
        """
        if only is None:
            await apply_purges(self._db, database)
        user_id = database.path.stem
        for plugin_id, schema in self.contributed.schemas("owner"):
            if only is not None and plugin_id != only:
                continue
            row = self.rows[plugin_id]
            failure = await self._loader.migrate_owner(database, row, schema)
            if failure is not None:
                row.error = failure
                row.problems.append(f"its tables could not be made for one user: {failure.message}")
                self._withheld.setdefault(plugin_id, set()).add(user_id)
                self.contributed.touch()
            elif user_id in self._withheld.get(plugin_id, ()):
                self._withheld[plugin_id].discard(user_id)
                self.contributed.touch()

    # -- what others ask -------------------------------------------------------------------------------------------

    def problems(self, row: PluginRow) -> list[str]:
        """Sentences for the admin about a plugin that runs, but not quite as it should."""
        return [*row.problems, *self.contributed.problems(row.id)]

    def could_judge(self) -> list[PluginRow]:
        """Installed plugins whose manifest says they implement the gate."""
        return [
            row
            for row in self.rows.values()
            if row.found.manifest is not None and "skald_gate" in row.found.manifest.contributes.hooks
        ]

    def judging(self) -> list[str]:
        return [plugin_id for plugin_id in self._started if "skald_gate" in self.dispatcher.hooks_of(plugin_id)]

    def task_failed(self, plugin_id: str, error: BaseException) -> None:
        """A background task of a plugin ended with an exception."""
        self._show(plugin_id, "a background task failed", str(error) or type(error).__name__, "")

    def _hook_failed(self, plugin_id: str, hook: str, failure: HookFailure) -> None:
        self._show(plugin_id, hook, failure.message, failure.traceback)

    def _show(self, plugin_id: str, what: str, message: str, traceback: str) -> None:
        row = self.rows.get(plugin_id)
        if row is not None and row.state == "running":
            row.error = Failure("run", f"{what}: {message}", traceback)

    def _deprecated(self, use: deprecations.Deprecated) -> None:
        for row in self.rows.values():
            folder = row.found.package_dir
            if folder is not None and Path(use.file).is_relative_to(folder):
                if str(use) not in row.deprecations:
                    row.deprecations.append(str(use))
                    log.warning("plugin %s: %s", row.id, use)
                return


def _unraised(task: asyncio.Task[None]) -> None:
    """Strict mode raises where somebody waits; nobody waits for a start that was left to itself."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s: %s", task.get_name(), error)


def strict_from_environment() -> bool:
    return os.environ.get("SKALD_STRICT_PLUGINS", "") == "1"


def only_from_environment() -> frozenset[str] | None:
    """``SKALD_PLUGINS`` set (also to nothing) is safe mode: only the plugins it lists start."""
    text = os.environ.get("SKALD_PLUGINS")
    return None if text is None else frozenset(part.strip() for part in text.split(",") if part.strip())


def patience_from_environment() -> float:
    """``SKALD_PLUGIN_PATIENCE``: seconds a start waits for one plugin before it goes on without it; 10 unless set."""
    try:
        return max(0.0, float(os.environ.get("SKALD_PLUGIN_PATIENCE", "10")))
    except ValueError:
        return 10.0
