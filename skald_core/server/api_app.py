"""The API: the kernel's application, and one small application for each running plugin's routes and files.

The kernel's is built once. A plugin's is built when the plugin starts, which is also the trial of its routes, and is there
for exactly as long as the plugin: nobody else's requests notice that it comes or goes. Litestar starts and stops nothing.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import mimetypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litestar import Controller, Litestar, Request, Response, Router, get
from litestar.config.app import AppConfig
from litestar.datastructures import State
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.params import FromPath
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin
from litestar.types import ASGIApp, ExceptionHandlersMap, Receive, Send

from skald_core.errors import NotFound
from skald_core.identity.models import User
from skald_core.server.guards import plugin_granted, signed_in
from skald_core.server.problems import exception_handlers
from skald_core.server.routes import HANDLERS
from skald_core.version import VERSION

if TYPE_CHECKING:
    from skald_core.runtime.app import Skald

__all__ = ("Api", "OpenApiDocument", "build_kernel", "plugin_app_builder")

log = logging.getLogger("skald.server")

MAX_BODY = 2 * 1024 * 1024
"""Bytes of a JSON request. A longer chat message belongs into a file."""

PREFIX = "/api/plugin/"


class ApiApp(Litestar):
    """Litestar with msgspec only: its search for pydantic, attrs and OpenTelemetry imports them, or tries to, at every
    construction, which costs more than all else for types and spans that no route uses."""

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]

    @staticmethod
    def _patch_opentelemetry_middleware(config: AppConfig) -> AppConfig:
        return config


class Api:
    """The ASGI application below ``/api/``: ``/api/plugin/<id>/…`` goes to that plugin's own, everything else, also what no
    plugin answers, to the kernel's."""

    def __init__(self, kernel: ASGIApp, plugin_app: Callable[[str], ASGIApp | None]) -> None:
        self.kernel = kernel
        self._plugin_app = plugin_app

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        app: ASGIApp | None = None
        if path.startswith(PREFIX):
            app = self._plugin_app(path[len(PREFIX) :].partition("/")[0])
        await (app or self.kernel)(scope, receive, send)


# --- plugins -----------------------------------------------------------------------------------------------------


def plugin_app_builder(app: Skald) -> Callable[[str, Sequence[Any], Path | None], Litestar | None]:
    """What makes an application of a plugin's handlers; None for a plugin without routes and files."""
    handlers: list[ExceptionHandlersMap] = []

    def build(plugin_id: str, routes: Sequence[Any], package_dir: Path | None) -> Litestar | None:
        if not handlers:
            handlers.append(_exception_handlers(app))
        router = plugin_router(plugin_id, routes, package_dir)
        if router is None:
            return None
        return ApiApp(
            [router],
            state=State({"skald": app}),
            exception_handlers=handlers[0],
            request_max_body_size=MAX_BODY,
            openapi_config=None,
            logging_config=None,
        )

    return build


def plugin_router(plugin_id: str, handlers: Sequence[Any], package_dir: Path | None) -> Router | None:
    """A plugin's routes below ``/api/plugin/<id>/``, signed in, while it runs and the caller may use it.

    Raises ValueError for a path that is taken, and whatever Litestar raises for handlers it cannot use.
    """
    web = _web_files(package_dir / "web") if package_dir is not None else None
    _refuse_duplicates([*handlers, *([web] if web is not None else [])])
    if web is None and not handlers:
        return None
    return Router(
        path=f"{PREFIX}{plugin_id}",
        route_handlers=[*(copy.copy(h) for h in handlers), *([web] if web is not None else [])],
        guards=[signed_in, plugin_granted(plugin_id)],
        tags=[f"plugin {plugin_id}"],
    )


def _refuse_duplicates(handlers: Sequence[Any]) -> None:
    """Raises ValueError for two handlers of one method and path: a router would silently keep one of them. Also for a kind
    of handler that is not served."""
    seen: set[tuple[str, str]] = set()
    for handler in handlers:
        single = isinstance(handler, HTTPRouteHandler)
        several = isinstance(handler, Router) or (isinstance(handler, type) and issubclass(handler, Controller))
        if not single and not several:
            raise ValueError(
                f"{handler!r} is no HTTP route handler, Router or Controller; decorate functions with litestar's @get, "
                "@post …, and send live events with ctx.publish instead of a WebSocket"
            )
        for key in _paths("", handler):
            if key in seen:
                raise ValueError(f"two handlers answer {key[0]} {key[1]!r}; remove one or give it another path")
            seen.add(key)


