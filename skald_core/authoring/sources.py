"""Checks that read a plugin's Python sources: hooks, imports, calls that block."""

from __future__ import annotations

import ast
import difflib
import importlib.metadata
import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from skald_core import hookspecs
from skald_core.authoring.findings import Finding, Severity
from skald_core.authoring.project import Project
from skald_core.plugins.discovery import GROUP

__all__ = ("Source", "check_sources", "find_line", "hook_names", "read_sources")

_BLOCKING: dict[str, str] = {
    "time.sleep": "await asyncio.sleep(…)",
    "os.system": "await asyncio.create_subprocess_exec(…)",
    "os.popen": "await asyncio.create_subprocess_exec(…)",
    "subprocess.run": "await asyncio.create_subprocess_exec(…)",
    "subprocess.call": "await asyncio.create_subprocess_exec(…)",
    "subprocess.check_call": "await asyncio.create_subprocess_exec(…)",
    "subprocess.check_output": "await asyncio.create_subprocess_exec(…)",
    "subprocess.Popen": "await asyncio.create_subprocess_exec(…)",
    "urllib.request.urlopen": "ctx.http()",
    "socket.create_connection": "ctx.http() or asyncio.open_connection(…)",
    "socket.getaddrinfo": "await loop.getaddrinfo(…)",
    "sqlite3.connect": "ctx.tables or ctx.owner_tables(user)",
    "shutil.copytree": "await asyncio.to_thread(shutil.copytree, …)",
    "shutil.rmtree": "await asyncio.to_thread(shutil.rmtree, …)",
    "shutil.copyfile": "await asyncio.to_thread(shutil.copyfile, …)",
    "input": "a setting or a page",
}
_BLOCKING_MODULES = {
    "requests": "ctx.http()",
    "urllib3": "ctx.http()",
    "httpx": "ctx.http()",
}
_HTTPX_SYNC = frozenset({"get", "post", "put", "patch", "delete", "head", "options", "request", "stream", "Client"})
_FILE_METHODS = frozenset({"read_text", "read_bytes", "write_text", "write_bytes"})


class Source(msgspec.Struct):
    """A parsed file. ``names`` maps what a name in it stands for: ``{"sleep": "time.sleep", "t": "time"}``."""

    path: Path
    shown: str
    text: str
    tree: ast.Module
    names: dict[str, str] = {}

    def resolve(self, node: ast.expr) -> str:
        """The dotted name an expression stands for, as far as imports tell; empty when they do not."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        parts.append(self.names.get(node.id, node.id))
        return ".".join(reversed(parts))


def read_sources(project: Project, paths: Iterable[Path]) -> tuple[list[Source], list[Finding]]:
    """Parse files; one that cannot be parsed becomes a finding."""
    sources: list[Source] = []
    findings: list[Finding] = []
    for path in paths:
        shown = project.relative(path)
        try:
            text = path.read_text(encoding="utf-8")
            tree = ast.parse(text, str(path))
        except (SyntaxError, UnicodeDecodeError, ValueError) as error:
            line = (error.lineno or 0) if isinstance(error, SyntaxError) else 0
            findings.append(
                Finding(
                    severity="error", path=shown, line=line, code="syntax", text=f"cannot be read as Python: {error}"
                )
            )
            continue
        source = Source(path, shown, text, tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.asname:
                        source.names[alias.asname] = alias.name
                    else:
                        source.names[alias.name.partition(".")[0]] = alias.name.partition(".")[0]
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                for alias in node.names:
                    source.names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        sources.append(source)
    return sources, findings


def hook_names() -> dict[str, tuple[str, ...]]:
    """Every hook with its parameters."""
    return {
        name: tuple(inspect.signature(value).parameters)
        for name, value in vars(hookspecs).items()
        if name.startswith("skald_") and callable(value)
    }


def check_sources(project: Project, sources: list[Source], tests: list[Source]) -> list[Finding]:
    """Everything that can be told without running the plugin."""
    findings: list[Finding] = []
    others = _other_plugins(project)
    for source in sources:
        findings += _imports(source, others, in_tests=False)
        findings += _blocking(source)
    for source in tests:
        findings += _imports(source, others, in_tests=True)
    findings += _hooks(project, sources)
    return findings


# --- imports -----------------------------------------------------------------------------------------------------------


def _other_plugins(project: Project) -> frozenset[str]:
    """Import packages of the other plugins installed here."""
    points = importlib.metadata.entry_points(group=GROUP)
    return frozenset(p.value.partition(":")[0].partition(".")[0] for p in points) - {project.package}


def _imports(source: Source, others: frozenset[str], *, in_tests: bool) -> Iterator[Finding]:
    allowed = ("skald_core.api", "skald_core.testing") if in_tests else ("skald_core.api",)
    for line, module in _imported(source):
        if module.partition(".")[0] in others:
            text = (
                f"{module} belongs to another plugin, which may be disabled; meet through a service: skald_services and "
                "ctx.service(…)"
            )
            yield Finding(severity="error", path=source.shown, line=line, code="import-plugin", text=text)
        if module.partition(".")[0] == "skald_core" and not any(
            module == name or module.startswith(f"{name}.") for name in allowed
        ):
            also = "" if in_tests else " (and skald_core.testing in tests)"
            text = f"{module} is not for plugins and changes without notice; use skald_core.api{also}"
            yield Finding(severity="error", path=source.shown, line=line, code="import-internal", text=text)


def _imported(source: Source) -> Iterator[tuple[int, str]]:
    """(line, module) of every absolute import, with the name added for ``from package import name``."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


