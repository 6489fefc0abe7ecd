"""Supervises the child processes: one per model file, started when first used, stopped when idle, restarted when they die."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

from skald_llamacpp.logfile import CappedLog
from skald_llamacpp.machine import available_memory

__all__ = ("CHILD_COMMAND", "Endpoint", "LaunchSettings", "ModelServer", "ModelServers", "ServerFailure")

State = Literal["stopped", "starting", "running", "failed"]

CHILD_COMMAND = (sys.executable, "-P", str(Path(__file__).with_name("child.py")))
"""The child, run as a script: a module of this package would load the whole server into it first."""

_BACKOFF = (1.0, 2.0, 5.0, 15.0, 60.0)
_STEADY = 60.0
"""Seconds after which a child that ran has shown that it can: earlier deaths no longer count."""


class ServerFailure(Exception):
    """The model cannot be used now. ``code`` is stable, ``values`` fill its sentence."""

    def __init__(self, code: str, **values: object) -> None:
        super().__init__(f"{code} {values}" if values else code)
        self.code = code
        self.values = values


class LaunchSettings(msgspec.Struct, frozen=True):
    """How to run one model. ``context`` is tokens, shared by ``parallel`` conversations at a time; ``threads`` 0 lets
    llama.cpp choose; ``cache_mib`` bounds the memory for prefixes of conversations not at work; ``template`` replaces the
    file's own chat template when not empty; ``memory`` is what a start needs, in bytes."""

    path: str
    alias: str
    context: int
    threads: int = 0
    template: str = ""
    temperature: float = 0.2
    parallel: int = 2
    cache_mib: int = 512
    max_tokens: int = 2048
    memory: int = 0


class Endpoint(msgspec.Struct, frozen=True):
    """A child that answers. ``key`` is random per start and known to this process and the child alone."""

    port: int
    key: str
    pid: int

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


