"""write_file, edit_file, append_file: what is previewed is what is written."""

from __future__ import annotations

import errno
import itertools
import os
import stat
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skald_core import api as skald
from skald_tools_fs.writing import EditFileArguments, replace_once


async def test_write_says_created_or_overwrote(call: Any) -> None:
    """The result is truthful about what happened, and the content is exact."""
    assert await call("write_file", path="~/n/a.md", content="è\r\nb") == "Created n/a.md (5 bytes, 2 lines)."
    assert (call.home / "n/a.md").read_bytes() == b"\xc3\xa8\r\nb"
    assert await call("write_file", path="n/a.md", content="") == "Overwrote n/a.md (0 bytes, 0 lines)."
    assert (call.home / "n/a.md").read_bytes() == b""


async def test_write_previews(call: Any) -> None:
    """The card gets both texts, the canonical path, and what kind of change it is."""
    call.put("a.txt", "old\n")
    call.put("b.png", b"\x89PNG\r\n\x1a\n\0\0")
    assert await call.change("write_file", path="./new.txt", content="x") == skald.FileChange(
        "new.txt", None, "x", "create"
    )
    assert await call.change("write_file", path="/root/a.txt", content="x") == skald.FileChange(
        "a.txt", "old\n", "x", "overwrite"
    )
    over_binary = await call.change("write_file", path="b.png", content="x")
    assert over_binary.kind == "overwrite"
    assert "PNG image" in over_binary.before
    assert sorted(os.listdir(call.home)) == ["a.txt", "b.png"]


@pytest.mark.parametrize("name", ["write_file", "append_file"])
async def test_previews_fail_like_the_call_would(call: Any, name: str) -> None:
    """Nobody is asked about a call that cannot work."""
    call.put("file", "x")
    call.put("dir/x", "")
    call.put("locked", "x").chmod(0o444)
    (call.home / "link").symlink_to("file")
    for path in ["dir", "file/x", "link", "locked", "../x", "/etc/passwd", "a\0b", "x/", "y" * 300]:
        with pytest.raises(skald.ToolError) as preview:
            await call.change(name, path=path, content="x")
        assert str(preview.value) == await call.fails(name, path=path, content="x")
    assert "is a folder" in await call.fails(name, path="dir", content="x")


async def test_edit(call: Any) -> None:
    """One exact place is replaced; the rest, the mode and the folder stay as they were."""
    call.put("a.py", "def f():\n    return 1\n").chmod(0o755)
    text = await call("edit_file", path="a.py", old="    return 1\n", new="    x = 2\n    return x\n")
    assert text == "Edited a.py: 1 place, line 2, +1 lines."
    assert (call.home / "a.py").read_text() == "def f():\n    x = 2\n    return x\n"
    assert stat.S_IMODE((call.home / "a.py").stat().st_mode) == 0o755
    assert os.listdir(call.home) == ["a.py"]


async def test_edit_is_literal(call: Any) -> None:
    """Neither text is a pattern or a template."""
    call.put("a", r"cost: $1 \1 {x} .*")
    await call("edit_file", path="a", old=r"$1 \1 {x} .*", new=r"\g<0> $& {y}")
    assert (call.home / "a").read_text() == r"cost: \g<0> $& {y}"


async def test_edit_needs_one_place(call: Any) -> None:
    """Several matches are an error that names the lines, unless all are meant."""
    call.put("a", "x\ny\nx\nx\n")
    text = await call.fails("edit_file", path="a", old="x", new="z")
    assert "3 times (lines 1, 3, 4)" in text
    assert (call.home / "a").read_text() == "x\ny\nx\nx\n"
    assert (
        await call("edit_file", path="a", old="x\n", new="", replace_all=True)
        == "Edited a: 3 places, first line 1, -3 lines."
    )
    assert (call.home / "a").read_text() == "y\n"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("nope", "x", "was not found in 'a'. Read the file"),
        ("RETURN  1", "x", "was not found"),
        ("Return 1", "x", "Line 2 looks like it: 'return 1'"),
        ("", "x", "old is empty"),
        ("return 1", "return 1", "the same"),
    ],
)
async def test_edit_that_cannot_work_says_why(call: Any, old: str, new: str, words: str) -> None:
    """Each refusal helps the model with its next try, in the preview and in the call."""
    call.put("a", "def f():\n    return 1\n")
    assert words in await call.fails("edit_file", path="a", old=old, new=new)
    with pytest.raises(skald.ToolError, match=words.split("'")[0][:15]):
        await call.change("edit_file", path="a", old=old, new=new)


