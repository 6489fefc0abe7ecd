"""A running instance inside the test's own process: real SQLCipher files, the real API application, no network, no discovery."""

from __future__ import annotations

import asyncio
import secrets
import sys
import types
from pathlib import Path
from typing import Any

import httpx

from skald_core.hookspecs import hookimpl
from skald_core.identity.crypto import KdfParams
from skald_core.loop.provider import Provider
from skald_core.loop.types import ModelInfo
from skald_core.plugins.contributions import ProviderType
from skald_core.plugins.discovery import Discovered
from skald_core.plugins.manifest import Manifest, read_manifest
from skald_core.runtime.app import Skald
from skald_core.runtime.settings import Settings

__all__ = ("PASSWORD", "AppFactory", "TestApp", "TestClient", "local_plugin", "scripted_plugin")

PASSWORD = "correct horse battery"
BASE_URL = "http://127.0.0.1"


def local_plugin(module: str | types.ModuleType, manifest: Manifest | None = None) -> Discovered:
    """A plugin from an importable module instead of an installed distribution; its manifest is read from its package."""
    name = module if isinstance(module, str) else module.__name__
    folder: Path | None = None
    if manifest is None:
        loaded = sys.modules.get(name) or __import__(name)
        folder = Path(str(loaded.__file__)).parent
        manifest = read_manifest(folder / "skald-plugin.toml")
    return Discovered(
        id=manifest.id,
        distribution=f"skald-plugin-{manifest.id}",
        version="0",
        module=name,
        package_dir=folder,
        manifest=manifest,
    )


def scripted_plugin(provider: Provider) -> Discovered:
    """A plugin whose provider type ``scripted`` always gives ``provider``."""

    class Scripted(ProviderType):
        id = "scripted"
        title = "Scripted"

        def create(self, settings: dict[str, str]) -> Provider:
            return provider

    module = types.ModuleType(f"skald_scripted_{secrets.token_hex(4)}")

    @hookimpl
    def skald_llm_providers() -> list[ProviderType]:
        return [Scripted()]

    module.skald_llm_providers = skald_llm_providers  # type: ignore[attr-defined]  # a module made on the spot
    sys.modules[module.__name__] = module
    manifest = Manifest(id="scripted", title="Scripted", api=">=1")
    return local_plugin(module, manifest)


class TestClient:
    """An HTTP client of a :class:`TestApp`; ``user`` is None before it signs in."""

    __test__ = False

    def __init__(self, app: TestApp) -> None:
        self._app = app
        transport = httpx.ASGITransport(app=app.skald.asgi)  # type: ignore[arg-type]  # the shell is an ASGI application
        self.http = httpx.AsyncClient(transport=transport, base_url=BASE_URL)
        self.user: dict[str, Any] | None = None

    async def request(self, method: str, path: str, body: Any = None) -> httpx.Response:
        return await self.http.request(method, path, json=body)

    async def get(self, path: str) -> Any:
        """The JSON answer; raises AssertionError with the problem for anything but success."""
        return await self._checked("GET", path, None)

    async def post(self, path: str, body: Any = None) -> Any:
        return await self._checked("POST", path, {} if body is None else body)

    async def put(self, path: str, body: Any = None) -> Any:
        return await self._checked("PUT", path, {} if body is None else body)

    async def patch(self, path: str, body: Any = None) -> Any:
        return await self._checked("PATCH", path, {} if body is None else body)

    async def delete(self, path: str) -> None:
        await self._checked("DELETE", path, None)

    async def _checked(self, method: str, path: str, body: Any) -> Any:
        answer = await self.request(method, path, body)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    async def run_turn(
        self, text: str, conversation: str | None = None, *, timeout: float = 20.0
    ) -> list[dict[str, Any]]:
        """Say something in a (new) conversation, wait until the turn is over, return its messages oldest first."""
        if conversation is None:
            conversation = (await self.post("/api/conversations"))["id"]
        await self.post(
            f"/api/conversations/{conversation}/messages", {"client_id": secrets.token_hex(8), "content": text}
        )
        await self._app.idle(self, str(conversation), timeout)
        return list((await self.get(f"/api/conversations/{conversation}/messages?limit=200"))["items"])

    async def close(self) -> None:
        await self.http.aclose()


class TestApp:
    """A running :class:`Skald` and clients for it. Make it with :class:`AppFactory`."""

    __test__ = False

    def __init__(self, skald: Skald) -> None:
        self.skald = skald
        self._clients: list[TestClient] = []

    def anonymous(self) -> TestClient:
        client = TestClient(self)
        self._clients.append(client)
        return client

    async def client(self, username: str = "ada", role: str = "admin", *, encrypted: bool = False) -> TestClient:
        """A new user of this role, signed in."""
        await self.skald.users.create(username=username, password=PASSWORD, role=role, encrypted=encrypted)
        client = self.anonymous()
        client.user = await client.post("/api/auth/login", {"username": username, "password": PASSWORD})
        return client

    async def add_model(self, *, type_id: str = "scripted", model: str = "scripted", weak: bool = False) -> str:
        """A model of a provider type without settings; returns its id."""
        return await self.skald.models.ensure(
            type_id=type_id, provider_name=type_id, settings={}, model=model, title=model, info=ModelInfo(weak=weak)
        )

    async def idle(self, client: TestClient, conversation: str, timeout: float = 20.0) -> None:
        """Wait until nothing runs in the conversation."""
        assert client.user is not None
        context = await self.skald.context(await self.skald.users.get(client.user["id"]))
        async with asyncio.timeout(timeout):
            await context.agent.session(conversation).wait()

    def assert_loaded(self, plugin_id: str) -> None:
        """The plugin runs without a problem."""
        row = self.skald.plugins.get(plugin_id)
        assert row.state == "running", f"{plugin_id} is {row.state}: {row.error}"
        problems = self.skald.plugins.problems(row)
        assert not problems, f"{plugin_id}: {problems}"

    async def stop(self) -> None:
        for client in self._clients:
            await client.close()
        await self.skald.stop()


class AppFactory:
    """Starts apps in a folder; each call is one start, so calling twice restarts on the same data."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[TestApp] = []

    async def __call__(self, *plugins: Discovered, strict: bool = True, **settings: Any) -> TestApp:
        for app in self._running:
            await app.stop()
        self._running.clear()
        chosen = Settings(
            data_dir=self._folder, strict_plugins=strict, kdf=KdfParams(memory_kib=1024, time=1), **settings
        )
        skald = await Skald.start(chosen, plugins=plugins)
        app = TestApp(skald)
        self._running.append(app)
        for plugin in plugins:
            if skald.plugins.rows[plugin.id].state == "disabled":
                await skald.plugins.enable(plugin.id)
        await skald.plugins.settled()
        return app

    async def close(self) -> None:
        for app in self._running:
            await app.stop()
        self._running.clear()
