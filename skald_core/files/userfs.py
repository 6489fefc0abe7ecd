"""A person's files as their agent sees them.

The work is done by :class:`~skald_core.files.tree.FileTree` on worker threads; this is the part the rest of the server
and plugins hold on to. Mounts can be swapped at any time: the next call sees the new ones.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import BinaryIO, TypeVar

from skald_core.files.errors import FileErrorCode, FilesError
from skald_core.files.paths import Mount, MountTable, join_path, split_path
from skald_core.files.tree import ABSENT, MAX_TEXT_BYTES, FileInfo, FileTree, FileVersion, Infos, TextFile, Written

__all__ = (
    "ABSENT",
    "MAX_TEXT_BYTES",
    "FileErrorCode",
    "FileInfo",
    "FileTree",
    "FilesError",
    "Mount",
    "TextFile",
    "UserFs",
    "FileVersion",
    "Written",
)

T = TypeVar("T")


class UserFs:
    """The file namespace of one user: their home, and what is mounted beside it.

    Agent paths are relative to the home (``notes/a.md``; ``~/notes/a.md`` and ``/root/notes/a.md`` mean the same); any
    other absolute path, and every ``..`` that leaves the home, is refused. Methods raise :class:`FilesError`, whose
    text never holds a path of the host.
    """

    def __init__(self, home: Path, mounts: Iterable[Mount] = ()) -> None:
        """``home`` is created (mode 0700) when it is first needed."""
        self._home = home
        self._lock = threading.Lock()
        self.set_mounts(mounts)

    def set_mounts(self, mounts: Iterable[Mount]) -> None:
        """Replace every mount but the home. Raises ValueError for two mounts at one place."""
        self._mounts = MountTable([Mount("", self._home), *mounts])

    @property
    def tree(self) -> FileTree:
        """The synchronous view, with the mounts of this moment. Use it on a worker thread only; see :meth:`run`."""
        return FileTree(self._mounts, self._lock)

    async def run(self, work: Callable[[FileTree], T]) -> T:
        """Run ``work`` with the tree on a worker thread: several steps for the price of one hop."""
        return await asyncio.to_thread(work, self.tree)

    # -- names: no disk involved -----------------------------------------------------------------------------------

    @staticmethod
    def display(path: str) -> str:
        """The canonical agent path: ``"notes/a.md"``, and ``"~"`` for the home itself. Needs no user and no disk."""
        return join_path(split_path(path))

    def mount_of(self, path: str) -> str | None:
        """The prefix of the mount that holds ``path``: ``""`` is the home, None a place where nothing is mounted."""
        found = self._mounts.find(split_path(path))
        return None if found is None else found[0].prefix

    def in_home(self, path: str) -> bool:
        """Whether ``path`` is in the home itself, not in something mounted beside it."""
        return self.mount_of(path) == ""

    def can_write(self, path: str) -> bool:
        """Whether the mount of ``path`` may be written to at all."""
        return self.tree.can_write(path)

    # -- reading ---------------------------------------------------------------------------------------------------

    async def stat(self, path: str) -> FileInfo:
        """What is at ``path``; ``not_found`` when nothing is. Links are reported, never followed."""
        return await self.run(lambda t: t.stat(path))

    async def find(self, path: str) -> FileInfo | None:
        """Like :meth:`stat`, but None when nothing is there."""
        try:
            return await self.stat(path)
        except FilesError as error:
            if error.code == "not_found":
                return None
            raise

    async def read_bytes(self, path: str, *, limit: int = MAX_TEXT_BYTES) -> bytes:
        """The whole file; ``too_large`` when it has more than ``limit`` bytes."""
        return await self.run(lambda t: t.read_bytes(path, limit=limit))

    async def read_text(self, path: str, *, limit: int = MAX_TEXT_BYTES) -> str:
        """The whole text file; ``binary`` (saying what it is) or ``too_large``."""
        return (await self.load_text(path, limit=limit)).text

    async def load_text(self, path: str, *, limit: int = MAX_TEXT_BYTES) -> TextFile:
        """The whole text file with its encoding, line ends and version, so that it can be written back alike."""
        return await self.run(lambda t: t.read_text(path, limit=limit))

    async def with_file(self, path: str, work: Callable[[BinaryIO, FileInfo], T]) -> T:
        """Run ``work(file, info)`` on a worker thread with the file open for reading: for files too large to hold."""

        def opened(tree: FileTree) -> T:
            with tree.open(path) as (file, info):
                return work(file, info)

        return await self.run(opened)

    async def version(self, path: str) -> FileVersion:
        """The version of the file now; :data:`ABSENT` when there is none."""
        return await self.run(lambda t: t.version(path))

    async def list(self, path: str = "~") -> Infos:
        """The entries of a folder, by name."""
        return await self.run(lambda t: t.list(path))

    async def walk(
        self, path: str = "~", *, depth: int = 32, limit: int = 10_000, skip: frozenset[str] = frozenset()
    ) -> Infos:
        """Everything below a folder, each folder before its content; at most ``limit`` entries. See FileTree.walk."""

        def collect(tree: FileTree) -> Infos:
            return [*islice(tree.walk(path, depth=depth, skip=skip), limit)]

        return await self.run(collect)

    # -- writing ---------------------------------------------------------------------------------------------------

    async def write_bytes(self, path: str, data: bytes, *, expect: FileVersion | None = None) -> Written:
        """Replace or create a file, all or nothing; ``changed`` when it is no longer the version ``expect``."""
        return await self.run(lambda t: t.write_bytes(path, data, expect=expect))

    async def write_text(self, path: str, text: str, *, expect: FileVersion | None = None) -> Written:
        """Replace or create a text file as UTF-8."""
        return await self.write_bytes(path, text.encode(), expect=expect)

    async def append_text(self, path: str, text: str, *, expect: FileVersion | None = None) -> Written:
        """Put whole lines at the end of a text file, or create it."""
        return await self.run(lambda t: t.append_text(path, text, expect=expect))

    async def make_folder(self, path: str) -> None:
        """Create a folder and those above it."""
        await self.run(lambda t: t.make_folder(path))
