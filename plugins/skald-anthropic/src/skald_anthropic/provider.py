"""The provider: one streaming call to the Messages API, repeated where that can help."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing

from skald_anthropic.address import Address, parse_address
from skald_anthropic.dialect import Dialect
from skald_anthropic.failures import Failed, Failure, Failures
from skald_anthropic.known import known_info
from skald_anthropic.payload import betas_of, build_body, encode_body, is_heavy
from skald_anthropic.reading import MAX_ERROR_BODY, read_answer, read_capped
from skald_anthropic.retry import RetryPolicy
from skald_core.api import ConfigError, MessageStart, ModelInfo, ModelRequest, StreamEvent, StreamingClient

__all__ = ("AnthropicProvider", "request_headers")

log = logging.getLogger("skald.plugin.anthropic")

VERSION = "2023-06-01"
"""The API version every server that speaks this API knows."""
MAX_LESSONS = 5
"""How often one call is sent again because the server refused something that can be left out or put otherwise."""


def request_headers(address: Address, api_key: str) -> dict[str, str]:
    """Headers of every request.

    Raises:
        ConfigError: the key holds characters no header can carry.
    """
    headers = {"User-Agent": "skald-anthropic/0.1", "anthropic-version": VERSION}
    if api_key:
        if not api_key.isascii() or not api_key.isprintable() or " " in api_key:
            raise ConfigError("The API key holds a space or a letter no key has. Copy it again.")
        headers["x-api-key"] = api_key
        if not address.first:
            headers["Authorization"] = f"Bearer {api_key}"  # what some other servers look for instead
    return headers


def _new_call_id() -> str:
    return f"toolu_{secrets.token_hex(12)}"


class AnthropicProvider:
    """Implements the loop's ``Provider`` for one server.

    ``infos`` are known best by the caller and win over what names tell. ``timeout`` is the longest silence, in seconds, from
    the server. ``sleep``, ``clock`` (seconds since the epoch), ``jitter`` (0 up to 1) and ``new_id`` are seams for tests.

    Raises:
        ConfigError: the base URL or the key makes no sense.
    """

    def __init__(
        self,
        *,
        provider_id: str = "anthropic",
        base_url: str = "",
        api_key: str = "",
        infos: Mapping[str, ModelInfo] | None = None,
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008 -- frozen
        timeout: float = 600.0,
        connect_timeout: float = 10.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.time,
        jitter: Callable[[], float] = random.random,
        new_id: Callable[[], str] = _new_call_id,
    ) -> None:
        self.id = provider_id
        self._address = parse_address(base_url)
        self._key = api_key.strip()
        self._headers = {
            **request_headers(self._address, self._key),
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json",
            "Accept-Encoding": "identity",  # compression would hold tokens back
        }
        self._infos = dict(infos or {})
        self._retry = retry
        self._transport = StreamingClient(
            self._address.base_url, label=self._address.label, read_timeout=timeout, connect_timeout=connect_timeout
        )
        self._sleep = sleep
        self._clock = clock
        self._jitter = jitter
        self._new_id = new_id
        self._dialects: dict[str, Dialect] = {}

    def __repr__(self) -> str:
        return f"AnthropicProvider({self.id!r}, {self._address.base_url!r})"

    def info(self, model: str) -> ModelInfo:
        """The caller's word on ``model``, else what its name tells, else defaults."""
        return self._infos.get(model) or known_info(model)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        """One call; see the protocol. Raises the typed errors of ``skald_core.api`` and never anything of httpx."""
        dialect = self._dialects.setdefault(request.model, Dialect(request.model))
        sent = await _build(request, dialect)
        retries = lessons = 0
        started = False
        while True:
            committed = False
            failure: Failure
            try:
                async with aclosing(self._attempt(request, sent)) as events:
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
            if failure.reply is not None and failure.error.status in (400, 422) and lessons < MAX_LESSONS:
                # Another call may have learnt the same meanwhile: what counts is whether the request is another now.
                dialect.learn(failure.reply, sent.body, request.extra)
                adjusted = await _build(request, dialect)
                if adjusted.differs(sent):
                    log.info("%s: adjusted the request for %s after a refusal", self._address.label, request.model)
                    sent = adjusted
                    lessons += 1
                    continue
            wait = self._retry.wait(retries, failure.retry_after, self._jitter()) if failure.retryable else None
            if wait is None:
                raise failure.error
            retries += 1
            log.info("%s: %s; trying again in %.1f s", self._address.label, failure.error.kind, wait)
            await self._sleep(wait)

    async def close(self) -> None:
        """Refuse new calls; close the connections once the calls under way have ended."""
        await self._transport.close()

    async def _attempt(self, request: ModelRequest, sent: _Sent) -> AsyncGenerator[StreamEvent, None]:
        import httpx

        failures = Failures(self._address, self._key, request.model)
        headers = {**self._headers, "anthropic-beta": ",".join(sent.betas)} if sent.betas else self._headers
        problem: httpx.HTTPError | None = None
        seen = False
        try:
            async with self._transport.post(
                self._address.url("/v1/messages"), content=sent.content, headers=headers
            ) as response:
                if response.status_code != 200:
                    text = await read_capped(response.aiter_bytes(), MAX_ERROR_BODY)
                    raise Failed(failures.from_answer(response.status_code, response.headers, text, self._clock()))
                async with aclosing(read_answer(response, request, failures, new_id=self._new_id)) as events:
                    async for event in events:
                        seen = True
                        yield event
        except httpx.HTTPError as error:
            problem = error
        if problem is not None:
            if seen and not isinstance(problem, httpx.TimeoutException):
                raise Failed(failures.cut())
            transport = self._transport
            raise Failed(
                failures.from_transport(
                    problem, timeout=transport.read_timeout, connect_timeout=transport.connect_timeout
                )
            )


class _Sent:
    """A request as it goes out."""

    __slots__ = ("betas", "body", "content")

    def __init__(self, request: ModelRequest, dialect: Dialect) -> None:
        self.body = build_body(request, dialect)
        self.betas = betas_of(request, dialect)
        try:
            self.content = encode_body(self.body)
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"The extra settings of {request.model!r} cannot be sent as JSON: {error}") from None

    def differs(self, other: _Sent) -> bool:
        return self.content != other.content or self.betas != other.betas


async def _build(request: ModelRequest, dialect: Dialect) -> _Sent:
    """The request; off the event loop when there is much of it."""
    return await asyncio.to_thread(_Sent, request, dialect) if is_heavy(request) else _Sent(request, dialect)
