"""What a plugin's distribution says of itself: size, read-me, changes. Nothing of it is imported or trusted."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from skald_core.plugins.discovery import Discovered

__all__ = ("DistributionTexts", "size_of", "texts_of")

MAX_TEXT = 512 * 1024
"""Bytes of a read-me or change log; the rest is cut."""


class DistributionTexts(msgspec.Struct, frozen=True):
    """Markdown, or whatever the author wrote; empty where there is none."""

    readme: str = ""
    changelog: str = ""


def _distribution(found: Discovered) -> importlib.metadata.Distribution | None:
    try:
        return importlib.metadata.distribution(found.distribution)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return None


def size_of(found: Discovered) -> int:
    """Bytes the distribution takes on disk, or its package where it lists no files of its own (an editable install)."""
    dist = _distribution(found)
    if dist is not None and not found.editable:
        listed = [file.size for file in dist.files or () if file.size is not None]
        if listed:
            return sum(listed)
    if found.package_dir is None or not found.package_dir.is_dir():
        return 0
    files = (p for p in found.package_dir.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return sum(p.stat().st_size for p in files)


def texts_of(found: Discovered) -> DistributionTexts:
    """Read-me and change log."""
    dist = _distribution(found)
    project = _project_dir(dist)
    readme = ""
    if dist is not None:
        payload = dist.metadata.get_payload()  # type: ignore[attr-defined]  # an email.message.Message in fact
        readme = payload if isinstance(payload, str) else ""
    if not readme.strip():
        readme = _first(project, "README.md", "README.rst", "README.txt")
    changelog = _first(project, "CHANGELOG.md", "CHANGES.md") or _first(found.package_dir, "CHANGELOG.md", "CHANGES.md")
    if not changelog and dist is not None:
        shipped = [f for f in dist.files or () if f.name.upper() in {"CHANGELOG.MD", "CHANGES.MD"}]
        changelog = _read(Path(str(shipped[0].locate()))) if shipped else ""
    return DistributionTexts(readme[:MAX_TEXT], changelog)


def _project_dir(dist: importlib.metadata.Distribution | None) -> Path | None:
    """The source folder of an editable install."""
    text = dist.read_text("direct_url.json") if dist is not None else None
    if not text:
        return None
    origin = json.loads(text)
    url = urlsplit(str(origin.get("url", "")))
    editable = url.scheme == "file" and origin.get("dir_info", {}).get("editable")
    return Path(unquote(url.path)) if editable else None


def _first(folder: Path | None, *names: str) -> str:
    if folder is None:
        return ""
    return next((text for name in names if (text := _read(folder / name))), "")


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_TEXT).decode("utf-8", "replace")
    except OSError:
        return ""
