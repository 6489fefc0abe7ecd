"""``read_file``: numbered lines of a text file, or a picture for a model that can look at one."""

from __future__ import annotations

from typing import BinaryIO

import msgspec

from skald_core import api as skald
from skald_tools_fs.arguments import FileTool, integer, schema
from skald_tools_fs.lines import HEAD_BYTES, LINE_CHARS, count_lines, open_text, read_line, shorten

__all__ = ("ReadFile", "ReadFileArguments")

MAX_LINES = 2000
MAX_CHARS = 60_000

# Largest file of each kind that is shown to a model: what the common model APIs accept.
_MEDIA_BYTES = {
    "image/png": 5_000_000,
    "image/jpeg": 5_000_000,
    "image/gif": 5_000_000,
    "image/webp": 5_000_000,
    "application/pdf": 20_000_000,
    "video/mp4": 20_000_000,
    "video/webm": 20_000_000,
    "video/quicktime": 20_000_000,
}


class ReadFileArguments(msgspec.Struct, frozen=True):
    path: str
    start_line: int = 1
    end_line: int | None = None
    limit: int = MAX_LINES


class ReadFile(FileTool[ReadFileArguments]):
    """Text as ``N | text`` lines; pictures, PDF and video as media; other binary files are refused by name."""

    name = "read_file"
    description = "Read a text file as numbered lines 'N | text', or look at an image or PDF."
    parameters = schema(
        "path",
        path={"type": "string", "description": "relative to the home folder"},
        start_line=integer,
        end_line=integer,
        limit=integer,
    )
    arguments_type = ReadFileArguments
    scope = "read"
    parallel_safe = True
    restart_hint = "rerun"
    title = "plugin.tools-fs.read_file"
    icon = "read"

    def summarize(self, arguments: ReadFileArguments) -> str:
        start, end = arguments.start_line, arguments.end_line
        lines = f":{max(1, start)}–{end or ''}" if start > 1 or end else ""
        return f"{arguments.path}{lines}"[:120]

    async def run(self, arguments: ReadFileArguments, ctx: skald.ToolContext) -> skald.ToolOutput | str:
        return await self.files(ctx).with_file(arguments.path, lambda file, info: _read(file, info, arguments, ctx))


def _read(
    file: BinaryIO, info: skald.FileInfo, arguments: ReadFileArguments, ctx: skald.ToolContext
) -> skald.ToolOutput | str:
    kind = skald.file_type(file.read(HEAD_BYTES))
    if kind is not None and kind.media_type in _MEDIA_BYTES:
        return _media(info, kind)
    file.seek(0)
    if not info.size:
        return f"{info.path} is empty."
    start = max(1, arguments.start_line)
    limit = min(max(1, arguments.limit), MAX_LINES)
    end = arguments.end_line if arguments.end_line is not None and arguments.end_line > 0 else None
    if end is not None and end < start:
        raise skald.ToolError(f"end_line {end} is before start_line {start}. Swap them, or leave end_line out.")
    wanted = limit if end is None else min(limit, end - start + 1)
    with open_text(file, info) as lines:
        shown: list[str] = []
        chars = number = 0
        while number < start + wanted - 1 and chars < MAX_CHARS:
            line = read_line(lines)
            if line is None:
                break
            number += 1
            if number >= start:
                shown.append(f"{number} | {shorten(*line, LINE_CHARS)}")
                chars += len(shown[-1]) + 1
            elif number % 4096 == 0 and ctx.cancelled.is_set():
                break
        total = number + count_lines(lines)
    if not shown:
        return f"{info.path} has {total} line{'' if total == 1 else 's'}; there is no line {start}."
    if number < total:
        shown.append(f"[lines {start}–{number} of {total}; read on with start_line={number + 1}]")
    return "\n".join(shown)


def _media(info: skald.FileInfo, kind: skald.FileType) -> skald.ToolOutput:
    size = skald.human_size(info.size)
    most = _MEDIA_BYTES[kind.media_type]
    if info.size > most:
        raise skald.ToolError(
            f"{info.path!r} is too large to look at ({kind.label}, {size}; at most {skald.human_size(most)}). "
            "Ask the user for a smaller version."
        )
    name = info.path.rpartition("/")[2]
    return skald.ToolOutput(
        f"{info.path} ({kind.label}, {size}) is attached. If you cannot see it, say that this model cannot look at such files.",
        media=(skald.Attachment(info.path, name, kind.media_type, info.size),),
    )
