"""Building the API application: the kernel's routes and those of the running plugins. It is rebuilt and swapped when a
plugin comes or goes; Litestar owns no start or stop of anything."""

from __future__ import annotations

import copy
import mimetypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litestar import Litestar, Request, Response, Router, get
from litestar.datastructures import State
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.params import FromPath
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin

from skald_core.errors import NotFound
from skald_core.identity.models import User
from skald_core.server.guards import plugin_enabled, signed_in
from skald_core.server.problems import exception_handlers
from skald_core.server.routes import HANDLERS
from skald_core.version import VERSION

if TYPE_CHECKING:
    from skald_core.runtime.app import Skald

__all__ = ("build_api", "trial")

MAX_BODY = 2 * 1024 * 1024
"""Bytes of a JSON request. A longer chat message belongs into a file."""


class ApiApp(Litestar):
    """Litestar with msgspec only: its search for pydantic and attrs imports them where they happen to be installed, which
    costs a third of a second at every start for types that no route uses."""

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]


def plugin_router(plugin_id: str, handlers: Sequence[Any], package_dir: Path | None) -> Router:
    """A plugin's routes below ``/api/plugin/<id>/``, signed in, while it runs and the caller may use it."""
    _refuse_duplicates(handlers)
    web = _web_files(package_dir / "web") if package_dir is not None else None
    return Router(
        path=f"/api/plugin/{plugin_id}",
        route_handlers=[*(copy.copy(h) for h in handlers), *([web] if web is not None else [])],
        guards=[signed_in, plugin_enabled],
        opt={"plugin": plugin_id},
        tags=[f"plugin {plugin_id}"],
    )


def _refuse_duplicates(handlers: Sequence[Any]) -> None:
    """Raises ValueError for two handlers of one method and path: a router would silently keep one of them."""
    seen: set[tuple[str, str]] = set()
    for handler in handlers:
        if isinstance(handler, HTTPRouteHandler):
            for key in ((method, path) for method in handler.http_methods for path in handler.paths):
                if key in seen:
                    raise ValueError(f"two handlers answer {key[0]} {key[1]!r}; remove one or give it another path")
                seen.add(key)


def _web_files(folder: Path) -> Any:
    root = folder.resolve()
    if not root.is_dir():
        return None

    @get("/web/{file:path}", include_in_schema=False)
    async def web(file: FromPath[Path]) -> Response[bytes]:
        target = (root / str(file).lstrip("/")).resolve()
        if not target.is_relative_to(root) or not target.is_file():
            raise NotFound("There is nothing here.")
        media = {".js": "text/javascript", ".mjs": "text/javascript"}.get(target.suffix)
        return Response(
            target.read_bytes(),
            media_type=media or mimetypes.guess_type(target.name)[0] or "application/octet-stream",
            headers={"Cache-Control": "no-cache"},
        )

    return web


def trial(plugin_id: str, handlers: Sequence[Any]) -> None:
    """Build an application of just these routes; raises what is wrong with them, hurting nobody."""
    ApiApp([plugin_router(plugin_id, handlers, None)], openapi_config=OpenAPIConfig("trial", "0"), logging_config=None)


def build_api(app: Skald, plugin_routes: Mapping[str, Sequence[Any]]) -> Litestar:
    def locale_of(request: Request[Any, Any, Any]) -> str:
        user = request.scope.get("skald_user")
        if isinstance(user, User) and user.locale:
            return user.locale
        return request.headers.get("accept-language", "").partition(",")[0].partition(";")[0]

    def translate(key: str, locale: str, params: dict[str, object]) -> str | None:
        found = app.texts.find(key, locale)
        return None if found is None else app.texts.t(key, locale, params)

    running = {
        row.id: row.found.package_dir for row in app.plugins.rows.values() if row.state in {"running", "starting"}
    }
    routers = [
        plugin_router(plugin_id, plugin_routes.get(plugin_id, ()), folder)
        for plugin_id, folder in running.items()
        if plugin_routes.get(plugin_id) or (folder is not None and (folder / "web").is_dir())
    ]
    return ApiApp(
        [*HANDLERS, *routers],
        state=State({"skald": app}),
        exception_handlers=exception_handlers(translate, locale_of),
        request_max_body_size=MAX_BODY,
        openapi_config=OpenAPIConfig(
            title="Skald",
            version=VERSION,
            path="/api/schema",
            render_plugins=[JsonRenderPlugin()],
            use_handler_docstrings=True,
        ),
        logging_config=None,
    )
