"""`skald run`, `chat`, `plugin`, `user` through a real server, and the sentences of a start that cannot be."""

from __future__ import annotations

import os
import pty
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.support.fake_llm import ThreadedLlm
from tests.support.program import environment
from tests.support.server import PASSWORD, ROOT, ServerProcess, messages, wait_until

WRITE = {"name": "write_file", "arguments": {"path": "a.md", "content": "hello\n"}}


def skald(*args: str, env: dict[str, str], text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "skald_core", *args], capture_output=True, text=True, env=env, input=text, timeout=60
    )


def test_run_prints_one_answer(server: ServerProcess, client: httpx.Client, llm: ThreadedLlm, tmp_path: Path) -> None:
    """The answer alone is on standard output; `-` reads the prompt; the conversation is there in the browser too."""
    env = environment(server, tmp_path)
    llm.script({"text": "Forty-two."}, {"text": "Piped."})
    done = skald("run", "What is it?", env=env)
    assert (done.returncode, done.stdout) == (0, "Forty-two.\n"), done.stderr
    assert skald("run", "-", env=env, text="from a pipe").stdout == "Piped.\n"
    (newest, oldest) = client.get("/api/conversations").json()["items"]
    assert messages(client, oldest["id"])[0]["content"] == "What is it?"
    assert newest["title"] == "from a pipe"


