"""The folders plugins show beside a user's home."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

from skald_core.files.errors import FilesError
from skald_core.files.paths import Mount, Parts
from skald_core.files.userfs import UserFs
from skald_core.identity.models import User
from skald_core.plugins.user_hooks import UserHooks

__all__ = ("UserMounts",)

MOUNT_SECONDS = 5.0


class UserMounts:
    """Keeps one user's ``files`` in step with what ``skald_mounts`` says.

    What a plugin mounted is kept until it is asked again, so that taking one plugin's folders away waits for no other.
    ``problem(plugin, old, new)`` replaces the sentences shown with a plugin.
    """

    def __init__(
        self,
        hooks: UserHooks,
        files: UserFs,
        *,
        user: Callable[[], User],
        problem: Callable[[str, list[str], list[str]], None],
    ) -> None:
        self._hooks = hooks
        self._files = files
        self._user = user
        self._problem = problem
        self._mounts: dict[str, tuple[Mount, ...]] = {}
        self._told: dict[str, list[str]] = {}
        self._asking = asyncio.Lock()

    def drop_invisible(self) -> None:
        """Take away, at once, what belongs to plugins the user may not use (any more)."""
        visible = self._hooks.visible()
        gone = [plugin for plugin in self._mounts if plugin not in visible]
        for plugin in gone:
            del self._mounts[plugin]
        if gone:
            self._apply()

    async def ask(self, plugins: Iterable[str]) -> None:
        """Ask these plugins; the others' folders stay. One that fails has none."""
        async with self._asking:
            for plugin in plugins:
                outcome = await self._hooks.one("skald_mounts", plugin, {"user": self._user()}, timeout=MOUNT_SECONDS)
                if outcome is None or plugin not in self._hooks.visible():
                    self._mounts.pop(plugin, None)
                    continue
                mounts: tuple[Mount, ...] = ()
                if outcome.error is None and outcome.value is not None:
                    if _are_mounts(outcome.value):
                        mounts = tuple(outcome.value)
                    else:
                        self._hooks.wrong(outcome, "skald_mounts", "a list of Mounts with absolute host paths")
                self._mounts[plugin] = mounts
            self._apply()

    def _apply(self) -> None:
        """Show what fits together: of two at one place the one that was there first."""
        taken: dict[Parts, str] = {}
        kept: list[Mount] = []
        problems: dict[str, list[str]] = {}
        for plugin, mounts in self._mounts.items():
            for mount in mounts:
                try:
                    parts = mount.parts
                except FilesError as error:
                    problems.setdefault(plugin, []).append(f"a folder is left out: {error}")
                    continue
                where = f"the folder {mount.prefix!r} is left out for {self._user().username!r}"
                if not parts:
                    problems.setdefault(plugin, []).append(f"{where}: it would take the place of the home")
                elif parts in taken:
                    problems.setdefault(plugin, []).append(f"{where}: plugin {taken[parts]!r} has one there already")
                else:
                    taken[parts] = plugin
                    kept.append(mount)
        self._files.set_mounts(kept)
        for plugin in {*problems, *self._told}:
            old, new = self._told.get(plugin, []), problems.get(plugin, [])
            if old != new:
                self._problem(plugin, old, new)
        self._told = problems


def _are_mounts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(mount, Mount)
        and isinstance(mount.prefix, str)
        and isinstance(mount.host_path, Path)
        and mount.host_path.is_absolute()
        for mount in value
    )
