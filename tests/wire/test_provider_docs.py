"""docs/plugins/providers.md: its provider and its tests, run as they are written there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from skald_core.testing import programs, servers

PAGE = (Path(__file__).parent.parent.parent / "docs" / "plugins" / "providers.md").read_text(encoding="utf-8")


def test_the_page_works(tmp_path: Path) -> None:
    """All blocks in one file, by pytest, as an author would."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "test_parrot.py").write_text("\n\n".join(blocks), encoding="utf-8")
    settings = (
        "[pytest]",
        "asyncio_mode = auto",
        "asyncio_default_fixture_loop_scope = function",
        "filterwarnings = error",
    )
    (tmp_path / "pytest.ini").write_text("\n".join(settings), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{3 + len(servers.FAULTS) - 1} passed" in done.stdout


def test_the_page_names_everything() -> None:
    """Each public name of the two modules."""
    for name in (*servers.__all__, *programs.__all__):
        assert name == "Heard" or name == "Script" or re.search(rf"\b{name}\b", PAGE), name
