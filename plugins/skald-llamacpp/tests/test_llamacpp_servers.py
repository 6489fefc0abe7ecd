"""Child processes: started, guarded by a key, restarted, unloaded, and never left behind.

They run the plugin's own child script; only the model runtime inside is a stand-in (``fake_runtime``).
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from skald_llamacpp.logfile import CappedLog
from skald_llamacpp.servers import Endpoint, LaunchSettings, ModelServer, ModelServers, ServerFailure

pytestmark = pytest.mark.usefixtures("fake_runtime")

Make = Callable[..., ModelServer]


class Gate:
    """Waits between restarts: each is noted and lasts until the test lets it pass."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.reached = asyncio.Event()
        self.passes = asyncio.Semaphore(0)

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.reached.set()
        await self.passes.acquire()


class States:
    """The states a server went through, and waiting for one."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.changed = asyncio.Event()
        self.server: ModelServer | None = None

    def __call__(self) -> None:
        assert self.server is not None
        self.seen.append(self.server.state)
        self.changed.set()

    async def until(self, state: str, count: int = 1) -> None:
        async with asyncio.timeout(20):
            while self.seen.count(state) < count:
                self.changed.clear()
                await self.changed.wait()


async def room(server: ModelServer) -> None:
    """There is always room."""


@pytest.fixture
def states() -> States:
    return States()


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
async def make(tmp_path: Path, states: States, gate: Gate) -> AsyncIterator[Make]:
    made: list[ModelServer] = []

    def build(behaviour: str = "ok", *, idle_seconds: float = 0, **more: Any) -> ModelServer:
        model = tmp_path / "model.gguf"
        model.write_text(behaviour)
        server = ModelServer(
            LaunchSettings(path=str(model), alias="tiny", context=2048),
            log=CappedLog(tmp_path / "logs" / "tiny.log"),
            idle_seconds=idle_seconds,
            make_room=more.pop("make_room", room),
            changed=states,
            sleep=gate.sleep,
            **more,
        )
        states.server = server
        made.append(server)
        return server

    yield build
    for server in made:
        await server.stop()


async def ask(endpoint: Endpoint, path: str = "/models", *, key: str | None = None) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as client:
        wanted = endpoint.key if key is None else key
        return await client.get(endpoint.base_url + path, headers={"Authorization": f"Bearer {wanted}".strip()})


async def die(endpoint: Endpoint) -> None:
    with pytest.raises(httpx.HTTPError):
        await ask(endpoint, "/die")


async def gone(pid: int) -> None:
    """Wait for the end of a process that need not be our child."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ended, _, _ = await asyncio.to_thread(select.select, [handle], [], [], 20)
        assert ended, f"process {pid} is still there"
    finally:
        os.close(handle)


async def test_a_model_starts_when_first_used_and_answers_only_with_its_key(make: Make, states: States) -> None:
    """The key is random per start; without it, or with another, the child refuses."""
    server = make()
    assert server.state == "stopped"
    async with server.use() as endpoint:
        assert (await ask(endpoint)).status_code == 200
        assert (await ask(endpoint, key="")).status_code == 401
        assert (await ask(endpoint, key="guess")).status_code == 401
        assert endpoint.base_url.startswith("http://127.0.0.1:")
    first = endpoint.key
    await server.stop()
    assert states.seen == ["starting", "running", "stopped"]
    assert (await server.ensure()).key != first


async def test_the_key_is_neither_an_argument_nor_in_the_environment(make: Make) -> None:
    """Other users of the machine can read a process's arguments."""
    endpoint = await make().ensure()
    seen = (await ask(endpoint)).json()
    assert not any(endpoint.key in value for value in [*seen["argv"], *seen["env"]])
    assert endpoint.key not in Path(f"/proc/{endpoint.pid}/cmdline").read_text()


async def test_the_child_carries_none_of_the_server(make: Make) -> None:
    """Its memory is for the model."""
    modules = (await ask(await make().ensure())).json()["modules"]
    assert not {"skald_core", "skald_llamacpp", "httpx", "msgspec", "litestar"} & set(modules)


