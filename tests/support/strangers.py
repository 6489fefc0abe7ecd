"""The strangers: plugins written outside of this workspace, from the public pages alone, and built to wheels."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal

__all__ = ("NAMES", "build", "sources")

FOLDER = Path(__file__).parent.parent / "strangers"
NAMES = ("parley", "quiet-hours", "reading-list")
_OVERLAY = "version2"


def sources(name: str, version: Literal[1, 2], target: Path) -> Path:
    """The project of a version, in a folder below ``target``. The second version is the first with some files replaced."""
    project = target / f"skald-plugin-{name}-{version}"
    ignore = shutil.ignore_patterns(_OVERLAY, "__pycache__", "*.egg-info", ".*")
    shutil.copytree(FOLDER / name, project, ignore=ignore)
    if version == 2:
        shutil.copytree(FOLDER / name / _OVERLAY, project, dirs_exist_ok=True)
    return project


def build(name: str, version: Literal[1, 2], target: Path) -> Path:
    """The wheel of a version, made without a network."""
    project = sources(name, version, target)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(target)]
    subprocess.run([*command, str(project)], check=True, capture_output=True, timeout=120)
    (wheel,) = target.glob(f"skald_plugin_{name.replace('-', '_')}-{version}.0.0-*.whl")
    return wheel
