"""Talking with an app of :mod:`skald_core.testing` in small steps: send, wait until something happens, answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from skald_core.runtime.feed import Subscriber
from skald_core.runtime.user_context import UserContext
from skald_core.testing import ScriptedProvider, TestApp, TestClient

__all__ = ("answered", "context_of", "history", "new", "said", "until_event", "waiting_request", "wire")

WITHIN = 20.0


async def context_of(app: TestApp, client: TestClient) -> UserContext:
    assert client.user is not None
    return await app.skald.context(await app.skald.users.get(client.user["id"]))


async def new(client: TestClient) -> str:
    """A new conversation's id."""
    return str((await client.post("/api/conversations"))["id"])


async def said(client: TestClient, words: str, conversation: str, client_id: str = "") -> tuple[int, dict[str, Any]]:
    """Send a message; the answer's status and body."""
    body = {"client_id": client_id or words, "content": words}
    answer = await client.request("POST", f"/api/conversations/{conversation}/messages", body)
    return answer.status_code, answer.json()


async def history(client: TestClient, conversation: str) -> list[dict[str, Any]]:
    return list((await client.get(f"/api/conversations/{conversation}/messages"))["items"])


async def until_event(
    app: TestApp, client: TestClient, conversation: str, wanted: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """The next event of a conversation that is wanted; one that came before this call does not count."""
    context = await context_of(app, client)
    subscriber = Subscriber()
    subscriber.conversations.add(conversation)
    context.feed.attach(subscriber)
    try:
        async with asyncio.timeout(WITHIN):
            while (payloads := await subscriber.get()) is not None:
                for payload in payloads:
                    event: dict[str, Any] = msgspec.json.decode(payload)
                    if wanted(event):
                        return event
    finally:
        context.feed.detach(subscriber)
    raise AssertionError("the feed was closed")


async def waiting_request(app: TestApp, client: TestClient, conversation: str) -> dict[str, Any]:
    """The one request that waits for a person, as soon as there is one."""
    context = await context_of(app, client)
    subscriber = Subscriber()
    subscriber.conversations.add(conversation)
    context.feed.attach(subscriber)  # before looking: what is asked meanwhile wakes us
    try:
        async with asyncio.timeout(WITHIN):
            while not (items := (await client.get("/api/inbox?status=pending"))["items"]):
                await subscriber.get()
    finally:
        context.feed.detach(subscriber)
    (request,) = items
    return dict(request)


async def answered(app: TestApp, client: TestClient, conversation: str, choice: str) -> dict[str, Any]:
    """Answer the one request that waits, as soon as it does; returns it as it was."""
    request = await waiting_request(app, client, conversation)
    await client.post(f"/api/requests/{request['id']}/answer", {"choice": choice})
    return request


def wire(provider: ScriptedProvider, request: int = -1) -> str:
    """Everything a request told the model, as text."""
    asked = provider.requests[request]
    parts = [part for message in asked.messages for part in message.parts]
    return "\n".join([*(block.text for block in asked.system), *(getattr(part, "text", "") for part in parts)])
