"""The provider: one streaming call to a server that speaks one of OpenAI's APIs, repeated where that can help."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec

from skald_core.api import (
    Failure,
    ModelCall,
    ModelCaller,
    ModelInfo,
    ModelRequest,
    RetryPolicy,
    StreamEvent,
)
from skald_openai.answer import Answer
from skald_openai.apis import Api, ApiSetting
from skald_openai.choice import ApiChange, ApiChoice
from skald_openai.dialect import Dialect
from skald_openai.failures import RESPONSES, Failures
from skald_openai.known import known_info, traits_of
from skald_openai.payload import build_body
from skald_openai.reading import AFTER_STOP, AnswerInTheMaking, read_answer
from skald_openai.responses.answer import ResponseAnswer
from skald_openai.responses.body import build_body as build_response_body
from skald_openai.responses.dialect import ResponsesDialect
from skald_openai.services import parse_endpoint
from skald_openai.transport import request_headers

if TYPE_CHECKING:
    import httpx

__all__ = ("OpenAIProvider",)

log = logging.getLogger("skald.plugin.openai")

_PATHS: Mapping[Api, str] = {"chat": "/chat/completions", "responses": "/responses"}
_NAMES: Mapping[Api, str] = {"chat": "chat completions", "responses": RESPONSES}
_LESSONS = frozenset({400, 422})


def _new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


class OpenAIProvider:
    """Implements the loop's ``Provider`` for one endpoint.

    ``api`` is which of the two APIs to use; see :class:`~skald_openai.choice.ApiChoice`. ``infos`` are known best by the
    caller and win over the table of model families. ``timeout`` is the longest silence, in seconds, from the server.
    ``sleep``, ``clock`` (seconds since the epoch), ``jitter`` (0 up to 1) and ``new_id`` are seams for tests.

    Raises:
        ConfigError: the base URL or the key makes no sense.
    """

    def __init__(
        self,
        *,
        provider_id: str,
        base_url: str,
        api_key: str = "",
        api: ApiSetting = "automatic",
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
            _PATHS["chat"],
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
        self._choice = ApiChoice(api, self._endpoint.service)
        self._models: dict[str, _Dialects] = {}

    def __repr__(self) -> str:
        return f"OpenAIProvider({self.id!r}, {self._endpoint.base_url!r})"

    def info(self, model: str) -> ModelInfo:
        """The caller's word on ``model``, else what is known of its family, else the least its service's models have."""
        service = self._endpoint.service
        info = self._infos.get(model) or known_info(model) or ModelInfo(service.window)
        if service.tool_messages and model not in self._infos and traits_of(model).tool_messages:
            return msgspec.structs.replace(info, tool_loading="system")
        return info

    def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        """One call; see the protocol. Raises the typed errors of ``skald_core.api`` and never anything of httpx."""
        service = self._endpoint.service
        dialects = self._models.get(request.model)
        if dialects is None:
            dialects = self._models[request.model] = _Dialects(
                Dialect(service, request.model), ResponsesDialect(service)
            )
        return self._caller.stream(
            _Call(request, self._choice, dialects, self._failures(request), self._new_id, self._after_stop)
        )

    def _failures(self, request: ModelRequest) -> Mapping[Api, Failures]:
        return {api: Failures(self._endpoint, self._key, request.model, wanted=name) for api, name in _NAMES.items()}

    async def close(self) -> None:
        """Refuse new calls; close the connections once the calls under way have ended."""
        await self._caller.close()


class _Dialects(NamedTuple):
    """What was learnt of one model."""

    chat: Dialect
    responses: ResponsesDialect


class _Call(ModelCall):
    """A request in the words of one API, or of the other one when the server turns out to want that."""

    refusals: ClassVar[frozenset[int]] = frozenset({400, 404, 405, 422, 501})

    def __init__(
        self,
        request: ModelRequest,
        choice: ApiChoice,
        dialects: _Dialects,
        failures: Mapping[Api, Failures],
        new_id: Callable[[], str],
        after_stop: float,
    ) -> None:
        self._api = choice.of(request)
        super().__init__(request, failures[self._api])
        self._choice = choice
        self._change: ApiChange | None = None
        self._dialects = dialects
        self._failures = failures
        self._new_id = new_id
        self._after_stop = after_stop
        self._stored = False

    def body(self) -> dict[str, Any]:
        if self._api == "chat":
            return build_body(self.request, self._dialects.chat)
        body = build_response_body(self.request, self._dialects.responses)
        self._stored = body.get("store") is True
        return body

    def path(self) -> str:
        return _PATHS[self._api]

    def learn(self, refusal: Failure, body: Mapping[str, Any]) -> None:
        # A call changes its API once: two that send each other's requests away are no reason to go round in circles.
        change = self._choice.other(self._api, refusal, self._failures[self._api]) if self._change is None else None
        if change is not None:
            self._api, self._change = change.api, change
            self.failures = self._failures[change.api]
        elif refusal.reply is not None and refusal.error.status in _LESSONS:
            dialect = self._dialects.chat if self._api == "chat" else self._dialects.responses
            dialect.learn(refusal.reply, body, self.request.extra)

    def read(self, response: httpx.Response) -> AsyncGenerator[StreamEvent, None]:
        if self._change is not None:
            self._choice.remember(self._change, self.request.model)
        answer: AnswerInTheMaking
        if self._api == "chat":
            answer = Answer(self.request, self._new_id)
        else:
            answer = ResponseAnswer(self.request, self._new_id, stored=self._stored)
        return read_answer(response, answer, self._failures[self._api], after_stop=self._after_stop)
