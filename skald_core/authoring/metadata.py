"""Checks of what a plugin says of itself: manifest, distribution, documentation."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from skald_core.api import API_VERSION
from skald_core.authoring.findings import Finding, Severity
from skald_core.authoring.project import Project
from skald_core.authoring.sources import hook_names
from skald_core.plugins.manifest import Manifest, ManifestError, canonical_id

__all__ = ("check_metadata",)

SHORTEST_README = 200
"""Characters below which a README says nothing."""


def check_metadata(project: Project) -> Iterator[Finding]:
    yield from _distribution(project)
    path = project.package_dir / "skald-plugin.toml"
    shown = project.relative(path)
    try:
        manifest = project.manifest()
    except ManifestError as error:
        yield _finding("error", shown if path.exists() else "pyproject.toml", "manifest", str(error))
        return
    text = path.read_text(encoding="utf-8")

    def at(key: str) -> int:
        return next((n for n, line in enumerate(text.splitlines(), 1) if line.lstrip().startswith(key)), 0)

    yield from _manifest(project, manifest, shown, at)
    unknown = sorted(tomllib.loads(text).keys() - set(Manifest.__struct_fields__))
    if unknown:
        yield _finding(
            "warning", shown, "manifest-unknown", f"{unknown[0]!r} means nothing here; remove it", at(unknown[0])
        )
    yield from _documentation(project, manifest, shown, at("docs"))


def _finding(severity: Severity, path: str, code: str, text: str, line: int = 0) -> Finding:
    return Finding(severity=severity, path=path, line=line, code=code, text=text)


def _distribution(project: Project) -> Iterator[Finding]:
    expected = canonical_id(project.distribution)
    if project.id != expected:
        yield _finding(
            "error",
            "pyproject.toml",
            "id-distribution",
            f"the entry point is called {project.id!r}; the distribution {project.distribution!r} may only use {expected!r}",
        )
    core = None
    for line in project.settings.get("project", {}).get("dependencies", []):
        try:
            requirement = Requirement(line)
        except InvalidRequirement as error:
            yield _finding("error", "pyproject.toml", "requirement", f"{line!r} is no requirement: {error}")
            continue
        if requirement.url:
            yield _finding(
                "error", "pyproject.toml", "requirement", f"{line!r} names an address; Skald installs from indexes only"
            )
        if canonicalize_name(requirement.name) == "skald-core":
            core = requirement
    if core is None:
        yield _finding("error", "pyproject.toml", "requirement-core", 'add "skald-core>=…" to dependencies')
    elif not core.specifier:
        yield _finding(
            "warning",
            "pyproject.toml",
            "requirement-core",
            'say which versions of skald-core you tested: "skald-core>=…"',
        )
    for name in ("description", "readme", "license", "requires-python"):
        if name not in project.settings.get("project", {}):
            yield _finding(
                "warning", "pyproject.toml", "project-field", f"add {name} under [project]; the catalog shows it"
            )


def _manifest(project: Project, manifest: Manifest, shown: str, line: Callable[[str], int]) -> Iterator[Finding]:
    if manifest.id != project.id:
        text = f"id is {manifest.id!r}, the entry point says {project.id!r}; make them equal"
        yield _finding("error", shown, "id-manifest", text, line("id"))
    if not manifest.accepts(API_VERSION):
        text = f"api = {manifest.api!r} leaves out {API_VERSION}, the API of this Skald"
        yield _finding("error", shown, "api-range", text, line("api"))
    elif SpecifierSet(manifest.api).contains(Version(f"{int(API_VERSION.partition('.')[0]) + 1}.0")):
        text = f"api = {manifest.api!r} has no upper end; the next major version may break this plugin"
        yield _finding("warning", shown, "api-open", text, line("api"))
    if not manifest.summary:
        yield _finding("warning", shown, "manifest-summary", "add summary: one sentence for the catalog")
    for hook in sorted(set(manifest.contributes.hooks) - hook_names().keys()):
        yield _finding("error", shown, "manifest-hook", f"there is no hook {hook!r}", line("hooks"))


def _documentation(project: Project, manifest: Manifest, shown: str, line: int) -> Iterator[Finding]:
    readme = project.root / "README.md"
    if not readme.is_file():
        yield _finding(
            "error", "README.md", "docs-readme", "write one: what the plugin does, how to use it, its settings"
        )
    elif len(readme.read_text(encoding="utf-8", errors="replace")) < SHORTEST_README:
        yield _finding(
            "warning", "README.md", "docs-readme", "say what the plugin does, how to use it, and its settings"
        )
    if not manifest.docs:
        yield _finding("warning", shown, "docs-manifest", 'add docs = "README.md", or the address of its pages')
    elif "://" not in manifest.docs and not (project.root / manifest.docs).is_file():
        yield _finding(
            "error", shown, "docs-manifest", f"docs names {manifest.docs!r}, which is not in the project", line
        )
    if not any(project.test_files()):
        yield _finding("warning", "tests", "tests", "there are no tests; see docs/plugins/testing.md")
