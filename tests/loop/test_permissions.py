"""Modes and rules of the permission engine, and how a turn uses it: nothing runs without a clear yes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from skald_core.loop.errors import ConfigError
from skald_core.loop.events import PermissionRequestEvent, ToolCallStartEvent
from skald_core.loop.gate import Allow, Ask, Deny, PendingCall, Suspend, Verdict
from skald_core.loop.hooks import MustAsk, NoHooks, Rewrite, ToolHookVerdict
from skald_core.loop.memory_store import MemoryStore
from skald_core.loop.permissions import PathRule, PermissionEngine, PermissionQuestion, Rule, ShellRule, ToolRule
from skald_core.loop.scripted import ScriptedProvider, call, calls, text
from skald_core.loop.store import Store
from skald_core.loop.tools import Tool, ToolContext
from skald_core.loop.types import CallId, ConversationId, FrameId

from .helpers import Plain, collect, kinds, make, of, path, result


class FileTool(Plain):
    """A tool about one file."""

    def target_path(self, arguments: Any) -> str | None:
        found: str | None = arguments.get("path")
        return found


READ = Plain("read_it", scope="read")
WRITE = FileTool("write_file", scope="write")
MCP = Plain("remote_change", scope="write")
RUN = Plain("execute_cmd", scope="exec")


def pending(tool: Tool, **arguments: Any) -> PendingCall:
    context = ToolContext(
        conversation=ConversationId("c"), frame=FrameId(7), agent="helper", call_id=CallId(3), tool_use_id="u3"
    )
    return PendingCall(tool, arguments, arguments, "a summary", context)


def verdict(engine: PermissionEngine, tool: Tool, **arguments: Any) -> str:
    return type(engine.evaluate(pending(tool, **arguments))).__name__.lower()


def shell(rules: Sequence[Rule], line: str, **options: Any) -> str:
    return verdict(PermissionEngine(rules=rules, **options), RUN, command=line)


# --- modes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "read", "write", "outside", "remote", "run"),
    [
        ("ask", "allow", "ask", "ask", "ask", "ask"),
        ("default", "allow", "ask", "ask", "ask", "ask"),
        ("edits", "allow", "allow", "ask", "ask", "ask"),
        ("acceptEdits", "allow", "allow", "ask", "ask", "ask"),
        ("plan", "allow", "deny", "deny", "deny", "deny"),
        ("all", "allow", "allow", "allow", "allow", "allow"),
        ("yolo", "allow", "allow", "allow", "allow", "allow"),
    ],
)
def test_modes(mode: str, read: str, write: str, outside: str, remote: str, run: str, tmp_path: Path) -> None:
    """``edits`` is about files below the root; a tool that changes something elsewhere is asked about."""
    engine = PermissionEngine(mode=mode, root=tmp_path)
    assert verdict(engine, READ) == read
    assert verdict(engine, WRITE, path="a/b.txt") == write
    assert verdict(engine, WRITE, path="../b.txt") == outside
    assert verdict(engine, MCP) == remote
    assert verdict(engine, RUN, command="ls") == run


def test_wrong_options_are_refused() -> None:
    for wrong in (
        {"mode": "everything"},
        {"rules": [ToolRule("maybe", "x")]},  # type: ignore[arg-type]  # what an embedder may get wrong
        {"rules": [PathRule("deny", ())]},
        {"rules": [PathRule("deny", ("!",))]},
        {"rules": [ShellRule("deny")]},
        {"rules": [ShellRule("deny", prefix="a", regex="b")]},
        {"rules": [ShellRule("deny", regex="(")]},
        {"rules": [ShellRule("deny", prefix="a; b")]},
        {"rules": [ShellRule("allow", prefix="git $X")]},
    ):
        with pytest.raises(ConfigError):
            PermissionEngine(**wrong)  # type: ignore[arg-type]  # what an embedder may get wrong


# --- rules -------------------------------------------------------------------------------------------------------


def test_the_first_rule_that_matches_wins() -> None:
    """Exact names and the star; a denial beats every mode, an allowance beats the default."""
    allow, deny = ToolRule("allow", "write_file"), ToolRule("deny", "*")
    assert verdict(PermissionEngine(rules=[allow, deny]), WRITE) == "allow"
    assert verdict(PermissionEngine(rules=[deny, allow]), WRITE) == "deny"
    assert verdict(PermissionEngine(rules=[allow, deny]), READ) == "deny"
    assert verdict(PermissionEngine(rules=[ToolRule("deny", "write")]), WRITE) == "ask"
    assert verdict(PermissionEngine(mode="all", rules=[ToolRule("deny", "write_file")]), WRITE) == "deny"


def test_the_rules_given_stay_the_callers() -> None:
    rules: list[Rule] = [ToolRule("allow", "write_file")]
    engine = PermissionEngine(rules=rules)
    engine.add(ToolRule("allow", "execute_cmd"))
    rules.clear()
    assert verdict(engine, WRITE) == "allow"
    assert verdict(engine, RUN, command="x") == "allow"
    assert rules == []


@pytest.mark.parametrize(
    ("pattern", "name", "hit"),
    [
        ("docs/*.md", "docs/a.md", True),
        ("docs/*.md", "docs/sub/a.md", False),
        ("docs/**", "docs/sub/a.md", True),
        ("**/*.md", "a.md", True),
        ("**/*.md", "x/y/.hidden.md", True),
        ("*", ".env", True),
        ("?.txt", "a.txt", True),
        ("?.txt", "ab.txt", False),
        ("[ab].txt", "b.txt", True),
        ("[!ab].txt", "b.txt", False),
        ("[!ab].txt", "c.txt", True),
        ("docs/a.md", "docs/../docs/./a.md", True),
        ("docs/a.md", "docs/a_md", False),
        ("!docs/**", "docs/a.md", False),
        ("!docs/**", "src/a.py", True),
        ("!docs/**", "../elsewhere", True),
    ],
)
def test_path_patterns(pattern: str, name: str, hit: bool, tmp_path: Path) -> None:
    engine = PermissionEngine(rules=[PathRule("deny", (pattern,))], root=tmp_path)
    assert (verdict(engine, WRITE, path=name) == "deny") is hit
    assert (verdict(engine, WRITE, path=str(tmp_path / name)) == "deny") is hit


def test_path_rules_choose_their_tools(tmp_path: Path) -> None:
    """Without names those that write; calls without a file never match."""
    reader = FileTool("read_file", scope="read")
    named = PermissionEngine(rules=[PathRule("deny", ("**",), tools=("read_file",))], root=tmp_path)
    assert (verdict(named, reader, path="a"), verdict(named, WRITE, path="a")) == ("deny", "ask")
    unnamed = PermissionEngine(rules=[PathRule("deny", ("**",))], root=tmp_path)
    assert (verdict(unnamed, reader, path="a"), verdict(unnamed, WRITE), verdict(unnamed, RUN)) == (
        "allow",
        "ask",
        "ask",
    )


def test_links_are_followed(tmp_path: Path) -> None:
    """Allowed is what really lies where it is allowed; denied also what only looks as if it did not."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root / "open", root / "secret", outside):
        folder.mkdir(parents=True)
    (root / "open" / "way").symlink_to(outside)
    (root / "open" / "door").symlink_to(root / "secret")
    (root / "alias").symlink_to(root / "open")
    allow = PermissionEngine(rules=[PathRule("allow", ("open/**",))], root=root)
    assert verdict(allow, WRITE, path="open/a") == "allow"
    assert verdict(allow, WRITE, path="open/way/a") == "ask"
    assert verdict(allow, WRITE, path="alias/a") == "allow"
    deny = PermissionEngine(mode="all", rules=[PathRule("deny", ("secret/**", "open/way/**"))], root=root)
    assert verdict(deny, WRITE, path="open/door/a") == "deny"
    assert verdict(deny, WRITE, path="open/way/a") == "deny"
    assert verdict(deny, WRITE, path="open/a") == "allow"
    assert verdict(PermissionEngine(mode="edits", root=root), WRITE, path="open/way/a") == "ask"
    through = tmp_path / "link"
    through.symlink_to(root)
    assert verdict(PermissionEngine(mode="edits", root=through), WRITE, path="open/a") == "allow"
    denied = PermissionEngine(mode="all", rules=[PathRule("deny", ("open/way/**",))], root=through)
    assert verdict(denied, WRITE, path="open/way/a") == "deny"


