"""What is shipped: the browser bundle and the agents travel in the wheel; nothing names a package index."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def build(folder: Path, where: Path) -> zipfile.ZipFile:
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(where),
        str(folder),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    (wheel,) = where.glob("*.whl")
    return zipfile.ZipFile(wheel)


def test_the_wheel_holds_the_browser_bundle_and_the_agents(tmp_path: Path) -> None:
    """`pip install skald-core` is enough: no Node.js, no checkout."""
    with build(ROOT, tmp_path) as wheel:
        names = set(wheel.namelist())
    assert "skald_core/web_dist/index.html" in names
    assert "skald_core/web_dist/csp.json" in names
    assert "skald_core/authoring/templates/common/gitignore.tmpl" in names
    assert "skald_core/authoring/templates/common/github/workflows/publish.yml.tmpl" in names
    assert "skald_core/py.typed" in names
    assert any(re.fullmatch(r"skald_core/web_dist/assets/.+\.js", name) for name in names)
    assert "skald_core/shipped_agents/assistant/AGENT.md" in names
    assert {f"skald_core/i18n/{locale}.json" for locale in ("en", "it", "fr")} <= names


@pytest.mark.parametrize("plugin", sorted(p.name for p in (ROOT / "plugins").iterdir() if p.is_dir()))
def test_each_bundled_plugin_is_a_whole_distribution(plugin: str, tmp_path: Path) -> None:
    """Its wheel holds its manifest, its texts in three languages and its entry point."""
    package = plugin.replace("-", "_")
    with build(ROOT / "plugins" / plugin, tmp_path) as wheel:
        names = set(wheel.namelist())
        (points,) = (n for n in names if n.endswith("entry_points.txt"))
        text = wheel.read(points).decode()
    assert f"{package}/skald-plugin.toml" in names
    assert {f"{package}/i18n/{locale}.json" for locale in ("en", "it", "fr")} <= names
    assert f"{plugin.removeprefix('skald-')} = {package}" in text
    assert "[skald.plugins]" in text


def test_locks_have_hashes_and_name_no_index() -> None:
    """Every locked package is pinned and hashed; no line says where it comes from."""
    for name in ("run", "test", "node"):
        text = (ROOT / "requirements" / f"{name}.lock").read_text()
        assert "--hash=sha256:" in text
        assert "://" not in text
        assert not re.search(r"^(-i|--)", text, re.MULTILINE)
        for line in text.splitlines():
            if line and not line.startswith((" ", "#")):
                assert "==" in line, line
    assert "resolved" not in (ROOT / "web" / "package-lock.json").read_text()
