"""Links, also when they are swapped in between any two system calls, never lead outside."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skald_core.files.userfs import FilesError, UserFs


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    path = tmp_path / "outside"
    path.mkdir()
    (path / "f.txt").write_text("SECRET")
    return path


async def test_links_are_refused_by_every_operation(fs: UserFs, home: Path, outside: Path, refused: Any) -> None:
    """A link to a file, to a folder, to nothing, and one that stays inside are all reported, not followed."""
    (home / "real.txt").write_text("inside")
    (home / "file").symlink_to(outside / "f.txt")
    (home / "dir").symlink_to(outside, target_is_directory=True)
    (home / "dangling").symlink_to(outside / "new.txt")
    (home / "inner").symlink_to("real.txt")
    (home / "loop").symlink_to("loop")
    for path in ["file", "dir/f.txt", "dangling", "inner", "loop"]:
        assert (await refused(fs.read_text(path))).code == "link"
        assert (await refused(fs.write_text(path, "x"))).code == "link"
        assert (await refused(fs.append_text(path, "x"))).code == "link"
    assert (await refused(fs.write_text("dir/sub/new.txt", "x"))).code == "link"
    assert (await refused(fs.make_folder("dir/sub"))).code == "link"
    assert (await refused(fs.list("dir"))).code == "link"
    assert (await refused(fs.version("dir/f.txt"))).code == "link"
    assert (await fs.stat("dir")).kind == "link"
    assert [(i.path, i.kind) for i in await fs.walk()] == [
        ("dangling", "link"),
        ("dir", "link"),
        ("file", "link"),
        ("inner", "link"),
        ("loop", "link"),
        ("real.txt", "file"),
    ]
    assert sorted(p.name for p in outside.iterdir()) == ["f.txt"]
    assert (outside / "f.txt").read_text() == "SECRET"
    assert (home / "real.txt").read_text() == "inside"


async def test_sibling_with_the_same_beginning_is_out_of_reach(tmp_path: Path, refused: Any) -> None:
    """A neighbour's home whose name begins like mine is not mine."""
    (tmp_path / "foobar").mkdir()
    (tmp_path / "foobar" / "f.txt").write_text("SECRET")
    fs = UserFs(tmp_path / "foo")
    for path in ["../foobar/f.txt", "~/../foobar/f.txt", "/root/../foobar/f.txt", f"{tmp_path}/foobar/f.txt"]:
        assert (await refused(fs.read_text(path))).code == "outside"


class Swap:
    """Swaps ``home/d`` for a link to ``outside`` just before the ``step``-th call of a watched ``os`` function."""

    WATCHED = ("open", "stat", "rename", "mkdir", "scandir", "unlink")

    def __init__(self, home: Path, outside: Path, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home, self.outside, self.left = home, outside, step
        self.swapped = False
        for name in self.WATCHED:
            monkeypatch.setattr(os, name, self._watch(getattr(os, name)))

    def _watch(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self.swapped:
                self.left -= 1
                if self.left < 0:
                    self.swapped = True
                    (self.home / "d").rename(self.home / "moved")
                    (self.home / "d").symlink_to(self.outside, target_is_directory=True)
            return real(*args, **kwargs)

        return call


def naive_read(home: Path) -> str:
    """How it is usually done: check where the path leads, then open it."""
    target = home / "d" / "f.txt"
    info = os.stat(target)
    if not target.resolve().is_relative_to(home.resolve()) or not info.st_size:
        raise FilesError("outside", code="outside")
    with open(os.open(target, os.O_RDONLY)) as file:
        return file.read()


def test_the_harness_catches_a_check_before_open(home: Path, outside: Path) -> None:
    """The usual check-then-open is led outside at some step; otherwise the tests below would prove nothing."""
    seen = set()
    for step in range(6):
        root = home / str(step)
        (root / "d").mkdir(parents=True)
        (root / "d" / "f.txt").write_text("inside")
        with pytest.MonkeyPatch.context() as patch:
            Swap(root, outside, step, patch)
            try:
                seen.add(naive_read(root))
            except FilesError:
                continue
    assert "SECRET" in seen


OPERATIONS: dict[str, Callable[[UserFs], Any]] = {
    "read": lambda fs: fs.read_text("d/f.txt"),
    "version": lambda fs: fs.version("d/f.txt"),
    "replace": lambda fs: fs.write_text("d/f.txt", "written"),
    "create": lambda fs: fs.write_text("d/new/n.txt", "written"),
    "append": lambda fs: fs.append_text("d/f.txt", "written"),
    "append new": lambda fs: fs.append_text("d/n.txt", "written"),
    "list": lambda fs: fs.list("d"),
    "walk": lambda fs: fs.walk(),
    "stat": lambda fs: fs.stat("d/f.txt"),
}


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_swap_between_any_two_steps_leads_nowhere(home: Path, outside: Path, operation: str) -> None:
    """Wherever the swap happens, the result is the inside content or a refusal, and outside nothing changes."""
    (outside / "only-outside.txt").write_text("SECRET")
    version_outside = await UserFs(outside).version("f.txt")
    swaps = 0
    for step in range(60):
        root = home / str(step)
        (root / "d").mkdir(parents=True)
        (root / "d" / "f.txt").write_text("inside")
        with pytest.MonkeyPatch.context() as patch:
            swap = Swap(root, outside, step, patch)
            try:
                result = await OPERATIONS[operation](UserFs(root))
            except FilesError as error:
                result = f"refused: {error.code}"
        text = repr(result)
        assert "refused" not in text or text in {"'refused: link'", "'refused: not_found'"}
        assert "SECRET" not in text
        assert "only-outside" not in text
        assert version_outside not in text
        assert {p.name: p.read_text() for p in outside.iterdir()} == {"f.txt": "SECRET", "only-outside.txt": "SECRET"}
        if not swap.swapped:
            break
        swaps += 1
    else:
        pytest.fail("the operation never finished before the swap; raise the number of steps")
    assert swaps >= 2


def exchange(one: Path, other: Path) -> None:
    """Swap two names in one step (renameat2(2) with RENAME_EXCHANGE): there is no moment without either."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), 2):
        raise OSError(ctypes.get_errno(), "renameat2")


async def test_a_thread_that_swaps_all_the_time_leads_nowhere(fs: UserFs, home: Path, outside: Path) -> None:
    """The same against a real second thread: both states were met, nothing was read from or written to the outside."""
    (home / "d").mkdir()
    (home / "d" / "f.txt").write_text("inside")
    (home / "link").symlink_to(outside, target_is_directory=True)
    stop = threading.Event()

    def swapper() -> None:
        while not stop.is_set():
            exchange(home / "d", home / "link")

    thread = threading.Thread(target=swapper)
    thread.start()
    met: set[str] = set()
    try:
        for n in range(20_000):
            try:
                met.add(await fs.read_text("d/f.txt"))
                await fs.write_text("d/f.txt", "inside")
                await fs.write_text("d/deep/new.txt", "inside")
                await fs.append_text("d/log.txt", "inside")
            except FilesError as error:
                met.add(error.code)
            if n >= 300 and {"inside", "link"} <= met:
                break
    finally:
        stop.set()
        thread.join()
    assert met == {"inside", "link"}
    assert {p.name: p.read_text() for p in outside.iterdir()} == {"f.txt": "SECRET"}
