"""read_file and list_files."""

from __future__ import annotations

import asyncio
import os
import tracemalloc
from typing import Any

import pytest

from skald_core import api as skald

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + b"\0" * 100


async def test_lines_are_numbered(call: Any) -> None:
    """Each line is 'N | text'; a file read to its end has no note."""
    call.put("a.txt", "one\ntwo\n\nfour")
    assert await call("read_file", path="a.txt") == "1 | one\n2 | two\n3 | \n4 | four"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"start_line": 3, "end_line": 4}, "3 | l3\n4 | l4\n[lines 3–4 of 10; read on with start_line=5]"),
        ({"start_line": 9}, "9 | l9\n10 | l10"),
        ({"limit": 2}, "1 | l1\n2 | l2\n[lines 1–2 of 10; read on with start_line=3]"),
        ({"start_line": 0, "end_line": 1}, "1 | l1\n[lines 1–1 of 10; read on with start_line=2]"),
        ({"start_line": 9, "end_line": 99}, "9 | l9\n10 | l10"),
        ({"start_line": 9, "end_line": -1}, "9 | l9\n10 | l10"),
        ({"start_line": 11}, "a.txt has 10 lines; there is no line 11."),
        ({"start_line": 10**12}, "a.txt has 10 lines; there is no line 1000000000000."),
    ],
)
async def test_ranges(call: Any, arguments: dict[str, Any], expected: str) -> None:
    """Ranges are inclusive, forgiving at the edges, and say how to read on."""
    call.put("a.txt", "".join(f"l{n}\n" for n in range(1, 11)))
    assert await call("read_file", path="a.txt", **arguments) == expected


async def test_a_range_that_ends_before_it_starts_is_refused(call: Any) -> None:
    """Guessing would show the wrong lines."""
    call.put("a.txt", "x\n")
    assert "end_line 2 is before start_line 5" in await call.fails("read_file", path="a.txt", start_line=5, end_line=2)


async def test_only_line_feeds_end_lines(call: Any) -> None:
    """Line numbers agree with editors: form feeds, U+2028 and lone carriage returns do not end a line."""
    call.put("a.txt", "a\x0cb\u2028c\rd\r\ne\n")
    assert await call("read_file", path="a.txt") == "1 | a\x0cb\u2028c\rd\n2 | e"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "cp1252"])
async def test_encodings(call: Any, encoding: str) -> None:
    """Text in the encodings people have on their disks is read without a mark in the first line."""
    call.put("a.txt", "perché\nsì\n".encode(encoding))
    assert await call("read_file", path="a.txt") == "1 | perché\n2 | sì"


async def test_empty_missing_and_folder(call: Any) -> None:
    """Each says what it is and what to do."""
    call.put("empty", "")
    call.put("dir/x", "")
    assert await call("read_file", path="empty") == "empty is empty."
    assert "does not exist" in await call.fails("read_file", path="nope")
    assert "Did you mean 'empty'" in await call.fails("read_file", path="emty")
    assert "is a folder" in await call.fails("read_file", path="dir")
    assert "outside your files" in await call.fails("read_file", path="/etc/passwd")
    assert "leads out" in await call.fails("read_file", path="../../etc/passwd")


async def test_long_lines_and_long_files_are_cut(call: Any) -> None:
    """At most 2,000 lines, 2,000 characters of a line and about 60,000 characters at once, each with a note."""
    call.put("long-line", "x" * 5000 + "\nend\n")
    assert await call("read_file", path="long-line") == f"1 | {'x' * 2000}… [5,000 characters in this line]\n2 | end"
    call.put("many", "y\n" * 5000)
    text = await call("read_file", path="many", limit=999_999)
    assert text.endswith("\n2000 | y\n[lines 1–2000 of 5000; read on with start_line=2001]")
    call.put("wide", ("z" * 1000 + "\n") * 200)
    text = await call("read_file", path="wide")
    assert 60_000 <= len(text) < 62_000
    assert text.endswith("of 200; read on with start_line=61]")


async def test_a_100_mb_file_is_read_with_little_memory(call: Any) -> None:
    """A file far larger than any model's context costs neither its size in memory nor an error."""
    block = "".join(f"line {n}: {'x' * 90}\n" for n in range(10_000)).encode()
    path = call.put("big.log", b"")
    with path.open("wb") as file:
        while file.tell() < 100_000_000:
            file.write(block)
    tracemalloc.start()
    try:
        text = await call("read_file", path="big.log", start_line=30_001, limit=1)
        found = await call("search_file", path="big.log", query="LINE 9999:", context_lines=0)
        missing = await call("search_file", path="big.log", query="zzz")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        path.unlink()
    assert text.startswith("30001 | line 0: xxx")
    assert "read on with start_line=30002" in text
    assert found.count(" > line 9999:") == found.count("\n--\n") + 1 >= 90
    assert missing.startswith("'zzz' is not in big.log (")
    assert peak < 20_000_000


