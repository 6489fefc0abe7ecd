"""``write_file``, ``edit_file`` and ``append_file``. What a person approved is what gets written, or nothing."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from skald_core import api as skald
from skald_tools_fs.arguments import FileTool, schema, switch, text
from skald_tools_fs.seen import Seen

__all__ = ("AppendFile", "EditFile", "WriteFile", "replace_once")

PREVIEW_TAIL_BYTES = 4096
MAX_CONTENT_CHARS = 10_000_000


def _lines(content: str) -> int:
    return content.count("\n") + (not content.endswith("\n") and content != "")


def _size(content: str) -> str:
    lines = _lines(content)
    return f"{skald.human_size(len(content.encode()))}, {lines} line{'' if lines == 1 else 's'}"


def _check_length(tool: str, content: str) -> None:
    if len(content) > MAX_CONTENT_CHARS:
        raise skald.InvalidArguments(
            f"{tool}: {len(content):,} characters at once are too many (at most {MAX_CONTENT_CHARS:,}). Write it in parts."
        )


# --- write_file --------------------------------------------------------------------------------------------------


class WriteFileArguments(msgspec.Struct, frozen=True):
    path: str
    content: str


class WriteFile(FileTool[WriteFileArguments]):
    """Creates or replaces a whole file, atomically."""

    name = "write_file"
    description = "Create a file, or replace all of it."
    parameters = schema("path", "content", path=text, content=text)
    arguments_type = WriteFileArguments
    text_fields = frozenset({"content"})
    scope = "write"
    title = "plugin.tools-fs.write_file"
    icon = "edit"

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def validate(self, arguments: dict[str, Any]) -> WriteFileArguments:
        taken = super().validate(arguments)
        _check_length(self.name, taken.content)
        return taken

    def summarize(self, arguments: WriteFileArguments) -> str:
        return f"{arguments.path} ({_size(arguments.content)})"[:120]

    async def preview(self, arguments: WriteFileArguments, ctx: skald.ToolContext) -> tuple[skald.FileChange, ...]:
        fs = self.files(ctx)
        path = fs.display(arguments.path)

        def look(tree: skald.FileTree) -> tuple[skald.FileVersion, str | None]:
            tree.check_write(arguments.path)
            version = tree.version(arguments.path)
            if version == skald.ABSENT:
                return version, None
            try:
                found = tree.read_text(arguments.path)
            except skald.FilesError as error:
                if error.code not in {"binary", "too_large"}:
                    raise
                return version, f"[{error}]"  # what is lost cannot be shown, but that it is lost can
            return found.version, found.text

        version, before = await fs.run(look)
        self._seen.note(ctx, arguments, version)
        kind = "create" if before is None else "overwrite"
        return (skald.FileChange(path, before, arguments.content, kind),)  # type: ignore[arg-type]  # one of the literals

    async def run(self, arguments: WriteFileArguments, ctx: skald.ToolContext) -> str:
        expect = self._seen.take(ctx, arguments)
        done = await self.files(ctx).write_text(arguments.path, arguments.content, expect=expect)
        return f"{'Created' if done.created else 'Overwrote'} {done.path} ({_size(arguments.content)})."


# --- edit_file ---------------------------------------------------------------------------------------------------


class EditFileArguments(msgspec.Struct, frozen=True):
    path: str
    old: str
    new: str
    replace_all: bool = False


class Replacement(msgspec.Struct, frozen=True):
    """The text after an edit, and on which lines (from 1) it was changed."""

    text: str
    at: tuple[int, ...]
    added_lines: int


_NUMBERED = re.compile(r"^ *\d+ [|>] ?", re.MULTILINE)


def _as_crlf(value: str) -> str:
    return value.replace("\r\n", "\n").replace("\n", "\r\n")


def _line_of(content: str, offset: int) -> int:
    return content.count("\n", 0, offset) + 1


def _offsets(content: str, old: str, most: int | None = None) -> list[int]:
    found: list[int] = []
    at = content.find(old)
    while at >= 0 and (most is None or len(found) < most):
        found.append(at)
        at = content.find(old, at + len(old))
    return found


def _spellings(content: str, newline: str, old: str, new: str) -> list[tuple[str, str]]:
    """``old`` and ``new`` as they stand, with the file's line ends, and without line numbers copied from read_file."""
    pairs: list[tuple[str, str]] = []
    texts = [(old, new)]
    lines = old.rstrip("\n").split("\n")
    if all(_NUMBERED.match(line) for line in lines):
        texts.append((_NUMBERED.sub("", old), _NUMBERED.sub("", new)))
    for one, other in texts:
        if "\r\n" in content and ("\n" in one or newline == "\r\n"):
            pairs.append((_as_crlf(one), _as_crlf(other)))
        pairs.append((one, other))
    return pairs


def _near(content: str, old: str) -> str:
    """A hint where the first line of ``old`` is, when only blanks or case differ."""
    first = next((line.strip().casefold() for line in old.splitlines() if line.strip()), "")
    for number, line in enumerate(content.split("\n"), 1):
        if first and first in line.casefold():
            return f" Line {number} looks like it: {line.strip()[:120]!r}. Copy the text exactly, blanks included."
    return " Read the file and copy the text exactly."


