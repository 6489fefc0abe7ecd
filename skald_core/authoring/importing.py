"""How long a plugin's import takes, and which of its imports take most of it. Every start of the server waits for it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator

import msgspec

from skald_core.authoring.findings import Finding
from skald_core.authoring.project import Project
from skald_core.authoring.sources import Source

__all__ = ("ImportTimes", "check_import", "measure_import")

SLOW_MS = 100.0
TOO_SLOW_MS = 1000.0
HEAVY_MS = 30.0
GIVE_UP = 60.0
_MARK = "--- skald: the plugin from here on"
_LINE = re.compile(r"import time:\s*(\d+) \|\s*(\d+) \| (\s*)(\S+)")


class ImportTimes(msgspec.Struct, frozen=True):
    """``total_ms`` of the plugin; ``heavy`` are (module, ms) it imports from elsewhere, each first imported by it."""

    total_ms: float
    heavy: tuple[tuple[str, float], ...] = ()
    error: str = ""


def measure_import(project: Project) -> ImportTimes:
    """Import the plugin in a fresh interpreter in which the server's own modules are loaded already."""
    code = (
        "import sys, skald_core.runtime.app, skald_core.server.api_app\n"
        f"sys.path.insert(0, {str(project.source_dir)!r})\n"
        f"sys.stderr.write({_MARK!r} + chr(10))\n"
        f"import {project.module.partition(':')[0]}\n"
    )
    try:
        done = subprocess.run(  # noqa: S603 -- this interpreter, on the folder the author named
            [sys.executable, "-X", "importtime", "-c", code],
            capture_output=True,
            text=True,
            timeout=GIVE_UP,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return ImportTimes(GIVE_UP * 1000, error=f"importing it takes more than {GIVE_UP:g} s")
    _, _, after = done.stderr.partition(_MARK)
    if done.returncode:
        last = next(
            (line for line in reversed(done.stderr.splitlines()) if line and not line.startswith("import time")), ""
        )
        return ImportTimes(0.0, error=f"it cannot be imported: {last}")
    return _read(after, project.package)


def _read(text: str, package: str) -> ImportTimes:
    """Children come before their parent, indented deeper: read backwards, a line's parent is the last shallower one."""
    rows = [(int(m[2]) / 1000, len(m[3]), m[4]) for m in _LINE.finditer(text)]
    total = sum(ms for ms, depth, name in rows if depth == 0 and name.partition(".")[0] == package)
    heavy: list[tuple[str, float]] = []
    parents: list[tuple[int, str]] = []
    for ms, depth, name in reversed(rows):
        while parents and parents[-1][0] >= depth:
            parents.pop()
        parent = parents[-1][1] if parents else ""
        if name.partition(".")[0] != package and parent.partition(".")[0] == package and ms >= HEAVY_MS:
            heavy.append((name, ms))
        parents.append((depth, name))
    return ImportTimes(total, tuple(heavy))


def check_import(project: Project, times: ImportTimes, sources: list[Source]) -> Iterator[Finding]:
    entry = project.relative(project.package_dir / "__init__.py")
    if times.error:
        yield Finding(severity="error", path=entry, code="import", text=times.error)
        return
    if times.total_ms > SLOW_MS:
        yield Finding(
            severity="error" if times.total_ms > TOO_SLOW_MS else "warning",
            path=entry,
            code="import-time",
            text=f"importing it takes {times.total_ms:.0f} ms of every start; import what is heavy inside the functions that "
            "need it",
        )
    for module, ms in times.heavy:
        path, line = _statement(module, sources) or (entry, 0)
        text = f"importing {module} takes {ms:.0f} ms of every start; import it inside the functions that need it"
        yield Finding(severity="warning", path=path, line=line, code="import-heavy", text=text)


def _statement(module: str, sources: list[Source]) -> tuple[str, int] | None:
    top = module.partition(".")[0]
    for source in sources:
        for node in source.tree.body:
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            if any(name.partition(".")[0] == top for name in names):
                return source.shown, node.lineno
    return None
