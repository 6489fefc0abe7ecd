"""`skald plugin check` finds each fault, where it is, and says what to do."""

import json
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from skald_core.authoring.check import Judgement, check_project
from skald_core.authoring.naming import names_for
from skald_core.authoring.scaffold import write_project
from skald_core.cli.main import main

Change = Callable[[Path], None]
PACKAGE = "src/skald_plugin_sample"


@pytest.fixture
def project(workshop: Path) -> Path:
    """A fresh tool plugin, in which a test then breaks something."""
    return write_project(names_for("sample"), "tool", workshop)


def add(project: Path, name: str, source: str) -> None:
    path = project / PACKAGE / name
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    path.parent.mkdir(exist_ok=True)
    path.write_text(before + textwrap.dedent(source), encoding="utf-8")


def replace(project: Path, name: str, old: str, new: str) -> None:
    path = project / name
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def found(judged: Judgement, code: str) -> list[str]:
    """What was found under a code, as printed."""
    return [str(f) for f in judged.findings if f.code == code]


def test_a_fresh_scaffold_has_no_fault(project: Path) -> None:
    """Nothing is found, and what was measured is told."""
    judged = check_project(project)
    assert judged.findings == []
    assert judged.ok
    assert judged.tools == 1
    assert judged.import_ms > 0


ASYNC = """
import time, subprocess, requests, asyncio
from time import sleep as nap

async def slow():
    time.sleep(1)
    nap(1)
    subprocess.run(["true"])
    requests.get("x")
    while True:
        pass

@skald.hookimpl
def skald_startup():
    input()

async def fine():
    await asyncio.to_thread(time.sleep, 1)
    while True:
        await asyncio.sleep(1)

async def files(ctx, user):
    files = ctx.files(user)
    await files.write_text("a.txt", await files.read_text("b.txt"))
    return str(await files.read_bytes("c.bin"))

def in_a_thread():
    time.sleep(1)
"""


def test_blocking_calls(project: Path) -> None:
    """Calls that wait on the event loop, by whatever name they were imported; threads may wait."""
    add(project, "__init__.py", ASYNC)
    judged = check_project(project, run=False)
    texts = found(judged, "blocking")
    for what in ("time.sleep()", "subprocess.run()", "requests.get()", "input()"):
        assert any(what in text for text in texts), what
    assert len(texts) == 5
    assert all(":" in text.split(" ")[0] for text in texts)
    (loop,) = found(judged, "endless-loop")
    assert "async slow" in loop
    assert not judged.ok


@pytest.mark.parametrize(
    ("source", "code", "words"),
    [
        ("\n@skald.hookimpl\ndef skald_toolz(ctx): return []", "hook-unknown", "did you mean skald_tools?"),
        ("\n@skald.hookimpl\ndef skald_gate(ctx, cal): return None", "hook-parameter", "it has: ctx, call"),
        ("\n@skald.hookimpl\ndef skald_gate(**all): return None", "hook-parameter", "name the parameters"),
        ("\ndef skald_gate(call): return None", "hook-unmarked", "without @skald.hookimpl"),
        ("\nfrom skald_core.runtime import app", "import-internal", "skald_core.runtime.app is not for plugins"),
        ("\nimport skald_core.db.schema", "import-internal", "use skald_core.api"),
        ("\nfrom skald_core.testing import call", "import-internal", "skald_core.testing in tests"),
        ("\nimport skald_tools_fs", "import-plugin", "ctx.service"),
        ("\ndef broken(:", "syntax", "cannot be read"),
    ],
)
def test_faults_in_the_sources(project: Path, source: str, code: str, words: str) -> None:
    """Each is told with its file and line."""
    add(project, "__init__.py", source)
    judged = check_project(project, run=False)
    (text,) = found(judged, code)
    assert words in text
    assert text.startswith(f"{PACKAGE}/__init__.py:")
    assert not judged.ok


def test_an_optional_hook_may_be_unknown(project: Path) -> None:
    """For hooks that only newer versions of Skald have."""
    add(project, "__init__.py", "\n@skald.hookimpl(optionalhook=True)\ndef skald_future(ctx): return []")
    assert found(check_project(project, run=False), "hook-unknown") == []


def test_a_hook_that_nobody_calls(project: Path) -> None:
    """Hooks count only in the module the entry point names."""
    add(project, "more.py", "from skald_core import api as skald\n@skald.hookimpl\ndef skald_gate(call): return None\n")
    (text,) = found(check_project(project, run=False), "hook-unreached")
    assert "'skald_plugin_sample'" in text
    add(project, "__init__.py", "\nfrom skald_plugin_sample.more import skald_gate")
    assert found(check_project(project, run=False), "hook-unreached") == []


def test_texts(project: Path) -> None:
    """A key that is missing, a language that lacks one, another placeholder, a text nobody uses, in Python and JavaScript."""
    add(project, "__init__.py", '\ndef words(ctx): return ctx.t("no.such"), ctx.t(f"kind.{ctx.id}")')
    add(project, "web/page.js", 't("plugin.sample.page.title"); onEvent("plugin.sample.changed", f);')
    replace(project, f"{PACKAGE}/i18n/it.json", '"Contare le parole"', '"Contare {what}"')
    replace(project, f"{PACKAGE}/i18n/fr.json", '"config.shortest": "Mot le plus court",', '"other": "x",')
    replace(project, f"{PACKAGE}/i18n/en.json", "{", '{\n  "lonely": "Nobody",')
    judged = check_project(project, run=False)
    missing = found(judged, "i18n-missing")
    assert [("no.such" in t, "kind." in t, "page.title" in t) for t in missing].count((False, False, False)) == 0
    assert len(missing) == 3
    assert any(t.startswith(f"{PACKAGE}/web/page.js:1") for t in missing)
    assert "tool.count_words" in found(judged, "i18n-placeholders")[0]
    assert "fr.json" in found(judged, "i18n-incomplete")[0]
    assert "'other'" in found(judged, "i18n-extra")[0]
    assert "'lonely'" in found(judged, "i18n-unused")[0]


