"""`skald plugin new`: names, files, and that nothing is ever overwritten."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from skald_core.authoring.naming import names_for
from skald_core.authoring.scaffold import KINDS, render, write_project
from skald_core.cli.main import main
from skald_core.errors import BadInput, Conflict


@pytest.mark.parametrize(
    ("name", "plugin_id", "package"),
    [
        ("weather", "weather", "skald_plugin_weather"),
        ("skald-plugin-weather", "weather", "skald_plugin_weather"),
        ("skald-weather", "weather", "skald_plugin_weather"),
        ("Reading_List", "reading-list", "skald_plugin_reading_list"),
        ("a1", "a1", "skald_plugin_a1"),
    ],
)
def test_all_names_come_from_one_word(name: str, plugin_id: str, package: str) -> None:
    """Other spellings of the same name are the same plugin."""
    names = names_for(name)
    assert (names.id, names.package, names.distribution) == (plugin_id, package, f"skald-plugin-{plugin_id}")


@pytest.mark.parametrize(
    "name", ["", "9lives", "-x", "x-", "a b", "wéather", "../x", "x/y", "a" * 41, "skald", "plugin", "core", "x\n"]
)
def test_names_that_cannot_be_are_refused(name: str) -> None:
    """With what to do; a trailing line end is only white space."""
    if name == "x\n":
        assert names_for(name).id == "x"
        return
    with pytest.raises(BadInput):
        names_for(name)


def test_a_near_name_is_offered() -> None:
    """The sentence names one that would do."""
    with pytest.raises(BadInput, match="'my-weather' would do"):
        names_for("My Weather!")


def test_an_installed_plugin_is_not_made_twice() -> None:
    """Two distributions with one id would both be refused by the server."""
    with pytest.raises(Conflict, match="skald-tools-fs"):
        names_for("tools-fs")


def test_nothing_is_overwritten(workshop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An existing folder, file or dangling link of that name is left as it is, and nothing is left beside it."""
    for number, make in enumerate((Path.mkdir, Path.touch, lambda p: p.symlink_to("nowhere"))):
        name = f"thing{number}"
        make(workshop / f"skald-plugin-{name}")
        assert main(["plugin", "new", name, "--in", str(workshop)]) == 1
        assert "exists already" in capsys.readouterr().err
    assert sorted(p.name for p in workshop.iterdir()) == [f"skald-plugin-thing{n}" for n in range(3)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_files_of_a_project(kind: str, workshop: Path) -> None:
    """Each kind is whole: package, manifest, three languages, a test, documentation, a workflow; no placeholder is left."""
    folder = write_project(names_for("night-train"), kind, workshop)  # type: ignore[arg-type]  # one of KINDS
    files = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    package = "src/skald_plugin_night_train"
    assert files >= {
        "pyproject.toml",
        "README.md",
        "CHANGELOG.md",
        ".gitignore",
        ".github/workflows/publish.yml",
        "docs/developing.md",
        "tests/test_night_train.py",
        f"{package}/__init__.py",
        f"{package}/skald-plugin.toml",
        *(f"{package}/i18n/{locale}.json" for locale in ("en", "it", "fr")),
    }
    assert (f"{package}/web/page.js" in files) == (kind == "page")
    for path in (folder / name for name in files):
        text = path.read_text(encoding="utf-8")
        assert "@@" not in text, path
        assert not path.name.endswith(".tmpl")
        if path.suffix == ".json":
            json.loads(text)
        elif path.suffix == ".toml":
            tomllib.loads(text)
        elif path.suffix == ".py":
            compile(text, str(path), "exec")


def test_a_failure_leaves_nothing(workshop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fills half-way leaves neither a project nor a piece of one."""
    real = Path.write_text

    def full(self: Path, *args: object, **options: object) -> int:
        if self.name == "README.md":
            raise OSError(28, "No space left on device")
        return real(self, *args, **options)  # type: ignore[arg-type]  # passed on as given

    monkeypatch.setattr(Path, "write_text", full)
    assert main(["plugin", "new", "thing", "--in", str(workshop)]) != 0
    assert list(workshop.iterdir()) == []


def test_every_kind_renders_the_same_twice() -> None:
    """Nothing random is in a scaffold."""
    for kind in KINDS:
        assert render(names_for("a"), kind) == render(names_for("a"), kind)  # type: ignore[arg-type]  # one of KINDS


def test_a_scaffold_passes_linter_formatter_and_strict_types(workshop: Path) -> None:
    """Authors start clean by the common tools' own rules, and get the types of skald_core."""
    for kind in KINDS:
        write_project(names_for(f"try-{kind}"), kind, workshop)  # type: ignore[arg-type]  # one of KINDS
    ruff = [sys.executable, "-m", "ruff"]
    options = ["--isolated", "--line-length", "120"]
    rules = "E,F,I,UP,B,SIM,RUF,ASYNC"
    for command in (
        [*ruff, "format", "--check", "--diff", *options, "."],
        [*ruff, "check", "--select", rules, *options, "."],
        *([sys.executable, "-m", "mypy", "--strict", str(p / "src")] for p in sorted(workshop.iterdir())),
    ):
        done = subprocess.run(command, cwd=workshop, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