async def test_everyone_who_waits_shares_one_start(make: Make, states: States) -> None:
    """Ten messages at once load the model once."""
    server = make()
    endpoints = await asyncio.gather(*(server.ensure() for _ in range(10)))
    assert len({e.pid for e in endpoints}) == 1
    assert states.seen == ["starting", "running"]


async def test_the_log_is_kept_without_the_key(make: Make, tmp_path: Path) -> None:
    """What the runtime prints, on either stream, is in the log; events stay apart."""
    server = make()
    endpoint = await server.ensure()
    log = tmp_path / "logs" / "tiny.log"
    async with asyncio.timeout(20):
        while not log.exists() or b"should not" not in log.read_bytes():
            await asyncio.sleep(0.01)
    assert b"loading" in log.read_bytes()
    assert endpoint.key.encode() not in log.read_bytes()


@pytest.mark.parametrize(
    ("behaviour", "code"),
    [("broken", "broken_model"), ("memory", "no_memory"), ("exit", "crashed"), ("killed", "killed"), ("cpu", "cpu")],
)
async def test_a_start_that_fails_says_why(make: Make, behaviour: str, code: str) -> None:
    """Each way to fail has its own code, and nothing is left running."""
    server = make(behaviour)
    with pytest.raises(ServerFailure) as caught:
        await server.ensure()
    assert caught.value.code == code
    assert server.state == "failed"
    assert server.failure is caught.value
    assert server.endpoint is None


async def test_a_missing_runtime_is_told(make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment without the runtime gets a sentence, not a traceback."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "xllamacpp.py").write_text("raise ImportError('libgomp.so.1: cannot open shared object')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "broken"))
    with pytest.raises(ServerFailure) as caught:
        await make().ensure()
    assert caught.value.code == "runtime_missing"


async def test_a_file_that_is_gone_is_told(make: Make, tmp_path: Path) -> None:
    """No process is started for it."""
    server = make()
    (tmp_path / "model.gguf").unlink()
    with pytest.raises(ServerFailure) as caught:
        await server.ensure()
    assert (caught.value.code, caught.value.values["path"]) == ("file_gone", str(tmp_path / "model.gguf"))


async def test_a_child_that_says_nonsense_or_nothing_is_ended(make: Make) -> None:
    """Only a proper answer counts, and waiting has an end."""
    talking = make(command=(sys.executable, "-c", "print('hello')"))
    with pytest.raises(ServerFailure) as caught:
        await talking.ensure()
    assert caught.value.code == "crashed"
    silent = make("hang", start_seconds=0.5)
    with pytest.raises(ServerFailure) as caught:
        await silent.ensure()
    assert caught.value.code == "slow_start"


async def test_a_process_that_cannot_be_made_is_told(make: Make, tmp_path: Path) -> None:
    """The system may refuse another process."""
    with pytest.raises(ServerFailure) as caught:
        await make(command=(str(tmp_path / "nothing"),)).ensure()
    assert (caught.value.code, caught.value.values) == ("no_process", {"reason": "No such file or directory"})


async def test_a_second_failure_in_a_row_is_not_tried_again_at_once(make: Make, states: States) -> None:
    """A broken file must not start a process for every message of a busy chat."""
    server = make("broken")
    for _ in range(5):
        with pytest.raises(ServerFailure):
            await server.ensure()
    assert states.seen.count("starting") == 2


async def test_a_crashed_child_is_started_again(make: Make, states: States, gate: Gate) -> None:
    """It stays warm without anybody asking; port, key and process are new."""
    server = make()
    old = await server.ensure()
    await die(old)
    await states.until("failed")
    assert server.failure is not None
    assert server.failure.code == "crashed"
    gate.passes.release()
    await states.until("running", 2)
    new = server.endpoint
    assert new is not None
    assert new.key != old.key
    assert not server.alive(old)
    assert (await ask(new)).status_code == 200


