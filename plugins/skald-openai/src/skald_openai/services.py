"""The services known by name (``data/services.toml``) and what each does its own way."""

from __future__ import annotations

import functools
import ipaddress
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from skald_core.api import ConfigError

__all__ = ("Endpoint", "ServiceSpec", "all_services", "parse_endpoint")

Echo = Literal["never", "calls", "auto"]


class ServiceSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One service. Every field below ``local`` is a difference from plain chat completions.

    hosts
        Other host names of the same service.
    max_tokens
        The name of the output cap's field.
    effort, efforts
        How the reasoning effort is asked for: as ``reasoning_effort``; as OpenRouter's ``reasoning.effort``; as a
        ``thinking`` switch with ``reasoning_effort`` (DeepSeek) or without it (``toggle``). ``efforts`` are the levels
        it takes, lowest first; others are moved to the nearest.
    cache
        ``key`` sends ``prompt_cache_key``; ``marks`` marks messages for model families that want it.
    stream_options
        Whether usage has to be asked for with ``stream_options``.
    headers, body
        Sent with every request; ``body`` before the model's own extra settings.
    key_check
        A path that answers only to a valid key, for services whose model list is public.
    model_prefix
        Left off the ids of its model list.
    call_ids, call_id_length
        ``nine``: ids of tool calls are exactly nine letters or digits. Otherwise the longest id accepted.
    echo, echo_field, placeholder
        Whether reasoning goes back: ``never``; ``calls``, with messages that call tools; ``auto``, as the model's
        family wants. ``echo_field`` is used when a message does not say in which field its reasoning came;
        ``placeholder`` stands in for reasoning that must not be missing but is.
    reasoning_details
        Reasoning comes as OpenRouter's ``reasoning_details`` and goes back that way.
    signatures
        Gemini's: the first call of a message needs a thought signature, or the word that skips its check.
    """

    id: str
    title: str
    base_url: str
    help_url: str = ""
    key: Literal["required", "optional", "none"] = "required"
    local: bool = False

    hosts: tuple[str, ...] = ()
    max_tokens: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    effort: Literal["reasoning_effort", "reasoning", "thinking", "toggle"] = "reasoning_effort"
    efforts: tuple[str, ...] = ("none", "low", "medium", "high")
    cache: Literal["", "key", "marks"] = ""
    stream_options: bool = True
    headers: dict[str, str] = {}
    body: dict[str, Any] = {}
    key_check: str = ""
    model_prefix: str = ""
    call_ids: Literal["", "nine"] = ""
    call_id_length: int = 256
    echo: Echo = "auto"
    echo_field: str = ""
    placeholder: str = ""
    reasoning_details: bool = False
    signatures: bool = False


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where requests go. ``base_url`` has no trailing slash; ``label`` names the server in messages to people."""

    base_url: str
    origin: str
    host: str
    loopback: bool
    secure: bool
    service: ServiceSpec
    known: bool

    @property
    def label(self) -> str:
        return self.service.title

    def url(self, path: str) -> str:
        return self.base_url + path


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    service: tuple[ServiceSpec, ...]


@functools.cache
def all_services() -> tuple[ServiceSpec, ...]:
    """Every service of ``data/services.toml``, in its order."""
    path = Path(__file__).parent / "data" / "services.toml"
    return msgspec.toml.decode(path.read_bytes(), type=_File).service


def parse_endpoint(base_url: str) -> Endpoint:
    """Check a base URL as a person typed it and find the service it belongs to.

    Raises:
        ConfigError: with a sentence that says what to change.
    """
    text = base_url.strip().rstrip("/")
    if not text:
        raise ConfigError("The base URL is empty. Enter the server's address, such as 'http://127.0.0.1:11434/v1'.")
    if "://" not in text:
        raise ConfigError(f"The base URL {text!r} must start with https:// or, for a server nearby, http://.")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ConfigError(f"The base URL {text!r} is not a valid address. Check it for typing errors.") from None
    if parts.scheme not in ("http", "https"):
        raise ConfigError(f"The base URL {text!r} must start with https:// or, for a server nearby, http://.")
    if "@" in parts.netloc:
        raise ConfigError("The base URL must not hold a name or password. Put the key into the API key field.")
    host = parts.hostname
    if not host or any(c.isspace() or ord(c) < 32 for c in text) or "\\" in text:
        raise ConfigError(f"The base URL {text!r} is not a valid address. Check it for typing errors.")
    if parts.query or parts.fragment:
        bare = f"{parts.scheme}://{parts.netloc}{parts.path}"
        raise ConfigError(f"The base URL must not hold '?' or '#'. Leave them and all that follows out: {bare!r}.")
    path = parts.path.removesuffix("/chat/completions").rstrip("/")
    origin = f"{parts.scheme}://{parts.netloc}"
    loopback = _is_loopback(host)
    known = _find(host, port, loopback=loopback)
    return Endpoint(
        base_url=origin + path,
        origin=origin,
        host=host,
        loopback=loopback,
        secure=parts.scheme == "https",
        service=known or ServiceSpec(id="", title=parts.netloc, base_url=origin + path, key="optional"),
        known=known is not None,
    )


def _find(host: str, port: int | None, *, loopback: bool) -> ServiceSpec | None:
    for service in all_services():
        parts = urlsplit(service.base_url)
        if service.local:
            if loopback and port == parts.port:
                return service
        elif host == parts.hostname or host in service.hosts:
            return service
    return None


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
