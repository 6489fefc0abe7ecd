"""What one plugin can reach: its own config, storage, texts, log, tasks, and the few kernel services meant for plugins."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from skald_core.files.userfs import UserFs
from skald_core.identity.models import User
from skald_core.loop.database import Connection, Database
from skald_core.loop.types import ModelInfo

if TYPE_CHECKING:
    import httpx  # imported on first use: it is a fifth of the start-up time

__all__ = ("Host", "KeyValue", "ModelRows", "PluginContext", "Tables")

T = TypeVar("T")


class ModelRows(Protocol):
    """The part of the models table a plugin may change: rows of its own provider types."""

    async def ensure(
        self, *, type_id: str, provider_name: str, settings: dict[str, str], model: str, title: str, info: ModelInfo
    ) -> str:
        """Create or update the provider row called ``provider_name`` and a model row in it; returns the model row's id."""
        ...

    async def forget(self, *, type_id: str, provider_name: str, model: str) -> bool:
        """Remove that model row. False when there is none."""
        ...


class Host(Protocol):
    """What the kernel gives a context to stand on. Plugins never see it."""

    data_dir: Path
    system_db: Database
    models: ModelRows

    def owner_db(self, user_id: str) -> Database: ...
    def files_for(self, user: User) -> UserFs: ...
    def lookup_service(self, protocol: type[Any], user_id: str | None) -> Any | None: ...
    def translate(self, key: str, locale: str, values: dict[str, object]) -> str: ...
    def http_client(self, *, allow_private: bool) -> httpx.AsyncClient: ...
    def publish(self, user_id: str | None, event: dict[str, Any]) -> None: ...
    def spawn(self, owner: str, coro: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...
    def now(self) -> float: ...
    def new_id(self) -> str: ...


class KeyValue:
    """Small JSON values, namespaced per plugin, in system.db. Not for secrets of users."""

    def __init__(self, database: Database, namespace: str) -> None:
        self._db = database
        self._ns = namespace

    async def get(self, key: str, default: Any = None) -> Any:
        def read(c: Connection) -> Any:
            row = c.execute("SELECT value FROM plugin_values WHERE plugin_id=? AND key=?", (self._ns, key)).fetchone()
            return default if row is None else json.loads(row[0])

        return await self._db.read(read)

    async def set(self, key: str, value: Any) -> None:
        text = json.dumps(value)
        await self._db.write(
            lambda c: c.execute(
                "INSERT INTO plugin_values(plugin_id,key,value) VALUES(?,?,?) "
                "ON CONFLICT(plugin_id,key) DO UPDATE SET value=excluded.value",
                (self._ns, key, text),
            )
        )

    async def delete(self, key: str) -> None:
        await self._db.write(
            lambda c: c.execute("DELETE FROM plugin_values WHERE plugin_id=? AND key=?", (self._ns, key))
        )


class Tables:
    """A database in which the plugin has declared tables. ``fn`` gets an sqlite connection and runs off the event loop."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def read(self, fn: Callable[[Connection], T]) -> T:
        return await self._db.read(fn)

    async def write(self, fn: Callable[[Connection], T]) -> T:
        """Run in one transaction; durable when this returns."""
        return await self._db.write(fn)


class PluginContext:
    """Handed to every hook of one plugin.

    id, version, log, package_dir, data_dir
        Who the plugin is and where its code and its own files are. ``data_dir`` is created on first use.
    config
        An instance of the struct ``skald_config`` named; a plain empty struct otherwise.
    """

    def __init__(self, host: Host, plugin_id: str, version: str, package_dir: Path) -> None:
        self._host = host
        self.id = plugin_id
        self.version = version
        self.package_dir = package_dir
        self.log = logging.getLogger(f"skald.plugin.{plugin_id}")
        self.config: Any = msgspec.defstruct("NoConfig", [])()
        self.kv = KeyValue(host.system_db, plugin_id)
        self._disposers: list[Callable[[], Awaitable[None] | None]] = []

    # storage ------------------------------------------------------------------------------------------------------

    @property
    def data_dir(self) -> Path:
        """A folder of the plugin's own below the data directory."""
        path = self._host.data_dir / "plugins" / self.id
        path.mkdir(parents=True, exist_ok=True)
        return path

    @property
    def table_prefix(self) -> str:
        """What every table of this plugin starts with."""
        return self.id.replace("-", "_") + "_"

    @property
    def tables(self) -> Tables:
        """system.db, where the plugin's registry tables live."""
        return Tables(self._host.system_db)

    def owner_tables(self, user: User | str) -> Tables:
        """That user's database. Raises LookupError while the user is locked (not signed in since the start)."""
        return Tables(self._host.owner_db(user if isinstance(user, str) else user.id))

    def files(self, user: User) -> UserFs:
        """The user's files as their agent sees them."""
        return self._host.files_for(user)

    # kernel services ----------------------------------------------------------------------------------------------

    @property
    def models(self) -> ModelRows:
        return self._host.models

    def service(self, protocol: type[T], user: User | None = None) -> T | None:
        """An implementation of ``protocol`` by any enabled plugin, or None."""
        return self._host.lookup_service(protocol, user.id if user else None)

    def http(self, *, allow_private: bool = False) -> httpx.AsyncClient:
        """A shared HTTP client. Private, loopback and link-local targets are refused unless ``allow_private``; the resolved
        address is the one connected to, also on every redirect. Do not close it."""
        return self._host.http_client(allow_private=allow_private)

    def t(self, key: str, locale: str = "", **values: object) -> str:
        """A text of this plugin in ``locale``, else the instance's language, else English. ``{name}`` are filled in."""
        return self._host.translate(f"plugin.{self.id}.{key}", locale, values)

    def publish(self, event: str, data: dict[str, Any], user: User | str | None = None) -> None:
        """Send ``plugin.<id>.<event>`` to one user's browsers, or to everyone's who may use the plugin."""
        user_id = user.id if isinstance(user, User) else user
        self._host.publish(user_id, {"type": f"plugin.{self.id}.{event}", **data})

    def now(self) -> float:
        """Seconds since the epoch; tests replace the clock."""
        return self._host.now()

    def new_id(self) -> str:
        """A random URL-safe id; tests replace the source."""
        return self._host.new_id()

    def spawn(self, coro: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a background task that is cancelled when the plugin is disabled; its failure is logged and shown."""
        task = self._host.spawn(f"plugin:{self.id}", coro)

        def stop() -> None:
            task.cancel()

        self.on_dispose(stop)
        return task

    def on_dispose(self, undo: Callable[[], Awaitable[None] | None]) -> None:
        """Have ``undo`` called when the plugin is disabled, last registered first."""
        self._disposers.append(undo)

    def load_i18n(self, folder: str = "i18n") -> dict[str, dict[str, str]]:
        """Read ``<package>/i18n/<locale>.json`` files, each a flat object of key to text."""
        found: dict[str, dict[str, str]] = {}
        for path in sorted((self.package_dir / folder).glob("*.json")):
            found[path.stem] = msgspec.json.decode(path.read_bytes(), type=dict[str, str])
        return found
