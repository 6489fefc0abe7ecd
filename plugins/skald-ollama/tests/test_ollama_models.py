"""The models of an Ollama, finding one on this machine, and the provider type around it."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest

from skald_core.api import ConfigError, ModelError, ModelGoneError, ModelInfo, NetworkError, ProtocolError, Provider
from skald_core.testing.servers import RawServer, Wire
from skald_ollama.address import parse_address
from skald_ollama.kind import Ollama
from skald_ollama.listing import discover, list_models, read_model

QWEN = {
    "capabilities": ["completion", "tools", "thinking"],
    "model_info": {"general.architecture": "qwen3", "qwen3.context_length": 40960},
    "details": {"parameter_size": "8.2B"},
    "parameters": 'stop    "<|im_end|>"\ntemperature    0.6',
}
SHOWN: dict[str, Any] = {
    "qwen3:8b": QWEN,
    "llava:7b": {"capabilities": ["completion", "vision"], "details": {"parameter_size": "2.1B"}},
    "nomic-embed-text": {"capabilities": ["embedding"]},
    "set:latest": {**QWEN, "parameters": "num_ctx                        8192"},
}


def site(raw: RawServer, *, shown: dict[str, Any] | None = None, loaded: dict[str, int] | None = None) -> None:
    """Serves the list, what is running, and what is known of each model."""

    async def script(wire: Wire) -> None:
        heard = raw.heard[-1]
        known = SHOWN if shown is None else shown
        match heard.path:
            case "/api/tags":
                answer: Any = {"models": [{"name": name, "model": name} for name in [*SHOWN, ""]]}
            case "/api/ps":
                answer = {"models": [{"model": n, "context_length": size} for n, size in (loaded or {}).items()]}
            case "/api/show":
                answer = known.get(heard.body["model"])
            case _:
                answer = None
        if answer is None:
            await wire.whole('{"error": "model not found"}', "404 No")
        else:
            await wire.whole(json.dumps(answer))

    raw.answer(script)


async def test_a_list_with_details(raw: RawServer) -> None:
    """By name, with context, abilities and size; what does not chat is left out."""
    site(raw)
    models = {model.id: model.info for model in await list_models(parse_address(raw.url))}
    assert list(models) == ["llava:7b", "qwen3:8b", "set:latest"]
    assert models["qwen3:8b"] == ModelInfo(16384, None, frozenset({"tools", "reasoning"}))
    assert models["llava:7b"] == ModelInfo(16384, None, frozenset({"vision"}), weak=True)
    assert models["set:latest"].context_window == 8192, "what a Modelfile says counts"


async def test_a_context_the_server_was_started_with(raw: RawServer) -> None:
    """OLLAMA_CONTEXT_LENGTH shows in what is loaded; it is more than the default, never more than the model's own."""
    site(raw, loaded={"qwen3:8b": 32768})
    models = {model.id: model.info for model in await list_models(parse_address(raw.url))}
    assert models["qwen3:8b"].context_window == 32768
    site(raw, loaded={"qwen3:8b": 4096})
    models = {model.id: model.info for model in await list_models(parse_address(raw.url))}
    assert models["qwen3:8b"].context_window == 16384, "what another program loaded it with is no wish"


async def test_details_are_optional(raw: RawServer) -> None:
    """A model that cannot be shown is still one to choose."""
    site(raw, shown={})
    models = await list_models(parse_address(raw.url))
    assert [model.id for model in models] == sorted(SHOWN)
    assert {model.info for model in models} == {ModelInfo(16384)}


@pytest.mark.parametrize(
    ("shown", "want"),
    [
        ({"template": "{{ if .Tools }}", "details": {"families": ["llama"]}}, {"tools"}),
        ({"template": "{{ .Prompt }}", "details": {"families": ["llama", "clip"]}}, {"vision"}),
        ({"details": {"families": ["nomic-bert"]}}, None),
        ({"details": "?", "model_info": [], "capabilities": None}, set()),
    ],
)
def test_older_versions(shown: dict[str, Any], want: set[str] | None) -> None:
    """Before capabilities were listed, template and families tell."""
    model = read_model("m", shown)
    assert (None if model is None else set(model.info.capabilities)) == want


