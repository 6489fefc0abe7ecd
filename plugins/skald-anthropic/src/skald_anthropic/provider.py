"""The provider: one streaming call to the Messages API, repeated where that can help."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from skald_anthropic.address import parse_address
from skald_anthropic.dialect import Dialect
from skald_anthropic.failures import Failures
from skald_anthropic.known import defers_tools, known_info
from skald_anthropic.payload import betas_of, build_body
from skald_anthropic.reading import read_answer
from skald_core.api import (
    ConfigError,
    Failure,
    ModelCall,
    ModelCaller,
    ModelInfo,
    ModelRequest,
    RetryPolicy,
    ServerAddress,
    StreamEvent,
)

if TYPE_CHECKING:
    import httpx

__all__ = ("AnthropicProvider", "request_headers")

log = logging.getLogger("skald.plugin.anthropic")

VERSION = "2023-06-01"
"""The API version every server that speaks this API knows."""


def request_headers(address: ServerAddress, api_key: str) -> dict[str, str]:
    """Headers of every request.

    Raises:
        ConfigError: the key holds characters no header can carry.
    """
    headers = {"User-Agent": "skald-anthropic/0.1", "anthropic-version": VERSION}
    if api_key:
        if not api_key.isascii() or not api_key.isprintable() or " " in api_key:
            raise ConfigError("The API key holds a space or a letter no key has. Copy it again.")
        headers["x-api-key"] = api_key
        if not address.known:
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
        self._caller = ModelCaller(
            self._address,
            "/v1/messages",
            {**request_headers(self._address, self._key), "Accept": "text/event-stream, application/json"},
            log=log,
            retry=retry,
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
        return f"AnthropicProvider({self.id!r}, {self._address.base_url!r})"

    def info(self, model: str) -> ModelInfo:
        """The caller's word on ``model``, else what its name tells, else defaults.

        Tools are loaded by reference only where the address is Anthropic's own: other servers of this API seldom can.
        """
        info = self._infos.get(model) or known_info(model)
        if self._address.known and model not in self._infos and defers_tools(model):
            return msgspec.structs.replace(info, tool_loading="reference")
        return info

    def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        """One call; see the protocol. Raises the typed errors of ``skald_core.api`` and never anything of httpx."""
        dialect = self._dialects.setdefault(request.model, Dialect(request.model))
        failures = Failures(self._address, self._key, request.model)
        return self._caller.stream(_Call(request, failures, dialect, self._new_id))

    async def close(self) -> None:
        """Refuse new calls; close the connections once the calls under way have ended."""
        await self._caller.close()


class _Call(ModelCall):
    """A request in the words of the Messages API."""

    def __init__(self, request: ModelRequest, failures: Failures, dialect: Dialect, new_id: Callable[[], str]) -> None:
        super().__init__(request, failures)
        self._failures = failures
        self._dialect = dialect
        self._new_id = new_id

    def body(self) -> dict[str, Any]:
        return build_body(self.request, self._dialect)

    def headers(self) -> Mapping[str, str]:
        betas = betas_of(self.request, self._dialect)
        return {"anthropic-beta": ",".join(betas)} if betas else {}

    def learn(self, refusal: Failure, body: Mapping[str, Any]) -> None:
        if refusal.reply is not None:
            self._dialect.learn(refusal.reply, body, self.request.extra)

    def read(self, response: httpx.Response) -> AsyncGenerator[StreamEvent, None]:
        return read_answer(response, self.request, self._failures, new_id=self._new_id)
