"""The provider: one streaming call to Ollama, repeated where that can help."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing

from skald_core.api import ConfigError, MessageStart, ModelInfo, ModelRequest, StreamEvent, StreamingClient
from skald_ollama.address import HEADERS, parse_address, parse_keep_alive
from skald_ollama.dialect import Dialect
from skald_ollama.failures import Failed, Failure, Failures
from skald_ollama.listing import DEFAULT_CONTEXT
from skald_ollama.payload import build_body, encode_body, is_heavy
from skald_ollama.reading import MAX_ERROR_BODY, read_answer, read_capped
from skald_ollama.retry import RetryPolicy

__all__ = ("OllamaProvider",)

log = logging.getLogger("skald.plugin.ollama")

MAX_LESSONS = 4
"""How often one call is sent again because Ollama refused something that can be left out or put otherwise."""


def _new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


class OllamaProvider:
    """Implements the loop's ``Provider`` for one server.

    ``infos`` is what the caller knows of models; their context size is what Ollama is told to use. ``keep_alive`` is how long
    a model stays loaded (see ``parse_keep_alive``). ``timeout`` is the longest silence, in seconds, from the server: loading
    a large model counts. ``sleep``, ``clock`` (seconds since the epoch), ``jitter`` (0 up to 1) and ``new_id`` are seams for
    tests.

    Raises:
        ConfigError: the address or ``keep_alive`` makes no sense.
    """

    def __init__(
        self,
        *,
        provider_id: str = "ollama",
        base_url: str = "",
        keep_alive: str = "",
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
        self._keep_alive = parse_keep_alive(keep_alive)
        self._headers = {
            **HEADERS,
            "Content-Type": "application/json",
            "Accept": "application/x-ndjson, application/json",
            "Accept-Encoding": "identity",  # compression would hold tokens back
        }
        self._infos = dict(infos or {})
        self._retry = retry
        self._transport = StreamingClient(
            self._address.base_url, label="Ollama", read_timeout=timeout, connect_timeout=connect_timeout
        )
        self._sleep = sleep
        self._clock = clock
        self._jitter = jitter
        self._new_id = new_id
        self._dialects: dict[str, Dialect] = {}

    def __repr__(self) -> str:
        return f"OllamaProvider({self.id!r}, {self._address.base_url!r})"

    def info(self, model: str) -> ModelInfo:
        """The caller's word on ``model``, else defaults: names tell nothing of what runs behind them."""
        return self._infos.get(model) or ModelInfo(context_window=DEFAULT_CONTEXT)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        """One call; see the protocol. Raises the typed errors of ``skald_core.api`` and never anything of httpx."""
        dialect = self._dialects.setdefault(request.model, Dialect())
        sent = await _build(request, dialect, self._keep_alive)
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
            if failure.error.status == 400 and lessons < MAX_LESSONS:
                # Another call may have learnt the same meanwhile: what counts is whether the request is another now.
                dialect.learn(failure.error.detail, sent.body, request.extra)
                adjusted = await _build(request, dialect, self._keep_alive)
                if adjusted.content != sent.content:
                    log.info("adjusted the request for %s after a refusal: %s", request.model, failure.error.detail)
                    sent = adjusted
                    lessons += 1
                    continue
            wait = self._retry.wait(retries, failure.retry_after, self._jitter()) if failure.retryable else None
            if wait is None:
                raise failure.error
            retries += 1
            log.info("%s; trying again in %.1f s", failure.error.kind, wait)
            await self._sleep(wait)

    async def close(self) -> None:
        """Refuse new calls; close the connections once the calls under way have ended."""
        await self._transport.close()

    async def _attempt(self, request: ModelRequest, sent: _Sent) -> AsyncGenerator[StreamEvent, None]:
        import httpx

        failures = Failures(self._address, request.model)
        problem: httpx.HTTPError | None = None
        seen = False
        try:
            async with self._transport.post(
                self._address.url("/api/chat"), content=sent.content, headers=self._headers
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

    __slots__ = ("body", "content")

    def __init__(self, request: ModelRequest, dialect: Dialect, keep_alive: int | str | None) -> None:
        self.body = build_body(request, dialect, keep_alive)
        try:
            self.content = encode_body(self.body)
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"The extra settings of {request.model!r} cannot be sent as JSON: {error}") from None


async def _build(request: ModelRequest, dialect: Dialect, keep_alive: int | str | None) -> _Sent:
    """The request; off the event loop when there is much of it."""
    if is_heavy(request):
        return await asyncio.to_thread(_Sent, request, dialect, keep_alive)
    return _Sent(request, dialect, keep_alive)
