"""The plugin catalog (first cut), plugin pages and texts."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, get, post, put
from litestar.params import FromPath, JSONBody

from skald_core.plugins.lifecycle import PluginRow, Plugins
from skald_core.server.guards import caller, capability, public, runtime, signed_in

__all__ = ("HANDLERS",)

AnyRequest = Request[Any, Any, Any]
manage = capability("plugin.manage")


class ConfigBody(msgspec.Struct):
    values: dict[str, Any]


def plugin_view(plugins: Plugins, row: PluginRow, locale: str) -> dict[str, Any]:
    """A catalog row (docs/http-api.md)."""
    manifest = row.found.manifest
    title, summary = manifest.localized(locale) if manifest else (row.id, "")
    brought = plugins.contributed.of(row.id)
    return {
        "id": row.id,
        "title": title,
        "summary": summary,
        "distribution": row.found.distribution,
        "version": row.found.version,
        "author": row.found.author,
        "state": row.state,
        "enabled": row.enabled,
        "bundled": row.bundled,
        "editable": row.found.editable,
        "error": row.error,
        "problems": row.problems,
        "contributes": {
            "tools": [t.name for t in brought.tools] if brought else (manifest.contributes.tools if manifest else []),
            "pages": [p.page_id for p in brought.pages]
            if brought
            else (manifest.contributes.pages if manifest else []),
            "routes": len(brought.routes) if brought else 0,
            "providers": [t.id for t in brought.providers]
            if brought
            else (manifest.contributes.providers if manifest else []),
            "hooks": plugins.dispatcher.hooks_of(row.id) or (manifest.contributes.hooks if manifest else []),
        },
        "capabilities": manifest.capabilities if manifest else [],
        "homepage": manifest.homepage if manifest else "",
        "docs": manifest.docs if manifest else "",
        "import_ms": round(row.import_ms, 1),
        "start_ms": round(row.start_ms, 1),
        "restart_needed": row.imported and row.state in {"disabled", "failed"},
        "configurable": row.config_schema is not None and row.state == "running",
    }


def _locale(request: AnyRequest) -> str:
    return runtime(request).texts.resolve(caller(request).locale)


@get("/api/plugins", guards=[manage])
async def catalog(request: AnyRequest) -> list[dict[str, Any]]:
    plugins = runtime(request).plugins
    return [plugin_view(plugins, row, _locale(request)) for row in sorted(plugins.rows.values(), key=lambda r: r.id)]


@get("/api/plugins/pages", guards=[signed_in])
async def pages(request: AnyRequest) -> list[dict[str, Any]]:
    """Pages the caller may open, in order."""
    app = runtime(request)
    user = caller(request)
    visible = app.plugins.visible_to(user.id)
    return [
        {
            "plugin": plugin_id,
            "page_id": page.page_id,
            "title": app.texts.t(_prefixed(plugin_id, page.title), user.locale) if "." in page.title else page.title,
            "icon": page.icon,
            "entry": f"/api/plugin/{plugin_id}/{page.entry.lstrip('/')}",
            "admin_only": page.admin_only,
            "priority": page.priority,
        }
        for plugin_id, page in app.plugins.contributed.pages()
        if plugin_id in visible and (not page.admin_only or app.roles.allows(user.role, "plugin.manage"))
    ]


def _prefixed(plugin_id: str, key: str) -> str:
    prefix = f"plugin.{plugin_id}."
    return key if key.startswith(prefix) else prefix + key


@post("/api/plugins/{plugin:str}/enable", guards=[manage], status_code=200)
async def enable(request: AnyRequest, plugin: FromPath[str]) -> dict[str, Any]:
    app = runtime(request)
    await app.audit(caller(request), "plugin.enable", plugin)
    return plugin_view(app.plugins, await app.plugins.enable(plugin), _locale(request))


@post("/api/plugins/{plugin:str}/disable", guards=[manage], status_code=200)
async def disable(request: AnyRequest, plugin: FromPath[str]) -> dict[str, Any]:
    """Its routes, tools and pages are gone before this answers."""
    app = runtime(request)
    await app.audit(caller(request), "plugin.disable", plugin)
    return plugin_view(app.plugins, await app.plugins.disable(plugin), _locale(request))


@get("/api/plugins/{plugin:str}/config", guards=[manage])
async def config(request: AnyRequest, plugin: FromPath[str]) -> dict[str, Any]:
    plugins = runtime(request).plugins
    row = plugins.get(plugin)
    return {"schema": row.config_schema or {}, "values": plugins.config_values(plugin)}


@put("/api/plugins/{plugin:str}/config", guards=[manage])
async def configure(request: AnyRequest, plugin: FromPath[str], data: JSONBody[ConfigBody]) -> dict[str, Any]:
    app = runtime(request)
    await app.audit(caller(request), "plugin.configure", plugin)
    return plugin_view(app.plugins, await app.plugins.configure(plugin, data.values), _locale(request))


@get("/api/i18n/{locale:str}", guards=[public])
async def texts(request: AnyRequest, locale: FromPath[str]) -> dict[str, str]:
    """Texts of all running plugins in a language, English where it lacks one."""
    app = runtime(request)
    return app.plugins.contributed.texts(app.texts.resolve(locale))


HANDLERS = (catalog, pages, enable, disable, config, configure, texts)
