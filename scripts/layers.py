"""Checks the rules that an import contract cannot say: plugins import only ``skald_core.api`` (and ``skald_core.testing`` in
tests) and never each other, and the kernel names no plugin. Exits 1 with a line per breach."""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def imports(path: Path) -> list[tuple[int, str]]:
    """(line, module) of every import of a file, with the imported names appended for ``from package import name``."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return found


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def plugin_packages() -> dict[str, Path]:
    """Import name to folder of every bundled plugin."""
    return {p.name: p for p in sorted(ROOT.glob("plugins/*/src/*")) if p.is_dir() and not p.name.endswith(".egg-info")}


def main() -> int:
    packages = plugin_packages()
    breaches: list[str] = []
    for name, folder in packages.items():
        allowed = ("skald_core.api",)
        tests = folder.parent.parent / "tests"
        for path in [*folder.rglob("*.py"), *(tests.rglob("*.py") if tests.is_dir() else ())]:
            in_tests = path.is_relative_to(tests)
            for line, module in imports(path):
                where = f"{path.relative_to(ROOT)}:{line}"
                outside = within(module, "skald_core") and not any(within(module, a) for a in allowed)
                if outside and not in_tests:
                    breaches.append(f"{where}: a plugin may import only skald_core.api, not {module}")
                for other in packages:
                    if other != name and within(module, other):
                        breaches.append(f"{where}: plugins do not import each other ({module})")
    ids = [tomllib.loads(p.read_text())["id"] for p in ROOT.glob("plugins/*/src/*/skald-plugin.toml")]
    names = [*packages, *(f"skald-{i}" for i in ids)]
    for path in (ROOT / "skald_core").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        breaches += [f"{path.relative_to(ROOT)}: the kernel names the plugin {n!r}" for n in names if n in text]
        breaches += [
            f"{path.relative_to(ROOT)}:{line}: the kernel imports the plugin {module}"
            for line, module in imports(path)
            if any(within(module, n) for n in packages)
        ]
    for breach in breaches:
        print(breach)
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
