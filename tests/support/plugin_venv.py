"""A real virtual environment with the kernel and its needs, made in a moment: packages are linked, not installed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from skald_core.plugins.install.environment import kernel_names, snapshot
from tests.support.server import ROOT

__all__ = ("PluginVenv",)


def _interruptible() -> None:
    """A test run started in the background hands an ignored SIGINT on to what it starts; a terminal does not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class PluginVenv:
    """``python`` runs the kernel of this checkout; only what a test installs is installed beside it.

    ``wheels`` is the only place packages come from: there is no index. ``extra`` are further environment variables.
    """

    def __init__(self, folder: Path, wheels: Path) -> None:
        self.folder = folder
        self.wheels = wheels
        self.extra: dict[str, str] = {}
        wheels.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
        self.python = folder / "bin" / "python"
        (self.site,) = folder.glob("lib/python*/site-packages")
        self._link_kernel()

    def _link_kernel(self) -> None:
        installed = snapshot()
        for name in sorted(kernel_names(installed) & installed.keys()):
            self._link(name, installed[name].home)
        (self.site / "kernel.pth").write_text(f"{ROOT}\n")

    def _link(self, name: str, home: Path) -> None:
        """Metadata folders are made of links to files, so that tools see folders; packages are links themselves."""
        for top in {file.parts[0] for file in distribution(name).files or ()} - {"..", "__pycache__"}:
            source, target = home.parent / top, self.site / top
            if target.is_symlink() or target.exists():
                continue
            if top == home.name:
                target.mkdir()
                for file in home.iterdir():
                    if file.is_file():
                        (target / file.name).symlink_to(file)
            elif source.exists() and not source.name.endswith(".pth"):
                target.symlink_to(source)

    def link_plugin(self, name: str) -> None:
        """Make a plugin of this workspace, and what it needs directly, importable as an editable install would."""
        installed = snapshot()
        needs = {canonicalize_name(Requirement(text).name) for text in distribution(name).requires or ()}
        for each in {canonicalize_name(name), *needs} - {"skald-core"}:
            self._link(each, installed[each].home)
        (self.site / f"{name}.pth").write_text(f"{ROOT / 'plugins' / name / 'src'}\n")

    @property
    def settings(self) -> dict[str, str]:
        """Environment variables with which packages come from ``wheels`` and nowhere else."""
        return {
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_FIND_LINKS": "",
            "PIP_EXTRA_INDEX_URL": "",
            "PIP_NO_INDEX": "1",
            "SKALD_PLUGIN_FIND_LINKS": str(self.wheels),
            "SKALD_STRICT_PLUGINS": "0",
            **self.extra,
        }

    @property
    def env(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SKALD_", "PIP_", "UV_", "PYTHON"))}
        return kept | self.settings | {"HOME": str(self.folder)}

    def run(
        self, *args: str, env: dict[str, str] | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run the environment's Python with these arguments."""
        return subprocess.run(
            [str(self.python), *args],
            env=self.env | (env or {}),
            capture_output=True,
            text=True,
            check=check,
            timeout=180,
            cwd=self.folder,
            preexec_fn=_interruptible,
        )

    def version_of(self, name: str) -> str | None:
        """The installed version of a distribution, as a fresh interpreter sees it."""
        code = (
            "import importlib.metadata as m, sys\n"
            "try: print(m.version(sys.argv[1]))\n"
            "except m.PackageNotFoundError: pass\n"
        )
        return self.run("-c", code, name).stdout.strip() or None

    def tree(self) -> dict[str, bytes]:
        """Every regular file of the environment but byte code, to compare before and after."""
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for root in (self.site, self.folder / "bin")
            for path in sorted(root.rglob("*"))
            if path.is_file() and not path.is_symlink() and path.suffix != ".pyc"
        }