def replace_once(file: skald.TextFile, arguments: EditFileArguments) -> Replacement:
    """Replace ``old`` by ``new``, literally. Raises ToolError when it is not there, or there more than once."""
    content, path = file.text, file.info.path
    if not arguments.old:
        raise skald.ToolError("old is empty. Use write_file to write a whole file, append_file to add at its end.")
    if arguments.old == arguments.new:
        raise skald.ToolError("old and new are the same, so there is nothing to change.")
    for old, new in _spellings(content, file.newline, arguments.old, arguments.new):
        found = _offsets(content, old)
        if not found:
            continue
        if len(found) > 1 and not arguments.replace_all:
            lines = ", ".join(str(_line_of(content, at)) for at in found[:5])
            more = ", …" if len(found) > 5 else ""
            raise skald.ToolError(
                f"old is in {path!r} {len(found)} times (lines {lines}{more}). "
                "Add the lines around it to make it unique, or set replace_all."
            )
        at = tuple(_line_of(content, offset) for offset in found)
        added = (new.count("\n") - old.count("\n")) * len(found)
        return Replacement(text=content.replace(old, new), at=at, added_lines=added)
    raise skald.ToolError(f"old was not found in {path!r}.{_near(content, arguments.old)}")


class EditFile(FileTool[EditFileArguments]):
    """Replaces exact text. Encoding, line ends and mode of the file stay as they are."""

    name = "edit_file"
    description = "Replace text in a file. old must match exactly and only once, unless replace_all."
    parameters = schema("path", "old", "new", path=text, old=text, new=text, replace_all=switch)
    arguments_type = EditFileArguments
    scope = "write"
    title = "plugin.tools-fs.edit_file"
    icon = "edit"

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def summarize(self, arguments: EditFileArguments) -> str:
        return arguments.path[:120]

    async def _edit(
        self, arguments: EditFileArguments, ctx: skald.ToolContext, expect: skald.FileVersion | None = None
    ) -> tuple[skald.TextFile, Replacement]:
        def look(tree: skald.FileTree) -> skald.TextFile:
            tree.check_write(arguments.path)
            return tree.read_text(arguments.path)

        file = await self.files(ctx).run(look)
        if expect is not None and file.version != expect:
            raise skald.ToolError(
                f"{file.info.path!r} was changed after this edit was shown for approval; nothing was written. "
                "Read it again, then repeat the edit."
            )
        edited = replace_once(file, arguments)
        file.encode(edited.text)
        return file, edited

    async def preview(self, arguments: EditFileArguments, ctx: skald.ToolContext) -> tuple[skald.FileChange, ...]:
        file, edited = await self._edit(arguments, ctx)
        self._seen.note(ctx, arguments, file.version)
        return (skald.FileChange(file.info.path, file.text, edited.text, "edit"),)

    async def run(self, arguments: EditFileArguments, ctx: skald.ToolContext) -> str:
        file, edited = await self._edit(arguments, ctx, self._seen.take(ctx, arguments))
        await self.files(ctx).write_bytes(arguments.path, file.encode(edited.text), expect=file.version)
        places = len(edited.at)
        where = f"{places} places, first" if places > 1 else "1 place,"
        delta = f", {edited.added_lines:+d} lines" if edited.added_lines else ""
        return f"Edited {file.info.path}: {where} line {edited.at[0]}{delta}."


# --- append_file -------------------------------------------------------------------------------------------------


class AppendFileArguments(msgspec.Struct, frozen=True):
    path: str
    content: str


class AppendFile(FileTool[AppendFileArguments]):
    """Adds whole lines at the end. What was approved is the text added, so a log that grew meanwhile is no obstacle."""

    name = "append_file"
    description = "Add lines at the end of a file, which is created if missing."
    parameters = schema("path", "content", path=text, content=text)
    arguments_type = AppendFileArguments
    text_fields = frozenset({"content"})
    scope = "write"
    title = "plugin.tools-fs.append_file"
    icon = "edit"

    def validate(self, arguments: dict[str, Any]) -> AppendFileArguments:
        taken = super().validate(arguments)
        _check_length(self.name, taken.content)
        if not taken.content:
            raise skald.InvalidArguments("append_file: content is empty, so there is nothing to add.")
        return taken

    def summarize(self, arguments: AppendFileArguments) -> str:
        return f"{arguments.path} (+{_lines(arguments.content)})"[:120]

    async def preview(self, arguments: AppendFileArguments, ctx: skald.ToolContext) -> tuple[skald.FileChange, ...]:
        def look(tree: skald.FileTree) -> str | None:
            tree.check_write(arguments.path)
            try:
                return tree.read_tail(arguments.path, PREVIEW_TAIL_BYTES)
            except skald.FilesError as error:
                if error.code == "not_found":
                    return None
                raise

        fs = self.files(ctx)
        before = await fs.run(look)
        added = arguments.content if arguments.content.endswith("\n") else arguments.content + "\n"
        glue = "\n" if before and not before.endswith("\n") else ""
        kind = "create" if before is None else "append"
        after = (before or "") + glue + added
        return (skald.FileChange(fs.display(arguments.path), before, after, kind),)  # type: ignore[arg-type]

    async def run(self, arguments: AppendFileArguments, ctx: skald.ToolContext) -> str:
        done = await self.files(ctx).append_text(arguments.path, arguments.content)
        lines = _lines(arguments.content)
        verb = "Created" if done.created else "Added to"
        return f"{verb} {done.path}: {lines} line{'' if lines == 1 else 's'}, {skald.human_size(done.size)} now."
