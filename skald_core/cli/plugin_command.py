"""``skald <plugin id> <command>``: the commands a plugin brings. Only that plugin is imported, and none of it is started."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pluggy

from skald_core import hookspecs
from skald_core.cli.client import Client, CliError
from skald_core.errors import SkaldError
from skald_core.loop.errors import ToolError
from skald_core.plugins.collect import check_items
from skald_core.plugins.contributions import CliCommand
from skald_core.plugins.discovery import Discovered, bundled_names, discover
from skald_core.runtime.settings import default_data_dir

__all__ = ("run",)


class _Host:
    """Implements :class:`skald_core.plugins.contributions.CliHost`."""

    def __init__(self, plugin_id: str, data_dir: Path, url: str | None, user: str | None) -> None:
        self.data_dir = data_dir
        self._plugin = plugin_id
        self._url = url
        self._user = user
        self._client: Client | None = None

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        try:
            if self._client is None:
                self._client = await Client.sign_in(self._url, self._user)
            return await self._client.call(method.upper(), f"/api/plugin/{self._plugin}/{path.lstrip('/')}", body)
        except SkaldError as error:
            raise ToolError(error.detail) from None

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()


def run(kernel: argparse.ArgumentParser, words: Sequence[str]) -> int:
    """``kernel`` tells the usage when no plugin has this id. Returns the command's exit status."""
    plugin_id = words[0]
    found = next((plugin for plugin in discover() if plugin.id == plugin_id), None)
    if found is None:
        kernel.error(f"there is neither a command nor an installed plugin {plugin_id!r}")
    common = _common_options()
    early, _ = common.parse_known_args([word for word in words[1:] if word not in {"-h", "--help"}])
    data_dir = (early._data or default_data_dir()).resolve()
    _need_enabled(found, data_dir)
    try:
        commands = _commands(found)
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- a stranger's code; its failure is told in one line
        raise CliError(f"the plugin {plugin_id!r} cannot be loaded: {type(error).__name__}: {error}") from None
    if not commands:
        raise CliError(f"the plugin {plugin_id!r} has no commands for the terminal")
    title = found.manifest.title if found.manifest is not None else plugin_id
    parser = argparse.ArgumentParser(prog=f"skald {plugin_id}", description=title)
    subparsers = parser.add_subparsers(dest="_command", required=True, metavar="command")
    for command in commands:
        one = subparsers.add_parser(command.name, help=command.help, description=command.help, parents=[common])
        try:
            command.arguments(one)
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- a stranger's code
            raise CliError(f"the command {command.name!r} of {plugin_id!r} cannot be used: {error}") from None
    args = parser.parse_args(words[1:])
    chosen = next(command for command in commands if command.name == args._command)
    return asyncio.run(_run(chosen, args, _Host(plugin_id, data_dir, args._url, args._user)))


def _common_options() -> argparse.ArgumentParser:
    """What every command takes. Kept under names of our own: a plugin's argument ``url`` is not the server's address, to
    which the password goes."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--data", dest="_data", type=Path, metavar="DIR", help="data directory (default: $SKALD_DATA)")
    common.add_argument(
        "--url", dest="_url", metavar="URL", help="the server (default: $SKALD_URL or http://127.0.0.1:9000)"
    )
    common.add_argument(
        "--user", dest="_user", metavar="USER", help="user name (default: asked, or $SKALD_USER with $SKALD_PASSWORD)"
    )
    return common


def _need_enabled(found: Discovered, data_dir: Path) -> None:
    """Raises CliError for a plugin that is broken, or that an administrator did not enable: its code is not to run."""
    from skald_core.cli.plugin import _stored

    if found.manifest is None:
        raise CliError(f"the plugin {found.id!r} cannot be used: {found.error}")
    stored = asyncio.run(_stored(data_dir))
    enabled = stored[found.id][0] if found.id in stored else found.distribution in bundled_names()
    if not enabled:
        raise CliError(f"the plugin {found.id!r} is disabled; enable it with 'skald plugin enable {found.id}'")


def _commands(found: Discovered) -> list[CliCommand]:
    """What the plugin's ``skald_cli`` returns."""
    module_name, _, attribute = found.module.partition(":")
    module: Any = importlib.import_module(module_name)
    plugin = getattr(module, attribute) if attribute else module
    manager = pluggy.PluginManager("skald")
    manager.add_hookspecs(hookspecs)
    manager.register(plugin, name=found.id)
    commands: list[CliCommand] = []
    for implementation in manager.hook.skald_cli.get_hookimpls():
        value = implementation.function()
        if inspect.isawaitable(value):
            value = asyncio.run(_awaited(value))
        commands += check_items("skald_cli", value, CliCommand)
    names = [command.name for command in commands]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"skald_cli: the command {twice!r} is there twice")
    return commands


async def _awaited(value: Any) -> Any:
    return await value


async def _run(command: CliCommand, args: argparse.Namespace, host: _Host) -> int:
    try:
        status = command.run(args, host)
        if inspect.isawaitable(status):
            status = await status
    except (ToolError, SkaldError) as error:
        raise CliError(str(error)) from None
    except Exception as error:  # noqa: BLE001 -- a stranger's code; its failure is told in one line
        raise CliError(f"the command {command.name!r} failed: {type(error).__name__}: {error}") from None
    finally:
        await host.close()
    return status if isinstance(status, int) else 0
