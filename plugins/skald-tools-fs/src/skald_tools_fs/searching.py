"""``grep_files`` (a regular expression in many files) and ``search_file`` (plain text in one file of any size)."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, BinaryIO, Literal

import msgspec

from skald_core import api as skald
from skald_tools_fs.arguments import FileTool, integer, schema, switch, text
from skald_tools_fs.lines import blocks, open_text, shorten
from skald_tools_fs.patterns import Matcher, compile_glob, compile_pattern
from skald_tools_fs.skipped import SKIPPED_FOLDERS

__all__ = ("GrepFiles", "SearchFile")

FILE_BYTES = 200_000
"""How much of one file ``grep_files`` looks at."""
OUTPUT_CHARS = 60_000
LINE_LIMIT = 500
MAX_RESULTS = 1000
MAX_CONTEXT = 10
MAX_FILES = 20_000
MAX_MATCHES = 100
SEARCHED_CHARS = 1_000_000
"""How much of one line ``search_file`` looks at."""
MAX_SECONDS = 20.0

_MODE_SPELLINGS = {"files_with_matches": "files_only", "files": "files_only", "lines": "content"}


# --- grep_files --------------------------------------------------------------------------------------------------


class GrepFilesArguments(msgspec.Struct, frozen=True):
    pattern: str
    path: str = "~"
    case_sensitive: bool = False
    include_glob: str | None = None
    output_mode: Literal["content", "files_only", "count"] = "content"
    context_lines: int = 0
    max_results: int = 100
    offset: int = 0


class GrepFiles(FileTool[GrepFilesArguments]):
    """Searches text files below a folder, in order of their paths, with limits on time, files and output."""

    name = "grep_files"
    description = "Search files below a folder with a regular expression."
    parameters = schema(
        "path",
        "pattern",
        path=text,
        pattern=text,
        case_sensitive=switch,
        include_glob={"type": "string", "description": "e.g. *.md"},
        output_mode={"type": "string", "enum": ["content", "files_only", "count"]},
        context_lines=integer,
        max_results=integer,
        offset=integer,
    )
    arguments_type = GrepFilesArguments
    scope = "read"
    parallel_safe = True
    restart_hint = "rerun"
    title = "plugin.tools-fs.grep_files"
    icon = "search"

    def validate(self, arguments: dict[str, Any]) -> GrepFilesArguments:
        mode = arguments.get("output_mode")
        if isinstance(mode, str) and mode in _MODE_SPELLINGS:
            arguments = {**arguments, "output_mode": _MODE_SPELLINGS[mode]}
        return super().validate(arguments)

    def summarize(self, arguments: GrepFilesArguments) -> str:
        where = arguments.path + (f"/{arguments.include_glob}" if arguments.include_glob else "")
        return f"“{arguments.pattern[:60]}” · {where}"[:120]

    async def run(self, arguments: GrepFilesArguments, ctx: skald.ToolContext) -> str:
        matcher, literal = compile_pattern(arguments.pattern, case_sensitive=arguments.case_sensitive)
        glob = compile_glob(arguments.include_glob) if arguments.include_glob else None
        search = _Grep(arguments, matcher, ctx)
        answer = await self.files(ctx).run(lambda tree: search.run(tree, glob))
        return f"[not a regular expression; searched as plain text]\n{answer}" if literal else answer


class _Grep:
    """One search: runs on a worker thread, stops at the first limit it meets and says which."""

    def __init__(self, arguments: GrepFilesArguments, matcher: Matcher, ctx: skald.ToolContext) -> None:
        self._arguments = arguments
        self._matcher = matcher
        self._cancelled = ctx.cancelled
        self._context = min(max(0, arguments.context_lines), MAX_CONTEXT)
        self._most = min(max(1, arguments.max_results), MAX_RESULTS)
        self._skip = max(0, arguments.offset)
        # These anchors mean the ends of a line here; a look at the whole text first would miss matches.
        self._line_anchors = any(anchor in arguments.pattern for anchor in (r"\A", r"\z"))
        self._out: list[str] = []
        self._chars = 0
        self._results = 0  # including the skipped ones
        self._partial = 0
        self._note = ""

    def run(self, tree: skald.FileTree, glob: Matcher | None) -> str:
        deadline = time.monotonic() + MAX_SECONDS
        searched = 0
        for info in self._candidates(tree, glob):
            if self._cancelled.is_set():
                break
            if searched >= MAX_FILES or time.monotonic() > deadline:
                self._note = "the search was cut short: narrow it with path or include_glob"
                break
            searched += 1
            try:
                with tree.open(info.path) as (file, now):
                    content = self._content(file, now)
            except skald.FilesError:
                if info.path == self._arguments.path:
                    raise
                continue  # vanished, a link, or may not be read
            if content and not self._search(info.path, content):
                break
        return self._answer(searched)

    def _candidates(self, tree: skald.FileTree, glob: Matcher | None) -> Iterator[skald.FileInfo]:
        root = tree.stat(self._arguments.path)
        if root.kind != "dir":
            yield root
            return
        by_path = glob is not None and "/" in (self._arguments.include_glob or "")
        cut = 0 if root.path == "~" else len(root.path) + 1
        for info in tree.walk(self._arguments.path, skip=SKIPPED_FOLDERS):
            if self._cancelled.is_set():
                return
            if info.kind != "file":
                continue
            name = info.path[cut:] if by_path else info.name
            if glob is None or glob.fullmatch(name.encode()):
                yield info

    def _content(self, file: BinaryIO, info: skald.FileInfo) -> bytes:
        """The text to search, as UTF-8; empty for a binary file. Raises FilesError for one that was asked for by name."""
        try:
            with open_text(file, info) as lines:
                content = lines.read(FILE_BYTES)
                if lines.read(1):
                    self._partial += 1
                    content = content[: content.rfind("\n") + 1] or content
        except skald.FilesError as error:
            if error.code == "binary" and info.path != self._arguments.path:
                return b""
            raise
        return content.replace("\r\n", "\n").encode("utf-8", "replace")

    def _search(self, path: str, content: bytes) -> bool:
        """Add this file's results; False when there is no room for more."""
        if not self._line_anchors and not self._matcher.search(content):
            return True
        lines = content.removesuffix(b"\n").split(b"\n")
        hits = [n for n, line in enumerate(lines) if self._matcher.search(line)]
        if not hits:
            return True
        if self._arguments.output_mode != "content":
            one = f"{path}: {len(hits)}" if self._arguments.output_mode == "count" else path
            return self._add([one])
        shown_to = -1
        for at, n in enumerate(hits):
            following = hits[at + 1] if at + 1 < len(hits) else len(lines) + MAX_CONTEXT
            block: list[str] = []
            first = max(n - self._context, shown_to + 1)
            if self._context and self._out and (first > shown_to + 1 or shown_to < 0):
                block.append("--")
            last = min(n + self._context, following - 1, len(lines) - 1)
            for k in range(first, last + 1):
                block.append(f"{path}{':' if k == n else '-'}{k + 1}{':' if k == n else '-'} {_cut(lines[k])}")
            if not self._add(block):
                return False
            shown_to = last
        return True

    def _add(self, block: list[str]) -> bool:
        if self._results >= self._skip + self._most or self._chars > OUTPUT_CHARS:
            self._note = f"more results: call again with offset={self._results}"
            return False
        self._results += 1
        if self._results > self._skip:
            self._out += block
            self._chars += sum(map(len, block)) + len(block)
        return True

    def _answer(self, searched: int) -> str:
        if not self._out:
            if self._results:
                text = f"There are only {self._results} results; offset {self._skip} is past the last."
            else:
                text = f"No match in {searched} file{'' if searched == 1 else 's'}."
        else:
            text = "\n".join(self._out)
        notes = [self._note] if self._note else []
        if self._partial:
            notes.append(f"of {self._partial} large files only the first {skald.human_size(FILE_BYTES)} were searched")
        return text + (f"\n[{'; '.join(notes)}]" if notes else "")


