"""What is known of models, the list a server gives, and the provider type around it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from anthropic_testkit import Make

from skald_anthropic.address import parse_address
from skald_anthropic.kind import AnthropicMessages
from skald_anthropic.known import family_of, known_info, version_of
from skald_anthropic.listing import list_models, read_model
from skald_core.api import AuthError, ConfigError, ModelError, ModelGoneError, ModelInfo, ProtocolError, Provider
from skald_core.testing.servers import RawServer, Wire

# --- names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "version", "family"),
    [
        ("claude-3-haiku-20240307", (3, 0), "claude-3-haiku"),
        ("claude-3-5-sonnet-latest", (3, 5), "claude-3-5-sonnet"),
        ("claude-3-7-sonnet-20250219", (3, 7), "claude-3-7-sonnet"),
        ("claude-opus-4-20250514", (4, 0), "claude-opus-4"),
        ("claude-sonnet-4-5-20250929", (4, 5), "claude-sonnet-4-5"),
        ("claude-haiku-4-5@20251001", (4, 5), "claude-haiku-4-5"),
        ("anthropic/claude-sonnet-4.6", (4, 6), "claude-sonnet-4.6"),
        ("us.anthropic.claude-opus-4-6-v1", (4, 6), "claude-opus-4-6"),
        ("eu.anthropic.claude-sonnet-4-5-20250929-v1:0", (4, 5), "claude-sonnet-4-5"),
        ("claude-opus-5", (5, 0), "claude-opus-5"),
        ("claude-mythos-preview", None, "claude-mythos-preview"),
        ("kimi-k2-0905-preview", None, "kimi-k2-0905-preview"),
    ],
)
def test_names(name: str, version: tuple[int, int] | None, family: str) -> None:
    """The version decides what a model takes, the family who may read a thought again."""
    assert version_of(name) == version
    assert family_of(name) == family


@pytest.mark.parametrize(
    ("name", "context", "output", "has", "lacks"),
    [
        ("claude-3-haiku-20240307", 200_000, 4_096, {"vision"}, {"documents", "reasoning"}),
        ("claude-3-5-haiku-20241022", 200_000, 8_192, {"documents"}, {"reasoning"}),
        ("claude-opus-4-1", 200_000, 32_000, {"reasoning"}, set()),
        ("claude-sonnet-4-5", 200_000, 64_000, {"tools", "prompt_cache"}, {"video"}),
        ("claude-opus-5", 1_000_000, 128_000, {"reasoning", "vision"}, set()),
        ("claude-next", 200_000, 32_000, {"reasoning"}, set()),
        ("glm-4.6", 128_000, None, {"tools"}, {"vision", "reasoning"}),
    ],
)
def test_known_models(name: str, context: int, output: int | None, has: set[str], lacks: set[str]) -> None:
    """Sizes and abilities by version."""
    info = known_info(name)
    assert (info.context_window, info.max_output_tokens) == (context, output)
    assert has <= info.capabilities
    assert not lacks & info.capabilities


def test_the_callers_word_on_a_model_wins(make: Make) -> None:
    """What an admin set is not guessed at."""
    mine = ModelInfo(context_window=4096)
    provider = make("http://127.0.0.1:1", infos={"claude-opus-5": mine})
    assert provider.info("claude-opus-5") == mine
    assert provider.info("claude-sonnet-4-5") == known_info("claude-sonnet-4-5")


# --- addresses -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "base", "label"),
    [
        ("", "https://api.anthropic.com", "Anthropic"),
        (" https://api.anthropic.com/v1/messages ", "https://api.anthropic.com", "Anthropic"),
        ("https://api.anthropic.com/v1/", "https://api.anthropic.com", "Anthropic"),
        ("http://127.0.0.1:8080/anthropic/", "http://127.0.0.1:8080/anthropic", "127.0.0.1:8080"),
        ("http://[::1]:80/v1", "http://[::1]:80", "[::1]:80"),
    ],
)
def test_addresses(typed: str, base: str, label: str) -> None:
    """What people paste too much of is left off."""
    address = parse_address(typed)
    assert (address.base_url, address.label) == (base, label)
    assert address.known is (label == "Anthropic")


@pytest.mark.parametrize(
    "typed",
    ["api.anthropic.com", "ftp://x", "https://", "http://a:b@c", "http://a b", "http://h:99999", "http://h/?k=1"],
)
def test_addresses_that_make_no_sense(typed: str) -> None:
    """Each is refused with a sentence, never with an exception of a library."""
    with pytest.raises(ConfigError, match=r"\.$"):
        parse_address(typed)


# --- the list ------------------------------------------------------------------------------------------------------

NEW = {
    "type": "model",
    "id": "claude-opus-9",
    "display_name": "Claude Opus 9",
    "max_input_tokens": 2_000_000,
    "max_tokens": 256_000,
    "capabilities": {
        "image_input": {"supported": True},
        "pdf_input": {"supported": False},
        "thinking": {"supported": True, "types": {}},
    },
}


def pages(raw: RawServer, *answers: Any, status: str = "200 OK") -> None:
    def script(answer: Any) -> Callable[[Wire], Any]:
        async def send(wire: Wire) -> None:
            await wire.whole(answer if isinstance(answer, str) else json.dumps(answer), status)

        return send

    raw.answer(*(script(answer) for answer in answers))


async def test_a_list_of_two_pages(raw: RawServer) -> None:
    """In the server's own order, with what it says of each model; retired ones and nonsense are left out."""
    pages(
        raw,
        {
            "data": [NEW, {"id": "claude-old", "lifecycle": "retired"}, {"id": 7}],
            "has_more": True,
            "last_id": "claude-old",
        },
        {"data": [{"type": "model", "id": "claude-haiku-4-5-20251001", "display_name": "Haiku"}], "has_more": False},
    )
    models = await list_models(parse_address(raw.url), "sk-key")
    assert [(model.id, model.title) for model in models] == [
        ("claude-opus-9", "Claude Opus 9"),
        ("claude-haiku-4-5-20251001", "Haiku"),
    ]
    assert models[0].info == ModelInfo(2_000_000, 256_000, frozenset({"tools", "vision", "reasoning", "prompt_cache"}))
    assert models[1].info == known_info("claude-haiku-4-5")
    assert [heard.path for heard in raw.heard] == ["/v1/models?limit=1000", "/v1/models?limit=1000&after_id=claude-old"]
    assert raw.heard[0].headers["x-api-key"] == "sk-key"


