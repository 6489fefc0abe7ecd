"""How one model at one server wants its Responses requests, and learning it from a refusal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from skald_core.api import ServerReply
from skald_openai.services import ServiceSpec

__all__ = ("CHAINED", "ResponsesDialect")

CHAINED = "auto"
"""The word for the extra setting ``previous_response_id`` that lets requests build on what the server has stored."""

_UNKNOWN = re.compile(
    r"unsupported|unrecogni[sz]ed|unknown|unexpected|not (?:supported|permitted|allowed|valid)|must be verified"
    r"|does(?: not|n't) (?:support|accept)|is(?: not|n't) (?:supported|available)|extra (?:inputs|fields)",
    re.IGNORECASE,
)
_LEVELS = re.compile(r"supported values are:?(.*)", re.IGNORECASE)
_PREVIOUS = re.compile(r"previous[_ ]response", re.IGNORECASE)
_THOUGHTS = re.compile(
    r"encrypted[_ ]content|without its required|item with id '?\w+'? not found|items are not persisted", re.IGNORECASE
)
_NO_ENCRYPTION = re.compile(r"encrypted content is not supported", re.IGNORECASE)
# What may be left out, and what of it is asked for inside an object; the longer names first.
_OPTIONAL = (
    "reasoning.summary",
    "reasoning.effort",
    "reasoning",
    "include",
    "store",
    "temperature",
    "prompt_cache_key",
    "tool_choice",
)
_MOST = 4096


class ResponsesDialect:
    """The differences that shape a request. :meth:`learn` changes them, so that one refusal is enough."""

    def __init__(self, service: ServiceSpec) -> None:
        self.service = service
        self.left_out: set[str] = set()
        self.efforts = service.efforts
        self.instructions = True  # in their own field; else as the first message
        self.refused: set[str] = set()
        """Ids of thoughts the server could not read (another account's, an older model's) and of responses it has forgotten."""

    def learn(self, reply: ServerReply, body: Mapping[str, Any], extra: Mapping[str, Any]) -> None:
        """Adjust to a refusal (HTTP 400 or 422) of ``body``. A field a person set in the model's extra settings is never
        touched."""
        text = f"{reply.message} {reply.code}"
        if "previous_response_id" in body and (_about(reply, "previous_response_id") or _PREVIOUS.search(text)):
            self._refuse(str(body["previous_response_id"]))
        elif _THOUGHTS.search(text) and (thoughts := [i for i in body["input"] if i.get("type") == "reasoning"]):
            for item in thoughts:
                self._refuse(str(item.get("id")))
        elif (
            _about(reply, "reasoning.effort")
            and _sent_effort(body) not in (levels := _levels(reply.message))
            and levels
        ):
            self.efforts = levels
        elif not _UNKNOWN.search(text):
            return
        elif _NO_ENCRYPTION.search(text):
            self.left_out.add("include")
        elif _about(reply, "instructions") and "instructions" not in extra:
            self.instructions = False
        else:
            for field in _OPTIONAL:
                outer, _, inner = field.partition(".")
                sent = body.get(outer)
                present = inner in sent if inner and isinstance(sent, dict) else sent is not None and not inner
                if present and outer not in extra and _about(reply, field):
                    self.left_out.add(field)
                    return

    def _refuse(self, item_id: str) -> None:
        if len(self.refused) >= _MOST:
            self.refused.clear()
        self.refused.add(item_id)


def _levels(text: str) -> tuple[str, ...]:
    found = _LEVELS.search(text)
    return tuple(re.findall(r"'(\w+)'", found[1])) if found else ()


def _sent_effort(body: Mapping[str, Any]) -> Any:
    reasoning = body.get("reasoning")
    return reasoning.get("effort") if isinstance(reasoning, dict) else None


def _about(reply: ServerReply, field: str) -> bool:
    """Is the refusal about this field? ``reasoning`` is not meant by ``reasoning.summary``, nor ``store`` by ``stored``."""
    if reply.param:
        return reply.param == field or reply.param.startswith(f"{field}[")
    return re.search(rf"(?<![\w.-]){re.escape(field)}(?![\w-]|\.\w)", reply.message) is not None
