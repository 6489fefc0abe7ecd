"""How an agent names files, as pure text: nothing here touches a disk.

``notes/a.md``, ``./notes/a.md``, ``~/notes/a.md`` and ``/root/notes/a.md`` are the same file of the caller's home. The
parts (``("notes", "a.md")``) are what the rest of the file layer works with.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from skald_core.files.errors import FilesError

__all__ = ("HOME", "Mount", "MountTable", "Parts", "is_plain_name", "join_path", "printable", "split_path")

Parts = tuple[str, ...]
HOME = "~"

MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 4096

_DIRECTION = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def _is_hidden(char: str) -> bool:
    """Control and direction-changing characters, and halves of characters: they make one name look like another."""
    code = ord(char)
    return code < 0x20 or 0x7F <= code < 0xA0 or 0xD800 <= code <= 0xDFFF or char in _DIRECTION


def printable(name: str) -> str:
    """``name`` with what cannot be shown or sent replaced, for names that come from a disk."""
    return "".join("\ufffd" if _is_hidden(c) else c for c in name)


def is_plain_name(name: str) -> bool:
    """Whether an agent could name a directory entry called ``name``."""
    return not any(_is_hidden(c) or c == "\\" for c in name)


def split_path(path: str) -> Parts:
    """The parts below the home that ``path`` means; the home itself is ``()``.

    Raises FilesError: ``bad_path`` for text that is no path here, ``outside`` for one that leaves the home.
    """
    if any(_is_hidden(c) for c in path):
        raise FilesError(
            f"The path {printable(path)[:120]!r} has invisible or control characters in it.",
            code="bad_path",
            remedy="Write the path with ordinary characters.",
        )
    shown = path[:120]
    if "\\" in path:
        raise FilesError(
            f"The path {shown!r} has a backslash in it.", code="bad_path", remedy="Put '/' between folders."
        )
    if len(path.encode()) > MAX_PATH_BYTES:
        raise FilesError(
            f"The path {shown!r}… is longer than {MAX_PATH_BYTES} bytes.", code="bad_path", remedy="Use a shorter one."
        )
    names = [name for name in path.split("/") if name not in {"", "."}]
    if path == HOME or path.startswith(HOME + "/"):
        names = names[1:]
    elif path.startswith("/"):
        if names[:1] != ["root"]:
            better = "/".join(name for name in names if name != "..") or "."
            raise FilesError(
                f"{shown!r} is outside your files.",
                code="outside",
                remedy=f"Use a path inside the home folder, such as {better[:120]!r}.",
            )
        names = names[1:]
    parts: list[str] = []
    for part in names:
        if part == "..":
            if not parts:
                raise FilesError(
                    f"{shown!r} leads out of the home folder.",
                    code="outside",
                    remedy="Use a path inside it; '..' cannot go above it.",
                )
            parts.pop()
            continue
        if len(part.encode()) > MAX_NAME_BYTES:
            raise FilesError(
                f"The name {part[:60]!r}… is longer than {MAX_NAME_BYTES} bytes.",
                code="bad_path",
                remedy="Use a shorter name.",
            )
        parts.append(part)
    return tuple(parts)


def join_path(parts: Parts) -> str:
    """The canonical agent path of ``parts``: ``split_path`` of it gives the same parts again."""
    if not parts:
        return HOME
    text = "/".join(parts)
    return f"./{text}" if parts[0] == HOME else text  # a file that is itself called "~"


class Mount(msgspec.Struct, frozen=True):
    """A folder of the host shown to an agent below ``prefix``: ``""`` (the home), ``"docs"``, ``"shared/kitchen"``."""

    prefix: str
    host_path: Path
    writable: bool = True

    @property
    def parts(self) -> Parts:
        return split_path(self.prefix)


class MountTable:
    """Which mount a path belongs to. Immutable; the longest prefix wins.

    A folder that exists only because mounts lie below it (``shared`` when ``shared/kitchen`` is mounted) is *virtual*:
    it can be listed, and nothing in it falls back to a folder of the same name in the home.
    """

    def __init__(self, mounts: Iterable[Mount]) -> None:
        self._by_parts: dict[Parts, Mount] = {}
        for mount in mounts:
            if mount.parts in self._by_parts:
                raise ValueError(f"two mounts at {mount.prefix!r}: each prefix may be mounted once")
            self._by_parts[mount.parts] = mount
        self._virtual = {parts[:n] for parts in self._by_parts for n in range(1, len(parts))} - set(self._by_parts)

    def find(self, parts: Parts) -> tuple[Mount, Parts] | None:
        """The mount that holds ``parts``, and the parts below it; None in a virtual folder where nothing is mounted."""
        for n in range(len(parts), -1, -1):
            if parts[:n] in self._virtual:
                return None
            mount = self._by_parts.get(parts[:n])
            if mount is not None:
                return mount, parts[n:]
        return None

    def is_virtual(self, parts: Parts) -> bool:
        return parts in self._virtual

    def children(self, parts: Parts) -> list[str]:
        """Names directly below ``parts`` that are mounts or lead to one, sorted."""
        depth = len(parts)
        return sorted({p[depth] for p in self._by_parts if len(p) > depth and p[:depth] == parts})
