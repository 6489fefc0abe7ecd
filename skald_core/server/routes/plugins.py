"""The plugin catalog of administrators (docs/http-api.md, "Plugins"), plugin pages and texts."""

from __future__ import annotations

import asyncio
import mimetypes
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from litestar import Request, Response, get, post, put
from litestar.params import FromPath, JSONBody

from skald_core.errors import NotFound
from skald_core.plugins import dist
from skald_core.plugins.access import Grant
from skald_core.plugins.configure import FormView, TestResult
from skald_core.plugins.health import run_checks
from skald_core.plugins.install.purge import PluginData
from skald_core.plugins.state import Failure, PluginRow, State
from skald_core.server.guards import caller, capability, plugins_for, public, runtime, signed_in

if TYPE_CHECKING:
    from skald_core.runtime.app import Skald

__all__ = ("HANDLERS", "ConfigBody")

AnyRequest = Request[Any, Any, Any]
manage = capability("plugin.manage")


class ConfigBody(msgspec.Struct):
    values: dict[str, Any]


class AccessBody(msgspec.Struct):
    default_on: bool | None = None
    users: Annotated[dict[str, bool | None], msgspec.Meta(max_length=10_000)] = {}


class CapabilityView(msgspec.Struct, frozen=True):
    id: str
    title: str


class ContributesView(msgspec.Struct, frozen=True):
    tools: list[str]
    pages: list[str]
    routes: int
    providers: list[str]
    services: list[str]
    commands: list[str]
    agents: list[str]
    mounts: list[str]
    hooks: list[str]
    cli: list[str]


class PluginView(msgspec.Struct, frozen=True, kw_only=True):
    """``Plugin`` of docs/http-api.md."""

    id: str
    title: str
    summary: str
    distribution: str
    author: str
    license: str
    version: str
    running_version: str | None
    latest_version: str | None
    state: State
    enabled: bool
    bundled: bool
    editable: bool
    error: Failure | None
    problems: list[str]
    deprecations: list[str]
    contributes: ContributesView
    capabilities: list[CapabilityView]
    rights: list[CapabilityView]
    homepage: str
    docs: str
    size: int
    import_ms: float
    start_ms: float
    restart_needed: bool
    configurable: bool
    default_on: bool


class AccessView(msgspec.Struct, frozen=True):
    default_on: bool
    users: list[Grant]


class PluginDetailView(PluginView, frozen=True, kw_only=True):
    """``PluginDetail`` of docs/http-api.md."""

    access: AccessView
    data: PluginData
    readme: str
    changelog: str


class HealthView(msgspec.Struct, frozen=True):
    id: str
    title: str
    ok: bool
    text: str
    ms: int


class PageView(msgspec.Struct, frozen=True):
    plugin: str
    page_id: str
    title: str
    icon: str
    entry: str
    admin_only: bool
    priority: int


def _contributes(app: Skald, row: PluginRow) -> ContributesView:
    """What the code registered, while it runs; what the manifest announces, else."""
    brought = app.plugins.contributed.of(row.id)
    manifest = row.found.manifest
    mounts = list(manifest.contributes.mounts) if manifest is not None else []
    if brought is not None:
        return ContributesView(
            tools=[tool.name for tool in brought.tools],
            pages=[page.page_id for page in brought.pages],
            routes=len(brought.routes),
            providers=[kind.id for kind in brought.providers],
            services=[service.protocol.__name__ for service in brought.services],
            commands=[command.name for command in brought.commands],
            agents=[agent.id for agent in brought.agents],
            mounts=mounts,
            hooks=app.plugins.dispatcher.hooks_of(row.id),
            cli=brought.cli,
        )
    if manifest is None:
        return ContributesView([], [], 0, [], [], [], [], [], [], [])
    said = manifest.contributes
    return ContributesView(
        tools=said.tools,
        pages=said.pages,
        routes=int(said.routes),
        providers=said.providers,
        services=said.services,
        commands=said.commands,
        agents=said.agents,
        mounts=mounts,
        hooks=said.hooks,
        cli=[],
    )


