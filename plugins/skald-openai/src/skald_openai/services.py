"""The services known by name (``data/services.toml``) and what each does its own way."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from skald_core.api import ConfigError, ServerAddress, parse_server_address

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
    responses
        Known to offer the Responses API, and better through it.
    window
        The context size, in tokens, of models whose name tells nothing.
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
        family wants. ``echo_field`` is used when a message does not say in which field its reasoning came; ``both`` sends
        it as ``reasoning_content`` and as ``reasoning``, whatever it says, for servers that changed the name.
        ``placeholder`` stands in for reasoning that must not be missing but is.
    reasoning_details
        Reasoning comes as OpenRouter's ``reasoning_details`` and goes back that way.
    tool_messages
        Takes tools in the middle of a conversation, as a system message with ``tools`` and no content, for model families
        that can be given them so.
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
    responses: bool = False
    window: int = 32_768
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
    tool_messages: bool = False


class Endpoint(ServerAddress, frozen=True, kw_only=True):
    """An address with the service behind it; ``known`` when that is one of the file's."""

    service: ServiceSpec


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
    if not base_url.strip(" \t\r\n/"):
        raise ConfigError("The base URL is empty. Enter the server's address, such as 'http://127.0.0.1:11434/v1'.")
    address = parse_server_address(base_url, tails=("/chat/completions", "/responses"))
    service = _find(address)
    known = service is not None
    if service is None:
        service = ServiceSpec(id="", title=address.label, base_url=address.base_url, key="optional")
    facts = msgspec.structs.asdict(address) | {"label": service.title, "known": known}
    return Endpoint(**facts, service=service)


def _find(address: ServerAddress) -> ServiceSpec | None:
    for service in all_services():
        parts = urlsplit(service.base_url)
        if service.local:
            if address.loopback and address.port == parts.port:
                return service
        elif address.host == parts.hostname or address.host in service.hosts:
            return service
    return None
