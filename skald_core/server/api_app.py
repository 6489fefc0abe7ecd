"""The API: the kernel's application, and one small application for each running plugin's routes.

The kernel's is built once, and serves the files of plugins too. A plugin's is built when the plugin starts, which is also
the trial of its routes, and is there for exactly as long as the plugin: nobody else's requests notice that it comes or goes.
Litestar starts and stops nothing.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from litestar import Controller, Litestar, Request, Router
from litestar.config.app import AppConfig
from litestar.datastructures import State
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin
from litestar.types import ASGIApp, ExceptionHandlersMap, Receive, Send

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
    """The ASGI application below ``/api/``: ``/api/plugin/<id>/…`` goes to that plugin's own, everything else to the kernel's,
    also the files of a plugin's package and what no plugin answers."""

    def __init__(self, kernel: ASGIApp, plugin_app: Callable[[str], ASGIApp | None]) -> None:
        self.kernel = kernel
        self._plugin_app = plugin_app

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        app: ASGIApp | None = None
        if path.startswith(PREFIX):
            plugin_id, _, rest = path[len(PREFIX) :].partition("/")
            if not rest.startswith("web/"):
                app = self._plugin_app(plugin_id)
        await (app or self.kernel)(scope, receive, send)


# --- plugins -----------------------------------------------------------------------------------------------------


def plugin_app_builder(app: Skald) -> Callable[[str, Sequence[Any]], Litestar | None]:
    """What makes an application of a plugin's handlers; None for a plugin without routes.

    Building it is the trial of the routes: raises ValueError for a path that is taken, and whatever Litestar raises for
    handlers it cannot use.
    """
    handlers: list[ExceptionHandlersMap] = []

    def build(plugin_id: str, routes: Sequence[Any]) -> Litestar | None:
        refuse_duplicates(routes)
        if not routes:
            return None
        if not handlers:
            handlers.append(_exception_handlers(app))
        return ApiApp(  # not a Router inside: Litestar would copy it deeply, which costs more than all the rest
            [_own(handler) for handler in routes],
            path=f"{PREFIX}{plugin_id}",
            guards=[signed_in, plugin_granted(plugin_id)],
            state=State({"skald": app}),
            exception_handlers=handlers[0],
            request_max_body_size=MAX_BODY,
            openapi_config=None,
            logging_config=None,
        )

    return build


def _own(handler: Any) -> Any:
    """A handler that may be registered: registering changes it, and the same one is built into several applications.
    (Routers and controllers are copied by Litestar itself.)"""
    return copy.copy(handler) if isinstance(handler, HTTPRouteHandler) else handler


def refuse_duplicates(handlers: Sequence[Any]) -> None:
    """Raises ValueError for two handlers of one method and path: a router would silently keep one of them. Also for a kind
    of handler that is not served, and for the place of the package's ``web/`` folder."""
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
            if key[1] == "/web" or key[1].startswith("/web/"):
                raise ValueError(
                    f"the path {key[1]!r} belongs to the files of the package's web/ folder; take another one"
                )
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
        self._made: dict[frozenset[str], dict[str, Any]] = {}
        self._version = -1
        self._lock = asyncio.Lock()

    async def get(self, only: Collection[str] | None = None) -> dict[str, Any]:
        """With the routes of ``only`` these plugins, or of all."""
        async with self._lock:
            contributed = self._app.plugins.contributed
            if self._version != contributed.version:
                self._version = contributed.version
                self._made.clear()
            parts = {p: routes for p, routes in contributed.routes().items() if only is None or p in only}
            key = frozenset(parts)
            if key not in self._made:
                self._made[key] = await asyncio.to_thread(self._make, parts)
            return self._made[key]

    def _make(self, parts: dict[str, list[Any]]) -> dict[str, Any]:
        routers: list[Any] = []
        for plugin_id, handlers in parts.items():
            try:
                _document([_described(plugin_id, handlers)])
                routers.append(_described(plugin_id, handlers))
            except Exception as error:  # noqa: BLE001 -- types of a plugin's routes can raise anything here
                log.warning("plugin %s: its routes cannot be described: %s", plugin_id, error)
                row = self._app.plugins.rows.get(plugin_id)
                text = f"its routes cannot be described in the OpenAPI document: {error}"
                if row is not None and text not in row.problems:
                    row.problems.append(text)
        return _document([*HANDLERS, *routers])


def _described(plugin_id: str, handlers: Sequence[Any]) -> Router:
    return Router(
        path=f"{PREFIX}{plugin_id}",
        route_handlers=[_own(handler) for handler in handlers],
        tags=[f"plugin {plugin_id}"],
    )


def _document(handlers: Sequence[Any]) -> dict[str, Any]:
    made = ApiApp(
        [_own(handler) for handler in handlers],
        openapi_config=OpenAPIConfig(title="Skald", version=VERSION, use_handler_docstrings=True),
        logging_config=None,
    )
    return made.openapi_schema.to_schema()