class ModelServer:
    """One model's child process.

    ``make_room(settings)`` is asked before each start and raises ServerFailure when the model does not fit. ``changed`` is
    called on every change of state. ``idle_seconds`` 0 keeps the child forever. ``sleep`` is the wait between restarts
    (tests replace it).
    """

    def __init__(
        self,
        settings: LaunchSettings,
        *,
        log: CappedLog,
        idle_seconds: float,
        make_room: Callable[[ModelServer], Coroutine[Any, Any, None]],
        changed: Callable[[], None] = lambda: None,
        command: Sequence[str] = CHILD_COMMAND,
        start_seconds: float = 600.0,
        sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
    ) -> None:
        self.settings = settings
        self.state: State = "stopped"
        self.failure: ServerFailure | None = None
        self.endpoint: Endpoint | None = None
        self.busy = 0
        self.idle_since: float | None = None
        self._log = log
        self._idle_seconds = idle_seconds
        self._make_room = make_room
        self._changed = changed
        self._command = tuple(command)
        self._start_seconds = start_seconds
        self._sleep = sleep
        self._lock = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._deaths = 0
        self._retry_at = 0.0
        self._started_at = 0.0
        self._stopping = 0

    # -- for users -------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Endpoint]:
        """An endpoint that is up; the child is not stopped as idle meanwhile. Raises ServerFailure."""
        self.busy += 1
        self._disarm()
        try:
            yield await self.ensure()
        finally:
            self.busy -= 1
            self._arm()

    async def ensure(self) -> Endpoint:
        """Start the child unless it is up. Everyone who waits gets the same start. Raises ServerFailure."""
        async with self._lock:
            if self._stopping:
                raise ServerFailure("stopped")
            if self.endpoint is not None:
                if self._alive():
                    return self.endpoint
                self._died()
            if self.failure is not None and time.monotonic() < self._retry_at:
                raise self.failure
            return await self._start()

    def alive(self, endpoint: Endpoint) -> bool:
        """Is this very child still up?"""
        return self.endpoint == endpoint and self._alive()

    async def ended(self, endpoint: Endpoint) -> bool:
        """Did this very child end? A connection breaks a moment before the system reports the end of its process."""
        process = self._process
        if process is not None and self.alive(endpoint):
            try:
                async with asyncio.timeout(0.5):
                    await process.wait()
            except TimeoutError:
                return False
        return True

    async def stop(self) -> None:
        """End the child and everything that would start it again; a start under way fails. Safe to call twice."""
        self._disarm()
        self._stopping += 1
        try:
            if self.state == "starting" and self._process is not None:
                _kill(self._process)
            await self._cancel_tasks()
            async with self._lock:
                await self._cancel_tasks()
                await self._end()
                self.failure, self._deaths = None, 0
                self._set("stopped")
        finally:
            self._stopping -= 1

    # -- the child's life ------------------------------------------------------------------------------------------

    def _alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def _start(self) -> Endpoint:
        self.failure = None
        self._set("starting")
        try:
            await self._make_room(self)
            endpoint = await self._launch()
        except ServerFailure as failure:
            await self._end()
            self._failed(failure)
            raise
        except BaseException:  # cancelled: nothing may be left behind
            await self._end()
            self._set("stopped")
            raise
        self.endpoint = endpoint
        self._started_at = time.monotonic()
        self._spawn(self._watch())
        self._set("running")
        self._arm()
        return endpoint

    def _failed(self, failure: ServerFailure) -> float:
        """Note a failed start or a crash; returns the seconds to wait before the next try.

        Whoever asks after the first failure gets a try at once, after more only when that wait is over.
        """
        delay = _BACKOFF[min(self._deaths, len(_BACKOFF) - 1)]
        self._deaths += 1
        self._retry_at = time.monotonic() + (delay if self._deaths > 1 else 0.0)
        self.failure = failure
        self._set("failed")
        return delay

    async def _launch(self) -> Endpoint:
        if not await asyncio.to_thread(Path(self.settings.path).is_file):
            raise ServerFailure("file_gone", path=self.settings.path)
        key = secrets.token_urlsafe(32)
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,  # an interrupt from the terminal is for the server, which then stops this child
            )
        except OSError as error:
            raise ServerFailure("no_process", reason=error.strerror or str(error)) from None
        self._process = process
        self._spawn(self._copy_log(process))
        assert process.stdin is not None
        assert process.stdout is not None
        settings = {**msgspec.structs.asdict(self.settings), "key": key, "parent": os.getpid()}
        try:
            process.stdin.write(json.dumps(settings).encode() + b"\n")
            await process.stdin.drain()
            async with asyncio.timeout(self._start_seconds):
                line = await process.stdout.readline()
        except (BrokenPipeError, ConnectionResetError):
            line = b""
        except TimeoutError:
            raise ServerFailure("slow_start", seconds=int(self._start_seconds)) from None
        except ValueError:  # longer than a line may be: not our child's words
            line = b""
        return await self._read_answer(process, line, key)

    async def _read_answer(self, process: asyncio.subprocess.Process, line: bytes, key: str) -> Endpoint:
        try:
            event = json.loads(line)
            if event["event"] == "ready":
                return Endpoint(port=int(event["port"]), key=key, pid=process.pid)
            code = str(event["code"])
        except (ValueError, KeyError, TypeError):
            code = ""
        if not code:
            status = await self._wait(process)
            code = "stopped" if self._stopping else _cause_of_death(status)
        raise ServerFailure(code, path=self.settings.path, log=str(self._log.path))

    async def _watch(self) -> None:
        """Wait for the child's end. One that was not asked for is a crash: start again, later each time."""
        process = self._process
        assert process is not None
        await process.wait()
        if self._process is not process:
            return  # a message was quicker to notice, and started another
        delay = self._died()
        while self._deaths <= len(_BACKOFF):
            await self._sleep(delay)
            async with self._lock:
                if self._alive():
                    return
                try:
                    await self._start()
                    return
                except ServerFailure:
                    delay = _BACKOFF[min(self._deaths, len(_BACKOFF)) - 1]

    def _died(self) -> float:
        """Note that the child ended by itself; returns the seconds to wait before the next try."""
        process, self._process, self.endpoint = self._process, None, None
        if time.monotonic() - self._started_at > _STEADY:
            self._deaths = 0
        status = process.returncode if process is not None else None
        code = "crashed" if status is None else _cause_of_death(status)
        return self._failed(ServerFailure(code, path=self.settings.path, log=str(self._log.path)))

    async def _end(self) -> None:
        """Close the child's pipe, which ends it, and kill one that does not listen."""
        process, self._process, self.endpoint = self._process, None, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(1):
                await process.wait()
        except TimeoutError:
            _kill(process)
            await process.wait()
        finally:
            _kill(process)

    async def _wait(self, process: asyncio.subprocess.Process) -> int:
        """The exit status of a child that said it is ending; one that hangs is killed."""
        try:
            async with asyncio.timeout(5):
                return await process.wait()
        except TimeoutError:
            _kill(process)
            return await process.wait()

    async def _copy_log(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while data := await process.stderr.read(65_536):
            await asyncio.to_thread(self._log.write, data)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _set(self, state: State) -> None:
        if state != "running":
            self.idle_since = None
        self.state = state
        self._changed()

    # -- idle ------------------------------------------------------------------------------------------------------

    def _disarm(self) -> None:
        self.idle_since = None
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _arm(self) -> None:
        if self.busy or self.state != "running":
            return
        self._disarm()
        self.idle_since = time.monotonic()
        if self._idle_seconds:
            self._idle_timer = asyncio.get_running_loop().call_later(self._idle_seconds, self._idle)

    def _idle(self) -> None:
        self._spawn(self._unload())

    async def _unload(self) -> None:
        async with self._lock:
            if self.busy or self.state != "running":
                return
            await self._cancel_tasks()
            await self._end()
            self._set("stopped")

    async def _cancel_tasks(self) -> None:
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


class ModelServers:
    """The children of this plugin, one per model file, within the memory there is.

    ``available`` tells the free memory in bytes, None when unknown. ``changed`` is called with a server whose state changed.
    """

    def __init__(
        self,
        logs: Path,
        *,
        idle_seconds: float,
        changed: Callable[[ModelServer], None] = lambda server: None,
        command: Sequence[str] = CHILD_COMMAND,
        available: Callable[[], int | None] = available_memory,
    ) -> None:
        self._logs = logs
        self._idle_seconds = idle_seconds
        self._changed = changed
        self._command = command
        self._available = available
        self._servers: dict[str, ModelServer] = {}

    def get(self, path: str) -> ModelServer | None:
        return self._servers.get(path)

    async def server(self, settings: LaunchSettings) -> ModelServer:
        """The server of a model file. One that runs with other settings is replaced, unless it is at work."""
        old = self._servers.get(settings.path)
        if old is not None:
            if old.settings == settings or old.busy:
                return old
            await old.stop()
        server = ModelServer(
            settings,
            log=CappedLog(self._logs / f"{settings.alias}.log"),
            idle_seconds=self._idle_seconds,
            make_room=self._make_room,
            changed=lambda: self._changed(server),
            command=self._command,
        )
        self._servers[settings.path] = server
        return server

    async def stop(self, path: str) -> None:
        server = self._servers.pop(path, None)
        if server is not None:
            await server.stop()

    async def close(self) -> None:
        """End every child."""
        servers, self._servers = tuple(self._servers.values()), {}
        await asyncio.gather(*(server.stop() for server in servers))

    async def _make_room(self, wanted: ModelServer) -> None:
        """Raises ServerFailure when the model does not fit, also after the models nobody uses now were unloaded."""
        needed, free = wanted.settings.memory, self._available()
        if free is None or free >= needed:
            return
        for other in tuple(self._servers.values()):
            if other is not wanted and other.state == "running" and not other.busy:
                await other.stop()
        free = self._available()
        if free is not None and free < needed:
            raise ServerFailure("no_memory", needed=needed, available=free)


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        try:
            process.kill()
        except ProcessLookupError:
            return


def _cause_of_death(status: int) -> str:
    if hasattr(signal, "SIGILL") and status == -signal.SIGILL:
        return "cpu"
    if hasattr(signal, "SIGKILL") and status == -signal.SIGKILL:
        return "killed"
    return "crashed"