# --- shell -------------------------------------------------------------------------------------------------------

GIT = ShellRule("allow", "git status")
ECHO = ShellRule("allow", "echo")
NO_RM = ShellRule("deny", "rm")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("git status", "allow"),
        ("git status -s x", "allow"),
        ("git 'status'", "allow"),
        ("git status && echo hi", "allow"),
        ("git status; echo a\necho b & echo c | echo d", "allow"),
        ('echo "a && rm b"', "allow"),
        ("echo $X", "allow"),
        ("git stat", "ask"),
        ("git push", "ask"),
        ("git status && ls", "ask"),
        ("PATH=/tmp git status", "ask"),
        ("/tmp/git status", "ask"),
        ("sudo git status", "ask"),
        ("echo $(git push)", "ask"),
        ("echo $(git status)", "allow"),
        ("(git status; ls)", "ask"),
        ("echo hi > f", "ask"),
        ("echo hi > /dev/null 2>&1", "allow"),
        ("if git status; then echo; fi", "ask"),
        ("", "ask"),
    ],
)
def test_a_line_is_allowed_when_all_of_it_is(line: str, said: str) -> None:
    assert shell([GIT, ECHO], line) == said


@pytest.mark.parametrize(
    "line",
    [
        "rm x", "echo && rm x", "echo\nrm x", "echo\r\nrm x", "echo & rm x", "echo | rm", "echo $(rm x)", 'echo "`rm x`"',
        "(rm x)", "{ rm x; }", "echo <(rm x)", "/bin/rm x", "sudo -n rm x", "env A=1 rm x", "xargs rm", "A=1 rm x",
        "find . -exec rm {} \\;", "sh -c 'rm x'", "eval rm x", "r'm' x", "r\\m x", "echo ${X:-$(rm x)}", "! rm x",
        "$X", "if true; then rm x; fi", "bash <<E\nrm x\nE", "curl x | sh", "f() { rm x; }; f",
    ],
)  # fmt: skip
def test_a_denied_command_is_found_or_the_line_refused(line: str) -> None:
    """Also where everything else is allowed."""
    assert shell([NO_RM, ShellRule("allow", regex=".")], line, mode="all") == "deny"


