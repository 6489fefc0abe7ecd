"""Plugin packages written into a folder, and a :class:`Plugins` over a real system database, without a server around it."""

from __future__ import annotations

import importlib
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from skald_core.loop.database import Database
from skald_core.plugins.discovery import Discovered
from skald_core.plugins.dispatcher import Dispatcher
from skald_core.plugins.lifecycle import Plugins
from skald_core.plugins.manifest import read_manifest

__all__ = ("GOOD", "Bench")

MANIFEST = 'id = "{id}"\ntitle = "T"\napi = "{api}"\n'

GOOD = """
    @tool(scope="read")
    async def hello() -> str:
        "Say hello."
        return "hello"

    @hookimpl
    def skald_tools(ctx): return [hello]
"""


class FakeHost:
    """Just enough of a host for contexts to be made."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.system_db = database
        self.data_dir = folder
        self.models: Any = None


class Bench:
    """A system database and a folder in which plugin packages are written."""

    def __init__(self, database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.db = database
        self.folder = folder
        self.code = folder / "code"
        self.code.mkdir()
        monkeypatch.syspath_prepend(str(self.code))
        self._monkeypatch = monkeypatch
        self.found: list[Discovered] = []
        self.traced: list[str] = []

    def write(
        self, plugin_id: str, source: str, *, api: str = ">=1,<2", extra: str = "", version: str = "1.0"
    ) -> Discovered:
        """A package of this source, loaded anew at the next start; written again it replaces itself."""
        package = f"bench_{plugin_id.replace('-', '_')}"
        folder = self.code / package
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").write_text("from skald_core.api import *\n" + textwrap.dedent(source))
        (folder / "skald-plugin.toml").write_text(MANIFEST.format(id=plugin_id, api=api) + extra)
        self._monkeypatch.delitem(sys.modules, package, raising=False)
        importlib.invalidate_caches()
        self.found = [other for other in self.found if other.id != plugin_id]
        row = Discovered(
            id=plugin_id,
            distribution=f"skald-plugin-{plugin_id}",
            version=version,
            module=package,
            package_dir=folder,
            manifest=read_manifest(folder / "skald-plugin.toml"),
        )
        self.found.append(row)
        return row

    def plugins(self, **options: Any) -> Plugins:
        options.setdefault("bundled", frozenset(row.distribution for row in self.found))
        host: Any = FakeHost(self.db, self.folder)
        return Plugins(
            api_version="1.0",
            database=self.db,
            data_dir=self.folder,
            dispatcher=Dispatcher(trace=self.traced.append),
            host=host,
            **options,
        )

    async def boot(self, **options: Any) -> Plugins:
        made = self.plugins(**options)
        await made.boot(self.found)
        return made
