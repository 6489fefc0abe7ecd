"""The provider: one streaming call to a server that speaks chat completions, repeated where that can help."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from skald_core.api import (
    Failure,
    ModelCall,
    ModelCaller,
    ModelInfo,
    ModelRequest,
    RetryPolicy,
    StreamEvent,
)
from skald_openai.dialect import Dialect
from skald_openai.failures import Failures
from skald_openai.known import known_info
from skald_openai.payload import build_body
from skald_openai.reading import AFTER_STOP, read_answer
from skald_openai.services import parse_endpoint
from skald_openai.transport import request_headers

if TYPE_CHECKING:
    import httpx

__all__ = ("OpenAIProvider",)

log = logging.getLogger("skald.plugin.openai")


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
        self._caller = ModelCaller(
            self._endpoint,
            "/chat/completions",
            {**request_headers(self._endpoint, self._key), "Accept": "text/event-stream, application/json"},
            log=log,
            retry=retry,
            timeout=timeout,
            connect_timeout=connect_timeout,
            sleep=sleep,
            clock=clock,
            jitter=jitter,
        )
        self._infos = dict(infos or {})
        self._after_stop = after_stop
        self._new_id = new_id
        self._dialects: dict[str, Dialect] = {}

    def __repr__(self) -> str:
        return f"OpenAIProvider({self.id!r}, {self._endpoint.base_url!r})"

    def info(self, model: str) -> ModelInfo:
        """The caller's word on ``model``, else what is known of its family, else defaults."""
        return self._infos.get(model) or known_info(model) or ModelInfo()

    def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        """One call; see the protocol. Raises the typed errors of ``skald_core.api`` and never anything of httpx."""
        dialect = self._dialects.setdefault(request.model, Dialect(self._endpoint.service, request.model))
        failures = Failures(self._endpoint, self._key, request.model)
        return self._caller.stream(_Call(request, failures, dialect, self._new_id, self._after_stop))

    async def close(self) -> None:
        """Refuse new calls; close the connections once the calls under way have ended."""
        await self._caller.close()


class _Call(ModelCall):
    """A request as chat completions."""

    def __init__(
        self,
        request: ModelRequest,
        failures: Failures,
        dialect: Dialect,
        new_id: Callable[[], str],
        after_stop: float,
    ) -> None:
        super().__init__(request, failures)
        self._failures = failures
        self._dialect = dialect
        self._new_id = new_id
        self._after_stop = after_stop

    def body(self) -> dict[str, Any]:
        return build_body(self.request, self._dialect)

    def learn(self, refusal: Failure, body: Mapping[str, Any]) -> None:
        if refusal.reply is not None:
            self._dialect.learn(refusal.reply, body, self.request.extra)

    def read(self, response: httpx.Response) -> AsyncGenerator[StreamEvent, None]:
        return read_answer(response, self.request, self._failures, new_id=self._new_id, after_stop=self._after_stop)
