"""Runs a plugin in a throw-away Skald and reports what happens: the part of ``skald plugin check`` that executes its code.

A process of its own (``python -m skald_core.authoring.probe PROJECT REPORT``), so that a plugin which hangs, exits or leaves
threads behind cannot take the check with it.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
import threading
import types
from pathlib import Path
from typing import Any

import msgspec

from skald_core.authoring.findings import Finding, Severity
from skald_core.authoring.project import Project, read_project
from skald_core.loop.tools import FunctionTool

__all__ = ("Report", "main")

SETTLE_TURNS = 50
"""Turns of the event loop a cancelled task gets to end."""

MAX_SCHEMA = 4000
"""Characters of one tool's name, description and parameters: every request carries them, and small models read little."""


class Report(msgspec.Struct):
    """What the child process writes. ``state`` is the plugin's after it was started."""

    findings: list[Finding] = []
    state: str = ""
    start_ms: float = 0.0
    tools: int = 0
    routes: int = 0


class _Probe:
    def __init__(self, project: Project) -> None:
        self.project = project
        self.report = Report()

    def found(self, severity: Severity, code: str, text: str, where: tuple[str, int] | None = None) -> None:
        path, line = where or (self.project.relative(self.project.package_dir / "__init__.py"), 0)
        self.report.findings.append(Finding(severity=severity, path=path, line=line, code=code, text=text))

    async def run(self) -> None:
        from skald_core.testing import AppFactory, allow_all, refuse_network

        with tempfile.TemporaryDirectory(prefix="skald-check-") as folder, refuse_network() as tried:
            factory = AppFactory(Path(folder))
            try:
                app = await factory(self.project.discovered(), allow_all(), strict=False)
                await self.examine(app)
            finally:
                await factory.close()
        if tried:
            self.found(
                "warning", "network-start", f"it reaches for {tried[0]} when it starts; do that when it is needed"
            )

    async def examine(self, app: Any) -> None:
        plugins = app.skald.plugins
        row = plugins.rows[self.project.id]
        self.report.state = row.state
        self.report.start_ms = round(row.start_ms, 1)
        if row.state == "needs_config":
            self.found(
                "warning",
                "needs-config",
                "a setting has no default, so it cannot be started here; the rest was not checked",
            )
            return
        if row.state != "running":
            self.failure(row.error)
            return
        await app.client()
        for problem in app.skald.plugins.problems(row):
            self.found("error", "problem", problem)
        if row.error is not None:
            self.failure(row.error)
        brought = plugins.contributed.of(self.project.id)
        self.report.tools, self.report.routes = len(brought.tools), len(brought.routes)
        for tool in brought.tools:
            self.tool(tool)
        await self.unload(app)

    def failure(self, error: Any) -> None:
        if error is None:
            self.found("error", "start", "it is not running, and nothing says why")
            return
        codes = {"migrate": "tables", "import": "import", "register": "register", "start": "start"}
        self.found(
            "error", codes.get(error.phase, error.phase), f"{error.phase} fails: {error.message}", self.place(error)
        )

    def place(self, error: Any) -> tuple[str, int] | None:
        """The deepest line of the plugin in a traceback, or the hook its message names."""
        inside = [
            (Path(path), int(line))
            for path, line in re.findall(r'File "(.+?)", line (\d+)', error.traceback)
            if Path(path).is_relative_to(self.project.package_dir)
        ]
        if inside:
            return self.project.relative(inside[-1][0]), inside[-1][1]
        hook = re.search(r"\bskald_[a-z_]+", error.message)
        return self.line_of(rf"def {hook[0]}\b") if hook else None

    def line_of(self, pattern: str) -> tuple[str, int] | None:
        for path in self.project.files("*.py"):
            for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
                if re.search(pattern, line):
                    return self.project.relative(path), number
        return None

    # -- tools ---------------------------------------------------------------------------------------------------------

    def tool(self, tool: Any) -> None:
        where = self.line_of(rf"""["']{re.escape(tool.name)}["']|def {re.escape(tool.name)}\b""")
        what = f"tool {tool.name!r}"
        if not re.fullmatch(r"[a-z][a-z0-9_]{1,63}", tool.name):
            self.found("error", "tool-name", f"{what}: use lower-case letters, digits and '_', at most 64", where)
        if len(tool.description.split()) < 3:
            self.found("error", "tool-description", f"{what}: say in a sentence what it does and when to use it", where)
        for name, schema in tool.parameters.get("properties", {}).items():
            if not schema.get("description"):
                place = "the docstring's Args" if isinstance(tool, FunctionTool) else "the schema of its parameters"
                self.found("warning", "tool-parameter", f"{what}: describe {name!r} in {place}", where)
            if not {"type", "anyOf", "enum", "oneOf", "const"} & schema.keys():
                self.found(
                    "error",
                    "tool-parameter",
                    f"{what}: {name!r} has no type, so a model cannot know what to send",
                    where,
                )
        if not tool.title:
            self.found(
                "warning", "tool-title", f"{what}: give it a title in words people know, as a text of i18n", where
            )
        size = len(msgspec.json.encode(tool.spec()))
        if size > MAX_SCHEMA:
            self.found("warning", "tool-size", f"{what}: {size:,} characters go with every request; shorten it", where)

    # -- unloading -----------------------------------------------------------------------------------------------------

    async def unload(self, app: Any) -> None:
        plugins = app.skald.plugins
        plugin_id = self.project.id
        await plugins.disable(plugin_id)
        first = await self._left()
        if (row := plugins.rows[plugin_id]).error is not None:
            self.failure(row.error)
        for _ in range(2):
            await plugins.enable(plugin_id)
            if plugins.rows[plugin_id].state != "running":
                self.found("error", "enable-again", "it starts once but not again after being disabled")
                self.failure(plugins.rows[plugin_id].error)
                return
            await plugins.disable(plugin_id)
        last = await self._left()
        for name in sorted(last["tasks"] - first["tasks"] | {n for n in first["tasks"] if n.startswith("own ")}):
            text = (
                f"the task {name.removeprefix('own ')} still runs after it was disabled; start tasks with ctx.spawn(…)"
            )
            self.found("error", "unload-task", text)
        for name in sorted(last["threads"] - first["threads"] | {n for n in first["threads"] if n.startswith("own ")}):
            name = name.removeprefix("own ").partition("#")[0]
            text = f"the thread {name!r} still runs after it was disabled; end it in ctx.on_dispose(…)"
            self.found("error", "unload-thread", text)
        if plugins.dispatcher.hooks_of(plugin_id):
            self.found("error", "unload-hooks", "its hooks are still called after it was disabled")

    async def _left(self) -> dict[str, set[str]]:
        for _ in range(SETTLE_TURNS):
            await asyncio.sleep(0)
        tasks = set()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            code = getattr(task.get_coro(), "cr_code", None)
            name = f"{getattr(code, 'co_qualname', task.get_name())}"
            tasks.add(f"own {name}" if self._is_own(getattr(code, "co_filename", "")) else f"{name}#{id(task)}")
        threads = set()
        for thread in threading.enumerate():
            target = getattr(thread, "_target", None)
            code = getattr(target, "__code__", None) or getattr(type(thread).run, "__code__", None)
            own = isinstance(code, types.CodeType) and self._is_own(code.co_filename)
            if own:
                threads.add(f"own {thread.name}")
            elif not thread.name.startswith(("asyncio_", "ThreadPoolExecutor", "plugin-import")):
                threads.add(f"{thread.name}#{thread.ident}")
        return {"tasks": tasks, "threads": threads}

    def _is_own(self, filename: str) -> bool:
        return bool(filename) and Path(filename).is_relative_to(self.project.package_dir)


def main(argv: list[str]) -> int:
    project = read_project(Path(argv[0]))
    sys.path.insert(0, str(project.source_dir))
    probe = _Probe(project)
    asyncio.run(probe.run())
    Path(argv[1]).write_bytes(msgspec.json.encode(probe.report))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
