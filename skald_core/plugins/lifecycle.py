"""The life of plugins: states, phases, and the guard around each.

Phases are manifest → compatibility → import → register → migrate → start → stop. A plugin that fails one is shown with the
phase, the message and the traceback; the server and the other plugins go on.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from skald_core.db.migrations import apply_migrations
from skald_core.errors import Conflict, NotFound
from skald_core.loop.database import Connection, Database
from skald_core.loop.tools import Tool
from skald_core.plugins.context import Host, PluginContext
from skald_core.plugins.contributed import Contributed, PluginContributions
from skald_core.plugins.contributions import ProviderType, Schema, Service, WebPage
from skald_core.plugins.discovery import Discovered
from skald_core.plugins.dispatcher import Dispatcher, HookFailure, Outcome, describe

__all__ = ("Failure", "Phase", "PluginRow", "Plugins", "State")

log = logging.getLogger("skald.plugins")
T = TypeVar("T")

State = Literal[
    "discovered", "incompatible", "blocked", "disabled", "needs_config", "starting", "running", "failed", "stopped"
]
Phase = Literal["manifest", "compatibility", "import", "register", "migrate", "start", "stop", "run"]

SLOW_SECONDS = 10.0
GIVE_UP_SECONDS = 60.0


class Failure(msgspec.Struct, frozen=True):
    """Why a plugin is not running, or what went wrong last."""

    phase: Phase
    message: str
    traceback: str = ""


class PluginRow(msgspec.Struct):
    """A plugin as the catalog shows it. ``imported`` means its code was loaded since the server started."""

    found: Discovered
    enabled: bool = False
    bundled: bool = False
    state: State = "discovered"
    error: Failure | None = None
    problems: list[str] = []
    imported: bool = False
    import_ms: float = 0.0
    start_ms: float = 0.0
    config_schema: dict[str, Any] | None = None

    @property
    def id(self) -> str:
        return self.found.id


class _PhaseError(Exception):
    """A phase failed; carries what the catalog shows."""

    def __init__(self, phase: Phase, failure: HookFailure) -> None:
        super().__init__(failure.message)
        self.failure = Failure(phase, failure.message, failure.traceback)


async def _in_thread(work: Callable[[], T], timeout: float) -> T:
    """Run ``work`` on a daemon thread, so that one that never returns cannot hold the process's end."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if not future.done():
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

    def run() -> None:
        try:
            value, error = work(), None
        except (Exception, SystemExit) as caught:  # noqa: BLE001 -- the plugin boundary, re-raised in the waiter
            # A future cannot carry StopIteration, nor should SystemExit end the loop.
            value, error = None, RuntimeError(f"{type(caught).__name__}: {caught}").with_traceback(caught.__traceback__)
            error.__cause__ = caught
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=run, name="plugin-import", daemon=True).start()
    async with asyncio.timeout(timeout):
        return await future


