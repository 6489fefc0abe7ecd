"""The line protocol of `skald run --json` (docs/cli.md): a real server, a real process, its real pipes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import httpx
import msgspec
import pytest

from skald_core.loop.events import Event
from tests.support.fake_llm import ThreadedLlm
from tests.support.live import Live
from tests.support.program import Program, environment
from tests.support.server import ROOT, ServerProcess, messages, new_conversation, send, wait_until

WRITE = {"name": "write_file", "arguments": {"path": "a.md", "content": "hello\n"}}
Follow = Callable[..., Live]


@pytest.fixture
def env(server: ServerProcess, tmp_path: Path) -> dict[str, str]:
    return environment(server, tmp_path)


def kinds(program: Program) -> list[str]:
    """Types in order; pieces of an answer count once."""
    found: list[str] = []
    for event in program.events:
        if not found or found[-1] != event["type"] or event["type"] != "partial_assistant":
            found.append(event["type"])
    return found


def files(server: ServerProcess, name: str = "a.md") -> list[str]:
    return [path.read_text() for path in server.data.glob(f"homes/*/{name}")]


def conversation_of(client: httpx.Client) -> str:
    return str(client.get("/api/conversations").json()["items"][0]["id"])


def skald(*args: str, env: dict[str, str], text: str | None = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "skald_core", *args], capture_output=True, text=True, env=env, input=text, timeout=60
    )


def test_one_prompt(client: httpx.Client, llm: ThreadedLlm, env: dict[str, str]) -> None:
    """Every event of the run from `system` to `result`, nothing else on standard output, status 0 at the end of input."""
    llm.script({"text": "Forty two."})
    with Program("What is it?", env=env, stdin=False) as program:
        assert program.wait() == 0, program.stderr
    assert kinds(program) == [
        "system", "user", "round_started", "partial_assistant", "assistant", "usage", "result",
    ]  # fmt: skip
    text = "".join(e["text"] for e in program.events if e["type"] == "partial_assistant")
    result = program.events[-1]
    assert text == result["final_text"] == "Forty two."
    assert result["subtype"] == "success"
    assert result["run_id"] == program.events[0]["run_id"]
    assert (program.events[0]["permission_mode"], program.events[0]["cwd"]) == ("plugins", "~")
    assert program.stderr == ""


def test_end_of_input_waits_for_the_run(client: httpx.Client, llm: ThreadedLlm, env: dict[str, str]) -> None:
    """Input that ends while a run goes on does not cut it short; prompts that were read are all answered."""
    llm.script({"text": "first", "hold": True}, {"text": "second"})
    with Program(env=env) as program:
        program.send(type="prompt", text="one")
        program.send(type="prompt", text="two")
        program.until("round_started")
        program.end_input()
        llm.release()
        assert program.wait() == 0, program.stderr
    assert [e["final_text"] for e in program.events if e["type"] == "result"] == ["first", "second"]
    assert len({e["run_id"] for e in program.events if e["type"] in ("system", "result")}) == 2
    assert [m["content"] for m in messages(client, conversation_of(client))] == ["one", "first", "two", "second"]


def test_end_of_input_while_idle_ends_it(client: httpx.Client, env: dict[str, str]) -> None:
    """Without a prompt nothing is made, and nothing is left behind."""
    with Program(env=env) as program:
        program.end_input()
        assert program.wait() == 0, program.stderr
    assert program.events == []
    assert client.get("/api/conversations").json()["items"] == []


def test_unknown_and_broken_lines_are_ignored(client: httpx.Client, llm: ThreadedLlm, env: dict[str, str]) -> None:
    """A type of a later version is ignored in silence; what is no JSON, or misses a field, is told on standard error."""
    llm.script({"text": "fine"})
    with Program(env=env) as program:
        program.send(type="set_mood", mood="good")
        program.send_text("")
        program.send_text("this is no JSON")
        program.send_text("[1, 2]")
        program.send(type="prompt")
        program.send(type="permission_response", tool_use_id="x", decision="perhaps")
        program.send(type="permission_response", tool_use_id="nobody", decision="allow")
        program.send(type="abort")
        program.send(type="prompt", text="go on", later_field=True)
        program.until("result", subtype="success")
        program.end_input()
        assert program.wait() == 0
    notes = program.stderr.splitlines()
    assert [note.split(" was")[0] for note in notes] == [f"skald: line {n}" for n in (3, 4, 5, 6, 7)], program.stderr
    assert "'nobody'" in notes[-1]


@pytest.mark.parametrize("interactive", [False, True])
def test_permission_is_denied_where_nobody_can_give_it(
    server: ServerProcess, client: httpx.Client, llm: ThreadedLlm, env: dict[str, str], interactive: bool
) -> None:
    """Without the option, or with it once input has ended, asking means no; the model is told; nothing is left to answer."""
    llm.script({"calls": [WRITE]}, {"text": "I may not."})
    options = ["--interactive-permissions"] if interactive else []
    with Program("write", *options, env=env, stdin=False) as program:
        assert program.wait() == 0, program.stderr
    order = kinds(program)
    assert order.index("permission_request") < order.index("tool_call_start") < order.index("tool_call_end")
    (end,) = [e for e in program.events if e["type"] == "tool_call_end"]
    assert end["state"] == "rejected"
    assert "nobody is there to ask" in end["result"]
    assert files(server) == []
    assert client.get("/api/inbox", params={"status": "pending"}).json()["items"] == []


def test_permissions_are_answered_by_their_calls(
    server: ServerProcess, client: httpx.Client, llm: ThreadedLlm, env: dict[str, str]
) -> None:
    """Two calls of one round, answered in the other order: one allowed, one denied with a reason the model reads."""
    other = {"name": "write_file", "arguments": {"path": "b.md", "content": "b"}}
    llm.script({"calls": [WRITE, other]}, {"text": "Half done."})
    with Program("write both", "--interactive-permissions", env=env) as program:
        first, second = program.until("permission_request")["requests"]
        assert first["input"] == WRITE["arguments"]
        program.send(
            type="permission_response", tool_use_id=second["tool_use_id"], decision="deny", reason="not that one"
        )
        program.send(type="permission_response", tool_use_id=first["tool_use_id"], decision="allow")
        program.until("result", subtype="success")
        program.end_input()
        assert program.wait() == 0, program.stderr
    states = {e["tool_use_id"]: e["state"] for e in program.events if e["type"] == "tool_call_end"}
    assert states == {first["tool_use_id"]: "done", second["tool_use_id"]: "rejected"}
    assert files(server) == ["hello\n"]
    assert files(server, "b.md") == []
    results = [m["content"] for m in llm.requests[-1]["messages"] if m["role"] == "tool"]
    assert "not that one" in results[1]


def test_updated_input_runs_instead(
    server: ServerProcess, client: httpx.Client, llm: ThreadedLlm, env: dict[str, str]
) -> None:
    """What was allowed with other arguments runs with those, and says so in its events and in the history."""
    llm.script({"calls": [WRITE]}, {"text": "Done."})
    changed = {"path": "safe.md", "content": "better\n"}
    with Program("write", "--interactive-permissions", env=env) as program:
        (asked,) = program.until("permission_request")["requests"]
        program.send(
            type="permission_response", tool_use_id=asked["tool_use_id"], decision="allow", updated_input=changed
        )
        assert program.until("tool_call_start")["input"] == changed
        assert program.until("tool_call_end")["state"] == "done"
        program.end_input()
        assert program.wait() == 0, program.stderr
    assert files(server) == []
    assert files(server, "safe.md") == ["better\n"]
    (call,) = messages(client, conversation_of(client))[1]["calls"]
    assert json.loads(call["arguments"]) == changed


@pytest.mark.parametrize(
    ("changed", "words"), [({"path": 5}, "path"), ({"path": "../../etc/x", "content": "x"}, "")], ids=["type", "rule"]
)
def test_updated_input_is_checked_and_judged(
    server: ServerProcess,
    client: httpx.Client,
    llm: ThreadedLlm,
    env: dict[str, str],
    changed: dict[str, Any],
    words: str,
) -> None:
    """Arguments the tool or a rule refuses do not run, whoever wrote them; the run goes on."""
    llm.script({"calls": [WRITE]}, {"text": "No."})
    with Program("write", "--interactive-permissions", env=env) as program:
        (asked,) = program.until("permission_request")["requests"]
        program.send(
            type="permission_response", tool_use_id=asked["tool_use_id"], decision="allow", updated_input=changed
        )
        end = program.until("tool_call_end")
        program.end_input()
        assert program.wait() == 0, program.stderr
    assert end["state"] in ("rejected", "failed")
    assert words in end["result"]
    assert files(server) == []
    assert not list(server.data.parent.glob("etc/x"))


def test_an_answer_from_another_surface_counts(
    server: ServerProcess, client: httpx.Client, llm: ThreadedLlm, env: dict[str, str]
) -> None:
    """The browser's answer lets the run go on; a later one from here is told to be too late and changes nothing."""
    llm.script({"calls": [WRITE]}, {"text": "Done.", "hold": True})
    with Program("write", "--interactive-permissions", env=env) as program:
        (asked,) = program.until("permission_request")["requests"]
        (request,) = wait_until(
            lambda: client.get("/api/inbox", params={"status": "pending"}).json()["items"], "the request"
        )
        client.post(f"/api/requests/{request['id']}/answer", json={"choice": "allow_once"}).raise_for_status()
        program.until("tool_call_end", state="done")
        program.send(type="permission_response", tool_use_id=asked["tool_use_id"], decision="deny")
        llm.release()
        program.until("result", subtype="success")
        program.end_input()
        assert program.wait() == 0, program.stderr
    assert files(server) == ["hello\n"]
    assert "waits for an answer" in program.stderr


