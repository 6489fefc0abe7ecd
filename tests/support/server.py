"""A real Skald process for tests and benchmarks: ``skald serve`` on a free loopback port with its own data directory."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Self

import httpx

USERNAME = "ada"
PASSWORD = "correct horse battery"
ROOT = Path(__file__).parent.parent.parent


class ServerProcess:
    """Start with :meth:`start`; ``output`` is everything it printed. ``setup_token`` is set while there is no account."""

    def __init__(
        self,
        data: Path | None = None,
        *,
        args: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
        python: str | Path = sys.executable,
    ) -> None:
        self._python = str(python)
        self._temporary = tempfile.TemporaryDirectory(prefix="skald-test-") if data is None else None
        self.data = data or Path(self._temporary.name if self._temporary else "")
        self._args = args
        self._env = env or {}
        self.output: list[str] = []
        self.process: subprocess.Popen[str] | None = None
        self.url = ""
        self.setup_token = ""
        self.started_at = 0.0

    def start(self, timeout: float = 60.0, *, port: int = 0) -> ServerProcess:
        env = {
            k: v for k, v in os.environ.items() if not k.startswith("SKALD_") or k == "SKALD_STRICT_PLUGINS"
        } | self._env
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), env.get("PYTHONPATH", "")]))
        self.output = []
        self.setup_token = ""
        self.started_at = time.monotonic()
        command = [
            self._python,
            "-m",
            "skald_core",
            "serve",
            "--data",
            str(self.data),
            "--port",
            str(port),
            "--no-input",
            *self._args,
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
        ready = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(self.process, ready), daemon=True)
        self._reader.start()
        if not ready.wait(timeout) or not self.url:
            self.kill()
            raise RuntimeError("the server did not start:\n" + "".join(self.output))
        return self

    def _read(self, process: subprocess.Popen[str], ready: threading.Event) -> None:
        assert process.stdout is not None
        self.url = ""
        for line in process.stdout:
            self.output.append(line)
            if found := re.search(r"/setup#token=(\S+)", line):
                self.setup_token = found[1]
            if found := re.search(r"ready at (http://\S+)", line):
                self.url = found[1]
                ready.set()
        process.stdout.close()
        ready.set()

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(10)
            self._reader.join(10)

    def stop(self) -> int:
        """SIGTERM; returns the exit status."""
        if self.process is None:
            return 0
        self.process.terminate()
        try:
            status = self.process.wait(20)
            self._reader.join(10)
            return status
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError("the server did not stop within 20 s:\n" + "".join(self.output[-50:])) from None

    def __enter__(self) -> Self:
        if self.process is None:
            self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.stop()
        if self._temporary is not None:
            self._temporary.cleanup()

    # -- a signed-in client --------------------------------------------------------------------------------------

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60, trust_env=False)

    def first_user(self, *, encrypted: bool = True) -> httpx.Client:
        """Make the first account over HTTP; returns its client."""
        client = self.client()
        body = {
            "token": self.setup_token,
            "username": USERNAME,
            "password": PASSWORD,
            "encrypted": encrypted,
            "locale": "en",
        }
        client.post("/api/setup", json=body).raise_for_status()
        return client

    def sign_in(self, username: str = USERNAME, password: str = PASSWORD) -> httpx.Client:
        client = self.client()
        client.post("/api/auth/login", json={"username": username, "password": password}).raise_for_status()
        return client


def add_fake_model(client: httpx.Client, url: str, *, title: str = "Fake") -> str:
    """A provider and a model behind ``url``; returns the model's id."""
    body = {"type": "openai", "name": title, "settings": {"base_url": url, "api_key": "test-key"}}
    provider = client.post("/api/providers", json=body)
    provider.raise_for_status()
    model = client.post("/api/models", json={"provider": provider.json()["id"], "model": "fake-model", "title": title})
    model.raise_for_status()
    return str(model.json()["id"])


def new_conversation(client: httpx.Client) -> str:
    made = client.post("/api/conversations", json={})
    made.raise_for_status()
    return str(made.json()["id"])


def send(client: httpx.Client, conversation: str, text: str, client_id: str | None = None) -> dict[str, Any]:
    body = {"client_id": client_id or os.urandom(8).hex(), "content": text}
    answer = client.post(f"/api/conversations/{conversation}/messages", json=body)
    answer.raise_for_status()
    return dict(answer.json())


def messages(client: httpx.Client, conversation: str) -> list[dict[str, Any]]:
    return list(
        client.get(f"/api/conversations/{conversation}/messages", params={"limit": 200})
        .raise_for_status()
        .json()["items"]
    )


def wait_until(check: Any, what: str, timeout: float = 20.0) -> Any:
    """Poll ``check`` until it returns something true; raises AssertionError naming ``what``."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        value = check()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"not within {timeout:g} s: {what}")