# --- hooks -------------------------------------------------------------------------------------------------------------

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _marker(source: Source, function: _Function) -> ast.expr | None:
    """The hookimpl decorator of a function."""
    for decorator in function.decorator_list:
        name = decorator.func if isinstance(decorator, ast.Call) else decorator
        if source.resolve(name) in {"skald_core.api.hookimpl", "skald_core.hookspecs.hookimpl"}:
            return decorator
    return None


def _option(marker: ast.expr, name: str) -> object:
    if isinstance(marker, ast.Call):
        for keyword in marker.keywords:
            if keyword.arg == name and isinstance(keyword.value, ast.Constant):
                return keyword.value.value
    return None


def _hooks(project: Project, sources: list[Source]) -> Iterator[Finding]:
    known = hook_names()
    entry = project.module.partition(":")[0]
    reached = _reached_names(project, sources, entry)
    for source in sources:
        module = _module_name(project, source)
        for function in (n for n in source.tree.body if isinstance(n, _Function)):
            marker = _marker(source, function)
            name = function.name
            if marker is None:
                if name in known and module == entry:
                    yield _hook_finding(source, function, "hook-unmarked", f"{name} is no hook without @skald.hookimpl")
                continue
            name = str(_option(marker, "specname") or name)
            if name not in known:
                if not _option(marker, "optionalhook"):
                    near = difflib.get_close_matches(name, known, 1)
                    hint = f"; did you mean {near[0]}?" if near else ""
                    yield _hook_finding(source, function, "hook-unknown", f"there is no hook {name}{hint}")
                continue
            yield from _parameters(source, function, name, known[name])
            if ":" not in project.module and module != entry and function.name not in reached.get(module, set()):
                yield _hook_finding(
                    source,
                    function,
                    "hook-unreached",
                    f"{name} is never called: hooks are looked for in {entry!r}; import it there, or move it",
                )


def _parameters(source: Source, function: _Function, name: str, known: tuple[str, ...]) -> Iterator[Finding]:
    arguments = function.args
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        if argument.arg not in known:
            has = ", ".join(known) or "none"
            yield _hook_finding(
                source, function, "hook-parameter", f"{name} has no parameter {argument.arg!r}; it has: {has}"
            )
    if arguments.vararg or arguments.kwarg:
        yield _hook_finding(
            source, function, "hook-parameter", f"{name} cannot take *args or **kwargs; name the parameters it needs"
        )


