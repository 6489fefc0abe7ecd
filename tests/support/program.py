"""`skald run --json` as a program would use it: a process whose standard streams are pipes."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Self

import msgspec

from skald_core.loop.events import Event
from tests.support.server import PASSWORD, ROOT, USERNAME, ServerProcess

__all__ = ("Program", "environment")


def environment(server: ServerProcess, folder: Path) -> dict[str, str]:
    """Variables that sign the command line in at ``server``; nothing of the tester's own is read or written."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SKALD_")}
    return kept | {
        "SKALD_URL": server.url,
        "SKALD_USER": USERNAME,
        "SKALD_PASSWORD": PASSWORD,
        "XDG_CONFIG_HOME": str(folder / "config"),
        "PYTHONPATH": str(ROOT),
    }


class Program:
    """Each line of its standard output must be an event of the loop's union. ``events`` are all that came."""

    def __init__(self, *args: str, env: dict[str, str], stdin: bool = True) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "skald_core", "run", "--json", *args],
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
        )
        self.events: list[dict[str, Any]] = []
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._errors: list[bytes] = []
        self._threads = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._note, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _note(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._errors.append(line)

    @property
    def stderr(self) -> str:
        return b"".join(self._errors).decode()

    def next(self, timeout: float = 30.0) -> dict[str, Any] | None:
        """The next event; None at the end. Raises AssertionError when nothing comes in time."""
        try:
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            raise AssertionError(f"no event came; so far: {[e['type'] for e in self.events]}\n{self.stderr}") from None
        if line is None:
            return None
        msgspec.json.decode(line, type=Event)
        event: dict[str, Any] = json.loads(line)
        self.events.append(event)
        return event

    def until(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Read on to an event of this type with these fields."""
        while (event := self.next()) is not None:
            if event["type"] == kind and all(event.get(k) == v for k, v in fields.items()):
                return event
        raise AssertionError(f"no {kind} came; so far: {[e['type'] for e in self.events]}\n{self.stderr}")

    def send(self, **line: Any) -> None:
        self.send_text(json.dumps(line))

    def send_text(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()

    def end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, timeout: float = 40.0) -> int:
        """The exit status, after reading everything that was still to come."""
        end = time.monotonic() + timeout
        while self.next(max(0.1, end - time.monotonic())) is not None:
            pass
        status = self.process.wait(max(0.1, end - time.monotonic()))
        self._threads[1].join(5)
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        for thread in self._threads:
            thread.join(5)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):  # the test closed it, or nobody reads what was to be flushed
                    stream.close()
