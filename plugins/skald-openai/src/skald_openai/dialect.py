"""How one model at one server wants its requests, and learning it from a refusal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from skald_core.api import ServerReply
from skald_openai.known import traits_of
from skald_openai.services import ServiceSpec

__all__ = ("Dialect",)

_UNKNOWN = re.compile(
    r"unsupported|unrecogni[sz]ed|unknown|unexpected|not (?:supported|permitted|allowed|valid)|no longer supported"
    r"|does(?: not|n't) (?:support|accept)|is(?: not|n't) (?:supported|available)|extra (?:inputs|fields)"
    r"|only the default",
    re.IGNORECASE,
)
_LEVELS = re.compile(r"supported values are:?(.*)", re.IGNORECASE)
_SET_NONE = re.compile(r"reasoning_effort\S* to '?none", re.IGNORECASE)
_REASONING_MISSING = re.compile(
    r"reasoning_content.{0,80}(?:missing|must be passed|is required)|missing reasoning_content", re.IGNORECASE
)
_ROLE_ORDER = re.compile(r"unexpected role '?user'? after (?:role )?'?tool", re.IGNORECASE)
_TOOL_MESSAGE = re.compile(
    r"\bcontent\b.{0,80}(?:required|missing|must|empty|null)|(?:required|missing|must|empty).{0,80}\bcontent\b"
    r"|\bmessages?\b.{0,80}\btools\b",
    re.IGNORECASE,
)
_OTHER_CAP = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_OPTIONAL = ("stream_options", "temperature", "prompt_cache_key", "reasoning", "thinking", "usage", "tool_choice")


class Dialect:
    """The differences that shape a request.

    Starts from what the service and the model's family are known to want. :meth:`learn` changes it when the server
    refuses a field, so that one refusal is enough.
    """

    def __init__(self, service: ServiceSpec, model: str) -> None:
        traits = traits_of(model)
        self.service = service
        self.max_tokens: str = service.max_tokens
        self.left_out: set[str] = set() if service.stream_options else {"stream_options"}
        self.efforts = service.efforts
        self.effort: str | None = None  # one the server insists on, whatever was asked for
        self.echo = service.echo == "calls" or (service.echo == "auto" and traits.echo)
        self.placeholder = service.placeholder
        self.bridge = traits.bridge
        self.tool_messages = True
        self.marks = service.cache == "marks" and traits.marks
        self._learnt: set[str] = set()

    def learn(self, reply: ServerReply, body: Mapping[str, Any], extra: Mapping[str, Any]) -> bool:
        """Adjust to a refusal (HTTP 400 or 422) of ``body``.

        True when the request would now be another, so that it is worth sending again. Each lesson is learnt once, and a
        field a person set in the model's extra settings is never touched.
        """
        text = reply.message
        if _TOOL_MESSAGE.search(text) and any("tools" in message for message in body.get("messages") or ()):
            if self._once("no tool messages"):
                self.tool_messages = False
                return True
            return False
        if _REASONING_MISSING.search(text):
            if self._once("echo"):
                self.echo, self.placeholder = True, self.placeholder or "."
                return True
            return False
        if _ROLE_ORDER.search(text):
            if self._once("bridge"):
                self.bridge = True
                return True
            return False
        if "reasoning_effort" not in extra and _names(reply, "reasoning_effort"):
            return self._learn_effort(text, body)
        if not _UNKNOWN.search(text):
            return False
        for field in ("reasoning_content", "reasoning_details"):
            if field in text or reply.param.endswith(field):
                if self._once("no echo"):
                    self.echo, self.placeholder = False, ""
                    return True
                return False
        for field, other in _OTHER_CAP.items():
            if field in body and field not in extra and _names(reply, field) and self._once("cap"):
                self.max_tokens = other
                return True
        for field in _OPTIONAL:
            if field in body and field not in extra and _names(reply, field) and self._once(field):
                self.left_out.add(field)
                return True
        return False

    def _learn_effort(self, text: str, body: Mapping[str, Any]) -> bool:
        # "Function tools with reasoning_effort are not supported … set reasoning_effort to 'none'" is also said when no
        # effort was sent, since such models reason by default.
        if _SET_NONE.search(text) and self._once("effort none"):
            self.effort = "none"
            return True
        if "reasoning_effort" not in body:
            return False
        found = _LEVELS.search(text)
        levels = tuple(re.findall(r"'(\w+)'", found[1])) if found else ()
        if levels and self._once("effort levels"):
            self.effort, self.efforts = None, levels
            return True
        if self._once("effort"):
            self.left_out.add("reasoning_effort")
            return True
        return False

    def _once(self, lesson: str) -> bool:
        if lesson in self._learnt:
            return False
        self._learnt.add(lesson)
        return True


def _names(reply: ServerReply, field: str) -> bool:
    """Is the refusal about this field? ``max_tokens`` inside ``max_tokens_x`` does not count."""
    if reply.param:
        return reply.param.rpartition(".")[2] == field
    return re.search(rf"(?<![\w-]){re.escape(field)}(?![\w-])", reply.message) is not None
