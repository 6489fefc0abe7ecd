"""The diff on the card: right, bounded, and unable to hide anything."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skald_approval.card import details, effect_digest, risk
from skald_approval.diff import MAX_DIFF_BYTES, unified
from skald_core import api as skald


def test_a_small_change() -> None:
    """Three lines of context, line numbers of the whole file, counts of lines."""
    before = "".join(f"l{n}\n" for n in range(1, 101))
    diff = unified(before, before.replace("l50\n", "L50\nL51\n"))
    assert diff.text == "@@ -47,7 +47,8 @@\n l47\n l48\n l49\n-l50\n+L50\n+L51\n l51\n l52\n l53\n"
    assert (diff.added, diff.removed, diff.truncated) == (2, 1, False)


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (None, "a\nb\n", "@@ -0,0 +1,2 @@\n+a\n+b\n"),
        (None, "", ""),
        ("a\n", None, "@@ -1 +0,0 @@\n-a\n"),
        ("a\n", "a\n", ""),
        ("a\n", "a\nb", "@@ -1 +1,2 @@\n a\n+b\n\\ No newline at end of file\n"),
        ("a", "a\n", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"),
        ("a\r\nb\r\n", "a\r\nc\r\n", "@@ -1,2 +1,2 @@\n a\n-b\n+c\n"),
        ("a\r\n", "a\n", "@@ -1 +1 @@\n-a␍\n+a\n"),
    ],
)
def test_edges(before: str | None, after: str | None, text: str) -> None:
    """New and deleted files, missing last line ends, and Windows line ends where they are the change."""
    assert unified(before, after).text == text


lines = st.lists(st.sampled_from(["a", "b", "c", "", " x", "@@", "-d", "+e", "\\ f"]), max_size=12)
texts = st.builds(lambda ls, end: "\n".join(ls) + ("\n" if end and ls else ""), lines, st.booleans())


def applied(before: str, diff: str) -> str:
    """The text after ``diff``, as a patch program would make it: positions, context and removed lines must be right."""
    source = before.split("\n")
    source = [f"{line}\n" for line in source[:-1]] + ([source[-1]] if source[-1] else [])
    out: list[str] = []
    at = 0
    hunk = diff.split("\n")[:-1]
    for n, line in enumerate(hunk):
        if found := re.fullmatch(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", line):
            start, count = int(found[1]), int(found[2] or 1)
            begin = start - 1 if count else start
            out += source[at:begin]
            at = begin
            assert len(out) == (int(found[3]) - 1 if int(found[4] or 1) else int(found[3]))
            continue
        if line == "\\ No newline at end of file":
            continue
        end = "" if hunk[n + 1 : n + 2] == ["\\ No newline at end of file"] else "\n"
        content = line[1:] + end
        if line[0] in " -":
            assert source[at] == content
            at += 1
        if line[0] in " +":
            out.append(content)
    return "".join(out + source[at:])


@given(texts, texts)
def test_the_diff_makes_the_new_text_of_the_old(before: str, after: str) -> None:
    """Applying the diff, with every position and context line checked, gives exactly the new text."""
    diff = unified(before, after)
    assert applied(before, diff.text) == after
    assert diff.added == sum(line.startswith("+") for line in diff.text.split("\n"))


@given(texts, texts, st.integers(0, 30), st.integers(0, 30))
def test_it_holds_for_whole_replacements_too(before: str, after: str, head: int, tail: int) -> None:
    """Also where the texts are too unlike to be compared, and inside longer equal texts."""
    before = "".join(f"h{n}\n" for n in range(head)) + before + "\n" + "".join(f"t{n}\n" for n in range(tail))
    after = "".join(f"h{n}\n" for n in range(head)) + after + "\n" + "".join(f"t{n}\n" for n in range(tail))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("skald_approval.diff.MAX_COMPARED", -1)
        assert applied(before, unified(before, after).text) == after
    assert applied(before, unified(before, after).text) == after


def test_hidden_characters_are_shown() -> None:
    """A change of reading direction, an escape sequence or a bare carriage return cannot disguise a line."""
    diff = unified("", "ok\u202e evil\x1b[2K\rgood\u200b\ttab\n")
    assert diff.text.splitlines()[1] == "+ok⟨U+202E⟩ evil⟨U+001B⟩[2K⟨U+000D⟩good⟨U+200B⟩\ttab"


def test_large_diffs_are_cut_and_say_so() -> None:
    """The card stays small; the counts are those of the whole change."""
    diff = unified(None, "x" * 99 + "\n" + ("y" * 99 + "\n") * 100_000)
    assert diff.truncated
    assert len(diff.text.encode()) <= MAX_DIFF_BYTES
    assert (diff.added, diff.removed) == (100_001, 0)
    one_line = unified("a" * 3_000_000, "b" * 3_000_000)
    assert one_line.truncated
    assert one_line.text.startswith("@@ -1 +1 @@\n-aaa")
    assert one_line.text.splitlines()[-1].startswith("+bbb")
    assert "… [3,000,0" in one_line.text
    assert len(one_line.text) < 10_000


def test_texts_too_different_to_compare_are_replaced_as_a_whole() -> None:
    """Two long unlike texts cost no quadratic comparison, and the diff still says what goes and what comes."""
    before = "head\n" + "".join(f"a{n}\n" for n in range(3000)) + "tail\n"
    after = "head\n" + "".join(f"b{n}\n" for n in range(3000)) + "tail\n"
    diff = unified(before, after)
    assert (diff.added, diff.removed) == (3000, 3000)
    assert diff.text.startswith("@@ -1,3002 +1,3002 @@\n head\n-a0\n")
    assert diff.text.endswith("+b2999\n tail\n")


change = skald.FileChange


@pytest.mark.parametrize(
    ("scope", "changes", "expected"),
    [
        ("read", (), "low"),
        ("exec", (), "high"),
        ("write", (), "medium"),
        ("write", (change("a", None, "x\n"),), "low"),
        ("write", (change("a", "x\n", "x\ny\n"),), "low"),
        ("write", (change("a", "x\n", "y\n"),), "medium"),
        ("write", (change("a", "x\n" * 50, "y\n"),), "high"),
        ("write", (change("a", "x\n", None),), "high"),
        ("write", (change(".ssh/authorized_keys", None, "key\n"),), "high"),
        ("write", (change("project/.git/hooks/pre-commit", None, "x\n"),), "high"),
        ("write", (change(".env", None, "x\n"),), "medium"),
        ("write", (change("a", None, "x\n"), change("b", "x\n", None)), "high"),
    ],
)
def test_risk(scope: str, changes: tuple[skald.FileChange, ...], expected: str) -> None:
    """What is lost, and files programs trust, weigh more than what is added."""
    assert risk(scope, changes, [unified(c.before, c.after) for c in changes]) == expected


def test_details() -> None:
    """The card's JSON has the shape the interface document promises."""
    card = details("write", {}, (change("n/a", "1\n", "1\n2\n", "append"), change("b", "x\n", "y\n", "edit")))
    assert card == {
        "risk": "medium",
        "changes": [
            {"path": "n/a", "kind": "append", "diff": "@@ -1 +1,2 @@\n 1\n+2\n", "added": 1, "removed": 0},
            {"path": "b", "kind": "edit", "diff": "@@ -1 +1 @@\n-x\n+y\n", "added": 1, "removed": 1},
        ],
    }
    assert details("exec", {"command": "ls"}, ()) == {"risk": "high", "command": "ls"}


