"""Which of OpenAI's two APIs a request goes through."""

from __future__ import annotations

import re
from typing import Literal, get_args

from skald_core.api import ConfigError, Failure, ModelRequest
from skald_openai.failures import Failures
from skald_openai.services import ServiceSpec

__all__ = ("SETTINGS", "Api", "ApiChoice", "ApiSetting", "parse_api")

Api = Literal["chat", "responses"]
ApiSetting = Literal["automatic", "chat", "responses"]
SETTINGS: tuple[ApiSetting, ...] = get_args(ApiSetting)

_NO_SUCH_PATH = frozenset({404, 405, 501})
_USE_RESPONSES = re.compile(r"v1/responses|\bresponses api\b|not a chat model", re.IGNORECASE)
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


def parse_api(text: str) -> ApiSetting:
    """The setting as it was stored; empty means automatic.

    Raises:
        ConfigError: it is none.
    """
    found = next((setting for setting in SETTINGS if setting == (text.strip() or "automatic")), None)
    if found is None:
        raise ConfigError(f"The API {text!r} is unknown. Choose one of: {', '.join(SETTINGS)}.")
    return found


class ApiChoice:
    """Chooses, and remembers for one provider what its server has taught.

    Left to itself it takes the Responses API where the service is known to be better through it, and chat completions, which
    everybody speaks, elsewhere. A person's own setting is never overruled.
    """

    def __init__(self, setting: ApiSetting, service: ServiceSpec) -> None:
        self._setting = setting
        self._responses = service.responses
        self._models: set[str] = set()  # those that are to be had through the Responses API only

    def of(self, request: ModelRequest) -> Api:
        """The API to begin with. What only chat completions can say goes there."""
        if self._setting != "automatic":
            return self._setting
        if request.stop_sequences or any(request.extra.get(field) is not None for field in _CHAT_ONLY):
            return "chat"
        return "responses" if self._responses or request.model in self._models else "chat"

    def other(self, api: Api, refusal: Failure, failures: Failures) -> Api | None:
        """The API to try after this refusal, or None when it is no reason to change."""
        status, reply = refusal.error.status, refusal.reply
        if self._setting != "automatic":
            return None
        if api == "responses":
            unknown = status in _NO_SUCH_PATH and (reply is None or not failures.is_about_model(reply))
            return "chat" if unknown else None
        return "responses" if reply is not None and _USE_RESPONSES.search(reply.message) else None

    def remember(self, api: Api, model: str) -> None:
        """The other API has answered: use it from now on. A server without the Responses API has it for no model."""
        if api == "chat":
            self._responses = False
        else:
            self._models.add(model)
