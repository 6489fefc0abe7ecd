"""Agent paths as text: what they mean, and that nothing leads out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skald_core.files.errors import FilesError
from skald_core.files.paths import Mount, MountTable, join_path, printable, split_path


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("", ()),
        (".", ()),
        ("~", ()),
        ("~/", ()),
        ("/root", ()),
        ("/root/", ()),
        ("notes/a.md", ("notes", "a.md")),
        ("./notes//a.md", ("notes", "a.md")),
        ("~/notes/a.md", ("notes", "a.md")),
        ("~//notes/a.md", ("notes", "a.md")),
        ("/root/notes/a.md", ("notes", "a.md")),
        ("//root/notes", ("notes",)),
        ("a/../b", ("b",)),
        ("root/a", ("root", "a")),
        ("~bob/a", ("~bob", "a")),
        ("./~", ("~",)),
        ("a b/ç é.txt", ("a b", "ç é.txt")),
        ("-rf", ("-rf",)),
        ("a/~/b", ("a", "~", "b")),
        ("CON", ("CON",)),
        ("...", ("...",)),
    ],
)
def test_path_meaning(path: str, parts: tuple[str, ...]) -> None:
    """The spellings people and models use for one file give the same parts."""
    assert split_path(path) == parts


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("..", "outside"),
        ("../x", "outside"),
        ("a/../../x", "outside"),
        ("~/../x", "outside"),
        ("/root/../etc/passwd", "outside"),
        ("/etc/passwd", "outside"),
        ("/", "outside"),
        ("/rootfoo/x", "outside"),
        ("/home/user/x", "outside"),
        ("a\0b", "bad_path"),
        ("a\nb", "bad_path"),
        ("a\x7fb", "bad_path"),
        ("a\x85b", "bad_path"),
        ("a\ud800b", "bad_path"),
        ("gpj.\u202etxt", "bad_path"),
        ("notes\\a.md", "bad_path"),
        ("..\\..\\windows", "bad_path"),
        ("C:\\x", "bad_path"),
        ("é" * 128, "bad_path"),
        ("a/" * 2100, "bad_path"),
    ],
)
def test_path_refused(path: str, code: str) -> None:
    """What leaves the home or cannot be a path is an error with a remedy, never another file."""
    with pytest.raises(FilesError) as caught:
        split_path(path)
    assert caught.value.code == code
    assert caught.value.remedy
    str(caught.value).encode()  # can be sent, whatever was in the path
    assert printable(str(caught.value)) == str(caught.value)


def test_absolute_path_suggests_the_relative_one() -> None:
    """A model that writes '/notes/a.md' is told the path that works."""
    with pytest.raises(FilesError, match=r"'notes/a\.md'"):
        split_path("/notes/a.md")


piece = st.one_of(
    st.sampled_from(["..", ".", "", "~", "root", "a", "b.txt", "foo", "foobar", "...", "..a", " "]),
    st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/\\"), max_size=6),
)
raw_paths = st.builds(
    lambda start, parts: start + "/".join(parts),
    st.sampled_from(["", "/", "~/", "./", "/root/"]),
    st.lists(piece, max_size=8),
)


def oracle(path: str) -> tuple[str, ...] | None:
    """What POSIX makes of the path in a world whose home is /root; None when it is not inside."""
    if path == "~" or path.startswith("~/"):
        path = "/root/./" + path[2:]
    # POSIX lets '..' through '/' and back again; an excursion above the home is refused here, so track it by hand.
    walked: list[str] = [] if path.startswith("/") else ["root"]
    for name in path.split("/"):
        if name in {"", "."}:
            continue
        if name == "..":
            walked = walked[:-1]
            if not walked:
                return None
        else:
            walked.append(name)
        if walked[0] != "root":
            return None
    if not walked:
        return None
    assert os.path.normpath(path if path.startswith("/") else f"/root/{path}").strip("/") == "/".join(walked)
    return tuple(walked[1:])


@given(raw_paths)
def test_split_agrees_with_posix(path: str) -> None:
    """Inside the home the parts are those POSIX would resolve; everything else is refused."""
    try:
        parts = split_path(path)
    except FilesError as error:
        if error.code == "outside":
            assert oracle(path) is None
        return
    assert parts == oracle(path)
    assert not {"", ".", ".."} & set(parts)
    assert all("/" not in p and "\0" not in p for p in parts)


@given(st.text(max_size=40))
def test_any_text_is_a_path_or_a_files_error(path: str) -> None:
    """No input raises anything else, and the canonical form means the same file again."""
    try:
        parts = split_path(path)
    except FilesError:
        return
    assert split_path(join_path(parts)) == parts
    assert join_path(split_path(join_path(parts))) == join_path(parts)


def test_longest_mount_wins_on_whole_names() -> None:
    """'docs' holds docs/a but not docsx/a; a mount inside a mount holds what is below it."""
    table = MountTable(
        [Mount("", Path("/h")), Mount("docs", Path("/d")), Mount("docs/own", Path("/o")), Mount("shared/k", Path("/k"))]
    )

    def at(path: str) -> tuple[str, tuple[str, ...]] | None:
        found = table.find(split_path(path))
        return found and (str(found[0].host_path), found[1])

    assert at("docs") == ("/d", ())
    assert at("docs/a") == ("/d", ("a",))
    assert at("docs/own/a") == ("/o", ("a",))
    assert at("docs/owner") == ("/d", ("owner",))
    assert at("docsx/a") == ("/h", ("docsx", "a"))
    assert at("shared/k/x") == ("/k", ("x",))
    assert at("shared") is None
    assert at("shared/kitchen") is None
    assert table.children(()) == ["docs", "shared"]
    assert table.children(("shared",)) == ["k"]
    assert table.is_virtual(("shared",))
    assert not table.is_virtual(("docs",))


def test_one_prefix_cannot_be_mounted_twice() -> None:
    """Two mounts at one place are the caller's mistake, also when spelled differently."""
    with pytest.raises(ValueError, match="may be mounted once"):
        MountTable([Mount("docs", Path("/a")), Mount("./docs/", Path("/b"))])
