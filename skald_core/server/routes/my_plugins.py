"""*My plugins*: what a user may use, and their own settings for it."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, get, post, put
from litestar.params import FromPath, JSONBody

from skald_core.errors import NotFound
from skald_core.identity.models import User
from skald_core.plugins.configure import FormView, TestResult
from skald_core.server.guards import caller, runtime, signed_in
from skald_core.server.routes.plugins import ConfigBody

__all__ = ("HANDLERS",)

AnyRequest = Request[Any, Any, Any]


class MyTool(msgspec.Struct, frozen=True):
    name: str
    title: str


class MyPage(msgspec.Struct, frozen=True):
    page_id: str
    title: str
    entry: str


class MyCommand(msgspec.Struct, frozen=True):
    name: str
    title: str
    hint: str


class MyPlugin(msgspec.Struct, frozen=True):
    """A plugin as the people see it who use it."""

    id: str
    title: str
    summary: str
    tools: list[MyTool]
    pages: list[MyPage]
    commands: list[MyCommand]
    configurable: bool


@get("/api/my/plugins", guards=[signed_in])
async def mine(request: AnyRequest) -> list[MyPlugin]:
    """Plugins the caller may use, by title."""
    app = runtime(request)
    user = caller(request)
    locale = app.texts.resolve(user.locale)
    visible = app.plugins.visible_to(user.id)
    contributed = app.plugins.contributed
    manages = app.roles.allows(user.role, "plugin.manage")
    tools = contributed.tools(visible)
    commands = contributed.commands(visible)
    pages = [row for row in contributed.pages() if manages or not row[1].admin_only]
    found = []
    for plugin_id in visible:
        row = app.plugins.rows[plugin_id]
        manifest = row.found.manifest
        title, summary = manifest.localized(locale) if manifest else (plugin_id, "")

        def say(text: str, plugin_id: str = plugin_id) -> str:
            return app.texts.of_plugin(plugin_id, text, locale)

        found.append(
            MyPlugin(
                id=plugin_id,
                title=title,
                summary=summary,
                tools=[MyTool(t.name, say(t.title) or t.name) for p, t in tools if p == plugin_id],
                pages=[
                    MyPage(page.page_id, say(page.title), f"/api/plugin/{plugin_id}/{page.entry.lstrip('/')}")
                    for p, page in pages
                    if p == plugin_id
                ],
                commands=[MyCommand(c.name, say(c.title), say(c.hint)) for p, c in commands if p == plugin_id],
                configurable=row.user_form is not None,
            )
        )
    return sorted(found, key=lambda plugin: (plugin.title.casefold(), plugin.id))


def _usable(request: AnyRequest, plugin: str) -> tuple[User, str]:
    """The caller and their locale. Raises NotFound for a plugin they may not use, as if it were not there."""
    app = runtime(request)
    user = caller(request)
    if plugin not in app.plugins.visible_to(user.id):
        raise NotFound(f"there is no plugin {plugin!r} for you", code="plugin_not_found")
    return user, app.texts.resolve(user.locale)


@get("/api/my/plugins/{plugin:str}/config", guards=[signed_in])
async def my_config(request: AnyRequest, plugin: FromPath[str]) -> FormView:
    """The form of the caller's own settings."""
    user, locale = _usable(request, plugin)
    return await runtime(request).settings_desk.view(plugin, locale, user)


@put("/api/my/plugins/{plugin:str}/config", guards=[signed_in])
async def configure_mine(request: AnyRequest, plugin: FromPath[str], data: JSONBody[ConfigBody]) -> FormView:
    """Save the caller's own settings; they count from the next time the plugin asks."""
    user, locale = _usable(request, plugin)
    desk = runtime(request).settings_desk
    await desk.save(plugin, data.values, locale, user)
    return await desk.view(plugin, locale, user)


@post("/api/my/plugins/{plugin:str}/config/test", guards=[signed_in], status_code=200)
async def try_mine(request: AnyRequest, plugin: FromPath[str], data: JSONBody[ConfigBody]) -> TestResult:
    """Have the plugin try the caller's settings before they are saved."""
    user, locale = _usable(request, plugin)
    return await runtime(request).settings_desk.test(plugin, data.values, locale, user)


HANDLERS = (mine, my_config, configure_mine, try_mine)
