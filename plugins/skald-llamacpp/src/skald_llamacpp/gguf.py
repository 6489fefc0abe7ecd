"""Reads what the head of a GGUF file says of the model inside. Source: the GGUF specification of ggml-org/ggml, docs/gguf.md.

Only key-value pairs are read, never tensors. The file is a stranger's: every length is checked before it is used.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

import msgspec

__all__ = ("GgufError", "GgufInfo", "read_gguf")

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING = 8
_ARRAY = 9
_MAX_PAIRS = 65_536
_MAX_TEXT = 16 << 20
_MAX_ITEMS = 64 << 20
_KEPT_ITEMS = 1024

Value = int | float | bool | str | list["Value"] | None


class GgufError(Exception):
    """The file is not a model this plugin can run. ``code`` is stable; ``values`` fill the sentence of that code."""

    def __init__(self, code: str, **values: object) -> None:
        super().__init__(f"{code}: {values}")
        self.code = code
        self.values = values


class GgufInfo(msgspec.Struct, frozen=True):
    """What is known of a model file.

    ``context`` is the length in tokens the model was trained for, 0 when the file does not say. ``kv_bytes`` is what one
    token of context costs in memory (16-bit keys and values of every layer), 0 when it cannot be told.
    """

    architecture: str
    name: str
    context: int
    chat_template: str
    kv_bytes: int
    size: int
    split_count: int = 1
    split_no: int = 0


def read_gguf(path: Path) -> GgufInfo:
    """Read the head of the file at ``path``. Blocks for up to some tenths of a second. Raises GgufError and OSError."""
    with path.open("rb") as file:
        size = path.stat().st_size
        head = file.read(24)
        if len(head) < 24 or head[:4] != b"GGUF":
            raise GgufError("not_gguf", name=path.name)
        version, tensors, pairs = struct.unpack("<IQQ", head[4:])
        if version not in (2, 3):
            raise GgufError("gguf_version", name=path.name, version=version)
        if pairs > _MAX_PAIRS:
            raise GgufError("broken_gguf", name=path.name)
        reader = _Reader(file, size)
        try:
            found = dict(reader.pair() for _ in range(pairs))
        except (EOFError, struct.error, UnicodeDecodeError, RecursionError):
            raise GgufError("broken_gguf", name=path.name) from None
    return _describe(path, found, tensors, size)


class _Reader:
    """Reads values one after the other. Raises EOFError for a length that goes past the file's end."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size

    def pair(self) -> tuple[str, Value]:
        key = self._text()
        return key, self._value(self._number("I"))

    def _take(self, count: int) -> bytes:
        data = self._file.read(count)
        if len(data) != count:
            raise EOFError
        return data

    def _number(self, code: str) -> int:
        return int(struct.unpack("<" + code, self._take(struct.calcsize("<" + code)))[0])

    def _text(self) -> str:
        length = self._number("Q")
        if length > _MAX_TEXT:
            raise EOFError
        return self._take(length).decode("utf-8", "replace")

    def _skip(self, count: int) -> None:
        if count < 0 or self._file.tell() + count > self._size:
            raise EOFError
        self._file.seek(count, 1)

    def _value(self, kind: int) -> Value:
        if kind == _STRING:
            return self._text()
        if kind == _ARRAY:
            return self._array()
        code = _SCALARS.get(kind)
        if code is None:
            raise EOFError
        value: int | float | bool = struct.unpack("<" + code, self._take(struct.calcsize("<" + code)))[0]
        return value

    def _array(self) -> Value:
        """Short arrays are returned; long ones, such as the vocabulary, are skipped and become None."""
        kind, count = self._number("I"), self._number("Q")
        if count > _MAX_ITEMS or kind == _ARRAY:
            raise EOFError
        if count <= _KEPT_ITEMS:
            return [self._value(kind) for _ in range(count)]
        if kind == _STRING:
            for _ in range(count):
                self._skip(self._number("Q"))
        elif kind in _SCALARS:
            self._skip(count * struct.calcsize("<" + _SCALARS[kind]))
        else:
            raise EOFError
        return None


_NOT_CHAT = ("bert", "clip", "t5encoder", "wavtokenizer", "whisper")


def _describe(path: Path, found: dict[str, Value], tensors: int, size: int) -> GgufInfo:
    def text(key: str) -> str:
        value = found.get(key)
        return value if isinstance(value, str) else ""

    def number(key: str) -> int:
        value = found.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0

    architecture = text("general.architecture")
    if not architecture:
        raise GgufError("broken_gguf", name=path.name)
    kind = text("general.type")
    if kind not in ("", "model") or any(word in architecture for word in _NOT_CHAT):
        raise GgufError("not_chat", name=path.name, kind=kind if kind not in ("", "model") else architecture)
    split_count, split_no = max(1, number("split.count")), number("split.no")
    if split_no != 0:
        raise GgufError("split_part", name=path.name, count=split_count)
    if tensors == 0 and split_count == 1:
        raise GgufError("broken_gguf", name=path.name)
    heads = number(f"{architecture}.attention.head_count")
    head_size = number(f"{architecture}.embedding_length") // heads if heads else 0
    key_size = number(f"{architecture}.attention.key_length") or head_size
    value_size = number(f"{architecture}.attention.value_length") or head_size
    per_layer = found.get(f"{architecture}.attention.head_count_kv")
    if isinstance(per_layer, list):
        kv_heads = sum(count for count in per_layer if isinstance(count, int))
    else:
        kv_heads = (number(f"{architecture}.attention.head_count_kv") or heads) * number(f"{architecture}.block_count")
    return GgufInfo(
        architecture=architecture,
        name=text("general.name"),
        context=number(f"{architecture}.context_length"),
        chat_template=text("tokenizer.chat_template"),
        kv_bytes=kv_heads * (key_size + value_size) * 2,
        size=size,
        split_count=split_count,
        split_no=split_no,
    )
