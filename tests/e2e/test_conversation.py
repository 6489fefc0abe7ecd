"""The main job through the real server: streaming, files, approval, queue, resending, two readers."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.support.fake_llm import ThreadedLlm
from tests.support.live import Live
from tests.support.server import ServerProcess, messages, new_conversation, send, wait_until

WRITE = {"name": "write_file", "arguments": {"path": "notes/todo.md", "content": "milk\nbread\n"}}
Follow = Callable[..., Live]


def home(server: ServerProcess, client: httpx.Client) -> Path:
    return server.data / "homes" / client.get("/api/auth/me").json()["id"]


def pending(client: httpx.Client) -> list[dict[str, object]]:
    return list(client.get("/api/inbox", params={"status": "pending"}).json()["items"])


def test_the_main_job(server: ServerProcess, client: httpx.Client, llm: ThreadedLlm, follow: Follow) -> None:
    """Asking for a file shows a card with the difference; allowing it once puts the file on disk."""
    conversation = new_conversation(client)
    live = follow(conversation)
    llm.script({"text": "I will note that.", "calls": [WRITE]}, {"text": "Done: notes/todo.md."})
    send(client, conversation, "Please write a shopping list")
    request = live.until("approval_required")["request"]
    assert request["tool"] == "write_file"
    assert request["path"] == "notes/todo.md"
    (change,) = request["details"]["changes"]
    assert change["kind"] == "create"
    assert "+milk" in change["diff"]
    assert [c["id"] for c in request["choices"]] == ["allow_once", "allow_conversation", "deny"]
    assert client.get(f"/api/conversations/{conversation}").json()["state"] == "waiting"
    assert not (home(server, client) / "notes/todo.md").exists()
    client.post(f"/api/requests/{request['id']}/answer", json={"choice": "allow_once"}).raise_for_status()
    assert live.until("tool_done")["state"] == "done"
    assert live.until("turn_finished")["outcome"] == "success"
    assert (home(server, client) / "notes/todo.md").read_text() == "milk\nbread\n"
    assert live.text == "Done: notes/todo.md."
    assert pending(client) == []
    assert client.get(f"/api/conversations/{conversation}").json()["title"] == "Please write a shopping list"


def test_reading_just_happens(server: ServerProcess, client: httpx.Client, llm: ThreadedLlm, follow: Follow) -> None:
    """A read in the home asks nobody, and its result reaches the model."""
    folder = home(server, client)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.txt").write_text("the secret is 42\n")
    conversation = new_conversation(client)
    live = follow(conversation)
    llm.script({"calls": [{"name": "read_file", "arguments": {"path": "a.txt"}}]}, {"text": "It is 42."})
    send(client, conversation, "What is the secret?")
    assert live.until("turn_finished")["outcome"] == "success"
    result = next(m for m in llm.requests[-1]["messages"] if m["role"] == "tool")
    assert "the secret is 42" in result["content"]


def test_denying_tells_the_model_why(
    server: ServerProcess, client: httpx.Client, llm: ThreadedLlm, follow: Follow
) -> None:
    """The note reaches the model as the call's result; nothing is written; one request has one answer."""
    conversation = new_conversation(client)
    live = follow(conversation)
    llm.script({"calls": [WRITE]}, {"text": "As you wish."})
    send(client, conversation, "write")
    request = live.until("approval_required")["request"]
    answer = {"choice": "deny", "note": "use shopping.md instead"}
    client.post(f"/api/requests/{request['id']}/answer", json=answer).raise_for_status()
    again = client.post(f"/api/requests/{request['id']}/answer", json={"choice": "allow_once"})
    assert again.status_code == 409
    assert again.json()["code"] == "already_answered"
    live.until("turn_finished")
    result = next(m for m in llm.requests[-1]["messages"] if m["role"] == "tool")
    assert "use shopping.md instead" in result["content"]
    assert not (home(server, client) / "notes/todo.md").exists()


def test_allowing_for_the_conversation_stops_asking_there_only(
    server: ServerProcess, client: httpx.Client, llm: ThreadedLlm, follow: Follow
) -> None:
    """The second write of this conversation just happens; another conversation still asks."""
    conversation = new_conversation(client)
    live = follow(conversation)
    second = {"name": "write_file", "arguments": {"path": "notes/b.md", "content": "b"}}
    llm.script({"calls": [WRITE]}, {"calls": [second]}, {"text": "both"}, {"calls": [second]}, {"text": "no"})
    send(client, conversation, "write twice")
    request = live.until("approval_required")["request"]
    client.post(f"/api/requests/{request['id']}/answer", json={"choice": "allow_conversation"}).raise_for_status()
    live.until("turn_finished")
    assert (home(server, client) / "notes/b.md").read_text() == "b"
    other = new_conversation(client)
    elsewhere = follow(other)
    send(client, other, "write again")
    elsewhere.until("approval_required")