async def test_a_list_that_goes_in_circles(raw: RawServer) -> None:
    """A server whose pages never end is not asked for ever."""
    pages(raw, {"data": [NEW], "has_more": True, "last_id": "x"})
    assert len(await list_models(parse_address(raw.url), "")) == 1
    assert len(raw.heard) == 2


@pytest.mark.parametrize(
    ("status", "answer", "error", "words"),
    [
        ("401 No", {"error": {"type": "authentication_error", "message": "no"}}, AuthError, "refused the API key"),
        ("404 No", {"error": "not found"}, ModelGoneError, "add a model by name"),
        ("404 No", "<html>", ProtocolError, "web page"),
        ("200 OK", "<html>", ProtocolError, "web page"),
        ("200 OK", {"models": []}, ProtocolError, "not Anthropic's API"),
        ("200 OK", {"error": {"type": "permission_error", "message": "no"}}, AuthError, "does not allow"),
        ("200 OK", "[]", ProtocolError, "not Anthropic's API"),
    ],
)
async def test_lists_that_fail(raw: RawServer, status: str, answer: Any, error: type[ModelError], words: str) -> None:
    """The admin reads what to do."""
    pages(raw, answer, status=status)
    with pytest.raises(error, match=words):
        await list_models(parse_address(raw.url), "sk-key")


async def test_a_key_that_is_certainly_needed() -> None:
    """Nothing is sent without one."""
    with pytest.raises(AuthError, match="wants an API key"):
        await list_models(parse_address(""), "")


def test_sizes_that_make_no_sense_are_ignored() -> None:
    """What is known of the name stands in for them."""
    model = read_model({"id": "claude-opus-4-5", "max_input_tokens": -1, "max_tokens": True, "capabilities": []})
    assert model is not None
    assert model.info == known_info("claude-opus-4-5")


# --- the provider type ---------------------------------------------------------------------------------------------


def test_create() -> None:
    """Two servers are two providers: what one of them wants back is never sent to the other."""
    kind = AnthropicMessages()
    mine = kind.create({"base_url": "http://127.0.0.1:1/anthropic", "api_key": ""})
    assert isinstance(mine, Provider)
    assert mine.id == "anthropic:127.0.0.1:1/anthropic"
    assert kind.create({"api_key": "sk-x"}).id == "anthropic:api.anthropic.com"
    with pytest.raises(ConfigError, match="wants an API key"):
        kind.create({"base_url": "https://api.anthropic.com"})


async def test_the_type_lists_and_its_preset_is_anthropic(raw: RawServer) -> None:
    """As the models page uses it."""
    kind = AnthropicMessages()
    pages(raw, {"data": [NEW]})
    assert [model.id for model in await kind.list_models({"base_url": raw.url})] == ["claude-opus-9"]
    (preset,) = kind.presets
    assert parse_address(preset.settings["base_url"]).known
    assert preset.key == "required"