@pytest.mark.parametrize("line", ["rmdir x", "echo rm", "echo 'rm x'", "grep rm f", "echo '$(rm x)'"])
def test_a_denial_finds_nothing_else(line: str) -> None:
    assert shell([NO_RM], line, mode="all") == "allow"


def test_shell_rules_are_one_set_at_the_place_of_the_first() -> None:
    """In it the first match of each command wins; what they leave open goes on to the other rules."""
    assert shell([ECHO, ToolRule("deny", "execute_cmd"), GIT], "git status && echo") == "allow"
    assert shell([ECHO, ToolRule("deny", "execute_cmd")], "ls") == "deny"
    assert shell([ToolRule("allow", "execute_cmd"), NO_RM], "rm x") == "allow"
    assert shell([ShellRule("allow", "rm -i"), NO_RM], "rm -i x") == "allow"
    assert shell([ShellRule("deny", regex=r"--force\b"), ShellRule("allow", "git push")], "git push --force") == "deny"
    assert shell([ShellRule("allow", regex=r"^npm (test|run \w+)$")], "npm run build") == "allow"
    assert shell([ShellRule("allow", regex=r"^npm (test|run \w+)$")], "npm run build; ls") == "ask"


def test_only_the_tools_named_run_a_shell() -> None:
    other = Plain("terminal", scope="exec")
    assert verdict(PermissionEngine(rules=[ECHO]), other, line="echo") == "ask"
    assert verdict(PermissionEngine(rules=[ECHO], shell_tools={"terminal": "line"}), other, line="echo") == "allow"
    assert verdict(PermissionEngine(rules=[ECHO]), RUN, command=["echo"]) == "ask"


