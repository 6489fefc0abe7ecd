"""The models of this machine: what the page may do, what it is told, and what chats get."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skald_core.api import ModelInfo, PluginContext
from skald_llamacpp import machine, templates
from skald_llamacpp.config import Config
from skald_llamacpp.index import ModelSpec
from skald_llamacpp.library import Library, LibraryError
from skald_llamacpp.partial import PartialFile
from skald_llamacpp.servers import ModelServers
from skald_llamacpp.sources import PackageSource, SourceError
from skald_llamacpp.texts import size, tell

pytestmark = pytest.mark.usefixtures("fake_runtime", "runtime_installed")

Row = dict[str, Any]


class Held:
    """A source that waits after its first bytes until it is released, then goes on or fails."""

    name = "publisher"

    def __init__(self, data: bytes, at: int = 40_000) -> None:
        self._data, self._at = data, at
        self.reached = asyncio.Event()
        self.release = asyncio.Event()
        self.error: Exception | None = None

    async def fill(self, partial: PartialFile, received: Callable[[int], None]) -> None:
        if partial.offset < self._at:
            partial.append(self._data[partial.offset : self._at])
        received(partial.offset)
        self.reached.set()
        await self.release.wait()
        if self.error is not None:
            raise self.error
        partial.append(self._data[partial.offset :])
        received(partial.offset)


@pytest.fixture
def runtime_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are about what comes after the machine was found fit."""
    monkeypatch.setattr(machine, "runtime_version", lambda: "2026.10")
    monkeypatch.setattr(machine, "missing_cpu_features", lambda: ())


@pytest.fixture
def source(data: bytes) -> Held:
    return Held(data)


@pytest.fixture
async def library(ctx: PluginContext, spec: ModelSpec, source: Held) -> AsyncIterator[Library]:
    made = await open_library(ctx, spec, source)
    yield made
    await made.close()


async def open_library(ctx: PluginContext, spec: ModelSpec, source: Held) -> Library:
    library = Library(ctx, {spec.id: spec}, sources=lambda _: [source])
    library.servers = ModelServers(
        ctx.data_dir / "logs", idle_seconds=0, changed=library._server_changed, available=lambda: None
    )
    await library.load()
    return library


async def row(library: Library, model: str = "tiny") -> Row:
    return next(r for r in (await library.status())["models"] if r["id"] == model)


async def downloaded(library: Library, host: Any, source: Held) -> None:
    source.release.set()
    await library.download("tiny")
    # The file is no runnable model for the stand-in, so the start that follows ends as "failed".
    await host.heard(lambda e: e["state"] in ("running", "failed"))


async def test_a_download_ends_with_a_model_in_the_chats(
    library: Library, host: Any, source: Held, data: bytes
) -> None:
    """From absent over progress to a verified file, a row for the model choice, and a start right away."""
    assert (await row(library))["state"] == "absent"
    await library.download("tiny")
    await source.reached.wait()
    now = await row(library)
    assert (now["state"], now["done"], now["total"], now["source"]) == ("downloading", 40_000, len(data), "publisher")
    source.release.set()
    await host.heard(lambda e: e["state"] == "starting")
    title, info = host.rows["tiny"]
    assert title == "Tiny"
    assert info == ModelInfo(weak=True)
    assert library.info("tiny").context_window == 4096
    assert {e["type"] for e in host.events} == {"plugin.llamacpp.changed"}
    states = list(dict.fromkeys(e["state"] for e in host.events))
    assert states[:4] == ["downloading", "verifying", "ready", "starting"]


async def test_two_clicks_are_one_download(library: Library, host: Any, source: Held) -> None:
    """Asking again while it runs, or when the model is here, changes nothing."""
    await library.download("tiny")
    await source.reached.wait()
    await library.download("tiny")
    assert len(host.tasks) == 1
    await downloaded(library, host, source)
    tasks = len(host.tasks)
    await library.download("tiny")
    assert len(host.tasks) == tasks


async def test_a_paused_download_is_there_after_a_restart(
    library: Library, host: Any, ctx: PluginContext, spec: ModelSpec, source: Held, data: bytes
) -> None:
    """Pausing, or ending the server, keeps what was received; the page offers to go on with it."""
    await library.download("tiny")
    await source.reached.wait()
    await library.cancel("tiny")
    assert ((await row(library))["state"], (await row(library))["done"]) == ("paused", 40_000)
    await library.close()
    again = await open_library(ctx, spec, source)
    assert (await row(again))["state"] == "paused"
    await downloaded(again, host, source)
    assert (ctx.data_dir / "models" / "tiny.gguf").read_bytes() == data
    await again.close()


