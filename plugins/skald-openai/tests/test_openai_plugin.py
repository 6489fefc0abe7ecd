"""The plugin as the kernel meets it: manifest, hooks, service, texts, and what importing it costs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from openai_testkit import ask, chunks

import skald_openai
from skald_core.api import (
    API_VERSION,
    ChatCompletions,
    ConfigError,
    InvalidRequestError,
    MessageEnd,
    ModelInfo,
    Provider,
    TextDelta,
)
from skald_core.testing import AppFactory, local_plugin
from skald_core.testing.servers import RawServer, Wire, read_all, replies, streams
from skald_openai.kind import OpenAICompatible

PACKAGE = Path(skald_openai.__file__).parent
LOCALES = ("en", "it", "fr")


def texts(locale: str) -> dict[str, str]:
    return dict(json.loads((PACKAGE / "i18n" / f"{locale}.json").read_text(encoding="utf-8")))


def test_the_manifest_tells_the_truth() -> None:
    """What it says is contributed is what the hooks return."""
    manifest = local_plugin("skald_openai").manifest
    assert manifest is not None
    assert manifest.id == "openai"
    assert manifest.accepts(API_VERSION)
    assert manifest.contributes.providers == [kind.id for kind in skald_openai.skald_llm_providers()]
    assert manifest.contributes.services == [s.protocol.__name__ for s in skald_openai.skald_services()]
    hooks = [name for name in vars(skald_openai) if name.startswith("skald_") and callable(getattr(skald_openai, name))]
    assert manifest.contributes.hooks == sorted(hooks)
    for locale in ("it", "fr"):
        assert manifest.localized(locale) != (manifest.title, manifest.summary)


def test_texts_are_complete() -> None:
    """Every key in every language, and every key the provider type names."""
    for locale in LOCALES:
        assert texts(locale).keys() == texts("en").keys()
        assert all(text.strip() for text in texts(locale).values())
    kind = OpenAICompatible()
    named = [kind.summary, *(text for field in kind.fields for text in (field.label, field.help))]
    named += [option.label for field in kind.fields for option in field.options]
    used = {key.removeprefix("plugin.openai.") for key in named}
    assert all(key.startswith("plugin.openai.") for key in named)
    assert used == set(texts("en"))


async def test_the_service_makes_providers(raw: RawServer) -> None:
    """As another plugin uses it, for a server of its own with a random key."""
    (service,) = skald_openai.skald_services()
    assert service.protocol is ChatCompletions
    assert isinstance(service.instance, ChatCompletions)

    async def script(wire: Wire) -> None:
        await chunks(wire, {"choices": [{"delta": {"content": "Hi"}, "finish_reason": "stop"}]})

    raw.answer(script)
    info = ModelInfo(context_window=4096, weak=True)
    provider = service.instance(
        provider_id="llamacpp", base_url=raw.url, api_key="random", infos={"starter": info}, max_retries=0, timeout=5.0
    )
    assert isinstance(provider, Provider)
    assert provider.id == "llamacpp"
    assert provider.info("starter") == info
    events = [event async for event in provider.stream(ask(model="starter", info=info))]
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["Hi"]
    assert isinstance(events[-1], MessageEnd)
    assert raw.heard[0].headers["authorization"] == "Bearer random"
    await provider.close()
    with pytest.raises(ConfigError):
        service.instance(provider_id="x", base_url=raw.url, max_retries=-1)


@pytest.mark.parametrize(("settings", "path"), [({}, "chat/completions"), ({"api": "responses"}, "responses")])
async def test_the_api_is_a_setting(raw: RawServer, settings: dict[str, str], path: str) -> None:
    """Stored with the provider; what an older version stored means automatic."""
    raw.answer(replies("{}", "400 No"))
    kind = OpenAICompatible()
    (field,) = [field for field in kind.fields if field.kind == "select"]
    assert {option.value for option in field.options} == {"automatic", "chat", "responses"}
    assert field.default == "automatic"
    provider = kind.create({"base_url": raw.url, **settings})
    with pytest.raises(InvalidRequestError):
        await read_all(provider, ask())
    assert raw.heard[0].path == f"/v1/{path}"
    await provider.close()
    with pytest.raises(ConfigError, match="Choose one of: automatic, chat, responses"):
        kind.create({"base_url": raw.url, "api": "telepathy"})


async def test_a_connection_through_the_real_server(skald_app: AppFactory, raw: RawServer) -> None:
    """The form's field reaches the browser with its choices in words, a chosen API is used, and nonsense is refused."""
    said = {
        "type": "message",
        "id": "m",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Hello there."}],
    }
    raw.answer(streams({"type": "response.completed", "response": {"status": "completed", "output": [said]}}))
    app = await skald_app(local_plugin("skald_openai"))
    client = await app.client()
    (kind,) = [row for row in await client.get("/api/provider-types") if row["id"] == "openai"]
    (field,) = [field for field in kind["fields"] if field["kind"] == "select"]
    assert [option["value"] for option in field["options"]] == ["automatic", "chat", "responses"]
    settings = {"base_url": raw.url, "api": "responses"}
    wrong = {"type": "openai", "name": "wrong", "settings": {**settings, "api": "x"}}
    refused = await client.request("POST", "/api/providers", wrong)
    assert 400 <= refused.status_code < 500
    assert "Choose one of: automatic, chat, responses" in refused.text
    provider = await client.post("/api/providers", {"type": "openai", "name": "mine", "settings": settings})
    assert provider["settings"]["api"] == "responses"
    await client.post("/api/models", {"provider": provider["id"], "model": "gpt-5.5", "title": "M"})
    messages = await client.run_turn("Hello")
    assert messages[-1]["content"] == "Hello there."
    assert raw.heard[-1].path == "/v1/responses"
    assert raw.heard[-1].body["store"] is False


def test_importing_loads_nothing_heavy() -> None:
    """The module brings its hooks and nothing else: no HTTP client, no table, not even its own parts."""
    code = (
        "import sys, skald_core.api; before = set(sys.modules); import skald_openai;"
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['skald_openai']"


def test_what_is_loaded_after_the_start() -> None:
    """The first message finds everything in place, and loading it warns of nothing."""
    code = "import sys, skald_openai; skald_openai._load(); print('httpx' in sys.modules, 'skald_openai.provider' in sys.modules)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True True"


def test_the_readmes_snippets_work() -> None:
    """What authors copy runs; what admins copy is JSON."""
    text = (PACKAGE.parent.parent / "README.md").read_text(encoding="utf-8")
    (python,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    found: dict[str, Any] = {"ctx": _Context(), "key": "random"}
    exec(python, found)
    assert found["provider"].info("model").context_window == 8192
    (settings,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    assert json.loads(settings)["top_p"] == 0.9


class _Context:
    """As much of a plugin's context as the snippet uses."""

    def service(self, protocol: type[Any]) -> Any:
        (service,) = skald_openai.skald_services()
        return service.instance if protocol is service.protocol else None


def test_only_the_public_surface_is_imported() -> None:
    """A plugin that reached into the kernel would break with it."""
    pattern = re.compile(r"^\s*(?:from|import)\s+(skald_core[\w.]*)(?:\s+import\s+(.*))?", re.MULTILINE)
    for path in PACKAGE.rglob("*.py"):
        for module, names in pattern.findall(path.read_text(encoding="utf-8")):
            assert module == "skald_core.api" or (module == "skald_core" and names.startswith("api")), (
                f"{path}: {module}"
            )