class Plugins:
    """Loads, enables, disables and lists plugins.

    ``changed`` is awaited after any plugin started or stopped, before the caller gets its answer: the server swaps routes in
    it, and open databases get the plugin's tables.
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
        trial_routes: Callable[[str, Sequence[Any]], None] = lambda plugin_id, routes: None,
    ) -> None:
        self._api_version = api_version
        self._db = database
        self._loading_file = data_dir / "plugins.loading"
        self.dispatcher = dispatcher
        self._host = host
        self._bundled = bundled
        self._strict = strict
        self._only = only
        self._trial_routes = trial_routes
        self.rows: dict[str, PluginRow] = {}
        self.contributed = Contributed()
        self._contexts: dict[str, PluginContext] = {}
        self._lock = asyncio.Lock()
        self._booting = False
        self.changed: Callable[[str], Awaitable[None]] = _nothing
        dispatcher.on_failure = self._hook_failed

    # -- boot ------------------------------------------------------------------------------------------------------

    async def boot(self, found: Iterable[Discovered]) -> None:
        """Record every discovered plugin and start the enabled ones."""
        stored = await self._stored()
        died = await self._died_loading()
        now = time.time()
        fresh: list[tuple[Any, ...]] = []
        for plugin in found:
            if plugin.id in self.rows:  # two distributions with one id: the error names both
                continue
            row = PluginRow(plugin, bundled=plugin.distribution in self._bundled)
            known = stored.get(plugin.id)
            row.enabled = row.bundled if known is None else known[0]
            row.state = "discovered"
            self.rows[plugin.id] = row
            fresh.append((plugin.id, int(row.enabled), plugin.distribution, plugin.version, now, now))
            if plugin.error:
                row.state, row.error = "failed", Failure("manifest", plugin.error)
            elif self._only is not None and plugin.id not in self._only:
                row.state = "stopped"
                row.problems.append("safe mode: SKALD_PLUGINS leaves this plugin out")
            elif plugin.id == died:
                row.enabled = False
                row.state = "disabled"
                row.error = Failure(
                    "import",
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
            if died is not None:
                c.execute("UPDATE plugins SET enabled=0 WHERE id=?", (died,))

        await self._db.write(remember)
        self._booting = True
        for plugin_id in self._order([r for r in self.rows.values() if r.enabled and r.state == "discovered"]):
            await self._start(self.rows[plugin_id])
        self._booting = False

    async def _stored(self) -> dict[str, tuple[bool, str]]:
        rows = await self._db.read(lambda c: c.execute("SELECT id, enabled, config FROM plugins").fetchall())
        return {row[0]: (bool(row[1]), row[2]) for row in rows}

    async def _died_loading(self) -> str | None:
        try:
            died = self._loading_file.read_text().strip() or None
        except FileNotFoundError:
            return None
        self._loading_file.unlink(missing_ok=True)
        return died

    def _order(self, rows: list[PluginRow]) -> list[str]:
        """Ids by declared before/after, ties by id; a cycle is shown as a problem and ignored."""
        ids = {row.id for row in rows}
        graph: dict[str, set[str]] = {plugin_id: set() for plugin_id in sorted(ids)}
        for row in rows:
            manifest = row.found.manifest
            if manifest is None:
                continue
            graph[row.id] |= set(manifest.after) & ids
            for later in set(manifest.before) & ids:
                graph[later].add(row.id)
        try:
            sorter = TopologicalSorter(graph)
            sorter.prepare()
        except CycleError as error:
            cycle = [str(node) for node in error.args[1]]
            for plugin_id in dict.fromkeys(cycle):
                self.rows[plugin_id].problems.append(
                    f"load order is a circle: {' → '.join(cycle)}; started by name instead"
                )
            return sorted(ids)
        order: list[str] = []
        while sorter.is_active():
            ready = sorted(sorter.get_ready())
            order += ready
            sorter.done(*ready)
        return order

    # -- start and stop --------------------------------------------------------------------------------------------

    async def _start(self, row: PluginRow) -> None:
        row.state = "starting"
        row.error = None
        row.problems = [p for p in row.problems if p.startswith("load order")]
        began = time.perf_counter()
        slow = asyncio.get_running_loop().call_later(
            SLOW_SECONDS, log.warning, "plugin %s takes more than %g s to start", row.id, SLOW_SECONDS
        )
        try:
            await self._phases(row)
        except _PhaseError as error:
            await self._undo(row.id)
            row.state = "incompatible" if error.failure.phase == "compatibility" else "failed"
            row.error = error.failure
            log.warning("plugin %s: %s failed: %s", row.id, error.failure.phase, error.failure.message)
            if self._strict:
                raise RuntimeError(
                    f"plugin {row.id!r} failed in {error.failure.phase}: {error.failure.message}"
                ) from error
        else:
            row.state = "running"
        finally:
            slow.cancel()
            row.start_ms = (time.perf_counter() - began) * 1000 - row.import_ms
            await self._remember(row)

    async def _remember(self, row: PluginRow) -> None:
        """Keep the state, so that the command line can tell it without a server and without loading the plugin."""
        error = "" if row.error is None else msgspec.json.encode(row.error).decode()
        values = (row.state, error, row.id)
        await self._db.write(lambda c: c.execute("UPDATE plugins SET state=?, error=? WHERE id=?", values))

    async def _phases(self, row: PluginRow) -> None:
        manifest = row.found.manifest
        if manifest is None:
            raise _PhaseError("manifest", HookFailure("ManifestError", row.found.error, ""))
        if not manifest.accepts(self._api_version):
            raise _PhaseError(
                "compatibility",
                HookFailure(
                    "Incompatible",
                    f"made for kernel API {manifest.api}, this is {self._api_version}; install a version of "
                    f"{row.found.distribution!r} that fits",
                    "",
                ),
            )
        module = await self._import(row)
        context = PluginContext(self._host, row.id, row.found.version, row.found.package_dir or Path())
        self._contexts[row.id] = context
        try:
            self.dispatcher.bind(row.id, module, context)
        except Exception as error:  # noqa: BLE001 -- whatever a plugin's signatures make pluggy raise
            raise _PhaseError("register", describe(error)) from None
        brought = await self._collect(row, context)
        await self._migrate(row, brought.schemas)
        self.contributed.add(row.id, brought)
        row.problems += brought.problems
        row.problems += _manifest_mismatches(row, brought)
        await self._phase_call("start", row.id, "skald_startup")

    async def _import(self, row: PluginRow) -> Any:
        module_name, _, attribute = row.found.module.partition(":")
        if not row.imported:
            self._loading_file.write_text(row.id)
        began = time.perf_counter()
        try:
            module = await _in_thread(lambda: importlib.import_module(module_name), GIVE_UP_SECONDS)
            return getattr(module, attribute) if attribute else module
        except TimeoutError:
            raise _PhaseError(
                "import", HookFailure("TimeoutError", f"importing it took more than {GIVE_UP_SECONDS:g} s", "")
            ) from None
        except Exception as error:  # noqa: BLE001 -- importing runs a stranger's code
            raise _PhaseError("import", describe(error.__cause__ or error)) from None
        finally:
            row.import_ms = (time.perf_counter() - began) * 1000
            row.imported = row.imported or module_name in sys.modules
            self._loading_file.unlink(missing_ok=True)

    async def _collect(self, row: PluginRow, context: PluginContext) -> PluginContributions:
        """Ask for every declaration, checking types as they come."""
        brought = PluginContributions()
        config_type = await self._phase_call("register", row.id, "skald_config")
        if config_type is not None:
            await self._load_config(row, context, config_type)
        brought.schemas = await self._declared(row.id, "skald_schema", Schema)
        brought.services = await self._declared(row.id, "skald_services", Service)
        brought.tools = await self._declared(row.id, "skald_tools", Tool)
        brought.providers = await self._declared(row.id, "skald_llm_providers", ProviderType)  # type: ignore[type-abstract]  # only isinstance
        brought.pages = await self._declared(row.id, "skald_web_pages", WebPage)
        routes = await self._phase_call("register", row.id, "skald_routes")
        if routes:
            if not self._booting:
                self._try_routes(row.id, list(routes))
            brought.routes = list(routes)
        texts = await self._phase_call("register", row.id, "skald_i18n")
        if texts is not None:
            try:
                brought.i18n = msgspec.convert(texts, dict[str, dict[str, str]])
            except msgspec.ValidationError as error:
                raise _PhaseError("register", HookFailure("TypeError", f"skald_i18n: {error}", "")) from None
        return brought

    def _try_routes(self, plugin_id: str, routes: Sequence[Any]) -> None:
        try:
            self._trial_routes(plugin_id, routes)
        except Exception as error:  # noqa: BLE001 -- a bad annotation can raise anything while the app is built
            raise _PhaseError("register", describe(error)) from None

    async def drop_bad_routes(self) -> None:
        """Build every plugin's routes by themselves; a plugin whose routes cannot be built fails.

        At boot all routes are built once, together, since a trial for each costs more than the rest of a plugin's start;
        this is for when that failed.
        """
        for plugin_id, routes in self.contributed.routes().items():
            try:
                self._try_routes(plugin_id, routes)
            except _PhaseError as error:
                row = self.rows[plugin_id]
                await self._stop(row)
                row.state, row.error = "failed", error.failure
                log.warning("plugin %s: its routes cannot be built: %s", plugin_id, error.failure.message)
                if self._strict:
                    raise RuntimeError(f"plugin {plugin_id!r} failed in register: {error.failure.message}") from error

    async def _declared(self, plugin_id: str, hook: str, kind: type[T]) -> list[T]:
        value = await self._phase_call("register", plugin_id, hook)
        if value is None:
            return []
        if not isinstance(value, list | tuple) or not all(isinstance(item, kind) for item in value):
            raise _PhaseError(
                "register",
                HookFailure(
                    "TypeError", f"{hook} must return a list of {kind.__name__}, it returned {type(value).__name__}", ""
                ),
            )
        return list(value)

    async def _phase_call(self, phase: Phase, plugin_id: str, hook: str) -> Any:
        outcome: Outcome | None = await self.dispatcher.one(hook, plugin_id, timeout=GIVE_UP_SECONDS)
        if outcome is None:
            return None
        if outcome.error is not None:
            raise _PhaseError(phase, outcome.error)
        return outcome.value

    async def _load_config(self, row: PluginRow, context: PluginContext, kind: Any) -> None:
        try:
            row.config_schema = msgspec.json.schema(kind)
            stored = (await self._stored()).get(row.id)
            context.config = msgspec.json.decode(stored[1] if stored else "{}", type=kind)
        except msgspec.ValidationError as error:
            row.problems.append(f"stored settings do not fit ({error}); defaults are used until they are saved again")
            context.config = kind()
        except Exception as error:  # noqa: BLE001 -- a plugin's own class
            raise _PhaseError("register", describe(error)) from None

    async def _migrate(self, row: PluginRow, schemas: Sequence[Schema]) -> None:
        for schema in schemas:
            if schema.bucket == "registry":
                try:
                    await apply_plugin_schema(self._db, row, schema)
                except Exception as error:  # noqa: BLE001 -- SQL from the plugin; rolled back
                    raise _PhaseError("migrate", describe(error)) from None

    async def migrate_owner(self, database: Database) -> None:
        """Bring one owner's file up to date with every running plugin. A plugin whose step fails is shown as failed; the
        file stays usable for the others."""
        for plugin_id, schema in self.contributed.schemas("owner"):
            row = self.rows[plugin_id]
            try:
                await apply_plugin_schema(database, row, schema)
            except Exception as error:  # noqa: BLE001 -- SQL from the plugin; rolled back
                failure = describe(error)
                row.error = Failure("migrate", failure.message, failure.traceback)
                row.problems.append(f"its tables could not be made for one user: {failure.message}")
                log.warning("plugin %s: owner migration failed: %s", plugin_id, failure.message)

    async def _undo(self, plugin_id: str) -> None:
        self.contributed.remove(plugin_id)
        context = self._contexts.pop(plugin_id, None)
        self.dispatcher.unbind(plugin_id)
        for undo in reversed(context._disposers if context else []):
            try:
                result = undo()
                if result is not None:
                    await result
            except Exception as error:  # noqa: BLE001 -- each undo is the plugin's code and must not stop the next
                log.warning("plugin %s: undoing a registration failed: %s", plugin_id, error)

    async def _stop(self, row: PluginRow) -> None:
        outcome = await self.dispatcher.one("skald_shutdown", row.id, timeout=GIVE_UP_SECONDS)
        if outcome is not None and outcome.error is not None:
            row.error = Failure("stop", outcome.error.message, outcome.error.traceback)
        await self._undo(row.id)

    async def shutdown(self) -> None:
        for row in reversed(self.rows.values()):
            if row.state == "running":
                await self._stop(row)
                row.state = "stopped"

    # -- acts of an admin ------------------------------------------------------------------------------------------

    def get(self, plugin_id: str) -> PluginRow:
        """Raises NotFound."""
        row = self.rows.get(plugin_id)
        if row is None:
            raise NotFound(f"no plugin {plugin_id!r} is installed", code="plugin_not_found")
        return row

    async def enable(self, plugin_id: str) -> PluginRow:
        async with self._lock:
            row = self.get(plugin_id)
            if row.state != "running":
                if row.found.manifest is None:
                    raise Conflict(f"{plugin_id!r} cannot be enabled: {row.found.error}", code="plugin_broken")
                await self._set_enabled(row, True)
                row.problems = [p for p in row.problems if not p.startswith("safe mode")]
                await self._start(row)
                await self.changed(plugin_id)
            return row

    async def disable(self, plugin_id: str) -> PluginRow:
        async with self._lock:
            row = self.get(plugin_id)
            was_running = row.state == "running"
            await self._set_enabled(row, False)
            if was_running:
                await self._stop(row)
            row.state = "disabled"
            await self._remember(row)
            if was_running:
                await self.changed(plugin_id)
            return row

    async def configure(self, plugin_id: str, values: dict[str, Any]) -> PluginRow:
        """Validate and store settings, then restart the plugin so that it reads them. Raises msgspec.ValidationError."""
        async with self._lock:
            row = self.get(plugin_id)
            context = self._contexts.get(plugin_id)
            if context is None or row.config_schema is None:
                raise Conflict(f"{plugin_id!r} has no settings to change while it is not running", code="no_settings")
            text = msgspec.json.encode(msgspec.convert(values, type(context.config))).decode()
            await self._db.write(lambda c: c.execute("UPDATE plugins SET config=? WHERE id=?", (text, plugin_id)))
            await self._stop(row)
            await self._start(row)
            await self.changed(plugin_id)
            return row

    def config_values(self, plugin_id: str) -> dict[str, Any]:
        context = self._contexts.get(plugin_id)
        return dict(msgspec.to_builtins(context.config)) if context is not None else {}

    async def _set_enabled(self, row: PluginRow, enabled: bool) -> None:
        row.enabled = enabled
        values = (int(enabled), time.time(), row.id)
        await self._db.write(lambda c: c.execute("UPDATE plugins SET enabled=?, changed_at=? WHERE id=?", values))

    # -- what others ask -------------------------------------------------------------------------------------------

    def visible_to(self, user_id: str) -> frozenset[str]:
        """Plugins whose hooks and tools work for this user."""
        return frozenset(row.id for row in self.rows.values() if row.state == "running")

    def could_judge(self) -> list[PluginRow]:
        """Installed plugins whose manifest says they implement the gate."""
        return [
            row
            for row in self.rows.values()
            if row.found.manifest is not None and "skald_gate" in row.found.manifest.contributes.hooks
        ]

    def judging(self) -> list[str]:
        return [
            row.id
            for row in self.rows.values()
            if row.state == "running" and "skald_gate" in self.dispatcher.hooks_of(row.id)
        ]

    def _hook_failed(self, plugin_id: str, hook: str, failure: HookFailure) -> None:
        row = self.rows.get(plugin_id)
        if row is not None and row.state == "running":
            row.error = Failure("run", f"{hook}: {failure.message}", failure.traceback)


async def _nothing(plugin_id: str) -> None:
    return None


async def apply_plugin_schema(database: Database, row: PluginRow, schema: Schema) -> None:
    prefix = row.id.replace("-", "_") + "_"
    await apply_migrations(
        database,
        f"plugin:{row.id}:{schema.bucket}",
        schema.migrations,
        prefix=prefix,
    )


def _manifest_mismatches(row: PluginRow, brought: PluginContributions) -> list[str]:
    manifest = row.found.manifest
    if manifest is None:
        return []
    said = manifest.contributes
    pairs = (
        ("tools", set(said.tools), {t.name for t in brought.tools}),
        ("pages", set(said.pages), {p.page_id for p in brought.pages}),
        ("providers", set(said.providers), {t.id for t in brought.providers}),
    )
    return [
        f"the manifest's {what} {sorted(declared)} differ from what the code registers {sorted(real)}"
        for what, declared, real in pairs
        if declared != real and not (what == "tools" and real < declared and brought.problems)
    ]


def strict_from_environment() -> bool:
    return os.environ.get("SKALD_STRICT_PLUGINS", "") == "1"


def only_from_environment() -> frozenset[str] | None:
    """``SKALD_PLUGINS`` set (also to nothing) is safe mode: only the plugins it lists start."""
    text = os.environ.get("SKALD_PLUGINS")
    return None if text is None else frozenset(part.strip() for part in text.split(",") if part.strip())


def set_enabled_offline(connection: Connection, plugin_id: str, enabled: bool) -> None:
    """What ``skald plugin enable|disable`` does without a server: no plugin code is imported."""
    now = time.time()
    connection.execute(
        "INSERT INTO plugins(id,enabled,first_seen,changed_at) VALUES(?,?,?,?) "
        "ON CONFLICT(id) DO UPDATE SET enabled=excluded.enabled, changed_at=excluded.changed_at",
        (plugin_id, int(enabled), now, now),
    )
