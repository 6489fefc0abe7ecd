"""The true model in the true runtime. Not part of the usual run: ``./test.sh real``, or ``pytest -m real``.

The model is the one the project's own run keeps: ``starter.gguf`` in the folder ``SKALD_TEST_MODELS``.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import skald_llamacpp
from skald_core.api import PluginContext
from skald_llamacpp.gguf import read_gguf
from skald_llamacpp.index import load_index
from skald_llamacpp.library import Library
from skald_llamacpp.servers import Endpoint, ServerFailure

pytestmark = pytest.mark.real

SYSTEM = (
    "You are a helpful assistant. You can work with the user's files. Use file paths exactly as the user writes them. "
    "Answer briefly, in the user's language."
)


def tool(name: str, description: str, *required: str) -> dict[str, Any]:
    properties = {key: {"type": "string"} for key in required}
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = [
    tool("read_file", "Read a text file.", "path"),
    tool("write_file", "Create a file, or replace all of it.", "path", "content"),
    tool("edit_file", "Replace text in a file.", "path", "old", "new"),
    tool("list_files", "List a folder.", "path"),
]


@pytest.fixture
def model_file() -> Path:
    folder = os.environ.get("SKALD_TEST_MODELS") or Path.home() / ".cache" / "skald-test"
    path = Path(folder) / "starter.gguf"
    if not path.is_file():
        pytest.skip(f"no model at {path}; run ./test.sh real, which fetches it")
    return path


@pytest.fixture
async def library(ctx: PluginContext, model_file: Path) -> AsyncIterator[Library]:
    made = Library(ctx, load_index(Path(skald_llamacpp.__file__).with_name("models.json")))
    await made.load()
    yield made
    await made.close()


async def chat(endpoint: Endpoint, messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {endpoint.key}"}
    body = {"messages": [{"role": "system", "content": SYSTEM}, *messages], "tools": TOOLS, "max_tokens": 300, **more}
    async with httpx.AsyncClient(trust_env=False, headers=headers, timeout=600) as client:
        answer = await client.post(endpoint.base_url + "/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result


async def test_the_model_asks_for_a_file_and_then_says_so(library: Library, model_file: Path) -> None:
    """The main job: a structured call with the right path and text, then one sentence instead of another call; and the
    second request reads what it shares with the first from the cache."""
    model = await library.add_path(str(model_file))
    server = await library.server(model)
    assert "```tool" in server.settings.template
    async with server.use() as endpoint:
        asked = {"role": "user", "content": "Create a file notes/todo.md with the text: buy milk"}
        first = await chat(endpoint, [asked])
        message = first["choices"][0]["message"]
        (call,) = message["tool_calls"]
        assert call["function"]["name"] == "write_file"
        assert json.loads(call["function"]["arguments"]) == {"path": "notes/todo.md", "content": "buy milk"}
        result = {"role": "tool", "tool_call_id": call["id"], "content": "Created notes/todo.md (1 line)."}
        second = await chat(endpoint, [asked, message, result])
        answer = second["choices"][0]["message"]
        assert not answer.get("tool_calls")
        assert "notes/todo.md" in answer["content"]
        cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert cached >= first["usage"]["prompt_tokens"] - 1


async def test_small_talk_stays_text(library: Library, model_file: Path) -> None:
    """Tools in the request do not turn every answer into a call."""
    server = await library.server(await library.add_path(str(model_file)))
    async with server.use() as endpoint:
        answer = await chat(endpoint, [{"role": "user", "content": "What is the capital of France?"}])
    message = answer["choices"][0]["message"]
    assert not message.get("tool_calls")
    assert "Paris" in message["content"]


async def test_nothing_is_answered_without_the_key(library: Library, model_file: Path) -> None:
    """Other programs on this machine can reach the port, and get nothing but a sign of life."""
    server = await library.server(await library.add_path(str(model_file)))
    async with server.use() as endpoint, httpx.AsyncClient(trust_env=False) as client:
        base = endpoint.base_url.removesuffix("/v1")
        for path in ("/v1/models", "/props", "/slots", "/metrics"):
            assert (await client.get(base + path)).status_code in (401, 404), path
        assert (await client.post(base + "/completion", json={"prompt": "x"})).status_code == 401


async def test_a_cut_model_file_is_told_apart(library: Library, model_file: Path, tmp_path: Path) -> None:
    """The runtime's own words end as one sentence of ours."""
    assert read_gguf(model_file).architecture == "qwen2"
    cut = tmp_path / "cut.gguf"
    with model_file.open("rb") as file:
        cut.write_bytes(file.read(200 << 20))
    server = await library.server(await library.add_path(str(cut)))
    with pytest.raises(ServerFailure) as caught:
        await server.ensure()
    assert caught.value.code == "broken_model"