async def test_restarts_wait_longer_each_time_and_end(make: Make, states: States, gate: Gate, tmp_path: Path) -> None:
    """A child that cannot come up is given up after five tries; a person may still ask."""
    server = make()
    endpoint = await server.ensure()
    (tmp_path / "model.gguf").write_text("exit")
    for _ in range(10):
        gate.passes.release()
    await die(endpoint)
    await states.until("failed", 6)
    assert gate.waits == [1.0, 2.0, 5.0, 15.0, 60.0]
    assert server.state == "failed"


async def test_a_message_does_not_wait_for_the_restart(make: Make, states: States, gate: Gate) -> None:
    """Whoever asks after a crash starts the child at once; the restart that waited then has nothing to do."""
    server = make()
    await die(await server.ensure())
    await states.until("failed")
    endpoint = await server.ensure()
    gate.passes.release()
    assert (await ask(endpoint)).status_code == 200
    assert states.seen == ["starting", "running", "failed", "starting", "running"]


async def test_an_idle_child_leaves_memory_and_comes_back(make: Make, states: States) -> None:
    """Unused for the set time it ends; the next use starts it again."""
    server = make(idle_seconds=0.05)
    async with server.use() as endpoint:
        pid = endpoint.pid
    await states.until("stopped")
    await gone(pid)
    assert server.failure is None
    async with server.use() as endpoint:
        assert (await ask(endpoint)).status_code == 200


async def test_a_child_at_work_is_not_idle(make: Make, states: States) -> None:
    """However long an answer takes, the time counts from its end."""
    server = make(idle_seconds=0.05)
    async with server.use() as endpoint:
        async with server.use():
            assert server._idle_timer is None
        assert server._idle_timer is None
        assert server.alive(endpoint)
    assert server._idle_timer is not None
    await states.until("stopped")


async def test_stopping_ends_a_start_under_way(make: Make, states: States) -> None:
    """Removing a model, or stopping the server, does not wait for a model that is loading."""
    server = make("hang")
    start = asyncio.create_task(server.ensure())
    await states.until("starting")
    while server._process is None:
        await asyncio.sleep(0.01)
    pid = server._process.pid
    await server.stop()
    with pytest.raises(ServerFailure) as caught:
        await start
    assert caught.value.code == "stopped"
    await gone(pid)
    assert server.state == "stopped"


async def test_a_cancelled_start_leaves_nothing(make: Make, states: States) -> None:
    """A person who stops their message while the model loads leaves no process behind."""
    server = make("hang")
    start = asyncio.create_task(server.ensure())
    while server._process is None:
        await asyncio.sleep(0.01)
    pid = server._process.pid
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    await gone(pid)
    assert server.state == "stopped"


