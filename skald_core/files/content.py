"""What bytes are: text in some encoding, or which kind of file. Judged by the bytes alone, never by a name."""

from __future__ import annotations

import codecs
import re

import msgspec

__all__ = ("FileType", "Text", "decode_text", "detect_encoding", "file_type", "human_size")


class FileType(msgspec.Struct, frozen=True):
    """A recognised kind: ``media_type`` as registered with IANA where there is one, ``label`` for people."""

    media_type: str
    label: str


class Text(msgspec.Struct, frozen=True):
    """Decoded text and how to store it again: ``encoding`` is a Python codec name, ``newline`` what lines end with."""

    text: str
    encoding: str
    newline: str

    def encode(self, text: str) -> bytes:
        """``text`` as this file stores it. Raises UnicodeEncodeError when the encoding cannot hold it."""
        bom = _BOMS.get(self.encoding, b"")
        return bom + text.encode("utf-8" if self.encoding == "utf-8-sig" else self.encoding)


# The byte order marks, longest first (Unicode 15, §23.8): UTF-32's begins with UTF-16's.
_BOM_ORDER = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_BOMS = {name: mark for mark, name in _BOM_ORDER}

_MAGIC: tuple[tuple[int, bytes, str, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png", "PNG image"),
    (0, b"\xff\xd8\xff", "image/jpeg", "JPEG image"),
    (0, b"GIF87a", "image/gif", "GIF image"),
    (0, b"GIF89a", "image/gif", "GIF image"),
    (8, b"WEBP", "image/webp", "WebP image"),
    (8, b"WAVE", "audio/wav", "WAV sound"),
    (8, b"AVI ", "video/x-msvideo", "AVI video"),
    (0, b"II*\x00", "image/tiff", "TIFF image"),
    (0, b"MM\x00*", "image/tiff", "TIFF image"),
    (0, b"\x00\x00\x01\x00", "image/vnd.microsoft.icon", "icon"),
    (0, b"\x1f\x8b", "application/gzip", "gzip archive"),
    (0, b"BZh", "application/x-bzip2", "bzip2 archive"),
    (0, b"\xfd7zXZ\x00", "application/x-xz", "xz archive"),
    (0, b"\x28\xb5\x2f\xfd", "application/zstd", "Zstandard archive"),
    (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed", "7-Zip archive"),
    (0, b"Rar!\x1a\x07", "application/vnd.rar", "RAR archive"),
    (257, b"ustar", "application/x-tar", "tar archive"),
    (0, b"\x7fELF", "application/x-elf", "Linux program"),
    (0, b"MZ", "application/vnd.microsoft.portable-executable", "Windows program"),
    (0, b"\xcf\xfa\xed\xfe", "application/x-mach-binary", "macOS program"),
    (0, b"\xca\xfe\xba\xbe", "application/java-vm", "Java class or macOS program"),
    (0, b"\x00asm", "application/wasm", "WebAssembly module"),
    (0, b"SQLite format 3\x00", "application/vnd.sqlite3", "SQLite database"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/x-ole-storage", "old Office document"),
    (0, b"GGUF", "application/x-gguf", "GGUF model"),
    (0, b"ID3", "audio/mpeg", "MP3 sound"),
    (0, b"OggS", "audio/ogg", "Ogg sound"),
    (0, b"fLaC", "audio/flac", "FLAC sound"),
    (0, b"\x1aE\xdf\xa3", "video/webm", "WebM or Matroska video"),
    (0, b"wOFF", "font/woff", "font"),
    (0, b"wOF2", "font/woff2", "font"),
)
_ZIP_KINDS: tuple[tuple[bytes, str, str], ...] = (
    (b"word/", "application/vnd.openxmlformats-officedocument.wordprocessingml.document", "Word document"),
    (b"xl/", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "Excel spreadsheet"),
    (b"ppt/", "application/vnd.openxmlformats-officedocument.presentationml.presentation", "PowerPoint presentation"),
    (b"mimetypeapplication/vnd.oasis.opendocument.text", "application/vnd.oasis.opendocument.text", "Writer document"),
    (
        b"mimetypeapplication/vnd.oasis.opendocument.spreadsheet",
        "application/vnd.oasis.opendocument.spreadsheet",
        "Calc spreadsheet",
    ),
    (b"mimetypeapplication/epub+zip", "application/epub+zip", "EPUB book"),
    (b"META-INF/MANIFEST.MF", "application/java-archive", "Java archive"),
)
_FTYP_KINDS = {
    b"heic": ("image/heic", "HEIC image"),
    b"heix": ("image/heic", "HEIC image"),
    b"mif1": ("image/heif", "HEIF image"),
    b"avif": ("image/avif", "AVIF image"),
    b"M4A ": ("audio/mp4", "M4A sound"),
    b"qt  ": ("video/quicktime", "QuickTime video"),
}


def file_type(head: bytes) -> FileType | None:
    """The kind of a file that begins with ``head`` (at least 512 bytes where there are as many), or None.

    None for plain text too, also when it begins with letters some format uses as its mark.
    """
    if head.startswith(b"%PDF-"):
        return FileType("application/pdf", "PDF document")
    if head[:4] in {b"PK\x03\x04", b"PK\x05\x06"}:
        for mark, media_type, label in _ZIP_KINDS:
            if mark in head:
                return FileType(media_type, label)
        return FileType("application/zip", "ZIP archive")
    if detect_encoding(head) not in {None, "cp1252"}:
        return None
    if head[4:8] == b"ftyp":
        media_type, label = _FTYP_KINDS.get(head[8:12], ("video/mp4", "MP4 video"))
        return FileType(media_type, label)
    if head[:2] in {b"\xff\xfb", b"\xff\xf3", b"\xff\xf2"}:
        return FileType("audio/mpeg", "MP3 sound")
    for offset, mark, media_type, label in _MAGIC:
        if head[offset : offset + len(mark)] == mark:
            return FileType(media_type, label)
    return None


_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


def detect_encoding(head: bytes, *, complete: bool = False) -> str | None:
    """The codec of text that begins with ``head``, or None when it is not text.

    A byte order mark decides; else UTF-8 when valid (an unfinished last character is fine unless ``complete``); else
    Windows-1252 when there is no control character. A NUL byte without a mark means binary.
    """
    for mark, name in _BOM_ORDER:
        if head.startswith(mark):
            return name
    if b"\x00" in head:
        return None
    try:
        codecs.getincrementaldecoder("utf-8")("strict").decode(head, complete)
    except UnicodeDecodeError:
        if _CONTROL.search(head):
            return None
        try:
            head.decode("cp1252")
        except UnicodeDecodeError:
            return None
        return "cp1252"
    return "utf-8"


def dominant_newline(text: str) -> str:
    """``"\\r\\n"`` when most of the first lines end that way, else ``"\\n"``."""
    head = text[:16384]
    crlf = head.count("\r\n")
    return "\r\n" if crlf * 2 > head.count("\n") else "\n"


def decode_text(data: bytes) -> Text | None:
    """The text in ``data`` (a whole file), or None when it is not text. Line ends stay as they are."""
    encoding = detect_encoding(data, complete=True)
    if encoding is None or file_type(data[:4096]) is not None:
        return None
    try:
        text = data[len(_BOMS.get(encoding, b"")) :].decode("utf-8" if encoding == "utf-8-sig" else encoding)
    except UnicodeDecodeError:
        return None
    return Text(text=text, encoding=encoding, newline=dominant_newline(text))


def decode_part(data: bytes, encoding: str, *, first: bool) -> str:
    """A part of a text file; ``first`` when it is the beginning. Cut characters at the edges become U+FFFD."""
    mark = _BOMS.get(encoding, b"")
    if first and mark and data.startswith(mark):
        data = data[len(mark) :]
    return data.decode("utf-8" if encoding == "utf-8-sig" else encoding, errors="replace")


def human_size(size: int) -> str:
    """``size`` bytes in the unit people would say: ``"340 bytes"``, ``"1.2 MB"`` (powers of 1000)."""
    if size < 1000:
        return f"{size} byte{'' if size == 1 else 's'}"
    value = float(size)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000
        if value < 999.5 or unit == "TB":
            return f"{value:.1f} {unit}" if value < 9.95 else f"{value:.0f} {unit}"
    raise AssertionError("the last unit always returns")