async def test_one_enormous_line(call: Any) -> None:
    """A 30 MB file without a line end is shown by its beginning, and a search says how far it looked."""
    call.put("min.js", b"a" * 30_000_000)
    assert await call("read_file", path="min.js") == f"1 | {'a' * 2000}… [30,000,000 characters in this line]"
    text = await call("search_file", path="min.js", query="needle")
    assert "is not in min.js" in text
    assert "only the first 1,000,000 characters were searched" in text


async def test_pictures_are_attached(call: Any) -> None:
    """The type comes from the bytes, whatever the name claims; the path is the agent's."""
    call.put("pics/photo.txt", PNG)
    output = await call.output("read_file", path="~/pics/photo.txt")
    assert output.media == (skald.Attachment("pics/photo.txt", "photo.txt", "image/png", len(PNG)),)
    assert "PNG image" in output.text
    call.put("paper", b"%PDF-1.7\n")
    assert (await call.output("read_file", path="paper")).media[0].media_type == "application/pdf"
    call.put("huge.png", PNG + b"\0" * 5_000_000)
    assert "too large to look at" in await call.fails("read_file", path="huge.png")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"SQLite format 3\0" + b"\0" * 84, "'f' is not text (SQLite database, 100 bytes)"),
        (b"\x7fELF\x02\x01\x01\0", "Linux program"),
        (b"\0\x01\x02", "unknown kind"),
        (b"PK\x03\x04xx", "ZIP archive"),
    ],
)
async def test_binary_files_are_named(call: Any, data: bytes, words: str) -> None:
    """A binary file is refused with its kind, its size and what to do."""
    call.put("f", data)
    text = await call.fails("read_file", path="f")
    assert words in text
    assert "Choose a text file" in text
    assert "not text" in await call.fails("search_file", path="f", query="x")
    assert "not text" in await call.fails("grep_files", path="f", pattern="x")


async def test_a_pipe_does_not_hang(call: Any) -> None:
    """A named pipe in the home is refused at once."""
    os.mkfifo(call.home / "pipe")
    async with asyncio.timeout(20):
        assert "pipe" in await call.fails("read_file", path="pipe")
        assert await call("grep_files", path=".", pattern="x") == "No match in 0 files."


async def test_list(call: Any) -> None:
    """Paths can be passed on as they are; folders end in a slash; three levels unless told otherwise."""
    for name in ["b/c/d/e.txt", "a.txt", "node_modules/m/i.js", "b/1.txt"]:
        call.put(name, "x\n")
    assert await call.json("list_files") == {
        "path": "~",
        "entries": ["a.txt", "b/", "b/1.txt", "b/c/", "b/c/d/", "node_modules/"],
    }
    assert (await call.json("list_files", path="./b", depth=1))["entries"] == ["b/1.txt", "b/c/"]
    assert (await call.json("list_files", path="b", depth=99))["entries"][-1] == "b/c/d/e.txt"
    assert (await call.json("list_files", dirs_only=True))["entries"] == ["b/", "b/c/", "b/c/d/", "node_modules/"]
    assert (await call.json("list_files", path="b/"))["path"] == "b"


async def test_list_with_metadata(call: Any) -> None:
    """Sizes, times in UTC and line counts of text; no count for binary files."""
    os.utime(call.put("a.txt", "1\n2\n3"), (1_700_000_000, 1_700_000_000))
    os.utime(call.put("b.bin", b"\0" * 10), (1_700_000_000, 1_700_000_000))
    (call.home / "l").symlink_to("a.txt")
    entries = (await call.json("list_files", with_metadata=True))["entries"]
    assert entries[:2] == [
        {"path": "a.txt", "size": 5, "lines": 3, "modified": "2023-11-14T22:13Z"},
        {"path": "b.bin", "size": 10, "modified": "2023-11-14T22:13Z"},
    ]
    assert (entries[2]["path"], entries[2]["type"]) == ("l", "link")


async def test_list_errors_and_limits(call: Any) -> None:
    """A file or nothing at the path is an error; a crowd deep down does not hide the folders beside it."""
    for n in range(1100):
        call.put(f"a/many/{n:04}", "")
    call.put("z/last.txt", "")
    answer = await call.json("list_files")
    assert len(answer["entries"]) == 1000
    assert "only the first 1000" in answer["note"]
    assert {"a/", "z/", "z/last.txt"} <= set(answer["entries"])
    assert "is a file, not a folder" in await call.fails("list_files", path="z/last.txt")
    assert "does not exist" in await call.fails("list_files", path="nope")


async def test_stopping_ends_the_work(call: Any, cancelled: asyncio.Event) -> None:
    """A stopped call's thread does not go on through the whole tree."""
    for n in range(20):
        call.put(f"d{n}/f.txt", "x")
    ctx = call.context(cancelled=cancelled)
    grep, listing = call.tools["grep_files"], call.tools["list_files"]
    assert await grep.run(grep.validate({"path": ".", "pattern": "x"}), ctx) == "No match in 0 files."
    assert '"entries":[]' in (await listing.run(listing.validate({}), ctx)).text
