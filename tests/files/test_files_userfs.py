"""UserFs on a real disk: reading, writing, listing, and what each refusal says."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from skald_core.files.userfs import ABSENT, FilesError, FileVersion, Mount, UserFs


async def test_home_is_created_private_on_first_use(tmp_path: Path) -> None:
    """Nobody else on the machine may look into a home, however the server's umask is set."""
    home = tmp_path / "data" / "home" / "u1"
    before = os.umask(0)
    try:
        assert await UserFs(home).list() == []
    finally:
        os.umask(before)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


async def test_write_creates_folders_and_says_created(fs: UserFs, home: Path) -> None:
    """The first write creates the file and its folders, the second replaces it; both report truthfully."""
    first = await fs.write_text("~/notes/2026/a.md", "one\n")
    second = await fs.write_bytes("notes/2026/a.md", b"second\n")
    assert (first.path, first.created, first.size) == ("notes/2026/a.md", True, 4)
    assert (second.path, second.created, second.size) == ("notes/2026/a.md", False, 7)
    assert (home / "notes/2026/a.md").read_bytes() == b"second\n"
    assert sorted(p.name for p in (home / "notes/2026").iterdir()) == ["a.md"]


async def test_replacing_keeps_the_mode(fs: UserFs, home: Path) -> None:
    """A script stays executable, and a private file stays private."""
    script = home / "run.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o710)
    await fs.write_text("run.sh", "#!/bin/sh\necho\n")
    assert stat.S_IMODE(script.stat().st_mode) == 0o710


async def test_write_protected_file_is_refused(fs: UserFs, home: Path, refused: Any) -> None:
    """A rename could replace a write-protected file; that would get around what its owner asked for."""
    path = home / "keep.txt"
    path.write_text("keep")
    path.chmod(0o444)
    assert (await refused(fs.write_text("keep.txt", "gone"))).code == "no_access"
    assert (await refused(fs.append_text("keep.txt", "gone"))).code == "no_access"
    assert path.read_text() == "keep"


@pytest.mark.parametrize("path", ["", "~", "/root", "folder", "folder/"])
async def test_a_folder_is_not_a_file(fs: UserFs, home: Path, refused: Any, path: str) -> None:
    """Reading, writing and appending to a folder say that it is one."""
    (home / "folder").mkdir()
    assert (await refused(fs.read_text(path))).code == "is_folder"
    assert (await refused(fs.write_text(path, "x"))).code == "is_folder"
    assert (await refused(fs.append_text(path, "x"))).code == "is_folder"


async def test_write_to_a_new_name_with_a_slash_is_refused(fs: UserFs, home: Path, refused: Any) -> None:
    """'plans/' means a folder; a file called plans would surprise."""
    assert (await refused(fs.write_text("plans/", "x"))).code == "is_folder"
    assert list(home.iterdir()) == []


async def test_a_file_is_not_a_folder(fs: UserFs, home: Path, refused: Any) -> None:
    """A path through a file, and a list of a file, say so."""
    (home / "file").write_text("x")
    assert (await refused(fs.read_text("file/x"))).code == "not_a_folder"
    assert (await refused(fs.write_text("file/x", ""))).code == "not_a_folder"
    assert (await refused(fs.list("file"))).code == "not_a_folder"


async def test_missing_file_names_what_is_close(fs: UserFs, home: Path, refused: Any) -> None:
    """A wrong case, an accent stored apart, or a typo is answered with the real name."""
    (home / "notes").mkdir()
    (home / "notes" / "Todo.md").write_text("x")
    (home / "perche\u0301.txt").write_text("x")  # decomposed, as some systems unpack it
    assert "'notes/Todo.md'" in (await refused(fs.read_text("notes/todo.md"))).remedy
    assert "'notes/Todo.md'" in (await refused(fs.stat("notes/Tdo.md"))).remedy
    assert "perche\u0301.txt" in (await refused(fs.read_text("perch\u00e9.txt"))).remedy
    assert "'notes'" in (await refused(fs.read_text("note/todo.md"))).remedy
    assert (await refused(fs.read_text("zzz"))).remedy.startswith("List")
    assert await fs.find("zzz") is None
    assert await fs.find("nowhere/zzz") is None


