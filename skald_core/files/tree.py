"""Contained, synchronous access to the folders of a mount table.

Containment holds at the moment of opening, not of checking: every path is walked one part at a time from an open
descriptor of the mount's own folder, and no part may be a symbolic link (``openat`` with ``O_NOFOLLOW``). A link that
is swapped in at any moment makes the open fail; it cannot lead it elsewhere. ``..`` was resolved before, as text.
"""

from __future__ import annotations

import difflib
import errno
import hashlib
import os
import secrets
import stat
import threading
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Literal, NewType, Self

import msgspec

from skald_core.files.content import (
    Text,
    decode_part,
    decode_text,
    detect_encoding,
    dominant_newline,
    file_type,
    human_size,
)
from skald_core.files.errors import FilesError, from_os_error
from skald_core.files.paths import MountTable, Parts, is_plain_name, join_path, printable, split_path

__all__ = ("ABSENT", "FileInfo", "FileTree", "TextFile", "FileVersion", "Written")

Kind = Literal["file", "dir", "link", "other"]
FileVersion = NewType("FileVersion", str)
"""Names one content of a file: ``sha256:<hex>``, or :data:`ABSENT`."""
ABSENT = FileVersion("absent")

MAX_TEXT_BYTES = 16 * 1024 * 1024
"""Largest file that is read whole unless the caller says otherwise."""

_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a pipe or a device must return at once, so that it can be refused.
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_TEMP = (".skald-", ".tmp")
_CHUNK = 1 << 20
_MAX_SUGGESTION_NAMES = 2000


class FileInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the tree. ``path`` is canonical; ``modified`` in seconds since the epoch; ``size`` in bytes."""

    path: str
    name: str
    kind: Kind
    size: int = 0
    modified: float = 0.0


Infos = list[FileInfo]


class TextFile(msgspec.Struct, frozen=True, kw_only=True):
    """A text file that was read whole, and the version that was read."""

    info: FileInfo
    text: str
    encoding: str
    newline: str
    version: FileVersion

    def encode(self, text: str) -> bytes:
        """``text`` in this file's encoding. Raises FilesError (``encoding``) when it cannot hold it."""
        try:
            return Text(text=text, encoding=self.encoding, newline=self.newline).encode(text)
        except UnicodeEncodeError as error:
            char = error.object[error.start : error.start + 1]
            raise FilesError(
                f"{self.info.path!r} is stored as {self.encoding}, which cannot hold {char!r}.",
                code="encoding",
                remedy="Use other characters, or write the whole file anew to store it as UTF-8.",
            ) from None


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What a write did. ``size`` is the file's size now, ``added`` how many bytes an append put at the end."""

    path: str
    created: bool
    size: int
    added: int = 0


def _is_temp(name: str) -> bool:
    return name.startswith(_TEMP[0]) and name.endswith(_TEMP[1])


def _kind(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "dir"
    return "link" if stat.S_ISLNK(mode) else "other"


def _hash(fd: int) -> FileVersion:
    digest = hashlib.sha256()
    offset = 0
    while chunk := os.pread(fd, _CHUNK, offset):
        digest.update(chunk)
        offset += len(chunk)
    return FileVersion(f"sha256:{digest.hexdigest()}")


def version_of(data: bytes) -> FileVersion:
    return FileVersion(f"sha256:{hashlib.sha256(data).hexdigest()}")


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view[:_CHUNK]) :]