def test_manifest_and_distribution(project: Path) -> None:
    """Ids that differ, an API range that leaves this one out, requirements that name an address, missing documents."""
    replace(project, "pyproject.toml", 'sample = "', 'simple = "')
    replace(project, "pyproject.toml", '"skald-core>=0.1"', '"thing @ https://example.org/thing.whl"')
    replace(project, f"{PACKAGE}/skald-plugin.toml", '">=1.0,<2"', '">=7"')
    replace(project, f"{PACKAGE}/skald-plugin.toml", '"skald_tools"', '"skald_toolz"')
    replace(project, f"{PACKAGE}/skald-plugin.toml", 'docs = "README.md"', 'docs = "nowhere.md"\ncolour = "red"')
    (project / "README.md").unlink()
    judged = check_project(project, run=False)
    codes = {f.code for f in judged.findings}
    assert codes >= {
        "id-distribution", "id-manifest", "requirement", "requirement-core", "api-range", "manifest-hook",
        "manifest-unknown", "docs-readme", "docs-manifest",
    }  # fmt: skip


LEFT_THREAD = """
import threading

@skald.hookimpl
def skald_startup():
    threading.Thread(target=lambda: threading.Event().wait(), daemon=True, name="left").start()
"""
LEFT_TASK = """
import asyncio
_kept = []

async def forever():
    await asyncio.Event().wait()

@skald.hookimpl
async def skald_startup():
    _kept.append(asyncio.create_task(forever()))
"""


@pytest.mark.parametrize(
    ("source", "code", "words"),
    [
        ("\n1 / 0", "import", "division by zero"),
        ("\nraise SystemExit(3)", "import", "cannot be imported"),
        ("\n@skald.hookimpl\ndef skald_llm_providers(): return [1]", "register", "ProviderType"),
        ("\n@skald.hookimpl\nasync def skald_startup(): raise ValueError('no')", "start", "start fails: no"),
        (
            "\n@skald.hookimpl\ndef skald_schema(): return [skald.Schema('owner', (skald.Migration(1, 'CREATE TABLE x(a)'),))]",
            "tables",
            "names that start with 'sample_'",
        ),
        (
            LEFT_THREAD,
            "unload-thread",
            "'left'",
        ),
        (
            LEFT_TASK,
            "unload-task",
            "forever",
        ),
        (
            "\n_times = []\n@skald.hookimpl\ndef skald_startup():\n    _times.append(1)\n    assert len(_times) < 2, 'twice'",
            "enable-again",
            "not again",
        ),
        ("\nimport os\n@skald.hookimpl\ndef skald_startup(): os._exit(5)", "run", "status 5"),
    ],
)
def test_faults_that_show_when_it_runs(project: Path, source: str, code: str, words: str) -> None:
    """It is imported, started, disabled and enabled again in a process of its own."""
    add(project, "__init__.py", source)
    judged = check_project(project)
    assert any(words in text for text in found(judged, code)), judged.findings
    assert not judged.ok


def test_tools_are_judged(project: Path) -> None:
    """A name models stumble over, no description, parameters without words, no title."""
    source = '''

    @skald.tool(name="Bad-Name")
    async def bad(thing: str) -> str:
        """Do."""
        return thing
    '''
    add(project, "__init__.py", source)
    replace(project, f"{PACKAGE}/__init__.py", "[count_words(ctx)]", "[count_words(ctx), bad]")
    judged = check_project(project)
    codes = {f.code for f in judged.findings}
    assert codes >= {"tool-name", "tool-description", "tool-parameter", "tool-title", "problem"}
    assert all(f.line for f in judged.findings if f.code.startswith("tool-"))


def test_a_heavy_import_is_named(project: Path) -> None:
    """The statement that costs the time, not the plugin as a whole."""
    replace(project, f"{PACKAGE}/__init__.py", "from __future__ import annotations\n", "import heavy_thing\n")
    (project / "src" / "heavy_thing.py").write_text("import time\ntime.sleep(0.15)\n")
    judged = check_project(project)
    (text,) = found(judged, "import-heavy")
    assert "heavy_thing" in text
    line = (project / PACKAGE / "__init__.py").read_text().splitlines().index("import heavy_thing") + 1
    assert text.startswith(f"{PACKAGE}/__init__.py:{line}:")
    assert found(judged, "import-time")


def test_a_table_of_another_name_has_its_line(project: Path) -> None:
    """The finding of what happened while it ran points into the sources where a traceback does."""
    add(project, "__init__.py", "\n\n@skald.hookimpl\ndef skald_startup():\n    raise RuntimeError('here')\n")
    (text,) = found(check_project(project), "start")
    lines = (project / PACKAGE / "__init__.py").read_text().splitlines()
    assert text.startswith(f"{PACKAGE}/__init__.py:{lines.index('    raise RuntimeError(' + repr('here') + ')') + 1}:")


def test_the_command(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 1 on errors, one line each, one JSON object on demand; a folder that is no plugin is told so."""
    add(project, "__init__.py", "\n@skald.hookimpl\ndef skald_toolz(): return []")
    assert main(["plugin", "check", str(project), "--no-run"]) == 1
    said = capsys.readouterr().out
    assert "[hook-unknown]" in said
    assert "sample 0.1.0: 1 error, no warnings" in said
    assert main(["plugin", "check", str(project), "--no-run", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False
    assert main(["plugin", "check", str(project.parent)]) == 1
    assert "no pyproject.toml" in capsys.readouterr().err