async def test_closing_in_the_middle_keeps_what_came(
    library: Library, ctx: PluginContext, spec: ModelSpec, source: Held, data: bytes
) -> None:
    """The server may stop at any time."""
    await library.download("tiny")
    await source.reached.wait()
    await library.close()
    assert (ctx.data_dir / "models" / "tiny.gguf.part").read_bytes() == data[:40_000]


async def test_a_failed_download_says_why_and_can_be_tried_again(library: Library, host: Any, source: Held) -> None:
    """The error stays on the page until the next try; its details are for copying."""
    source.error = SourceError("unreachable", "nobody there")
    source.release.set()
    await library.download("tiny")
    await host.heard(lambda e: e["state"] == "paused")
    error = (await row(library))["error"]
    assert error["code"] == "no_source"
    assert error["message"].startswith("The model could be fetched neither")
    assert error["detail"] == "publisher: unreachable: nobody there"
    source.error = None
    await downloaded(library, host, source)
    assert (await row(library))["state"] != "paused"


async def test_a_machine_that_cannot_run_models_downloads_none(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gigabyte is not fetched in vain."""
    monkeypatch.setattr(machine, "missing_cpu_features", lambda: ("avx2", "fma"))
    with pytest.raises(LibraryError) as caught:
        await library.download("tiny")
    assert (caught.value.code, caught.value.values) == ("cpu_features", {"features": "AVX2, FMA"})
    monkeypatch.setattr(machine, "runtime_version", lambda: None)
    with pytest.raises(LibraryError) as caught:
        await library.download("tiny")
    assert caught.value.code == "runtime_missing"


async def test_a_file_put_there_by_hand_is_verified_not_fetched(
    library: Library, host: Any, ctx: PluginContext, source: Held, data: bytes
) -> None:
    """The hash decides, wherever a file came from."""
    target = ctx.data_dir / "models" / "tiny.gguf"
    target.parent.mkdir(parents=True)
    target.write_bytes(data)
    assert ((await row(library))["state"], (await row(library))["done"]) == ("paused", len(data))
    await library.download("tiny")
    await host.heard(lambda e: e["state"] == "starting")
    assert not source.reached.is_set()
    assert "tiny" in host.rows


async def test_removing_deletes_what_was_downloaded(
    library: Library, host: Any, ctx: PluginContext, source: Held
) -> None:
    """Row, file and process go; the model can be downloaded again."""
    await downloaded(library, host, source)
    await library.remove("tiny")
    assert host.rows == {}
    assert list((ctx.data_dir / "models").iterdir()) == []
    assert (await row(library))["state"] == "absent"


async def test_removing_ends_a_download(library: Library, ctx: PluginContext, source: Held) -> None:
    """Its partial file goes too."""
    await library.download("tiny")
    await source.reached.wait()
    await library.remove("tiny")
    assert list((ctx.data_dir / "models").iterdir()) == []


async def test_a_file_is_added_by_path_and_never_deleted(
    library: Library, host: Any, ctx: PluginContext, spec: ModelSpec, source: Held, tmp_path: Path, make_gguf: Any
) -> None:
    """It is offered under its own name, is there after a restart, and stays on disk when it is taken out."""
    path = tmp_path / "My Model.Q4.gguf"
    path.write_bytes(make_gguf({"general.name": "My Model"}))
    model = await library.add_path(str(path))
    assert model == "my-model.q4"
    assert host.rows[model] == ("My Model", ModelInfo(weak=True))
    added = await row(library, model)
    assert (added["state"], added["path"], added["added"], added["context"]) == ("ready", str(path), True, 4096)
    assert await library.add_path(f" {path} ") == model
    again = await open_library(ctx, spec, source)
    assert [k.id for k in again.models()] == [model]
    await again.remove(model)
    assert path.exists()
    assert host.rows == {}
    assert [r["id"] for r in (await again.status())["models"]] == ["tiny"]
    await again.close()


async def test_names_of_added_files_do_not_clash(library: Library, tmp_path: Path, make_gguf: Any) -> None:
    """Equal file names in other folders, odd characters and names of the index get ids of their own."""
    ids = []
    for folder, name in (("a", "m.gguf"), ("b", "m.gguf"), ("c", "tiny.gguf"), ("d", "日本 …!.gguf"), ("e", "-.gguf")):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / name
        path.write_bytes(make_gguf())
        ids.append(await library.add_path(str(path)))
    assert ids == ["m", "m-2", "tiny-2", "日本", "model"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "path_not_absolute"),
        ("model.gguf", "path_not_absolute"),
        ("/\0", "path_not_absolute"),
        ("/nowhere/at/all.gguf", "file_gone"),
        ("/proc", "file_gone"),
        ("/proc/version", "not_gguf"),
        ("/" + "x" * 300, "cannot_read"),
    ],
)
async def test_paths_that_are_no_model_are_refused_in_words(library: Library, text: str, code: str) -> None:
    """Each with its own sentence, and nothing is remembered."""
    with pytest.raises(LibraryError) as caught:
        await library.add_path(text)
    assert caught.value.code == code
    assert library.models() == ()


async def test_a_file_that_went_away_is_shown_as_missing(library: Library, tmp_path: Path, make_gguf: Any) -> None:
    """It stays in the list, so that the person sees what happened."""
    path = tmp_path / "m.gguf"
    path.write_bytes(make_gguf())
    model = await library.add_path(str(path))
    path.unlink()
    assert (await row(library, model))["state"] == "missing"
    with pytest.raises(LibraryError) as caught:
        await library.use(model)
    assert caught.value.code == "file_gone"


async def test_using_loads_and_unloading_frees(library: Library, host: Any, tmp_path: Path, make_gguf: Any) -> None:
    """The state on the page follows the process."""
    path = tmp_path / "m.gguf"
    path.write_bytes(make_gguf())
    model = await library.add_path(str(path))
    path.write_text("ok")  # what the stand-in runtime understands
    await library.use(model)
    await host.heard(lambda e: e["state"] == "running")
    shown = await row(library, model)
    assert shown["state"] == "running"
    assert shown["memory"] > 0
    await library.unload(model)
    assert (await row(library, model))["state"] == "ready"


async def test_large_models_are_not_weak_and_keep_their_template(
    library: Library, tmp_path: Path, make_gguf: Any
) -> None:
    """Size on disk tells; a sparse file stands in for a big one."""
    path = tmp_path / "big.gguf"
    with path.open("wb") as file:
        file.write(make_gguf())
        file.truncate(4_000_000_000)
    info = library.info(await library.add_path(str(path)))
    assert not info.weak
    assert info.capabilities == frozenset({"tools"})


async def test_a_model_without_a_template_has_no_tools(library: Library, tmp_path: Path, make_gguf: Any) -> None:
    """There is no telling how it would write a call."""
    path = tmp_path / "plain.gguf"
    path.write_bytes(make_gguf({"tokenizer.chat_template": None}))
    assert library.info(await library.add_path(str(path))).capabilities == frozenset()


async def test_the_context_is_what_the_file_and_the_settings_allow(
    library: Library, ctx: PluginContext, tmp_path: Path, make_gguf: Any
) -> None:
    """A change of the setting counts at once, without touching the stored row."""
    path = tmp_path / "m.gguf"
    path.write_bytes(make_gguf({"qwen2.context_length": 32_768}))
    model = await library.add_path(str(path))
    assert library.info(model).context_window == 8192
    ctx.config = Config(context_size=16_384, threads=3)
    assert library.info(model).context_window == 16_384
    settings = (await library.server(model)).settings
    assert (settings.context, settings.threads) == (16_384, 3)


async def test_what_is_stored_wrongly_is_not_fatal(ctx: PluginContext, spec: ModelSpec, source: Held) -> None:
    """A list of another version is set aside."""
    await ctx.kv.set("models", [{"odd": 1}])
    library = await open_library(ctx, spec, source)
    assert library.models() == ()
    await library.close()


async def test_the_first_try_uses_the_publisher_then_packages(
    ctx: PluginContext, host: Any, spec: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of sources, and that only a mirror named by the operator may be a private address."""
    asked: list[bool] = []
    monkeypatch.setattr(host, "http_client", lambda *, allow_private: asked.append(allow_private))
    library = Library(ctx, {spec.id: spec})
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    first, second = library._default_sources(spec)
    assert (first.name, second.name) == ("publisher", "packages")
    assert isinstance(second, PackageSource)
    monkeypatch.setenv("HF_ENDPOINT", "http://10.0.0.1")
    library._default_sources(msgspec.structs.replace(spec, packages=None))
    assert asked == [False, True]
    await library.close()


def test_only_the_template_that_was_measured_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other template, and any larger model, keeps its own."""
    import hashlib

    known = "{{ a template with a known slip }}"
    monkeypatch.setattr(templates, "_BY_DIGEST", {hashlib.sha256(known.encode()).hexdigest(): "short-tools.jinja"})
    assert templates.replacement(known, weak=True) == "short-tools.jinja"
    assert templates.replacement(known, weak=False) == ""
    assert templates.replacement(known + " ", weak=True) == ""
    assert "```tool" in templates.read("short-tools.jinja")
    assert templates.read("") == ""


# --- texts -------------------------------------------------------------------------------------------------------


def test_every_error_has_a_sentence_in_every_language(ctx: PluginContext, host: Any) -> None:
    """The three bundles have the same keys with the same places to fill, and no code lacks a text."""
    import re

    english = host.texts["en"]
    for locale in ("it", "fr"):
        assert host.texts[locale].keys() == english.keys()
        for key, text in english.items():
            assert set(re.findall(r"\{\w+\}", text)) == set(re.findall(r"\{\w+\}", host.texts[locale][key])), key
    source = "\n".join(p.read_text() for p in (ctx.package_dir).glob("*.py"))
    codes = set(
        re.findall(r'(?:ServerFailure|LibraryError|DownloadError|GgufError)\(\s*"(\w+)"', source)
        + re.findall(r'_tell\(out, event="failed", code="(\w+)"', source)
        + re.findall(r'^\s+\("(\w+)", \(', source, re.MULTILINE)
        + re.findall(r'return "(cpu|killed|crashed)"', source)
    )
    assert len(codes) > 20
    assert {f"error.{code}" for code in codes} - english.keys() == set()


def test_every_key_the_page_uses_exists(ctx: PluginContext, host: Any) -> None:
    """A key without a text would show as its own name."""
    import re

    page = (ctx.package_dir / "web" / "models.js").read_text()
    used = set(re.findall(r'(?<![\w.])t\("([\w.]+)"', page))
    assert len(used) > 30
    assert used - host.texts["en"].keys() == set()
    for state in ("absent", "paused", "downloading", "verifying", "ready", "starting", "running", "failed", "missing"):
        assert f"state.{state}" in host.texts["en"]
        assert f'"{state}"' in page or f"{state}:" in page


def test_sizes_are_written_as_people_write_them(ctx: PluginContext) -> None:
    """Decimal comma and octets where they belong."""
    assert size(1_117_320_768, "en") == "1.1 GB"
    assert size(1_117_320_768, "it-CH") == "1,1 GB"
    assert size(1_117_320_768, "fr") == "1,1 Go"
    assert size(50_000_000, "en") == "50 MB"
    text = tell(ctx, "no_memory", {"needed": 2_000_000_000, "available": 900_000_000}, "fr")
    assert "2,0 Go" in text
    assert "900 Mo" in text


def test_an_unknown_code_still_gets_a_sentence(ctx: PluginContext) -> None:
    """A child of another version may name a reason this one does not know."""
    assert tell(ctx, "something_new", {}).startswith("The model's process ended")


# --- machine -----------------------------------------------------------------------------------------------------


def test_the_machine_is_described(tmp_path: Path) -> None:
    """Numbers that make sense on any Linux, and None for a process that is not there."""
    total, free = machine.total_memory(), machine.available_memory()
    assert total is not None
    assert free is not None
    assert 0 < free <= total
    import os

    assert (machine.resident_memory(os.getpid()) or 0) > 1_000_000
    assert machine.resident_memory(2**22 + 1) is None


def test_limits_of_a_container_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory and processors of the control group bound what the machine has."""
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("400000\n")
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert machine.total_memory() == 1_000_000
    assert machine.available_memory() == 600_000
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    assert machine.cpu_limit() == 1
    for name in ("memory.max", "memory.current"):
        (tmp_path / name).write_text("max\n")
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert machine.available_memory() != 600_000


def test_settings_are_bounded() -> None:
    """What an admin may type is checked by the type itself."""
    assert msgspec.json.decode(b"{}", type=Config) == Config()
    for wrong in ({"idle_minutes": -1}, {"context_size": 100}, {"threads": 1000}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(json.dumps(wrong).encode(), type=Config)
