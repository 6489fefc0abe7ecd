"""A signed-in connection to a running server, over the same HTTP and WebSocket the browser uses."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import json
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any, Literal

import httpx
import msgspec

from skald_core.errors import SkaldError

__all__ = (
    "EXIT_AUTH",
    "EXIT_CONFIG",
    "EXIT_ERROR",
    "EXIT_INTERRUPTED",
    "EXIT_TERMINATED",
    "EXIT_USAGE",
    "CliError",
    "Client",
    "ServerError",
)

DEFAULT_URL = "http://127.0.0.1:9000"

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_CONFIG = 3
EXIT_AUTH = 4
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


class CliError(SkaldError):
    """Told to the person as it is; the program ends with ``exit_status``."""

    def __init__(self, detail: str, exit_status: int = EXIT_ERROR) -> None:
        super().__init__(detail)
        self.exit_status = exit_status


class ServerError(CliError):
    """The server refused a request; ``code`` is its stable name for why."""

    def __init__(self, detail: str, status: int, code: str) -> None:
        super().__init__(detail, EXIT_AUTH if status in (401, 403, 429) else EXIT_ERROR)
        self.http_status = status
        self.code = code


class _Head(msgspec.Struct):
    """What every frame of a live socket has, as far as following a conversation needs it."""

    type: str
    conversation: str = ""
    seq: int = 0
    epoch: str = ""
    conversation_id: str = ""
    detail: str = ""


_head = msgspec.json.Decoder(_Head).decode


class Client:
    """The session token is kept in a file only its owner can read."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.http = httpx.AsyncClient(base_url=self.url, timeout=60.0, trust_env=False)
        self._user: str | None = None

    @classmethod
    async def sign_in(cls, url: str | None, user: str | None) -> Client:
        """Use the stored session, else ask. Raises CliError with what to do."""
        client = cls(url or os.environ.get("SKALD_URL") or DEFAULT_URL)
        try:
            await client._sign_in(user)
        except BaseException:
            await client.close()
            raise
        return client

    async def _sign_in(self, user: str | None) -> None:
        stored = _load_sessions().get(self.url)
        if stored and not user and "SKALD_PASSWORD" not in os.environ:
            self.http.cookies.set("skald_session", stored)
            if (await self._request("GET", "/api/auth/me")).status_code == 200:
                return
            self.http.cookies.clear()
        name = user or os.environ.get("SKALD_USER")
        password = os.environ.get("SKALD_PASSWORD")
        if name is None or password is None:
            if not sys.stdin.isatty():
                text = "sign in first: set SKALD_USER and SKALD_PASSWORD, or run 'skald chat' in a terminal once"
                raise CliError(text, EXIT_AUTH)
            name = name or (await asyncio.to_thread(input, "User name: "))
            password = password or (await asyncio.to_thread(getpass.getpass, "Password: "))
        assert name is not None
        assert password is not None
        self._user = name
        await self._log_in(name, password)

    async def _log_in(self, name: str, password: str) -> None:
        self.http.cookies.clear()
        await self.call("POST", "/api/auth/login", {"username": name, "password": password})
        _save_session(self.url, self.http.cookies.get("skald_session") or "")

    async def _request(self, method: str, path: str, body: Any = None) -> httpx.Response:
        try:
            return await self.http.request(method, path, json=body)
        except (httpx.TransportError, httpx.InvalidURL):
            text = f"no Skald answers at {self.url}; start it with 'skald serve' (or ./run.sh), or give --url"
            raise CliError(text, EXIT_CONFIG) from None

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """A JSON answer. Raises ServerError with the server's own sentence, CliError when none answers."""
        answer = await self._request(method, path, body)
        if answer.status_code >= 400:
            try:
                problem = answer.json()
                detail, code = str(problem["detail"]), str(problem["code"])
            except (ValueError, KeyError, TypeError):
                detail, code = f"the server answered {answer.status_code}", ""
            raise ServerError(detail, answer.status_code, code)
        return answer.json() if answer.content else None

    async def read(self, path: str) -> bytes:
        """The bytes at ``path``. Raises like :meth:`call`."""
        answer = await self._request("GET", path)
        if answer.status_code >= 400:
            await self.call("GET", path)  # for the server's sentence
        return answer.content

    @contextlib.asynccontextmanager
    async def events(self, conversation: str) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """The live events of one conversation; it is subscribed, and its snapshot read, when the block begins.

        Reconnects and resumes by itself; a later ``snapshot`` event means that some events could not be had again.
        """

        async def decoded() -> AsyncGenerator[dict[str, Any], None]:
            async with contextlib.aclosing(self.frames(conversation, "client")) as frames:
                async for frame in frames:
                    yield json.loads(frame)

        async with contextlib.aclosing(decoded()) as stream:
            await anext(stream)
            yield stream

    async def frames(self, conversation: str, events: Literal["client", "loop"]) -> AsyncGenerator[str, None]:
        """The frames the server sends about one conversation, each once and in order, over lost connections.

        The first one is a ``snapshot`` (``following`` for loop events), and so is one after a gap. Raises CliError when the
        session ended and the password is not at hand, or the conversation is gone.
        """
        from websockets.asyncio.client import connect
        from websockets.exceptions import WebSocketException

        url = "ws" + self.url.removeprefix("http") + "/api/ws"
        anew = {"client": "snapshot", "loop": "following"}[events]
        epoch: str | None = None
        after: int | None = None
        pause = 0.2
        while True:
            cookie = f"skald_session={self.http.cookies.get('skald_session')}"
            try:
                async with connect(
                    url, additional_headers={"Cookie": cookie}, max_size=None, max_queue=None, proxy=None
                ) as socket:
                    ask = {"type": "subscribe", "conversation": conversation, "epoch": epoch, "after": after}
                    await socket.send(json.dumps(ask | ({"events": "loop"} if events == "loop" else {})))
                    async for frame in socket:
                        assert isinstance(frame, str)
                        head = _head(frame.encode())
                        if head.type == "signed_out":
                            await self._sign_in_again()
                            break
                        if head.type == "refused" and head.conversation_id == conversation:
                            raise CliError(head.detail)
                        if head.conversation != conversation:
                            continue
                        pause = 0.2
                        if head.type == anew:
                            epoch = head.epoch
                        elif after is not None and head.seq <= after:
                            continue
                        after = head.seq
                        yield frame
            except (OSError, WebSocketException):
                pass
            await asyncio.sleep(pause)
            pause = min(pause * 2, 5.0)

    async def _sign_in_again(self) -> None:
        """After the server ended the session, such as by a restart that locked encrypted data."""
        name, password = self._user or os.environ.get("SKALD_USER"), os.environ.get("SKALD_PASSWORD")
        if name is None or password is None:
            raise CliError("you were signed out; run the command again", EXIT_AUTH)
        await self._log_in(name, password)

    async def close(self) -> None:
        await self.http.aclose()


def _session_file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "skald" / "sessions.json"


def _load_sessions() -> dict[str, str]:
    try:
        loaded = json.loads(_session_file().read_text())
    except (OSError, ValueError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def _save_session(url: str, token: str) -> None:
    path = _session_file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_suffix(".new")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as handle:
        json.dump(_load_sessions() | {url: token}, handle)
    fresh.replace(path)
