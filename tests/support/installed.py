"""Installed distributions made of files: a package and its ``dist-info`` in a folder for ``sys.path``, without an installer."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

__all__ = ("install",)

MANIFEST = 'id = "{id}"\ntitle = "{id}"\napi = "{api}"\n'


def install(
    site: Path,
    plugin_id: str,
    source: str,
    *,
    distribution: str = "",
    version: str = "1.0",
    api: str = ">=1,<2",
    manifest: str = "",
    metadata: str = "",
    readme: str = "",
    entry: str = "",
) -> str:
    """Put a plugin of this source below ``site``; returns the name of its package.

    ``manifest`` is added to ``skald-plugin.toml``, ``metadata`` (lines) to METADATA, ``entry`` replaces the entry point's name.
    """
    name = distribution or f"skald-plugin-{plugin_id}"
    package = re.sub(r"\W", "_", name)
    folder = site / package
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").write_text(textwrap.dedent(source))
    (folder / "skald-plugin.toml").write_text(MANIFEST.format(id=plugin_id, api=api) + manifest)
    info = site / f"{package}-{version}.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *filter(None, metadata.splitlines())]
    (info / "METADATA").write_text("\n".join(lines) + f"\n\n{readme}")
    (info / "entry_points.txt").write_text(f"[skald.plugins]\n{entry or plugin_id} = {package}\n")
    files = [p for p in folder.rglob("*") if p.is_file()]
    records = [f"{p.relative_to(site)},,{p.stat().st_size}" for p in files] + [f"{info.name}/RECORD,,"]
    (info / "RECORD").write_text("\n".join(records) + "\n")
    return package
