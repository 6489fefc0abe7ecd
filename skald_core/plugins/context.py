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
from skald_core.plugins.agents import read_agents
from skald_core.plugins.contributions import AgentSpec

if TYPE_CHECKING:
    import httpx  # imported on first use: it is a fifth of the start-up time

__all__ = ("Host", "KeyValue", "ModelRows", "PluginContext", "Tables")

T = TypeVar("T")

TASK_END_SECONDS = 10.0
"""How long a cancelled task may take to end while its plugin is being disabled."""


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
    def allows(self, user: User, capability: str) -> bool: ...
    async def user_settings(self, plugin_id: str, user_id: str) -> Any: ...
    def translate(self, key: str, locale: str, values: dict[str, object]) -> str: ...
    def http_client(self, *, allow_private: bool) -> httpx.AsyncClient: ...
    def publish(self, plugin_id: str, user_id: str | None, event: dict[str, Any]) -> None: ...
    def spawn(self, owner: str, coro: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...
    def prompt_changed(self, plugin_id: str, user_id: str) -> None: ...
    def mounts_changed(self, plugin_id: str, user_id: str) -> asyncio.Task[None]: ...
    async def conversation(self, plugin_id: str, user: User, key: str, title: str) -> str: ...
    async def say(self, plugin_id: str, user: User, text: str, conversation: str, key: str) -> None: ...
    def now(self) -> float: ...
    def new_id(self) -> str: ...


class NoConfig(msgspec.Struct, frozen=True):
    """The settings of a plugin without settings."""


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
        An instance of the struct ``skald_config`` named; a plain empty struct otherwise. Saving settings restarts the plugin
        with a new context.
    """

    def __init__(self, host: Host, plugin_id: str, version: str, package_dir: Path) -> None:
        self._host = host
        self.id = plugin_id
        self.version = version
        self.package_dir = package_dir
        self.log = logging.getLogger(f"skald.plugin.{plugin_id}")
        self.config: Any = NoConfig()
        self.kv = KeyValue(host.system_db, plugin_id)
        self._disposers: list[Callable[[], Awaitable[None] | None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._spawned = False

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
        return Tables(self._host.owner_db(_id(user)))

    def files(self, user: User) -> UserFs:
        """The user's files as their agent sees them."""
        return self._host.files_for(user)

    # people ---------------------------------------------------------------------------------------------------------

    async def user_config(self, user: User | str) -> Any:
        """That user's own settings: an instance of the struct ``skald_user_config`` named.

        Raises LookupError while the user is locked (not signed in since the start), or when the plugin has no such settings.
        """
        return await self._host.user_settings(self.id, _id(user))

    def allows(self, user: User, capability: str) -> bool:
        """Whether the user's role holds ``capability``."""
        return self._host.allows(user, capability)

    @staticmethod
    def caller(request: Any) -> User:
        """Who made a request to one of the plugin's routes: the kernel's guard proved it before the handler ran.

        Raises LookupError for a request that came no such way."""
        user = request.scope.get("skald_user")
        if not isinstance(user, User):
            raise LookupError("this request has no signed-in user; is the handler one of skald_routes?")
        return user

    async def conversation(self, user: User, key: str, title: str = "") -> str:
        """The id of the plugin's conversation ``key`` with ``user``; made on first use, and again after it was deleted.

        Raises LookupError while the user's data is locked, when the account is switched off, or when they may not use the
        plugin."""
        return await self._host.conversation(self.id, user, key, title)

    async def say(self, user: User, text: str, conversation: str, *, key: str = "") -> None:
        """Write ``text`` into a conversation of ``user`` as their own message, which starts a turn or waits for the running one.

        Messages of one ``key`` are stored once, so what is delivered twice is asked once. The answer comes with
        ``skald_turn_finished``. Tool calls are judged as ever; questions wait in the user's inbox.

        Raises LookupError like :meth:`conversation`, and for a conversation that does not exist (any more); ToolError with a
        sentence for a text that is empty or too long."""
        await self._host.say(self.id, user, text, conversation, key)

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
        self._host.publish(self.id, user_id, {"type": f"plugin.{self.id}.{event}", **data})

    def now(self) -> float:
        """Seconds since the epoch; tests replace the clock."""
        return self._host.now()

    def new_id(self) -> str:
        """A random URL-safe id; tests replace the source."""
        return self._host.new_id()

    def spawn(self, coro: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a background task that is cancelled when the plugin is disabled; its failure is logged and shown."""
        task = self._host.spawn(f"plugin:{self.id}", coro)
        if not self._spawned:
            self._spawned = True
            self.on_dispose(self._stop_tasks)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _stop_tasks(self) -> None:
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=TASK_END_SECONDS)

    def on_dispose(self, undo: Callable[[], Awaitable[None] | None]) -> None:
        """Have ``undo`` called when the plugin is disabled, last registered first."""
        self._disposers.append(undo)

    def prompt_changed(self, user: User | str) -> None:
        """Have the user's next turns ask ``skald_prompt_blocks`` for *prefix* blocks again. Costs them the provider's cache
        once, so not for every small change."""
        self._host.prompt_changed(self.id, _id(user))

    def mounts_changed(self, user: User | str) -> asyncio.Task[None]:
        """Have ``skald_mounts`` asked again for the user. Await the task where the change must hold before you go on, as
        for a folder that was taken away; without a user whose data is open it ends at once."""
        return self._host.mounts_changed(self.id, _id(user))

    def load_agents(self, folder: str = "agents") -> list[AgentSpec]:
        """Read ``<package>/agents/<id>/`` folders with ``meta.json``, ``AGENT.md`` and, for models with little context,
        ``AGENT.short.md``. Raises ValueError naming the first that cannot be used."""
        return read_agents(self.package_dir / folder)

    # files of the package -----------------------------------------------------------------------------------------

    def load_i18n(self, folder: str = "i18n") -> dict[str, dict[str, str]]:
        """Read ``<package>/i18n/<locale>.json`` files, each a flat object of key to text. Raises ValueError naming the file
        that is something else."""
        found: dict[str, dict[str, str]] = {}
        for path in sorted((self.package_dir / folder).glob("*.json")):
            try:
                found[path.stem] = msgspec.json.decode(path.read_bytes(), type=dict[str, str])
            except msgspec.MsgspecError as error:
                raise ValueError(f"{folder}/{path.name} must be one flat JSON object of texts: {error}") from None
        return found


def _id(user: User | str) -> str:
    return user if isinstance(user, str) else user.id
