"""Schemas stay short, and what models really send is understood or refused in words they can act on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import skald_tools_fs
from skald_core import api as skald

TOOLS = {tool.name: tool for tool in skald_tools_fs.skald_tools()}


def test_all_schemas_together_are_short() -> None:
    """A small local model has room for about 900 tokens of prompt: the tools must not fill it."""
    specs = [tool.spec() for tool in TOOLS.values()]
    as_json = [{"name": s.name, "description": s.description, "parameters": s.parameters} for s in specs]
    assert len(json.dumps(as_json, separators=(",", ":"))) <= 2400


def test_tools_declare_what_the_loop_and_the_rules_go_by() -> None:
    """Readers may run side by side and again after a crash; writers may not."""
    for name, tool in TOOLS.items():
        reads = name in {"read_file", "list_files", "grep_files", "search_file"}
        assert (tool.scope, tool.parallel_safe, tool.restart_hint) == (
            ("read", True, "rerun") if reads else ("write", False, "interrupt")
        )
        assert set(tool.parameters["properties"]) == set(tool.arguments_type.__struct_fields__)  # type: ignore[attr-defined]


def test_every_tool_has_a_title_in_every_language_and_the_manifest_names_it() -> None:
    """No tool shows a raw key, and the manifest lists what is registered."""
    package = Path(skald_tools_fs.__file__).parent
    for locale in ("en", "it", "fr"):
        texts = json.loads((package / "i18n" / f"{locale}.json").read_text(encoding="utf-8"))
        assert set(texts) == set(TOOLS)
        assert all(tool.title == f"plugin.tools-fs.{name}" for name, tool in TOOLS.items())
    manifest = (package / "skald-plugin.toml").read_text(encoding="utf-8")
    assert all(f'"{name}"' in manifest for name in TOOLS)


@pytest.mark.parametrize(
    ("name", "raw", "expected"),
    [
        ("read_file", {"file_path": "a"}, {"path": "a", "start_line": 1}),
        ("read_file", {"path": "a", "start_line": "5", "end_line": None}, {"start_line": 5, "end_line": None}),
        ("read_file", {"path": "a", "limit": 7.0}, {"limit": 7}),
        ("read_file", {"path": None, "filename": "a", "offset": 3}, {"path": "a", "start_line": 3}),
        ("read_file", {"path": "a", "file_path": "a", "explanation": "I want to see it"}, {"path": "a"}),
        ("write_file", {"path": "a.json", "content": {"k": [1, "è"]}}, {"content": '{\n  "k": [\n    1,\n    "è"\n  ]\n}\n'}),
        ("write_file", {"path": "a", "content": 42}, {"content": "42"}),
        ("write_file", {"path": "a", "text": "x\ud83d"}, {"content": "x\ufffd"}),
        ("write_file", {"path": "a", "content": "\ud83d\ude00"}, {"content": "😀"}),
        ("edit_file", {"path": "a", "old_string": "x", "new_string": "y"}, {"old": "x", "new": "y"}),
        ("edit_file", {"path": "a", "old": "x", "new": "y", "replace_all": "true"}, {"replace_all": True}),
        ("edit_file", {"path": "a", "old_str": "x", "new_str": ""}, {"old": "x", "new": ""}),
        ("list_files", {}, {"path": "~", "depth": 3}),
        ("list_files", {"directory": "a", "depth": "2"}, {"path": "a", "depth": 2}),
        ("grep_files", {"query": "x", "glob": "*.md"}, {"pattern": "x", "include_glob": "*.md"}),
        ("grep_files", {"pattern": "x", "output_mode": "files_with_matches"}, {"output_mode": "files_only"}),
        ("search_file", {"path": "a", "text": "x"}, {"query": "x"}),
    ],
)  # fmt: skip
def test_other_spellings_are_understood(name: str, raw: dict[str, Any], expected: dict[str, Any]) -> None:
    """Parameter names of other products, numbers as strings, null for 'left out', JSON where text was meant."""
    taken = TOOLS[name].validate(raw)
    assert {key: getattr(taken, key) for key in expected} == expected


@pytest.mark.parametrize(("path", "shown"), [("./n//a.md", "n/a.md"), ("/root/n/a.md", "n/a.md"), ("../x", "../x")])
def test_a_call_names_its_file_in_one_way(path: str, shown: str) -> None:
    """What cards show and link to is the canonical path; one that is no path is shown as written."""
    tool = TOOLS["read_file"]
    assert tool.target_path(tool.validate({"path": path})) == shown


@pytest.mark.parametrize(
    ("name", "raw", "words"),
    [
        ("read_file", {}, ["'path' is missing", "start_line (optional)"]),
        ("read_file", {"path": None}, ["'path' is missing"]),
        ("read_file", {"path": 5}, ["$.path", "Expected `str`"]),
        ("read_file", {"path": ["a"]}, ["$.path"]),
        ("read_file", {"path": "a", "start_line": "five"}, ["$.start_line", "int"]),
        ("read_file", {"path": "a", "file": "b"}, ["no parameter 'file'"]),
        ("write_file", {"path": "a"}, ["'content' is missing"]),
        ("write_file", {"path": "a", "content": "x", "mode": "append"}, ["no parameter 'mode'", "Parameters: path, content"]),
        ("write_file", {"path": "a", "content": "x" * 10_000_001}, ["10,000,001 characters"]),
        ("append_file", {"path": "a", "content": ""}, ["nothing to add"]),
        ("edit_file", {"path": "a", "old": "x"}, ["'new' is missing"]),
        ("grep_files", {"path": "a", "pattern": "x", "output_mode": "everything"}, ["output_mode"]),
    ],
)  # fmt: skip
def test_wrong_arguments_say_what_to_change(name: str, raw: dict[str, Any], words: list[str]) -> None:
    """Case C10: a known tool with wrong types gets an error result that names the parameter."""
    with pytest.raises(skald.InvalidArguments) as caught:
        TOOLS[name].validate(raw)
    assert str(caught.value).startswith(f"{name}: ")
    for word in words:
        assert word in str(caught.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(
    ["path", "file_path", "content", "old", "new", "pattern", "query", "depth", "limit", "start_line"]
) | st.text(max_size=8)


@given(st.sampled_from(sorted(TOOLS)), st.dictionaries(names, json_values, max_size=5))
def test_no_arguments_raise_anything_else(name: str, raw: dict[str, Any]) -> None:
    """Whatever JSON a model writes is accepted or refused; accepted calls can be summarized and name their file."""
    try:
        taken = TOOLS[name].validate(raw)
    except skald.InvalidArguments:
        return
    assert len(TOOLS[name].summarize(taken)) <= 120
    assert isinstance(TOOLS[name].target_path(taken), str)