def test_kinds_without_a_word_from_the_tool() -> None:
    """A tool of another plugin that says only before and after still gets the right kind."""
    kinds = [
        details("write", {}, (change("a", before, after),))["changes"][0]["kind"]
        for before, after in [(None, "x"), ("x", None), ("x", "xy"), ("x", "y"), ("", "x")]
    ]
    assert kinds == ["create", "delete", "append", "overwrite", "overwrite"]


def test_the_effect_of_an_append_is_what_it_adds() -> None:
    """Others may add lines meanwhile; any other difference is another effect."""
    digest = effect_digest([change("a", "1\n", "1\nnew\n", "append")])
    assert digest == effect_digest([change("a", "1\n2\n", "1\n2\nnew\n", "append")])
    assert digest == effect_digest([change("a", "1", "1\nnew\n", "append")])
    others = [
        change("a", "1\n", "1\nother\n", "append"),
        change("b", "1\n", "1\nnew\n", "append"),
        change("a", None, "new\n", "create"),
        change("a", "1\n", "1\nnew\n", "edit"),
    ]
    assert digest not in {effect_digest([c]) for c in others}
    edit = effect_digest([change("a", "1\n2\n", "1\n3\n", "edit")])
    assert edit != effect_digest([change("a", "0\n2\n", "0\n3\n", "edit")])
    assert effect_digest([change("a", None, "")]) != effect_digest([change("a", "", "")])


def test_texts_of_many_equal_lines_are_replaced_as_a_whole() -> None:
    """Pairing thousands of blank lines would take minutes; the diff still says all that goes and comes."""
    before = "".join(f"u{n}\n\n" for n in range(10_000))
    diff = unified(before, "\n" * 150)
    assert (diff.added, diff.removed) == (149, 19_999)  # the last line is in both
