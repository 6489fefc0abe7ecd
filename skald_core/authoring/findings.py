"""What ``skald plugin check`` finds."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ("Finding", "Severity")

Severity = Literal["error", "warning"]


class Finding(msgspec.Struct, frozen=True, order=True, kw_only=True):
    """One thing to mend. ``path`` is relative to the project, ``line`` counts from 1, or 0 for the file as a whole.

    ``code`` names the check; ``text`` says what is wrong and what to do.
    """

    severity: Severity
    path: str
    line: int = 0
    code: str
    text: str

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}" if self.line else self.path
        return f"{where}: {self.severity}: {self.text} [{self.code}]"
