"""A wheel is judged by reading it: nothing of it is imported."""

import zipfile
from pathlib import Path

import pytest

from skald_core.plugins.install import wheel as wheels
from skald_core.plugins.install.wheel import BadWheel, read_wheel
from tests.support.plugin_wheels import plugin_wheel, wheel


def test_a_plugin_is_described_from_its_wheel(tmp_path: Path) -> None:
    """Name, needs, manifest and hash come out, without running a line of it."""
    path = plugin_wheel(
        tmp_path, "one", requires=("dep>=1",), source="raise SystemExit('imported')", capabilities=("x",)
    )
    found = read_wheel(path)
    (plugin,) = found.plugins
    assert (found.name, found.version, found.requires) == ("skald-plugin-one", "1.0", ("dep>=1",))
    assert (plugin.id, plugin.manifest.capabilities) == ("one", ["x"])
    assert found.sha256 == wheels.sha256_of(path)


def test_a_library_is_no_plugin(tmp_path: Path) -> None:
    """A distribution without the entry point has no plugin side."""
    assert read_wheel(wheel(tmp_path, "dep", "1.0", {"dep.py": ""})).plugins == ()


@pytest.mark.parametrize(
    ("files", "entry", "code"),
    [
        ({"evil.pth": "import os"}, "", "wheel_start_code"),
        ({"pkg-1.0.data/purelib/evil.pth": "import os"}, "", "wheel_start_code"),
        ({"sitecustomize.py": ""}, "", "wheel_start_code"),
        ({"usercustomize/__init__.py": ""}, "", "wheel_start_code"),
        ({"pkg/__init__.py": ""}, "[skald.plugins]\npkg = pkg\n", "wheel_no_manifest"),
        ({"pkg/__init__.py": "", "pkg/skald-plugin.toml": "x"}, "[skald.plugins]\nother = pkg\n", "wheel_plugin_id"),
        (
            {"pkg/__init__.py": "", "pkg/skald-plugin.toml": "no toml ["},
            "[skald.plugins]\npkg = pkg\n",
            "wheel_manifest",
        ),
        (
            {"pkg/__init__.py": "", "pkg/skald-plugin.toml": 'id = "x"\ntitle = "X"\napi = ">=1"\n'},
            "[skald.plugins]\npkg = pkg\n",
            "wheel_plugin_id",
        ),
        (
            {"pkg/__init__.py": "", "pkg/skald-plugin.toml": "#" * 10_000_000},
            "[skald.plugins]\npkg = pkg\n",
            "wheel_manifest",
        ),
    ],
)
def test_a_bad_wheel_is_refused(tmp_path: Path, files: dict[str, str], entry: str, code: str) -> None:
    """Code that would run at every start of Python, a missing, wrong or giant manifest, and an id of somebody else."""
    with pytest.raises(BadWheel) as caught:
        read_wheel(wheel(tmp_path, "pkg", "1.0", files, entry_points=entry))
    assert caught.value.code == code


def test_a_damaged_or_endless_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No zip, no metadata, another name than it says, or more than may be unpacked."""
    broken = tmp_path / "pkg-1.0-py3-none-any.whl"
    broken.write_bytes(b"not a zip")
    with pytest.raises(BadWheel, match="damaged"):
        read_wheel(broken)
    with zipfile.ZipFile(broken, "w") as archive:
        archive.writestr("pkg.py", "")
    with pytest.raises(BadWheel, match="metadata is missing"):
        read_wheel(broken)
    honest = wheel(tmp_path, "real", "1.0", {"real.py": "#" * 5000})
    renamed = honest.rename(tmp_path / "other-1.0-py3-none-any.whl")
    with pytest.raises(BadWheel, match="calls it"):
        read_wheel(renamed)
    monkeypatch.setattr(wheels, "MAX_UNPACKED", 4000)
    with pytest.raises(BadWheel, match="unpacks to"):
        read_wheel(wheel(tmp_path, "big", "1.0", {"big.py": "#" * 5000}))
