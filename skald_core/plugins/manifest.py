"""``skald-plugin.toml``: what a plugin says of itself, read without importing it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

__all__ = ("Contributes", "Manifest", "ManifestError", "canonical_id", "read_manifest")

MAX_BYTES = 64 * 1024
RESERVED = frozenset(
    {
        "available", "chat", "help", "jobs", "pages", "plans", "plugin", "remains", "run", "serve", "sessions", "setup",
        "skald", "user", "version",
    }
)  # fmt: skip
"""Ids that would hide a command of the command line, a path of the catalog or the kernel's own tables."""
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


class ManifestError(ValueError):
    """The manifest is missing or wrong; the text says where and how to mend it."""


class Contributes(msgspec.Struct, frozen=True):
    """Names only; checked against what the code registers."""

    tools: list[str] = []
    pages: list[str] = []
    routes: bool = False
    providers: list[str] = []
    services: list[str] = []
    commands: list[str] = []
    agents: list[str] = []
    mounts: list[str] = []
    hooks: list[str] = []


class Manifest(msgspec.Struct, frozen=True):
    """The static manifest. ``api`` is a version range of the kernel API, such as ``>=1,<2``."""

    id: str
    title: str
    api: str
    summary: str = ""
    title_i18n: dict[str, str] = {}
    summary_i18n: dict[str, str] = {}
    capabilities: list[str] = []
    contributes: Contributes = Contributes()
    homepage: str = ""
    docs: str = ""
    after: list[str] = []
    before: list[str] = []

    def accepts(self, api_version: str) -> bool:
        return SpecifierSet(self.api).contains(Version(api_version), prereleases=True)

    def localized(self, locale: str) -> tuple[str, str]:
        """Title and summary in ``locale``, else as written."""
        return self.title_i18n.get(locale, self.title), self.summary_i18n.get(locale, self.summary)


def canonical_id(distribution: str) -> str:
    """The id a distribution may use: its PEP 503 name without a leading ``skald-plugin-`` or ``skald-``."""
    name = re.sub(r"[-_.]+", "-", distribution).lower()
    for prefix in ("skald-plugin-", "skald-"):
        if name.startswith(prefix) and len(name) > len(prefix):
            return name[len(prefix) :]
    return name


def read_manifest(path: Path) -> Manifest:
    """Parse and check a manifest. Raises ManifestError."""
    try:
        size = path.stat().st_size
    except OSError:
        raise ManifestError(f"no {path.name} at the root of its package; see the author's guide") from None
    if size > MAX_BYTES:
        raise ManifestError(f"{path.name} is {size:,} bytes; at most {MAX_BYTES:,} are read")
    try:
        raw: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        manifest = msgspec.convert(raw, Manifest)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise ManifestError(f"{path.name}: {error}") from None
    if not _ID.fullmatch(manifest.id):
        raise ManifestError(f"{path.name}: id {manifest.id!r} may hold lower-case letters, digits and hyphens only")
    if manifest.id in RESERVED:
        raise ManifestError(f"{path.name}: id {manifest.id!r} is a word of Skald's own; choose another name")
    try:
        SpecifierSet(manifest.api)
    except InvalidSpecifier:
        raise ManifestError(
            f'{path.name}: api = {manifest.api!r} is no version range; write one such as ">=1,<2"'
        ) from None
    return manifest
