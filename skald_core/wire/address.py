"""A model server's address, as a person typed it."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

import msgspec

from skald_core.loop.errors import ConfigError

__all__ = ("ServerAddress", "parse_server_address")


class ServerAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where requests go, and how to speak of it.

    ``base_url`` has no trailing slash; ``origin`` is its scheme, host and port. ``label`` names the server in messages to
    people: its host and port, unless a provider knows a better name. With ``known`` the label is a service's own name, and
    messages about the connection give the origin too. ``loopback`` says that it is this machine.
    """

    base_url: str
    origin: str
    host: str
    port: int | None
    loopback: bool
    label: str
    known: bool = False

    def url(self, path: str) -> str:
        """The URL of ``path``, which begins with a slash."""
        return self.base_url + path


def parse_server_address(
    typed: str, *, field: str = "base URL", tails: Iterable[str] = (), takes_key: bool = True
) -> ServerAddress:
    """Check an address, and leave off of its path what people paste too much of.

    ``tails`` are such endings, each tried once, in their order. ``field`` is what the person knows the setting as;
    ``takes_key`` says that the provider has a field for a key.

    Raises:
        ConfigError: with a sentence that says what to change, and never repeats a secret.
    """
    text = typed.strip()
    if "://" not in text:
        raise ConfigError(f"The {field} {text!r} must start with https:// or, for a server nearby, http://.")
    wrong = f"{text!r} is not a valid address. Check it for typing errors."
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ConfigError(wrong) from None
    if parts.scheme not in ("http", "https"):
        raise ConfigError(f"The {field} {text!r} must start with https:// or, for a server nearby, http://.")
    if "@" in parts.netloc:
        hint = " Put the key into the API key field." if takes_key else ""
        raise ConfigError(f"The {field} must not hold a name or password.{hint}")
    host = parts.hostname
    if not host or any(c.isspace() or ord(c) < 32 for c in text) or "\\" in text:
        raise ConfigError(wrong)
    origin = f"{parts.scheme}://{parts.netloc}"
    if parts.query or parts.fragment:
        bare = origin + parts.path
        raise ConfigError(f"The {field} must not hold '?' or '#'. Leave them and all that follows out: {bare!r}.")
    path = parts.path.rstrip("/")
    for tail in tails:
        path = path.removesuffix(tail).rstrip("/")
    return ServerAddress(
        base_url=origin + path,
        origin=origin,
        host=host,
        port=port,
        loopback=_is_loopback(host),
        label=parts.netloc,
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
