"""Calls written as text: what counts as one, and what may be shown while it streams."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skald_core.loop.text_calls import TextCallHold, parse_text_calls

NAMES = {"read_file", "write_file"}
CALL = '{"name": "read_file", "arguments": {"path": "a.txt"}}'
ARGS = {"path": "a.txt"}


@pytest.mark.parametrize(
    "written",
    [
        CALL,
        f"\n  {CALL}\n",
        f"```json\n{CALL}\n```",
        f"```\n{CALL}\n```",
        f"<tool_call>\n{CALL}\n</tool_call>",
        f"<tool_call>{CALL}",
        f"<tool_call>\n```json\n{CALL}\n```\n</tool_call>",
        f"```xml\n<tool_call>\n{CALL}\n</tool_call>\n```",
        f"<tools>\n{CALL}\n</tools>",
        f"<tools>{CALL}",
        f"<tools>[{CALL}]</tools>",
        f"<tools>\n```json\n{CALL}\n```\n</tools>",
        f"```xml\n<tools>\n{CALL}\n</tools>\n```",
        f"<tools>\n<tool_call>\n{CALL}\n</tool_call>\n</tools>",
        f"[{CALL}]",
        '{"tool": "read_file", "parameters": {"path": "a.txt"}}',
        '{"tool_name": "read_file", "args": {"path": "a.txt"}}',
        '{"arguments": {"path": "a.txt"}, "name": "read_file"}',
        '{"type": "function", "function": {"name": "read_file", "arguments": "{\\"path\\": \\"a.txt\\"}"}}',
        '{"id": "1", "type": "function", "name": "read_file", "arguments": {"path": "a.txt"}}',
        '{"function": "read_file", "arguments": {"path": "a.txt"}}',
    ],
)
def test_one_call_in_each_known_form(written: str) -> None:
    (call,) = parse_text_calls(written, NAMES)
    assert (call.name, json.loads(call.arguments)) == ("read_file", ARGS)


@pytest.mark.parametrize(
    "written",
    [f"<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}</tool_call>", f"[{CALL}, {CALL}]", f"{CALL}\n{CALL}",
     f"```json\n{CALL}\n```\n\n```json\n{CALL}\n```", f"<tools>{CALL}</tools>\n<tools>{CALL}</tools>",
     f"<tools>\n{CALL}\n{CALL}\n</tools>", f"<tools>[{CALL}, {CALL}]</tools>",
     f"<tools>{CALL}</tools><tool_call>{CALL}</tool_call>"],
)  # fmt: skip
def test_several_calls(written: str) -> None:
    assert [c.name for c in parse_text_calls(written, NAMES)] == ["read_file"] * 2


@pytest.mark.parametrize(
    "written",
    [
        "",
        "hello",
        f"I will call: {CALL}",
        f"{CALL} as you asked",
        f"```json\n{CALL}\n```\nThis reads the file.",
        f"<tool_call>{CALL}</tool_call> done",
        f"<tools>{CALL}</tools> done",
        "<tools></tools>",
        '<tools>{"name": "delete_file", "arguments": {}}</tools>',
        f"<toolset>{CALL}</toolset>",
        '{"name": "delete_file", "arguments": {}}',
        '{"name": "read_file", "arguments": [1]}',
        '{"name": "read_file", "arguments": "not json"}',
        '{"name": "read_file", "arguments": {}, "age": 3}',
        '{"name": "read_file", "arguments": {}, "parameters": {}}',
        '{"name": 3, "arguments": {}}',
        '{"name": "read_file", "arguments": {"path": "a.txt"}',
        f"[{CALL}, 3]",
        "[]",
        "{}",
        "null",
        f"```python\n{CALL}\n```",
        "[" * 5000,
        "<tools>" * 5000,
        "<tools>```json\n" * 2000,
    ],
)
def test_everything_else_is_text(written: str) -> None:
    assert parse_text_calls(written, NAMES) == ()


def test_no_tools_no_calls() -> None:
    assert parse_text_calls(CALL, ()) == ()


def test_arguments_may_be_left_out() -> None:
    (call,) = parse_text_calls('{"name": "read_file"}', NAMES)
    assert call.arguments == "{}"


def feed(text: str, size: int = 1) -> tuple[str, str]:
    """What was shown while streaming, and what was held at the end."""
    hold = TextCallHold(NAMES)
    shown = "".join(hold.feed(text[i : i + size]) for i in range(0, len(text), size))
    return shown, hold.held


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    "written",
    [CALL, f"```json\n{CALL}\n```", f"<tool_call>\n{CALL}\n</tool_call>", f"[{CALL}]", f"<tools>\n{CALL}\n</tools>"],
)
def test_a_call_is_never_shown(written: str, size: int) -> None:
    assert feed(written, size) == ("", written)


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("Hello there", ""),
        ("{oops", ""),
        ('{"city": "Rome"}', ""),
        ('{"name": "Bob", "age": 3}', ""),
        ("```python\nprint()\n```", ""),
        ("```json\n[1, 2]\n```", ""),
        ("<b>bold</b>", ""),
        ("[link](x)", ""),
        ('{"id": 1, "title": "' + "x" * 400 + '"}', ""),
        ("<tool", "<tool"),
        ("<tools", "<tools"),
        ("<toolbar>", ""),
        ("<tools>hammer and nails</tools>", ""),
        ("``", "``"),
        ('{"na', '{"na'),
        ("  ", "  "),
    ],
)
def test_text_is_released_as_soon_as_it_cannot_be_a_call(text: str, held: str) -> None:
    shown, kept = feed(text)
    assert shown + kept == text
    assert kept == held


@given(st.text(alphabet='{}[]"`<>:,abcnametool_\n jso', max_size=60), st.integers(1, 7))
def test_nothing_is_lost_or_reordered(text: str, size: int) -> None:
    """Shown and finished text together are always the text."""
    hold = TextCallHold(NAMES)
    shown = "".join(hold.feed(text[i : i + size]) for i in range(0, len(text), size))
    assert shown + hold.finish() == text


@given(st.text(max_size=200))
def test_parsing_never_raises(text: str) -> None:
    parse_text_calls(text, NAMES)
    parse_text_calls("```json\n" + text, NAMES)


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=4))
def test_any_arguments_come_through(arguments: dict[str, object]) -> None:
    written = json.dumps({"name": "write_file", "arguments": arguments})
    (call,) = parse_text_calls(f"<tool_call>\n{written}\n</tool_call>", NAMES)
    assert json.loads(call.arguments) == arguments
