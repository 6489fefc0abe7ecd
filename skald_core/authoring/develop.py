"""``skald plugin dev``: a server with the plugin, restarted when a file changes."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from skald_core.authoring.project import Project, read_project
from skald_core.errors import SkaldError, StartError

__all__ = ("DevServer", "Development", "install_command", "installed_from")

STOP_SECONDS = 15.0
_READY = re.compile(r"Skald is ready at (\S+)")
_BROWSER_FILES = frozenset({".js", ".mjs", ".css", ".svg", ".png", ".html", ".woff2"})
"""Read for every request: they need no restart."""
_IGNORED = frozenset(
    {"__pycache__", ".git", ".skald", ".venv", ".pytest_cache", "node_modules", "dist", "build", "tests"}
)


class Development(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for. ``say`` prints a line; ``data_dir`` None is ``.skald`` in the project."""

    root: Path
    data_dir: Path | None = None
    host: str = "127.0.0.1"
    port: int = 9000
    install: bool = True
    strict: bool = False
    trace: bool = False
    say: Callable[[str], None] = print


def install_command(project: Project) -> list[str]:
    """Installs the project in place into the environment this process runs in.

    Without build isolation where the build backend is here, so that it works without a network.
    """
    backend = str(project.settings.get("build-system", {}).get("build-backend", "")).partition(".")[0]
    here = bool(backend) and importlib.util.find_spec(backend) is not None
    options = ["--no-build-isolation"] if here and importlib.util.find_spec("editables") is not None else []
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
    return [sys.executable, "-m", "pip", "install", *quiet, *options, "--editable", str(project.root)]


def installed_from(project: Project) -> Path | None:
    """The folder the distribution is installed from in place, or None. Read from metadata, nothing is imported."""
    import importlib.metadata
    from urllib.parse import unquote, urlsplit

    importlib.invalidate_caches()
    try:
        text = importlib.metadata.distribution(project.distribution).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return None
    url = json.loads(text).get("url", "") if text else ""
    return Path(unquote(urlsplit(url).path)) if url.startswith("file:") else None


