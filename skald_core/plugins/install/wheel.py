"""Reading a wheel without importing it: what it is, whether it is a plugin, and whether it may be laid out here."""

from __future__ import annotations

import configparser
import hashlib
import tempfile
import zipfile
from collections.abc import Iterable
from email.parser import BytesParser
from email.policy import compat32
from pathlib import Path, PurePosixPath

import msgspec
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from skald_core.errors import SkaldError
from skald_core.plugins.discovery import GROUP
from skald_core.plugins.manifest import MAX_BYTES, Manifest, ManifestError, canonical_id, read_manifest

__all__ = ("BadWheel", "PluginWheel", "Wheel", "read_wheel", "sha256_of")

MAX_UNPACKED = 2 * 1024**3
"""Bytes a wheel may unpack to."""
_MAX_METADATA = 4 * 1024**2


class BadWheel(SkaldError):
    """The file cannot be installed from here. ``params``: name, reason."""

    status = 422
    code = "bad_wheel"

    def __init__(self, name: str, reason: str, *, code: str | None = None) -> None:
        super().__init__(f"{name!r} is not installed: {reason}", code=code, name=name, reason=reason)


class PluginWheel(msgspec.Struct, frozen=True):
    """The plugin side of a wheel."""

    id: str
    module: str
    manifest: Manifest


class Wheel(msgspec.Struct, frozen=True):
    """What a wheel says of itself; ``unpacked`` in bytes."""

    name: str
    version: str
    path: Path
    sha256: str
    unpacked: int
    requires: tuple[str, ...] = ()
    plugins: tuple[PluginWheel, ...] = ()


def sha256_of(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def read_wheel(path: Path) -> Wheel:
    """Raises BadWheel for a file that is no wheel, unpacks to too much, or would run code at every start of Python.

    A distribution whose plugin part is wrong (no manifest, another id) is refused here too: a plugin that cannot be loaded is
    better never installed.
    """
    try:
        name, version, _, _ = parse_wheel_filename(path.name)
        with zipfile.ZipFile(path) as archive:
            return _read(archive, path, str(name), str(version))
    except InvalidWheelFilename:
        raise BadWheel(path.name, "it is no wheel") from None
    except (zipfile.BadZipFile, UnicodeDecodeError, KeyError, configparser.Error) as error:
        raise BadWheel(path.name, f"its file is damaged ({error})") from None


def _read(archive: zipfile.ZipFile, path: Path, name: str, version: str) -> Wheel:
    names = archive.namelist()
    unpacked = sum(item.file_size for item in archive.infolist())
    if unpacked > MAX_UNPACKED:
        raise BadWheel(name, f"it unpacks to {unpacked:,} bytes; at most {MAX_UNPACKED:,} are allowed")
    _refuse_start_code(name, names)
    info = next((n.partition("/")[0] for n in names if n.endswith(".dist-info/METADATA") and n.count("/") == 1), None)
    if info is None:
        raise BadWheel(name, "its metadata is missing")
    metadata = BytesParser(policy=compat32).parsebytes(_small(archive, f"{info}/METADATA", name), headersonly=True)
    if str(canonicalize_name(str(metadata["Name"]))) != name:
        raise BadWheel(name, f"its metadata calls it {str(metadata['Name'])!r}")
    text = _small(archive, f"{info}/entry_points.txt", name) if f"{info}/entry_points.txt" in names else b""
    plugins = tuple(_plugin(archive, name, entry, module) for entry, module in _entries(text.decode()))
    return Wheel(
        name=name,
        version=version,
        path=path,
        sha256=sha256_of(path),
        unpacked=unpacked,
        requires=tuple(str(line) for line in metadata.get_all("Requires-Dist") or ()),
        plugins=plugins,
    )


def _small(archive: zipfile.ZipFile, member: str, name: str) -> bytes:
    if archive.getinfo(member).file_size > _MAX_METADATA:
        raise BadWheel(name, f"its {PurePosixPath(member).name} is larger than {_MAX_METADATA:,} bytes")
    return archive.read(member)


def _refuse_start_code(name: str, names: Iterable[str]) -> None:
    """``.pth`` and ``sitecustomize`` run in every Python of the environment, also in safe mode, before anybody can say no."""
    for member in names:
        parts = PurePosixPath(member).parts
        if ".data" in parts[0] and len(parts) > 2:
            parts = parts[2:]
        root = parts[0] if len(parts) == 1 else ""
        if root.endswith(".pth") or parts[0].partition(".")[0] in {"sitecustomize", "usercustomize"}:
            raise BadWheel(
                name,
                f"its file {member!r} would run at every start of Python, which no plugin needs",
                code="wheel_start_code",
            )


def _entries(text: str) -> list[tuple[str, str]]:
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # entry-point names keep their case
    parser.read_string(text)
    return [(key.strip(), value.strip()) for key, value in parser.items(GROUP)] if parser.has_section(GROUP) else []


def _plugin(archive: zipfile.ZipFile, name: str, entry: str, module: str) -> PluginWheel:
    expected = canonical_id(name)
    if entry != expected:
        raise BadWheel(
            name, f"its entry point is called {entry!r}; only {expected!r} is allowed", code="wheel_plugin_id"
        )
    top = module.partition(":")[0].partition(".")[0]
    member = f"{top}/skald-plugin.toml"
    if member not in archive.namelist():
        raise BadWheel(name, f"its package {top!r} has no skald-plugin.toml", code="wheel_no_manifest")
    if archive.getinfo(member).file_size > MAX_BYTES:
        raise BadWheel(name, f"its skald-plugin.toml is larger than {MAX_BYTES:,} bytes", code="wheel_manifest")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "skald-plugin.toml"
        target.write_bytes(archive.read(member))
        try:
            manifest = read_manifest(target)
        except ManifestError as error:
            raise BadWheel(name, str(error), code="wheel_manifest") from None
    if manifest.id != entry:
        raise BadWheel(name, f"its skald-plugin.toml says id = {manifest.id!r}", code="wheel_plugin_id")
    return PluginWheel(entry, module, manifest)