def _paths(prefix: str, handler: Any) -> list[tuple[str, str]]:
    """(method, path) of everything in a handler, router or controller class."""
    if isinstance(handler, HTTPRouteHandler):
        paths = ("/" + f"{prefix}/{path}".replace("//", "/").strip("/") for path in handler.paths)
        return [(str(method), path) for path in paths for method in handler.http_methods]
    if isinstance(handler, Router):
        return [
            (str(method), "/" + f"{prefix}/{route.path}".replace("//", "/").strip("/"))
            for route in handler.routes
            for method in getattr(route, "methods", ())
        ]
    members = [getattr(handler, name, None) for name in dir(handler)]
    inner = f"{prefix}/{getattr(handler, 'path', '') or ''}"
    return [key for member in members if isinstance(member, HTTPRouteHandler) for key in _paths(inner, member)]


def _web_files(folder: Path) -> Any:
    root = folder.resolve()
    if not root.is_dir():
        return None

    @get("/web/{file:path}", include_in_schema=False)
    async def web(file: FromPath[Path]) -> Response[bytes]:
        target, body = await asyncio.to_thread(_file_below, root, str(file).lstrip("/"))
        media = {".js": "text/javascript", ".mjs": "text/javascript"}.get(target.suffix)
        return Response(
            body,
            media_type=media or mimetypes.guess_type(target.name)[0] or "application/octet-stream",
            headers={"Cache-Control": "no-cache"},
        )

    return web


def _file_below(root: Path, name: str) -> tuple[Path, bytes]:
    """Raises NotFound for what is not a file inside ``root``, links followed."""
    try:
        target = (root / name).resolve()
        if target.is_relative_to(root) and target.is_file():
            return target, target.read_bytes()
    except (OSError, ValueError):  # a name no file system takes
        pass
    raise NotFound("There is nothing here.")


# --- the kernel --------------------------------------------------------------------------------------------------


def _exception_handlers(app: Skald) -> ExceptionHandlersMap:
    def locale_of(request: Request[Any, Any, Any]) -> str:
        user = request.scope.get("skald_user")
        if isinstance(user, User) and user.locale:
            return user.locale
        return request.headers.get("accept-language", "").partition(",")[0].partition(";")[0]

    def translate(key: str, locale: str, params: dict[str, object]) -> str | None:
        found = app.texts.find(key, locale)
        return None if found is None else app.texts.t(key, locale, params)

    return exception_handlers(translate, locale_of)


def build_kernel(app: Skald) -> Litestar:
    """The kernel's own routes."""
    return ApiApp(
        HANDLERS,
        state=State({"skald": app}),
        exception_handlers=_exception_handlers(app),
        request_max_body_size=MAX_BODY,
        openapi_config=None,
        logging_config=None,
    )


class OpenApiDocument:
    """The OpenAPI document of the kernel's routes and every running plugin's, made when somebody asks, off the event loop,
    and kept until the plugins change. A plugin whose routes no document can be made of is left out of it, with a problem."""

    def __init__(self, app: Skald) -> None:
        self._app = app
        self._made: tuple[int, dict[str, Any]] | None = None
        self._lock = asyncio.Lock()

    async def get(self) -> dict[str, Any]:
        async with self._lock:
            version = self._app.plugins.contributed.version
            if self._made is None or self._made[0] != version:
                parts = self._app.plugins.contributed.routes()
                document = await asyncio.to_thread(self._make, parts)
                self._made = (version, document)
            return self._made[1]

    def _make(self, parts: dict[str, list[Any]]) -> dict[str, Any]:
        routers: list[Any] = []
        for plugin_id, handlers in parts.items():
            try:
                router = plugin_router(plugin_id, handlers, None)
                _document([router])
                routers.append(plugin_router(plugin_id, handlers, None))
            except Exception as error:  # noqa: BLE001 -- types of a plugin's routes can raise anything here
                log.warning("plugin %s: its routes cannot be described: %s", plugin_id, error)
                row = self._app.plugins.rows.get(plugin_id)
                text = f"its routes cannot be described in the OpenAPI document: {error}"
                if row is not None and text not in row.problems:
                    row.problems.append(text)
        return _document([*HANDLERS, *routers])


def _document(handlers: Sequence[Any]) -> dict[str, Any]:
    made = ApiApp(
        [copy.copy(h) for h in handlers],
        openapi_config=OpenAPIConfig(title="Skald", version=VERSION, use_handler_docstrings=True),
        logging_config=None,
    )
    return made.openapi_schema.to_schema()