@pytest.mark.parametrize("bad", ["missing", "dir", "bin", "link", "locked"])
async def test_edit_refuses_what_is_no_text_file(call: Any, bad: str) -> None:
    """A missing file, a folder, a binary file, a link and a write-protected file stay untouched."""
    call.put("dir/x", "")
    call.put("bin", b"\0old\0")
    call.put("target", "old")
    call.put("locked", "old").chmod(0o444)
    (call.home / "link").symlink_to("target")
    await call.fails("edit_file", path=bad, old="old", new="new")
    assert (call.home / "bin").read_bytes() == b"\0old\0"
    assert (call.home / "target").read_text() == (call.home / "locked").read_text() == "old"


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", b"x\r\ny\r\nz\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "b", "1\n2", b"a\r\n1\r\n2\r\nc\r\n"),
        (b"a\r\nb\r\n", "a\r\nb", "x\r\ny", b"x\r\ny\r\n"),
        (b"a\nb\n", "a\nb", "x\r\ny", b"x\r\ny\n"),
        (b"a\r\nb\r\nc\nd\n", "c\nd", "x\ny", b"a\r\nb\r\nx\ny\n"),
        (b"\xef\xbb\xbfa\n", "a", "\xe8", b"\xef\xbb\xbf\xc3\xa8\n"),
        ("a\r\nb\r\n".encode("utf-16"), "a\nb", "x\ny", "x\r\ny\r\n".encode("utf-16")),
        ("perch\xe9 x\n".encode("cp1252"), "x", "\xe0", "perch\xe9 \xe0\n".encode("cp1252")),
        (b"no end", "end", "END", b"no END"),
    ],
)
async def test_edit_keeps_encoding_and_line_ends(call: Any, before: bytes, old: str, new: str, after: bytes) -> None:
    """A model writes line feeds; the file keeps its own line ends, mark and encoding."""
    call.put("a", before)
    await call("edit_file", path="a", old=old, new=new)
    assert (call.home / "a").read_bytes() == after


async def test_edit_that_the_encoding_cannot_hold_is_refused(call: Any) -> None:
    """A character that would be lost is an error, in the preview already."""
    data = "perch\xe9\n".encode("cp1252")
    call.put("a", data)
    assert "cannot hold '世'" in await call.fails("edit_file", path="a", old="perch", new="世")
    with pytest.raises(skald.FilesError, match="cannot hold"):
        await call.change("edit_file", path="a", old="perch", new="世")
    assert (call.home / "a").read_bytes() == data


async def test_edit_accepts_copied_line_numbers(call: Any) -> None:
    """Small models copy 'N | ' from read_file into old and new; that is understood when nothing else fits."""
    call.put("a", "one\ntwo\nthree\n")
    await call("edit_file", path="a", old="2 | two\n3 | three\n", new="2 | TWO\n3 | THREE\n")
    assert (call.home / "a").read_text() == "one\nTWO\nTHREE\n"
    call.put("b", "1 | literal\n")
    await call("edit_file", path="b", old="1 | literal", new="2 | literal")
    assert (call.home / "b").read_text() == "2 | literal\n"


def text_file(text: str) -> skald.TextFile:
    info = skald.FileInfo(path="f", name="f", kind="file")
    return skald.TextFile(info=info, text=text, encoding="utf-8", newline="\n", version=skald.ABSENT)


alphabet = st.text("ab\n |1", max_size=12)


@given(alphabet, alphabet, alphabet, alphabet)
def test_an_edit_is_exactly_one_replacement(head: str, old: str, tail: str, new: str) -> None:
    """Where the old text is there once, the result differs in that place alone; else it is refused."""
    content = head + old + tail
    starts = [n for n in range(len(content)) if old and content.startswith(old, n)]
    overlapping = any(b - a < len(old) for a, b in itertools.pairwise(starts))
    try:
        done = replace_once(text_file(content), EditFileArguments("f", old, new))
    except skald.ToolError:
        assert not old or old == new or len(starts) > 1
        return
    assert len(starts) == 1 or overlapping
    assert done.text == content[: starts[0]] + new + content[starts[0] + len(old) :]


