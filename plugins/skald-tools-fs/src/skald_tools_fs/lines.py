"""Lines of text files of any size, with bounded memory."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from skald_core import api as skald

__all__ = ("HEAD_BYTES", "LINE_CHARS", "blocks", "count_lines", "open_text", "read_line", "shorten")

HEAD_BYTES = 65536
"""How much of a file decides what it is."""

LINE_CHARS = 2000
"""Longer lines are cut."""


@contextmanager
def open_text(file: BinaryIO, info: skald.FileInfo) -> Iterator[io.TextIOWrapper]:
    """``file`` as text whose lines end at ``\\n`` only. Raises FilesError ``binary`` when it is not text.

    Bytes beyond the head that do not fit the encoding become replacement characters.
    """
    encoding = skald.FileTree.refuse_binary(info, file.read(HEAD_BYTES))
    file.seek(0)
    wrapper = io.TextIOWrapper(file, encoding=encoding, errors="replace", newline="\n")
    try:
        if not encoding.endswith(("-le", "-be")):
            yield wrapper
        else:  # the codecs that name a byte order hand the mark through
            wrapper.read(1)
            yield wrapper
    finally:
        wrapper.detach()


def read_line(file: io.TextIOWrapper, keep: int = LINE_CHARS) -> tuple[str, int] | None:
    """The next line without its end, cut to ``keep`` characters, and its real length; None at the end of the file."""
    line = file.readline(keep + 2)
    if not line:
        return None
    length = len(line)
    last = line
    while not last.endswith("\n"):
        last = file.readline(HEAD_BYTES)
        if not last:
            break
        length += len(last)
    if last.endswith("\n") or line.endswith("\n"):
        length -= 1
    return line.removesuffix("\n").removesuffix("\r")[:keep], length


def blocks(file: io.TextIOWrapper, line_chars: int) -> Iterator[tuple[str, int]]:
    """The text in pieces of whole lines, about a million characters each.

    With each piece comes how many characters of its last line were dropped: a line that begins a piece is kept to at
    least ``line_chars`` characters.
    """
    while block := file.read(1 << 20):
        dropped = 0
        if not block.endswith("\n"):
            last = file.readline(line_chars)
            block += last
            while last and not last.endswith("\n"):
                last = file.readline(1 << 20)
                dropped += len(last.removesuffix("\n"))
        yield block, dropped


def count_lines(file: io.TextIOWrapper) -> int:
    """How many lines follow; a last one without an end counts."""
    count = 0
    last = "\n"
    while chunk := file.read(1 << 20):
        count += chunk.count("\n")
        last = chunk[-1]
    return count + (last != "\n")


def shorten(line: str, length: int, keep: int) -> str:
    """``line`` with a note when ``length`` says that more of it was cut away."""
    if length <= keep + 1:  # a carriage return may be the one more
        return line[:keep]
    return f"{line[:keep]}… [{length:,} characters in this line]"
