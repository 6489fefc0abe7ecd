"""A model file that grows from its first byte, block by block, each block checked as it completes.

Any source may go on where another stopped: what is on disk is always a prefix of the right file, as far as whole blocks
go. All functions here block and are called on worker threads.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from skald_llamacpp.index import ModelSpec

__all__ = ("PartialFile", "WrongBytes")

_READ = 4 << 20


class WrongBytes(Exception):
    """A block's digest is not the one of the index. The file was cut back to the end of the last good block."""


class PartialFile:
    """The file at ``path``, open for appending. ``offset`` is how many bytes are there."""

    def __init__(self, path: Path, spec: ModelSpec) -> None:
        """Open or create it. The bytes of an unfinished last block are read again, to go on with their digest."""
        self.path = path
        self.spec = spec
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("r+b" if path.exists() else "w+b")
        size = self._file.seek(0, os.SEEK_END)
        if size > spec.size:
            self._file.truncate(0)
            size = 0
        self.offset = size
        self._hash = hashlib.sha256()
        if size < spec.size:
            start, _ = spec.block_span(spec.block_at(size))
            self._file.seek(start)
            self._feed(self._hash, size - start)

    def complete(self) -> bool:
        return self.offset == self.spec.size

    def append(self, data: bytes) -> None:
        """Add bytes at ``offset``. Raises WrongBytes when a block turns out wrong or the file gets too long, and OSError."""
        view = memoryview(data)
        while view:
            if self.complete():
                raise WrongBytes
            number = self.spec.block_at(self.offset)
            start, length = self.spec.block_span(number)
            piece = view[: start + length - self.offset]
            self._file.seek(self.offset)
            self._file.write(piece)
            self._hash.update(piece)
            self.offset += len(piece)
            view = view[len(piece) :]
            if self.offset == start + length:
                good = self._hash.hexdigest() == self.spec.block_digest(number)
                self._hash = hashlib.sha256()
                if not good:
                    self.cut(start)
                    raise WrongBytes
                self._file.flush()
                os.fsync(self._file.fileno())

    def cut(self, offset: int) -> None:
        """Forget everything from ``offset`` on; it must be the start of a block."""
        self._file.truncate(offset)
        self.offset = offset
        self._hash = hashlib.sha256()

    def to_block_start(self) -> int:
        """Drop an unfinished block; returns the number of the block that comes next."""
        number = self.spec.block_at(self.offset)
        start, _ = self.spec.block_span(number)
        if start != self.offset:
            self.cut(start)
        return number

    def verify(self, progress: Callable[[int], None]) -> None:
        """Read the whole file and compare its digest with the index. ``progress`` hears bytes read and may raise to stop.

        Raises WrongBytes after cutting the file before its first wrong block.
        """
        self._file.flush()
        self._file.seek(0)
        whole, done = hashlib.sha256(), 0
        first_wrong: int | None = None
        for number in range(max(1, len(self.spec.blocks))):
            start, length = self.spec.block_span(number)
            block, left = hashlib.sha256(), length
            while left and (data := self._file.read(min(_READ, left))):
                whole.update(data)
                block.update(data)
                left -= len(data)
                done += len(data)
                progress(done)
            if first_wrong is None and (left or block.hexdigest() != self.spec.block_digest(number)):
                first_wrong = start
        if first_wrong is None and whole.hexdigest() != self.spec.sha256:
            first_wrong = 0
        if first_wrong is not None:
            self.cut(first_wrong)
            raise WrongBytes

    def close(self) -> None:
        self._file.close()

    def _feed(self, digest: hashlib._Hash, length: int) -> None:
        while length and (data := self._file.read(min(_READ, length))):
            digest.update(data)
            length -= len(data)
