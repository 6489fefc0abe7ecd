"""A server's base URL, as a person typed it."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

import msgspec

from skald_core.api import ConfigError

__all__ = ("DEFAULT_BASE_URL", "Address", "parse_address")

DEFAULT_BASE_URL = "https://api.anthropic.com"
_TAILS = ("/messages", "/models", "/v1")


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where requests go. ``base_url`` has no trailing slash; ``label`` names the server in messages to people; ``first``
    says that it is Anthropic's own."""

    base_url: str
    origin: str
    host: str
    label: str
    loopback: bool
    first: bool

    def url(self, path: str) -> str:
        return self.base_url + path


def parse_address(base_url: str) -> Address:
    """Check a base URL; what people paste too much of (``/v1``, ``/v1/messages``) is left off.

    Raises:
        ConfigError: with a sentence that says what to change.
    """
    text = base_url.strip().rstrip("/") or DEFAULT_BASE_URL
    if not text.startswith(("http://", "https://")):
        raise ConfigError(f"The base URL {text!r} must start with https:// or, for a server nearby, http://.")
    try:
        parts = urlsplit(text)
        _ = parts.port  # reading it checks it
    except ValueError:
        raise ConfigError(f"The base URL {text!r} is not a valid address. Check it for typing errors.") from None
    if "@" in parts.netloc:
        raise ConfigError("The base URL must not hold a name or password. Put the key into the API key field.")
    host = parts.hostname
    if not host or any(c.isspace() or ord(c) < 32 for c in text) or "\\" in text:
        raise ConfigError(f"The base URL {text!r} is not a valid address. Check it for typing errors.")
    if parts.query or parts.fragment:
        bare = f"{parts.scheme}://{parts.netloc}{parts.path}"
        raise ConfigError(f"The base URL must not hold '?' or '#'. Leave them and all that follows out: {bare!r}.")
    path = parts.path.rstrip("/")
    for tail in _TAILS:
        path = path.removesuffix(tail).rstrip("/")
    origin = f"{parts.scheme}://{parts.netloc}"
    first = host == "api.anthropic.com"
    return Address(
        base_url=origin + path,
        origin=origin,
        host=host,
        label="Anthropic" if first else parts.netloc,
        loopback=_is_loopback(host),
        first=first,
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
