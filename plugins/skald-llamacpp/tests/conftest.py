"""Real parts where a part is small: an HTTP server that can be told to misbehave, package wheels made on the spot, child
processes that run this plugin's own child script with a stand-in for the model runtime."""

from __future__ import annotations

import asyncio
import hashlib
import http.server
import json
import struct
import sys
import threading
import zipfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from skald_core.api import ModelInfo, PluginContext
from skald_llamacpp.index import ModelSpec, Packages

PACKAGE_DIR = Path(__file__).parents[1] / "src" / "skald_llamacpp"


class MemoryKv:
    """The context's key-value store, in memory."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    async def get(self, key: str, default: Any = None) -> Any:
        return json.loads(self.values[key]) if key in self.values else default

    async def set(self, key: str, value: Any) -> None:
        self.values[key] = json.dumps(value)

    async def delete(self, key: str) -> None:
        self.values.pop(key, None)


class FakeHost:
    """What the kernel gives a context, as far as this plugin uses it."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.system_db: Any = None
        self.models = self
        self.rows: dict[str, tuple[str, ModelInfo]] = {}
        self.events: list[dict[str, Any]] = []
        self.event = asyncio.Event()
        self.services: dict[type[Any], Any] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.texts = {p.stem: json.loads(p.read_text()) for p in (PACKAGE_DIR / "i18n").glob("*.json")}

    async def ensure(
        self, *, type_id: str, provider_name: str, settings: dict[str, str], model: str, title: str, info: ModelInfo
    ) -> str:
        assert (type_id, provider_name, settings) == ("llamacpp", "On this machine", {})
        self.rows[model] = (title, info)
        return model

    async def forget(self, *, type_id: str, provider_name: str, model: str) -> bool:
        return self.rows.pop(model, None) is not None

    def translate(self, key: str, locale: str, values: dict[str, object]) -> str:
        own = key.removeprefix("plugin.llamacpp.")
        text = self.texts.get(locale, {}).get(own) or self.texts["en"].get(own)
        return key if text is None else str(text).format(**values) if values else str(text)

    def http_client(self, *, allow_private: bool) -> httpx.AsyncClient:
        raise AssertionError("tests bring their own sources")

    def lookup_service(self, protocol: type[Any], user_id: str | None) -> Any | None:
        return self.services.get(protocol)

    def publish(self, plugin_id: str, user_id: str | None, event: dict[str, Any]) -> None:
        self.events.append(event)
        self.event.set()

    def spawn(self, owner: str, coro: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coro)
        self.tasks.append(task)
        return task

    async def heard(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first event that fits, also one that was published already."""
        async with asyncio.timeout(20):
            while True:
                self.event.clear()
                for event in self.events:
                    if wanted(event):
                        return event
                await self.event.wait()


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[FakeHost]:
    made = FakeHost(tmp_path / "data")
    yield made
    for task in made.tasks:
        task.cancel()
    await asyncio.gather(*made.tasks, return_exceptions=True)


@pytest.fixture
def ctx(host: FakeHost) -> PluginContext:
    context = PluginContext(host, "llamacpp", "0.1.0", PACKAGE_DIR)
    context.kv = MemoryKv()  # type: ignore[assignment]  # the same three methods
    return context


# --- models ------------------------------------------------------------------------------------------------------


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def _pair(key: str, value: Any) -> bytes:
    if isinstance(value, str):
        return _text(key) + struct.pack("<I", 8) + _text(value)
    if isinstance(value, bool):
        return _text(key) + struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return _text(key) + struct.pack("<II", 4, value)
    if isinstance(value, float):
        return _text(key) + struct.pack("<If", 6, value)
    if value and isinstance(value[0], str):
        return _text(key) + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))
    return _text(key) + struct.pack("<IIQ", 9, 4, len(value)) + struct.pack(f"<{len(value)}I", *value)


def gguf(pairs: dict[str, Any] | None = None, *, version: int = 3, tensors: int = 1, tail: bytes = b"\0" * 64) -> bytes:
    """The bytes of a small GGUF file."""
    values = {
        "general.architecture": "qwen2",
        "general.name": "Tiny",
        "qwen2.context_length": 4096,
        "qwen2.block_count": 2,
        "qwen2.embedding_length": 64,
        "qwen2.attention.head_count": 4,
        "qwen2.attention.head_count_kv": 2,
        "tokenizer.chat_template": "{{ messages }}{{ tools }}",
        **(pairs or {}),
    }
    body = b"".join(_pair(k, v) for k, v in values.items() if v is not None)
    return (
        b"GGUF"
        + struct.pack("<IQQ", version, tensors, len([v for v in values.values() if v is not None]))
        + body
        + tail
    )


@pytest.fixture
def make_gguf() -> Callable[..., bytes]:
    return gguf


@pytest.fixture
def data() -> bytes:
    """A model's bytes: a GGUF head, then 100 000 bytes that differ from block to block."""
    tail = b"".join(hashlib.sha256(n.to_bytes(4, "big")).digest() for n in range(3125))
    return gguf(tail=tail)


@pytest.fixture
def spec(data: bytes) -> ModelSpec:
    """``data`` as a model of the index, in blocks of 30 000 bytes that packages hold too."""
    block = 30_000
    pieces = [data[i : i + block] for i in range(0, len(data), block)]
    return ModelSpec(
        id="tiny",
        title="Tiny",
        publisher="Somebody",
        license="MIT",
        repository="somebody/tiny",
        file="tiny.gguf",
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        packages=Packages(
            name="tiny-part{n}", version="1.0", count=len(pieces), member="tiny_part{n}/data/part{n:02}.bin"
        ),
        block_size=block,
        blocks=tuple(hashlib.sha256(p).hexdigest() for p in pieces),
    )


# --- where models come from --------------------------------------------------------------------------------------


class FileServer:
    """An HTTP server with one file. ``plan`` holds what it does on the coming requests, then it behaves:

    ``cut N`` closes after N bytes · ``ignore`` answers 200 to a Range · ``html`` · ``404`` · ``503`` · ``wrong`` sends other
    bytes · ``stall N`` sends N bytes and waits until ``release`` is set.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.plan: list[str] = []
        self.ranges: list[str | None] = []
        self.stalled = threading.Event()
        self.release = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                outer.answer(self)

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/tiny.gguf"

    def answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        act, _, number = (self.plan.pop(0) if self.plan else "behave").partition(" ")
        wanted = handler.headers.get("Range")
        self.ranges.append(wanted)
        if act in ("404", "503", "html"):
            body = b"<html>sign in first</html>"
            handler.send_response(200 if act == "html" else int(act))
            handler.send_header("Content-Type", "text/html")
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and act != "ignore" else 0
        body = self.content[start:]
        if act == "wrong":
            body = bytes(b ^ 1 for b in body)
        handler.send_response(206 if start else 200)
        handler.send_header("Content-Type", "application/octet-stream")
        handler.send_header("Content-Length", str(len(body)))
        if start:
            last = len(self.content) - 1
            handler.send_header("Content-Range", f"bytes {start}-{last}/{len(self.content)}")
        handler.end_headers()
        if act == "cut":
            handler.wfile.write(body[: int(number)])
            handler.close_connection = True
            return
        if act == "stall":
            handler.wfile.write(body[: int(number)])
            handler.wfile.flush()
            self.stalled.set()
            self.release.wait(20)
            handler.close_connection = True
            return
        handler.wfile.write(body)

    def close(self) -> None:
        self.release.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def file_server(data: bytes) -> Iterator[FileServer]:
    server = FileServer(data)
    yield server
    server.close()


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False) as made:
        yield made


class Shelf:
    """Wheels in a folder, and the command that "fetches" one by copying it."""

    def __init__(self, folder: Path, spec: ModelSpec, data: bytes) -> None:
        self.folder = folder
        self.fetched: list[str] = []
        folder.mkdir()
        assert spec.packages is not None
        for number in range(1, spec.packages.count + 1):
            start, length = spec.block_span(number - 1)
            self.put(spec.packages.package(number), spec.packages.member_of(number), data[start : start + length])

    def put(self, package: str, member: str, content: bytes) -> None:
        with zipfile.ZipFile(self.folder / f"{package}==1.0.whl", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(member, content)

    def command(self, requirement: str, target: Path) -> Sequence[str]:
        self.fetched.append(requirement)
        code = (
            "import shutil,sys,pathlib\n"
            "wheel=pathlib.Path(sys.argv[1])\n"
            "if not wheel.exists(): sys.exit('warning: looking around\\nERROR: No matching distribution found')\n"
            "shutil.copy(wheel, sys.argv[2])\n"
        )
        return (sys.executable, "-I", "-c", code, str(self.folder / f"{requirement}.whl"), str(target))


@pytest.fixture
def shelf(tmp_path: Path, spec: ModelSpec, data: bytes) -> Shelf:
    return Shelf(tmp_path / "shelf", spec, data)


@pytest.fixture
def fake_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Child processes find the stand-in instead of the model runtime."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).with_name("fake_runtime")))
