"""Who may call a route. Every route names exactly one of these guards; a test fails for one that does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.types import Guard

from skald_core.errors import Forbidden, NotFound, NotSignedIn
from skald_core.identity.models import User

if TYPE_CHECKING:
    from skald_core.runtime.app import Skald
    from skald_core.runtime.user_context import UserContext

__all__ = (
    "COOKIE",
    "caller",
    "capability",
    "peer_address",
    "context_of",
    "is_guard",
    "plugin_granted",
    "plugins_for",
    "public",
    "runtime",
    "signed_in",
)

COOKIE = "skald_session"

Connection = ASGIConnection[Any, Any, Any, Any]
AnyRequest = Request[Any, Any, Any]


def runtime(connection: Connection) -> Skald:
    return connection.app.state.skald  # type: ignore[no-any-return]  # put there by the app factory


async def public(connection: Connection, handler: BaseRouteHandler) -> None:
    """Anyone, also without signing in."""


async def signed_in(connection: Connection, handler: BaseRouteHandler) -> None:
    """An active user whose data is open."""
    await _authenticate(connection)


def capability(name: str) -> Guard:
    """A signed-in user whose role holds ``name``."""

    async def guard(connection: Connection, handler: BaseRouteHandler) -> None:
        user = await _authenticate(connection)
        demand(runtime(connection), user, name)

    guard.__qualname__ = f"capability({name})"
    guard.skald_guard = True  # type: ignore[attr-defined]  # what is_guard looks for
    return guard


def plugin_granted(plugin_id: str) -> Guard:
    """A plugin's route exists only while the plugin runs and the caller may use it; then it may ask for a capability."""

    def guard(connection: Connection, handler: BaseRouteHandler) -> None:
        user = connection.scope.get("skald_user")
        app = runtime(connection)
        if not isinstance(user, User) or plugin_id not in app.plugins.visible_to(user.id):
            raise NotFound("There is nothing here.")
        needed = handler.opt.get("capability")
        if isinstance(needed, str):
            demand(app, user, needed)

    return guard


def demand(app: Skald, user: User, name: str) -> None:
    """Raises Forbidden when the user's role lacks the capability."""
    if not app.roles.allows(user.role, name):
        raise Forbidden(f"this needs the capability {name!r}", capability=name)


async def _authenticate(connection: Connection) -> User:
    token = connection.cookies.get(COOKIE)
    app = runtime(connection)
    user = await app.authenticate(token)
    if user is None:
        raise NotSignedIn("Please sign in.")
    connection.scope["skald_user"] = user  # type: ignore[typeddict-unknown-key]  # request-scoped
    await app.require_open(user)
    return user


def caller(request: AnyRequest) -> User:
    """The signed-in user of a request behind ``signed_in`` or ``capability``."""
    user = request.scope.get("skald_user")
    if not isinstance(user, User):
        raise NotSignedIn("Please sign in.")
    return user


async def plugins_for(request: AnyRequest) -> frozenset[str] | None:
    """The plugins somebody may hear of on a public route: None, so all, for who manages them; those they may use for everyone
    else; none for who has not signed in."""
    app = runtime(request)
    user = await app.authenticate(request.cookies.get(COOKIE))
    if user is None:
        return frozenset()
    return None if app.roles.allows(user.role, "plugin.manage") else app.plugins.visible_to(user.id)


async def context_of(request: AnyRequest) -> UserContext:
    """The caller's running context."""
    return await runtime(request).context(caller(request))


def is_guard(guard: Any) -> bool:
    return guard in (public, signed_in) or getattr(guard, "skald_guard", False)


def peer_address(request: AnyRequest) -> str:
    """The peer's address; a forwarded one only from a configured proxy."""
    peer = request.client.host if request.client else ""
    if peer in runtime(request).settings.trusted_proxies:
        forwarded = request.headers.get("x-forwarded-for", "")
        return forwarded.rpartition(",")[2].strip() or peer
    return peer
