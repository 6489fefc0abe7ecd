"""Asking servers for their models, and finding those that run on this machine."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from skald_core.api import (
    AuthError,
    ConfigError,
    ModelError,
    ModelGoneError,
    ModelInfo,
    NetworkError,
    ProtocolError,
    RemoteModel,
    ServerError,
)
from skald_core.testing.servers import RawServer, Wire
from skald_openai.discovery import discover, local_urls
from skald_openai.kind import OpenAICompatible
from skald_openai.listing import list_models, read_model, read_rows
from skald_openai.services import parse_endpoint

Answers = dict[str, Any]


def site(raw: RawServer, answers: Answers | Callable[[], Answers]) -> None:
    """Let the server answer by path; what is not listed is 404. A tuple is (status, body)."""

    async def script(wire: Wire) -> None:
        heard = raw.heard[-1]
        table = answers() if callable(answers) else answers
        key = heard.path
        if heard.raw and heard.path == "/api/show":
            key = f"/api/show {heard.body['model']}"
        found = table.get(key, ("404 Not Found", {"error": "no such path"}))
        status, body = found if isinstance(found, tuple) else ("200 OK", found)
        await wire.whole(body if isinstance(body, str) else json.dumps(body), status)

    raw.answer(script)


async def models_of(raw: RawServer, key: str = "") -> dict[str, RemoteModel]:
    return {model.id: model for model in await list_models(parse_endpoint(raw.url), key)}


def listed(*rows: Any) -> Answers:
    return {"object": "list", "data": [{"id": row} if isinstance(row, str) else row for row in rows]}


# --- lists -------------------------------------------------------------------------------------------------------


async def test_a_plain_list(raw: RawServer) -> None:
    """Names only: what is known of the family fills in, what does not chat is left out, sorted for people."""
    site(raw, {"/v1/models": listed("gpt-4.1", "text-embedding-3-small", "Alpha-unknown", "gpt-4o")})
    found = await models_of(raw, "k")
    assert list(found) == ["Alpha-unknown", "gpt-4.1", "gpt-4o"]
    assert found["gpt-4.1"].info.context_window == 1047576
    assert found["Alpha-unknown"].info == ModelInfo()
    assert raw.heard[0].headers["authorization"] == "Bearer k"


ROWS: list[tuple[str, dict[str, Any], RemoteModel | None]] = [
    (
        "OpenRouter",
        {
            "id": "acme/thinker",
            "name": "Acme: Thinker",
            "context_length": 200000,
            "architecture": {"input_modalities": ["text", "image", "file"], "output_modalities": ["text"]},
            "top_provider": {"context_length": 131072, "max_completion_tokens": 8192},
            "supported_parameters": ["tools", "reasoning", "stop"],
        },
        RemoteModel(
            id="acme/thinker",
            title="Acme: Thinker",
            info=ModelInfo(131072, 8192, frozenset({"tools", "reasoning", "vision", "documents"})),
        ),
    ),
    (
        "OpenRouter, without tools",
        {
            "id": "acme/talker",
            "context_length": 8192,
            "supported_parameters": ["stop"],
            "top_provider": {"context_length": None},
        },
        RemoteModel(id="acme/talker", info=ModelInfo(8192, None, frozenset())),
    ),
    ("OpenRouter, draws", {"id": "acme/painter", "architecture": {"output_modalities": ["image"]}}, None),
    (
        "Mistral",
        {
            "id": "acme-large",
            "name": "acme-large",
            "max_context_length": 131072,
            "capabilities": {"completion_chat": True, "function_calling": True, "vision": True},
        },
        RemoteModel(id="acme-large", info=ModelInfo(131072, None, frozenset({"tools", "vision"}))),
    ),
    ("Mistral, embeds", {"id": "acme-large", "capabilities": {"completion_chat": False}}, None),
    (
        "Groq",
        {"id": "acme-7b", "context_window": 131072, "max_completion_tokens": 32768, "active": True},
        RemoteModel(id="acme-7b", info=ModelInfo(131072, 32768, frozenset({"tools"}))),
    ),
    (
        "Together",
        {"id": "acme/small-3b", "type": "chat", "display_name": "Acme Small", "context_length": 32768},
        RemoteModel(
            id="acme/small-3b", title="Acme Small", info=ModelInfo(32768, None, frozenset({"tools"}), weak=True)
        ),
    ),
    ("Together, draws", {"id": "acme/painter", "type": "image"}, None),
    (
        "Moonshot",
        {
            "id": "acme-k9",
            "context_length": 262144,
            "supports_image_in": True,
            "supports_video_in": False,
            "supports_reasoning": True,
        },
        RemoteModel(id="acme-k9", info=ModelInfo(262144, None, frozenset({"tools", "vision", "reasoning"}))),
    ),
    (
        "Fireworks",
        {
            "id": "accounts/x/models/acme",
            "supports_chat": True,
            "supports_image_input": False,
            "supports_tools": False,
            "context_length": 4096,
        },
        RemoteModel(id="accounts/x/models/acme", info=ModelInfo(4096, None, frozenset())),
    ),
    (
        "DeepInfra",
        {
            "id": "acme/x",
            "metadata": {"context_length": 163840, "max_tokens": 163840, "tags": ["vision", "prompt_cache", "new"]},
        },
        RemoteModel(id="acme/x", info=ModelInfo(163840, 163840, frozenset({"tools", "vision", "prompt_cache"}))),
    ),
    (
        "vLLM",
        {"id": "qwen2.5-7b", "owned_by": "vllm", "max_model_len": 8192},
        RemoteModel(id="qwen2.5-7b", info=ModelInfo(8192, None, frozenset({"tools"}))),
    ),
    (
        "llama.cpp",
        {"id": "some.gguf", "owned_by": "llamacpp", "meta": {"n_ctx_train": 32768, "n_params": 1.5e9}},
        RemoteModel(id="some.gguf", info=ModelInfo(32768)),
    ),
    (
        "Gemini",
        {"id": "models/gemini-2.5-flash", "display_name": "Gemini 2.5 Flash"},
        RemoteModel(
            id="gemini-2.5-flash",
            title="Gemini 2.5 Flash",
            info=ModelInfo(
                1048576, 65536, frozenset({"tools", "vision", "documents", "video", "reasoning", "prompt_cache"})
            ),
        ),
    ),
]


@pytest.mark.parametrize(("row", "want"), [case[1:] for case in ROWS], ids=[case[0] for case in ROWS])
def test_rows_of_each_service(row: dict[str, Any], want: RemoteModel | None) -> None:
    """Context, abilities and titles where each service puts them; its word wins over the table's."""
    assert read_model(row, prefix="models/") == want


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"data": [{"id": "a"}]}, ["a"]),
        ([{"id": "a"}], ["a"]),
        ({"models": [{"name": "a"}]}, ["a"]),
        ({"data": []}, []),
        ({"data": [{"id": "a"}, "junk", {"id": 7}, {}]}, ["a"]),
        ({"data": ["junk"]}, None),
        ({"status": "ok"}, None),
        ("text", None),
        (None, None),
    ],
)
def test_shapes_of_lists(body: Any, names: list[str] | None) -> None:
    """A list, wrapped or bare; anything else is no model list."""
    rows = read_rows(body)
    assert (None if rows is None else [row.get("id") or row.get("name") for row in rows]) == names


