"""What one model at one server can do, and learning it from a refusal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

__all__ = ("Dialect",)

_UNKNOWN = re.compile(r"unsupported|unrecogni[sz]ed|unknown|unexpected|invalid|cannot unmarshal|must be", re.IGNORECASE)
_OPTIONAL = ("truncate", "shift", "keep_alive")


class Dialect:
    """The differences that shape a request. :meth:`learn` changes them when Ollama refuses something.

    tools
        Whether the model's template has a place for tools.
    think
        How thinking is asked for: with a ``level``, with a ``switch`` (before Ollama 0.11), ``never``.
    """

    def __init__(self) -> None:
        self.tools = True
        self.think: Literal["level", "switch", "never"] = "level"
        self.left_out: set[str] = set()

    def learn(self, text: str, body: Mapping[str, Any], extra: Mapping[str, Any]) -> None:
        """Adjust to a refusal (HTTP 400) of ``body``. A field a person set in the model's extra settings is never touched."""
        said = text.lower()
        if "tools" in body and "does not support tools" in said:
            self.tools = False
        elif "think" in body and "think" not in extra and "does not support thinking" in said:
            self.think = "never"
        elif isinstance(body.get("think"), str) and "think" not in extra and "think" in said and _UNKNOWN.search(said):
            self.think = "switch"
        elif _UNKNOWN.search(said):
            self.left_out |= {f for f in _OPTIONAL if f in body and f not in extra and re.search(rf"\b{f}\b", said)}
