"""The head of a model file: what is read, and what is refused with which sentence."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skald_llamacpp.gguf import GgufError, read_gguf

Maker = Callable[..., bytes]


def write(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    return path


def test_the_facts_of_a_model_are_read(tmp_path: Path, make_gguf: Maker) -> None:
    """Name, context, template and the memory one token costs come from the head; a long vocabulary is skipped."""
    pairs = {
        "tokenizer.tokens": [f"word{n}" for n in range(3000)],
        "tokenizer.scores": list(range(3000)),
        "general.flag": True,
        "general.ratio": 0.5,
        "general.tags": ["a", "b"],
        "qwen2.rope.freq_base": 1000.0,
    }
    info = read_gguf(write(tmp_path, make_gguf(pairs)))
    assert (info.architecture, info.name, info.context) == ("qwen2", "Tiny", 4096)
    assert info.chat_template == "{{ messages }}{{ tools }}"
    # 2 layers of 2 heads, each a key and a value of 64 / 4 numbers of two bytes
    assert info.kv_bytes == 2 * 2 * (16 + 16) * 2
    assert info.size == (tmp_path / "model.gguf").stat().st_size


def test_heads_given_per_layer_are_summed(tmp_path: Path, make_gguf: Maker) -> None:
    """Some models have another number of key heads in each layer."""
    info = read_gguf(write(tmp_path, make_gguf({"qwen2.attention.head_count_kv": [1, 3]})))
    assert info.kv_bytes == (1 + 3) * (16 + 16) * 2


@pytest.mark.parametrize(
    ("pairs", "code"),
    [
        ({"general.architecture": "nomic-bert"}, "not_chat"),
        ({"general.type": "mmproj"}, "not_chat"),
        ({"general.architecture": None}, "broken_gguf"),
        ({"split.count": 3, "split.no": 1}, "split_part"),
    ],
)
def test_files_that_cannot_chat_are_told_apart(
    tmp_path: Path, make_gguf: Maker, pairs: dict[str, Any], code: str
) -> None:
    """Embedding models, adapters and later parts of a split model each get their own reason."""
    with pytest.raises(GgufError) as caught:
        read_gguf(write(tmp_path, make_gguf(pairs)))
    assert caught.value.code == code


def test_the_first_part_of_a_split_model_is_taken(tmp_path: Path, make_gguf: Maker) -> None:
    """llama.cpp finds the other parts by itself."""
    info = read_gguf(write(tmp_path, make_gguf({"split.count": 3, "split.no": 0}, tensors=0)))
    assert (info.split_count, info.split_no) == (3, 0)


@pytest.mark.parametrize("content", [b"", b"GGUF", b"<html>" * 20, b"PK\x03\x04" + b"\0" * 100])
def test_other_files_are_not_gguf(tmp_path: Path, content: bytes) -> None:
    """A page, an archive or an empty file is named as what it is not."""
    with pytest.raises(GgufError) as caught:
        read_gguf(write(tmp_path, content))
    assert caught.value.code == "not_gguf"


def test_an_old_version_is_named(tmp_path: Path, make_gguf: Maker) -> None:
    """Version 1 had another layout."""
    with pytest.raises(GgufError) as caught:
        read_gguf(write(tmp_path, make_gguf(version=1)))
    assert (caught.value.code, caught.value.values["version"]) == ("gguf_version", 1)


def test_no_prefix_of_a_head_is_accepted_or_breaks_the_reader(tmp_path: Path, make_gguf: Maker) -> None:
    """A file cut anywhere in its head is refused, never an unexpected error."""
    whole = make_gguf({"general.tags": ["a", "b"], "tokenizer.scores": list(range(2000))}, tail=b"")
    for length in range(24, len(whole) - 1, 7):
        with pytest.raises(GgufError) as caught:
            read_gguf(write(tmp_path, whole[:length]))
        assert caught.value.code == "broken_gguf"


@pytest.mark.parametrize(
    "body",
    [
        struct.pack("<Q", 1 << 62),  # a key of four exabytes
        struct.pack("<Q", 1) + b"k" + struct.pack("<I", 99),  # a type that does not exist
        struct.pack("<Q", 1) + b"k" + struct.pack("<IIQ", 9, 8, 1 << 60),  # an endless array
        struct.pack("<Q", 1) + b"k" + struct.pack("<IIQ", 9, 9, 1),  # an array of arrays
        struct.pack("<Q", 1) + b"k" + struct.pack("<IIQ", 9, 10, 1 << 20),  # past the end of the file
    ],
)
def test_hostile_lengths_are_refused(tmp_path: Path, body: bytes) -> None:
    """Lengths from the file are checked before anything is allocated or skipped."""
    with pytest.raises(GgufError) as caught:
        read_gguf(write(tmp_path, b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + body))
    assert caught.value.code == "broken_gguf"
