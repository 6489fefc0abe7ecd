"""One process per data directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from skald_core.errors import StartError

__all__ = ("claim",)


def claim(data_dir: Path) -> IO[str]:
    """An exclusive lock on the data directory, held until the process ends. Raises StartError."""
    try:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = (data_dir / "skald.lock").open("a+", encoding="utf-8")
    except OSError as error:
        raise StartError(
            f"cannot use the data directory {str(data_dir)!r} ({error.strerror}); choose another with --data or SKALD_DATA"
        ) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.seek(0)
        owner = handle.read().strip()
        handle.close()
        raise StartError(
            f"another Skald is using the data directory {str(data_dir)!r}"
            + (f" (process {owner})" if owner else "")
            + "; stop it, or start this one with another --data"
        ) from None
    handle.truncate(0)
    handle.write(str(os.getpid()))
    handle.flush()
    return handle
