"""The strangers by themselves: both versions of each are built, judged and tested as their authors would."""

import zipfile
from pathlib import Path

import pytest

from skald_core.authoring.check import check_project
from tests.support.authors import AuthorEnvironment
from tests.support.strangers import NAMES, build, sources


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_a_stranger_is_a_whole_plugin(name: str, version: int, environment: AuthorEnvironment, tmp_path: Path) -> None:
    """Its check finds nothing, its own tests are green, its wheel holds what it needs."""
    project = sources(name, version, tmp_path)  # type: ignore[arg-type]  # 1 or 2
    judged = check_project(project)
    assert judged.findings == []
    command = [str(environment.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "pyproject.toml"]
    done = environment.run(command, project, env={"PYTHONPATH": str(project / "src")}, timeout=240.0)
    assert done.returncode == 0, done.stdout
    (tmp_path / "wheels").mkdir()
    with zipfile.ZipFile(build(name, version, tmp_path / "wheels")) as wheel:  # type: ignore[arg-type]  # 1 or 2
        names = set(wheel.namelist())
    package = f"skald_plugin_{name.replace('-', '_')}"
    assert {f"{package}/skald-plugin.toml", *(f"{package}/i18n/{code}.json" for code in ("en", "it", "fr"))} <= names
