"""The provider: one streaming call to Ollama, repeated where that can help."""

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
from skald_ollama.address import HEADERS, parse_address, parse_keep_alive
from skald_ollama.dialect import Dialect
from skald_ollama.failures import Failures
from skald_ollama.listing import DEFAULT_CONTEXT
from skald_ollama.payload import build_body
from skald_ollama.reading import read_answer

if TYPE_CHECKING:
    import httpx

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
        self._caller = ModelCaller(
            self._address,
            "/api/chat",
            {**HEADERS, "Accept": "application/x-ndjson, application/json"},
            log=log,
            retry=retry,
            max_lessons=MAX_LESSONS,
            timeout=timeout,
            connect_timeout=connect_timeout,
            sleep=sleep,
            clock=clock,
            jitter=jitter,
        )
        self._infos = dict(infos or {})
        self._new_id = new_id
        self._dialects: dict[str, Dialect] = {}

    def __repr__(self) -> str:
        return f"OllamaProvider({self.id!r}, {self._address.base_url!r})"

    def info(self, model: str) -> ModelInfo:
        """The caller's word on ``model``, else defaults: names tell nothing of what runs behind them."""
        return self._infos.get(model) or ModelInfo(context_window=DEFAULT_CONTEXT)

    def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        """One call; see the protocol. Raises the typed errors of ``skald_core.api`` and never anything of httpx."""
        dialect = self._dialects.setdefault(request.model, Dialect())
        failures = Failures(self._address, model=request.model)
        return self._caller.stream(_Call(request, failures, dialect, self._keep_alive, self._new_id))

    async def close(self) -> None:
        """Refuse new calls; close the connections once the calls under way have ended."""
        await self._caller.close()


class _Call(ModelCall):
    """A request in the words of Ollama's API."""

    def __init__(
        self,
        request: ModelRequest,
        failures: Failures,
        dialect: Dialect,
        keep_alive: int | str | None,
        new_id: Callable[[], str],
    ) -> None:
        super().__init__(request, failures)
        self._failures = failures
        self._dialect = dialect
        self._keep_alive = keep_alive
        self._new_id = new_id

    def body(self) -> dict[str, Any]:
        return build_body(self.request, self._dialect, self._keep_alive)

    def learn(self, refusal: Failure, body: Mapping[str, Any]) -> None:
        self._dialect.learn(refusal.error.detail, body, self.request.extra)

    def read(self, response: httpx.Response) -> AsyncGenerator[StreamEvent, None]:
        return read_answer(response, self.request, self._failures, new_id=self._new_id)