def test_run_tells_what_failed(server: ServerProcess, client: httpx.Client, llm: ThreadedLlm, tmp_path: Path) -> None:
    """A refused key, a failing model, a wrong password and a server that is not there: a status and one sentence each."""
    env = environment(server, tmp_path)
    llm.script({"status": 401, "body": {"error": {"message": "bad key"}}}, {"html": True})
    failed = skald("run", "hello", env=env)
    assert failed.returncode == 4
    assert "key" in failed.stderr
    assert failed.stdout == ""
    broken = skald("run", "hello", env=env)
    assert (broken.returncode, broken.stdout) == (1, "")
    assert "web page" in broken.stderr
    wrong = skald("run", "hello", env=env | {"SKALD_PASSWORD": "not the password"})
    assert wrong.returncode == 4
    assert "not right" in wrong.stderr
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    gone = skald("run", "hello", env=env | {"SKALD_URL": f"http://127.0.0.1:{port}"})
    assert gone.returncode == 3
    assert "skald serve" in gone.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_what_was_asked(
    server: ServerProcess,
    client: httpx.Client,
    llm: ThreadedLlm,
    tmp_path: Path,
    number: signal.Signals,
    status: int,
) -> None:
    """Ctrl-C ends the run on the server, too; the text so far is printed."""
    llm.script({"tokens": 900, "delay": 0.02})
    process = subprocess.Popen(
        [sys.executable, "-m", "skald_core", "run", "count"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(server, tmp_path),
    )
    wait_until(lambda: client.get("/api/conversations").json()["items"], "the conversation")
    wait_until(lambda: llm.requests, "the model is asked")
    process.send_signal(number)
    stdout, _ = process.communicate(timeout=40)
    assert process.returncode == status
    assert stdout.split() == [str(n + 1) for n in range(len(stdout.split()))]
    (row,) = client.get("/api/conversations").json()["items"]
    assert row["state"] == "idle"
    assert messages(client, row["id"])[-1]["error"]["kind"] == "aborted"


class Terminal:
    """A program in a pseudo-terminal."""

    def __init__(self, args: list[str], env: dict[str, str]) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(args, stdin=slave, stdout=slave, stderr=slave, env=env, close_fds=True)
        os.close(slave)
        self.seen = ""
        self._read = 0

    def until(self, words: str, timeout: float = 30.0) -> str:
        """Read on until ``words`` come, from where the last call found what it waited for; what came up to them."""
        end = time.monotonic() + timeout
        start = self._read
        while words not in self.seen[start:]:
            ready, _, _ = select.select([self._master], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"{words!r} did not come; so far:\n{self.seen}"
            try:
                self.seen += os.read(self._master, 4096).decode(errors="replace")
            except OSError:
                raise AssertionError(f"the program ended before {words!r}:\n{self.seen}") from None
        self._read = self.seen.index(words, start) + len(words)
        return self.seen[start : self._read]

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def close(self) -> int:
        status = self.process.wait(30)
        os.close(self._master)
        return status


def test_chat_talks_asks_and_stops(
    server: ServerProcess, client: httpx.Client, llm: ThreadedLlm, tmp_path: Path
) -> None:
    """In a terminal: the answer streams, a write is shown and allowed by a key, Ctrl-C stops, an empty line ends."""
    llm.script({"text": "Hello there."}, {"calls": [WRITE]}, {"text": "Written."}, {"tokens": 900, "delay": 0.02})
    terminal = Terminal([sys.executable, "-m", "skald_core", "chat"], environment(server, tmp_path))
    terminal.until("> ")
    terminal.type("hi\n")
    terminal.until("Hello there.")
    terminal.until("> ")
    terminal.type("write\n")
    assert "+hello" in terminal.until("[d]eny?")
    terminal.type("a\n")
    terminal.until("Written.")
    assert [p.read_text() for p in server.data.glob("homes/*/a.md")] == ["hello\n"]
    terminal.until("> ")
    terminal.type("count\n")
    terminal.until("20 21 22")
    terminal.type("\x03")
    terminal.until("> ")
    terminal.type("\n")
    assert terminal.close() == 0
    stored = tmp_path / "config" / "skald" / "sessions.json"
    assert stored.stat().st_mode & 0o077 == 0


def test_the_first_account_is_asked_for_in_a_terminal(tmp_path: Path) -> None:
    """`skald setup` asks, refuses a weak password, and makes the administrator; `--check` tells before and after."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("SKALD_")} | {"PYTHONPATH": str(ROOT)}
    data = ["--data", str(tmp_path / "data")]
    assert skald("setup", "--check", *data, env=env).returncode == 1
    terminal = Terminal([sys.executable, "-m", "skald_core", "setup", *data], env)
    terminal.until("User name:")
    terminal.type("ada\n")
    terminal.until("Your name")
    terminal.type("\n")
    terminal.until("Password:")
    terminal.type("short\n")
    terminal.until("needs at least 10")
    terminal.until("User name:")
    terminal.type("ada\n")
    terminal.until("Your name")
    terminal.type("Ada\n")
    terminal.until("Password:")
    terminal.type(PASSWORD + "\n")
    terminal.until("same again:")
    terminal.type(PASSWORD + "\n")
    terminal.until("Encrypt")
    terminal.type("\n")
    terminal.until("Language")
    terminal.type("it\n")
    terminal.until("is ready")
    assert terminal.close() == 0
    assert skald("setup", "--check", *data, env=env).returncode == 0


def test_plugins_from_the_command_line(server: ServerProcess, client: httpx.Client, tmp_path: Path) -> None:
    """Live through the running server; stored, without importing anything, when it is down."""
    env = environment(server, tmp_path)
    data = ["--data", str(server.data)]
    listed = skald("plugin", "list", *data, env=env)
    assert "approval" in listed.stdout
    assert skald("plugin", "disable", "approval", *data, env=env).returncode == 0
    assert client.get("/api/auth/me").json()["gate"] is False
    unknown = skald("plugin", "enable", "nobody", *data, env=env)
    assert unknown.returncode == 1
    assert "(installed: a" in unknown.stderr
    server.stop()
    offline = skald("plugin", "enable", "approval", *data, env=env)
    assert offline.returncode == 0, offline.stderr
    server.start()
    again = server.sign_in()
    assert again.get("/api/auth/me").json()["gate"] is True
    again.close()


def test_people_from_the_command_line(server: ServerProcess, client: httpx.Client, tmp_path: Path) -> None:
    """An administrator adds a member, who can sign in; a taken name is told."""
    env = environment(server, tmp_path) | {"SKALD_NEW_PASSWORD": "a long password for bo"}
    assert skald("user", "add", "bo", env=env).returncode == 0
    server.sign_in("bo", "a long password for bo").close()
    taken = skald("user", "add", "bo", env=env)
    assert taken.returncode == 1
    assert "taken" in taken.stderr
    assert "bo" in skald("user", "list", env=env).stdout


def test_a_start_that_cannot_be_says_why(server: ServerProcess, tmp_path: Path) -> None:
    """Port in use, data directory in use, not writable, of a newer version: status 3 and one sentence; nothing changes."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("SKALD_")} | {"PYTHONPATH": str(ROOT)}
    port = server.url.rpartition(":")[2]
    busy = skald("serve", "--data", str(tmp_path / "d"), "--port", port, env=env)
    assert busy.returncode == 3
    assert f"port {port}" in busy.stderr
    assert "--port" in busy.stderr
    locked = skald("serve", "--data", str(server.data), "--port", "0", env=env)
    assert locked.returncode == 3
    assert "another Skald" in locked.stderr
    (tmp_path / "file").write_text("not a folder")
    odd = skald("serve", "--data", str(tmp_path / "file" / "d"), "--port", "0", env=env)
    assert odd.returncode == 3
    assert "data directory" in odd.stderr


def test_data_of_a_newer_version_is_refused_untouched(server: ServerProcess) -> None:
    """A ledger ahead of the code stops the start with the remedy, and the file stays as it was."""
    from sqlcipher3 import dbapi2 as sqlite

    server.stop()
    path = server.data / "database" / "system.db"
    connection = sqlite.connect(str(path))
    row = connection.execute("SELECT * FROM schema_ledger WHERE component='kernel'").fetchone()
    names = [d[0] for d in connection.execute("SELECT * FROM schema_ledger LIMIT 1").description]
    newer = [99 if name == "version" else value for name, value in zip(names, row, strict=True)]
    connection.execute(f"INSERT INTO schema_ledger VALUES ({','.join('?' * len(newer))})", newer)
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(RuntimeError, match="newer version"):
        server.start()
    assert path.read_bytes() == before