def test_abort_stops_the_run(client: httpx.Client, llm: ThreadedLlm, env: dict[str, str]) -> None:
    """An `abort` line ends the run as aborted, with its reason, and drops what was to come; the session takes prompts on."""
    llm.script({"tokens": 900, "delay": 0.02}, {"text": "again"})
    with Program("count", env=env) as program:
        program.send(type="prompt", text="never")
        program.until("partial_assistant")
        program.send(type="abort", reason="enough")
        result = program.until("result")
        assert (result["subtype"], result["reason"]) == ("aborted", "enough")
        program.send(type="prompt", text="once more")
        assert program.until("result")["final_text"] == "again"
        program.end_input()
        assert program.wait() == 0, program.stderr
    asked = [m["content"] for m in messages(client, conversation_of(client)) if m["role"] == "user"]
    assert asked == ["count", "once more"]


def test_an_aborted_run_is_status_130(client: httpx.Client, llm: ThreadedLlm, env: dict[str, str]) -> None:
    """The status is that of the last run."""
    llm.script({"tokens": 900, "delay": 0.02})
    with Program("count", env=env) as program:
        program.until("partial_assistant")
        program.send(type="abort")
        program.end_input()
        assert program.wait() == 130, program.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_run_and_is_the_status(
    client: httpx.Client, llm: ThreadedLlm, env: dict[str, str], number: signal.Signals, status: int
) -> None:
    """The run's end is still told; on the server nothing goes on."""
    llm.script({"tokens": 900, "delay": 0.02})
    with Program("count", env=env) as program:
        program.until("partial_assistant")
        program.signal(number)
        assert program.wait() == status, program.stderr
    assert program.events[-1]["type"] == "result"
    assert program.events[-1]["subtype"] == "aborted"
    assert client.get(f"/api/conversations/{conversation_of(client)}").json()["state"] == "idle"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_idle(
    client: httpx.Client, llm: ThreadedLlm, env: dict[str, str], number: signal.Signals, status: int
) -> None:
    """It ends at once, with the same status."""
    llm.script({"text": "hi"})
    with Program("hello", env=env) as program:
        program.until("result")
        program.signal(number)
        assert program.wait() == status, program.stderr


