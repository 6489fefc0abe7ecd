"""Ollama's address and other settings, as a person typed them."""

from __future__ import annotations

import re

import msgspec

from skald_core.api import ConfigError, ServerAddress, parse_server_address

__all__ = ("DEFAULT_BASE_URL", "HEADERS", "parse_address", "parse_keep_alive")

DEFAULT_BASE_URL = "http://127.0.0.1:11434"
HEADERS = {"User-Agent": "skald-ollama/0.1"}
"""Headers of every request."""
_TAILS = ("/chat", "/tags", "/api", "/v1")
_DURATION = re.compile(r"-?(?:\d+(?:\.\d+)?(?:ms|h|m|s))+")


def parse_address(base_url: str) -> ServerAddress:
    """Check an address. A missing ``http://`` is added, as OLLAMA_HOST is written without; a path that belongs to the API
    is left off.

    Raises:
        ConfigError: with a sentence that says what to change.
    """
    text = base_url.strip() or DEFAULT_BASE_URL
    if "://" not in text:
        text = f"http://{text}"
    address = parse_server_address(text, field="address", tails=_TAILS, takes_key=False)
    return msgspec.structs.replace(address, label="Ollama")


def parse_keep_alive(text: str) -> int | str | None:
    """How long a model stays loaded: seconds as a number, or a duration such as ``1h30m``; None to leave it to Ollama.

    Raises:
        ConfigError: it is neither.
    """
    text = text.strip().lower()
    if not text:
        return None
    if re.fullmatch(r"-?\d{1,9}", text):
        return int(text)
    if _DURATION.fullmatch(text):
        return text
    raise ConfigError(f"{text!r} is no time to keep a model loaded. Enter one such as 30m, 2h, -1 for ever or 0.")