def _fields(app: Skald, row: PluginRow, size: int, locale: str) -> dict[str, Any]:
    manifest = row.found.manifest
    title, summary = manifest.localized(locale) if manifest else (row.id, "")
    brought = app.plugins.contributed.of(row.id)

    def may(name: str) -> CapabilityView:
        found = app.texts.find(f"plugin_capability.{name}", locale)
        return CapabilityView(name, found or name)

    return {
        "id": row.id,
        "title": title,
        "summary": summary,
        "distribution": row.found.distribution,
        "author": row.found.author,
        "license": row.found.license,
        "version": row.found.version,
        "running_version": row.running_version,
        "latest_version": app.reviews.latest(row.found),
        "state": row.state,
        "enabled": row.enabled,
        "bundled": row.bundled,
        "editable": row.found.editable,
        "error": row.error,
        "problems": app.plugins.problems(row),
        "deprecations": row.deprecations,
        "contributes": _contributes(app, row),
        "capabilities": [may(name) for name in manifest.capabilities] if manifest else [],
        "rights": [
            CapabilityView(right.id, app.texts.of_plugin(row.id, right.title, locale))
            for right in (brought.capabilities if brought else ())
        ],
        "homepage": manifest.homepage if manifest else "",
        "docs": manifest.docs if manifest else "",
        "size": size,
        "import_ms": round(row.import_ms, 1),
        "start_ms": round(row.start_ms, 1),
        "restart_needed": row.restart_needed,
        "configurable": row.form is not None,
        "default_on": app.plugins.access.default_on(row.id),
    }


async def _view(request: AnyRequest, row: PluginRow) -> PluginView:
    size = await asyncio.to_thread(dist.size_of, row.found)
    return PluginView(**_fields(runtime(request), row, size, _locale(request)))


def _locale(request: AnyRequest) -> str:
    return runtime(request).texts.resolve(caller(request).locale)


@get("/api/plugins", guards=[manage])
async def catalog(request: AnyRequest) -> list[PluginView]:
    """Every installed plugin, by id."""
    app = runtime(request)
    await app.recheck_blocked()
    rows = sorted(app.plugins.rows.values(), key=lambda row: row.id)
    sizes = await asyncio.to_thread(lambda: [dist.size_of(row.found) for row in rows])
    locale = _locale(request)
    return [PluginView(**_fields(app, row, size, locale)) for row, size in zip(rows, sizes, strict=True)]


@get("/api/plugins/{plugin:str}", guards=[manage])
async def detail(request: AnyRequest, plugin: FromPath[str]) -> PluginDetailView:
    """One plugin with who may use it, what it keeps, and what its author wrote."""
    app = runtime(request)
    row = app.plugins.get(plugin)
    size, texts = await asyncio.to_thread(lambda: (dist.size_of(row.found), dist.texts_of(row.found)))
    return PluginDetailView(
        **_fields(app, row, size, _locale(request)),
        access=await _access(app, plugin),
        data=await app.plugin_data(plugin),
        readme=texts.readme,
        changelog=texts.changelog,
    )


async def _access(app: Skald, plugin: str) -> AccessView:
    return AccessView(app.plugins.access.default_on(plugin), await app.plugins.grants(plugin))


@get("/api/plugins/pages", guards=[signed_in])
async def pages(request: AnyRequest) -> list[PageView]:
    """Pages the caller may open, in order."""
    app = runtime(request)
    user = caller(request)
    visible = app.plugins.visible_to(user.id)
    manages = app.roles.allows(user.role, "plugin.manage")
    return [
        PageView(
            plugin=plugin_id,
            page_id=page.page_id,
            title=app.texts.of_plugin(plugin_id, page.title, user.locale),
            icon=page.icon,
            entry=f"/api/plugin/{plugin_id}/{page.entry.lstrip('/')}",
            admin_only=page.admin_only,
            priority=page.priority,
        )
        for plugin_id, page in app.plugins.contributed.pages()
        if plugin_id in visible and (manages or not page.admin_only)
    ]


@post("/api/plugins/{plugin:str}/enable", guards=[manage], status_code=200)
async def enable(request: AnyRequest, plugin: FromPath[str]) -> PluginView:
    """Start it, now and at every start. It may fail: the answer says so."""
    app = runtime(request)
    app.plugins.get(plugin)
    await app.audit(caller(request), "plugin.enable", plugin)
    return await _view(request, await app.plugins.enable(plugin))


@post("/api/plugins/{plugin:str}/disable", guards=[manage], status_code=200)
async def disable(request: AnyRequest, plugin: FromPath[str]) -> PluginView:
    """Its routes, tools and pages are gone before this answers."""
    app = runtime(request)
    app.plugins.get(plugin)
    await app.audit(caller(request), "plugin.disable", plugin)
    return await _view(request, await app.plugins.disable(plugin))


