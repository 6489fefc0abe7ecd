"""A full disk, for real where the test may mount one: one clear sentence, and nothing that was stored is lost."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skald_core.files.userfs import UserFs

SIZE = 256 * 1024


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A disk of 256 KiB: a real tmpfs as root; elsewhere ``os.write`` refuses past that size, as a full disk does."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = os.geteuid() == 0 and (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(path)], capture_output=True, check=False
        ).returncode
        == 0
    )
    if not mounted:
        real = os.write

        def write(fd: int, data: Any) -> int:
            room = SIZE - sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
            if room <= 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(fd, memoryview(data)[:room])

        monkeypatch.setattr(os, "write", write)
    yield path
    if mounted:
        subprocess.run(["umount", str(path)], check=True)


def content(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


async def test_full_disk_keeps_what_was_there(small_disk: Path, refused: Any) -> None:
    """Replacing, creating and appending on a full disk fail clearly, leave the old content and no remains."""
    fs = UserFs(small_disk / "home")
    await fs.write_text("notes.txt", "precious\n")
    before = content(small_disk)

    for work in (
        fs.write_bytes("notes.txt", b"x" * (2 * SIZE)),
        fs.write_bytes("deep/er/new.bin", b"x" * (2 * SIZE)),
        fs.append_text("notes.txt", "x" * (2 * SIZE)),
        fs.append_text("new.txt", "x" * (2 * SIZE)),
    ):
        error = await refused(work)
        assert error.code == "disk_full"
        assert "nothing was changed" in str(error)
        assert "Free some space" in error.remedy
        assert content(small_disk) == before
        assert not (small_disk / "home" / "deep").exists()

    await fs.append_text("notes.txt", "still works")
    assert await fs.read_text("notes.txt") == "precious\nstill works\n"


async def test_a_killed_write_never_shows_half_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anything that stops a write before the rename leaves the old file, and the next write is not in its way."""

    class Killed(BaseException):
        pass

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    fs = UserFs(tmp_path / "home")
    await fs.write_text("a.txt", "old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", die)
        patch.setattr(os, "unlink", die)  # a killed process cleans nothing up
        with pytest.raises(Killed):
            fs.tree.write_bytes("a.txt", b"new")
    assert await fs.read_text("a.txt") == "old"
    assert [i.path for i in await fs.list()] == ["a.txt"]
    await fs.write_text("a.txt", "new")
    assert await fs.read_text("a.txt") == "new"