@pytest.mark.parametrize(
    ("before", "content", "after", "text"),
    [
        (None, "a\nb", "a\nb\n", "Created log: 2 lines, 4 bytes now."),
        ("x", "a", "x\na\n", "Added to log: 1 line, 4 bytes now."),
        ("x\n", "a\n", "x\na\n", "Added to log: 1 line, 4 bytes now."),
        ("x\r\n", "a", "x\r\na\r\n", "Added to log: 1 line, 6 bytes now."),
    ],
)
async def test_append(call: Any, before: str | None, content: str, after: str, text: str) -> None:
    """Whole lines are added, with the file's own line ends; the preview shows the same addition."""
    if before is not None:
        call.put("log", before)
    change = await call.change("append_file", path="log", content=content)
    assert await call("append_file", path="log", content=content) == text
    assert (call.home / "log").read_bytes() == after.encode()
    assert change.kind == ("create" if before is None else "append")
    assert change.after == after.replace("\r\n", "\n")


async def test_append_preview_of_a_long_file_is_short(call: Any) -> None:
    """The card of a line added to a huge log does not carry the log."""
    call.put("log", "".join(f"line {n}\n" for n in range(200_000)))
    change = await call.change("append_file", path="log", content="new")
    assert len(change.before) <= 4200
    assert change.before.startswith("line ")
    assert change.after == change.before + "new\n"


async def run_after_preview(call: Any, name: str, raw: dict[str, Any], between: Any) -> str:
    tool, ctx = call.tools[name], call.context()
    arguments = tool.validate(raw)
    await tool.preview(arguments, ctx)
    between()
    return str(await tool.run(arguments, ctx))


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("edit_file", {"path": "a", "old": "one", "new": "1"}),
        ("write_file", {"path": "a", "content": "whole"}),
    ],
)
async def test_what_changed_after_approval_is_not_written(call: Any, name: str, raw: dict[str, Any]) -> None:
    """The approved diff is what is written, or nothing: drift between card and run is an error for the model."""
    call.put("a", "one\ntwo\n")
    with pytest.raises(skald.ToolError, match="was changed"):
        await run_after_preview(call, name, raw, lambda: call.put("a", "one\nSOMEBODY ELSE\n"))
    assert (call.home / "a").read_text() == "one\nSOMEBODY ELSE\n"
    # The next, unapproved-here call starts afresh: the note was for that one call.
    assert await call(name, **raw)


async def test_a_file_that_appeared_or_vanished_after_approval(call: Any) -> None:
    """'Create' does not overwrite what appeared meanwhile; 'overwrite' does not bring back what was deleted."""
    raw = {"path": "a", "content": "mine"}
    with pytest.raises(skald.ToolError, match="created meanwhile"):
        await run_after_preview(call, "write_file", raw, lambda: call.put("a", "theirs"))
    assert (call.home / "a").read_text() == "theirs"
    with pytest.raises(skald.ToolError, match="changed meanwhile"):
        await run_after_preview(call, "write_file", raw, (call.home / "a").unlink)
    assert not (call.home / "a").exists()


async def test_an_approved_append_to_a_growing_log_works(call: Any) -> None:
    """What was approved are the lines, so lines others added in between are no obstacle."""
    call.put("log", "one\n")
    await run_after_preview(
        call, "append_file", {"path": "log", "content": "mine"}, lambda: call.put("log", "one\ntwo\n")
    )
    assert (call.home / "log").read_text() == "one\ntwo\nmine\n"


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("write_file", {"path": "a", "content": "new"}),
        ("write_file", {"path": "d/b", "content": "new"}),
        ("edit_file", {"path": "a", "old": "precious", "new": "new"}),
        ("append_file", {"path": "a", "content": "new"}),
    ],
)
async def test_a_full_disk_loses_nothing(
    call: Any, name: str, raw: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each writer ends in one sentence that says what to do, and the old content is there."""
    call.put("a", "precious\n")
    real = os.write
    calls = iter(range(1000))

    def write(fd: int, data: bytes) -> int:
        if next(calls) == 0:
            return real(fd, data[:1])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", write)
    text = await call.fails(name, **raw)
    assert "disk is full" in text
    assert "Free some space" in text
    assert (call.home / "a").read_text() == "precious\n"
    assert os.listdir(call.home) == ["a"]
