"""Which of OpenAI's two APIs a request goes through."""

from __future__ import annotations

import re
from typing import NamedTuple

from skald_core.api import Failure, ModelRequest
from skald_openai.apis import Api, ApiSetting
from skald_openai.failures import Failures
from skald_openai.services import ServiceSpec

__all__ = ("ApiChange", "ApiChoice")

_NO_SUCH_PATH = frozenset({404, 405, 501})
_USE_RESPONSES = re.compile(r"v1/responses|\bresponses api\b|not a chat model", re.IGNORECASE)
_USE_CHAT = re.compile(
    r"chat[/ ]completions|(?:not|n't) (?:be )?(?:supported|used|available)[^.]{0,40}responses", re.IGNORECASE
)
_CHAT_ONLY = frozenset(
    (
        "frequency_penalty",
        "logit_bias",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "modalities",
        "n",
        "prediction",
        "presence_penalty",
        "reasoning_effort",
        "response_format",
        "seed",
        "stop",
        "verbosity",
        "web_search_options",
    )
)
"""Extra settings of a model that only chat completions know."""


class ApiChange(NamedTuple):
    """Another API, for one model or for every model of the server."""

    api: Api
    every_model: bool


class ApiChoice:
    """Chooses, and remembers for one provider what its server has taught.

    Left to itself it takes the Responses API where the service is known to be better through it, and chat completions, which
    everybody speaks, elsewhere. A person's own setting is never overruled.
    """

    def __init__(self, setting: ApiSetting, service: ServiceSpec) -> None:
        self._setting = setting
        self._responses = service.responses
        self._models: dict[str, Api] = {}  # those that are to be had through one API only

    def of(self, request: ModelRequest) -> Api:
        """The API to begin with. What only chat completions can say goes there."""
        if self._setting != "automatic":
            return self._setting
        if request.stop_sequences or any(request.extra.get(field) is not None for field in _CHAT_ONLY):
            return "chat"
        return self._models.get(request.model) or ("responses" if self._responses else "chat")

    def other(self, api: Api, refusal: Failure, failures: Failures) -> ApiChange | None:
        """What to try after this refusal, or None when it is no reason to change."""
        status, reply = refusal.error.status, refusal.reply
        if self._setting != "automatic":
            return None
        said = reply.message if reply is not None else ""
        if api == "chat":
            return ApiChange("responses", every_model=False) if _USE_RESPONSES.search(said) else None
        if _USE_CHAT.search(said):
            return ApiChange("chat", every_model=False)
        unknown = status in _NO_SUCH_PATH and (reply is None or not failures.is_about_model(reply))
        return ApiChange("chat", every_model=True) if unknown else None

    def remember(self, change: ApiChange, model: str) -> None:
        """The other API has answered: use it from now on."""
        if change.every_model:
            self._responses = change.api == "responses"
        else:
            self._models[model] = change.api
