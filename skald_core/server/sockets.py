"""The live socket of a client (docs/http-api.md, "WebSocket"). It lives outside the API application, so swapping that one
when a plugin comes or goes closes no socket."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from litestar.types import Receive, Scope, Send

from skald_core.errors import SkaldError
from skald_core.runtime.feed import Subscriber
from skald_core.runtime.loop_events import channel_of
from skald_core.server.guards import COOKIE

if TYPE_CHECKING:
    from skald_core.runtime.app import Skald
    from skald_core.runtime.user_context import UserContext

__all__ = ("Sockets",)

log = logging.getLogger("skald.server")

PING_SECONDS = 25.0
MAX_SUBSCRIPTIONS = 32

Id = Annotated[str, msgspec.Meta(max_length=64)]


class _Subscribe(msgspec.Struct, tag="subscribe"):
    conversation: Id
    epoch: Id | None = None
    after: int | None = None
    events: Literal["client", "loop"] = "client"


class _Unsubscribe(msgspec.Struct, tag="unsubscribe"):
    conversation: Id
    events: Literal["client", "loop"] = "client"


class _Pong(msgspec.Struct, tag="pong"):
    pass


class _Ping(msgspec.Struct, tag="ping"):
    pass


_decoder = msgspec.json.Decoder(_Subscribe | _Unsubscribe | _Pong | _Ping)


class Sockets:
    """ASGI application for ``/api/ws``."""

    def __init__(self, app: Skald) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        token = _cookie(scope)
        user = await self._app.authenticate(token)
        context: UserContext | None = None
        if user is not None:
            try:
                await self._app.require_open(user)
                context = await self._app.context(user)
            except SkaldError:
                context = None
        if user is None or context is None:
            # Accepted first: a browser shows no close code of a refused handshake.
            await send({"type": "websocket.accept", "subprotocol": None, "headers": []})
            await send(
                {"type": "websocket.send", "bytes": None, "text": '{"type":"signed_out","reason":"not_signed_in"}'}
            )
            await send({"type": "websocket.close", "code": 4401, "reason": "not signed in"})
            return
        await send({"type": "websocket.accept", "subprotocol": None, "headers": []})
        await self._serve(context, token, receive, send)

    async def _serve(self, context: UserContext, token: str | None, receive: Receive, send: Send) -> None:
        subscriber = Subscriber(session=token or "")
        context.feed.attach(subscriber)
        if await self._app.authenticate(token) is None:  # it ended after it was checked and before it could be closed
            subscriber.close("signed_out")
        hello = {"type": "hello", "epoch": context.feed.epoch, "user": context.user.id}
        subscriber.push(msgspec.json.encode(hello))
        writer = asyncio.create_task(self._write(subscriber, send), name="socket-write")
        pinger = asyncio.create_task(self._ping(subscriber, token), name="socket-ping")
        try:
            while True:
                message = await receive()
                if message["type"] != "websocket.receive":
                    return
                text = message.get("text")
                try:
                    command = _decoder.decode(text if text is not None else message.get("bytes") or b"")
                except (msgspec.DecodeError, RecursionError) as error:  # the latter: nested too deeply to be read
                    subscriber.push(msgspec.json.encode({"type": "refused", "detail": str(error)[:200]}))
                    continue
                await self._obey(context, subscriber, command)
        finally:
            context.feed.detach(subscriber)
            subscriber.close("gone")
            pinger.cancel()
            writer.cancel()
            await asyncio.gather(writer, pinger, return_exceptions=True)

    async def _obey(
        self, context: UserContext, subscriber: Subscriber, command: _Subscribe | _Unsubscribe | _Pong | _Ping
    ) -> None:
        match command:
            case _Subscribe(conversation, epoch, after, events):
                if len(subscriber.conversations) >= MAX_SUBSCRIPTIONS:
                    subscriber.conversations.clear()
                try:
                    if events == "loop":
                        await context.follow(subscriber, conversation, epoch, after)
                    else:
                        await context.subscribe(subscriber, conversation, epoch, after)
                except SkaldError as error:
                    subscriber.push(
                        msgspec.json.encode(
                            {
                                "type": "refused",
                                "conversation_id": conversation,
                                "code": error.code,
                                "detail": error.detail,
                            }
                        )
                    )
            case _Unsubscribe(conversation, events):
                subscriber.conversations.discard(channel_of(conversation) if events == "loop" else conversation)
            case _Ping():
                subscriber.push(b'{"type":"pong"}')
            case _Pong():
                pass

    async def _write(self, subscriber: Subscriber, send: Send) -> None:
        while (items := await subscriber.get()) is not None:
            for payload in items:
                await send({"type": "websocket.send", "bytes": None, "text": payload.decode()})
        code = {"slow": 4408, "signed_out": 4401, "shutdown": 1012}.get(subscriber.closed_reason, 1000)
        await send({"type": "websocket.close", "code": code, "reason": subscriber.closed_reason})

    async def _ping(self, subscriber: Subscriber, token: str | None) -> None:
        while True:
            await asyncio.sleep(PING_SECONDS)
            if await self._app.authenticate(token) is None:  # its days are over: nobody announces that
                subscriber.close("signed_out")
            subscriber.push(b'{"type":"ping"}')


def _cookie(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"cookie":  # parsed here: the standard library's parser raises for what others set beside it
            for part in value.decode("latin-1").split(";"):
                key, _, token = part.strip().partition("=")
                if key == COOKIE:
                    return str(token)
    return None
