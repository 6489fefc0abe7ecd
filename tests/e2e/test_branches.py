"""Branches, deletion, export and import through the real server (case C12), and what live clients hear of siblings."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.support.fake_llm import ThreadedLlm
from tests.support.live import Live
from tests.support.server import ServerProcess, messages, new_conversation, send

Follow = Callable[..., Live]
Json = dict[str, Any]

READ = {"name": "read_file", "arguments": '{"path":  "a.txt"}'}


def say(client: httpx.Client, live: Live, text: str) -> None:
    send(client, live.conversation, text)
    assert live.until("turn_finished")["outcome"] == "success"


def path(client: httpx.Client, conversation: str) -> list[str]:
    return [m["content"] for m in messages(client, conversation)]


def shape(client: httpx.Client, conversation: str) -> list[Json]:
    """The visible path without ids: what two copies of a conversation have in common."""
    found = []
    for message in messages(client, conversation):
        place = message["siblings"].index(message["id"]), len(message["siblings"])
        calls = [{k: c[k] for k in ("name", "arguments", "state", "result", "result_kind")} for c in message["calls"]]
        same = {k: message[k] for k in ("role", "content", "reasoning", "status", "model", "usage", "created_at")}
        found.append({**same, "place": place, "calls": calls})
    return found


def seen_by_model(client: httpx.Client, llm: ThreadedLlm, live: Live) -> list[Json]:
    """The history a model is sent with one more message, without the system prompt and that message, which tell the time."""
    llm.script({"text": "probed"})
    say(client, live, "probe")
    return [m for m in llm.requests[-1]["messages"] if m["role"] != "system"][:-1]


def ten_turns(server: ServerProcess, client: httpx.Client, llm: ThreadedLlm, follow: Follow) -> Live:
    """Ten turns, the fifth with a tool, a branch at the third, shown on the long branch again, the seventh deleted."""
    home = server.data / "homes" / client.get("/api/auth/me").json()["id"]
    home.mkdir(parents=True, exist_ok=True)
    (home / "a.txt").write_text("the secret is 42\n")
    live = follow(new_conversation(client))
    for number in range(1, 11):
        answer: list[Json] = [{"text": f"answer {number}"}]
        llm.script(*([{"calls": [READ]}, *answer] if number == 5 else answer))
        say(client, live, f"question {number}")
    long = messages(client, live.conversation)
    third = next(m for m in long if m["content"] == "question 3")
    llm.script({"text": "another answer 3"})
    body = {"client_id": "edit", "message": third["id"], "content": "another question 3"}
    client.post(f"/api/conversations/{live.conversation}/edit", json=body).raise_for_status()
    assert live.until("turn_finished")["outcome"] == "success"
    assert path(client, live.conversation)[4:] == ["another question 3", "another answer 3"]
    client.post(f"/api/conversations/{live.conversation}/head", json={"message": third["id"]}).raise_for_status()
    seventh = next(m for m in long if m["content"] == "answer 7")
    deleted = client.delete(f"/api/conversations/{live.conversation}/messages/{seventh['id']}")
    assert deleted.status_code == 200
    assert deleted.json() == {"deleted": [seventh["parent"], seventh["id"]]}
    return live


def test_a_branched_conversation_survives_export_import_and_restart(
    server: ServerProcess, client: httpx.Client, llm: ThreadedLlm, follow: Follow
) -> None:
    """Case C12: the same visible path and the same model messages everywhere; the tool turn stays call and result."""
    live = ten_turns(server, client, llm, follow)
    expected = []
    for number in (1, 2, 3, 4, 5, 6, 8, 9, 10):
        expected += [f"question {number}", *([""] if number == 5 else []), f"answer {number}"]
    assert path(client, live.conversation) == expected
    archive = client.get(f"/api/conversations/{live.conversation}/export")
    assert archive.headers["content-disposition"] == 'attachment; filename="question-1.skald.json"'
    assert "question 7" not in archive.text
    made = client.post("/api/conversations/import", params={"client_id": "i1"}, content=archive.content)
    assert made.status_code == 201
    copy = made.json()["id"]
    assert made.json()["title"] == "question 1"
    again = client.post("/api/conversations/import", params={"client_id": "i1"}, content=archive.content)
    assert again.json()["id"] == copy
    original = shape(client, live.conversation)
    assert shape(client, copy) == original
    assert original[4]["place"] == (0, 2)
    tool_turn = original[9]["calls"]
    assert [(c["name"], c["arguments"], c["state"]) for c in tool_turn] == [("read_file", READ["arguments"], "done")]

    server.kill()
    server.start()
    signed_in = server.sign_in()
    for conversation in (live.conversation, copy):
        assert shape(signed_in, conversation) == original
    wires = [
        seen_by_model(signed_in, llm, follow(conversation, signed_in)) for conversation in (live.conversation, copy)
    ]
    assert wires[0] == wires[1]
    assert [m["content"] for m in wires[0] if m["role"] == "user"] == [t for t in expected if t.startswith("question")]
    index = next(i for i, m in enumerate(wires[0]) if m.get("tool_calls"))
    (call,) = wires[0][index]["tool_calls"]
    assert call["function"] == READ
    assert wires[0][index + 1]["role"] == "tool"
    assert wires[0][index + 1]["tool_call_id"] == call["id"]
    assert "the secret is 42" in wires[0][index + 1]["content"]

    # The other branch came along, too.
    for conversation in (live.conversation, copy):
        (other,) = set(messages(signed_in, conversation)[4]["siblings"]) - {messages(signed_in, conversation)[4]["id"]}
        signed_in.post(f"/api/conversations/{conversation}/head", json={"message": other}).raise_for_status()
        assert path(signed_in, conversation)[4:] == ["another question 3", "another answer 3"]
    signed_in.close()


def test_live_clients_hear_of_siblings(client: httpx.Client, llm: ThreadedLlm, follow: Follow) -> None:
    """Messages in events name the others in their place, as those read over HTTP do."""
    live = follow(new_conversation(client))
    llm.script({"text": "one"}, {"text": "two"}, {"text": "three"})
    say(client, live, "first")
    question, answer = messages(client, live.conversation)
    url = f"/api/conversations/{live.conversation}"
    client.post(f"{url}/regenerate", json={"message": answer["id"]}).raise_for_status()
    told = live.until("assistant_message")["message"]
    assert told["siblings"] == [answer["id"], told["id"]]
    live.until("turn_finished")
    body = {"client_id": "e", "message": question["id"], "content": "second"}
    client.post(f"{url}/edit", json=body).raise_for_status()
    asked = live.until("user_message")["message"]
    assert asked["siblings"] == [question["id"], asked["id"]]
    alone = live.until("assistant_message")["message"]
    assert alone["siblings"] == [alone["id"]]
    live.until("turn_finished")
    assert [m["siblings"] for m in messages(client, live.conversation)] == [asked["siblings"], alone["siblings"]]


def test_deleting_the_last_turn_shows_the_newest_of_what_is_left(
    client: httpx.Client, llm: ThreadedLlm, follow: Follow
) -> None:
    """Its other version takes its place; without one the conversation ends before it, and goes on from there."""
    live = follow(new_conversation(client))
    llm.script({"text": "A"}, {"text": "B"}, {"text": "B again"}, {"text": "C"})
    say(client, live, "a")
    say(client, live, "b")
    url = f"/api/conversations/{live.conversation}"
    body = {"client_id": "e", "message": messages(client, live.conversation)[2]["id"], "content": "b again"}
    client.post(f"{url}/edit", json=body).raise_for_status()
    live.until("turn_finished")
    last = messages(client, live.conversation)[-1]
    client.delete(f"{url}/messages/{last['id']}").raise_for_status()
    live.until("history_changed")
    assert path(client, live.conversation) == ["a", "A", "b", "B"]
    client.delete(f"{url}/messages/{messages(client, live.conversation)[2]['id']}").raise_for_status()
    assert path(client, live.conversation) == ["a", "A"]
    say(client, live, "c")
    assert path(client, live.conversation) == ["a", "A", "c", "C"]
    assert client.delete(f"{url}/messages/{last['id']}").json()["code"] == "message_not_found"


def test_a_deleted_message_does_not_come_back_when_resent(
    client: httpx.Client, llm: ThreadedLlm, follow: Follow
) -> None:
    """A late resend of the same client-made id stores and answers nothing."""
    live = follow(new_conversation(client))
    send(client, live.conversation, "hello", client_id="once")
    live.until("turn_finished")
    (question, _) = messages(client, live.conversation)
    client.delete(f"/api/conversations/{live.conversation}/messages/{question['id']}").raise_for_status()
    sent = send(client, live.conversation, "hello", client_id="once")
    assert (sent["message"], sent["queued"], sent["known"]) == (None, None, True)
    assert path(client, live.conversation) == []


def test_nothing_is_deleted_while_an_answer_runs(client: httpx.Client, llm: ThreadedLlm, follow: Follow) -> None:
    """The running turn has the history in its hands, so the deletion is refused and says why."""
    live = follow(new_conversation(client))
    say(client, live, "first")
    llm.script({"text": "later", "hold": True})
    send(client, live.conversation, "second")
    live.until("assistant_started")
    first = messages(client, live.conversation)[0]
    answer = client.delete(f"/api/conversations/{live.conversation}/messages/{first['id']}")
    assert (answer.status_code, answer.json()["code"]) == (409, "busy")
    llm.release()
    live.until("turn_finished")
    assert path(client, live.conversation)[0] == "first"


def test_the_request_of_a_deleted_call_goes_with_it(
    server: ServerProcess, client: httpx.Client, llm: ThreadedLlm, follow: Follow
) -> None:
    """What its card showed is not kept in the inbox."""
    live = follow(new_conversation(client))
    llm.script({"calls": [{"name": "write_file", "arguments": {"path": "a.md", "content": "private"}}]}, {"text": "no"})
    send(client, live.conversation, "write")
    request = live.until("approval_required")["request"]
    client.post(f"/api/requests/{request['id']}/answer", json={"choice": "deny"}).raise_for_status()
    live.until("turn_finished")
    assert "private" in client.get("/api/inbox").text
    first = messages(client, live.conversation)[0]
    client.delete(f"/api/conversations/{live.conversation}/messages/{first['id']}").raise_for_status()
    assert client.get("/api/inbox").json()["items"] == []


GOOD: Json = {"format": "skald-conversation", "version": 1, "head": 2, "agent": "", "checkpoints": [], "messages": [
    {"id": 1, "frame": 1, "parent": None, "role": "user", "content": "q"},
    {"id": 2, "frame": 1, "parent": 1, "role": "assistant", "content": "a"},
]}  # fmt: skip


def changed(**fields: Any) -> bytes:
    return json.dumps(GOOD | fields).encode()


def message(**fields: Any) -> bytes:
    return changed(messages=[GOOD["messages"][0], GOOD["messages"][1] | fields])


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "import_not_an_export"),
        (b"\x89PNG\r\n", "import_not_an_export"),
        (changed()[:-20], "import_not_an_export"),
        (changed(format="zip"), "import_not_an_export"),
        (b'{"messages": 3}', "import_not_an_export"),
        (b'{"a":' * 100_000, "import_not_an_export"),
        (changed(version=2), "import_newer_version"),
        (changed(version=2, messages={"something": "else"}), "import_newer_version"),
        (changed(version=0), "import_newer_version"),
        (changed(head=99), "import_damaged"),
        (message(parent=77), "import_damaged"),
        (message(parent=2), "import_damaged"),
        (message(id=1), "import_damaged"),
        (message(id=0), "import_damaged"),
        (message(role="root"), "import_not_an_export"),
        (message(created_at=2**70), "import_damaged"),
        (message(calls=[{"id": 5, "message": 2}]), "import_not_an_export"),
        (b"\xff" + changed(), "import_not_an_export"),
        (b'{"format": "skald-conversation", "messages": [' + b" " * (65 * 1024 * 1024), "import_too_large"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_cannot_be_imported_is_told_and_stores_nothing(client: httpx.Client, data: bytes, code: str) -> None:
    """Cut off, foreign, of another version, damaged, too large: one clear problem each, and no conversation."""
    answer = client.post("/api/conversations/import", content=data)
    assert answer.status_code == (413 if code == "import_too_large" else 422), answer.text
    assert answer.json()["code"] == code
    assert "nothing was imported" in answer.json()["detail"]
    assert client.get("/api/conversations").json()["items"] == []
    assert client.post("/api/conversations/import", content=changed()).status_code == 201


def test_an_import_of_100_mb_is_refused_without_reading_it(client: httpx.Client) -> None:
    """The size it is announced with is enough to refuse it."""
    answer = client.post("/api/conversations/import", content=b" " * (100 * 1024 * 1024))
    assert (answer.status_code, answer.json()["code"]) == (413, "import_too_large")
    assert client.get("/api/conversations").json()["items"] == []


def test_a_large_import_works(client: httpx.Client) -> None:
    """Beyond the limit of other requests."""
    big = message(content="x" * (8 * 1024 * 1024))
    made = client.post("/api/conversations/import", content=big)
    assert made.status_code == 201
    assert [len(m["content"]) for m in messages(client, made.json()["id"])] == [1, 8 * 1024 * 1024]


def test_an_imported_conversation_belongs_to_who_imported_it(
    server: ServerProcess, client: httpx.Client, llm: ThreadedLlm, follow: Follow
) -> None:
    """Another person's export becomes a conversation of one's own; theirs stays out of reach."""
    live = follow(new_conversation(client))
    say(client, live, "mine")
    data = client.get(f"/api/conversations/{live.conversation}/export").content
    member = {"username": "bo", "password": "a long password", "display_name": "", "role": "member"}
    client.post("/api/users", json={**member, "encrypted": True, "locale": "en"}).raise_for_status()
    other = server.sign_in("bo", "a long password")
    assert other.get(f"/api/conversations/{live.conversation}/export").status_code == 404
    mine = messages(client, live.conversation)[0]["id"]
    assert other.delete(f"/api/conversations/{live.conversation}/messages/{mine}").status_code == 404
    made = other.post("/api/conversations/import", content=data).json()
    assert path(other, made["id"])[0] == "mine"
    assert len(client.get("/api/conversations").json()["items"]) == 1
    other.close()


def test_an_imported_message_shows_what_models_read(client: httpx.Client) -> None:
    """A file cannot show one text and have a model read another."""
    hidden = {"prompt": "what is read", "hook_context": "and this", "kept": 1}
    crafted = GOOD["messages"][0] | {"content": "what is shown", "metadata": hidden}
    made = client.post("/api/conversations/import", content=changed(head=1, messages=[crafted]))
    assert made.status_code == 201, made.text
    [shown, *_] = messages(client, made.json()["id"])
    assert shown["content"] == "what is read\n\n<context>\nand this\n</context>"