@put("/api/plugins/{plugin:str}/access", guards=[manage])
async def access(request: AnyRequest, plugin: FromPath[str], data: JSONBody[AccessBody]) -> AccessView:
    """Who may use it. A revocation holds before this answers."""
    app = runtime(request)
    app.plugins.get(plugin)
    told = msgspec.json.encode({"default_on": data.default_on, "users": data.users}).decode()
    await app.audit(caller(request), "plugin.access", plugin, told)
    await app.plugins.change_access(plugin, default_on=data.default_on, users=data.users)
    return await _access(app, plugin)


@get("/api/plugins/{plugin:str}/config", guards=[manage])
async def config(request: AnyRequest, plugin: FromPath[str]) -> FormView:
    """The form of its settings, as far as they are known: a plugin that never ran has told nobody yet."""
    return await runtime(request).settings_desk.view(plugin, _locale(request))


@put("/api/plugins/{plugin:str}/config", guards=[manage])
async def configure(request: AnyRequest, plugin: FromPath[str], data: JSONBody[ConfigBody]) -> PluginView:
    """Save settings. A running plugin starts again with them."""
    app = runtime(request)
    app.plugins.get(plugin)
    await app.audit(caller(request), "plugin.configure", plugin, ", ".join(sorted(data.values)))
    return await _view(request, await app.settings_desk.save(plugin, data.values, _locale(request)))


@post("/api/plugins/{plugin:str}/config/test", guards=[manage], status_code=200)
async def try_config(request: AnyRequest, plugin: FromPath[str], data: JSONBody[ConfigBody]) -> TestResult:
    """Have the plugin try settings that are not saved."""
    return await runtime(request).settings_desk.test(plugin, data.values, _locale(request))


@post("/api/plugins/{plugin:str}/health", guards=[manage], status_code=200)
async def health(request: AnyRequest, plugin: FromPath[str]) -> list[HealthView]:
    """Run its health checks now."""
    app = runtime(request)
    row = app.plugins.get(plugin)
    brought = app.plugins.contributed.of(plugin) if row.state == "running" else None
    locale = _locale(request)

    def say(text: str) -> str:
        return app.texts.of_plugin(plugin, text, locale)

    found = await run_checks(plugin, brought.health if brought is not None else ())
    slow = app.texts.t("plugin_health.slow", locale)
    return [HealthView(c.id, say(c.title), c.ok, slow if c.slow else say(c.text), c.ms) for c in found]


@get("/api/i18n/{locale:str}", guards=[public])
async def texts(request: AnyRequest, locale: FromPath[str]) -> dict[str, str]:
    """Texts of the caller's plugins in a language; what it lacks in the instance's, then in English."""
    found = runtime(request).texts.of_plugins(locale)
    known = await plugins_for(request)
    return {key: text for key, text in found.items() if known is None or key.split(".", 2)[1] in known}


@get("/api/plugin/{plugin:str}/web/{file:path}", guards=[signed_in])
async def web(request: AnyRequest, plugin: FromPath[str], file: FromPath[Path]) -> Response[bytes]:
    """A file of the package's ``web/`` folder, for those who may use the plugin."""
    app = runtime(request)
    folder = app.plugins.rows[plugin].found.package_dir if plugin in app.plugins.rows else None
    if folder is None or plugin not in app.plugins.visible_to(caller(request).id):
        raise NotFound("There is nothing here.")
    target, body = await asyncio.to_thread(_file_below, folder / "web", str(file).lstrip("/"))
    media = {".js": "text/javascript", ".mjs": "text/javascript"}.get(target.suffix)
    return Response(
        body,
        media_type=media or mimetypes.guess_type(target.name)[0] or "application/octet-stream",
        headers={"Cache-Control": "no-cache"},
    )


def _file_below(folder: Path, name: str) -> tuple[Path, bytes]:
    """Raises NotFound for what is not a file inside ``folder``, links followed."""
    try:
        root = folder.resolve()
        target = (root / name).resolve()
        if target.is_relative_to(root) and target.is_file():
            return target, target.read_bytes()
    except (OSError, ValueError):  # a name no file system takes
        pass
    raise NotFound("There is nothing here.")


HANDLERS = (
    catalog, pages, detail, enable, disable, access, config, configure, try_config, health, texts, web,
)  # fmt: skip
