"""A server's base URL, as a person typed it."""

from __future__ import annotations

import msgspec

from skald_core.api import ServerAddress, parse_server_address

__all__ = ("DEFAULT_BASE_URL", "parse_address")

DEFAULT_BASE_URL = "https://api.anthropic.com"
_TAILS = ("/messages", "/models", "/v1")


def parse_address(base_url: str) -> ServerAddress:
    """Check a base URL; what people paste too much of (``/v1``, ``/v1/messages``) is left off. It is ``known`` when it is
    Anthropic's own.

    Raises:
        ConfigError: with a sentence that says what to change.
    """
    address = parse_server_address(base_url.strip().rstrip("/") or DEFAULT_BASE_URL, tails=_TAILS)
    first = address.host == "api.anthropic.com"
    return msgspec.structs.replace(address, label="Anthropic", known=True) if first else address
