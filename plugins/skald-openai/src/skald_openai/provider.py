"""The provider: one streaming call to a server that speaks chat completions, repeated where that can help."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from skald_core.api import ConfigError, MessageStart, ModelInfo, ModelRequest, StreamEvent, StreamingClient
from skald_openai.dialect import Dialect
from skald_openai.failures import Failed, Failure, Failures
from skald_openai.known import known_info
from skald_openai.payload import build_body, encode_body, is_heavy
from skald_openai.reading import AFTER_STOP, MAX_ERROR_BODY, read_answer, read_capped
from skald_openai.retry import RetryPolicy
from skald_openai.services import parse_endpoint
from skald_openai.transport import request_headers

__all__ = ("OpenAIProvider",)

log = logging.getLogger("skald.plugin.openai")

MAX_LESSONS = 5
"""How often one call is sent again because the server refused a field that can be left out or put otherwise."""


def _new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


class OpenAIProvider:
    """Implements the loop's ``Provider`` for one endpoint.

    ``infos`` are known best by the caller and win over the table of model families. ``timeout`` is the longest silence, in
    seconds, from the server. ``sleep``, ``clock`` (seconds since the epoch), ``jitter`` (0 up to 1) and ``new_id`` are
    seams for tests.

    Raises:
        ConfigError: the base URL or the key makes no sense.
    """

    def __init__(
        self,
        *,
        provider_id: str,
        base_url: str,
        api_key: str = "",
        infos: Mapping[str, ModelInfo] | None = None,
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008 -- frozen
        timeout: float = 600.0,
        connect_timeout: float = 10.0,
        after_stop: float = AFTER_STOP,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.time,
        jitter: Callable[[], float] = random.random,
        new_id: Callable[[], str] = _new_call_id,
    ) -> None:
        self.id = provider_id
        self._endpoint = parse_endpoint(base_url)
        self._key = api_key.strip()
        self._headers = {
            **request_headers(self._endpoint, self._key),
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json",
            "Accept-Encoding": "identity",  # compression would hold tokens back
        }
        self._infos = dict(infos or {})
        self._retry = retry
        self._after_stop = after_stop
        self._transport = StreamingClient(
            self._endpoint.base_url, label=self._endpoint.label, read_timeout=timeout, connect_timeout=connect_timeout
        )
        self._sleep = sleep
        self._clock = clock
        self._jitter = jitter
        self._new_id = new_id
        self._dialects: dict[str, Dialect] = {}

    def __repr__(self) -> str:
        return f"OpenAIProvider({self.id!r}, {self._endpoint.base_url!r})"

    def info(self, model: str) -> ModelInfo:
        """The caller's word on ``model``, else what is known of its family, else defaults."""
        return self._infos.get(model) or known_info(model) or ModelInfo()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        """One call; see the protocol. Raises the typed errors of ``skald_core.api`` and never anything of httpx."""
        dialect = self._dialects.setdefault(request.model, Dialect(self._endpoint.service, request.model))
        body, content = await _build(request, dialect)
        retries = lessons = 0
        started = False
        while True:
            committed = False
            failure: Failure
            try:
                async with aclosing(self._attempt(request, content)) as events:
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
                dialect.learn(failure.reply, body, request.extra)
                body, adjusted = await _build(request, dialect)
                if adjusted != content:
                    log.info("%s: adjusted the request for %s after a refusal", self._endpoint.label, request.model)
                    content = adjusted
                    lessons += 1
                    continue
            wait = self._retry.wait(retries, failure.retry_after, self._jitter()) if failure.retryable else None
            if wait is None:
                raise failure.error
            retries += 1
            log.info("%s: %s; trying again in %.1f s", self._endpoint.label, failure.error.kind, wait)
            await self._sleep(wait)

    async def close(self) -> None:
        """Refuse new calls; close the connections once the calls under way have ended."""
        await self._transport.close()

    async def _attempt(self, request: ModelRequest, content: bytes) -> AsyncGenerator[StreamEvent, None]:
        import httpx

        failures = Failures(self._endpoint, self._key, request.model)
        problem: httpx.HTTPError | None = None
        seen = False
        try:
            async with self._transport.post(
                self._endpoint.url("/chat/completions"), content=content, headers=self._headers
            ) as response:
                if response.status_code != 200:
                    text = await read_capped(response.aiter_bytes(), MAX_ERROR_BODY)
                    raise Failed(failures.from_answer(response.status_code, response.headers, text, self._clock()))
                answer = read_answer(response, request, failures, new_id=self._new_id, after_stop=self._after_stop)
                async with aclosing(answer) as events:
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


async def _build(request: ModelRequest, dialect: Dialect) -> tuple[dict[str, Any], bytes]:
    """The body and its bytes; off the event loop when there is much of it."""
    return await asyncio.to_thread(_build_now, request, dialect) if is_heavy(request) else _build_now(request, dialect)


def _build_now(request: ModelRequest, dialect: Dialect) -> tuple[dict[str, Any], bytes]:
    body = build_body(request, dialect)
    try:
        return body, encode_body(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"The extra settings of {request.model!r} cannot be sent as JSON: {error}") from None
