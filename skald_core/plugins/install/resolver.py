"""Asking pip, in a process of its own, what a requirement means for this environment, and for the wheels.

pip and not another installer because its report of a dry run is a documented, stable JSON format
(https://pip.pypa.io/en/stable/reference/installation-report/) and because it can download without installing.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from skald_core.errors import SkaldError
from skald_core.plugins.install.wheel import sha256_of

__all__ = ("Artifact", "ResolveError", "Resolver", "direct_references")

TIMEOUT = 600.0
"""Seconds for one question to pip."""
LONGEST_LINE = 4 * 1024 * 1024

_FROM_UV = {
    "UV_DEFAULT_INDEX": "PIP_INDEX_URL",
    "UV_INDEX_URL": "PIP_INDEX_URL",
    "UV_EXTRA_INDEX_URL": "PIP_EXTRA_INDEX_URL",
    "UV_FIND_LINKS": "PIP_FIND_LINKS",
    "UV_NO_INDEX": "PIP_NO_INDEX",
}
"""Where somebody has told uv only, pip is told the same."""


class ResolveError(SkaldError):
    """pip found no answer. ``params``: reason, one sentence."""

    status = 422
    code = "plugin_unresolvable"


class Artifact(msgspec.Struct, frozen=True):
    """One wheel that would be installed. ``sha256`` is empty when pip does not know it yet."""

    name: str
    version: str
    url: str
    sha256: str = ""
    requires: tuple[str, ...] = ()
    direct: bool = False


class Resolver:
    """``say`` gets pip's own lines as they come. ``folder`` is where pip may write."""

    def __init__(
        self, folder: Path, say: Callable[[str], None] = lambda line: None, links: Sequence[Path] = ()
    ) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._say = say
        self._links = [str(path) for path in links]

    async def resolve(
        self, wanted: Sequence[str], *, pins: Mapping[str, str], keep: Mapping[str, str]
    ) -> list[Artifact]:
        """What installing ``wanted`` would install or move, nothing being changed.

        ``pins`` may not move; ``keep`` (the other plugins) is solved together with it, so that their needs still hold.
        Raises ResolveError with the conflict by name.
        """
        report = self._folder / "report.json"
        constraints = self._folder / "constraints.txt"
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in pins.items()))
        kept = [f"{name}=={version}" for name, version in keep.items()]
        to_files = ["--report", str(report), "--constraint", str(constraints)]
        await self._pip(["install", "--dry-run", *to_files, *self._wheels_only(), "--", *kept, *wanted])
        try:
            decoded = msgspec.json.decode(report.read_bytes(), type=dict[str, Any])
            if decoded["version"] != "1":
                raise ResolveError(
                    f"pip {decoded.get('pip_version')} writes reports of version {decoded['version']!r}, which this "
                    "version of Skald cannot read; update Skald",
                    reason="pip report version",
                )
            return [_artifact(item) for item in decoded["install"]]
        except (msgspec.DecodeError, KeyError, TypeError, OSError) as error:
            raise ResolveError(f"pip's report cannot be read: {error}", reason=str(error)) from None

    async def fetch_alone(self, wanted: Sequence[str], target: Path) -> list[Path]:
        """The newest wheel of each, without what it needs, to be looked at first. Raises ResolveError."""
        await self._download(["--", *wanted], target)
        return await asyncio.to_thread(lambda: sorted(target.glob("*.whl")))

    async def download(self, artifacts: Sequence[Artifact], target: Path) -> None:
        """Have exactly these wheels in ``target``. Each with a known hash must have it. Raises ResolveError."""
        there = await asyncio.to_thread(_keep_only, target, artifacts)
        missing = [a for a in artifacts if a.name not in there]
        hashed = [a for a in missing if a.sha256]
        plain = [a for a in missing if not a.sha256]
        if hashed:
            listed = self._folder / "hashed.txt"
            listed.write_text("".join(f"{a.name}=={a.version} --hash=sha256:{a.sha256}\n" for a in hashed))
            await self._download(["--require-hashes", "--requirement", str(listed)], target)
        if plain:
            await self._download(["--", *(f"{a.name}=={a.version}" for a in plain)], target)

    async def _download(self, what: Sequence[str], target: Path) -> None:
        await self._pip(["download", "--no-deps", *self._wheels_only(), "--dest", str(target), *what])

    def _wheels_only(self) -> list[str]:
        found = ["--only-binary", ":all:"]
        links = [*self._links, *filter(None, os.environ.get("SKALD_PLUGIN_FIND_LINKS", "").split(os.pathsep))]
        for link in links:
            found += ["--find-links", link]
        return found

    async def _pip(self, arguments: Sequence[str]) -> None:
        """Run pip to its end. Cancelling the wait kills it. Raises ResolveError with what pip gave as the reason."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "pip",
            "--no-input",
            "--no-color",
            "--disable-pip-version-check",
            *arguments[:1],
            "--progress-bar",
            "off",
            *arguments[1:],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=LONGEST_LINE,
            env=_environment(),
            cwd=self._folder,
        )
        lines: list[str] = []
        try:
            async with asyncio.timeout(TIMEOUT):
                assert process.stdout is not None
                while line := await process.stdout.readline():
                    text = _readable(line.decode(errors="replace"))
                    lines.append(text)
                    if text and not text.startswith(("Requirement already satisfied", "Looking in")):
                        self._say(text)
                status = await process.wait()
        except TimeoutError:
            raise ResolveError(
                f"pip gave no answer within {TIMEOUT:g} s; see whether the package index can be reached",
                reason="timeout",
            ) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if status:
            raise _reason(lines)


def _artifact(item: Mapping[str, Any]) -> Artifact:
    metadata, info = item["metadata"], item["download_info"]
    hashes = info.get("archive_info", {}).get("hashes", {})
    return Artifact(
        name=str(canonicalize_name(metadata["name"])),
        version=str(metadata["version"]),
        url=_without_secrets(str(info["url"])),
        sha256=str(hashes.get("sha256", "")),
        requires=tuple(metadata.get("requires_dist", ())),
        direct=bool(item.get("is_direct")),
    )


def _keep_only(target: Path, artifacts: Sequence[Artifact]) -> set[str]:
    """Remove every file but wheels of ``artifacts`` with their known hash; the names of those that are there."""
    wanted = {(a.name, a.version, a.sha256): a.name for a in artifacts if a.sha256}
    found: set[str] = set()
    for path in target.glob("*"):
        name, version, _, _ = parse_wheel_filename(path.name)
        key = (str(name), str(version), sha256_of(path))
        if key in wanted:
            found.add(wanted[key])
        else:
            path.unlink()
    return found


def direct_references(requires: Sequence[str]) -> list[str]:
    """Needs that name an address instead of a version: pip would fetch them from there, and even build them."""
    found = []
    for line in requires:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.url:
            found.append(line)
    return found


def _environment() -> dict[str, str]:
    env = {
        k: v
        for k, v in os.environ.items()
        if k not in {"PIP_REQUIRE_VIRTUALENV", "PIP_TARGET", "PIP_PREFIX", "PIP_USER"}
    }
    for uv, pip in _FROM_UV.items():
        if uv in env and pip not in env:
            env[pip] = env[uv]
    return env


def _readable(line: str) -> str:
    """A line of pip's for a person: without passwords, and without the names of files of ours."""
    return re.sub(r" \(from -r .*\)$", "", _without_secrets(line.rstrip()))