def test_a_message_sent_three_times_is_stored_once(client: httpx.Client, llm: ThreadedLlm, follow: Follow) -> None:
    """Case C4: the same client-made id gives one message and one answer; an empty message is refused."""
    conversation = new_conversation(client)
    live = follow(conversation)
    for _ in range(3):
        send(client, conversation, "hello", client_id="only-once")
    live.until("turn_finished")
    send(client, conversation, "hello", client_id="only-once")
    empty = client.post(f"/api/conversations/{conversation}/messages", json={"client_id": "e", "content": "  "})
    assert empty.status_code == 422
    assert empty.json()["code"] == "empty_message"
    assert [m["role"] for m in messages(client, conversation)] == ["user", "assistant"]
    assert len(llm.requests) == 1


def test_messages_sent_while_running_wait_and_can_be_changed(
    client: httpx.Client, llm: ThreadedLlm, follow: Follow
) -> None:
    """Queued input shows up, can be edited or removed, and is answered in order."""
    conversation = new_conversation(client)
    live = follow(conversation)
    llm.script({"hold": True, "text": "first"}, {"text": "second"})
    send(client, conversation, "one")
    live.until("assistant_started")
    queued = send(client, conversation, "two")["queued"]
    gone = send(client, conversation, "never")["queued"]
    live.until("queue_changed")
    path = f"/api/conversations/{conversation}/queue"
    assert client.patch(f"{path}/{queued['id']}", json={"content": "two, better"}).status_code == 204
    assert client.delete(f"{path}/{gone['id']}").status_code == 204
    assert client.delete(f"{path}/{gone['id']}").status_code == 409
    llm.release()
    live.until("turn_finished")
    live.until("turn_finished")
    assert [m["content"] for m in messages(client, conversation)] == ["one", "first", "two, better", "second"]


def test_reload_mid_stream_shows_every_token_once(client: httpx.Client, llm: ThreadedLlm, follow: Follow) -> None:
    """Case C1: 200 numbered tokens; a socket dropped in the middle resumes without a gap, a reload gets a snapshot."""
    conversation = new_conversation(client)
    llm.script({"tokens": 200, "delay": 0.01})
    steady = follow(conversation)
    dropped = follow(conversation)
    send(client, conversation, "count")
    while len(dropped.text.split()) < 80:
        dropped.next()
    dropped.drop()
    while len(steady.text.split()) < 120:
        steady.next()
    dropped.open()
    reloaded = follow(conversation)
    assert reloaded.running
    for live in (steady, dropped, reloaded):
        live.until("turn_finished")
        assert live.text.split() == [str(n) for n in range(1, 201)]


def test_a_frozen_client_finds_the_message_complete(client: httpx.Client, llm: ThreadedLlm, follow: Follow) -> None:
    """Case C2: a client that stopped reading and lost its socket gets the finished message when it returns."""
    conversation = new_conversation(client)
    live = follow(conversation)
    llm.script({"tokens": 100, "delay": 0.005})
    send(client, conversation, "count")
    while len(live.text.split()) < 50:
        live.next()
    live.drop()
    state = f"/api/conversations/{conversation}"
    wait_until(lambda: client.get(state).json()["state"] == "idle", "the run goes on without its reader")
    live.open()
    live.until("turn_finished")
    assert not live.running
    assert live.text.split()[-1] == "100"


def test_stop_ends_the_answer_and_keeps_its_text(client: httpx.Client, llm: ThreadedLlm, follow: Follow) -> None:
    """What was said stays, marked partial, with Retry possible; retrying answers as a new branch."""
    conversation = new_conversation(client)
    live = follow(conversation)
    llm.script({"tokens": 500, "delay": 0.01}, {"text": "all of it"})
    send(client, conversation, "count")
    while len(live.text.split()) < 10:
        live.next()
    client.post(f"/api/conversations/{conversation}/stop").raise_for_status()
    assert live.until("turn_finished")["outcome"] == "aborted"
    last = messages(client, conversation)[-1]
    assert last["status"] == "partial"
    assert last["content"].startswith("1 2 3")
    assert last["error"]["kind"] == "aborted"
    client.post(f"/api/conversations/{conversation}/retry").raise_for_status()
    live.until("turn_finished")
    last = messages(client, conversation)[-1]
    assert last["content"] == "all of it"
    assert len(last["siblings"]) == 2


