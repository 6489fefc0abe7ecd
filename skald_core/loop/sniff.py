"""What kind of picture, film or document bytes are, by the marks formats begin with. A name or a claimed type counts nothing."""

from __future__ import annotations

__all__ = ("media_type_of",)

_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"FLV\x01", "video/x-flv"),
    (b"\x00\x00\x01\xba", "video/mpeg"),  # a program stream
    (b"\x00\x00\x01\xb3", "video/mpeg"),  # a video stream alone
)
_RIFF = {b"WEBP": "image/webp", b"AVI ": "video/x-msvideo"}
_BRANDS = {
    b"qt  ": "video/quicktime",
    b"3g2": "video/3gpp2",
    b"3g": "video/3gpp",  # 3gp4, 3gr6, 3gs7 and so on: releases and profiles
}
_NO_FILM = (
    b"hei",
    b"hev",
    b"mif1",
    b"msf1",
    b"avif",
    b"avis",
    b"M4A",
    b"M4B",
    b"M4P",
    b"crx",
    b"jp2",
    b"jpx",
    b"F4A",
    b"F4B",
)
"""What an ISO media file is when it holds pictures or sound alone."""
_ATOMS = frozenset({b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot"})
"""What a QuickTime file from before ``ftyp`` begins with."""


def media_type_of(data: bytes) -> str:
    """The MIME type of what a model may be able to look at; empty for anything else. The first 4096 bytes are enough."""
    for mark, found in _BEGINNINGS:
        if data.startswith(mark):
            return found
    if data.startswith(b"RIFF"):
        return _RIFF.get(data[8:12], "")
    if data[4:8] == b"ftyp":
        return _of_brand(data[8:12])
    if data[4:8] in _ATOMS:
        return "video/quicktime"
    # Matroska begins alike; the document type, among the first elements, tells them apart.
    return "video/webm" if data.startswith(b"\x1a\x45\xdf\xa3") and b"\x42\x82\x84webm" in data[:4096] else ""


def _of_brand(brand: bytes) -> str:
    if brand.startswith(_NO_FILM):
        return ""
    return next((found for mark, found in _BRANDS.items() if brand.startswith(mark)), "video/mp4")
