"""One streaming call to a model's server, repeated where that can help."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from skald_core.loop.errors import ConfigError
from skald_core.loop.provider import MessageStart, StreamEvent
from skald_core.loop.types import ModelRequest
from skald_core.runtime.streaming import StreamingClient
from skald_core.wire.address import ServerAddress
from skald_core.wire.bodies import encode_body, is_heavy, read_capped
from skald_core.wire.failures import Failed, Failure, ServerFailures
from skald_core.wire.retry import RetryPolicy

if TYPE_CHECKING:
    import httpx

__all__ = ("ModelCall", "ModelCaller")

MAX_ERROR_BODY = 256 * 1024
MAX_LESSONS = 5
"""How often one call is sent again because the server refused something that can be left out or put otherwise."""


class ModelCall(ABC):
    """One request in the words of its server's API. A provider makes one for each call; :class:`ModelCaller` runs it.

    ``refusals`` are the HTTP statuses :meth:`learn` can make something of.
    """

    refusals: ClassVar[frozenset[int]] = frozenset({400, 422})

    def __init__(self, request: ModelRequest, failures: ServerFailures) -> None:
        self.request = request
        self.failures = failures

    @abstractmethod
    def body(self) -> dict[str, Any]:
        """What is sent, as JSON. Asked for again after each lesson; a large one is built in a thread.

        Raises:
            ConfigError: the request cannot be put into this API's words.
        """

    def headers(self) -> Mapping[str, str]:
        """Headers of this request beside those of every one. Asked for right after :meth:`body`."""
        return {}

    def path(self) -> str:
        """Where this request goes, when not to the caller's own path. Asked for right after :meth:`body`."""
        return ""

    @abstractmethod
    def learn(self, refusal: Failure, body: Mapping[str, Any]) -> None:
        """Adjust to a refusal of ``body`` with a status of :attr:`refusals`. When the path, the body or the headers are then
        other ones, the request is sent again, without a retry being counted."""

    @abstractmethod
    def read(self, response: httpx.Response) -> AsyncGenerator[StreamEvent, None]:
        """The events of an accepted call (HTTP 200).

        Raises:
            Failed: the answer is broken, empty, cut, an error, or not from this API.
            httpx.HTTPError: the connection failed before the answer had ended.
        """


class _Sent(msgspec.Struct, frozen=True):
    """A request as it goes out."""

    url: str
    body: dict[str, Any]
    content: bytes
    headers: Mapping[str, str]

    def differs(self, other: _Sent) -> bool:
        return (self.url, self.content, self.headers) != (other.url, other.content, other.headers)


class ModelCaller:
    """Runs calls to one server, at the ``path`` of ``address`` unless a call names another, with ``headers`` in each; keeps
    the connections.

    ``timeout`` is the longest silence from the server and ``connect_timeout`` the longest wait for a connection, both in
    seconds. ``log`` is the plugin's logger. ``sleep``, ``clock`` (seconds since the epoch) and ``jitter`` (0 up to 1) are
    seams for tests.
    """

    def __init__(
        self,
        address: ServerAddress,
        path: str,
        headers: Mapping[str, str],
        *,
        log: logging.Logger,
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008 -- frozen
        max_lessons: int = MAX_LESSONS,
        timeout: float = 600.0,
        connect_timeout: float = 10.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.time,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._address = address
        self._path = path
        self._headers = {
            **headers,
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",  # compression would hold tokens back
        }
        self._log = log
        self._retry = retry
        self._max_lessons = max_lessons
        self._sleep = sleep
        self._clock = clock
        self._jitter = jitter
        self._client = StreamingClient(
            address.base_url, label=address.label, read_timeout=timeout, connect_timeout=connect_timeout
        )

    async def stream(self, call: ModelCall) -> AsyncGenerator[StreamEvent, None]:
        """The events of ``call``. Nothing is repeated once more than the message's start has been given out.

        Raises:
            ModelError: it failed for good. Never anything of httpx.
            ConfigError: the caller was closed, or the request cannot be sent as JSON.
        """
        sent = await self._build(call)
        retries = lessons = 0
        started = False
        while True:
            committed = False
            failure: Failure
            try:
                async with aclosing(self._attempt(call, sent)) as events:
                    async for event in events:
                        if not isinstance(event, MessageStart):
                            committed = True
                        elif started:
                            continue
                        started = True
                        yield event
                return
            except Failed as failed:
                failure = failed.failure
            # Outside of the handler, so that what is raised or awaited from here on drags no exception along.
            if committed:
                raise failure.error
            if failure.error.status in call.refusals and lessons < self._max_lessons:
                # Another call may have learnt the same meanwhile: what counts is whether the request is another now.
                call.learn(failure, sent.body)
                adjusted = await self._build(call)
                if adjusted.differs(sent):
                    self._log.info(
                        "%s: adjusted the request for %s after a refusal", self._address.label, call.request.model
                    )
                    sent = adjusted
                    lessons += 1
                    continue
            wait = self._retry.wait(retries, failure.retry_after, self._jitter()) if failure.retryable else None
            if wait is None:
                raise failure.error
            retries += 1
            self._log.info("%s: %s; trying again in %.1f s", self._address.label, failure.error.kind, wait)
            await self._sleep(wait)

    async def close(self) -> None:
        """Refuse new calls; close the connections once the calls under way have ended."""
        await self._client.close()

    async def _build(self, call: ModelCall) -> _Sent:
        return await asyncio.to_thread(self._sent, call) if is_heavy(call.request) else self._sent(call)

    def _sent(self, call: ModelCall) -> _Sent:
        body = call.body()
        headers, path = call.headers(), call.path() or self._path
        try:
            content = encode_body(body)
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"The extra settings of {call.request.model!r} cannot be sent as JSON: {error}") from None
        url = self._address.url(path)
        return _Sent(url, body, content, {**self._headers, **headers} if headers else self._headers)

    async def _attempt(self, call: ModelCall, sent: _Sent) -> AsyncGenerator[StreamEvent, None]:
        import httpx

        failures = call.failures
        problem: httpx.HTTPError | None = None
        seen = False
        try:
            async with self._client.post(sent.url, content=sent.content, headers=sent.headers) as response:
                if response.status_code != 200:
                    text = await read_capped(response.aiter_bytes(), MAX_ERROR_BODY)
                    raise Failed(failures.from_answer(response.status_code, response.headers, text, self._clock()))
                async with aclosing(call.read(response)) as events:
                    async for event in events:
                        seen = True
                        yield event
        except httpx.HTTPError as error:
            problem = error
        if problem is None:
            return
        if seen and not isinstance(problem, httpx.TimeoutException):
            raise Failed(failures.cut())
        raise Failed(
            failures.from_transport(
                problem, timeout=self._client.read_timeout, connect_timeout=self._client.connect_timeout
            )
        )
