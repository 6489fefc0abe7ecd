"""The composition root: everything the server is made of, put together in one place and in one order."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import secrets
import time
from collections.abc import Coroutine, Iterable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from skald_core.api import API_VERSION
from skald_core.chat.agents import Agents, load_agents
from skald_core.db import schema
from skald_core.db.migrations import apply_migrations
from skald_core.errors import BadInput, Conflict, Forbidden, NotFound, NotSignedIn
from skald_core.files.userfs import UserFs
from skald_core.identity import roles as role_rows
from skald_core.identity.crypto import KeyDeriver
from skald_core.identity.models import User
from skald_core.identity.ratelimit import LoginLimiter
from skald_core.identity.roles import ADMIN, Roles
from skald_core.identity.sessions import LoginSessions
from skald_core.identity.users import Unlocked, Users
from skald_core.identity.vault import Vault
from skald_core.llm.catalogue import ModelCatalogue
from skald_core.llm.rows import ModelRow, ModelTable
from skald_core.loop.database import Database
from skald_core.loop.errors import ToolError
from skald_core.loop.provider import TextDelta
from skald_core.loop.sqlite_store import MIGRATIONS as LOOP_MIGRATIONS
from skald_core.loop.types import ModelInfo, ModelRequest, TextPart, WireMessage
from skald_core.plugins.access import Change
from skald_core.plugins.blocklist import Reviews
from skald_core.plugins.configure import SettingsDesk
from skald_core.plugins.contributions import Capability
from skald_core.plugins.discovery import Discovered, bundled_names, discover
from skald_core.plugins.dispatcher import Dispatcher
from skald_core.plugins.install import startup as interrupted
from skald_core.plugins.install.purge import PluginData, measure
from skald_core.plugins.lifecycle import Limits, Plugins
from skald_core.runtime.accounts import Accounts
from skald_core.runtime.claim import claim
from skald_core.runtime.i18n import Texts
from skald_core.runtime.settings import Settings
from skald_core.runtime.supervisor import Supervisor
from skald_core.runtime.user_context import DELEGATE, UserContext
from skald_core.server.api_app import Api, OpenApiDocument, build_kernel, plugin_app_builder
from skald_core.server.shell import Shell
from skald_core.server.sockets import Sockets

if TYPE_CHECKING:
    import httpx

    from skald_core.plugins.install.catalog_index import IndexState
    from skald_core.plugins.install.engine import Engine

__all__ = ("Skald",)

log = logging.getLogger("skald")


class Skald:
    """A running instance without its network listener. Create with :meth:`start`; ``asgi`` is what a server serves."""

    def __init__(self, settings: Settings, database: Database, lock: IO[str]) -> None:
        self.settings = settings
        self.system_db = database
        self._lock = lock
        self.epoch = secrets.token_hex(6)
        self.setup_token = secrets.token_urlsafe(16)
        self._setup_lock = asyncio.Lock()
        self.data_dir = settings.data_dir
        self.supervisor = Supervisor(self._task_failed)
        self.vault = Vault(settings.data_dir / "database", self._migrate_owner)
        self.users = Users(database, self.vault, KeyDeriver(settings.kdf))
        self.roles = Roles(database, plugins=lambda: [right.id for _, right in self.plugins.contributed.capabilities()])
        self.logins = LoginSessions(database, self.users)
        self.limiter = LoginLimiter()
        self.agents = load_agents(settings.agents_dir)
        self._clients: dict[bool, httpx.AsyncClient] = {}
        self._contexts: dict[str, UserContext] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        self._shut: set[str] = set()
        self.accounts = Accounts(self)
        dispatcher = Dispatcher(trace=_trace if settings.trace_plugins else None)
        self.plugins: Plugins = Plugins(
            api_version=API_VERSION,
            database=database,
            data_dir=settings.data_dir,
            dispatcher=dispatcher,
            host=self,
            bundled=bundled_names(),
            strict=settings.strict_plugins,
            only=settings.only_plugins,
            limits=Limits(slow=settings.plugin_patience),
            build_routes=plugin_app_builder(self),
            learn_capabilities=self._learn_capabilities,
        )
        self.texts: Texts = Texts(self.plugins.contributed.texts)
        self.catalogue: ModelCatalogue = ModelCatalogue(ModelTable(database), self._provider_type)
        self.settings_desk = SettingsDesk(
            plugins=self.plugins,
            texts=self.texts,
            system=database,
            owner=self.vault.require,
            model_known=lambda model: any(row.id == model for row in self.catalogue.models()),
        )
        self.openapi = OpenApiDocument(self)
        self.reviews = Reviews(self._known_index)
        self.plugins.block_reason = self.reviews.block_reason
        self.models = _PluginModels(self)
        self.asgi = Shell(
            web_dir=settings.web_dir,
            allowed_hosts=settings.allowed_hosts,
            host=settings.host,
            sockets=Sockets(self),
            api=_not_ready,
        )

    # -- start and stop --------------------------------------------------------------------------------------------

    @classmethod
    async def start(cls, settings: Settings, plugins: Iterable[Discovered] | None = None) -> Skald:
        """Open the data directory, start the plugins, take up what was interrupted.

        ``plugins`` replaces discovery; tests use it to decide exactly what is there.

        Raises StartError with one sentence when the directory is in use, cannot be written, or belongs to a newer version.
        """
        lock = claim(settings.data_dir)
        try:
            if plugins is None:  # before anything is looked up in an environment that a dead process left half changed
                await asyncio.to_thread(interrupted.recover_environment)
            (settings.data_dir / "database").mkdir(exist_ok=True, mode=0o700)
            database = await Database.open(settings.data_dir / "database" / "system.db")
        except BaseException:
            lock.close()
            raise
        app = cls(settings, database, lock)
        try:
            await app._boot(discover() if plugins is None else plugins)
        except BaseException:
            await app.stop()
            raise
        return app

    async def _boot(self, found: Iterable[Discovered]) -> None:
        (self.data_dir / "database" / "system.db").chmod(0o600)
        await apply_migrations(self.system_db, "kernel", schema.REGISTRY)
        await self.system_db.write(role_rows.seed)
        await self.roles.load()
        self.texts.instance_locale = await self._setting("locale", "en")
        if await interrupted.needs_settling(self.system_db):
            await self.installer.settle()
        await self.plugins.boot(found)
        for plugin_id in self.plugins.rows:
            self._show_reserved(plugin_id)
        self.plugins.changed = self._plugin_changed
        self.plugins.access_changed = self._access_changed
        await self.catalogue.reload()
        self.asgi.api = Api(build_kernel(self), self.plugins.app)
        self.supervisor.spawn("boot", self._wake_open_users())
        self.supervisor.spawn("boot", interrupted.announce_missing(self.data_dir))

    async def _wake_open_users(self) -> None:
        """Unencrypted users need no sign-in for their conversations to go on."""
        for user in await self.users.all():
            if user.active and not user.encrypted:
                with contextlib.suppress(Exception):  # one user's broken file must not keep the others from waking
                    await self.require_open(user)
                    await self.context(user)

    async def stop(self) -> None:
        """Let clients go, keep what runs as it is on disk, stop plugins, close databases. Idempotent."""
        await asyncio.gather(*(context.close("shutdown") for context in self._contexts.values()))
        self._contexts.clear()
        await self.supervisor.stop()
        await self.plugins.shutdown()
        await self.catalogue.close()
        for client in self._clients.values():
            await client.aclose()
        self._clients.clear()
        await self.vault.close()
        await self.system_db.close()
        self._lock.close()

    async def _setting(self, key: str, default: str) -> str:
        row = await self.system_db.read(
            lambda c: c.execute("SELECT value FROM instance_settings WHERE key=?", (key,)).fetchone()
        )
        return str(row[0]) if row else default

    async def set_setting(self, key: str, value: str) -> None:
        await self.system_db.write(
            lambda c: c.execute(
                "INSERT INTO instance_settings VALUES(?,?) ON CONFLICT(key) DO UPDATE SET value=excluded.value",
                (key, value),
            )
        )

    @functools.cached_property
    def installer(self) -> Engine:
        """What installs, upgrades and removes plugins; made on first use, since most starts need nothing of it."""
        from skald_core.plugins.install.server_host import engine_for

        return engine_for(self, API_VERSION)

    # -- plugins ---------------------------------------------------------------------------------------------------

    def _provider_type(self, type_id: str) -> Any:
        found = self.plugins.contributed.provider_type(type_id)
        return found[1] if found else None

    async def _plugin_changed(self, plugin_id: str) -> None:
        self.catalogue.drop_missing_types()
        for _, database in self.vault.unlocked():
            await self.plugins.migrate_owner(database, only=plugin_id)
        self._show_reserved(plugin_id)
        await asyncio.gather(*(context.plugin_changed(plugin_id) for context in self.open_contexts()))
        self.broadcast({"type": "plugins_changed", "id": plugin_id})
        await self.models_changed()

    async def _access_changed(self, plugin_id: str, change: Change) -> None:
        """Administrators see it too: their catalog shows who may use what."""
        touched = change.granted | change.revoked
        contexts = self.open_contexts()
        await asyncio.gather(*(c.plugin_changed(plugin_id) for c in contexts if c.user.id in touched))
        for context in contexts:
            if context.user.id in touched or self.roles.allows(context.user.role, "plugin.manage"):
                context.feed.broadcast({"type": "plugins_changed", "id": plugin_id})

    def _known_index(self) -> IndexState | None:
        """The catalog index without asking for it; the job runner is imported only where there is one."""
        if not os.environ.get("SKALD_PLUGIN_INDEX"):
            return None
        return self.installer.index.known()

    async def recheck_blocked(self) -> None:
        """Stop what a newer index blocks, and let go what it does not any more."""
        if self.reviews.news():
            await self.plugins.recheck_blocked()

    async def plugin_data(self, plugin_id: str) -> PluginData:
        """What a plugin keeps, installed or not."""
        people = await self.users.all()
        opened = dict(self.vault.unlocked())
        folder = self.data_dir / "plugins" / plugin_id
        locked = any(user.id not in opened for user in people)
        return await measure(self.system_db, plugin_id, folder, list(opened.values()), locked=locked)

    async def _learn_capabilities(self, plugin_id: str, rights: Sequence[Capability]) -> None:
        await self.roles.learn(plugin_id, {right.id: right.default_roles for right in rights})

    def _task_failed(self, owner: str, error: BaseException) -> None:
        kind, _, plugin_id = owner.partition(":")
        if kind == "plugin":
            self.plugins.task_failed(plugin_id, error)

    def _show_reserved(self, plugin_id: str) -> None:
        """Say what a plugin brings under names that belong to the kernel, and that it is left out."""
        row = self.plugins.rows.get(plugin_id)
        if row is None or row.state != "running":
            return
        agents = Agents(self.agents, self.plugins.contributed).taken(plugin_id)
        row.problems += [f"agent {name!r} is left out: a shipped agent has that id" for name in agents]
        if any(owner == plugin_id and tool.name == DELEGATE for owner, tool in self.plugins.contributed.tools()):
            row.problems.append(f"tool {DELEGATE!r} is left out: the name belongs to the server's own tool")

    async def _migrate_owner(self, database: Database) -> None:
        await apply_migrations(database, "kernel-owner", schema.OWNER)
        await apply_migrations(database, "loop", LOOP_MIGRATIONS)
        await self.plugins.migrate_owner(database)

    async def models_changed(self) -> None:
        await self.catalogue.reload()
        self.broadcast({"type": "models_changed"})

    async def try_model(self, row: ModelRow, *, locale: str) -> str:
        """One short real call; the first words of the answer. Raises a ModelError or ConfigError."""
        handle = self.catalogue.handle(row)
        prompt = self.texts.t("model.test_prompt", locale)
        request = ModelRequest(
            model=handle.model,
            system=(),
            messages=(WireMessage("user", (TextPart(prompt),)),),
            max_output_tokens=64,
            info=handle.info,
            extra=handle.extra,
        )
        text = ""
        try:
            async with asyncio.timeout(120):
                async for event in handle.provider.stream(request):
                    if isinstance(event, TextDelta):
                        text += event.text
        except Exception as error:
            self.catalogue.report_failure(handle.id, error)
            raise
        self.catalogue.report_success(handle.id)
        return text.strip()[:300]

    # -- people ----------------------------------------------------------------------------------------------------

    async def set_up(
        self, *, token: str, username: str, password: str, display_name: str, encrypted: bool, locale: str, address: str
    ) -> tuple[User, str]:
        """Make the first account with the console's token and sign it in."""
        self.limiter.enter("set-up", address)
        try:
            if not secrets.compare_digest(token.encode(), self.setup_token.encode()):
                self.limiter.failed("set-up", address)
                if await self.users.count():
                    raise Conflict("This instance has been set up already; sign in instead.", code="already_set_up")
                raise Forbidden("This set-up link is not valid (any more).", code="setup_token")
            made = await self.create_first(
                username=username, password=password, display_name=display_name, encrypted=encrypted, locale=locale
            )
        finally:
            self.limiter.leave()
        return made.user, await self.logins.issue(made.user, made.token_version)

    async def create_first(
        self, *, username: str, password: str, display_name: str, encrypted: bool, locale: str
    ) -> Unlocked:
        """The first account is an administrator. Raises Conflict ``already_set_up`` when there is one."""
        async with self._setup_lock:
            made = await self.users.create(
                username=username,
                password=password,
                display_name=display_name,
                role=ADMIN,
                encrypted=encrypted,
                locale=locale,
                first=True,
            )
        self.setup_token = secrets.token_urlsafe(16)
        if locale:
            await self.set_setting("locale", locale)
            self.texts.instance_locale = locale
        await self.audit(made.user, "instance.setup", made.user.username)
        await self.accounts.tell("skald_user_created", made.user)
        return made

    async def sign_in(self, username: str, password: str, *, address: str, client: str = "") -> tuple[User, str]:
        """Prove the password, open the user's data, issue a session. Raises NotSignedIn ``bad_credentials`` or TooMany."""
        proved = await self._prove(username, password, address)
        if proved is None:
            raise NotSignedIn("User name or password is not right.", code="bad_credentials")
        async with self._opening.setdefault(proved.user.id, asyncio.Lock()):
            self._need_admitted(proved.user.id)
            await self.vault.unlock(proved.user.id, proved.key)
        token = await self.logins.issue(proved.user, proved.token_version, client)
        await self.context(proved.user)
        return proved.user, token

    async def _prove(self, username: str, password: str, address: str) -> Unlocked | None:
        self.limiter.enter(username, address)
        try:
            proved = await self.users.verify(username, password)
        finally:
            self.limiter.leave()
        if proved is None:
            self.limiter.failed(username, address)
        else:
            self.limiter.succeeded(username, address)
        return proved

    async def sign_out(self, token: str) -> None:
        """End a session and its live connections; others of the same user go on."""
        user = await self.logins.check(token)
        await self.logins.end(token)
        if user is not None and (context := self._contexts.get(user.id)) is not None:
            context.feed.close("signed_out", session=token)

    async def change_password(self, user: User, old: str, new: str, *, address: str) -> str:
        """Returns a new session token; every older one is dead and its sockets are closed before this returns."""
        self.limiter.enter(user.username, address)
        try:
            version = await self.users.change_password(user.id, old, new)
        except Exception:
            self.limiter.failed(user.username, address)
            raise
        finally:
            self.limiter.leave()
        token = await self.logins.issue(user, version)
        self.close_sockets(user.id)
        await self.audit(user, "user.password", user.username)
        return token

    def close_sockets(self, user_id: str) -> None:
        """End a user's live connections, so that each has to show a session again."""
        if (context := self._contexts.get(user_id)) is not None:
            context.feed.close("signed_out")

    async def authenticate(self, token: str | None) -> User | None:
        """The one authorisation function of every surface: an active user with a live session, or None."""
        return await self.logins.check(token) if token else None

    async def require_open(self, user: User) -> None:
        """Open an unencrypted user's data; raises NotSignedIn ``locked`` for an encrypted user who has to sign in."""
        self._need_admitted(user.id)
        if self.vault.get(user.id) is not None:
            return
        if user.encrypted:
            raise NotSignedIn("Your data is locked since the server started. Sign in again to open it.", code="locked")
        async with self._opening.setdefault(user.id, asyncio.Lock()):
            self._need_admitted(user.id)
            await self.vault.unlock(user.id, None)

    async def context(self, user: User) -> UserContext:
        """The user's running context; made, and its interrupted work taken up, on first use."""
        existing = self._contexts.get(user.id)
        if existing is not None:
            return existing
        async with self._opening.setdefault(user.id, asyncio.Lock()):
            existing = self._contexts.get(user.id)
            if existing is None:
                self._need_admitted(user.id)
                existing = await UserContext.open(self, user, self.vault.require(user.id))
                self._contexts[user.id] = existing
                for plugin_id in self.plugins.visible_to(user.id):  # one may have started meanwhile
                    await existing.plugin_changed(plugin_id)
            return existing

    def _need_admitted(self, user_id: str) -> None:
        """Raises NotSignedIn for an account that was shut: a request may have been let in just before."""
        if user_id in self._shut:
            raise NotSignedIn("Please sign in.")

    async def shut(self, user: User, reason: str) -> None:
        """End a user's sockets and turns, for good, and close their data. Nothing opens it again before ``readmit``."""
        self._shut.add(user.id)
        self.close_sockets(user.id)
        async with self._opening.setdefault(user.id, asyncio.Lock()):
            context = self._contexts.pop(user.id, None)
            if context is not None:
                await context.close("signed_out", stop=reason)
            await self.vault.lock(user.id)

    def readmit(self, user_id: str) -> None:
        self._shut.discard(user_id)

    def account_changed(self, user: User) -> None:
        """Have what runs for the user know the account as it is now."""
        if (context := self._contexts.get(user.id)) is not None:
            context.user = user

    async def prove_again(self, user: User, password: str, *, address: str) -> bool:
        """Whether this is the signed-in user's own password. Raises TooMany after too many that were not."""
        return await self._prove(user.username, password, address) is not None

    def open_contexts(self) -> list[UserContext]:
        return list(self._contexts.values())

    async def audit(self, actor: User, action: str, target: str, detail: str = "") -> None:
        row = (time.time(), actor.id, action, target[:200], detail[:1000])
        await self.system_db.write(
            lambda c: c.execute("INSERT INTO audit_log(at,actor,action,target,detail) VALUES(?,?,?,?,?)", row)
        )

    # -- what plugin contexts stand on (plugins.context.Host) --------------------------------------------------------

    def owner_db(self, user_id: str) -> Database:
        return self.vault.require(user_id)

    def home_of(self, user_id: str) -> Path:
        return self.data_dir / "homes" / user_id

    def files_for(self, user: User) -> UserFs:
        context = self._contexts.get(user.id)
        return context.files if context is not None else UserFs(self.home_of(user.id))

    def prompt_changed(self, plugin_id: str, user_id: str) -> None:
        if (context := self._contexts.get(user_id)) is not None:
            context.prompts.thaw()

    def mounts_changed(self, plugin_id: str, user_id: str) -> asyncio.Task[None]:
        context = self._contexts.get(user_id)
        asking = _nothing() if context is None else context.mounts.ask([plugin_id])
        return self.supervisor.spawn(f"plugin:{plugin_id}", asking)

    def lookup_service(self, protocol: type[Any], user_id: str | None) -> Any | None:
        visible = None if user_id is None else self.plugins.visible_to(user_id)
        return self.plugins.contributed.service(protocol, visible)

    def translate(self, key: str, locale: str, values: dict[str, object]) -> str:
        return self.texts.t(key, locale, values)

    def http_client(self, *, allow_private: bool) -> httpx.AsyncClient:
        from skald_core.runtime import http  # on first use: httpx is a fifth of the start-up time

        if allow_private not in self._clients:
            self._clients[allow_private] = http.client(allow_private=allow_private)
        return self._clients[allow_private]

    def broadcast(self, event: dict[str, Any]) -> None:
        for context in self._contexts.values():
            context.feed.broadcast(event)

    def publish(self, plugin_id: str, user_id: str | None, event: dict[str, Any]) -> None:
        for context in list(self._contexts.values()):
            user = context.user.id
            if user_id in (None, user) and plugin_id in self.plugins.visible_to(user):
                context.feed.broadcast(event)

    async def user_settings(self, plugin_id: str, user_id: str) -> Any:
        return await self.settings_desk.of_user(plugin_id, user_id)

    def allows(self, user: User, capability: str) -> bool:
        context = self._contexts.get(user.id)
        now = user if context is None else context.user  # a plugin's copy may be older than a change of role
        return user.id not in self._shut and self.roles.allows(now.role, capability)

    def spawn(self, owner: str, coro: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self.supervisor.spawn(owner, coro)

    async def conversation(self, plugin_id: str, user: User, key: str, title: str) -> str:
        context = await self._context_for(plugin_id, user)
        row = await context.create(client_id=f"plugin:{plugin_id}:{key}", title=title, model=None)
        return row.id

    async def say(self, plugin_id: str, user: User, text: str, conversation: str, key: str) -> None:
        context = await self._context_for(plugin_id, user)
        try:
            await context.send(conversation, text, client_id=f"plugin:{plugin_id}:{key or self.new_id()}")
        except NotFound:
            raise LookupError(f"the conversation {conversation!r} does not exist (any more)") from None
        except BadInput as error:
            raise ToolError(error.detail) from None

    async def _context_for(self, plugin_id: str, user: User) -> UserContext:
        """The running context of a user a plugin acts for. Raises LookupError where it may not, or cannot now."""
        if plugin_id not in self.plugins.visible_to(user.id):
            raise LookupError(f"{user.username!r} may not use the plugin {plugin_id!r}")
        try:
            user = await self.users.get(user.id)  # a plugin's copy may be older than a suspension
            if not user.active:
                raise LookupError(f"the account {user.username!r} is switched off")
            await self.require_open(user)
        except NotSignedIn:
            raise LookupError(f"the data of {user.username!r} is locked until they sign in") from None
        except NotFound:
            raise LookupError(f"there is no account {user.username!r} any more") from None
        return await self.context(user)

    def now(self) -> float:
        return time.time()

    def new_id(self) -> str:
        return secrets.token_urlsafe(12)


class _PluginModels:
    """``ctx.models``: rows of a plugin's own provider types."""

    def __init__(self, app: Skald) -> None:
        self._app = app

    async def ensure(
        self, *, type_id: str, provider_name: str, settings: dict[str, str], model: str, title: str, info: ModelInfo
    ) -> str:
        table = self._app.catalogue.table
        provider = next((p for p in await table.providers() if p.type == type_id and p.name == provider_name), None)
        if provider is None:
            provider = await table.add_provider(type_id, provider_name, settings, {})
        elif provider.settings != settings:
            provider = await table.change_provider(provider.id, name=None, settings=settings, secrets={})
        row = next((m for m in await table.models() if m.provider == provider.id and m.model == model), None)
        if row is None:
            row = await table.add_model(provider.id, model, title=title, info=info)
        else:
            row = await table.change_model(row.id, title=title, info=info, enabled=True)
        await self._app.models_changed()
        return row.id

    async def forget(self, *, type_id: str, provider_name: str, model: str) -> bool:
        table = self._app.catalogue.table
        rows = [
            m
            for m in await table.models()
            if m.type == type_id and m.provider_name == provider_name and m.model == model
        ]
        for row in rows:
            await table.remove_model(row.id)
            if not any(m.provider == row.provider for m in await table.models()):
                await table.remove_provider(row.provider)
        if rows:
            await self._app.models_changed()
        return bool(rows)


async def _nothing() -> None:
    return None


async def _not_ready(scope: Any, receive: Any, send: Any) -> None:
    raise RuntimeError("the API application is built before the server listens")


def _trace(line: str) -> None:
    logging.getLogger("skald.trace").info("%s", line)