async def test_openrouters_key_is_checked(raw: RawServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its list answers to everybody, so the list alone would call a wrong key right."""
    endpoint = parse_endpoint("https://openrouter.ai/api/v1")
    here = msgspec.structs.replace(parse_endpoint(raw.url), service=endpoint.service)
    site(
        raw,
        {"/v1/models": listed("a/b"), "/v1/key": ("401 Unauthorized", {"error": {"message": "No auth", "code": 401}})},
    )
    with pytest.raises(AuthError, match="refused the API key"):
        await list_models(here, "sk-or-wrong")
    site(raw, {"/v1/models": listed("a/b"), "/v1/key": {"data": {"label": "mine"}}})
    assert [model.id for model in await list_models(here, "sk-or-right")] == ["a/b"]


async def test_a_key_that_is_certainly_needed(raw: RawServer) -> None:
    """Nothing is sent to find that out."""
    with pytest.raises(AuthError, match="OpenAI wants an API key"):
        await list_models(parse_endpoint("https://api.openai.com/v1"), "")


@pytest.mark.parametrize(
    ("answers", "error", "words"),
    [
        ({"/v1/models": ("401 No", {"error": {"message": "no"}})}, AuthError, "wants an API key"),
        ({"/v1/models": "<html>hi</html>"}, ProtocolError, "web page, not the API"),
        ({"/v1/models": {"hello": 1}}, ProtocolError, "not the API"),
        ({"/v1/models": "hello"}, ProtocolError, "not the API"),
        ({"/v1/models": ("500 Oops", "")}, ServerError, "HTTP 500"),
        ({"/v1/models": {"error": {"message": "x"}}}, ServerError, "Try again"),
        ({}, ModelGoneError, "has no model list"),
    ],
)
async def test_lists_that_fail(raw: RawServer, answers: Answers, error: type[ModelError], words: str) -> None:
    """Each says what the admin has to do."""
    site(raw, answers)
    with pytest.raises(ModelError, match=words) as caught:
        await models_of(raw)
    assert type(caught.value) is error
    assert caught.value.__cause__ is None


async def test_a_base_url_without_its_v1(raw: RawServer) -> None:
    """The most common slip is found out and named, also when the right place wants a key."""
    bare = parse_endpoint(raw.url.removesuffix("/v1"))
    for answer in (listed("m"), ("401 No", {"error": {"message": "key?"}})):
        site(raw, {"/v1/models": answer, "/models": "<html>a web page</html>"})
        with pytest.raises(ModelGoneError) as caught:
            await list_models(bare, "")
        assert str(caught.value) == f"The API is at {raw.url}. Use that as the base URL."


async def test_nobody_there() -> None:
    """The local service is named where the port tells which it is."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(NetworkError, match="Nothing answers"):
            await list_models(parse_endpoint(url), "")


# --- what local servers add ----------------------------------------------------------------------------------------


def ollama_site() -> Answers:
    def shown(capabilities: list[str], context: int, size: str, parameters: str = "", **more: Any) -> Answers:
        return {
            "capabilities": capabilities,
            "model_info": {"general.architecture": "qwen2", "qwen2.context_length": context},
            "details": {"parameter_size": size},
            "parameters": parameters,
            **more,
        }

    names = ("running:7b", "set:7b", "default:1.7b", "vectors:latest", "cloud:480b", "gone:1b")
    return {
        "/v1/models": listed(*({"id": name, "owned_by": "library"} for name in names)),
        "/api/ps": {"models": [{"model": "running:7b", "context_length": 16384}]},
        "/api/show running:7b": shown(["completion", "tools", "vision"], 131072, "7.6B"),
        "/api/show set:7b": shown(["completion"], 131072, "7.6B", 'stop "x"\nnum_ctx                        8192'),
        "/api/show default:1.7b": shown(["completion", "tools", "thinking"], 40960, "2.0B"),
        "/api/show vectors:latest": shown(["embedding"], 2048, "137M"),
        "/api/show cloud:480b": shown(["completion", "tools"], 262144, "480B", remote_host="https://ollama.example"),
    }


async def test_ollama(raw: RawServer) -> None:
    """The context a model really gets: loaded, set, or Ollama's default; never the much larger one it was trained for."""
    site(raw, ollama_site())
    found = await models_of(raw)
    assert set(found) == {"running:7b", "set:7b", "default:1.7b", "cloud:480b", "gone:1b"}
    assert found["running:7b"].info == ModelInfo(16384, None, frozenset({"tools", "vision"}))
    assert found["set:7b"].info == ModelInfo(8192, None, frozenset())
    assert found["default:1.7b"].info == ModelInfo(4096, None, frozenset({"tools", "reasoning"}), weak=True)
    assert found["cloud:480b"].info.context_window == 262144
    assert found["gone:1b"].info.context_window == 4096, "a server that says nothing is taken to give little"


async def test_lm_studio(raw: RawServer) -> None:
    """Its own list knows context, sight and kind."""
    rows = [{"id": name, "owned_by": "organization_owner"} for name in ("seer", "plain-3b", "nomic")]
    seer = {"id": "seer", "type": "vlm", "max_context_length": 131072, "capabilities": ["tool_use"]}
    native = [
        {**seer, "state": "loaded", "loaded_context_length": 20000},
        {"id": "plain-3b", "type": "llm", "state": "not-loaded", "max_context_length": 131072},
        {"id": "nomic", "type": "embeddings"},
    ]
    site(raw, {"/v1/models": listed(*rows), "/api/v0/models": {"data": native}})
    found = await models_of(raw)
    assert found["seer"].info == ModelInfo(20000, None, frozenset({"tools", "vision"}))
    assert found["plain-3b"].info == ModelInfo(4096, None, frozenset({"tools"}), weak=True)
    assert set(found) == {"seer", "plain-3b"}


async def test_lm_studio_since_0_4(raw: RawServer) -> None:
    """The newer endpoint says the same in other words."""
    rows = [{"id": name, "owned_by": "organization_owner"} for name in ("seer", "nomic", "late")]
    native = [
        {
            "type": "llm",
            "key": "seer",
            "display_name": "Seer",
            "params_string": "8B",
            "max_context_length": 131072,
            "loaded_instances": [{"id": "seer", "config": {"context_length": 20000}}],
            "capabilities": {"vision": True, "trained_for_tool_use": True},
        },
        {"type": "embedding", "key": "nomic"},
    ]
    site(raw, {"/v1/models": listed(*rows), "/api/v1/models": {"models": native}})
    found = await models_of(raw)
    assert found["seer"] == RemoteModel(
        id="seer", title="Seer", info=ModelInfo(20000, None, frozenset({"tools", "vision"}))
    )
    assert set(found) == {"seer", "late"}


async def test_llama_cpp(raw: RawServer) -> None:
    """The context it was started with, not the one its model was trained for."""
    row = {"id": "m.gguf", "owned_by": "llamacpp", "meta": {"n_ctx_train": 131072}}
    props = {"default_generation_settings": {"n_ctx": 8192}, "modalities": {"vision": True, "audio": False}}
    site(raw, {"/v1/models": listed(row), "/props": props})
    assert (await models_of(raw))["m.gguf"].info == ModelInfo(8192, None, frozenset({"tools", "vision"}))


@pytest.mark.parametrize("owner", ["library", "organization_owner", "llamacpp"])
@pytest.mark.parametrize("answer", [("500 Oops", ""), {"models": "junk", "data": 7}, "<html>", []])
async def test_details_are_optional(raw: RawServer, owner: str, answer: Any) -> None:
    """A server whose own endpoints fail still has its list."""
    paths = ("/api/ps", "/api/show m", "/api/v0/models", "/api/v1/models", "/props")
    site(raw, {"/v1/models": listed({"id": "m", "owned_by": owner}), **dict.fromkeys(paths, answer)})
    assert set(await models_of(raw)) == {"m"}


# --- looking around ------------------------------------------------------------------------------------------------


async def test_discovery(raw: RawServer) -> None:
    """A server is named for what it is, wherever it listens; closed ports and other programs are passed over."""
    async with RawServer("/v1") as other, RawServer("/v1") as page:
        site(raw, ollama_site())
        site(other, {"/v1/models": ("401 No", {"error": {"message": "key?"}})})
        site(page, {"/v1/models": "<html>my home page</html>"})
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            closed = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
            found = await discover([closed, page.url, raw.url, other.url], within=20)
        assert [(server.title, server.settings) for server in found] == [
            ("Ollama", {"base_url": raw.url}),
            (f"127.0.0.1:{other.port}", {"base_url": other.url}),
        ]
    assert {model.id for model in found[0].models} >= {"running:7b", "default:1.7b"}
    assert found[1].models == (), "it wants a key first"


async def test_a_slow_server_does_not_hold_up_the_look(raw: RawServer) -> None:
    """One that says nothing is passed over; one that is slow with details is reported without them."""
    never = asyncio.Event()

    async def silent(wire: Wire) -> None:
        await never.wait()

    async def slow_details(wire: Wire) -> None:
        if raw.heard[-1].path == "/v1/models":
            await wire.whole(json.dumps(listed({"id": "m", "owned_by": "library"})))
        else:
            await never.wait()

    async with RawServer("/v1") as mute:
        mute.answer(silent)
        raw.answer(slow_details)
        found = await discover([mute.url, raw.url], within=1.0)
        never.set()
    assert [(server.title, [model.id for model in server.models]) for server in found] == [("Ollama", ["m"])]


async def test_discovery_never_raises(raw: RawServer) -> None:
    """Not even at an address that makes no sense, or an answer that is none."""

    async def garbage(wire: Wire) -> None:
        await wire.send(b"\x00\xffnot http at all\r\n\r\n")

    raw.answer(garbage)
    assert await discover(["nonsense", raw.url], within=5) == []


# --- the provider type -----------------------------------------------------------------------------------------------


def test_presets() -> None:
    """One for each known service, ready to be filled in."""
    presets = {preset.id: preset for preset in OpenAICompatible().presets}
    assert {
        "openai",
        "openrouter",
        "mistral",
        "deepseek",
        "groq",
        "together",
        "deepinfra",
        "moonshot",
        "zai",
        "xai",
    } < set(presets)
    assert {"gemini", "requesty", "fireworks", "ollama", "lmstudio", "llamacpp", "vllm"} < set(presets)
    assert presets["openai"].key == "required"
    assert presets["ollama"].key == "none"
    assert [p.id for p in presets.values() if p.local] == ["ollama", "lmstudio", "llamacpp", "vllm"]
    assert presets["ollama"].settings == {"base_url": "http://127.0.0.1:11434/v1"}
    assert set(local_urls()) == {p.settings["base_url"] for p in presets.values() if p.local}


def test_create() -> None:
    """Opens nothing; refuses what makes no sense; servers are told apart by id."""
    kind = OpenAICompatible()
    provider = kind.create({"base_url": "http://127.0.0.1:8080/v1", "api_key": ""})
    assert provider.id == "openai:127.0.0.1:8080"
    with pytest.raises(ConfigError, match="must start with"):
        kind.create({"base_url": "localhost:8080"})
    with pytest.raises(ConfigError, match="is empty"):
        kind.create({})
    with pytest.raises(ConfigError, match="Groq wants an API key"):
        kind.create({"base_url": "https://api.groq.com/openai/v1", "api_key": " "})


async def test_the_type_lists_and_discovers(raw: RawServer) -> None:
    """What the models page calls."""
    site(raw, {"/v1/models": listed("gpt-4o")})
    kind = OpenAICompatible(local_urls=[raw.url])
    assert [model.id for model in await kind.list_models({"base_url": raw.url, "api_key": " k "})] == ["gpt-4o"]
    assert raw.heard[0].headers["authorization"] == "Bearer k"
    assert [server.settings for server in await kind.discover()] == [{"base_url": raw.url}]
