"""What a plugin author has: an environment to install into, and ``skald plugin dev`` in a terminal."""

from __future__ import annotations

import os
import re
import signal
import site
import subprocess
import sysconfig
import threading
import time
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

__all__ = ("AuthorEnvironment", "DevProcess")


class AuthorEnvironment:
    """A virtual environment in ``folder`` that sees everything installed where the tests run, and installs into itself.

    Commands run without SKALD_ variables, and pip without an index: nothing here needs a network.
    """

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self.folder = folder
        self.python = folder / "bin" / "python"
        (packages,) = folder.glob("lib/python*/site-packages")
        seen = dict.fromkeys(
            [*site.getsitepackages(), sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"]]
        )
        lines = ["import site; " + "; ".join(f"site.addsitedir({path!r})" for path in seen)]
        (packages / "outer.pth").write_text("\n".join(lines) + "\n")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("SKALD_")}
        self.env |= {"PIP_NO_INDEX": "1", "PYTHONDONTWRITEBYTECODE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        self.env.pop("PYTHONPATH", None)

    def skald(self, *arguments: str) -> list[str]:
        return [str(self.python), "-m", "skald_core", *arguments]

    def run(
        self, command: Sequence[str], cwd: Path, *, env: Mapping[str, str] | None = None, timeout: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end; standard error is mixed into the output."""
        return subprocess.run(
            command,
            cwd=cwd,
            env=self.env | dict(env or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=timeout,
            check=False,
        )

    def install(self, project: Path) -> None:
        """In place, as the tutorial does it."""
        command = [str(self.python), "-m", "pip", "install", "--quiet", "--no-build-isolation", "--editable", "."]
        done = self.run(command, project)
        assert done.returncode == 0, done.stdout

    def test(self, project: Path) -> str:
        """Run the project's own tests; fails unless they are green. Returns what pytest said."""
        done = self.run([str(self.python), "-m", "pytest", "-q", "-p", "no:cacheprovider"], project, timeout=240.0)
        assert done.returncode == 0, done.stdout
        return done.stdout


class DevProcess:
    """``skald plugin dev`` in a terminal of its own. ``output`` is what it printed so far."""

    def __init__(self, environment: AuthorEnvironment, project: Path, *options: str, port: int = 0) -> None:
        self.output: list[str] = []
        self._came = threading.Condition()
        self._ended = False
        self.process = subprocess.Popen(
            environment.skald("plugin", "dev", str(project), "--port", str(port), *options),
            env=environment.env | {"PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._came:
                self.output.append(line.rstrip("\n"))
                self._came.notify_all()
        self.process.stdout.close()
        with self._came:
            self._ended = True
            self._came.notify_all()

    def until(self, pattern: str, *, after: int = 0, timeout: float = 60.0) -> re.Match[str]:
        """The first line from number ``after`` on that holds ``pattern``. Raises AssertionError with the output."""
        end = time.monotonic() + timeout
        with self._came:
            while True:
                for line in self.output[after:]:
                    if found := re.search(pattern, line):
                        return found
                left = end - time.monotonic()
                if self._ended or left <= 0 or not self._came.wait(left):
                    raise AssertionError(f"{pattern!r} was not printed:\n" + "\n".join(self.output))

    def ready(self, *, after: int = 0) -> str:
        """The address, once it listens."""
        return self.until(r"Skald is ready at (\S+)", after=after)[1]

    def interrupt(self) -> int:
        """Ctrl-C; the exit status."""
        os.killpg(self.process.pid, signal.SIGINT)
        status = self.process.wait(30)
        self._reader.join(10)
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)
        self._reader.join(10)
