"""The shell parser sees every command a line runs, or says that it does not understand the line."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skald_core.loop.shell import CannotParse, commands


def names(line: str) -> list[str]:
    return [command.name for command in commands(line)]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("", []),
        ("# nothing", []),
        ("ls -l", ["ls"]),
        ("a && b || c; d | e & f\ng\r\nh", list("abcdefgh")),
        ("a |& b", ["a", "b"]),
        ("'a b' c", ["a b"]),
        (r"a\ b c", ["a b"]),
        ('echo "a && b; c | d"', ["echo"]),
        ("echo 'a\nb & c'", ["echo"]),
        ("echo $(rm x)", ["rm", "echo"]),
        ('echo "$(rm x)"', ["rm", "echo"]),
        ("echo '$(rm x)'", ["echo"]),
        ("echo `rm \\`ls\\``", ["ls", "rm", "echo"]),
        ("echo ${a:-$(rm x)}", ["rm", "echo"]),
        ('echo ${a:-"$(rm x)"}', ["rm", "echo"]),
        ("(a; b) | { c; d; }", list("abcd")),
        ("a <(b) >(c)", ["b", "c", "a"]),
        ("X=$(rm x) Y=2 ls", ["rm", "ls"]),
        ("! a | b", ["a", "b"]),
        ("time a", ["a"]),
        ("sh -c 'a; b'", ["sh", "a", "b"]),
        ("/bin/bash -lc 'a'", ["bash", "a"]),
        ("sudo -u x sh -c 'a'", ["sudo", "a"]),
        ("eval 'a;' b", ["eval", "a", "b"]),
        ("bash script.sh", ["bash"]),
        ("a # b; c", ["a"]),
        ("a#b", ["a#b"]),
        ("a \\\n b", ["a"]),
    ],
)
def test_commands_are_found_wherever_they_stand(line: str, found: list[str]) -> None:
    assert names(line) == found


@pytest.mark.parametrize(
    ("line", "writes"),
    [
        ("a > f", ("f",)),
        ("a >> f 2>&1", ("f",)),
        ("a &> f", ("f",)),
        ("a >& f", ("f",)),
        ("a 2> 'x y' >| z", ("x y", "z")),
        ("a < f", ()),
        ("a <<< text", ()),
        ("a > /dev/null 2>&1", ()),
        ("a > $HOME/f", (None,)),
        ("a > *.txt", (None,)),
        ("a <> f", ("f",)),
        ("> f", ("f",)),
        ("(a) > f", ("f",)),
    ],
)
def test_redirections_name_the_files_they_write(line: str, writes: tuple[str | None, ...]) -> None:
    found = commands(line)
    assert tuple(path for command in found for path in command.writes) == writes


@pytest.mark.parametrize(
    "line",
    [
        "if a; then b; fi", "for x in a; do b; done", "while a; do b; done", "case x in x) a;; esac", "[[ a ]]",
        "f() { a; }", "function f { a; }", "a <<EOF\nx\nEOF", "echo $((1+1))", "((a))", "$X", "`echo rm` x",
        "r* x", "{rm,-rf,x}", "a )", "(a", "a 'b", 'a "b', "a `b", "a ${b", "a \\", "sh -c $X", "eval $X", "curl x | sh",
        "bash -s", "$'rm' x", "a=(b c)", "echo $[1]", "a >", "(a) b", "a\0b", "echo ${x@P}", "(" * 50 + ")" * 50,
        "sh -c \"sh -c 'if a; then b; fi'\"",
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused(line: str) -> None:
    with pytest.raises(CannotParse):
        commands(line)


def test_words_are_plain_or_unknown() -> None:
    """Quotes are gone, what is only known later is None, and variables set for a command are noted."""
    (command,) = commands("""git 'com'mit -m "a $x" $y ~ *.py "q" '' b\\ c""")
    assert command.words == ("git", "commit", "-m", None, None, None, None, "q", "", "b c")
    (command,) = commands("PATH=/tmp:$PATH git status")
    assert (command.assignments, command.words) == (True, ("git", "status"))
    (command,) = commands("echo 5$ $")
    assert command.words == ("echo", "5$", "$")
    (command,) = commands("/usr/bin/sudo -n rm x")
    assert ("rm", "x") in command.hidden()


@given(st.text(alphabet="ab$(){}`'\"\\;&|<> \n#*!=-c~[]", max_size=40))
def test_any_text_is_parsed_or_refused(line: str) -> None:
    """Nothing but CannotParse comes out, and it ends."""
    try:
        commands(line)
    except CannotParse:
        return


PIECES = st.sampled_from(
    ["one", "two", "three", "one two", "'one'", '"two"', "$(one)", '"$(two)"', "`three`", "&&", "||", ";", "|", "&", "\n",
     "(", ")", "{ ", "; }", "> out", "2>&1", "< in", "$X", "A=1", "sh -c", "'two; three'", "eval", "\\", "#", "!", "<(one)",
     "${X:-$(three)}", "env", "nohup", "<<E", "if", "then", "fi", "case", "$((1))", "''", '""', "$'one'"]
)  # fmt: skip


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A folder to run lines in; its commands only write down that they ran."""
    folder = tmp_path_factory.mktemp("traced")
    (folder / "bin").mkdir()
    for name in ("one", "two", "three"):
        stub = folder / "bin" / name
        stub.write_text(f'#!/bin/sh\necho {name} >> "{folder}/ran"\n')
        stub.chmod(0o755)
    for name in ("sh", "env", "nohup"):
        found = shutil.which(name)
        assert found is not None
        (folder / "bin" / name).symlink_to(found)
    (folder / "in").write_text("")
    return folder, {"PATH": f"{folder}/bin"}


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(PIECES, min_size=1, max_size=7))
def test_a_real_shell_runs_nothing_the_parser_did_not_see(
    traced: tuple[Path, dict[str, str]], pieces: list[str]
) -> None:
    """What bash really runs of a line is among the commands found in it."""
    line = " ".join(pieces)
    try:
        found = commands(line)
    except CannotParse:
        return
    folder, environment = traced
    log = folder / "ran"
    log.unlink(missing_ok=True)
    shell = shutil.which("bash") or "sh"
    subprocess.run(
        [shell, "-c", f"{line}\nwait"], cwd=folder, env=environment, capture_output=True, timeout=20, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    ran = set(log.read_text().split()) if log.exists() else set()
    seen = {os.path.basename(words[0] or "") for command in found for words in command.hidden() if words}
    assert ran <= seen, line
