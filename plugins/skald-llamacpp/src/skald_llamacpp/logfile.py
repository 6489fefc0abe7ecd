"""A log file that never grows past its cap: the older half is kept beside it as ``<name>.1``."""

from __future__ import annotations

from pathlib import Path

__all__ = ("CappedLog",)


class CappedLog:
    """Appends bytes to ``path``. Files of ``cap`` bytes are put aside, one back. Failures are dropped: a full disk must not
    end the process whose log this is."""

    def __init__(self, path: Path, cap: int = 512 << 10) -> None:
        self.path = path
        self._cap = cap

    def write(self, data: bytes) -> None:
        """Blocks for one small write."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.exists() and self.path.stat().st_size + len(data) > self._cap:
                self.path.replace(self.path.with_name(self.path.name + ".1"))
            with self.path.open("ab") as file:
                file.write(data[-self._cap :])
        except OSError:
            return
