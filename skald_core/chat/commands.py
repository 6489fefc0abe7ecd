"""Slash commands: ``/name words`` stays what the person said, and the model reads the prompt the command makes of it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from skald_core.errors import BadInput
from skald_core.identity.models import User
from skald_core.loop.errors import ToolError
from skald_core.loop.text import clean
from skald_core.plugins.contributed import Contributed
from skald_core.plugins.contributions import Command, CommandCall
from skald_core.plugins.user_hooks import UserHooks

__all__ = ("Commands",)

EXPAND_SECONDS = 30.0
ARGS = "{{args}}"
_FORM = re.compile(r"/([A-Za-z0-9][A-Za-z0-9-]*)(?:\s+(.*))?", re.DOTALL)


class Commands:
    """The commands one user may use. ``text(key, **values)`` words refusals in their language."""

    def __init__(self, contributed: Contributed, hooks: UserHooks, *, longest: int, text: Callable[..., str]) -> None:
        self._contributed = contributed
        self._hooks = hooks
        self._longest = longest
        self._text = text

    def all(self) -> list[tuple[str, Command]]:
        """(plugin, command) by name."""
        return sorted(self._contributed.commands(self._hooks.visible()), key=lambda row: row[1].name)

    async def expand(self, user: User, conversation: str, content: str) -> str | None:
        """The prompt a command makes of ``content``, or None for text that names no command.

        Raises BadInput ``command_failed`` with the command's own sentence when it cannot.
        """
        found = _FORM.fullmatch(content.strip())
        if found is None:
            return None
        name, words = found[1].lower(), (found[2] or "").strip()  # phones begin a line with a capital
        known = next(((p, c) for p, c in self.all() if c.name == name), None)
        if known is None:
            return None
        plugin, command = known
        if isinstance(command.prompt, str):
            made: object = _filled(command.prompt, words)
        else:
            try:
                async with asyncio.timeout(EXPAND_SECONDS):
                    made = await command.prompt(CommandCall(user, conversation, words))
            except ToolError as error:
                raise self._failed(name, clean(str(error))) from None
            except TimeoutError as error:
                self._hooks.failed(plugin, f"/{name}", error)
                raise self._failed(name, self._text("command.too_slow")) from None
            except Exception as error:  # noqa: BLE001 -- a plugin's own function; its fault is shown with the plugin
                self._hooks.failed(plugin, f"/{name}", error)
                raise self._failed(name, self._text("command.broken", plugin=plugin)) from None
        if not isinstance(made, str) or not made.strip():
            self._hooks.failed(plugin, f"/{name}", TypeError(f"/{name} made {type(made).__name__}, not a prompt"))
            raise self._failed(name, self._text("command.broken", plugin=plugin))
        if len(made) > self._longest:
            raise self._failed(name, self._text("command.too_long", limit=f"{self._longest:,}"))
        return clean(made)

    @staticmethod
    def _failed(name: str, reason: str) -> BadInput:
        return BadInput(f"/{name}: {reason}", code="command_failed", name=name, reason=reason)


def _filled(template: str, words: str) -> str:
    if ARGS in template:
        return template.replace(ARGS, words)
    return f"{template}\n\n{words}" if words else template