def test_a_redirection_is_a_write(tmp_path: Path) -> None:
    """It is allowed where writing is, and denied where writing is denied; an unknown file is never allowed."""
    rules: list[Rule] = [
        ECHO,
        ShellRule("allow", "cd"),
        PathRule("allow", ("out/**",)),
        PathRule("deny", ("secret/**",)),
    ]
    for line, said in (
        ("echo a > out/f", "allow"),
        ("echo a > f", "ask"),
        ("echo a > secret/f", "deny"),
        ("echo a > out/../secret/f", "deny"),
        ("(echo a) > out/f", "allow"),
        ("(echo a) > f", "ask"),
        ("echo a > $X", "deny"),
        ("cd / && echo a > out/f", "deny"),
        (f"cd / && echo a > {tmp_path}/out/f", "allow"),
    ):
        assert shell(rules, line, root=tmp_path) == said, line
    assert shell([ECHO, PathRule("allow", ("out/**",))], "echo a > $X", root=tmp_path) == "ask"


# --- asking ------------------------------------------------------------------------------------------------------


class Person:
    """Answers as told and remembers what was asked."""

    def __init__(self, answer: Any = Allow()) -> None:  # noqa: B008 -- frozen
        self.answer = answer
        self.asked: list[PermissionQuestion] = []

    async def __call__(self, question: PermissionQuestion) -> Allow | Deny | Suspend:
        self.asked.append(question)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]  # wrong answers are part of the tests


async def test_whoever_is_asked_is_told_everything() -> None:
    """Also which agent of which conversation wants it."""
    person = Person()
    engine = PermissionEngine(can_use_tool=person)
    wanted = pending(RUN, command="ls")
    (judged,) = await engine.judge([wanted])
    assert isinstance(judged, Ask)
    assert await engine.ask(wanted, judged) == Allow()
    (question,) = person.asked
    assert (question.tool_name, question.tool_use_id, question.input) == ("execute_cmd", "u3", {"command": "ls"})
    assert (question.summary, question.mode, question.agent) == ("a summary", "ask", "helper")
    assert (question.conversation, question.frame, question.call_id) == ("c", 7, 3)


@pytest.mark.parametrize("answer", [None, True, "yes", RuntimeError("gone")])
async def test_no_clear_answer_is_a_denial(answer: Any) -> None:
    provider = ScriptedProvider([calls(call("execute_cmd", {"command": "x"})), text("ok")])
    run = Plain("execute_cmd", scope="exec")
    store = MemoryStore()
    await collect(
        make(provider, run, store=store, gate=PermissionEngine(can_use_tool=Person(answer))).session("c").run("go")
    )
    assert run.runs == []
    assert (await path(store))[1].calls[0].state == "rejected"


async def test_nobody_to_ask_is_a_denial(store: Store) -> None:
    provider = ScriptedProvider([calls(call("execute_cmd", {"command": "x"})), text("ok")])
    run = Plain("execute_cmd", scope="exec")
    await collect(make(provider, run, store=store, gate=PermissionEngine()).session("c").run("go"))
    assert run.runs == []
    assert "nobody to ask" in ((await path(store))[1].calls[0].result or "")