def _cut(line: bytes) -> str:
    if len(line) <= LINE_LIMIT:
        return line.decode("utf-8", "replace")
    return line[:LINE_LIMIT].decode("utf-8", "ignore") + "…"


# --- search_file -------------------------------------------------------------------------------------------------


class SearchFileArguments(msgspec.Struct, frozen=True):
    path: str
    query: str
    context_lines: int = 3


class SearchFile(FileTool[SearchFileArguments]):
    """Finds plain text in one file, in any case, streaming through it."""

    name = "search_file"
    description = "Find text in one file, upper or lower case alike."
    parameters = schema("path", "query", path=text, query=text, context_lines=integer)
    arguments_type = SearchFileArguments
    scope = "read"
    parallel_safe = True
    restart_hint = "rerun"
    title = "plugin.tools-fs.search_file"
    icon = "search"

    def summarize(self, arguments: SearchFileArguments) -> str:
        return f"“{arguments.query[:60]}” · {arguments.path}"[:120]

    async def run(self, arguments: SearchFileArguments, ctx: skald.ToolContext) -> str:
        query = arguments.query.strip("\r\n")
        if not query or "\n" in query:
            raise skald.ToolError("query must be one line of text. For a whole passage, search its first line.")
        search = _Find(query, arguments.context_lines)
        return await self.files(ctx).with_file(arguments.path, lambda file, info: search.run(file, info, ctx.cancelled))


