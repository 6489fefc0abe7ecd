"""grep_files and search_file."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from skald_tools_fs.patterns import compile_glob


async def test_grep_content(call: Any) -> None:
    """Matching lines come with path and number, in order of paths, any case unless told otherwise."""
    call.put("b/two.md", "nothing\nTODO: milk\n")
    call.put("a.txt", "todo first\r\nlast todo\r\n")
    call.put("node_modules/x.js", "todo hidden\n")
    call.put("pic.png", b"\x89PNG\r\n\x1a\n\0todo")
    assert await call("grep_files", path=".", pattern="todo") == (
        "a.txt:1: todo first\na.txt:2: last todo\nb/two.md:2: TODO: milk"
    )
    assert await call("grep_files", path="~", pattern=r"^TODO:\s", case_sensitive=True) == "b/two.md:2: TODO: milk"
    assert await call("grep_files", path="b", pattern="todo") == "b/two.md:2: TODO: milk"
    assert await call("grep_files", path="a.txt", pattern="todo$") == "a.txt:2: last todo"
    assert await call("grep_files", path="a.txt", pattern=r"\Alast") == "a.txt:2: last todo"
    assert await call("grep_files", path=".", pattern="zzz") == "No match in 3 files."


async def test_grep_modes_globs_and_pages(call: Any) -> None:
    """Files only, counts, globs on names and on paths, and paging with max_results and offset."""
    for name in ["a.md", "a.txt", "src/b.md", "src/deep/c.ts", "src/deep/d.tsx"]:
        call.put(name, "x\nx\n")
    ask = {"path": ".", "pattern": "x"}
    assert await call("grep_files", **ask, output_mode="count", include_glob="*.md") == "a.md: 2\nsrc/b.md: 2"
    assert await call("grep_files", **ask, output_mode="files_only", include_glob="src/**/*.{ts,tsx}") == (
        "src/deep/c.ts\nsrc/deep/d.tsx"
    )
    assert await call("grep_files", **ask, output_mode="files_only", max_results=2) == (
        "a.md\na.txt\n[more results: call again with offset=2]"
    )
    assert await call("grep_files", **ask, output_mode="files_only", max_results=2, offset=2) == (
        "src/b.md\nsrc/deep/c.ts\n[more results: call again with offset=4]"
    )
    assert await call("grep_files", **ask, output_mode="files_only", max_results=2, offset=4) == "src/deep/d.tsx"
    assert "only 5 results" in await call("grep_files", **ask, output_mode="files_only", offset=9)


async def test_grep_context(call: Any) -> None:
    """Context lines are marked with dashes, overlapping blocks are joined, others are set apart."""
    call.put("f", "".join(f"l{n}\n" for n in range(1, 21)))
    assert await call("grep_files", path="f", pattern="^l(3|5|12)$", context_lines=1) == (
        "f-2- l2\nf:3: l3\nf-4- l4\nf:5: l5\nf-6- l6\n--\nf-11- l11\nf:12: l12\nf-13- l13"
    )
    assert await call("grep_files", path="f", pattern="l20", context_lines=50) == "\n".join(
        [*(f"f-{n}- l{n}" for n in range(10, 20)), "f:20: l20"]
    )


async def test_grep_limits(call: Any) -> None:
    """Long lines, large files and large answers are cut, and the answer says so."""
    call.put("long", "a" * 3000 + "\n")
    assert await call("grep_files", path="long", pattern="a+") == f"long:1: {'a' * 500}…"
    call.put("large", "b\n" * 99_999 + "cc\n" * 5000 + "needle\n")
    text = await call("grep_files", path="large", pattern="needle")
    assert text == "No match in 1 file.\n[of 1 large files only the first 200 kB were searched]"
    call.put("wide", ("d" * 490 + "\n") * 500)
    text = await call("grep_files", path="wide", pattern="d", max_results=1000)
    assert 60_000 < len(text) < 62_000
    assert "[more results: call again with offset=" in text


async def test_grep_encodings(call: Any) -> None:
    """Files in other encodings are found like UTF-8 ones."""
    call.put("u16.txt", "città\n".encode("utf-16"))
    call.put("win.txt", "città\n".encode("cp1252"))
    assert await call("grep_files", path=".", pattern="CITTÀ") == "u16.txt:1: città\nwin.txt:1: città"


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(a*)*b", r"^(\w+\s?)*$", "(.*){1,30}x"])
async def test_catastrophic_patterns_finish(call: Any, pattern: str) -> None:
    """Patterns that make a backtracking engine run for ages end at once."""
    call.put("f", ("a" * 400 + "!\n") * 100)
    async with asyncio.timeout(60):  # a backtracking engine would need longer than the universe has
        await call("grep_files", path="f", pattern=pattern)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(?=x)", "Look-around"),
        (r"(a)\1", "Look-around and back-references"),
        ("a{5000}", "cannot be used"),
        ("((((a{100}){100}){100}){100})", "cannot be used"),
        ("", "pattern is empty"),
        ("x" * 2001, "2,001 characters"),
    ],
)
async def test_patterns_that_cannot_be_used(call: Any, pattern: str, words: str) -> None:
    """What RE2 leaves out is said, with what to do instead."""
    call.put("f", "x\n")
    assert words in await call.fails("grep_files", path=".", pattern=pattern)


async def test_a_plain_text_that_is_no_expression_is_searched_as_text(call: Any) -> None:
    """'foo(' is what somebody wants to find; the answer says how it was read."""
    call.put("f", "call foo(x)\nfoo\n")
    assert await call("grep_files", path=".", pattern="FOO(") == (
        "[not a regular expression; searched as plain text]\nf:1: call foo(x)"
    )


async def test_grep_errors(call: Any) -> None:
    """A missing path, a path outside and a glob that is none."""
    assert "does not exist" in await call.fails("grep_files", path="nope", pattern="x")
    assert "outside" in await call.fails("grep_files", path="/etc", pattern="x")
    assert "is not a glob" in await call.fails("grep_files", path=".", pattern="x", include_glob="a}")


@pytest.mark.parametrize(
    ("glob", "yes", "no"),
    [
        ("*.md", ["a.md", ".md"], ["a.mdx", "a.txt"]),
        ("*.{ts,tsx}", ["a.ts", "b.tsx"], ["a.t", "a.ts,tsx"]),
        ("src/*.py", ["src/a.py"], ["src/x/a.py", "a.py"]),
        ("src/**/*.py", ["src/a.py", "src/x/y/a.py"], ["a.py"]),
        ("**", ["a", "a/b"], []),
        ("[a-c]?.txt", ["b1.txt"], ["d1.txt", "b.txt"]),
        ("[!a]*", ["b"], ["a"]),
        ("a+b(c).t", ["a+b(c).t"], ["aab(c).t"]),
        ("[", ["["], ["x"]),
        ("a,b", ["a,b"], ["a", "b"]),
        ("./*.md", ["a.md"], []),
        ("ç*", ["ça"], ["ca"]),
    ],
)
def test_globs(glob: str, yes: list[str], no: list[str]) -> None:
    """The globs models write mean what people expect."""
    matcher = compile_glob(glob)
    assert all(matcher.fullmatch(name.encode()) for name in yes)
    assert not any(matcher.fullmatch(name.encode()) for name in no)


async def test_search_file(call: Any) -> None:
    """Matches are marked '>', context lines are numbered like read_file's; any case, also beyond ASCII."""
    call.put("f", "".join(f"line {n}\n" for n in range(1, 21)) + "Straße ÀÉ\n")
    assert await call("search_file", path="f", query="LINE 10", context_lines=1) == (
        "9 | line 9\n10 > line 10\n11 | line 11"
    )
    assert await call("search_file", path="f", query="line 1", context_lines=0) == "\n--\n".join(
        ["1 > line 1", "\n".join(f"{n} > line {n}" for n in range(10, 20))]
    )
    assert await call("search_file", path="f", query="strasse àé", context_lines=0) == "21 > Straße ÀÉ"
    assert await call("search_file", path="f", query="zzz") == "'zzz' is not in f (21 lines)."
    text = await call("search_file", path="f", query="line 2", context_lines=99)
    assert text.startswith("1 | line 1\n2 > line 2\n3 | line 3")
    assert "--" not in text


async def test_search_file_limits(call: Any) -> None:
    """At most 100 matches; a match far inside a long line is shown with its surroundings."""
    call.put("many", "x\n" * 500)
    text = await call("search_file", path="many", query="x", context_lines=0)
    assert text.count(" > ") == 100
    assert text.endswith("[more after line 100; read_file from there, or search for something rarer]")
    call.put("long", "a" * 10_000 + "NEEDLE" + "b" * 10_000)
    text = await call("search_file", path="long", query="needle")
    assert "NEEDLE" in text
    assert len(text) < 600
    assert "one line of text" in await call.fails("search_file", path="long", query="a\nb")
    assert "one line of text" in await call.fails("search_file", path="long", query="\n")
