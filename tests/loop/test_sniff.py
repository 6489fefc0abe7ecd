"""Kinds of media by their first bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skald_core.loop.media import TurnMedia
from skald_core.loop.profile import Limits
from skald_core.loop.projection import media_kinds, visible
from skald_core.loop.records import Message
from skald_core.loop.sniff import media_type_of
from skald_core.loop.types import Attachment, FrameId, MediaPart, MessageId, ModelInfo


def box(brand: bytes, kind: bytes = b"ftyp") -> bytes:
    return b"\x00\x00\x00\x18" + kind + brand + b"\x00\x00\x02\x00" + brand


def ebml(doctype: bytes) -> bytes:
    return b"\x1a\x45\xdf\xa3\x9f\x42\x86\x81\x01\x42\x82" + bytes([0x80 + len(doctype)]) + doctype


@pytest.mark.parametrize(
    ("data", "want"),
    [
        (b"\x89PNG\r\n\x1a\n\x00", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF87a", "image/gif"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\x10\x00\x00\x00WEBPVP8 ", "image/webp"),
        (b"%PDF-1.7", "application/pdf"),
        (box(b"isom"), "video/mp4"),
        (box(b"mp42"), "video/mp4"),
        (box(b"M4V "), "video/mp4"),
        (box(b"qt  "), "video/quicktime"),
        (box(b"lmvh", b"moov"), "video/quicktime"),
        (box(b"\x00" * 4, b"wide"), "video/quicktime"),
        (box(b"3gp5"), "video/3gpp"),
        (box(b"3gr6"), "video/3gpp"),
        (box(b"3g2a"), "video/3gpp2"),
        (ebml(b"webm"), "video/webm"),
        (b"RIFF\x10\x00\x00\x00AVI LIST", "video/x-msvideo"),
        (b"FLV\x01\x05", "video/x-flv"),
        (b"\x00\x00\x01\xba\x44", "video/mpeg"),
        (b"\x00\x00\x01\xb3\x16", "video/mpeg"),
        (ebml(b"matroska"), ""),
        (box(b"heic"), ""),
        (box(b"avif"), ""),
        (box(b"M4A "), ""),
        (b"RIFF\x10\x00\x00\x00WAVEfmt ", ""),
        (b"<svg xmlns=", ""),
        (b"PK\x03\x04", ""),
        (b"GIF of a cat", ""),
        (b"plain text about moov", ""),
        (b"", ""),
    ],
)
def test_each_format_by_its_mark(data: bytes, want: str) -> None:
    """Pictures, films and PDF; what only looks like one is nothing."""
    assert media_type_of(data) == want


@given(st.binary(max_size=64))
def test_any_bytes_have_an_answer(data: bytes) -> None:
    """Short and broken ones, too, and only a kind some model may look at."""
    found = media_type_of(data)
    able = ModelInfo(capabilities=frozenset({"vision", "video", "documents"}))
    assert not found or visible(MediaPart(found, data), able)


def test_kinds_have_one_order() -> None:
    """Whatever order a model's abilities were given in."""
    assert media_kinds(ModelInfo(capabilities=frozenset({"documents", "video", "vision", "tools"}))) == (
        "image", "video", "document",
    )  # fmt: skip
    assert media_kinds(ModelInfo(capabilities=frozenset({"documents"}))) == ("document",)
    assert media_kinds(ModelInfo()) == ()


_MIB = 2**20


class Files:
    """A source with files of given sizes, by name."""

    def __init__(self, **sizes: tuple[str, int]) -> None:
        self.sizes = sizes

    async def load(self, attachment: Attachment, scope: object) -> MediaPart | None:
        kind, size = self.sizes[attachment.path]
        return MediaPart(kind, bytes(size), attachment.name)


async def shown(files: Files, **limits: int) -> list[str]:
    attached = tuple(Attachment(name, name) for name in files.sizes)
    message = Message(MessageId(1), FrameId(1), None, "user", "look", attachments=attached)
    able = ModelInfo(capabilities=frozenset({"vision", "video", "documents"}))
    return list(await TurnMedia(files, Limits(**limits)).load([message], able, {}))


async def test_bounds_of_one_file_by_its_kind() -> None:
    """A picture of 10 MiB, a film and a document of 32 MiB each are the most; one byte more is only named."""
    for kind, most in (("image/png", 10), ("video/mp4", 32), ("application/pdf", 32)):
        assert await shown(Files(fits=(kind, most * _MIB), large=(kind, most * _MIB + 1))) == ["fits"]


async def test_bounds_of_a_turn() -> None:
    """Four files, and 48 MiB together."""
    assert await shown(Files(**{f"f{n}": ("image/png", 1) for n in range(6)})) == ["f0", "f1", "f2", "f3"]
    sizes = {"a": ("video/mp4", 30 * _MIB), "b": ("application/pdf", 20 * _MIB), "c": ("image/png", 9 * _MIB)}
    assert await shown(Files(**sizes)) == ["a", "c"]