class DevServer:
    """Runs ``skald serve`` as a child and starts it again. Use :meth:`run`."""

    def __init__(self, wanted: Development) -> None:
        self._wanted = wanted
        self._project = read_project(wanted.root)
        self._data = (wanted.data_dir or self._project.root / ".skald").resolve()
        self._child: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Until SIGINT or SIGTERM; returns the exit status."""
        try:
            from watchfiles import awatch
        except ImportError:
            raise StartError(
                "watching files needs the package 'watchfiles': install skald-core[dev], or watchfiles by itself"
            ) from None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stopping.set)
        try:
            if self._wanted.install:
                await self._install()
            await self._start()
            async for changes in awatch(
                self._project.root, watch_filter=lambda _, path: self._counts(Path(path)), stop_event=self._stopping
            ):
                await self._changed(sorted({Path(path) for _, path in changes}))
        finally:
            await self._stop()
        self._wanted.say("Stopped.")
        return 0

    def _counts(self, path: Path) -> bool:
        parts = path.relative_to(self._project.root).parts if path.is_relative_to(self._project.root) else path.parts
        return (
            not _IGNORED & set(parts) and not path.is_relative_to(self._data) and not path.name.endswith((".pyc", "~"))
        )

    async def _changed(self, paths: Sequence[Path]) -> None:
        shown = ", ".join(self._project.relative(path) for path in paths[:3]) + (" …" if len(paths) > 3 else "")
        if all(path.suffix in _BROWSER_FILES for path in paths) and self._child is not None:
            self._wanted.say(f"Changed: {shown}. Load the page again.")
            return
        self._wanted.say(f"Changed: {shown}. Starting again.")
        await self._stop()
        try:
            if any(path.name == "pyproject.toml" for path in paths):
                self._project = read_project(self._wanted.root)
                if self._wanted.install:
                    await self._install()
            await self._start()
        except SkaldError as error:  # a file half written: the next change tries again
            self._wanted.say(f"Not started: {error.detail}")

    # -- installing ----------------------------------------------------------------------------------------------------

    async def _install(self) -> None:
        if installed_from(self._project) == self._project.root and not self._metadata_differs():
            return
        self._wanted.say(f"Installing {self._project.distribution} in place into {sys.prefix}.")
        process = await asyncio.create_subprocess_exec(
            *install_command(self._project), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await process.communicate()
        if process.returncode:
            raise StartError(f"it cannot be installed:\n{output.decode(errors='replace').strip()}")

    def _metadata_differs(self) -> bool:
        """Whether pyproject.toml says something else than what was installed: entry point, version or requirements."""
        import importlib.metadata

        from packaging.requirements import InvalidRequirement, Requirement

        found = importlib.metadata.distribution(self._project.distribution)
        points = [(p.name, p.value) for p in found.entry_points if p.group == "skald.plugins"]
        try:
            wanted = {str(Requirement(r)) for r in self._project.settings["project"].get("dependencies", [])}
            have = {str(Requirement(r)) for r in found.requires or [] if "extra ==" not in r}
        except InvalidRequirement:
            return True
        version = self._project.settings["project"].get("version")
        named = (self._project.id, self._project.module)
        return points != [named] or wanted != have or (version is not None and version != found.version)

    # -- the child -----------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        await self._enable()
        env = dict(os.environ)
        for name, value in (("SKALD_STRICT_PLUGINS", self._wanted.strict), ("SKALD_TRACE_PLUGINS", self._wanted.trace)):
            env.pop(name, None)
            if value:
                env[name] = "1"
        env["PYTHONUNBUFFERED"] = "1"
        command = [sys.executable, "-m", "skald_core", "serve", "--data", str(self._data), "--no-input"]
        command += ["--host", self._wanted.host, "--port", str(self._wanted.port)]
        self._child = await asyncio.create_subprocess_exec(
            *command,
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches this process alone, which then ends the child in its own time
        )
        self._reader = asyncio.create_task(self._follow(self._child))

    async def _enable(self) -> None:
        """Have it enabled, also the first time and after a start that it did not survive."""
        from skald_core.db import schema
        from skald_core.db.migrations import apply_migrations
        from skald_core.loop.database import Database
        from skald_core.plugins.lifecycle import set_enabled_offline

        folder = self._data / "database"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self._data / "plugins.loading").unlink(missing_ok=True)
        database = await Database.open(folder / "system.db", readers=1)
        try:
            await apply_migrations(database, "kernel", schema.REGISTRY)
            await database.write(lambda c: set_enabled_offline(c, self._project.id, True))
        finally:
            await database.close()

    async def _follow(self, child: asyncio.subprocess.Process) -> None:
        """Pass on what the server prints; once it listens, show the plugin as the catalog would."""
        assert child.stdout is not None
        while line := await child.stdout.readline():
            text = line.decode(errors="replace").rstrip("\n")
            if found := _READY.search(text):
                for row in await self._row():
                    self._wanted.say(row)
                self._wanted.say(f"Skald is ready at {found[1]} — Ctrl-C stops it.")
            else:
                self._wanted.say(text)
        status = await child.wait()
        if self._child is child:
            self._child = None
            self._wanted.say(f"The server ended (status {status}). It starts again when a file changes.")

    async def _row(self) -> list[str]:
        """The catalog's row: state, what it contributes, and what is wrong."""
        from skald_core.loop.database import Database

        found = self._project.discovered()
        database = await Database.open(self._data / "database" / "system.db", readers=1)
        try:
            row = await database.read(
                lambda c: c.execute("SELECT state, error FROM plugins WHERE id=?", (self._project.id,)).fetchone()
            )
        finally:
            await database.close()
        state, error = (row[0], row[1]) if row else ("not found", "")
        if not row:
            return [f"{self._project.id}: not found; is it installed in {sys.prefix}?"]
        title = found.manifest.title if found.manifest else self._project.id
        rows = [f"{self._project.id} {self._project.version}  {state}  {title}"]
        if found.manifest:
            said = msgspec.to_builtins(found.manifest.contributes)
            rows += [
                f"  {what}: {', '.join(names)}" for what, names in said.items() if isinstance(names, list) and names
            ]
        if error:
            failure = json.loads(error)
            rows += [f"  {failure['phase']}: {failure['message']}", *failure["traceback"].rstrip().splitlines()]
        return rows

    async def _stop(self) -> None:
        child, self._child = self._child, None
        if child is not None and child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await child.wait()
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                await child.wait()
        if self._reader is not None:
            await self._reader
            self._reader = None
