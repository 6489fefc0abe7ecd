"""How one model at one server wants its requests, and learning it from a refusal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from skald_anthropic.known import version_of
from skald_core.api import ServerReply

__all__ = ("BINDING_BETA", "Dialect", "Form")

Form = Literal["none", "manual", "adaptive"]

BINDING_BETA = "thinking-binding-controls-2026-08-01"
"""The ``anthropic-beta`` word that lets a request say what becomes of thoughts whose context has changed."""

_REFUSED = (
    r"(?:not supported|unsupported|not (?:permitted|allowed|available|valid)|does not match|deprecated|removed|invalid"
    r"|unrecogni[sz]ed|unknown|unexpected|cannot be|can not be|extra inputs|not accept)"
)
_CAP = re.compile(r"max_tokens\W{1,4}\d+ > (\d+)", re.IGNORECASE)
_ENABLED = re.compile(
    rf"(?:thinking\.type\.enabled|budget_tokens|'enabled').{{0,80}}{_REFUSED}", re.IGNORECASE | re.DOTALL
)
_ADAPTIVE = re.compile(
    rf"(?:thinking\.type\.adaptive|adaptive thinking|'adaptive').{{0,80}}{_REFUSED}", re.IGNORECASE | re.DOTALL
)
_DISABLED = re.compile(rf"(?:thinking\.type\.disabled|'disabled').{{0,80}}{_REFUSED}", re.IGNORECASE | re.DOTALL)
_EFFORT = re.compile(r"output_config|\beffort\b", re.IGNORECASE)
_LEVEL = re.compile(r"\b(xhigh|max)\b")
_THOUGHT = re.compile(
    r"signature.{0,20}thinking|thinking.{0,40}(?:signature|bound to|cannot be modified)|redacted_thinking",
    re.IGNORECASE,
)
_DEFERRED = re.compile(r"defer_loading|tool[_ ]reference", re.IGNORECASE)
_ANY = re.compile(_REFUSED, re.IGNORECASE)


class Dialect:
    """The differences that shape a request.

    Starts from what the model's version is known to want. :meth:`learn` changes it when the server refuses something, so
    that one refusal is enough.

    form
        How thinking is asked for: with a ``budget_tokens`` (3.7 to 4.5, and other makers' models), ``adaptive`` with an
        effort (from 4.6), or not at all.
    always
        Thinking is on unless it is turned off (from 5.0).
    binding
        The server doubts thoughts whose context has changed; ask it to drop those instead of refusing the request.
    defers
        Tools may be declared with ``defer_loading`` and brought in by ``tool_reference`` blocks.
    """

    def __init__(self, model: str) -> None:
        version = version_of(model)
        self.form: Form = "manual"
        self.always = False
        self.display = False  # whether readable thoughts have to be asked for
        self.sampling = True  # whether the model takes a temperature
        self.efforts: tuple[str, ...] = ("low", "medium", "high", "max")
        self.binding = False
        self.replay = True
        self.marks = True
        self.off = True  # whether thinking can be turned off
        self.most: int | None = None  # the largest max_tokens the server takes, once it has said so
        self.effort = True
        self.defers = True
        if version is not None:
            self.form = "none" if version < (3, 7) else "manual" if version < (4, 6) else "adaptive"
            self.always = version >= (5, 0)
            self.display = version >= (4, 7)
            self.sampling = version < (4, 7)
            if version >= (4, 7):
                self.efforts = ("low", "medium", "high", "xhigh", "max")
        self._learnt: set[str] = set()

    def learn(self, reply: ServerReply, body: Mapping[str, Any], extra: Mapping[str, Any]) -> bool:
        """Adjust to a refusal (HTTP 400 or 422) of ``body``.

        True when the request would now be another, so that it is worth sending again. Each lesson is learnt once, and a
        field a person set in the model's extra settings is never touched.
        """
        text = reply.message
        if (found := _CAP.search(text)) and "max_tokens" not in extra and self._once("cap"):
            self.most = int(found[1])
            return True
        if _DEFERRED.search(text) and self._once("deferred tools"):
            self.defers = False
            return True
        if _THOUGHT.search(text):
            return self._learn_thoughts(text, body.get("thinking") or {})
        refused = _ANY.search(text) is not None
        if refused and "temperature" in body and "temperature" not in extra and "temperature" in text:
            if self._once("temperature"):
                self.sampling = False
                return True
            return False
        if "thinking" in body and "thinking" not in extra and self._learn_thinking(text, body["thinking"]):
            return True
        if "output_config" in body and "output_config" not in extra and _EFFORT.search(text):
            return self._learn_effort(text, (body["output_config"] or {}).get("effort"))
        if refused and "cache_control" in text and self._once("marks"):
            self.marks = False
            return True
        return False

    def _learn_thoughts(self, text: str, thinking: Mapping[str, Any]) -> bool:
        if "must start with a thinking block" in text:
            if self._once("no thinking"):
                self.form, self.always = "none", False
                return True
            return False
        if "prefix_mismatch_behavior" in text and self.form == "adaptive" and "block_binding" not in thinking:
            # System text that changes from turn to turn is enough to make the newest models doubt their old thoughts.
            if self._once("binding"):
                self.binding = True
                return True
            return False
        if self._once("replay"):
            self.replay = False
            return True
        return False

    def _learn_thinking(self, text: str, thinking: Mapping[str, Any]) -> bool:
        """A refusal about the ``thinking`` field. What was learnt before is not learnt again, nor mistaken for more: another
        call may have been under way with the same field."""
        kind = thinking.get("type")
        lesson = ""
        if "display" in thinking and "display" in text:
            lesson = "display"
        elif "block_binding" in thinking and "block_binding" in text:
            lesson = "no binding"
        elif kind == "enabled" and _ENABLED.search(text):
            lesson = "adaptive"
        elif kind == "adaptive" and _ADAPTIVE.search(text):
            lesson = "manual"
        elif kind == "disabled" and _DISABLED.search(text):
            lesson = "always on"
        elif _ANY.search(text) and re.search(r"\bthinking\b", text):
            lesson = "no thinking"
        if not lesson or not self._once(lesson):
            return False
        match lesson:
            case "display":
                self.display = False
            case "no binding":
                self.binding = self.replay = False
            case "adaptive":
                self.form, self.sampling = "adaptive", False
            case "manual":
                self.form, self.always = "manual", False
            case "always on":
                self.off = False
            case _:
                self.form, self.always = "none", False
        return True

    def _learn_effort(self, text: str, effort: Any) -> bool:
        if (found := _LEVEL.search(text)) and found[1] == effort and len(self.efforts) > 1:
            self.efforts = tuple(level for level in self.efforts if level != effort)
            return self._once(f"effort {effort}")
        if self._once("effort"):
            self.effort = False
            return True
        return False

    def _once(self, lesson: str) -> bool:
        if lesson in self._learnt:
            return False
        self._learnt.add(lesson)
        return True
