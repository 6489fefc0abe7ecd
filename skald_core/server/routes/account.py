"""Set-up, sign-in, the caller's own account, and the list of users."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, Response, delete, get, patch, post, put
from litestar.datastructures import Cookie
from litestar.params import FromPath, JSONBody

from skald_core.identity.models import User
from skald_core.identity.passwords import MIN_LENGTH
from skald_core.identity.sessions import LIFETIME
from skald_core.runtime.i18n import LOCALES
from skald_core.server.guards import COOKIE, caller, capability, context_of, peer_address, public, runtime, signed_in

__all__ = ("HANDLERS",)

AnyRequest = Request[Any, Any, Any]
Short = Annotated[str, msgspec.Meta(max_length=200)]
Secret = Annotated[str, msgspec.Meta(max_length=4096)]


class SetupState(msgspec.Struct):
    needed: bool
    locales: tuple[str, ...]
    password_min: int


class SetupBody(msgspec.Struct):
    token: Short
    username: Short
    password: Secret
    display_name: Short = ""
    encrypted: bool = True
    locale: Short = ""


class LoginBody(msgspec.Struct):
    username: Short
    password: Secret


class ProfileBody(msgspec.Struct):
    display_name: Short | None = None
    locale: Short | None = None


class PasswordBody(msgspec.Struct):
    old: Secret
    new: Secret


class ResetBody(msgspec.Struct):
    new: Secret


class UserBody(msgspec.Struct):
    username: Short
    password: Secret
    display_name: Short = ""
    role: Short = "member"
    encrypted: bool = True
    locale: Short = ""


class ChangeUserBody(msgspec.Struct, forbid_unknown_fields=True):
    display_name: Short | None = None
    role: Short | None = None
    active: bool | None = None


class DeleteUserBody(msgspec.Struct):
    password: Secret


class GatePlugin(msgspec.Struct):
    id: str
    title: str


class Me(msgspec.Struct):
    id: str
    username: str
    display_name: str
    role: str
    capabilities: list[str]
    encrypted: bool
    locale: str
    instance_locale: str
    gate: bool
    gate_plugins: list[GatePlugin]


def _me(request: AnyRequest, user: User) -> Me:
    app = runtime(request)
    locale = app.texts.resolve(user.locale)
    return Me(
        id=user.id,
        username=user.username,
        display_name=user.display_name,
        role=user.role,
        capabilities=sorted(app.roles.capabilities(user.role)),
        encrypted=user.encrypted,
        locale=user.locale,
        instance_locale=app.texts.instance_locale,
        gate=bool(app.plugins.judging()),
        gate_plugins=[
            GatePlugin(row.id, row.found.manifest.localized(locale)[0] if row.found.manifest else row.id)
            for row in app.plugins.could_judge()
        ],
    )


def _cookie(request: AnyRequest, token: str, *, age: int) -> Cookie:
    app = runtime(request)
    secure = app.settings.behind_tls or request.url.scheme == "https"
    return Cookie(key=COOKIE, value=token, max_age=age, path="/", httponly=True, samesite="strict", secure=secure)


@get("/api/setup", guards=[public])
async def setup_state(request: AnyRequest) -> SetupState:
    """Whether the first account is still to be made."""
    return SetupState(await runtime(request).users.count() == 0, LOCALES, MIN_LENGTH)


@post("/api/setup", guards=[public], status_code=200)
async def setup(request: AnyRequest, data: JSONBody[SetupBody]) -> Response[Me]:
    """Make the first account, an administrator's, with the one-time token of the console; signs in."""
    app = runtime(request)
    user, token = await app.set_up(
        token=data.token,
        username=data.username,
        password=data.password,
        display_name=data.display_name,
        encrypted=data.encrypted,
        locale=data.locale if data.locale in LOCALES else "",
        address=peer_address(request),
    )
    return Response(_me(request, user), cookies=[_cookie(request, token, age=int(LIFETIME))])