def test_wrong_calls_get_error_results_and_the_chat_goes_on(
    client: httpx.Client, llm: ThreadedLlm, follow: Follow
) -> None:
    """Case C10: unknown tool, wrong types, broken JSON, a tool disabled since the last turn."""
    conversation = new_conversation(client)
    live = follow(conversation)
    calls = [
        {"name": "launch_rocket", "arguments": {}},
        {"name": "read_file", "arguments": {"path": ["not", "text"]}},
        {"name": "read_file", "arguments": '{"path": "a.txt'},
    ]
    llm.script(
        {"calls": calls},
        {"text": "sorry"},
        {"calls": [{"name": "read_file", "arguments": {"path": "a"}}]},
        {"text": "ok"},
    )
    send(client, conversation, "go")
    assert live.until("turn_finished")["outcome"] == "success"
    assert [c["state"] for c in messages(client, conversation)[1]["calls"]] == ["failed"] * 3
    results = [m for m in llm.requests[1]["messages"] if m["role"] == "tool"]
    assert len(results) == 3
    assert "launch_rocket" in results[0]["content"]
    client.post("/api/plugins/tools-fs/disable").raise_for_status()
    send(client, conversation, "again")
    assert live.until("turn_finished")["outcome"] == "success"
    assert messages(client, conversation)[-1]["content"] == "ok"


def test_without_a_gate_every_call_is_denied_and_the_chat_says_why(
    client: httpx.Client, llm: ThreadedLlm, follow: Follow
) -> None:
    """Disabling the last judging plugin denies all calls; the notice and `me` name the plugin to enable."""
    client.post("/api/plugins/approval/disable").raise_for_status()
    me = client.get("/api/auth/me").json()
    assert me["gate"] is False
    assert [p["id"] for p in me["gate_plugins"]] == ["approval"]
    conversation = new_conversation(client)
    live = follow(conversation)
    llm.script({"calls": [{"name": "read_file", "arguments": {"path": "a.txt"}}]}, {"text": "I may not."})
    send(client, conversation, "read")
    notice = live.until("notice")
    assert notice["code"] == "no_gate"
    live.until("turn_finished")
    (call,) = messages(client, conversation)[1]["calls"]
    assert call["state"] == "rejected"
    client.post("/api/plugins/approval/enable").raise_for_status()
    assert client.get("/api/auth/me").json()["gate"] is True


def test_deleting_a_conversation_takes_everything_with_it(
    client: httpx.Client, llm: ThreadedLlm, follow: Follow
) -> None:
    """History and requests are gone; the id answers 404 everywhere."""
    conversation = new_conversation(client)
    live = follow(conversation)
    llm.script({"calls": [WRITE]})
    send(client, conversation, "write")
    live.until("approval_required")
    assert client.delete(f"/api/conversations/{conversation}").status_code == 204
    assert pending(client) == []
    for path in ("", "/messages"):
        assert client.get(f"/api/conversations/{conversation}{path}").status_code == 404
    assert client.get("/api/conversations").json()["items"] == []


@pytest.mark.parametrize(
    ("step", "kind", "words"),
    [
        ({"status": 401, "body": {"error": {"message": "bad key"}}}, "auth", "key"),
        ({"status": 404, "body": {"error": {"message": "no model"}}}, "model_gone", "model"),
        ({"html": True}, "protocol", "web page"),
        ({"tokens": 9, "cut_after": 3}, "network", ""),
    ],
)
def test_a_failing_model_ends_in_one_clear_sentence(
    client: httpx.Client, llm: ThreadedLlm, follow: Follow, step: dict[str, object], kind: str, words: str
) -> None:
    """A refused key, a model that is gone, a web page, a cut stream: the cause is told, the message is kept, retry works."""
    conversation = new_conversation(client)
    live = follow(conversation)
    llm.script(*([step] * 4))
    send(client, conversation, "hello")
    end = live.until("turn_finished", timeout=60)
    assert end["outcome"] == "error"
    assert end["error"]["kind"] == kind
    assert words in end["error"]["message"]
    items = messages(client, conversation)
    assert items[0]["content"] == "hello"
    assert items[-1]["error"]["message"] == end["error"]["message"]
    llm.script({"text": "better now"})
    client.post(f"/api/conversations/{conversation}/retry").raise_for_status()
    assert live.until("turn_finished")["outcome"] == "success"
    assert messages(client, conversation)[-1]["content"] == "better now"
