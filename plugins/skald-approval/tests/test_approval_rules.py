"""Which rule decides: patterns, order, and what a restriction reaches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skald_approval.rules import Facts, Rule, clean_path_pattern, decide, path_matches, tool_matches


def facts(tool: str = "read_file", scope: str = "read", path: str | None = "a", **more: object) -> Facts:
    values = {"in_home": path is not None and not path.startswith("shared"), **more}
    return Facts(tool=tool, scope=scope, path=path, **values)  # type: ignore[arg-type]


def rule(action: str, tool: str = "*", path: str | None = None, **more: object) -> Rule:
    return Rule(id=f"{action}-{tool}-{path}", priority=1, tool=tool, path=path, action=action, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pattern", "tool", "scope", "path", "expected"),
    [
        ("*", "anything", "exec", None, True),
        ("read_file", "read_file", "read", "a", True),
        ("read_file", "read_file2", "read", "a", False),
        ("mcp_*", "mcp_mail_send", "exec", None, True),
        ("mcp_*", "mcp", "exec", None, False),
        ("@fs_read", "x", "read", "a", True),
        ("@fs_read", "x", "read", None, False),
        ("@fs_read", "x", "write", "a", False),
        ("@fs_write", "x", "write", "a", True),
        ("@fs_write", "x", "exec", "a", False),
        ("@fs_any", "x", "read", "a", True),
        ("@fs_any", "x", "write", "a", True),
        ("@fs_any", "x", "exec", "a", False),
        ("@fs_other", "x", "read", "a", False),
    ],
)
def test_tool_patterns(pattern: str, tool: str, scope: str, path: str | None, expected: bool) -> None:
    """Names, beginnings, everything, and classes by what a tool declares."""
    assert tool_matches(pattern, facts(tool, scope, path)) is expected


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("notes/*", "notes", True),
        ("notes/*", "notes/a", True),
        ("notes/*", "notes/a/b", True),
        ("notes/*", "notes-old/a", False),
        ("notes/*", "notesx", False),
        ("notes/2026*", "notes/2026-01.md", True),
        ("notes/2026*", "notes/2025.md", False),
        ("notes/a.md", "notes/a.md", True),
        ("notes/a.md", "notes/a.md2", False),
        ("*", "shared/x", True),
        ("~/*", "notes/a", True),
        ("~/*", "~", True),
        ("~/*", "shared/x", False),
        ("~/notes/*", "notes/a", True),
        ("~", "~", True),
        ("~", "a", False),
        ("shared/x/*", "shared/x/y", True),
    ],
)
def test_path_patterns(pattern: str, path: str, expected: bool) -> None:
    """A folder pattern means the folder and what is in it, on whole names; '~/' means the home alone."""
    assert path_matches(pattern, facts(path=path)) is expected


def test_no_path_matches_no_path_pattern() -> None:
    """A tool without a path is not covered by a rule about paths."""
    assert not path_matches("*", facts(path=None))


@pytest.mark.parametrize(
    ("pattern", "cleaned"),
    [
        ("./a//b/*", "a/b/*"),
        ("/root/a", "~/a"),
        ("~/./a", "~/a"),
        ("~", "~"),
        ("/root", "~"),
        ("*", "*"),
        ("~/*", "~/*"),
    ],
)
def test_patterns_are_cleaned_like_paths(pattern: str, cleaned: str) -> None:
    """However somebody writes a path, the rule is about the same file."""
    assert clean_path_pattern(pattern) == cleaned


def test_the_first_match_decides() -> None:
    """Order is everything: an exception goes before the rule it excepts."""
    rules = [rule("deny", "@fs_any", "private/*"), rule("allow", "@fs_read", "~/*"), rule("require")]
    assert decide(rules, facts(path="private/x")) is rules[0]
    assert decide(rules, facts(path="public/x")) is rules[1]
    assert decide(rules, facts("write_file", "write", "public/x")) is rules[2]
    assert decide(rules, facts("run", "exec", None)) is rules[2]
    assert decide(rules[::-1], facts(path="private/x")).action == "require"  # type: ignore[union-attr]
    assert decide([], facts()) is None


def test_agents() -> None:
    """A rule for one agent says nothing about others."""
    rules = [rule("allow", agent="helper")]
    assert decide(rules, facts(agent="helper")) is rules[0]
    assert decide(rules, facts(agent="main")) is None


@pytest.mark.parametrize("pattern", ["private/*", "~/private/*", "private/key", "private/k*", "a/private/*"])
def test_a_restriction_holds_for_the_folders_around_it(pattern: str) -> None:
    """A search through the home would read the protected folder in it; through a neighbour it would not."""
    rules = [rule("deny", "@fs_any", pattern), rule("allow", "@fs_read", "~/*")]
    assert decide(rules, facts("grep", path="~", folder=True)).action == "deny"  # type: ignore[union-attr]
    assert decide(rules, facts("grep", path="public", folder=True)).action == "allow"  # type: ignore[union-attr]
    assert decide(rules, facts("grep", path="priv", folder=True)).action == "allow"  # type: ignore[union-attr]
    outer = pattern.removeprefix("~/").partition("/")[0]
    assert decide(rules, facts("grep", path=outer, folder=True)).action == "deny"  # type: ignore[union-attr]


def test_a_permission_does_not_reach_the_folders_around_it() -> None:
    """Being allowed to read one folder is not being allowed to search everything."""
    rules = [rule("allow", "@fs_read", "public/*"), rule("require")]
    assert decide(rules, facts("grep", path="~", folder=True)).action == "require"  # type: ignore[union-attr]


names = st.sampled_from(["a", "ab", "b", "c"])
paths = st.lists(names, min_size=1, max_size=4).map("/".join)


@given(paths, paths, st.booleans())
def test_folder_patterns_agree_with_walking_up(folder: str, path: str, home: bool) -> None:
    """'dir/*' matches exactly when walking up from the path meets dir."""
    trail = path.split("/")
    inside = any("/".join(trail[:n]) == folder for n in range(1, len(trail) + 1))
    pattern = f"{'~/' if home else ''}{folder}/*"
    assert path_matches(pattern, facts(path=path)) is inside


@given(paths, paths)
def test_a_denied_file_is_never_inside_an_allowed_folder_call(secret: str, folder: str) -> None:
    """Whatever is denied, no allowed call on a folder contains it."""
    rules = [rule("deny", "@fs_any", secret), rule("allow", "@fs_read", "~/*")]
    found = decide(rules, facts("grep", path=folder, folder=True))
    contains = secret == folder or secret.startswith(f"{folder}/")
    assert found is not None
    assert (found.action == "deny") is contains
