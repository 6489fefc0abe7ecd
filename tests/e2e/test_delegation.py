"""An agent's work, and the real server killed in the middle of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.support.fake_llm import ThreadedLlm
from tests.support.live import Live
from tests.support.program import environment
from tests.support.server import ServerProcess, messages, new_conversation, send

DELEGATE = {"name": "execute_subtask", "arguments": {"agent_id": "worker", "prompt": "write hello into a.md"}}
WRITE = {"name": "write_file", "arguments": {"path": "a.md", "content": "hello"}}


def restarted(server: ServerProcess) -> httpx.Client:
    server.kill()
    server.start()
    return server.sign_in()


def test_a_kill_while_an_agents_call_waits(
    server: ServerProcess, client: httpx.Client, llm: ThreadedLlm, follow: Callable[..., Live]
) -> None:
    """Delegating asks nobody, the agent's writing does; after kill -9 the same card is there once, and its answer lets the
    agent and then the conversation finish, with the file written once."""
    conversation = new_conversation(client)
    llm.script({"calls": [DELEGATE]}, {"calls": [WRITE]}, {"text": "the agent is done"}, {"text": "all done"})
    live = follow(conversation)
    send(client, conversation, "have it written")
    request = live.until("approval_required")["request"]
    assert request["agent"] == "Worker"
    assert request["details"]["changes"][0]["path"] == "a.md"
    after = restarted(server)
    items = after.get("/api/inbox", params={"status": "pending"}).json()["items"]
    assert [r["id"] for r in items] == [request["id"]]
    again = follow(conversation, after)
    after.post(f"/api/requests/{request['id']}/answer", json={"choice": "allow_once"}).raise_for_status()
    assert again.until("turn_finished")["outcome"] == "success"
    items = messages(after, conversation)
    assert items[1]["calls"][0]["result"] == "the agent is done"
    assert items[-1]["content"] == "all done"
    home = server.data / "homes" / after.get("/api/auth/me").json()["id"]
    assert (home / "a.md").read_text() == "hello"
    after.close()


def test_a_kill_while_an_agent_speaks(
    server: ServerProcess, client: httpx.Client, llm: ThreadedLlm, follow: Callable[..., Live]
) -> None:
    """The agent is asked again with its own prompt, and the conversation gets its answer."""
    conversation = new_conversation(client)
    llm.script(
        {"calls": [DELEGATE]}, {"tokens": 400, "delay": 0.01}, {"text": "the agent is done"}, {"text": "all done"}
    )
    live = follow(conversation)
    send(client, conversation, "go")
    while not live.until("tool_progress")["data"]["text"]:
        pass
    after = restarted(server)
    again = follow(conversation, after)
    while again.running:
        again.next()
    items = messages(after, conversation)
    assert items[1]["calls"][0]["result"] == "the agent is done"
    assert items[-1]["content"] == "all done"
    system = [str(request["messages"][0]) for request in llm.requests]
    assert ["carry out one piece of work" in text for text in system] == [False, True, True, False]
    after.close()


def test_the_terminal_shows_what_an_agent_does(
    server: ServerProcess, client: httpx.Client, llm: ThreadedLlm, tmp_path: Path
) -> None:
    """`skald run` names the agent and each of its calls once, beside the answer and not in it."""
    reads = {"name": "list_files", "arguments": {"path": "~"}}
    llm.script({"calls": [DELEGATE]}, {"calls": [reads]}, {"text": "the agent is done"}, {"text": "all done"})
    command = [sys.executable, "-m", "skald_core", "run", "go"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(server, tmp_path), timeout=60)
    assert (done.returncode, done.stdout) == (0, "all done\n"), done.stderr
    assert done.stderr.count("· Worker: ") == 1
