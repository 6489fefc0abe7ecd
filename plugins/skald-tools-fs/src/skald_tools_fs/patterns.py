"""Regular expressions and globs that cannot hang: both run on RE2, which is linear in the text.

RE2: https://github.com/google/re2/wiki/WhyRE2
"""

from __future__ import annotations

from typing import Protocol

from skald_core import api as skald

__all__ = ("Matcher", "compile_glob", "compile_pattern")

MAX_PATTERN = 2000


class Matcher(Protocol):
    """A compiled RE2 expression; texts are UTF-8 bytes."""

    def search(self, text: bytes) -> object | None: ...
    def fullmatch(self, text: bytes) -> object | None: ...


def _compile(pattern: str, *, case_sensitive: bool = True, literal: bool = False) -> Matcher:
    """Raises ``re2.error``."""
    import re2  # type: ignore[import-untyped]  # ships no types; a C++ library, loaded by the first search

    options = re2.Options()
    options.case_sensitive = case_sensitive
    options.literal = literal
    options.log_errors = False
    matcher: Matcher = re2.compile(pattern, options)
    re2.purge()  # its cache would keep up to 8 MiB for each of 128 patterns
    return matcher


def compile_pattern(pattern: str, *, case_sensitive: bool) -> tuple[Matcher, bool]:
    """The matcher of a model's pattern, and whether it had to be taken as plain text.

    ``foo(`` is no regular expression but clearly a text to look for; ``(?=x)`` is one that RE2 leaves out on purpose.
    """
    import re2

    if not pattern:
        raise skald.ToolError("pattern is empty. To see which files there are, use list_files.")
    if len(pattern) > MAX_PATTERN:
        raise skald.ToolError(f"pattern has {len(pattern):,} characters; at most {MAX_PATTERN:,} are possible.")
    try:
        return _compile(f"(?m){pattern}", case_sensitive=case_sensitive), False
    except re2.error as error:
        problem = error.args[0] if error.args else "it cannot be parsed"
        if isinstance(problem, bytes):
            problem = problem.decode("utf-8", "replace")
        problem = problem.replace("(?m)", "", 1)
        backreference = any(f"\\{n}" in pattern for n in range(1, 10))
        if "(?" in pattern or backreference or "large" in problem or "repetition size" in problem:
            raise skald.ToolError(
                f"pattern {pattern[:200]!r} cannot be used ({problem}). "
                "Look-around and back-references do not exist here; use a simpler expression."
            ) from None
    return _compile(pattern, case_sensitive=case_sensitive, literal=True), True


def _glob_body(glob: str) -> str:
    out: list[str] = []
    depth = at = 0
    while at < len(glob):
        char = glob[at]
        if glob.startswith("**/", at):
            out.append("(?:.*/)?")
            at += 3
            continue
        if glob.startswith("**", at):
            out.append(".*")
            at += 2
            continue
        if char == "[" and (end := glob.find("]", at + 2)) > 0:
            inner = glob[at + 1 : end].replace("\\", r"\\").replace("[", r"\[")
            out.append(f"[^{inner[1:]}]" if inner[0] in "!^" else f"[{inner}]")
            at = end + 1
            continue
        if char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
        out.append(
            {"*": "[^/]*", "?": "[^/]", "{": "(?:", "}": ")"}.get(char)
            or ("|" if char == "," and depth > 0 else char if char.isalnum() or char in "/_-" else f"\\{char}")
        )
        at += 1
    return "".join(out)


def compile_glob(glob: str) -> Matcher:
    """A matcher for ``*.md``, ``src/**/*.{ts,tsx}``, ``[a-c]?.txt``; without a ``/`` it applies to names alone."""
    import re2

    try:
        return _compile(_glob_body(glob.removeprefix("./")))
    except re2.error:
        raise skald.ToolError(f"include_glob {glob[:200]!r} is not a glob. Write something like '*.md'.") from None
