"""Taking one plugin through its phases: manifest → compatibility → import → register → migrate → start, and back."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from skald_core.db.migrations import DatabaseNewer
from skald_core.loop.database import Connection, Database
from skald_core.plugins.collect import check_texts, collect
from skald_core.plugins.conformity import manifest_mismatches
from skald_core.plugins.context import Host, PluginContext
from skald_core.plugins.contributed import Contributed, PluginContributions
from skald_core.plugins.contributions import Capability, Schema
from skald_core.plugins.dispatcher import Dispatcher, describe
from skald_core.plugins.manifest import Manifest
from skald_core.plugins.phases import LoadingMark, PhaseError, in_thread, interrupted_after
from skald_core.plugins.schema import apply_schema, remember_tables
from skald_core.plugins.settings_form import SettingsForm
from skald_core.plugins.settings_store import SettingsAhead, SettingsStore
from skald_core.plugins.state import Failure, Phase, PluginRow

__all__ = ("BuildRoutes", "Limits", "Loader", "NeedsConfig", "no_app", "no_roles")

log = logging.getLogger("skald.plugins")

BuildRoutes = Callable[[str, Sequence[Any]], Any]
"""Makes an ASGI application of a plugin's handlers; None when there are none."""

UNDO_SECONDS = 10.0


class NeedsConfig(Exception):
    """The plugin cannot start before somebody fills in ``fields``."""

    def __init__(self, fields: Sequence[str]) -> None:
        super().__init__(", ".join(fields))
        self.fields = list(fields)


class Limits:
    """Seconds: when a phase is warned about, and when it is given up."""

    def __init__(self, slow: float = 10.0, give_up: float = 60.0) -> None:
        self.slow = slow
        self.give_up = give_up


def no_app(plugin_id: str, routes: Sequence[Any]) -> Any:
    return None


async def no_roles(plugin_id: str, capabilities: Sequence[Capability]) -> None:
    return None


