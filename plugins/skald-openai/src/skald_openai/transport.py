"""What every request to an endpoint carries."""

from __future__ import annotations

from skald_core.api import ConfigError
from skald_openai.services import Endpoint

__all__ = ("request_headers",)


def request_headers(endpoint: Endpoint, api_key: str) -> dict[str, str]:
    """Headers of every request. A key with characters no header can carry is refused.

    Raises:
        ConfigError: the key cannot be sent.
    """
    headers = {"User-Agent": "skald-openai/0.1", **endpoint.service.headers}
    if api_key:
        if not api_key.isascii() or not api_key.isprintable() or " " in api_key:
            raise ConfigError("The API key holds a space or a letter no key has. Copy it again.")
        headers["Authorization"] = f"Bearer {api_key}"
    return headers