SERVER_PROCESS = """
import asyncio, sys
from pathlib import Path
from skald_llamacpp.logfile import CappedLog
from skald_llamacpp.servers import LaunchSettings, ModelServer

async def room(server): pass

async def main():
    server = ModelServer(LaunchSettings(path=sys.argv[1], alias="tiny", context=2048), log=CappedLog(Path(sys.argv[2])),
                         idle_seconds=0, make_room=room)
    if sys.argv[3] == "loading":
        asyncio.get_running_loop().create_task(server.ensure())
        while server._process is None: await asyncio.sleep(0.01)
        print(server._process.pid, flush=True)
    else:
        print((await server.ensure()).pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.parametrize(("behaviour", "phase"), [("ok", "running"), ("hang", "loading")])
async def test_no_child_outlives_a_killed_server(tmp_path: Path, behaviour: str, phase: str) -> None:
    """kill -9 of the server ends the child, also while it is loading a model."""
    (tmp_path / "model.gguf").write_text(behaviour)
    source = Path(__file__).parents[1] / "src"
    path = os.pathsep.join([os.environ["PYTHONPATH"], str(source), *sys.path])
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER_PROCESS, str(tmp_path / "model.gguf"), str(tmp_path / "log"), phase],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert process.stdout is not None
    with process.stdout:
        pid = int(await asyncio.to_thread(process.stdout.readline))
        process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(process.wait)
        await gone(pid)


def settings(tmp_path: Path, name: str, memory: int) -> LaunchSettings:
    path = tmp_path / f"{name}.gguf"
    path.write_text("ok")
    return LaunchSettings(path=str(path), alias=name, context=2048, memory=memory)


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[Callable[[Callable[[], int | None]], ModelServers]]:
    made: list[ModelServers] = []

    def build(available: Callable[[], int | None]) -> ModelServers:
        made.append(ModelServers(tmp_path / "logs", idle_seconds=0, available=available))
        return made[-1]

    yield build
    for each in made:
        await each.close()


async def test_a_model_that_does_not_fit_is_told_with_numbers(tmp_path: Path, servers: Any) -> None:
    """Starting it would only make the system end something."""
    server = await servers(lambda: 1000).server(settings(tmp_path, "big", 5000))
    with pytest.raises(ServerFailure) as caught:
        await server.ensure()
    assert (caught.value.code, caught.value.values) == ("no_memory", {"needed": 5000, "available": 1000})


async def test_an_idle_model_makes_room_for_another(tmp_path: Path, servers: Any) -> None:
    """One that answers right now does not."""
    free = [1000]
    every = servers(lambda: free[0])
    small = await every.server(settings(tmp_path, "small", 500))
    big = await every.server(settings(tmp_path, "big", 5000))
    async with small.use() as endpoint:
        with pytest.raises(ServerFailure):
            await big.ensure()
        assert small.alive(endpoint)
    with pytest.raises(ServerFailure):
        await big.ensure()
    assert small.state == "stopped"
    free[0] = 6000
    big._retry_at = 0.0  # the second failure in a row would be answered from memory
    await big.ensure()


async def test_changed_settings_count_from_the_next_start(tmp_path: Path, servers: Any) -> None:
    """A model at work is not taken away from the conversation that uses it."""
    every = servers(lambda: None)
    first = await every.server(settings(tmp_path, "one", 0))
    other = LaunchSettings(path=first.settings.path, alias="one", context=4096, threads=3)
    async with first.use() as endpoint:
        assert await every.server(other) is first
        assert first.alive(endpoint)
    second = await every.server(other)
    assert second is not first
    seen = (await ask(await second.ensure())).json()
    assert (seen["context"], seen["threads"]) == (4096, 3)
    assert first.state == "stopped"


def test_a_log_never_outgrows_its_cap(tmp_path: Path) -> None:
    """The newest lines stay, one file back is kept, a folder that cannot be written is no error."""
    log = CappedLog(tmp_path / "a" / "x.log", cap=1000)
    for number in range(100):
        log.write(f"line {number:04}\n".encode() * 5)
    files = sorted((tmp_path / "a").iterdir())
    assert [f.name for f in files] == ["x.log", "x.log.1"]
    assert all(f.stat().st_size <= 1000 for f in files)
    assert b"line 0099" in files[0].read_bytes()
    (tmp_path / "file").write_text("")
    CappedLog(tmp_path / "file" / "x.log").write(b"lost")


def test_the_child_says_nothing_but_events(tmp_path: Path) -> None:
    """What is printed on standard output by anyone else would break the conversation with the server."""
    (tmp_path / "model.gguf").write_text("ok")
    child = Path(__file__).parents[1] / "src" / "skald_llamacpp" / "child.py"
    process = subprocess.Popen(
        [sys.executable, "-P", str(child)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdin is not None
    assert process.stdout is not None
    line = {
        "path": str(tmp_path / "model.gguf"), "alias": "m", "key": "k", "parent": os.getpid(), "context": 512, "parallel": 1,
        "threads": 0, "cache_mib": 0, "max_tokens": 8, "template": "", "temperature": 0.1,
    }  # fmt: skip
    process.stdin.write(json.dumps(line).encode() + b"\n")
    process.stdin.flush()
    event = json.loads(process.stdout.readline())
    assert event["event"] == "ready"
    process.stdin.close()
    assert process.wait(20) == 0
    assert process.stdout.read() == b""
    process.stdout.close()
