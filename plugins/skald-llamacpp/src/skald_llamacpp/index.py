"""The models this plugin offers to download: ``models.json``, read once, checked as it is read."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

__all__ = ("ModelSpec", "Packages", "load_index")

Digest = str


class Packages(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The same bytes as files of Python packages, for machines that reach a package index and little else.

    Package number ``n`` (from 1 to ``count``) is ``name`` with ``{n}`` filled in; its ``member`` holds block ``n`` of the
    model, exactly.
    """

    name: str
    version: str
    count: int
    member: str

    def package(self, number: int) -> str:
        return self.name.format(n=number)

    def member_of(self, number: int) -> str:
        return self.member.format(n=number)


class ModelSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One downloadable model.

    ``size`` is bytes. ``sha256`` of the whole file decides whether a download is good, wherever its bytes came from;
    ``blocks`` are the digests of consecutive ``block_size`` pieces (the last may be shorter), so that a bad piece is
    found and replaced alone and a broken download goes on with another source.
    """

    id: str
    title: str
    publisher: str
    license: str
    repository: str
    file: str
    size: int
    sha256: Digest
    packages: Packages | None = None
    block_size: int = 0
    blocks: tuple[Digest, ...] = ()

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,99}", self.id):
            raise ValueError(f"model id {self.id!r}: use lower-case letters, digits, '.', '_' and '-'")
        if self.file != Path(self.file).name or not self.file.endswith(".gguf"):
            raise ValueError(f"model {self.id!r}: file {self.file!r} must be a plain name that ends in .gguf")
        if any(not re.fullmatch(r"[0-9a-f]{64}", digest) for digest in (self.sha256, *self.blocks)):
            raise ValueError(f"model {self.id!r}: a digest is not 64 hexadecimal digits")
        if self.size <= 0 or self.block_size < 0:
            raise ValueError(f"model {self.id!r}: size and block_size must be positive")
        if self.blocks and (self.block_size == 0 or len(self.blocks) != -(-self.size // self.block_size)):
            raise ValueError(f"model {self.id!r}: {len(self.blocks)} blocks do not cover {self.size} bytes")
        if self.packages is not None and self.packages.count != len(self.blocks):
            raise ValueError(f"model {self.id!r}: packages need one block each")

    def block_span(self, number: int) -> tuple[int, int]:
        """First byte and length of block ``number``, from 0. A model without blocks is one block."""
        if not self.blocks:
            return 0, self.size
        start = number * self.block_size
        return start, min(self.block_size, self.size - start)

    def block_digest(self, number: int) -> Digest:
        return self.blocks[number] if self.blocks else self.sha256

    def block_at(self, offset: int) -> int:
        """The block that byte ``offset`` belongs to."""
        return offset // self.block_size if self.blocks else 0


class _Index(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    models: tuple[ModelSpec, ...]


def load_index(path: Path) -> dict[str, ModelSpec]:
    """The models of an index file by id. Raises msgspec.ValidationError for a file that breaks a rule above."""
    return {spec.id: spec for spec in msgspec.json.decode(path.read_bytes(), type=_Index).models}