@pytest.mark.parametrize(
    ("shown", "context"),
    [
        ({"model_info": {"x.context_length": 2048}}, 2048),
        ({"model_info": {"x.context_length": 131072}}, 16384),
        ({"model_info": {"x.context_length": 262144}, "remote_host": "https://ollama.com:443"}, 262144),
        ({"model_info": {"x.context_length": True}}, 16384),
    ],
)
def test_contexts(shown: dict[str, Any], context: int) -> None:
    """A small model's own, a large one's cut to what a machine can hold, a cloud model's whole."""
    model = read_model("m", {"capabilities": ["completion"], **shown})
    assert model is not None
    assert model.info.context_window == context


@pytest.mark.parametrize(
    ("size", "weak"), [("8.2B", False), ("4.5B", False), ("3.2B", True), ("596.05M", True), ("", False), ("?", False)]
)
def test_small_models_are_weak(size: str, weak: bool) -> None:
    """Their prompts are kept short."""
    model = read_model("m", {"capabilities": ["completion"], "details": {"parameter_size": size}})
    assert model is not None
    assert model.info.weak is weak


@pytest.mark.parametrize(
    ("status", "answer", "error", "words"),
    [
        ("404 No", "404 page not found", ModelGoneError, "does not speak Ollama's API"),
        ("200 OK", "<html>", ProtocolError, "web page"),
        ("200 OK", '{"data": []}', ProtocolError, "not Ollama's API"),
        ("200 OK", "[]", ProtocolError, "not Ollama's API"),
        ("500 Oops", '{"error": "disk"}', ModelError, "It said: disk"),
        ("200 OK", '{"error": "disk"}', ModelError, "It said: disk"),
    ],
)
async def test_lists_that_fail(raw: RawServer, status: str, answer: str, error: type[ModelError], words: str) -> None:
    """The admin reads what to do."""

    async def script(wire: Wire) -> None:
        await wire.whole(answer, status)

    raw.answer(script)
    with pytest.raises(error, match=words):
        await list_models(parse_address(raw.url))


async def test_nobody_there() -> None:
    """The usual reason is named; looking around is simply without result."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(NetworkError, match="ollama serve"):
            await list_models(parse_address(url))
        assert await discover(parse_address(url)) == []


async def test_discovery(raw: RawServer) -> None:
    """With what is needed to use it."""
    site(raw)
    (server,) = await Ollama(local_url=raw.url).discover()
    assert server.title == "Ollama"
    assert [model.id for model in server.models] == ["llava:7b", "qwen3:8b", "set:latest"]
    assert isinstance(Ollama().create(server.settings), Provider)


async def test_a_slow_server_does_not_hold_up_the_look(raw: RawServer) -> None:
    """Found without its details when those do not come in time; not found when nothing does."""
    over = asyncio.Event()

    async def slow(wire: Wire) -> None:
        if raw.heard[-1].path == "/api/tags":
            await wire.whole(json.dumps({"models": [{"name": "qwen3:8b"}]}))
        else:
            await over.wait()

    async def silent(wire: Wire) -> None:
        await over.wait()

    raw.answer(slow)
    (server,) = await discover(parse_address(raw.url), within=0.3)
    assert [model.id for model in server.models] == ["qwen3:8b"]
    raw.answer(silent)
    assert await discover(parse_address(raw.url), within=0.1) == []
    over.set()


@pytest.mark.parametrize("answer", ["<html>", "[]", '{"error": "no"}', "\xff"])
async def test_discovery_never_raises(raw: RawServer, answer: str) -> None:
    """Another program on the port is no Ollama."""

    async def script(wire: Wire) -> None:
        await wire.whole(answer)

    raw.answer(script)
    assert await discover(parse_address(raw.url)) == []


def test_create() -> None:
    """Two servers are two providers; a setting that makes no sense is refused before it is saved."""
    kind = Ollama()
    assert kind.create({}).id == "ollama:127.0.0.1:11434"
    assert kind.create({"base_url": "http://box:1/v1"}).id == "ollama:box:1"
    with pytest.raises(ConfigError, match="keep a model loaded"):
        kind.create({"keep_alive": "soon"})
    assert kind.presets[0].key == "none"
    assert kind.presets[0].local


async def test_the_type_lists(raw: RawServer) -> None:
    """As the models page uses it."""
    site(raw)
    assert "qwen3:8b" in [model.id for model in await Ollama().list_models({"base_url": raw.url})]