def _without_secrets(text: str) -> str:
    """An index address may hold a password; nobody needs it in a log."""
    return re.sub(r"(\w+://)[^/@\s]+@", r"\1…@", text)


def _reason(lines: Sequence[str]) -> ResolveError:
    """One sentence out of pip's words: the conflict by name, else its last errors."""
    if any("No space left on device" in line for line in lines):
        return ResolveError(
            "the disk is full; nothing was changed. Free some space and try again.", code="disk_full", reason=""
        )
    if any(line.startswith("The conflict is caused by:") for line in lines):
        start = next(i for i, line in enumerate(lines) if line.startswith("The conflict is caused by:"))
        cause = []
        for line in lines[start + 1 :]:
            if not line.startswith(" "):
                break
            cause.append(line.strip().replace("The user requested (constraint)", "this server has"))
        told = "; ".join(part.replace("The user requested", "this server has") for part in cause)
        return ResolveError(
            f"it does not fit to what is installed: {told}. Nothing was changed.", code="plugin_conflict", reason=told
        )
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    if any("do not match the hashes" in line.lower() for line in lines):
        return ResolveError(
            "a downloaded file has another hash than the one published for it; nothing was changed. It may have been "
            "tampered with: tell whoever publishes it.",
            code="plugin_hash_mismatch",
            reason="",
        )
    missing = next((e for e in errors if e.startswith("No matching distribution found for ")), None)
    if missing is not None:
        wanted = missing.removeprefix("No matching distribution found for ").partition(" (from")[0]
        return ResolveError(
            f"there is no {wanted!r} as a wheel for this Python in the package index. Nothing was changed.",
            code="plugin_not_in_index",
            reason=wanted,
        )
    told = " ".join(errors[-2:]) or (lines[-1] if lines else "pip ended without a word")
    return ResolveError(f"pip says: {told[:400]}", reason=told[:400])
