"""``list_files``: what is in a folder, as compact JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec

from skald_core import api as skald
from skald_tools_fs.arguments import FileTool, integer, schema, switch, text
from skald_tools_fs.lines import count_lines, open_text
from skald_tools_fs.skipped import SKIPPED_FOLDERS

__all__ = ("ListFiles", "ListFilesArguments")

MAX_ENTRIES = 1000
MAX_DEPTH = 10
COUNTED_BYTES = 2 * 1024 * 1024


class ListFilesArguments(msgspec.Struct, frozen=True):
    path: str = "~"
    depth: int = 3
    dirs_only: bool = False
    with_metadata: bool = False


class ListFiles(FileTool[ListFilesArguments]):
    """Paths of a folder's content; folders end in ``/``. With metadata: size, time (UTC) and line count of text files."""

    name = "list_files"
    description = "List a folder and what is below it."
    parameters = schema(path=text, depth=integer, dirs_only=switch, with_metadata=switch)
    arguments_type = ListFilesArguments
    scope = "read"
    parallel_safe = True
    restart_hint = "rerun"
    title = "plugin.tools-fs.list_files"
    icon = "list"

    def summarize(self, arguments: ListFilesArguments) -> str:
        return arguments.path[:120]

    async def run(self, arguments: ListFilesArguments, ctx: skald.ToolContext) -> skald.ToolOutput:
        answer = await self.files(ctx).run(lambda tree: _list(tree, arguments, ctx))
        return skald.ToolOutput(json.dumps(answer, ensure_ascii=False, separators=(",", ":")), json=True)


def _list(tree: skald.FileTree, arguments: ListFilesArguments, ctx: skald.ToolContext) -> dict[str, Any]:
    """Level by level, so that a limit cuts what lies deep, not the folders after a large one."""
    found: list[skald.FileInfo] = []
    level = [arguments.path]
    cut = False
    for _ in range(min(max(1, arguments.depth), MAX_DEPTH)):
        below: list[str] = []
        for folder in level:
            if cut or ctx.cancelled.is_set():
                break
            try:
                entries = tree.list(folder)
            except skald.FilesError:
                if folder == arguments.path:
                    raise
                continue  # vanished, or may not be read
            for info in entries:
                if arguments.dirs_only and info.kind != "dir":
                    continue
                if len(found) >= MAX_ENTRIES:
                    cut = True
                    break
                found.append(info)
                if info.kind == "dir" and info.name not in SKIPPED_FOLDERS and "\ufffd" not in info.name:
                    below.append(info.path)
        level = below
    found.sort(key=lambda info: info.path.split("/"))
    entries_out = [_entry(tree, info) if arguments.with_metadata else _shown(info) for info in found]
    answer: dict[str, Any] = {"path": tree.stat(arguments.path).path, "entries": entries_out}
    if cut:
        answer["note"] = f"only the first {MAX_ENTRIES} entries; list a folder below, or use a smaller depth"
    return answer


def _shown(info: skald.FileInfo) -> str:
    return f"{info.path}/" if info.kind == "dir" else info.path


def _entry(tree: skald.FileTree, info: skald.FileInfo) -> dict[str, Any]:
    entry: dict[str, Any] = {"path": _shown(info)}
    if info.kind in {"link", "other"}:
        entry["type"] = info.kind
    if info.kind == "file":
        entry["size"] = info.size
        lines = _line_count(tree, info)
        if lines is not None:
            entry["lines"] = lines
    if info.modified:
        entry["modified"] = datetime.fromtimestamp(info.modified, UTC).strftime("%Y-%m-%dT%H:%MZ")
    return entry


def _line_count(tree: skald.FileTree, info: skald.FileInfo) -> int | None:
    if info.size > COUNTED_BYTES:
        return None
    try:
        with tree.open(info.path) as (file, now), open_text(file, now) as lines:
            return count_lines(lines)
    except skald.FilesError:
        return None
