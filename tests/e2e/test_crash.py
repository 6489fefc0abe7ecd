"""Killing the real server at the worst moments: nothing stays running, nothing acknowledged is lost."""

import httpx

from tests.support.fake_llm import ThreadedLlm
from tests.support.live import Live
from tests.support.server import ServerProcess, messages, new_conversation, send, wait_until

WRITE = {"name": "write_file", "arguments": {"path": "a.md", "content": "hello"}}


def restarted(server: ServerProcess) -> httpx.Client:
    """kill -9, start again, sign in."""
    server.kill()
    server.start()
    return server.sign_in()


def open_live(client: httpx.Client, conversation: str) -> Live:
    live = Live(client, conversation)
    live.until("snapshot")
    return live


def test_kill_while_streaming_keeps_the_partial_text(
    server: ServerProcess, client: httpx.Client, llm: ThreadedLlm
) -> None:
    """Case C3 a: the text so far is kept, marked interrupted; the chat is idle; Retry and Continue work."""
    conversation = new_conversation(client)
    llm.script({"tokens": 400, "delay": 0.01}, {"text": "once more"})
    live = open_live(client, conversation)
    send(client, conversation, "count")
    while len(live.text.split()) < 120:
        live.next()
    after = restarted(server)
    live.close()
    items = messages(after, conversation)
    assert after.get(f"/api/conversations/{conversation}").json()["state"] == "idle"
    assert items[-1]["status"] == "partial"
    assert len(items[-1]["content"].split()) >= 60
    assert items[-1]["error"]["kind"] == "interrupted"
    again = open_live(after, conversation)
    after.post(f"/api/conversations/{conversation}/retry").raise_for_status()
    again.until("turn_finished")
    assert messages(after, conversation)[-1]["content"] == "once more"
    again.close()
    after.close()


def test_kill_while_an_approval_waits_keeps_it_working(
    server: ServerProcess, client: httpx.Client, llm: ThreadedLlm
) -> None:
    """Case C3 c: after the restart the same request is in the inbox, once, and answering it runs the call."""
    conversation = new_conversation(client)
    llm.script({"calls": [WRITE]}, {"text": "written"})
    live = open_live(client, conversation)
    send(client, conversation, "write")
    request = live.until("approval_required")["request"]
    after = restarted(server)
    live.close()
    items = after.get("/api/inbox", params={"status": "pending"}).json()["items"]
    assert [r["id"] for r in items] == [request["id"]]
    again = open_live(after, conversation)
    after.post(f"/api/requests/{request['id']}/answer", json={"choice": "allow_once"}).raise_for_status()
    assert again.until("turn_finished")["outcome"] == "success"
    home = server.data / "homes" / after.get("/api/auth/me").json()["id"]
    assert (home / "a.md").read_text() == "hello"
    again.close()
    after.close()


def test_a_graceful_stop_keeps_a_waiting_approval_too(
    server: ServerProcess, client: httpx.Client, llm: ThreadedLlm
) -> None:
    """SIGTERM is no answer: the request is pending after the next start."""
    conversation = new_conversation(client)
    llm.script({"calls": [WRITE]}, {"text": "written"})
    live = open_live(client, conversation)
    send(client, conversation, "write")
    live.until("approval_required")
    assert server.stop() == 0
    live.close()
    server.start()
    after = server.sign_in()
    assert after.get("/api/inbox", params={"status": "pending"}).json()["pending"] == 1
    after.close()


def test_kill_with_messages_queued_answers_each_once(
    server: ServerProcess, client: httpx.Client, llm: ThreadedLlm
) -> None:
    """Case C7: two messages behind a running turn survive; each is answered once, in order."""
    conversation = new_conversation(client)
    llm.script({"calls": [WRITE]})
    live = open_live(client, conversation)
    send(client, conversation, "one")
    request = live.until("approval_required")["request"]
    send(client, conversation, "two")
    send(client, conversation, "three")
    after = restarted(server)
    live.close()
    llm.script({"text": "A1"}, {"text": "A2"}, {"text": "A3"})
    again = open_live(after, conversation)
    assert [q["content"] for q in again.queue] == ["two", "three"]
    after.post(f"/api/requests/{request['id']}/answer", json={"choice": "deny"}).raise_for_status()
    wait_until(
        lambda: (
            [m["content"] for m in messages(after, conversation) if m["content"]]
            == ["one", "A1", "two", "A2", "three", "A3"]
        ),
        "all three are answered in order",
    )
    assert len(llm.requests) == 4
    again.close()
    after.close()


def test_stop_in_a_batch_answers_every_call(server: ServerProcess, client: httpx.Client, llm: ThreadedLlm) -> None:
    """Case C8: three calls; the person stops after the first ended. "continue" sends three calls and three results, two of
    them "cancelled"."""
    conversation = new_conversation(client)
    calls = [{"name": "write_file", "arguments": {"path": f"{n}.md", "content": "x"}} for n in range(3)]
    llm.script({"calls": calls}, {"text": "fine"})
    live = open_live(client, conversation)
    send(client, conversation, "write three")
    first = live.until("approval_required")["request"]
    live.until("approval_required")
    live.until("approval_required")
    client.post(f"/api/requests/{first['id']}/answer", json={"choice": "allow_once"}).raise_for_status()
    live.until("tool_done")
    client.post(f"/api/conversations/{conversation}/stop").raise_for_status()
    live.until("turn_finished")
    assert client.get("/api/inbox", params={"status": "pending"}).json()["pending"] == 0
    send(client, conversation, "continue")
    live.until("turn_finished")
    sent = llm.requests[-1]["messages"]
    asked = next(m for m in sent if m["role"] == "assistant")["tool_calls"]
    results = [m for m in sent if m["role"] == "tool"]
    assert len(asked) == 3
    assert [c["id"] for c in asked] == [r["tool_call_id"] for r in results]
    contents = [r["content"] for r in results]
    assert "ancelled" not in contents[0]
    assert all("ancelled" in c or "topped" in c for c in contents[1:]), contents
    assert [path.name for path in server.data.glob("homes/*/*.md")] == ["0.md"]
    live.close()
