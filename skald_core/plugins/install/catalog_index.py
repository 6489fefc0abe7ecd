"""The catalog index: a static JSON file that says which plugins exist, which versions were reviewed, and which are bad.

There is none by default. ``SKALD_PLUGIN_INDEX`` names a file or an https address. The last good copy is kept, so that a broken or
absent index costs nothing but a line of text. Its schema is in docs/plugins/installing.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import msgspec
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from skald_core.plugins.install.requirement import PluginRequirement, Refused

__all__ = ("CatalogIndex", "Entry", "IndexFile", "IndexState", "Release")

MAX_BYTES = 8 * 1024 * 1024
FRESH_SECONDS = 900.0
"""How long a fetched index is believed before it is fetched again."""
RETRY_SECONDS = 60.0

Fetch = Callable[[str], Awaitable[bytes]]
Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Short = Annotated[str, msgspec.Meta(max_length=500)]
Web = Annotated[str, msgspec.Meta(max_length=500, pattern="^(https?://.*)?$")]


class Release(msgspec.Struct, frozen=True):
    """One reviewed version; ``sha256`` of each of its wheels, ``size`` in bytes, ``released_at`` in seconds since the epoch."""

    version: Short
    api: Short = ""
    sha256: list[Sha256] = []
    size: int = 0
    released_at: float = 0.0


class Entry(msgspec.Struct, frozen=True):
    """A plugin as the index tells it. ``blocked`` is the reason why no version of it may be installed."""

    name: Short
    title: Short = ""
    summary: Short = ""
    author: Short = ""
    homepage: Web = ""
    license: Short = ""
    versions: list[Release] = []
    min_good_version: Short | None = None
    blocked: Short | None = None
    verified: bool = False

    @property
    def canonical(self) -> str:
        return str(canonicalize_name(self.name))

    @property
    def latest(self) -> str | None:
        ordered = sorted((v for v in map(_version, (r.version for r in self.versions)) if v is not None), reverse=True)
        return next((str(v) for v in ordered if not v.is_prerelease), str(ordered[0]) if ordered else None)

    def is_good(self, version: str) -> bool:
        """Whether a version is not below the lowest good one."""
        return self.min_good_version is None or Version(version) >= Version(self.min_good_version)

    def choose(self, wanted: PluginRequirement, api_version: str) -> PluginRequirement:
        """Narrow ``wanted`` to a reviewed version, the newest that fits; unchanged when the index lists no versions.

        Raises Refused when no reviewed version fits.
        """
        if not self.versions:
            if self.min_good_version is None:
                return wanted
            return PluginRequirement(
                wanted.name, ",".join(filter(None, (wanted.versions, f">={self.min_good_version}")))
            )
        usable = [
            version
            for release in self.versions
            if (version := _version(release.version)) is not None
            and self.is_good(release.version)
            and (not release.api or SpecifierSet(release.api).contains(api_version, prereleases=True))
        ]
        specifier = wanted.specifier  # a pre-release only where the wish itself names one
        fitting = list(specifier.filter(usable, prereleases=bool(specifier.prereleases)))
        if not fitting:
            known = ", ".join(release.version for release in self.versions)
            raise Refused(
                f"No reviewed version of {wanted.name!r} fits {wanted.versions or 'this server'!r}; the catalog index lists "
                f"{known}"
                + (f" and calls versions below {self.min_good_version} bad" if self.min_good_version else ""),
                code="plugin_not_reviewed",
                name=wanted.name,
                versions=known,
            )
        return PluginRequirement(wanted.name, f"=={max(fitting)}")

    def hashes_of(self, version: str) -> frozenset[str]:
        return frozenset(
            digest for r in self.versions if _version(r.version) == Version(version) for digest in r.sha256
        )


class IndexFile(msgspec.Struct, frozen=True):
    """The whole file. ``schema`` is 1."""

    schema: int
    title: Short = ""
    updated_at: float = 0.0
    plugins: list[Entry] = []


class IndexState(msgspec.Struct, frozen=True):
    """What is known now; ``error`` is why the newest could not be had, ``entries`` are then of the last good copy."""

    source: str = ""
    title: str = ""
    updated_at: float = 0.0
    entries: dict[str, Entry] = {}
    error: str = ""

    @property
    def blocked(self) -> dict[str, str]:
        return {name: entry.blocked for name, entry in self.entries.items() if entry.blocked}


class _Kept(msgspec.Struct):
    source: str
    content: msgspec.Raw


class CatalogIndex:
    """Reads the index and keeps the last good copy in the data directory."""

    def __init__(self, data_dir: Path, fetch: Fetch, source: str | None = None) -> None:
        self._kept = data_dir / "plugins-index.json"
        self._fetch = fetch
        self._source = os.environ.get("SKALD_PLUGIN_INDEX", "").strip() if source is None else source
        self._state = IndexState(source=self._source)
        self._content = b""
        self._due = 0.0
        self._lock = asyncio.Lock()

    async def state(self) -> IndexState:
        """The index as far as it can be had; never raises."""
        if not self._source:
            return self._state
        async with self._lock:
            if time.monotonic() >= self._due:
                self._state = await self._read()
                remote = "://" in self._source
                wait = (RETRY_SECONDS if self._state.error else FRESH_SECONDS) if remote else 0.0
                self._due = time.monotonic() + wait
        return self._state

    def known(self) -> IndexState:
        """The index as it is known without asking for it: what was read last, else the copy that an earlier process kept."""
        if self._source and not self._content and not self._state.error:
            self._state = self._last_good("")
        return self._state

    async def _read(self) -> IndexState:
        try:
            content = await self._load()
            if content == self._content:  # the same object again: who compares sees that nothing is new
                return msgspec.structs.replace(self._state, error="")
            state = _parse(self._source, content)
        except Exception as error:  # noqa: BLE001 -- whatever a file or a stranger's server does, the page must not break
            return self._last_good(f"{type(error).__name__}: {error}"[:300])
        self._content = content
        kept = msgspec.json.encode(_Kept(self._source, msgspec.Raw(content)))
        with contextlib.suppress(OSError):
            await asyncio.to_thread(_replace, self._kept, kept)
        return state

    async def _load(self) -> bytes:
        if self._source.startswith("https://"):
            return await self._fetch(self._source)
        if "://" in self._source:
            raise ValueError("the index must be a file or an https address")
        return await asyncio.to_thread(_local, Path(self._source))

    def _last_good(self, why: str) -> IndexState:
        with contextlib.suppress(Exception):  # a copy that cannot be read is no copy
            kept = msgspec.json.decode(self._kept.read_bytes(), type=_Kept)
            if kept.source == self._source:
                content = bytes(kept.content)
                if content == self._content:
                    return msgspec.structs.replace(self._state, error=why)
                state = msgspec.structs.replace(_parse(self._source, content), error=why)
                self._content = content
                return state
        return IndexState(source=self._source, error=why)


def _parse(source: str, content: bytes) -> IndexState:
    file = msgspec.json.decode(content, type=IndexFile)
    if file.schema != 1:
        raise ValueError(f"its schema is {file.schema}, this version of Skald reads 1")
    for entry in file.plugins:
        for text in (*(r.version for r in entry.versions), *filter(None, [entry.min_good_version])):
            if _version(text) is None:
                raise ValueError(f"{entry.name!r}: {text!r} is no version")
    return IndexState(source, file.title, file.updated_at, {entry.canonical: entry for entry in file.plugins})


def _local(path: Path) -> bytes:
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path.name} is larger than {MAX_BYTES:,} bytes")
    return path.read_bytes()


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def _replace(target: Path, content: bytes) -> None:
    fresh = target.with_suffix(".new")
    fresh.write_bytes(content)
    fresh.replace(target)