async def test_special_files_are_refused_without_waiting(fs: UserFs, home: Path, refused: Any) -> None:
    """A pipe nobody writes to, a socket and a device are refused at once, for reading and for writing."""
    os.mkfifo(home / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(home, os.O_RDONLY)
        try:
            listener.bind(f"/proc/self/fd/{here}/sock")  # a short name: socket paths may have 107 bytes
        finally:
            os.close(here)
        names = ["pipe", "sock"]
        if os.geteuid() == 0:
            os.mknod(home / "zero", 0o600 | stat.S_IFCHR, os.makedev(1, 5))
            names.append("zero")
        for name in names:
            async with asyncio.timeout(20):  # far beyond any real duration: only a hang ends here
                assert (await refused(fs.read_text(name))).code == "special_file"
                assert (await refused(fs.write_text(name, "x"))).code == "special_file"
                assert (await refused(fs.append_text(name, "x"))).code == "special_file"
            assert (await fs.stat(name)).kind == "other"


async def test_optimistic_write(fs: UserFs, home: Path, refused: Any) -> None:
    """A write that expects a version fails when the file changed, vanished or appeared, and touches nothing."""
    path = home / "a.txt"
    path.write_text("one")
    seen = (await fs.load_text("a.txt")).version
    assert seen == await fs.version("a.txt")
    await fs.write_text("a.txt", "two", expect=seen)
    assert (await refused(fs.write_text("a.txt", "three", expect=seen))).code == "changed"
    assert (await refused(fs.append_text("a.txt", "three", expect=seen))).code == "changed"
    assert path.read_text() == "two"
    assert (await refused(fs.write_text("a.txt", "new", expect=ABSENT))).code == "changed"
    path.unlink()
    assert await fs.version("a.txt") == ABSENT
    assert await fs.version("no/such/folder.txt") == ABSENT
    assert (await refused(fs.write_text("a.txt", "three", expect=seen))).code == "changed"
    assert not path.exists()
    await fs.write_text("a.txt", "new", expect=ABSENT)
    assert path.read_text() == "new"


async def test_a_refused_write_leaves_no_folder_behind(fs: UserFs, home: Path, refused: Any) -> None:
    """Folders made for a write that then fails are taken away again; those that were there stay."""
    (home / "old").mkdir()
    await refused(fs.write_text("old/new/deep/a.txt", "x", expect=FileVersion("sha256:0")))
    await refused(fs.append_text("old/new/deep/a.txt", "x", expect=FileVersion("sha256:0")))
    assert list((home / "old").iterdir()) == []


@pytest.mark.parametrize("links", [True, False])
async def test_a_new_file_never_replaces_one_that_just_appeared(
    fs: UserFs, home: Path, refused: Any, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """Between the last check and the rename another program makes the file: it wins. A disk without links still works."""
    real = os.link

    def link(source: str, target: str, **options: Any) -> None:
        if not links:
            raise PermissionError(errno.EPERM, "no hard links here")
        (home / target).write_text("theirs")
        real(source, target, **options)

    monkeypatch.setattr(os, "link", link)
    if links:
        assert (await refused(fs.write_text("a.txt", "mine", expect=ABSENT))).code == "exists"
    else:
        assert (await fs.write_text("a.txt", "mine", expect=ABSENT)).created
    assert os.listdir(home) == ["a.txt"]
    assert (home / "a.txt").read_text() == ("theirs" if links else "mine")


async def test_concurrent_optimistic_writes_have_one_winner(fs: UserFs) -> None:
    """Of ten writes based on one version exactly one is stored; the others are told."""
    await fs.write_text("a.txt", "start")
    seen = await fs.version("a.txt")
    done = await asyncio.gather(
        *(fs.write_text("a.txt", f"writer {n}", expect=seen) for n in range(10)), return_exceptions=True
    )
    winners = [n for n, result in enumerate(done) if not isinstance(result, BaseException)]
    assert len(winners) == 1
    assert all(isinstance(r, FilesError) and r.code == "changed" for n, r in enumerate(done) if n not in winners)
    assert await fs.read_text("a.txt") == f"writer {winners[0]}"


async def test_concurrent_appends_keep_every_line(fs: UserFs) -> None:
    """Appends wait for each other: no line is lost or torn."""
    await asyncio.gather(*(fs.append_text("log.txt", f"line {n}") for n in range(50)))
    assert sorted((await fs.read_text("log.txt")).splitlines()) == sorted(f"line {n}" for n in range(50))


@pytest.mark.parametrize(
    ("before", "text", "after"),
    [
        (None, "a", b"a\n"),
        (b"", "a\n", b"a\n"),
        (b"x\n", "a", b"x\na\n"),
        (b"x", "a\nb", b"x\na\nb\n"),
        (b"x\r\ny\r\n", "a\nb", b"x\r\ny\r\na\r\nb\r\n"),
        (b"x\r\ny", "a\r\nb", b"x\r\ny\r\na\r\nb\r\n"),
        (b"\xef\xbb\xbfx\n", "\u00e8", b"\xef\xbb\xbfx\n\xc3\xa8\n"),
        ("x\n".encode("utf-16"), "\u00e8", "x\n\u00e8\n".encode("utf-16")),
        ("x".encode("utf-16"), "y", "x\ny\n".encode("utf-16")),
        ("perch\u00e9\n".encode("cp1252"), "\u00e8", "perch\u00e9\n\u00e8\n".encode("cp1252")),
    ],
)
async def test_append_follows_the_file(fs: UserFs, home: Path, before: bytes | None, text: str, after: bytes) -> None:
    """Whole lines are added in the file's own encoding and with its own line ends."""
    path = home / "f.txt"
    if before is not None:
        path.write_bytes(before)
    written = await fs.append_text("f.txt", text)
    assert path.read_bytes() == after
    assert written.created == (before is None)
    assert written.size == len(after)
    assert written.added == len(after) - len(before or b"")


async def test_append_refuses_what_it_would_spoil(fs: UserFs, home: Path, refused: Any) -> None:
    """A binary file, and a character the file's encoding cannot hold, change nothing."""
    (home / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    (home / "old.txt").write_bytes("perch\u00e9\n".encode("cp1252"))
    assert (await refused(fs.append_text("a.png", "x"))).code == "binary"
    assert (await refused(fs.append_text("old.txt", "\u4e16"))).code == "encoding"
    assert (home / "a.png").stat().st_size == 10
    assert (home / "old.txt").read_bytes() == "perch\u00e9\n".encode("cp1252")


async def test_large_files_are_bounded(fs: UserFs, home: Path, refused: Any) -> None:
    """A 100 MB file (sparse, so that the test is quick) is refused whole and can be read in part."""
    with (home / "big.txt").open("wb") as file:
        file.write(b"first line\n" + b"x" * 10_000)
        file.truncate(100_000_000)
    error = await refused(fs.read_text("big.txt"))
    assert error.code == "too_large"
    assert "100 MB" in str(error)
    assert (await refused(fs.read_bytes("big.txt", limit=10))).code == "too_large"
    assert await fs.with_file("big.txt", lambda file, _: file.readline()) == b"first line\n"
    (home / "exact").write_bytes(b"x" * 10)
    assert await fs.read_bytes("exact", limit=10) == b"x" * 10


async def test_hard_names_work(fs: UserFs, home: Path) -> None:
    """Names with blanks, quotes, dashes, emoji, 255 bytes and depth are ordinary names."""
    deep = "/".join(["d"] * 40)
    for name in ["-rf", "a b", "'q\" .txt", "🎉.md", "~tmp", "x" * 255, "%00", "$HOME", "*.py", f"{deep}/f", " x "]:
        await fs.write_text(name, name)
        assert await fs.read_text(name) == name
        assert (home / name).read_text() == name


async def test_list_and_walk(fs: UserFs, home: Path) -> None:
    """Entries come by name, each folder before its content; skipped folders are shown but not entered."""
    for name in ["b/2.txt", "b/1.txt", "a.txt", "node_modules/x/y.js", "c/d/e/f.txt"]:
        await fs.write_text(name, "hi")
    (home / ".skald-0011.tmp").write_text("left by a killed write")
    assert [(i.path, i.kind, i.size) for i in await fs.list()] == [
        ("a.txt", "file", 2),
        ("b", "dir", 0),
        ("c", "dir", 0),
        ("node_modules", "dir", 0),
    ]
    assert [i.path for i in await fs.list("b")] == ["b/1.txt", "b/2.txt"]
    skip = frozenset({"node_modules"})
    walked = ["a.txt", "b", "b/1.txt", "b/2.txt", "c", "c/d", "c/d/e", "c/d/e/f.txt", "node_modules"]
    assert [i.path for i in await fs.walk(skip=skip)] == walked
    assert [i.path for i in await fs.walk(limit=3)] == walked[:3]
    assert [i.path for i in await fs.walk("c", depth=2)] == ["c/d", "c/d/e"]
    info = await fs.stat("a.txt")
    assert info.modified == (home / "a.txt").stat().st_mtime


async def test_names_no_agent_could_type_are_shown_cleaned(fs: UserFs, home: Path) -> None:
    """A newline or bytes that are no text in a name cannot forge a second entry or break an answer."""
    (home / "evil\nname.txt").write_text("x")
    with open(os.fsencode(home) + b"/bad\xff", "wb"):
        pass
    (home / "dir\u202e").mkdir()
    (home / "dir\u202e" / "inside").write_text("x")
    paths = [i.path for i in await fs.walk()]
    assert paths == ["bad\ufffd", "dir\ufffd", "evil\ufffdname.txt"]
    "".join(paths).encode()


async def test_mounts(fs: UserFs, home: Path, tmp_path: Path, refused: Any) -> None:
    """Mounted folders appear beside the home, keep their rights, and can be swapped while in use."""
    docs, kitchen = tmp_path / "docs", tmp_path / "kitchen"
    docs.mkdir()
    kitchen.mkdir()
    (docs / "guide.md").write_text("read me")
    (home / "shared").mkdir()
    (home / "shared" / "hidden.txt").write_text("in the home")
    assert (await fs.stat("shared/hidden.txt")).kind == "file"
    fs.set_mounts([Mount("docs", docs, writable=False), Mount("shared/kitchen", kitchen)])

    assert [i.path for i in await fs.list()] == ["docs", "shared"]
    assert [i.path for i in await fs.list("shared")] == ["shared/kitchen"]
    assert [i.path for i in await fs.walk()] == ["docs", "docs/guide.md", "shared", "shared/kitchen"]
    assert (await fs.stat("docs")).kind == "dir"
    assert (await fs.stat("shared")).kind == "dir"
    assert await fs.read_text("docs/guide.md") == "read me"
    assert (await refused(fs.write_text("docs/new.md", "x"))).code == "read_only"
    assert (await refused(fs.append_text("docs/guide.md", "x"))).code == "read_only"
    assert (await refused(fs.make_folder("docs/x"))).code == "read_only"
    await fs.write_text("shared/kitchen/list.md", "milk")
    assert (kitchen / "list.md").read_text() == "milk"
    # Nothing below a virtual folder falls back to the home's folder of the same name.
    assert (await refused(fs.read_text("shared/hidden.txt"))).code == "not_found"
    assert (await refused(fs.write_text("shared/kitchen2/x", "x"))).code == "not_found"
    assert (await refused(fs.read_text("shared"))).code == "is_folder"
    assert (await refused(fs.write_text("shared/kitchen", "x"))).code == "is_folder"
    assert (await refused(fs.read_text("shared/kitchen/../../../x"))).code == "outside"
    assert (fs.can_write("a"), fs.can_write("docs/a"), fs.can_write("shared/kitchen/a")) == (True, False, True)
    assert fs.can_write("shared/other/a") is False
    assert (fs.in_home("a"), fs.in_home("docs/a"), fs.in_home("shared/x")) == (True, False, False)

    fs.set_mounts([])
    assert (await refused(fs.read_text("docs/guide.md"))).code == "not_found"
    assert await fs.read_text("shared/hidden.txt") == "in the home"


async def test_a_mount_whose_folder_is_gone_is_an_error(fs: UserFs, tmp_path: Path, refused: Any) -> None:
    """Only the home is created on demand: a vanished share must not turn into an empty folder."""
    fs.set_mounts([Mount("share", tmp_path / "gone")])
    assert (await refused(fs.list("share"))).code == "not_found"
    assert (await refused(fs.write_text("share/x", "x"))).code == "not_found"
    assert not (tmp_path / "gone").exists()


def test_display_is_canonical(fs: UserFs) -> None:
    """Every spelling of a path is shown one way."""
    assert {fs.display(p) for p in ["a/b", "./a/b", "~/a/b", "/root/a/b", "a//x/../b"]} == {"a/b"}
    assert fs.display("~") == fs.display(".") == "~"
