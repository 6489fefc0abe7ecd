"""The Python environment of this interpreter: what is installed, what belongs to the kernel, and whether it may be changed."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import json
import os
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from skald_core.plugins.discovery import GROUP

__all__ = (
    "Broken",
    "Installed",
    "advice_reason",
    "broken_by",
    "fingerprint",
    "inside",
    "is_editable",
    "kernel_names",
    "kernel_pins",
    "protected_names",
    "requirements_of",
    "schemes",
    "snapshot",
    "work_folder",
)

KERNEL = "skald-core"
_TOOLS = ("pip", "installer", "setuptools", "wheel", "uv")
"""Never plugins, though an environment may hold them beside the kernel."""


class Installed(msgspec.Struct, frozen=True):
    """One installed distribution. ``home`` is the folder its metadata lies in."""

    name: str
    version: str
    home: Path
    requires: tuple[str, ...] = ()
    editable: bool = False
    plugin_ids: tuple[str, ...] = ()

    def files(self) -> list[Path]:
        """The absolute paths its RECORD lists. Raises LookupError when it has none: then nobody knows what to remove."""
        dist = importlib.metadata.PathDistribution(self.home)
        if dist.read_text("RECORD") is None:
            raise LookupError(f"{self.name!r} was not installed with a record of its files")
        base = self.home.parent
        return [Path(os.path.normpath(base / str(file))) for file in dist.files or ()]

    def modules(self) -> frozenset[str]:
        """Names of its top-level modules and packages."""
        dist = importlib.metadata.PathDistribution(self.home)
        names = {e.value.partition(":")[0].partition(".")[0] for e in dist.entry_points if e.group == GROUP}
        for file in dist.files or ():
            first = file.parts[0]
            if not first.endswith((".dist-info", ".data")) and first not in {"..", "__pycache__"}:
                names.add(first if len(file.parts) > 1 else first.partition(".")[0])
        return frozenset(names)


class Broken(msgspec.Struct, frozen=True):
    """``name`` needs ``requirement``, which the set does not offer."""

    name: str
    requirement: str


def snapshot() -> dict[str, Installed]:
    """Every installed distribution by canonical name; of duplicates the one that is imported."""
    importlib.invalidate_caches()
    found: dict[str, Installed] = {}
    for dist in importlib.metadata.distributions():
        raw = str(dist.metadata["Name"] or "") if "Name" in dist.metadata else ""  # absent from damaged metadata
        home = getattr(dist, "_path", None)  # the standard library names the folder nowhere else
        if not raw or not isinstance(home, Path):
            continue
        name = str(canonicalize_name(raw))
        if name in found:
            continue
        found[name] = Installed(
            name=name,
            version=dist.version,
            home=home,
            requires=tuple(dist.requires or ()),
            editable=is_editable(dist.read_text("direct_url.json")),
            plugin_ids=tuple(sorted(e.name for e in dist.entry_points if e.group == GROUP)),
        )
    return found


def is_editable(direct_url: str | None) -> bool:
    """Whether ``direct_url.json`` (PEP 610) tells of a development install."""
    if not direct_url:
        return False
    try:
        return bool(json.loads(direct_url).get("dir_info", {}).get("editable"))
    except (ValueError, AttributeError):
        return False


def kernel_names(installed: Mapping[str, Installed]) -> frozenset[str]:
    """The kernel and everything it needs: what no plugin may move.

    When the kernel runs from a folder instead of a distribution its needs are unknown; then everything that is installed and
    is no plugin counts.
    """
    if KERNEL not in installed:
        return frozenset(n for n, d in installed.items() if not d.plugin_ids) | {KERNEL}
    seen: set[tuple[str, str]] = set()
    queue: list[tuple[str, str]] = [(KERNEL, "")]
    while queue:
        name, extra = queue.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for requirement in _active(installed[name].requires if name in installed else (), extra):
            needed = str(canonicalize_name(requirement.name))
            queue += [(needed, wanted) for wanted in ("", *requirement.extras)]
    return frozenset(name for name, _ in seen)


def protected_names(installed: Mapping[str, Installed]) -> frozenset[str]:
    """What is never installed or removed as a plugin: the kernel's names and the tools that install."""
    return kernel_names(installed) | frozenset(_TOOLS)


def kernel_pins(installed: Mapping[str, Installed]) -> dict[str, str]:
    """Name → version of the kernel's own closure, for the resolver's constraints."""
    return {name: installed[name].version for name in sorted(kernel_names(installed)) if name in installed}


def _active(requires: Iterable[str], extra: str = "") -> list[Requirement]:
    found: list[Requirement] = []
    for line in requires:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            found.append(requirement)
    return found


def requirements_of(requires: Iterable[str]) -> list[Requirement]:
    """What a distribution needs here, without extras."""
    return _active(requires)


def broken_by(before: Mapping[str, Installed], after: Mapping[str, Installed]) -> list[Broken]:
    """Needs that are met in ``before`` and would not be in ``after``, or that something new brings unmet."""
    return sorted(
        (b for b in _unmet(after) if b not in set(_unmet(before))), key=lambda broken: (broken.name, broken.requirement)
    )


def _unmet(installed: Mapping[str, Installed]) -> list[Broken]:
    found: list[Broken] = []
    for dist in installed.values():
        for requirement in requirements_of(dist.requires):
            there = installed.get(str(canonicalize_name(requirement.name)))
            if there is None or not requirement.specifier.contains(there.version, prereleases=True):
                found.append(Broken(dist.name, f"{requirement.name}{requirement.specifier}"))
    return found


def fingerprint(installed: Mapping[str, Installed]) -> str:
    """Changes whenever anything is installed, removed or moved to another version."""
    lines = "\n".join(f"{name}=={installed[name].version}" for name in sorted(installed))
    return hashlib.sha256(lines.encode()).hexdigest()


def schemes() -> dict[str, str]:
    """Where files of a wheel go in this environment, by scheme name."""
    paths = sysconfig.get_paths()
    return {name: paths[name] for name in ("purelib", "platlib", "scripts", "data")} | {"headers": paths["include"]}


def inside(path: Path) -> bool:
    """Whether a path lies below one of the environment's own folders, symbolic links aside."""
    roots = {os.path.normpath(root) for root in (sys.prefix, *schemes().values())}
    return any(path.is_relative_to(root) for root in roots)


def work_folder() -> Path:
    """Where a change is prepared and kept until it is done: beside the packages, so that a switch is only renames."""
    return Path(sys.prefix) / ".skald-plugins"


def advice_reason() -> str | None:
    """Why this environment is not changed from here (``asked``, ``managed`` or ``read_only``), or None when it may be.

    ``SKALD_PLUGIN_INSTALL=advise`` is for images that are built, not changed. PEP 668 marks what a system package manager owns.
    """
    if os.environ.get("SKALD_PLUGIN_INSTALL", "").strip().lower() == "advise":
        return "asked"
    in_venv = sys.prefix != sys.base_prefix
    if not in_venv and (Path(sysconfig.get_path("stdlib")) / "EXTERNALLY-MANAGED").is_file():
        return "managed"
    site = schemes()["purelib"]
    if not os.access(site, os.W_OK) or not os.access(sys.prefix, os.W_OK):
        return "read_only"
    return None
