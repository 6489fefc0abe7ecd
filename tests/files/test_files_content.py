"""Text or binary, and which: judged by the bytes."""

from __future__ import annotations

import io
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skald_core.files.content import decode_text, detect_encoding, file_type, human_size
from skald_core.files.userfs import UserFs


@pytest.mark.parametrize(
    ("data", "text", "encoding", "newline"),
    [
        (b"", "", "utf-8", "\n"),
        (b"plain\n", "plain\n", "utf-8", "\n"),
        ("perché €\r\nsì\r\n".encode(), "perché €\r\nsì\r\n", "utf-8", "\r\n"),
        (b"a\r\nb\nc\n", "a\r\nb\nc\n", "utf-8", "\n"),
        ("è\n".encode("utf-8-sig"), "è\n", "utf-8-sig", "\n"),
        ("è\r\n".encode("utf-16"), "è\r\n", "utf-16-le", "\r\n"),
        (b"\xfe\xff" + "è\n".encode("utf-16-be"), "è\n", "utf-16-be", "\n"),
        ("è\n".encode("utf-32"), "è\n", "utf-32-le", "\n"),
        ("déjà vu – “ici”\n".encode("cp1252"), "déjà vu – “ici”\n", "cp1252", "\n"),
        (b"\x1b[31mred\x1b[0m\x07\n", "\x1b[31mred\x1b[0m\x07\n", "utf-8", "\n"),
        (b"MZ is a country code\n", "MZ is a country code\n", "utf-8", "\n"),
        (b"ID3 tags, BZh and fLaC\n", "ID3 tags, BZh and fLaC\n", "utf-8", "\n"),
        (b"RIFFxxxxWAVE of text\n", "RIFFxxxxWAVE of text\n", "utf-8", "\n"),
    ],
)
def test_text_round_trip(data: bytes, text: str, encoding: str, newline: str) -> None:
    """Text is decoded with its encoding and line ends, and written back byte for byte."""
    found = decode_text(data)
    assert found is not None
    assert (found.text, found.encoding, found.newline) == (text, encoding, newline)
    assert found.encode(found.text) == data


@given(st.binary(max_size=300))
def test_any_bytes_are_text_that_round_trips_or_binary(data: bytes) -> None:
    """Whatever is called text can be written back unchanged: an edit never damages the rest of a file."""
    found = decode_text(data)
    if found is not None:
        assert found.encode(found.text) == data


def test_random_bytes_are_not_text() -> None:
    """Compressed or encrypted data without a known mark is binary."""
    for seed in range(50):
        data = random.Random(seed).randbytes(4096)
        assert decode_text(data) is None


def test_a_character_cut_at_the_end_of_a_sample_is_still_text() -> None:
    """The first 4 KiB of a UTF-8 file may end inside a character; a whole file may not."""
    data = "è".encode()[:1]
    assert detect_encoding(b"abc" + data) == "utf-8"
    assert detect_encoding(b"abc" + data, complete=True) != "utf-8"


def office_file(member: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr(member, "<x/>")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "data", "label", "media_type"),
    [
        ("a", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "PNG image", "image/png"),
        ("b", b"\xff\xd8\xff\xe0\0\x10JFIF", "JPEG image", "image/jpeg"),
        ("c", b"RIFF\x10\0\0\0WEBPVP8 ", "WebP image", "image/webp"),
        ("d", b"%PDF-1.7\nplain ascii\n", "PDF document", "application/pdf"),
        ("e", b"SQLite format 3\0", "SQLite database", "application/vnd.sqlite3"),
        ("f", office_file("word/document.xml"), "Word document", None),
        ("g", office_file("xl/workbook.xml"), "Excel spreadsheet", None),
        ("h", office_file("other.txt"), "ZIP archive", "application/zip"),
        ("i", b"\x7fELF\x02\x01\x01\0", "Linux program", None),
        ("j", b"\0\0\0\x18ftypmp42\0\0", "MP4 video", "video/mp4"),
        ("k", b"\0\0\0\x18ftypheic\0\0", "HEIC image", "image/heic"),
        ("l", b"ID3\x04\0\0\0\0\0\0", "MP3 sound", "audio/mpeg"),
        ("m", b"\0\1\2\3", "unknown kind", None),
    ],
)
async def test_a_binary_file_says_what_it_is(
    fs: UserFs, home: Path, refused: Any, name: str, data: bytes, label: str, media_type: str | None
) -> None:
    """read_text of a binary file names its kind and size, whatever the file is called."""
    (home / f"{name}.txt").write_bytes(data)
    error = await refused(fs.read_text(f"{name}.txt"))
    assert error.code == "binary"
    assert f"is not text ({label}, {human_size(len(data))})" in str(error)
    if media_type:
        kind = file_type(data)
        assert kind is not None
        assert kind.media_type == media_type


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (1000, "1.0 kB"), (12_345, "12 kB"), (999_600, "1.0 MB"),
     (1_117_320_768, "1.1 GB"), (5 * 10**15, "5000 TB")],
)  # fmt: skip
def test_human_size(size: int, text: str) -> None:
    """Sizes are rounded to what people say, also at the edges between units."""
    assert human_size(size) == text