def _module_name(project: Project, source: Source) -> str:
    parts = source.path.relative_to(project.source_dir).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _reached_names(project: Project, sources: list[Source], entry: str) -> dict[str, set[str]]:
    """By module, the names the entry module imports from it."""
    found: dict[str, set[str]] = {}
    for source in sources:
        if _module_name(project, source) != entry:
            continue
        is_package = source.path.name == "__init__.py"
        for node in source.tree.body:
            if isinstance(node, ast.ImportFrom):
                module = node.module or ""
                if node.level:
                    base = entry.split(".") if is_package else entry.split(".")[:-1]
                    base = base[: len(base) - node.level + 1]
                    module = ".".join([*base, *([module] if module else [])])
                found.setdefault(module, set()).update(alias.name for alias in node.names)
    return found


def _hook_finding(source: Source, function: _Function, code: str, text: str) -> Finding:
    return Finding(severity="error", path=source.shown, line=function.lineno, code=code, text=text)


# --- blocking calls ----------------------------------------------------------------------------------------------------


def _on_the_loop(source: Source) -> Iterator[tuple[_Function, str]]:
    """Functions whose bodies run on the event loop, with the word for them."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.AsyncFunctionDef):
            yield node, f"async {node.name}"
        elif isinstance(node, ast.FunctionDef) and _marker(source, node) is not None:
            yield node, f"the hook {node.name}"


def _own_nodes(function: _Function) -> Iterator[ast.AST]:
    """Nodes of a function's body without those of functions in it: they may be made for a thread."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


def _blocking(source: Source) -> Iterator[Finding]:
    for function, where in _on_the_loop(source):
        nodes = list(_own_nodes(function))
        awaited = {node.value for node in nodes if isinstance(node, ast.Await)}
        for node in nodes:
            if isinstance(node, ast.Call):
                found = _blocking_call(source, node, awaited=node in awaited)
                if found is not None:
                    severity, what, instead = found
                    yield Finding(
                        severity=severity,
                        path=source.shown,
                        line=node.lineno,
                        code="blocking",
                        text=f"{what} in {where} stops the whole server while it waits; use {instead}",
                    )
            elif isinstance(node, ast.While) and _is_endless(node):
                yield Finding(
                    severity="error",
                    path=source.shown,
                    line=node.lineno,
                    code="endless-loop",
                    text=f"this loop in {where} never awaits, so nothing else of the server runs; await in it, or use a thread",
                )


def _blocking_call(source: Source, call: ast.Call, *, awaited: bool) -> tuple[Severity, str, str] | None:
    name = source.resolve(call.func)
    thread = "await asyncio.to_thread(…)"
    if name in _BLOCKING and (name != "input" or "input" not in source.names):
        return "error", f"{name}()", _BLOCKING[name]
    top, _, rest = name.partition(".")
    if top in _BLOCKING_MODULES and rest and (top != "httpx" or rest in _HTTPX_SYNC):
        return "error", f"{name}()", _BLOCKING_MODULES[top]
    if name == "open" and "open" not in source.names:
        return "warning", "open()", thread
    if (
        isinstance(call.func, ast.Attribute) and call.func.attr in _FILE_METHODS and not awaited
    ):  # those of ctx.files() are
        return "warning", f"{call.func.attr}()", thread
    return None


def _is_endless(loop: ast.While) -> bool:
    if not (isinstance(loop.test, ast.Constant) and loop.test.value):
        return False
    leaves = ast.Await | ast.AsyncFor | ast.AsyncWith | ast.Break | ast.Return | ast.Raise | ast.Yield
    return not any(isinstance(node, leaves) for node in ast.walk(loop))


def find_line(sources: Iterable[Source], words: str) -> tuple[str, int] | None:
    """Where a text stands in the sources: (shown path, line)."""
    for source in sources:
        for number, line in enumerate(source.text.splitlines(), 1):
            if words in line:
                return source.shown, number
    return None
