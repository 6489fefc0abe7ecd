"""The main job with the starter model: a person asks for a file, approves it, and the file is there. `./test.sh real`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.live import Live
from tests.support.server import ServerProcess, messages, new_conversation, send, wait_until

pytestmark = pytest.mark.real

CACHE = Path(os.environ.get("SKALD_TEST_MODELS") or Path.home() / ".cache" / "skald-test")
STATUS = "/api/plugin/llamacpp/status"


def status(client: httpx.Client) -> dict[str, Any]:
    return dict(client.get(STATUS).raise_for_status().json())


def starter(client: httpx.Client) -> dict[str, Any]:
    return dict(status(client)["models"][0])


def act(client: httpx.Client, what: str, body: dict[str, str]) -> None:
    client.post(f"/api/plugin/llamacpp/{what}", json=body, timeout=120).raise_for_status()


def provide_model(server: ServerProcess, client: httpx.Client) -> None:
    """Use the model of an earlier run, else download it through the plugin as a person would, and keep it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    kept = CACHE / "starter.gguf"
    if not kept.is_file():
        model = starter(client)["id"]
        act(client, "download", {"model": model})

        def ready() -> bool:
            now = starter(client)
            assert now["state"] != "failed", now
            return now["state"] in {"ready", "running", "loading"}

        wait_until(ready, "the starter model is downloaded", timeout=3600)
        (file,) = (server.data / "plugins" / "llamacpp").rglob("*.gguf")
        shutil.copy(file, kept)
        act(client, "use", {"model": model})
    else:
        act(client, "add-path", {"path": str(kept)})


def test_the_starter_model_writes_a_file() -> None:
    """Downloaded (or kept), loaded, asked twice in one conversation: both files are written after approval."""
    with ServerProcess() as server:
        client = server.first_user()
        provide_model(server, client)
        wait_until(lambda: client.get("/api/models").json(), "the model is listed", timeout=120)
        (model,) = client.get("/api/models").json()
        assert model["info"]["weak"] is True
        conversation = new_conversation(client)
        live = Live(client, conversation)
        live.until("snapshot")
        home = server.data / "homes" / client.get("/api/auth/me").json()["id"]
        for path, wanted in (("notes/todo.md", "milk"), ("notes/ideas.md", "garden")):
            send(client, conversation, f"Create the file {path} with the text: {wanted}")
            request = live.until("approval_required", timeout=300)["request"]
            assert request["tool"] == "write_file", request
            assert request["path"] == path
            client.post(f"/api/requests/{request['id']}/answer", json={"choice": "allow_once"}).raise_for_status()
            end = live.until("turn_finished", timeout=300)
            assert end["outcome"] == "success", end
            assert wanted in (home / path).read_text()
        said = messages(client, conversation)
        assert said[-1]["role"] == "assistant"
        assert said[-1]["content"].strip()
        first = next(m for m in said if m["role"] == "assistant")
        assert first["usage"]["input_tokens"] <= 1000, "the prompt of a weak model stays short"
        print({"first_prompt_tokens": first["usage"]["input_tokens"], "first_ms": first["duration_ms"]})
        live.close()
        client.close()
