"""Every Python block of docs/loop.md runs, in order, and its tables name what there is."""

from __future__ import annotations

import re
import typing
from pathlib import Path

import pytest

from skald_core.loop.events import Event

PAGE = Path(__file__).parent.parent.parent / "docs" / "loop.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_every_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In one namespace, as a reader who follows the page would type them."""
    text = PAGE.read_text()
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "loop_page"}
    found = list(BLOCK.finditer(text))
    assert len(found) >= 7
    for block in found:
        line = text.count("\n", 0, block.start(1))
        exec(compile("\n" * line + block[1], str(PAGE), "exec", dont_inherit=True), namespace)
    assert capsys.readouterr().out == "Take sunglasses.\n"


def test_the_first_block_is_about_twenty_lines() -> None:
    """What the issue promises: embed it in twenty lines."""
    first = BLOCK.search(PAGE.read_text())
    assert first is not None
    assert len([line for line in first[1].splitlines() if line.strip()]) <= 21


def test_the_events_table_names_every_event() -> None:
    """No more and no fewer than the union has."""
    section = PAGE.read_text().split("## Events")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.+?) \|", section, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == {kind.__struct_config__.tag for kind in typing.get_args(Event)}
