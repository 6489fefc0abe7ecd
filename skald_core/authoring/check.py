"""``skald plugin check``: judges a plugin's project and says what to mend, with file and line."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from skald_core.authoring.findings import Finding
from skald_core.authoring.importing import ImportTimes, check_import, measure_import
from skald_core.authoring.metadata import check_metadata
from skald_core.authoring.probe import Report
from skald_core.authoring.project import Project, read_project
from skald_core.authoring.sources import check_sources, read_sources
from skald_core.authoring.texts import check_texts

__all__ = ("Judgement", "check_project")

GIVE_UP = 180.0
"""Seconds the plugin may take in its throw-away server."""


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The result. ``ok`` means no error; warnings do not count."""

    ok: bool
    plugin: str
    version: str
    findings: list[Finding]
    import_ms: float
    start_ms: float
    tools: int
    routes: int


def check_project(root: Path, *, run: bool = True) -> Judgement:
    """Judge the project in ``root``; ``run=False`` only reads it. Raises BadInput when it is no plugin's project."""
    project = read_project(root)
    findings = list(check_metadata(project))
    sources, unreadable = read_sources(project, project.files("*.py"))
    tests, unreadable_tests = read_sources(project, project.test_files())
    findings += unreadable + unreadable_tests
    findings += check_sources(project, sources, tests)
    findings += check_texts(project, sources)
    times, report = ImportTimes(0.0), Report()
    if run and not unreadable and project.discovered().manifest is not None:
        times = measure_import(project)
        findings += check_import(project, times, sources)
        if not times.error:
            report = _probe(project)
            findings += report.findings
    findings = sorted(set(findings), key=lambda f: (f.severity, f.path, f.line, f.text))
    return Judgement(
        ok=not any(f.severity == "error" for f in findings),
        plugin=project.id,
        version=project.version,
        findings=findings,
        import_ms=round(times.total_ms, 1),
        start_ms=report.start_ms,
        tools=report.tools,
        routes=report.routes,
    )


def _probe(project: Project) -> Report:
    entry = project.relative(project.package_dir / "__init__.py")

    def failed(text: str) -> Report:
        return Report([Finding(severity="error", path=entry, code="run", text=text)])

    with tempfile.TemporaryDirectory(prefix="skald-check-") as folder:
        path = Path(folder) / "report.json"
        try:
            done = subprocess.run(  # noqa: S603 -- this interpreter, on the folder the author named
                [sys.executable, "-m", "skald_core.authoring.probe", str(project.root), str(path)],
                capture_output=True,
                text=True,
                timeout=GIVE_UP,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            return failed(f"starting and stopping it takes more than {GIVE_UP:g} s")
        if not path.is_file():
            last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "it said nothing")
            return failed(f"it ended the process that tried it (status {done.returncode}): {last}")
        report = msgspec.json.decode(path.read_bytes(), type=Report)
    if done.returncode:
        return failed(f"the process that tried it did not end well (status {done.returncode})")
    return report