class _Find:
    """One search through one file: block by block, and line by line only where a block holds the text."""

    def __init__(self, query: str, context: int) -> None:
        self._query = query
        self._wanted = query.casefold()
        self._context = min(max(0, context), MAX_CONTEXT)
        self._before: deque[tuple[int, str]] = deque(maxlen=self._context)
        self._after = 0  # lines still to be shown after a match
        self._shown_to = 0
        self._out: list[str] = []
        self._chars = 0
        self._matches = 0
        self._number = 0
        self._full = False

    def run(self, file: BinaryIO, info: skald.FileInfo, cancelled: asyncio.Event) -> str:
        too_long = 0
        with open_text(file, info) as lines:
            for block, dropped in blocks(lines, SEARCHED_CHARS):
                if self._full or cancelled.is_set():
                    break
                too_long += dropped > 0
                self._take(block)
        if not self._matches:
            count = f"{self._number} line{'' if self._number == 1 else 's'}"
            self._out.append(f"{self._query[:100]!r} is not in {info.path} ({count}).")
        if self._full:
            self._out.append(f"[more after line {self._shown_to}; read_file from there, or search for something rarer]")
        if too_long:
            self._out.append(
                f"[of {too_long} very long line{'' if too_long == 1 else 's'} "
                f"only the first {SEARCHED_CHARS:,} characters were searched]"
            )
        return "\n".join(self._out)

    def _take(self, block: str) -> None:
        content = block.removesuffix("\n")
        if self._after or self._wanted in block.casefold():
            for line in content.split("\n"):
                self._line(line.removesuffix("\r"))
                if self._full:
                    return
            return
        last = content.rsplit("\n", self._context)[1:] if self._context else []
        self._number += content.count("\n") + 1
        for n, line in enumerate(last, self._number - len(last) + 1):
            self._before.append((n, cut(line.removesuffix("\r"))))

    def _line(self, line: str) -> None:
        self._number += 1
        at = line.casefold().find(self._wanted)
        if at >= 0:
            if self._matches >= MAX_MATCHES or self._chars > OUTPUT_CHARS:
                self._full = True
                return
            self._matches += 1
            leading = [f"{n} | {kept}" for n, kept in self._before if n > self._shown_to]
            if self._out and self._number - len(leading) > self._shown_to + 1:
                self._show("--")
            for shown in leading:
                self._show(shown)
            self._show(f"{self._number} > {_window(line, at)}")
            self._shown_to, self._after = self._number, self._context
        elif self._after:
            self._show(f"{self._number} | {cut(line)}")
            self._shown_to = self._number
            self._after -= 1
        self._before.append((self._number, cut(line)))

    def _show(self, text: str) -> None:
        self._out.append(text)
        self._chars += len(text) + 1


def cut(line: str) -> str:
    return shorten(line, len(line), LINE_LIMIT)


def _window(line: str, at: int) -> str:
    """A long line around the match; ``at`` may be off by a little where folding case changes lengths."""
    if len(line) <= LINE_LIMIT:
        return line
    start = max(0, min(at - LINE_LIMIT // 3, len(line) - LINE_LIMIT))
    end = start + LINE_LIMIT
    return (
        f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''} [a line of {len(line):,} characters]"
    )
