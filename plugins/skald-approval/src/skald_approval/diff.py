"""Unified diffs whose cost is bounded, whatever the texts are."""

from __future__ import annotations

import difflib
import re
from collections import Counter

import msgspec

__all__ = ("MAX_DIFF_BYTES", "Diff", "unified")

MAX_DIFF_BYTES = 256 * 1024
MAX_COMPARED = 4_000_000
"""Largest product of line counts that is compared line by line; more is shown as removed and added."""
MAX_PAIRS = 60_000
"""How many pairs of equal lines may be looked at in one pass; texts of many equal lines make many passes."""
CONTEXT = 3
MAX_LINE_CHARS = 4000

_NO_END = "\n\\ No newline at end of file"


class Diff(msgspec.Struct, frozen=True):
    """``text`` is a unified diff without file headers; ``added`` and ``removed`` count all lines, also those cut away."""

    text: str
    added: int
    removed: int
    truncated: bool = False


def _visible(char: str) -> str:
    return f"⟨U+{ord(char):04X}⟩"


# What could make a diff look like something else: control characters, and those that change the reading direction
# (https://trojansource.codes). They are shown by number.
_HIDDEN = {
    n: _visible(chr(n))
    for n in (*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0), 0x061C, 0x200B, 0x200E, 0x200F,
              *range(0x202A, 0x202F), *range(0x2060, 0x206A), *range(0xD800, 0xE000), 0xFEFF)
}  # fmt: skip


def _lines(text: str | None) -> list[str]:
    """Lines without ends; a last line that has none carries git's note."""
    if not text:
        return []
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    else:
        lines[-1] += _NO_END
    return lines


def _common(before: list[str], after: list[str]) -> tuple[int, int]:
    """How many lines both have in common at the beginning and, beyond that, at the end."""
    most = min(len(before), len(after))
    start = 0
    while start < most and before[start] == after[start]:
        start += 1
    end = 0
    while end < most - start and before[-1 - end] == after[-1 - end]:
        end += 1
    return start, end


_HEADER = re.compile(r"^@@ -(\d+)((?:,\d+)?) \+(\d+)((?:,\d+)?) @@$")


def _shift(header: str, by: int) -> str:
    found = _HEADER.match(header)
    assert found is not None, header
    return f"@@ -{int(found[1]) + by}{found[2]} +{int(found[3]) + by}{found[4]} @@"


def _show(line: str, mark_returns: bool) -> str:
    content, note, _ = line.partition(_NO_END)
    if content.endswith("\r"):
        content = content[:-1] + ("␍" if mark_returns else "")
    return content.translate(_HIDDEN) + note


def _comparable(one: list[str], two: list[str]) -> bool:
    """Whether difflib compares these quickly.

    It goes through every pair of equal lines once per match. Lines that are frequent in a long second text it leaves out.
    """
    if len(one) * len(two) > MAX_COMPARED:
        return False
    counts = Counter(two)
    if len(two) >= 200:
        counts = Counter({line: n for line, n in counts.items() if n <= len(two) // 100 + 1})
    return sum(counts[line] for line in one) <= MAX_PAIRS


def unified(before: str | None, after: str | None) -> Diff:
    """What changes from ``before`` to ``after`` (None: the file is absent)."""
    old, new = _lines(before), _lines(after)
    start, end = _common(old, new)
    skip = max(0, start - CONTEXT)
    keep = max(0, end - CONTEXT)
    one, two = old[skip : len(old) - keep], new[skip : len(new) - keep]
    if _comparable(one, two):
        out = [*difflib.unified_diff(one, two, lineterm="", n=CONTEXT)][2:]
    else:
        lead, tail = one[: start - skip], one[len(one) - (end - keep) :]
        gone, come = one[len(lead) : len(one) - len(tail)], two[len(lead) : len(two) - len(tail)]
        out = [
            f"@@ -1,{len(one)} +1,{len(two)} @@",
            *(f" {line}" for line in lead),
            *(f"-{line}" for line in gone),
            *(f"+{line}" for line in come),
            *(f" {line}" for line in tail),
        ]
    # Windows line ends are shown only where they are part of the change.
    mark_returns = "\r\n" in (before or "") and after is not None and "\r\n" not in after
    mark_returns |= "\r\n" in (after or "") and before is not None and "\r\n" not in before
    added = removed = size = 0
    shown: list[str] = []
    truncated = False
    for line in out:
        # Within a hunk every line begins with ' ', '+', '-' or '\\', so '@@' can only be a header.
        if line.startswith("@@"):
            line = _shift(line, skip)
        elif line.startswith("+"):
            added += 1
        elif line.startswith("-"):
            removed += 1
        line = _show(line, mark_returns)
        if len(line) > MAX_LINE_CHARS:
            line = f"{line[:MAX_LINE_CHARS]}… [{len(line) - 1:,}]"
            truncated = True
        size += len(line.encode("utf-8", "replace")) + 1
        if size <= MAX_DIFF_BYTES:
            shown.append(line)
        else:
            truncated = True
    return Diff("".join(f"{line}\n" for line in shown), added, removed, truncated)