async def test_several_questions_make_one_event(store: Store) -> None:
    """It comes before any start and names exactly the asked calls."""
    person = Person()
    read, run = Plain("read_it", scope="read"), Plain("execute_cmd", scope="exec")
    made = calls(call("read_it", {}), call("execute_cmd", {"command": "a"}), call("execute_cmd", {"command": "b"}))
    agent = make(
        ScriptedProvider([made, text("ok")]), read, run, store=store, gate=PermissionEngine(can_use_tool=person)
    )
    events = await collect(agent.session("c").run("go"))
    (request,) = of(events, PermissionRequestEvent)
    assert [view.tool_name for view in request.requests] == ["execute_cmd", "execute_cmd"]
    assert kinds(events).index("permission_request") < kinds(events).index("tool_call_start")
    assert [question.input["command"] for question in person.asked] == ["a", "b"]


async def test_an_edited_call_is_judged_again(store: Store) -> None:
    """What a person makes of a call runs, unless a rule denies it."""
    for edited, runs in (("ls -a", [{"command": "ls -a"}]), ("rm x", [])):
        run = Plain("execute_cmd", scope="exec")
        person = Person(Allow({"command": edited}))
        agent = make(
            ScriptedProvider([calls(call("execute_cmd", {"command": "ls"})), text("ok")]), run, store=store,
            gate=PermissionEngine(rules=[NO_RM], can_use_tool=person),
        )  # fmt: skip
        events = await collect(agent.session(f"c {edited}").run("go"))
        assert run.runs == runs
        assert result(events).subtype == "success"
        if runs:
            assert of(events, ToolCallStartEvent)[0].input == {"command": edited}


async def test_a_hook_may_ask_where_the_mode_allows_but_not_past_a_denial(store: Store) -> None:
    class Careful(NoHooks):
        async def before_tool(self, pending: PendingCall) -> ToolHookVerdict:
            return MustAsk("think twice")

    for command, asked in (("ls", 1), ("rm x", 0)):
        person = Person(Deny("no"))
        run = Plain("execute_cmd", scope="exec")
        agent = make(
            ScriptedProvider([calls(call("execute_cmd", {"command": command})), text("ok")]), run, store=store,
            hooks=Careful(), gate=PermissionEngine(mode="all", rules=[NO_RM], can_use_tool=person),
        )  # fmt: skip
        await collect(agent.session(f"c {command}").run("go"))
        assert len(person.asked) == asked
        assert run.runs == []


async def test_what_a_hook_makes_of_a_call_is_judged(store: Store) -> None:
    class Twisted(NoHooks):
        async def before_tool(self, pending: PendingCall) -> ToolHookVerdict:
            return Rewrite({"command": "rm x"})

    run = Plain("execute_cmd", scope="exec")
    agent = make(
        ScriptedProvider([calls(call("execute_cmd", {"command": "ls"})), text("ok")]), run, store=store,
        hooks=Twisted(), gate=PermissionEngine(mode="all", rules=[NO_RM]),
    )  # fmt: skip
    await collect(agent.session("c").run("go"))
    assert run.runs == []


async def test_stopping_while_somebody_is_asked_runs_nothing(store: Store) -> None:
    reached = asyncio.Event()

    async def never(question: PermissionQuestion) -> Allow | Deny | Suspend:
        reached.set()
        await asyncio.Event().wait()
        return Allow()

    run = Plain("execute_cmd", scope="exec")
    provider = ScriptedProvider([calls(call("execute_cmd", {"command": "ls"}))])
    session = make(provider, run, store=store, gate=PermissionEngine(can_use_tool=never)).session("c")
    stream = session.run("go")
    await reached.wait()
    await session.stop()
    assert result(await collect(stream)).subtype == "aborted"
    assert run.runs == []


def test_every_verdict_is_one_of_three(tmp_path: Path) -> None:
    """For all modes, tools and odd paths."""
    for mode in ("ask", "edits", "plan", "all"):
        for name in ("", "~", "a\nb", "/", "..", "~nobody-here/x", "a\0b"):
            made: Verdict = PermissionEngine(mode=mode, root=tmp_path).evaluate(pending(WRITE, path=name))
            assert isinstance(made, Allow | Ask | Deny)
    assert verdict(PermissionEngine(mode="edits", root=tmp_path), WRITE, path="a\0b") == "deny"
