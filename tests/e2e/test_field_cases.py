"""Cases from the field whose exact input needs the real server: C3 b, C7 and C10."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.fake_llm import ThreadedLlm
from tests.support.installed import install
from tests.support.live import Live
from tests.support.program import Program, environment
from tests.support.server import ServerProcess, add_fake_model, messages, new_conversation, send, wait_until

Follow = Callable[..., Live]
Json = dict[str, Any]

SLOW = """
import asyncio
from pathlib import Path
from skald_core import api as skald


class Slow(skald.Tool):
    name = "slow"
    description = "Begins and never ends."
    scope = "read"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    parameters = {"type": "object", "properties": {}}

    def validate(self, raw):
        return raw

    async def run(self, arguments, context):
        with (self.folder / "begun").open("a") as log:
            log.write("begun\\n")
        await asyncio.Event().wait()
        return "never"


@skald.hookimpl
def skald_tools(ctx: skald.PluginContext):
    return [Slow(Path(ctx.data_dir))]
"""


@pytest.fixture
def slow(tmp_path: Path, llm: ThreadedLlm) -> Iterator[tuple[ServerProcess, httpx.Client]]:
    """A server with a tool that never ends by itself, and its first user."""
    install(tmp_path / "site", "slow", SLOW)
    with ServerProcess(env={"PYTHONPATH": str(tmp_path / "site")}) as server:
        client = server.first_user()
        add_fake_model(client, llm.url)
        client.post("/api/plugins/slow/enable").raise_for_status()
        yield server, client
        client.close()


def test_kill_while_a_tool_runs_leaves_an_interrupted_result(
    slow: tuple[ServerProcess, httpx.Client], llm: ThreadedLlm
) -> None:
    """Case C3 b: after the restart nothing runs, the call has an "interrupted" result on disk, and it did not run again."""
    server, client = slow
    conversation = new_conversation(client)
    llm.script({"calls": [{"name": "slow", "arguments": {}}]}, {"text": "It was interrupted."})
    send(client, conversation, "go")
    log = server.data / "plugins" / "slow" / "begun"
    inbox = {"status": "pending"}
    (request,) = wait_until(lambda: client.get("/api/inbox", params=inbox).json()["items"], "permission is asked for")
    client.post(f"/api/requests/{request['id']}/answer", json={"choice": "allow_once"}).raise_for_status()
    wait_until(log.exists, "the tool runs")
    server.kill()
    server.start()
    again = server.sign_in()
    state = f"/api/conversations/{conversation}"
    wait_until(lambda: again.get(state).json()["state"] == "idle", "nothing stays running")
    server.kill()  # what is shown from here on was on disk
    server.start()
    last = server.sign_in()
    shown = messages(last, conversation)
    (call,) = shown[1]["calls"]
    assert (call["state"], call["result_kind"]) == ("failed", "interrupted")
    assert "interrupted" in call["result"].lower()
    assert shown[-1]["content"] == "It was interrupted."
    assert last.get(state).json()["state"] == "idle"
    assert log.read_text() == "begun\n"
    again.close()
    last.close()


@pytest.mark.parametrize("clean", [False, True], ids=["kill", "stop"])
def test_a_restart_between_two_turns_answers_each_queued_message_once(
    server: ServerProcess, client: httpx.Client, llm: ThreadedLlm, follow: Follow, clean: bool
) -> None:
    """Case C7: two messages behind a running turn; the server goes down as that turn ends, before the next has said a word."""
    conversation = new_conversation(client)
    live = follow(conversation)
    llm.script({"text": "first", "hold": True, "when": "one"})
    send(client, conversation, "one")
    live.until("assistant_started")
    send(client, conversation, "two")
    send(client, conversation, "three")
    llm.script({"text": "second", "hold": True, "when": "two"}, {"text": "third", "hold": True, "when": "three"})
    llm.release_once()
    live.until("turn_finished")
    if clean:
        server.stop()
    else:
        server.kill()
    llm.script({"text": "second", "when": "two"}, {"text": "third", "when": "three"})
    llm.release()
    server.start()
    again = server.sign_in()
    wait_until(lambda: len(messages(again, conversation)) == 6, "both are answered")
    state = f"/api/conversations/{conversation}"
    wait_until(lambda: again.get(state).json()["state"] == "idle", "nothing goes on")
    assert [m["content"] for m in messages(again, conversation)] == ["one", "first", "two", "second", "three", "third"]
    again.close()


WRONG = (
    {"name": "launch_rocket", "arguments": {}},
    {"name": "read_file", "arguments": {"path": ["not", "text"]}},
    {"name": "read_file", "arguments": '{"path": "a.txt'},
)


def test_each_wrong_call_gets_its_error_and_the_chat_goes_on(
    client: httpx.Client, llm: ThreadedLlm, follow: Follow
) -> None:
    """Case C10: an unknown tool, wrong types, broken JSON, and a tool disabled since the last turn."""
    live = follow(new_conversation(client))
    read = {"name": "read_file", "arguments": {"path": "a.txt"}}
    llm.script(
        {"calls": [read]}, {"text": "looked"}, {"calls": [*WRONG, read]}, {"text": "sorry"}, {"text": "still here"}
    )
    send(client, live.conversation, "look")
    assert live.until("turn_finished")["outcome"] == "success"
    client.post("/api/plugins/tools-fs/disable").raise_for_status()
    send(client, live.conversation, "look again")
    assert live.until("turn_finished")["outcome"] == "success"
    calls = messages(client, live.conversation)[4]["calls"]
    assert [(c["name"], c["state"], c["result_kind"]) for c in calls] == [
        ("launch_rocket", "failed", "error"),
        ("read_file", "failed", "error"),
        ("read_file", "failed", "error"),
        ("read_file", "failed", "error"),
    ]
    sent = llm.requests[-1]["messages"]
    made = next(m for m in sent if len(m.get("tool_calls") or ()) == 4)["tool_calls"]
    told = {m["tool_call_id"]: m["content"] for m in sent if m["role"] == "tool"}
    results = [told[c["id"]] for c in made]
    assert "unknown tool 'launch_rocket'" in results[0]
    assert all("unknown tool 'read_file'" in result for result in results[1:])
    assert WRONG[2]["arguments"] in json.loads(made[2]["function"]["arguments"]).values()  # servers refuse broken JSON
    send(client, live.conversation, "and now?")
    assert live.until("turn_finished")["outcome"] == "success"
    assert messages(client, live.conversation)[-1]["content"] == "still here"


def test_wrong_calls_of_a_known_tool_say_what_is_wrong(client: httpx.Client, llm: ThreadedLlm, follow: Follow) -> None:
    """Case C10, with the tool there: the types and the JSON are named, so that the model can put them right."""
    live = follow(new_conversation(client))
    llm.script({"calls": list(WRONG)}, {"text": "sorry"})
    send(client, live.conversation, "go")
    assert live.until("turn_finished")["outcome"] == "success"
    results = [m["content"] for m in llm.requests[-1]["messages"] if m["role"] == "tool"]
    assert "unknown tool 'launch_rocket'" in results[0]
    assert "path" in results[1]
    assert "not valid JSON" in results[2]


def test_a_sub_agents_request_is_answered_by_its_call(
    server: ServerProcess, client: httpx.Client, llm: ThreadedLlm, tmp_path: Path
) -> None:
    """Its events come wrapped in the parent's, its request is answered like any other, its write happens."""
    work = {"name": "execute_subtask", "arguments": {"agent_id": "worker", "title": "Note", "prompt": "write the note"}}
    write = {"name": "write_file", "arguments": {"path": "a.md", "content": "from below\n"}}
    llm.script({"calls": [work]}, {"calls": [write]}, {"text": "child done"}, {"text": "parent done"})
    with Program("delegate", "--interactive-permissions", env=environment(server, tmp_path)) as program:
        while (wrapped := program.until("subagent_event")["event"])["type"] != "permission_request":
            pass
        (asked,) = wrapped["requests"]
        program.send(type="permission_response", tool_use_id=asked["tool_use_id"], decision="allow")
        assert program.until("result")["final_text"] == "parent done"
        program.end_input()
        assert program.wait() == 0, program.stderr
    inner = [e["event"]["type"] for e in program.events if e["type"] == "subagent_event"]
    assert inner[0] == "system"
    assert inner[-1] == "result"
    assert [e["type"] for e in program.events].count("result") == 1
    assert [p.read_text() for p in server.data.glob("homes/*/a.md")] == ["from below\n"]
