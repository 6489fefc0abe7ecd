"""A disk that fills during an install: one clear sentence, nothing changed, and it works once there is room."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.install.conftest import Catalog
from tests.support.plugin_venv import PluginVenv
from tests.support.plugin_wheels import plugin_wheel


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB. Mounting needs root; elsewhere this is skipped."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small file system can only be mounted by root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, leave: int) -> Path:
    """Use the disk up but for ``leave`` bytes."""
    ballast = folder / "ballast"
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    ballast.write_bytes(b"\0" * (free - leave))
    return ballast


def test_the_environment_has_no_room(
    small_disk: Path, tmp_path: Path, open_catalog: Callable[[PluginVenv], Catalog]
) -> None:
    """Too little room to unpack beside the environment: refused before anything of it is touched; room made, it works."""
    venv = PluginVenv(small_disk / "venv", tmp_path / "wheels")
    plugin_wheel(venv.wheels, "big", extra={"skald_plugin_big/data.bin": os.urandom(3_000_000)})
    catalog = open_catalog(venv)
    plan = catalog.plan(act="install", requirement="skald-plugin-big")
    assert plan["state"] == "done", plan
    before = venv.tree()
    ballast = fill(small_disk, 2_000_000)
    failed = catalog.ended(catalog.start(plan).json())
    assert failed["state"] == "failed"
    assert "disk" in failed["error"]["message"]
    assert venv.tree() == before
    assert catalog.row("big") is None
    ballast.unlink()
    assert catalog.do(act="install", requirement="skald-plugin-big")["state"] == "done"


def test_the_data_directory_has_no_room(venv: PluginVenv, small_disk: Path) -> None:
    """The download does not fit: the plan fails with the same sentence, and nothing of it stays."""
    plugin_wheel(venv.wheels, "big", extra={"skald_plugin_big/data.bin": os.urandom(6_000_000)})
    data = small_disk / "data"
    before = venv.tree()
    failed = venv.run(
        "-m", "skald_core", "plugin", "install", "skald-plugin-big", "--yes", "--data", str(data), check=False
    )
    assert failed.returncode == 1
    assert "disk" in failed.stderr.splitlines()[-1]
    assert "Traceback" not in failed.stderr
    assert venv.tree() == before
    assert not list(data.glob("plugin-jobs/*/wheels/*"))