class Loader:
    """``learn_capabilities`` gives rights seen for the first time to the roles they name."""

    def __init__(
        self,
        *,
        api_version: str,
        database: Database,
        dispatcher: Dispatcher,
        contributed: Contributed,
        host: Host,
        mark: LoadingMark,
        limits: Limits,
        build_routes: BuildRoutes = no_app,
        learn_capabilities: Callable[[str, Sequence[Capability]], Awaitable[None]] = no_roles,
    ) -> None:
        self._api_version = api_version
        self._db = database
        self._dispatcher = dispatcher
        self._contributed = contributed
        self._host = host
        self._mark = mark
        self._limits = limits
        self._build_routes = build_routes
        self._learn_capabilities = learn_capabilities
        self._settings = SettingsStore(database, "registry")
        self._tables: dict[tuple[str, str], frozenset[str]] = {}
        self.contexts: dict[str, PluginContext] = {}

    async def read_ahead(self) -> None:
        """Read the settings of all plugins at once, for a boot; until ``forget_ahead``."""
        await self._settings.read_ahead()

    def forget_ahead(self) -> None:
        self._settings.forget_ahead()

    async def load_tables(self) -> None:
        """Read which tables plugins are remembered to have."""
        rows = await self._db.read(lambda c: c.execute("SELECT plugin_id, bucket, name FROM plugin_tables").fetchall())
        found: dict[tuple[str, str], set[str]] = {}
        for plugin_id, bucket, name in rows:
            found.setdefault((plugin_id, bucket), set()).add(name)
        self._tables = {key: frozenset(names) for key, names in found.items()}

    # -- up --------------------------------------------------------------------------------------------------------

    async def start(self, row: PluginRow, *, build_routes: bool = True) -> None:
        """Raises PhaseError, or NeedsConfig; the caller undoes what was done. Without ``build_routes`` they are left to
        :meth:`app`: at the start of the server they can wait until it listens."""
        manifest = row.found.manifest
        if manifest is None:
            raise PhaseError.because("manifest", "ManifestError", row.found.error)
        if not manifest.accepts(self._api_version):
            raise PhaseError.because(
                "compatibility",
                "Incompatible",
                f"made for kernel API {manifest.api}, this is {self._api_version}; install a version of "
                f"{row.found.distribution!r} that fits",
            )
        with self._mark.loading(row.id):
            await self._phases(row, manifest, build_routes=build_routes)

    async def _phases(self, row: PluginRow, manifest: Manifest, *, build_routes: bool) -> None:
        module = await self._import(row)
        self._mark.imported(row.id)
        context = PluginContext(
            self._host, row.id, row.running_version or row.found.version, row.found.package_dir or Path()
        )
        self.contexts[row.id] = context
        try:
            self._dispatcher.bind(row.id, module, context)
        except Exception as error:  # noqa: BLE001 -- whatever a plugin's signatures make pluggy raise
            raise PhaseError("register", describe(error)) from None
        await self._configure(row, context)
        brought = await self._register(row, build_routes=build_routes)
        await self._migrate(row, brought)
        await self._learn_capabilities(row.id, brought.capabilities)
        self._contributed.add(row.id, brought)
        row.problems += manifest_mismatches(manifest, brought, self._dispatcher.hooks_of(row.id))
        await self._ask("start", row, "skald_startup")

    async def _import(self, row: PluginRow) -> Any:
        module_name, _, attribute = row.found.module.partition(":")
        fresh = module_name not in sys.modules
        began = time.perf_counter()
        try:
            module = await in_thread(lambda: importlib.import_module(module_name), self._limits.give_up)
            return getattr(module, attribute) if attribute else module
        except TimeoutError:
            raise PhaseError.because(
                "import",
                "TimeoutError",
                f"importing it took more than {self._limits.give_up:g} s; it was given up, but may go on in the "
                "background until the server is restarted",
            ) from None
        except Exception as error:  # noqa: BLE001 -- importing runs a stranger's code
            raise PhaseError("import", describe(error.__cause__ or error)) from None
        finally:
            row.import_ms = (time.perf_counter() - began) * 1000
            if module_name in sys.modules:
                row.running_version = row.found.version if fresh or not row.imported else row.running_version
                row.imported = True

    async def _configure(self, row: PluginRow, context: PluginContext) -> None:
        """Read the settings, and the texts their form is shown with. Raises NeedsConfig while something without a default is
        not set."""
        row.form = await self._form(row, "skald_config", user=False)
        row.user_form = await self._form(row, "skald_user_config", user=True)
        texts = await self._ask("register", row, "skald_i18n")
        try:
            self._contributed.add_texts(row.id, check_texts(texts))
        except TypeError as error:
            raise PhaseError("register", describe(error)) from None
        if row.form is None:
            return
        try:
            loaded = await self._settings.load(row.id, row.form, writer=context.version)
        except SettingsAhead as error:
            raise PhaseError.because("migrate", "SettingsAhead", error.detail) from None
        for aside in loaded.aside:
            row.problems.append(
                f"stored settings of version {aside.version} could not be used and are kept aside "
                f"({', '.join(sorted(aside.values))}: {aside.reason}); save the settings again"
            )
        if loaded.found.instance is None:
            raise NeedsConfig(loaded.found.missing)
        context.config = loaded.found.instance

    async def _form(self, row: PluginRow, hook: str, *, user: bool) -> SettingsForm | None:
        declared = await self._ask("register", row, hook)
        if declared is None:
            return None
        try:
            return SettingsForm(declared, hook, user=user)
        except Exception as error:  # noqa: BLE001 -- a plugin's own class: its annotations can raise anything
            raise PhaseError("register", describe(error)) from None

    async def _register(self, row: PluginRow, *, build_routes: bool) -> PluginContributions:
        async def ask(hook: str) -> Any:
            return await self._ask("register", row, hook)

        try:
            brought = await collect(row.id, ask)
        except (TypeError, ValueError) as error:
            raise PhaseError("register", describe(error)) from None
        if build_routes:
            self._build(row.id, brought)
        return brought

    def _build(self, plugin_id: str, brought: PluginContributions) -> None:
        try:
            brought.app = self._build_routes(plugin_id, brought.routes)
        except Exception as error:  # noqa: BLE001 -- a bad annotation can raise anything while the routes are built
            raise PhaseError("register", describe(error)) from None

    def app(self, plugin_id: str) -> Any:
        """The application of a plugin's routes, built now if that was left; None without routes. Raises PhaseError."""
        brought = self._contributed.of(plugin_id)
        if brought is None:
            return None
        if brought.app is None and brought.routes:
            self._build(plugin_id, brought)
        return brought.app

    async def _ask(self, phase: Phase, row: PluginRow, hook: str) -> Any:
        limits = self._limits

        def warn() -> None:
            log.warning("plugin %s: %s blocks the server since %g s", row.id, hook, limits.slow)

        def guard(function: Callable[[Any], Any], argument: Any) -> Any:
            with interrupted_after(limits.give_up, limits.slow, warn):
                return function(argument)

        outcome = await self._dispatcher.one(hook, row.id, timeout=limits.give_up, guard=guard)
        if outcome is None:
            return None
        if outcome.error is not None:
            raise PhaseError(phase, outcome.error)
        return outcome.value

    # -- tables ----------------------------------------------------------------------------------------------------

    async def _migrate(self, row: PluginRow, brought: PluginContributions) -> None:
        for schema in brought.schemas:
            if schema.bucket == "registry":
                try:
                    await self._apply(self._db, row, schema)
                except DatabaseNewer as error:
                    raise PhaseError.because("migrate", "DatabaseNewer", error.detail) from None
                except Exception as error:  # noqa: BLE001 -- SQL from the plugin; rolled back
                    raise PhaseError("migrate", describe(error)) from None

    async def migrate_owner(self, database: Database, row: PluginRow, schema: Schema) -> Failure | None:
        """Bring one user's file up to date with one plugin; the failure, if it could not be."""
        try:
            await self._apply(database, row, schema)
        except Exception as error:  # noqa: BLE001 -- SQL from the plugin; rolled back
            failure = describe(error)
            log.warning("plugin %s: owner migration failed: %s", row.id, failure.message)
            return Failure("migrate", failure.message, failure.traceback)
        return None

    async def _apply(self, database: Database, row: PluginRow, schema: Schema) -> None:
        key = (row.id, schema.bucket)
        known = self._tables.get(key, frozenset())
        tables, problems = await apply_schema(
            database,
            row.id,
            schema.bucket,
            schema.migrations,
            known=known,
            writer=f"{row.found.distribution} {row.running_version or row.found.version}".strip(),
            give_up=self._limits.give_up,
        )
        row.problems += [text for text in problems if text not in row.problems]
        if set(tables) != known:

            def remember(c: Connection) -> None:
                remember_tables(c, row.id, schema.bucket, tables)

            await self._db.write(remember)
            self._tables[key] = frozenset(tables)

    # -- down ------------------------------------------------------------------------------------------------------

    async def stop(self, row: PluginRow) -> None:
        """Ask the plugin to end, then undo everything it registered."""
        try:
            await self._ask("stop", row, "skald_shutdown")
        except PhaseError as error:
            row.error = error.failure
        await self.undo(row.id)

    async def undo(self, plugin_id: str) -> None:
        """Take back, last first, what a plugin registered. Each step is guarded."""
        self._contributed.remove(plugin_id)
        context = self.contexts.pop(plugin_id, None)
        self._dispatcher.unbind(plugin_id)
        for undo in reversed(context._disposers if context else []):
            try:
                result = undo()
                if inspect.isawaitable(result):
                    async with asyncio.timeout(UNDO_SECONDS):
                        await result
            except (Exception, SystemExit) as error:  # noqa: BLE001 -- the plugin's code; it must not stop the next
                log.warning("plugin %s: undoing a registration failed: %s", plugin_id, error or type(error).__name__)
