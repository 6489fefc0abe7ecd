"""The one error of the file layer."""

from __future__ import annotations

import errno
from typing import Literal

from skald_core.loop.errors import ToolError

__all__ = ("FileErrorCode", "FilesError", "from_os_error")

FileErrorCode = Literal[
    "bad_path",
    "outside",
    "not_found",
    "is_folder",
    "not_a_folder",
    "link",
    "special_file",
    "no_access",
    "read_only",
    "too_large",
    "binary",
    "encoding",
    "changed",
    "exists",
    "disk_full",
    "io",
]


class FilesError(ToolError):
    """A file could not be found, read or written.

    The text names the file as the agent does (never a path of the host), says what happened and what to do, so it can
    be shown to a person and given to a model as it is. ``code`` is stable; ``remedy`` is the last sentence alone.
    """

    kind = "files"

    def __init__(self, message: str, *, code: FileErrorCode, remedy: str = "") -> None:
        super().__init__(f"{message} {remedy}".rstrip())
        self.code: FileErrorCode = code
        self.remedy = remedy


def from_os_error(error: OSError, shown: str, *, writing: bool = False) -> FilesError:
    """Put an ``OSError`` about the file shown as ``shown`` into plain words; the host's path in it is dropped."""
    match error.errno:
        case errno.ENOENT:
            return FilesError(
                f"{shown!r} does not exist.", code="not_found", remedy="List the folder to see what is there."
            )
        case errno.EISDIR:
            return FilesError(f"{shown!r} is a folder, not a file.", code="is_folder", remedy="List it instead.")
        case errno.ENOTDIR:
            return FilesError(f"{shown!r} is a file, not a folder.", code="not_a_folder", remedy="Check the path.")
        case errno.EEXIST:
            return FilesError(
                f"{shown!r} was created meanwhile; it was not touched.",
                code="exists",
                remedy="Read it, then repeat the change.",
            )
        case errno.ELOOP:
            return FilesError(
                f"{shown!r} goes through a link, and links are not followed.",
                code="link",
                remedy="Use the path of the file itself.",
            )
        case errno.ENXIO | errno.ENODEV:
            return FilesError(f"{shown!r} is not an ordinary file.", code="special_file", remedy="Choose another file.")
        case errno.EACCES | errno.EPERM:
            return FilesError(
                f"The server may not {'write' if writing else 'read'} {shown!r}.",
                code="no_access",
                remedy="Its owner has to change the permissions.",
            )
        case errno.EROFS:
            return FilesError(f"{shown!r} is on a read-only disk.", code="read_only", remedy="Use another folder.")
        case errno.ENOSPC | errno.EDQUOT:
            return FilesError(
                f"The disk is full, so {shown!r} was not written; nothing was changed.",
                code="disk_full",
                remedy="Free some space, then try again.",
            )
        case errno.EFBIG:
            return FilesError(
                f"{shown!r} would be larger than the disk allows; nothing was changed.",
                code="too_large",
                remedy="Write less, or split it into several files.",
            )
        case errno.ENAMETOOLONG:
            return FilesError(f"The name {shown[:80]!r}… is too long.", code="bad_path", remedy="Use a shorter name.")
        case _:
            name = errno.errorcode.get(error.errno or 0, "unknown error")
            done = "written; nothing was changed" if writing else "read"
            return FilesError(f"{shown!r} could not be {done} ({name}).", code="io", remedy="Try again.")
