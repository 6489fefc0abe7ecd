"""Token counts in the shapes servers send, normalised."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from skald_core.api import Usage

__all__ = ("read_usage",)


def read_usage(raw: Mapping[str, Any]) -> Usage:
    """One server's ``usage`` object as :class:`Usage`: input with what was cached, output with what was thought.

    Cached tokens are looked for where OpenAI, DeepSeek and Moonshot put them. Counts that the total shows to be left out
    elsewhere are added: cached input (some Anthropic gateways), hidden reasoning (xAI, Gemini).
    """
    prompt = _count(raw, "prompt_tokens", "input_tokens")
    completion = _count(raw, "completion_tokens", "output_tokens")
    total = _count(raw, "total_tokens")
    prompt_details = _mapping(raw, "prompt_tokens_details", "input_tokens_details")
    read = _count(prompt_details, "cached_tokens", "cache_read_tokens") or _count(
        raw, "cache_read_input_tokens", "prompt_cache_hit_tokens", "cached_tokens"
    )
    written = _count(prompt_details, "cache_write_tokens", "cache_creation_tokens") or _count(
        raw, "cache_creation_input_tokens"
    )
    missing = total - prompt - completion
    if read + written > prompt or (missing > 0 and missing in (read, read + written)):
        prompt += read + written if missing != read else read
    elif missing > 0:
        completion += missing
    return Usage(
        input_tokens=prompt,
        output_tokens=completion,
        cache_read_tokens=min(read, prompt),
        cache_write_tokens=written,
        cost_usd=_cost(raw.get("cost")),
    )


def _count(raw: Mapping[str, Any], *names: str) -> int:
    for name in names:
        value = raw.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
            return int(value)
    return 0


def _mapping(raw: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    for name in names:
        value = raw.get(name)
        if isinstance(value, dict):
            return value
    return {}


def _cost(value: Any) -> float | None:
    """US dollars, as OpenRouter's number or Perplexity's object; None when absent or senseless."""
    if isinstance(value, dict):
        value = value.get("total_cost")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        return None
    return float(value)
