"""What is known of models by their name: Claude's version says nearly everything.

Sizes are tokens, from Anthropic's model pages; where models of one version differ, the smallest is given. What the model
list says wins over this.
"""

from __future__ import annotations

import functools
import re

from skald_core.api import ModelInfo

__all__ = ("Version", "defers_tools", "family_of", "known_info", "version_of")

Version = tuple[int, int]

_FALLBACK = ModelInfo(context_window=128_000, capabilities=frozenset({"tools", "prompt_cache"}))
_BASE = frozenset({"tools", "vision", "prompt_cache"})
_DATE = re.compile(r"[-@](?:20\d{6}|latest)(?:-v\d.*)?$|-v\d+(?::\d+)?$")
_WINDOW = 200_000
_LARGE_WINDOW = 1_000_000


def _short(model: str) -> str:
    name = model.strip().lower().rpartition("/")[2]
    at = name.find("claude")
    return name[at:] if at >= 0 else name


@functools.lru_cache(maxsize=256)
def version_of(model: str) -> Version | None:
    """Claude's version in a model's name: ``claude-3-7-sonnet-20250219`` is (3, 7), ``claude-opus-4-20250514`` (4, 0).

    None for other models and for names without one. Gateways' prefixes and dots for hyphens are understood.
    """
    name = _short(model)
    if not name.startswith("claude"):
        return None
    numbers: list[int] = []
    for word in re.split(r"[-.@:_\[]", name):
        if word.isdecimal() and len(word) <= 2:
            numbers.append(int(word))
        elif numbers:
            break
    if not numbers:
        return None
    return numbers[0], numbers[1] if len(numbers) > 1 else 0


@functools.lru_cache(maxsize=256)
def family_of(model: str) -> str:
    """The model without the date of its release: what wrote a thought can read it again, whatever name it was asked by."""
    return _DATE.sub("", _short(model))


def defers_tools(model: str) -> bool:
    """Whether a model can be given tools by reference (Claude API, "Tool search tool": from 4.5)."""
    version = version_of(model)
    return version is not None and version >= (4, 5)


@functools.lru_cache(maxsize=256)
def known_info(model: str) -> ModelInfo:
    """What is known of ``model``, defaults for a model of another maker."""
    name, version = _short(model), version_of(model)
    if not name.startswith("claude"):
        return _FALLBACK
    if version is None:
        return ModelInfo(_WINDOW, 32_000, _BASE | {"documents", "reasoning"})
    if version < (3, 5):
        return ModelInfo(_WINDOW, 4_096, _BASE)
    if version < (3, 7):
        return ModelInfo(_WINDOW, 8_192, _BASE | {"documents"})
    abilities = _BASE | {"documents", "reasoning"}
    if version < (4, 5):
        return ModelInfo(_WINDOW, 32_000 if "opus" in name else 64_000, abilities)
    if version < (5, 0):
        return ModelInfo(_WINDOW, 64_000, abilities)
    return ModelInfo(_LARGE_WINDOW, 128_000, abilities)
