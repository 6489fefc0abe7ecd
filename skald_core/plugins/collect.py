"""Asking a plugin for its declarations, and checking each as it comes."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Literal, TypeVar

import msgspec

from skald_core.loop.tools import Tool
from skald_core.plugins.contributed import PluginContributions
from skald_core.plugins.contributions import (
    AgentSpec,
    Capability,
    CliCommand,
    Command,
    HealthCheck,
    Migration,
    ProviderType,
    Schema,
    Service,
    WebPage,
)

__all__ = ("Ask", "check_items", "check_texts", "collect")

T = TypeVar("T")

Ask = Callable[[str], Awaitable[Any]]
"""Calls a hook of the plugin being started; None when it has no such hook."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_TOOL = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PLAIN = (str, bool, int, tuple[str, ...], tuple[str, ...] | None, dict[str, str], str | None, Literal["chat", "task"])
_PAGE = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


async def collect(plugin_id: str, ask: Ask) -> PluginContributions:
    """Everything but settings, texts and routes. Raises TypeError or ValueError saying what the author has to change."""

    async def declared(hook: str, kind: type[T]) -> list[T]:
        return check_items(hook, await ask(hook), kind)

    brought = PluginContributions()
    brought.capabilities = await declared("skald_capabilities", Capability)
    prefix = f"{plugin_id}."
    for capability in brought.capabilities:
        if not capability.id.startswith(prefix) or capability.id == prefix:
            raise ValueError(f"skald_capabilities: the id {capability.id!r} must start with {prefix!r}")
    brought.schemas = await declared("skald_schema", Schema)
    _once("skald_schema", "bucket", (schema.bucket for schema in brought.schemas))
    for schema in brought.schemas:
        if schema.bucket not in {"registry", "owner"}:
            raise ValueError(f"skald_schema: the bucket {schema.bucket!r} must be 'registry' or 'owner'")
        check_items("skald_schema", schema.migrations, Migration)
    brought.services = await declared("skald_services", Service)
    brought.tools = await declared("skald_tools", Tool)
    for tool in brought.tools:
        _check_tool(tool)
    brought.providers = await declared("skald_llm_providers", ProviderType)  # type: ignore[type-abstract]  # only isinstance
    brought.agents = await declared("skald_agents", AgentSpec)
    brought.commands = await declared("skald_commands", Command)
    for command in brought.commands:
        if not _NAME.fullmatch(command.name):
            raise ValueError(
                f"skald_commands: the name {command.name!r} may hold lower-case letters, digits and hyphens only"
            )
    brought.health = await declared("skald_health", HealthCheck)
    _once("skald_health", "check", (check.id for check in brought.health))
    brought.cli = [command.name for command in await declared("skald_cli", CliCommand)]
    brought.routes = check_items("skald_routes", await ask("skald_routes"), object)
    brought.pages = await declared("skald_web_pages", WebPage)
    _once("skald_web_pages", "page", (page.page_id for page in brought.pages))
    for page in brought.pages:
        if not _PAGE.fullmatch(page.page_id):
            raise ValueError(f"skald_web_pages: the page id {page.page_id!r} may hold a–z, 0–9, '-' and '_' only")
        if "://" in page.entry or ".." in page.entry.split("/") or not page.entry.strip("/"):
            raise ValueError(
                f"skald_web_pages: the entry {page.entry!r} of page {page.page_id!r} must be a path below the plugin's own, "
                "such as 'web/page.js'"
            )
    return brought


def check_texts(texts: Any) -> dict[str, dict[str, str]]:
    """What ``skald_i18n`` returned; nothing for None. Raises TypeError for a nested bundle or a text that is none."""
    try:
        return {} if texts is None else msgspec.convert(texts, dict[str, dict[str, str]])
    except msgspec.ValidationError as error:
        raise TypeError(
            f"skald_i18n must return one flat table of texts per locale, {{'en': {{'key': 'text'}}}}: {error}"
        ) from None


def check_items(hook: str, value: Any, kind: type[T]) -> list[T]:
    """``value`` as a list of ``kind``; nothing for None. Raises TypeError."""
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise TypeError(f"{hook} must return a list of {_called(kind)}, it returned {type(value).__name__}")
    for item in value:
        if not isinstance(item, kind):
            raise TypeError(f"{hook} must return a list of {_called(kind)}, one of its items is {_what(item)}")
        if isinstance(item, msgspec.Struct):
            _check_fields(hook, item)
    return list(value)


def _check_fields(hook: str, item: msgspec.Struct) -> None:
    """The constructor of a struct checks no types; a wrong one must be told here, not where the catalog is drawn."""
    for field in msgspec.structs.fields(item):
        value = getattr(item, field.name)
        if field.type in _PLAIN:
            try:
                msgspec.convert(value, field.type)
            except msgspec.ValidationError as error:
                raise TypeError(f"{hook}: {field.name} of {type(item).__name__} is wrong: {error}") from None
        elif field.name in {"check", "run", "arguments"} and not callable(value):
            raise TypeError(f"{hook}: {field.name} of {type(item).__name__} must be a function, not {value!r}")


def _check_tool(tool: Tool) -> None:
    """One tool that cannot be offered would keep models from all the others."""
    if not isinstance(tool.name, str) or not _TOOL.fullmatch(tool.name):
        raise ValueError(f"skald_tools: the tool name {tool.name!r} must be 1 to 64 letters, digits, '_' or '-'")
    try:
        msgspec.json.encode((tool.description, tool.parameters, tool.title, tool.icon))
    except (TypeError, ValueError) as error:
        raise TypeError(f"skald_tools: what the tool {tool.name!r} says of itself is no JSON: {error}") from None
    if not isinstance(tool.parameters, dict):
        raise TypeError(f"skald_tools: parameters of {tool.name!r} must be a JSON Schema object")


def _called(kind: type[Any]) -> str:
    return "route handlers" if kind is object else kind.__name__


def _what(item: object) -> str:
    return f"the class {item.__name__} itself" if isinstance(item, type) else type(item).__name__


def _once(hook: str, what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{hook}: the {what} {name!r} is there twice")
        seen.add(name)
