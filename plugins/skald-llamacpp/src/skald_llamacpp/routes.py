"""The page's calls. All of them need ``models.manage``: they show paths of this machine and change what runs on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

import msgspec
from litestar import Request, get, post
from litestar.params import JSONBody

from skald_core.api import ConfigError, PluginContext, User
from skald_llamacpp.library import Library, LibraryError
from skald_llamacpp.texts import tell

__all__ = ("build",)

AnyRequest = Request[Any, Any, Any]

_MANAGE = {"capability": "models.manage"}


class ModelBody(msgspec.Struct, frozen=True):
    model: Annotated[str, msgspec.Meta(min_length=1, max_length=120)]


class PathBody(msgspec.Struct, frozen=True):
    path: Annotated[str, msgspec.Meta(max_length=4096)]


class Refused(ConfigError):
    """A LibraryError in the caller's words; the server answers it as a problem with this ``kind`` as its code."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = f"llamacpp_{code}"


def build(ctx: PluginContext, library: Library) -> Sequence[Any]:
    """The route handlers of one enabled plugin."""

    async def act(request: AnyRequest, work: Callable[[], Awaitable[object]]) -> dict[str, Any]:
        """Do it and answer with the state afterwards."""
        locale = _locale(request)
        try:
            await work()
        except LibraryError as error:
            raise Refused(error.code, tell(ctx, error.code, error.values, locale)) from None
        return await library.status(locale)

    @get("/status", opt=_MANAGE)
    async def status(request: AnyRequest) -> dict[str, Any]:
        """The models, their state, and what this machine has."""
        return await library.status(_locale(request))

    @post("/download", opt=_MANAGE, status_code=200)
    async def download(request: AnyRequest, data: JSONBody[ModelBody]) -> dict[str, Any]:
        """Begin or go on with a download."""
        return await act(request, lambda: library.download(data.model))

    @post("/cancel", opt=_MANAGE, status_code=200)
    async def cancel(request: AnyRequest, data: JSONBody[ModelBody]) -> dict[str, Any]:
        """Pause a download; what was received stays."""
        return await act(request, lambda: library.cancel(data.model))

    @post("/use", opt=_MANAGE, status_code=200)
    async def use(request: AnyRequest, data: JSONBody[ModelBody]) -> dict[str, Any]:
        """Offer a model in chats and load it."""
        return await act(request, lambda: library.use(data.model))

    @post("/unload", opt=_MANAGE, status_code=200)
    async def unload(request: AnyRequest, data: JSONBody[ModelBody]) -> dict[str, Any]:
        """Take a model out of memory."""
        return await act(request, lambda: library.unload(data.model))

    @post("/remove", opt=_MANAGE, status_code=200)
    async def remove(request: AnyRequest, data: JSONBody[ModelBody]) -> dict[str, Any]:
        """Stop offering a model; a downloaded file is deleted."""
        return await act(request, lambda: library.remove(data.model))

    @post("/add-path", opt=_MANAGE, status_code=200)
    async def add_path(request: AnyRequest, data: JSONBody[PathBody]) -> dict[str, Any]:
        """Offer a GGUF file that is on this machine."""
        return await act(request, lambda: library.add_path(data.path))

    return [status, download, cancel, use, unload, remove, add_path]


def _locale(request: AnyRequest) -> str:
    user = request.scope.get("skald_user")
    if isinstance(user, User) and user.locale:
        return user.locale
    return request.headers.get("accept-language", "").partition(",")[0].partition(";")[0].strip()
