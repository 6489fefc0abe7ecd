"""For tests against servers others wrote: starts a program that listens, waits until it answers, and ends it."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ("running_server",)

STARTS_WITHIN = 60.0
"""Seconds a program may take until it answers."""
_POLL = 0.05


@contextmanager
def running_server(
    command: Sequence[str], *, ready: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Run ``command`` and give its origin, such as ``http://127.0.0.1:40123``, once ``ready`` (a path) answers anything.

    In the command ``{fd}`` stands for the number of an inherited socket that already listens, and ``{port}`` for a free port
    of 127.0.0.1; use one of the two. ``env`` is added to this process's environment.

    Raises:
        RuntimeError: the program ended, or did not answer in time; what it printed is in the message.
    """
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    filled = [word.format(fd=listening.fileno(), port=port) for word in command]
    inherits = any("{fd}" in word for word in command)
    if not inherits:
        listening.close()
    with tempfile.TemporaryFile() as printed:  # a pipe that nobody empties would block it one day
        process = subprocess.Popen(
            filled,
            pass_fds=[listening.fileno()] if inherits else [],
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdout=printed,
            stderr=subprocess.STDOUT,
        )
        listening.close()
        try:
            _wait_for(f"http://127.0.0.1:{port}{ready}", process, printed)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for(url: str, process: subprocess.Popen[bytes], printed: IO[bytes]) -> None:
    deadline = time.monotonic() + STARTS_WITHIN
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        try:
            with opener.open(url, timeout=2):
                return
        except urllib.error.HTTPError as refused:
            refused.close()
            return
        except OSError:
            if process.poll() is None and time.monotonic() < deadline:
                time.sleep(_POLL)
                continue
        printed.seek(0)
        said = printed.read().decode("utf-8", "replace")[-2000:]
        raise RuntimeError(f"{process.args!r} did not answer at {url}. It said: {said}")