@post("/api/auth/login", guards=[public], status_code=200)
async def login(request: AnyRequest, data: JSONBody[LoginBody]) -> Response[Me]:
    """Sign in and open the user's data."""
    app = runtime(request)
    agent = request.headers.get("user-agent", "")
    user, token = await app.sign_in(data.username, data.password, address=peer_address(request), client=agent)
    return Response(_me(request, user), cookies=[_cookie(request, token, age=int(LIFETIME))])


@post("/api/auth/logout", guards=[public], status_code=204)
async def logout(request: AnyRequest) -> Response[None]:
    """End this session. Never fails."""
    token = request.cookies.get(COOKIE)
    if token:
        await runtime(request).sign_out(token)
    return Response(None, status_code=204, cookies=[_cookie(request, "", age=0)])


@get("/api/auth/me", guards=[signed_in])
async def me(request: AnyRequest) -> Me:
    return _me(request, caller(request))


@put("/api/auth/profile", guards=[signed_in])
async def profile(request: AnyRequest, data: JSONBody[ProfileBody]) -> Me:
    """Change one's own name or language."""
    changes: dict[str, str] = {}
    if data.display_name is not None:
        changes["display_name"] = data.display_name
    if data.locale is not None:
        changes["locale"] = data.locale if data.locale in LOCALES else ""
    app = runtime(request)
    user = await app.users.update(caller(request).id, **changes)
    (await context_of(request)).user = user
    return _me(request, user)


@post("/api/auth/password", guards=[signed_in], status_code=204)
async def password(request: AnyRequest, data: JSONBody[PasswordBody]) -> Response[None]:
    """Change one's password; every other session ends before the answer is sent."""
    app = runtime(request)
    token = await app.change_password(caller(request), data.old, data.new, address=peer_address(request))
    return Response(None, status_code=204, cookies=[_cookie(request, token, age=int(LIFETIME))])


@get("/api/users", guards=[capability("users.manage")])
async def users(request: AnyRequest) -> list[User]:
    return await runtime(request).users.all()


@post("/api/users", guards=[capability("users.manage")], status_code=201)
async def add_user(request: AnyRequest, data: JSONBody[UserBody]) -> User:
    """Create an account. The new user signs in with the given password."""
    return await runtime(request).accounts.add(
        caller(request),
        username=data.username,
        password=data.password,
        display_name=data.display_name,
        role=data.role,
        encrypted=data.encrypted,
        locale=data.locale if data.locale in LOCALES else "",
    )


@patch("/api/users/{user:str}", guards=[capability("users.manage")])
async def change_user(request: AnyRequest, user: FromPath[str], data: JSONBody[ChangeUserBody]) -> User:
    """Rename an account, give it another role, or switch it off or on. Switching off ends all of its sessions, sockets and
    turns before this answers."""
    return await runtime(request).accounts.change(
        caller(request), user, display_name=data.display_name, role=data.role, active=data.active
    )


@delete("/api/users/{user:str}", guards=[capability("users.manage")], status_code=204)
async def delete_user(request: AnyRequest, user: FromPath[str], data: JSONBody[DeleteUserBody]) -> None:
    """Delete an account with all of its data, for good. Takes the caller's own password."""
    await runtime(request).accounts.delete(caller(request), user, data.password, address=peer_address(request))


@post("/api/users/{user:str}/password", guards=[capability("users.manage")], status_code=204)
async def reset_password(request: AnyRequest, user: FromPath[str], data: JSONBody[ResetBody]) -> None:
    """Give an unencrypted user a new password; their sessions and sockets end before this answers."""
    app = runtime(request)
    await app.accounts.demand(caller(request), user)
    await app.users.reset_password(user, data.new)
    app.close_sockets(user)
    await app.audit(caller(request), "user.reset_password", user)


HANDLERS = (
    setup_state, setup, login, logout, me, profile, password, users, add_user, change_user, delete_user, reset_password,
)  # fmt: skip
