"""A plugin's project on disk, read without importing any of it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from skald_core.errors import BadInput
from skald_core.plugins.discovery import GROUP, Discovered
from skald_core.plugins.manifest import Manifest, ManifestError, canonical_id, read_manifest

__all__ = ("Project", "read_project")

_SKIPPED = frozenset({"__pycache__", "node_modules", "build", "dist"})


class Project(msgspec.Struct, frozen=True):
    """``package_dir`` is the import package's folder, ``source_dir`` what has to be on ``sys.path`` to import it."""

    root: Path
    distribution: str
    version: str
    id: str
    module: str
    source_dir: Path
    package_dir: Path
    settings: dict[str, Any]

    @property
    def package(self) -> str:
        return self.module.partition(":")[0].partition(".")[0]

    def relative(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)

    def files(self, pattern: str) -> Iterator[Path]:
        """Files of the package, in order."""
        for path in sorted(self.package_dir.rglob(pattern)):
            if path.is_file() and not _SKIPPED & set(path.relative_to(self.package_dir).parts):
                yield path

    def test_files(self) -> Iterator[Path]:
        """Python files of the ``tests`` folder."""
        for path in sorted((self.root / "tests").rglob("*.py")):
            if not _SKIPPED & set(path.parts):
                yield path

    def manifest(self) -> Manifest:
        """Raises ManifestError."""
        return read_manifest(self.package_dir / "skald-plugin.toml")

    def discovered(self) -> Discovered:
        """As discovery would describe it once it is installed. A broken manifest is in ``error``."""
        base = Discovered(
            id=self.id,
            distribution=self.distribution,
            version=self.version,
            module=self.module,
            package_dir=self.package_dir,
            editable=True,
        )
        try:
            return msgspec.structs.replace(base, manifest=self.manifest())
        except ManifestError as error:
            return msgspec.structs.replace(base, error=str(error))


def read_project(root: Path) -> Project:
    """Read ``pyproject.toml`` and find the package.

    Raises BadInput with what is missing: then it is no plugin's project, and there is nothing to check or run.
    """
    root = root.resolve()
    path = root / "pyproject.toml"
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise BadInput(f"no pyproject.toml in {str(root)!r}; give the folder of a plugin's project") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{str(path)!r} cannot be read: {error}") from None
    project = raw.get("project", {})
    name = project.get("name")
    if not isinstance(name, str):
        raise BadInput(f"{str(path)!r} names no project; add name under [project]")
    points = project.get("entry-points", {}).get(GROUP, {})
    if len(points) != 1:
        raise BadInput(
            f'{str(path)!r} must have exactly one entry point: [project.entry-points."{GROUP}"] {canonical_id(name)} = '
            f'"<package>"; it has {len(points)}'
        )
    ((plugin_id, module),) = points.items()
    top = str(module).partition(":")[0].partition(".")[0]
    for source in (root / "src", root):
        if (source / top).is_dir():
            return Project(
                root=root,
                distribution=name,
                version=str(project.get("version", "0")),
                id=plugin_id,
                module=module,
                source_dir=source,
                package_dir=source / top,
                settings=raw,
            )
    raise BadInput(
        f"the entry point names the package {top!r}, which is neither in {str(root / 'src')!r} nor in {str(root)!r}"
    )
