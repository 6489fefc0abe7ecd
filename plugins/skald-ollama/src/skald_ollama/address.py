"""Ollama's address and other settings, as a person typed them."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

import msgspec

from skald_core.api import ConfigError

__all__ = ("DEFAULT_BASE_URL", "HEADERS", "Address", "parse_address", "parse_keep_alive")

DEFAULT_BASE_URL = "http://127.0.0.1:11434"
HEADERS = {"User-Agent": "skald-ollama/0.1"}
"""Headers of every request."""
_TAILS = ("/chat", "/tags", "/api", "/v1")
_DURATION = re.compile(r"-?(?:\d+(?:\.\d+)?(?:ms|h|m|s))+")


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where requests go. ``base_url`` has no trailing slash."""

    base_url: str
    origin: str
    host: str
    loopback: bool

    def url(self, path: str) -> str:
        return self.base_url + path


def parse_address(base_url: str) -> Address:
    """Check an address. A missing ``http://`` is added, as OLLAMA_HOST is written without; a path that belongs to the API
    is left off.

    Raises:
        ConfigError: with a sentence that says what to change.
    """
    text = base_url.strip() or DEFAULT_BASE_URL
    if "://" not in text:
        text = f"http://{text}"
    if not text.startswith(("http://", "https://")):
        raise ConfigError(f"The address {text!r} must start with http:// or https://.")
    try:
        parts = urlsplit(text)
        _ = parts.port  # reading it checks it
    except ValueError:
        raise ConfigError(f"{text!r} is not a valid address. Check it for typing errors.") from None
    if "@" in parts.netloc:
        raise ConfigError("The address must not hold a name or password.")
    host = parts.hostname
    if not host or any(c.isspace() or ord(c) < 32 for c in text) or "\\" in text:
        raise ConfigError(f"{text!r} is not a valid address. Check it for typing errors.")
    if parts.query or parts.fragment:
        bare = f"{parts.scheme}://{parts.netloc}{parts.path}"
        raise ConfigError(f"The address must not hold '?' or '#'. Leave them and all that follows out: {bare!r}.")
    path = parts.path.rstrip("/")
    for tail in _TAILS:
        path = path.removesuffix(tail).rstrip("/")
    origin = f"{parts.scheme}://{parts.netloc}"
    return Address(base_url=origin + path, origin=origin, host=host, loopback=_is_loopback(host))


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


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