class FileTree:
    """The files of one mount table. Safe to use from several threads; writes wait for each other.

    Every method takes an agent path and raises FilesError.
    """

    def __init__(self, mounts: MountTable, lock: threading.Lock) -> None:
        self._mounts = mounts
        self._lock = lock

    # -- paths -----------------------------------------------------------------------------------------------------

    def can_write(self, path: str) -> bool:
        found = self._mounts.find(split_path(path))
        return found is not None and found[0].writable

    def _unmounted(self, parts: Parts) -> FilesError:
        shown = join_path(parts)
        if self._mounts.is_virtual(parts):
            return FilesError(f"{shown!r} is a folder.", code="is_folder", remedy="List it instead.")
        return FilesError(
            f"{shown!r} does not exist, or is not shared with you.",
            code="not_found",
            remedy=f"List {join_path(parts[:1])!r} to see what is there.",
        )

    def _writable(self, parts: Parts) -> None:
        found = self._mounts.find(parts)
        if found is None:
            raise self._unmounted(parts)
        if not found[0].writable:
            raise FilesError(
                f"{join_path(parts)!r} can be read but not changed.",
                code="read_only",
                remedy="Write to a file in the home folder instead.",
            )

    # -- walking down ----------------------------------------------------------------------------------------------

    @contextmanager
    def _folder(self, parts: Parts, *, create: bool = False) -> Iterator[int]:
        """A descriptor of a folder; ``create`` makes missing ones, and unmakes them when the body fails."""
        found = self._mounts.find(parts)
        if found is None:
            raise self._unmounted(parts)
        mount, below = found
        depth = len(parts) - len(below)
        made: list[tuple[int, str]] = []
        with _Descriptors() as opened:
            try:
                here = opened.add(self._root(mount.host_path, private=not mount.prefix))
                for n, name in enumerate(below):
                    shown = join_path(parts[: depth + n + 1])
                    try:
                        here, parent = opened.add(os.open(name, _DIR, dir_fd=here)), here
                    except FileNotFoundError:
                        if not create:
                            raise self._missing(here, parts[: depth + n + 1]) from None
                        parent = here
                        with suppress(FileExistsError):
                            os.mkdir(name, dir_fd=parent)
                            made.append((parent, name))
                        here = opened.add(os.open(name, _DIR, dir_fd=parent))
                    except OSError as error:
                        raise self._explain(error, here, name, shown, writing=create) from None
                yield here
            except BaseException as error:
                for parent, name in reversed(made):
                    with suppress(OSError):  # not empty any more: somebody else uses it
                        os.rmdir(name, dir_fd=parent)
                if isinstance(error, OSError):
                    raise from_os_error(error, join_path(parts), writing=create) from None
                raise

    @staticmethod
    def _root(host_path: Path, *, private: bool) -> int:
        try:
            return os.open(host_path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            if not private:
                raise
        host_path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(host_path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    @staticmethod
    def _explain(error: OSError, folder: int, name: str, shown: str, *, writing: bool = False) -> FilesError:
        """``ENOTDIR`` may mean a file or, opened as a folder, a link: look at what is really there."""
        if error.errno == errno.ENOTDIR:
            with suppress(OSError):
                mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
                if stat.S_ISLNK(mode) or stat.S_ISDIR(mode):  # a folder by now, so it was swapped this moment
                    error = OSError(errno.ELOOP, "")
        return from_os_error(error, shown, writing=writing)

    @staticmethod
    def _missing(folder: int, parts: Parts) -> FilesError:
        """The error for a missing entry, with the names in the folder that look like what was meant (case, accents, a typo)."""
        shown = join_path(parts)
        names: dict[str, str] = {}
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in islice(entries, _MAX_SUGGESTION_NAMES):
                if is_plain_name(entry.name) and not _is_temp(entry.name):
                    names[unicodedata.normalize("NFC", entry.name).casefold()] = entry.name
        wanted = unicodedata.normalize("NFC", parts[-1]).casefold()
        close = [join_path((*parts[:-1], names[n])) for n in difflib.get_close_matches(wanted, names, n=3, cutoff=0.7)]
        remedy = f"Did you mean {' or '.join(map(repr, close))}?" if close else "List the folder to see what is there."
        return FilesError(f"{shown!r} does not exist.", code="not_found", remedy=remedy)

    def _open_file(self, folder: int, parts: Parts, flags: int) -> int:
        """A descriptor of the ordinary file ``parts``, whose last part is in ``folder``."""
        shown = join_path(parts)
        writing = flags & os.O_ACCMODE != os.O_RDONLY
        try:
            fd = os.open(parts[-1], flags | _FILE, 0o666, dir_fd=folder)
        except FileNotFoundError:
            raise self._missing(folder, parts) from None
        except OSError as error:
            raise self._explain(error, folder, parts[-1], shown, writing=writing) from None
        mode = os.fstat(fd).st_mode
        if stat.S_ISREG(mode):
            return fd
        os.close(fd)
        if stat.S_ISDIR(mode):
            raise from_os_error(IsADirectoryError(errno.EISDIR, ""), shown)
        raise FilesError(
            f"{shown!r} is a device or a pipe, not an ordinary file.",
            code="special_file",
            remedy="Choose another file.",
        )

    def _split_file(self, path: str) -> Parts:
        parts = split_path(path)
        found = self._mounts.find(parts)
        if found is None:
            raise self._unmounted(parts)
        if not found[1]:  # the home or a mounted folder itself
            raise from_os_error(IsADirectoryError(errno.EISDIR, ""), join_path(parts))
        return parts

    # -- reading ---------------------------------------------------------------------------------------------------

    def stat(self, path: str) -> FileInfo:
        """What is at ``path``. A link is reported as one, never followed."""
        parts = split_path(path)
        if not parts or self._mounts.is_virtual(parts):
            return FileInfo(path=join_path(parts), name=parts[-1] if parts else "", kind="dir")
        found = self._mounts.find(parts)
        if found is None:
            raise self._unmounted(parts)
        if not found[1]:  # the mounted folder itself
            with self._folder(parts) as fd:
                return self._info(parts, os.fstat(fd))
        with self._folder(parts[:-1]) as folder:
            try:
                return self._info(parts, os.stat(parts[-1], dir_fd=folder, follow_symlinks=False))
            except FileNotFoundError:
                raise self._missing(folder, parts) from None
            except OSError as error:
                raise from_os_error(error, join_path(parts)) from None

    @staticmethod
    def _info(parts: Parts, found: os.stat_result) -> FileInfo:
        kind = _kind(found.st_mode)
        return FileInfo(
            path=printable(join_path(parts)),
            name=printable(parts[-1]) if parts else "",
            kind=kind,
            size=found.st_size if kind == "file" else 0,
            modified=found.st_mtime,
        )

    @contextmanager
    def open(self, path: str) -> Iterator[tuple[BinaryIO, FileInfo]]:
        """The ordinary file at ``path``, open for reading. Inside the block an OSError becomes a FilesError."""
        parts = self._split_file(path)
        with self._folder(parts[:-1]) as folder:
            fd = self._open_file(folder, parts, os.O_RDONLY)
            with os.fdopen(fd, "rb") as file:
                info = self._info(parts, os.fstat(fd))
                try:
                    yield file, info
                except OSError as error:
                    raise from_os_error(error, info.path) from None

    def read_bytes(self, path: str, *, limit: int = MAX_TEXT_BYTES) -> bytes:
        """The whole file. Raises FilesError ``too_large`` when it has more than ``limit`` bytes."""
        with self.open(path) as (file, info):
            return self._read_whole(file, info, limit)

    @staticmethod
    def _read_whole(file: BinaryIO, info: FileInfo, limit: int) -> bytes:
        if info.size <= limit:
            data = file.read(limit + 1)  # it may have grown since
            if len(data) <= limit:
                return data
        raise FilesError(
            f"{info.path!r} has {human_size(max(info.size, limit + 1))}; at most {human_size(limit)} are read at once.",
            code="too_large",
            remedy="Read a part of it, or search in it.",
        )

    def read_text(self, path: str, *, limit: int = MAX_TEXT_BYTES) -> TextFile:
        """The whole text file. Raises FilesError ``binary`` (saying what it is) or ``too_large``."""
        with self.open(path) as (file, info):
            if info.size > limit:
                self.refuse_binary(info, file.read(4096))
                file.seek(0)
            data = self._read_whole(file, info, limit)
        text = decode_text(data)
        if text is None:
            self.refuse_binary(info, data[:4096])
            raise _binary(info, "unknown kind")
        return TextFile(
            info=info, text=text.text, encoding=text.encoding, newline=text.newline, version=version_of(data)
        )

    def read_tail(self, path: str, size: int) -> str:
        """About the last ``size`` bytes of a text file, from the beginning of a line, with ``\\n`` line ends."""
        with self.open(path) as (file, info):
            encoding = self.refuse_binary(info, file.read(16384))
            start = max(0, info.size - size)
            start -= start % 4  # no encoding has longer units
            file.seek(start)
            data = file.read(size + 4)
        text = decode_part(data, encoding, first=start == 0).replace("\r\n", "\n")
        return text if start == 0 else text.partition("\n")[2]

    @staticmethod
    def refuse_binary(info: FileInfo, head: bytes) -> str:
        """The encoding of the text that begins with ``head``. Raises FilesError ``binary`` when it is not text."""
        kind = file_type(head)
        if kind is not None:
            raise _binary(info, kind.label)
        encoding = detect_encoding(head)
        if encoding is None:
            raise _binary(info, "unknown kind")
        return encoding

    def version(self, path: str) -> FileVersion:
        """The version of the file now; :data:`ABSENT` when there is none."""
        parts = self._split_file(path)
        try:
            with self._folder(parts[:-1]) as folder:
                return self._version_in(folder, parts)
        except FilesError as error:
            if error.code == "not_found":
                return ABSENT
            raise

    def _version_in(self, folder: int, parts: Parts) -> FileVersion:
        try:
            fd = self._open_file(folder, parts, os.O_RDONLY)
        except FilesError as error:
            if error.code == "not_found":
                return ABSENT
            raise
        try:
            return _hash(fd)
        finally:
            os.close(fd)

    # -- folders ---------------------------------------------------------------------------------------------------

    def list(self, path: str = "~") -> Infos:
        """The entries of a folder by name; mounted folders appear as folders. Names no agent could type are cleaned."""
        parts = split_path(path)
        return [info for info, _ in self._entries(parts)]

    def _entries(self, parts: Parts) -> Sequence[tuple[FileInfo, str]]:
        mounted = self._mounts.children(parts)
        found: dict[str, FileInfo] = {}
        if not self._mounts.is_virtual(parts):
            try:
                with self._folder(parts) as folder, os.scandir(folder) as entries:
                    for entry in entries:
                        if _is_temp(entry.name):
                            continue
                        with suppress(FileNotFoundError):  # removed meanwhile
                            found[entry.name] = self._info((*parts, entry.name), entry.stat(follow_symlinks=False))
            except OSError as error:
                raise from_os_error(error, join_path(parts)) from None
        for name in mounted:
            found[name] = FileInfo(path=join_path((*parts, name)), name=name, kind="dir")
        return sorted(((info, name) for name, info in found.items()), key=lambda pair: pair[0].name)

    def walk(self, path: str = "~", *, depth: int = 32, skip: frozenset[str] = frozenset()) -> Iterator[FileInfo]:
        """Everything below a folder, each folder before its content, by name. Lazy: stop when there is enough.

        Folders named in ``skip`` are reported but not entered; links are reported, never followed; a folder below
        ``path`` that cannot be read is passed over. ``depth`` 1 is the folder's own entries.
        """
        start = split_path(path)
        stack = [iter(self._entries(start))]
        trail = [start]
        while stack:
            for info, name in stack[-1]:
                yield info
                if info.kind == "dir" and len(stack) < depth and name not in skip and is_plain_name(name):
                    below = (*trail[-1], name)
                    try:
                        stack.append(iter(self._entries(below)))
                    except FilesError:
                        continue
                    trail.append(below)
                    break
            else:
                stack.pop()
                trail.pop()

    def make_folder(self, path: str) -> None:
        """Create a folder and those above it; nothing happens when it exists."""
        parts = split_path(path)
        self._writable(parts)
        with self._lock, self._folder(parts, create=True):
            pass

    # -- writing ---------------------------------------------------------------------------------------------------

    def write_bytes(self, path: str, data: bytes, *, expect: FileVersion | None = None) -> Written:
        """Replace or create a file: afterwards it holds exactly ``data``, or on any failure what it held before.

        Missing folders are created; an existing file keeps its mode. With ``expect``, the file must still be that
        version, else FilesError ``changed``. Writes made through this tree are excluded in between; another program may
        still slip in between the check and the rename.
        """
        parts = self._split_file(path)
        self._no_slash(path)
        self._writable(parts)
        with self._lock, self._folder(parts[:-1], create=True) as folder:
            mode = self._replaceable(folder, parts)
            self._check_version(folder, parts, expect)
            temp = f"{_TEMP[0]}{secrets.token_hex(8)}{_TEMP[1]}"
            try:
                fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, 0o666, dir_fd=folder)
                try:
                    if mode is not None:
                        os.fchmod(fd, mode)
                    _write_all(fd, data)
                    os.fsync(fd)
                finally:
                    os.close(fd)
                self._check_version(folder, parts, expect)
                if expect != ABSENT or not _place_new(folder, temp, parts[-1]):
                    os.rename(temp, parts[-1], src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException as error:
                with suppress(OSError):
                    os.unlink(temp, dir_fd=folder)
                if isinstance(error, OSError):
                    raise from_os_error(error, join_path(parts), writing=True) from None
                raise
            with suppress(OSError):  # not every file system can; the data itself is safe
                os.fsync(folder)
        return Written(path=join_path(parts), created=mode is None, size=len(data))

    def check_write(self, path: str) -> None:
        """Raise what :meth:`write_bytes` would, as far as it can be known without writing."""
        parts = self._split_file(path)
        self._no_slash(path)
        self._writable(parts)
        try:
            with self._folder(parts[:-1]) as folder:
                self._replaceable(folder, parts)
        except FilesError as error:
            if error.code != "not_found":  # the folder will be made
                raise

    @staticmethod
    def _no_slash(path: str) -> None:
        if path.endswith("/"):
            raise FilesError(f"{path[:120]!r} names a folder.", code="is_folder", remedy="Add the file's name.")

    def _replaceable(self, folder: int, parts: Parts) -> int | None:
        """The permission bits of the file to replace, None when there is none. Refuses what is not an ordinary file."""
        shown = join_path(parts)
        try:
            mode = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return None
        except OSError as error:
            raise from_os_error(error, shown, writing=True) from None
        match _kind(mode):
            case "file" if mode & stat.S_IWUSR:
                return stat.S_IMODE(mode) & 0o777
            case "file":  # replacing would get around the missing permission
                raise from_os_error(PermissionError(errno.EACCES, ""), shown, writing=True)
            case "dir":
                raise from_os_error(IsADirectoryError(errno.EISDIR, ""), shown)
            case "link":
                raise from_os_error(OSError(errno.ELOOP, ""), shown)
            case _:
                raise from_os_error(OSError(errno.ENXIO, ""), shown)

    def _check_version(self, folder: int, parts: Parts, expect: FileVersion | None) -> None:
        if expect is None or self._version_in(folder, parts) == expect:
            return
        shown = join_path(parts)
        raise FilesError(
            f"{shown!r} was created meanwhile; it was not touched."
            if expect == ABSENT
            else f"{shown!r} was changed meanwhile; it was not touched.",
            code="changed",
            remedy="Read it again, then repeat the change.",
        )

    def append_text(self, path: str, text: str, *, expect: FileVersion | None = None) -> Written:
        """Put whole lines at the end of a text file, or create it.

        A line end is added before ``text`` where the file lacks one, and after it. Encoding and line ends follow the
        file. When the disk fills up the file is cut back to what it was.
        """
        parts = self._split_file(path)
        self._no_slash(path)
        self._writable(parts)
        if not text.endswith("\n"):
            text += "\n"
        with self._lock, self._folder(parts[:-1], create=True) as folder:
            self._check_version(folder, parts, expect)
            created = self._replaceable(folder, parts) is None
            fd = self._open_file(folder, parts, os.O_RDWR | (os.O_CREAT | os.O_EXCL if created else 0))
            try:
                size = os.fstat(fd).st_size
                data = self._tail(fd, size, parts, text)
                self._extend(fd, size, data)
            except BaseException as error:
                if created:
                    with suppress(OSError):
                        os.unlink(parts[-1], dir_fd=folder)
                if isinstance(error, OSError):
                    raise from_os_error(error, join_path(parts), writing=True) from None
                raise
            finally:
                os.close(fd)
        return Written(path=join_path(parts), created=created, size=size + len(data), added=len(data))

    @staticmethod
    def _extend(fd: int, size: int, data: bytes) -> None:
        """Write ``data`` at ``size``, the end of the file; cut back to it on any failure."""
        try:
            os.lseek(fd, size, os.SEEK_SET)
            _write_all(fd, data)
            os.fsync(fd)
        except BaseException:
            os.ftruncate(fd, size)
            raise

    def _tail(self, fd: int, size: int, parts: Parts, text: str) -> bytes:
        """``text`` as it has to be stored at the end of this file."""
        if size == 0:
            return text.encode()
        info = self._info(parts, os.fstat(fd))
        head = os.pread(fd, 16384, 0)
        encoding = self.refuse_binary(info, head)
        sample = head.decode("utf-8" if encoding == "utf-8-sig" else encoding, errors="replace")
        newline = dominant_newline(sample)
        file = TextFile(info=info, text="", encoding=encoding, newline=newline, version=ABSENT)
        mark = file.encode("\n")[len(file.encode("")) :]
        if os.pread(fd, len(mark), max(0, size - len(mark))) != mark:
            text = "\n" + text
        if newline == "\r\n":
            text = text.replace("\r\n", "\n").replace("\n", "\r\n")
        return file.encode(text)[len(file.encode("")) :]


def _place_new(folder: int, temp: str, name: str) -> bool:
    """Give ``temp`` its name only if that name is free, in one step. False where the disk cannot do that.

    Raises FileExistsError when somebody took the name meanwhile.
    """
    try:
        os.link(temp, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:  # no hard links here
        return False
    os.unlink(temp, dir_fd=folder)
    return True


def _binary(info: FileInfo, kind: str) -> FilesError:
    return FilesError(
        f"{info.path!r} is not text ({kind}, {human_size(info.size)}), so it cannot be read or changed as text.",
        code="binary",
        remedy="Choose a text file, or ask the user to convert it.",
    )


class _Descriptors:
    """Closes every descriptor it was given."""

    def __init__(self) -> None:
        self._open: list[int] = []

    def add(self, fd: int) -> int:
        self._open.append(fd)
        return fd

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in reversed(self._open):
            os.close(fd)
