"""``plugins.lock`` in the data directory: the plugins this instance wants, by version and hash.

The data outlives the environment (a new image, a new virtual environment); this file says what to put back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from skald_core.errors import SkaldError
from skald_core.plugins.install.environment import Installed

__all__ = ("LockFile", "LockedPackage", "LockedPlugin", "lock_path", "missing", "read_lock", "write_lock")


class LockedPackage(msgspec.Struct, frozen=True):
    """A package that came with a plugin; ``sha256`` of the wheel, empty when it was not installed from here."""

    name: str
    version: str
    sha256: str = ""


class LockedPlugin(msgspec.Struct, frozen=True):
    """A plugin. ``editable`` ones are a developer's folder and are never put back."""

    id: str
    name: str
    version: str
    sha256: str = ""
    enabled: bool = False
    editable: bool = False


class LockFile(msgspec.Struct, frozen=True):
    """The whole file. ``version`` is 1."""

    version: int = 1
    plugins: list[LockedPlugin] = []
    packages: list[LockedPackage] = []

    def hash_of(self, name: str, version: str) -> str:
        rows: list[LockedPlugin | LockedPackage] = [*self.plugins, *self.packages]
        return next((row.sha256 for row in rows if row.name == name and row.version == version), "")


def lock_path(data_dir: Path) -> Path:
    return data_dir / "plugins.lock"


def read_lock(data_dir: Path) -> LockFile:
    """Empty when there is none. Raises SkaldError for one that cannot be read: guessing would lose plugins."""
    path = lock_path(data_dir)
    try:
        found = msgspec.json.decode(path.read_bytes(), type=LockFile)
    except FileNotFoundError:
        return LockFile()
    except (OSError, msgspec.DecodeError, msgspec.ValidationError) as error:
        raise SkaldError(
            f"{str(path)!r} cannot be read ({error}); mend it, or write it anew with 'skald plugin lock'",
            code="bad_lock",
        ) from None
    if found.version != 1:
        raise SkaldError(f"{str(path)!r} was written by a newer version of Skald", code="bad_lock")
    return found


def write_lock(data_dir: Path, lock: LockFile) -> None:
    """Replace the file as a whole: a reader, and a crash, sees the old or the new one."""
    path = lock_path(data_dir)
    fresh = path.with_name(path.name + ".new")
    ordered = LockFile(
        plugins=sorted(lock.plugins, key=lambda row: row.name), packages=sorted(lock.packages, key=lambda row: row.name)
    )
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(ordered), indent=2) + b"\n")
    fresh.replace(path)


def current(
    installed: Mapping[str, Installed], enabled: Mapping[str, bool], bundled: Iterable[str], old: LockFile
) -> LockFile:
    """The environment as it is: every plugin that is not bundled, with the hashes and packages that ``old`` knows."""
    plugins = [
        LockedPlugin(
            id=plugin_id,
            name=dist.name,
            version=dist.version,
            sha256=old.hash_of(dist.name, dist.version),
            enabled=enabled.get(plugin_id, False),
            editable=dist.editable,
        )
        for dist in installed.values()
        for plugin_id in dist.plugin_ids
        if dist.name not in set(bundled)
    ]
    packages = [
        LockedPackage(row.name, installed[row.name].version, old.hash_of(row.name, installed[row.name].version))
        for row in old.packages
        if row.name in installed
    ]
    return LockFile(plugins=plugins, packages=packages)


def missing(lock: LockFile, installed: Mapping[str, Installed]) -> list[LockedPlugin]:
    """What the lock wants and the environment lacks, or has in another version."""
    return [
        row
        for row in lock.plugins
        if not row.editable and (row.name not in installed or installed[row.name].version != row.version)
    ]