def test_a_signal_while_permission_waits(
    server: ServerProcess, client: httpx.Client, llm: ThreadedLlm, env: dict[str, str]
) -> None:
    """The call ends as cancelled and its request does not stay in the inbox."""
    llm.script({"calls": [WRITE]})
    with Program("write", "--interactive-permissions", env=env) as program:
        program.until("permission_request")
        program.signal(signal.SIGINT)
        assert program.wait() == 130, program.stderr
    assert [e["state"] for e in program.events if e["type"] == "tool_call_end"] == ["cancelled"]
    assert client.get("/api/inbox", params={"status": "pending"}).json()["items"] == []
    assert files(server) == []


def test_a_reader_that_goes_away_aborts(client: httpx.Client, llm: ThreadedLlm, env: dict[str, str]) -> None:
    """A broken pipe stops the run on the server, too."""
    llm.script({"tokens": 900, "delay": 0.02})
    env["PYTHONUNBUFFERED"] = "1"
    with subprocess.Popen(
        [sys.executable, "-m", "skald_core", "run", "--json", "count"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
    ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["type"] == "system"
        process.stdout.close()
        assert process.wait(40) == 130
    last = messages(client, conversation_of(client))[-1]
    assert last["error"]["kind"] == "aborted"


def test_a_failing_run_is_status_1(client: httpx.Client, llm: ThreadedLlm, env: dict[str, str]) -> None:
    """`error` says why, `result` ends it, and the status is 1."""
    llm.script({"html": True})
    with Program("hello", env=env, stdin=False) as program:
        assert program.wait() == 1
    error, result = program.events[-2:]
    assert (error["type"], error["kind"]) == ("error", "protocol")
    assert (result["type"], result["subtype"]) == ("result", "error")


def test_a_refused_key_is_status_4(client: httpx.Client, llm: ThreadedLlm, env: dict[str, str]) -> None:
    """The model's server refuses the key: the run fails, and the status says it was about access."""
    llm.script({"status": 401, "body": {"error": {"message": "bad key"}}})
    with Program("hello", env=env, stdin=False) as program:
        assert program.wait() == 4
    assert [e["kind"] for e in program.events if e["type"] == "error"] == ["auth"]


def test_no_model_is_status_3(server: ServerProcess, tmp_path: Path) -> None:
    """A server without any model cannot answer: a matter of configuration."""
    server.first_user().close()
    with Program("hello", env=environment(server, tmp_path), stdin=False) as program:
        assert program.wait() == 3, program.stderr
    assert [e["kind"] for e in program.events if e["type"] == "error"] == ["no_model"]
    assert program.events[-1]["subtype"] == "error"


def test_what_keeps_a_run_from_beginning(client: httpx.Client, env: dict[str, str]) -> None:
    """No server, no such model or conversation: 3. Wrong or no sign-in: 4. Wrong use: 2. One sentence, no output."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    nobody = {k: v for k, v in env.items() if k not in ("SKALD_USER", "SKALD_PASSWORD")} | {
        "XDG_CONFIG_HOME": "/nowhere"
    }
    cases = [
        (3, "skald serve", ["run", "--json", "x"], env | {"SKALD_URL": f"http://127.0.0.1:{port}"}),
        (3, "no model 'nope'", ["run", "--json", "--model", "nope", "x"], env),
        (3, "does not exist", ["run", "--json", "--conversation", "nope", "x"], env),
        (4, "not right", ["run", "--json", "x"], env | {"SKALD_PASSWORD": "not the password"}),
        (4, "sign in first", ["run", "--json", "x"], nobody),
        (2, "standard input carries", ["run", "--json", "-"], env),
        (2, "give a prompt", ["run"], env),
        (2, "belongs to --json", ["run", "--interactive-permissions", "x"], env),
        (2, "empty", ["run", "--json", "  "], env),
        (2, "unrecognized", ["run", "--json", "--what"], env),
    ]
    for status, words, args, variables in cases:
        done = skald(*args, env=variables)
        assert (done.returncode, done.stdout) == (status, ""), (args, done)
        assert words in done.stderr, (args, done.stderr)


def test_a_refused_prompt_still_gets_its_result(client: httpx.Client, llm: ThreadedLlm, env: dict[str, str]) -> None:
    """A program waits for one result per prompt, so a prompt the server does not take has one, too; the next one works."""
    llm.script({"text": "hello"})
    with Program(env=env) as program:
        program.send(type="prompt", text="x" * 1_000_001)
        result = program.until("result")
        assert result["subtype"] == "error"
        assert "characters" in result["reason"]
        program.send(type="prompt", text="hi")
        assert program.until("result")["final_text"] == "hello"
        program.end_input()
        assert program.wait() == 0, program.stderr


def test_only_its_own_runs_are_told(
    client: httpx.Client, llm: ThreadedLlm, env: dict[str, str], follow: Follow
) -> None:
    """In a conversation the browser uses, too: a prompt waits behind its run, whose events stay out of the output."""
    conversation = new_conversation(client)
    live = follow(conversation)
    llm.script({"text": "theirs", "hold": True}, {"text": "ours"})
    send(client, conversation, "from the browser")
    live.until("assistant_started")
    with Program("from a program", "--conversation", conversation, env=env, stdin=False) as program:
        live.until("queue_changed")
        llm.release()
        assert program.wait() == 0, program.stderr
    assert [e["final_text"] for e in program.events if e["type"] == "result"] == ["ours"]
    assert [e["content"] for e in program.events if e["type"] == "user"] == ["from a program"]
    assert program.events[0]["type"] == "system"


def test_a_signal_takes_back_a_prompt_that_waits(
    client: httpx.Client, llm: ThreadedLlm, env: dict[str, str], follow: Follow
) -> None:
    """Somebody else's run is not stopped; the prompt leaves the queue and has an aborted result."""
    conversation = new_conversation(client)
    live = follow(conversation)
    llm.script({"text": "theirs", "hold": True})
    send(client, conversation, "from the browser")
    live.until("assistant_started")
    with Program("from a program", "--conversation", conversation, env=env, stdin=False) as program:
        assert live.until("queue_changed")["queue"]
        program.signal(signal.SIGINT)
        assert program.wait() == 130, program.stderr
    assert [(e["type"], e.get("subtype")) for e in program.events] == [("result", "aborted")]
    assert not live.until("queue_changed")["queue"]
    llm.release()
    assert live.until("turn_finished")["outcome"] == "success"


def test_a_restart_of_the_server_does_not_lose_the_run(
    server: ServerProcess, client: httpx.Client, llm: ThreadedLlm, env: dict[str, str]
) -> None:
    """The program signs in again; the run, taken up by the server while a call waited, goes on to its result."""
    llm.script({"calls": [WRITE]}, {"text": "Written."})
    port = int(server.url.rpartition(":")[2])
    with Program("write", "--interactive-permissions", env=env) as program:
        (asked,) = program.until("permission_request")["requests"]
        server.kill()
        server.start(port=port)
        program.until("lagged")
        program.send(type="permission_response", tool_use_id=asked["tool_use_id"], decision="allow")
        assert program.until("result")["final_text"] == "Written."
        program.end_input()
        assert program.wait() == 0, program.stderr
    assert files(server) == ["hello\n"]


def test_a_slow_reader_loses_nothing(client: httpx.Client, llm: ThreadedLlm, env: dict[str, str]) -> None:
    """Output waits for whoever reads it; the run does not."""
    llm.script({"tokens": 3000})
    with subprocess.Popen(
        [sys.executable, "-m", "skald_core", "run", "--json", "count"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=env,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        wait_until(
            lambda: client.get("/api/conversations").json()["items"][0]["state"] == "idle", "the run ends by itself"
        )
        events = [json.loads(line) for line in process.stdout]
        assert process.wait(30) == 0
    text = "".join(e["text"] for e in events if e["type"] == "partial_assistant")
    assert text.split() == [str(n) for n in range(1, 3001)]


def test_sessions(client: httpx.Client, llm: ThreadedLlm, env: dict[str, str]) -> None:
    """`list` has newest first with counts, `show` the stored messages of the branch, `delete` asks unless told not to."""
    llm.script(
        {"calls": [{"name": "list_files", "arguments": {"path": "."}}]}, {"text": "Nothing there."}, {"text": "B"}
    )
    for text in ("look around", "second"):
        assert skald("run", text, env=env).returncode == 0
    listed = [json.loads(line) for line in skald("sessions", "list", env=env).stdout.splitlines()]
    assert [(row["meta"]["title"], row["message_count"]) for row in listed] == [("second", 2), ("look around", 3)]
    assert set(listed[0]) == {"id", "created_at", "updated_at", "meta", "message_count"}
    assert len(skald("sessions", "list", "--limit", "1", env=env).stdout.splitlines()) == 1
    identity = listed[1]["id"]
    shown = [json.loads(line) for line in skald("sessions", "show", identity, env=env).stdout.splitlines()]
    assert [m["role"] for m in shown] == ["user", "assistant", "assistant"]
    assert shown[1]["calls"][0]["name"] == "list_files"
    assert shown[1]["calls"][0]["result"] is not None
    refused = skald("sessions", "delete", identity, env=env, text="n\n")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "look around" in refused.stderr
    assert skald("sessions", "delete", identity, env=env).returncode == 2
    assert skald("sessions", "delete", identity, env=env, text="y\n").returncode == 0
    assert skald("sessions", "delete", "--yes", listed[0]["id"], env=env).returncode == 0
    assert skald("sessions", "list", env=env).stdout == ""
    gone = skald("sessions", "show", identity, env=env)
    assert (gone.returncode, gone.stdout) == (1, "")


def test_version_and_help(env: dict[str, str]) -> None:
    """Both need no server."""
    assert skald("version", env={k: v for k, v in env.items() if k != "SKALD_URL"}).stdout.startswith("skald ")
    assert "sessions" in skald("help", env=env).stdout


def test_the_documented_program_runs_as_it_is(
    server: ServerProcess, client: httpx.Client, llm: ThreadedLlm, env: dict[str, str]
) -> None:
    """The Python example of docs/cli.md: a write below notes/ is allowed, another is denied with its reason."""
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "cli.md").read_text(), re.DOTALL)
    note = {"name": "write_file", "arguments": {"path": "notes/weather.md", "content": "sunny"}}
    llm.script({"calls": [note, WRITE]}, {"text": "Noted."})
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, env=env, timeout=60)
    assert (done.returncode, done.stdout) == (0, "Noted.\n"), done.stderr
    assert files(server, "notes/weather.md") == ["sunny"]
    assert files(server) == []
    results = [m["content"] for m in llm.requests[-1]["messages"] if m["role"] == "tool"]
    assert "only notes/ may be written" in results[1]


def test_every_event_is_documented() -> None:
    """docs/cli.md names each line of the union and each of its fields."""
    text = (ROOT / "docs" / "cli.md").read_text()
    for event in get_args(Event):
        info = msgspec.inspect.type_info(event)
        assert isinstance(info, msgspec.inspect.StructType)
        (row,) = re.findall(rf"^\| `{info.tag}` \| (.*) \|$", text, re.MULTILINE)
        for field in info.fields:
            if field.name not in ("conversation", "frame"):
                assert f"`{field.name}`" in row, f"{info.tag}.{field.name}"
