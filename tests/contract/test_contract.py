"""The public surface is what tests/contract/api.txt says, and a change of it is a decision."""

import importlib.util
import types
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def script() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("contract", ROOT / "scripts" / "contract.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_surface_is_as_agreed() -> None:
    """The message says what changed, which version that needs, and how to accept it."""
    said = script().verdict()
    assert said == "", said


@pytest.mark.parametrize(
    ("state", "change", "words"),
    [
        ("not released", lambda lines: lines[1:], "is not released yet"),
        ("released", lambda lines: lines[1:], "API_VERSION must be 1.1"),
        ("released", lambda lines: [*lines, "api Gone.name: str"], "API_VERSION must be 2.0"),
        ("released", lambda lines: [lines[0] + " = changed", *lines[1:]], "API_VERSION must be 2.0"),
    ],
)
def test_each_change_names_the_version_it_needs(
    state: str,
    change: Callable[[list[str]], list[str]],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Additions are minor, everything else is major; before the first release the number may stay."""
    module = script()
    lines = [line for line in module.CONTRACT.read_text().splitlines() if line and not line.startswith("#")]
    monkeypatch.setattr(module, "surface", lambda: list(lines))
    path = tmp_path / "api.txt"
    path.write_text(f"# API 1.0, {state}\n" + "\n".join(change(lines)) + "\n")
    monkeypatch.setattr(module, "CONTRACT", path)
    said = module.verdict()
    assert words in said
    assert "scripts/contract.py --write" in said


def test_a_released_surface_is_not_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script refuses to accept a change under the number that is out in the world."""
    module = script()
    path = tmp_path / "api.txt"
    path.write_text("# API 1.0, released\napi Gone.name: str\n")
    monkeypatch.setattr(module, "CONTRACT", path)
    with pytest.raises(SystemExit, match="is released; raise API_VERSION"):
        module._write(release=False)
    assert "Gone" in path.read_text()
