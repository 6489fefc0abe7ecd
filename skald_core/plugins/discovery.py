"""Finding installed plugins from distribution metadata, without importing any of their code.

Measured traps this follows: an editable install lists no package files and ``importlib.resources`` imports the package, so
the manifest's folder comes from ``find_spec`` of the *top-level* package; duplicate metadata of one distribution is folded;
two distributions with one id are both reported, never silently picked.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
from collections.abc import Iterable
from pathlib import Path

import msgspec

from skald_core.plugins.manifest import Manifest, ManifestError, canonical_id, read_manifest

__all__ = ("GROUP", "Discovered", "bundled_names", "discover")

GROUP = "skald.plugins"


class Discovered(msgspec.Struct, frozen=True):
    """One installed plugin, also a broken one: then ``manifest`` is None and ``error`` says why.

    ``module`` is the entry point's value; ``package_dir`` the folder of the top-level package.
    """

    id: str
    distribution: str
    version: str
    module: str
    author: str = ""
    license: str = ""
    package_dir: Path | None = None
    manifest: Manifest | None = None
    error: str = ""
    editable: bool = False


def bundled_names(distribution: str = "skald-core", extra: str = "default") -> frozenset[str]:
    """Canonical names of the distributions that ``distribution[extra]`` asks for; empty when it is not installed."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    try:
        requires = importlib.metadata.requires(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return frozenset()
    names = set()
    for line in requires:
        requirement = Requirement(line)
        if requirement.marker is not None and requirement.marker.evaluate({"extra": extra}):
            without = requirement.marker.evaluate({"extra": ""})
            if not without:
                names.add(str(canonicalize_name(requirement.name)))
    return frozenset(names)


def discover(entry_points: Iterable[importlib.metadata.EntryPoint] | None = None) -> list[Discovered]:
    """Every installed plugin, sorted by id. Never raises for a plugin's fault."""
    importlib.invalidate_caches()
    points = list(importlib.metadata.entry_points(group=GROUP) if entry_points is None else entry_points)
    found: dict[tuple[str, str, str], Discovered] = {}
    for point in points:
        facts = _facts(point)
        key = (canonical_id(facts.name), point.name, point.value)
        if key not in found:
            found[key] = _describe(point, facts)
    rows = sorted(found.values(), key=lambda row: (row.id, row.distribution))
    counts: dict[str, list[str]] = {}
    for row in rows:
        counts.setdefault(row.id, []).append(row.distribution)
    return [
        row
        if len(counts[row.id]) == 1
        else msgspec.structs.replace(
            row,
            manifest=None,
            error=f"the id {row.id!r} is claimed by {' and '.join(map(repr, counts[row.id]))}; uninstall one of them",
        )
        for row in rows
    ]


class _Facts(msgspec.Struct, frozen=True):
    """What a distribution's metadata say; read once, since every look at them parses the file anew."""

    name: str
    version: str = ""
    author: str = ""
    license: str = ""
    editable: bool = False


def _facts(point: importlib.metadata.EntryPoint) -> _Facts:
    dist = point.dist
    if dist is None:
        return _Facts(point.value.partition(".")[0])
    meta = dist.metadata
    return _Facts(
        str(meta["Name"]) if "Name" in meta else dist.name,
        str(meta["Version"]) if "Version" in meta else dist.version,
        _author(meta),
        _license(meta),
        _is_editable(dist),
    )


def _describe(point: importlib.metadata.EntryPoint, facts: _Facts) -> Discovered:
    name = facts.name
    base = Discovered(
        id=point.name,
        distribution=name,
        version=facts.version,
        module=point.value,
        author=facts.author,
        license=facts.license,
        editable=facts.editable,
    )
    expected = canonical_id(name)
    if point.name != expected:
        return msgspec.structs.replace(
            base,
            error=f"its entry point is called {point.name!r}, but the distribution {name!r} may only use {expected!r}",
        )
    top = point.value.partition(":")[0].partition(".")[0]
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError) as error:
        return msgspec.structs.replace(base, error=f"its package {top!r} cannot be found: {error}")
    if spec is None or not spec.submodule_search_locations:
        return msgspec.structs.replace(base, error=f"its package {top!r} cannot be found; install it again")
    folder = Path(next(iter(spec.submodule_search_locations)))
    base = msgspec.structs.replace(base, package_dir=folder)
    try:
        manifest = read_manifest(folder / "skald-plugin.toml")
    except ManifestError as error:
        return msgspec.structs.replace(base, error=str(error))
    if manifest.id != point.name:
        return msgspec.structs.replace(
            base,
            error=f"skald-plugin.toml says id = {manifest.id!r}, the entry point says {point.name!r}; make them equal",
        )
    return msgspec.structs.replace(base, manifest=manifest)


def _author(meta: importlib.metadata.PackageMetadata) -> str:
    for name in ("Author", "Author-email", "Maintainer"):
        if name in meta:
            return str(meta[name]).partition("<")[0].strip()
    return ""


def _license(meta: importlib.metadata.PackageMetadata) -> str:
    """The licence expression, the old field, or the last words of a classifier."""
    for name in ("License-Expression", "License"):
        text = str(meta[name]).strip() if name in meta else ""
        if text and "\n" not in text and text.upper() != "UNKNOWN":
            return text[:100]
    if "Classifier" not in meta:
        return ""
    classified = [c for c in meta.get_all("Classifier") or () if c.startswith("License ::")]
    return classified[0].rpartition("::")[2].strip() if classified else ""


def _is_editable(dist: importlib.metadata.Distribution) -> bool:
    text = dist.read_text("direct_url.json")
    return bool(text and json.loads(text).get("dir_info", {}).get("editable"))
