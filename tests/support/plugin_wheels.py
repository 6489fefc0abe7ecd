"""Wheels written by hand for tests: a plugin in ten lines, or any distribution, without a build tool and without a network."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

__all__ = ("plugin_wheel", "wheel")

PLUGIN = """
from skald_core.api import hookimpl, tool

@tool(scope="read")
async def {tool}() -> str:
    "Say which version this is."
    return "{version}"

@hookimpl
def skald_tools(ctx):
    return [{tool}]
"""

TABLES = """
from skald_core.api import Migration, Schema

@hookimpl
def skald_schema(ctx):
    return [
        Schema("registry", (Migration(1, "CREATE TABLE {prefix}_notes(id INTEGER PRIMARY KEY, text TEXT)"),)),
        Schema("owner", (Migration(1, "CREATE TABLE {prefix}_mine(id INTEGER PRIMARY KEY, text TEXT)"),)),
    ]
"""


def wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, str | bytes],
    *,
    requires: tuple[str, ...] = (),
    entry_points: str = "",
    tag: str = "py3-none-any",
    spoil_record: bool = False,
) -> Path:
    """Write ``name-version`` with these files; returns its path. ``spoil_record`` makes a recorded hash wrong."""
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", "Author: A. Tester", "License: MIT"]
    metadata = "\n".join([*lines, *(f"Requires-Dist: {line}" for line in requires)]) + "\n"
    content: dict[str, bytes] = {path: t.encode() if isinstance(t, str) else t for path, t in files.items()}
    content[f"{info}/METADATA"] = metadata.encode()
    content[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n".encode()
    if entry_points:
        content[f"{info}/entry_points.txt"] = entry_points.encode()
    record = []
    for path, data in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data + b"x" * spoil_record).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(data)}")
    record.append(f"{info}/RECORD,,")
    content[f"{info}/RECORD"] = ("\n".join(record) + "\n").encode()
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in content.items():
            archive.writestr(path, data)
    return target


def plugin_wheel(
    folder: Path,
    plugin_id: str,
    version: str = "1.0",
    *,
    source: str | None = None,
    manifest: str = "",
    requires: tuple[str, ...] = (),
    tables: bool = False,
    capabilities: tuple[str, ...] = (),
    extra: Mapping[str, str | bytes] | None = None,
    api: str = ">=1,<2",
) -> Path:
    """A wheel of ``skald-plugin-<id>`` with one tool ``<id>_version``; ``manifest`` replaces the whole file."""
    package = f"skald_plugin_{plugin_id.replace('-', '_')}"
    tool = f"{plugin_id.replace('-', '_')}_version"
    code = PLUGIN.format(tool=tool, version=version) if source is None else source
    if tables:
        code += TABLES.format(prefix=plugin_id.replace("-", "_"))
    text = manifest or (
        f'id = "{plugin_id}"\ntitle = "The {plugin_id} plugin"\napi = "{api}"\nsummary = "For tests"\n'
        f"capabilities = {list(capabilities)!r}\n"
        f'[contributes]\ntools = ["{tool}"]\n'
    ).replace("'", '"')
    files: dict[str, str | bytes] = {
        f"{package}/__init__.py": code,
        f"{package}/skald-plugin.toml": text,
        **(extra or {}),
    }
    return wheel(
        folder,
        f"skald-plugin-{plugin_id}",
        version,
        files,
        requires=requires,
        entry_points=f"[skald.plugins]\n{plugin_id} = {package}\n",
    )
