"""The provider in front of the child process, with a small codec in place of the plugin that speaks chat completions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest

from skald_core.api import (
    ChatCompletions,
    ConfigError,
    MessageEnd,
    MessageStart,
    ModelGoneError,
    ModelInfo,
    ModelRequest,
    NetworkError,
    PluginContext,
    Provider,
    ServerError,
    StreamEvent,
    TextDelta,
)
from skald_llamacpp.library import Library
from skald_llamacpp.provider import LocalProvider, LocalProviderType
from skald_llamacpp.servers import ModelServers

pytestmark = pytest.mark.usefixtures("fake_runtime")


class Codec:
    """Streams by asking the child over HTTP. ``plan`` holds what the coming calls do: ``die`` before or after output."""

    def __init__(self) -> None:
        self.plan: list[str] = []
        self.made: list[dict[str, Any]] = []
        self.closed = 0

    def __call__(self, **settings: Any) -> Provider:
        self.made.append(settings)
        return _Speaker(self, settings)


class _Speaker:
    id = "llamacpp"

    def __init__(self, codec: Codec, settings: dict[str, Any]) -> None:
        self._codec, self._settings = codec, settings

    def info(self, model: str) -> ModelInfo:
        infos: dict[str, ModelInfo] = self._settings["infos"]
        return infos[model]

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        act = self._codec.plan.pop(0) if self._codec.plan else ""
        headers = {"Authorization": f"Bearer {self._settings['api_key']}"}
        async with httpx.AsyncClient(trust_env=False, headers=headers) as client:
            yield MessageStart(model=request.model)
            if act == "die late":
                yield TextDelta("half")
            try:
                answer = await client.get(self._settings["base_url"] + ("/die" if act.startswith("die") else "/models"))
            except httpx.HTTPError as error:
                raise NetworkError(f"cut: {type(error).__name__}") from None
            if act == "refuse":
                raise NetworkError("the connection was refused")
            assert answer.status_code == 200
            yield TextDelta(str(answer.json()["pid"]))
            yield MessageEnd(stop_reason="end_turn")

    async def close(self) -> None:
        self._codec.closed += 1


@pytest.fixture
def codec(host: Any) -> Codec:
    host.services[ChatCompletions] = Codec()
    made: Codec = host.services[ChatCompletions]
    return made


@pytest.fixture
async def library(ctx: PluginContext) -> AsyncIterator[Library]:
    made = Library(ctx, {})
    made.servers = ModelServers(ctx.data_dir / "logs", idle_seconds=0, available=lambda: None)
    await made.load()
    yield made
    await made.close()


@pytest.fixture
async def model(library: Library, tmp_path: Path, make_gguf: Any) -> str:
    path = tmp_path / "m.gguf"
    path.write_bytes(make_gguf())
    model = await library.add_path(str(path))
    path.write_text("ok")
    return model


def request(model: str) -> ModelRequest:
    return ModelRequest(model=model, system=(), messages=())


async def collect(provider: Provider, model: str) -> list[StreamEvent]:
    return [event async for event in provider.stream(request(model))]


def text(events: list[StreamEvent]) -> str:
    return "".join(e.text for e in events if isinstance(e, TextDelta))


async def test_the_first_message_loads_the_model(
    ctx: PluginContext, library: Library, model: str, codec: Codec
) -> None:
    """Nothing runs before; then one process serves every message, each over a connection of its own."""
    provider = LocalProviderType(ctx, lambda: library).create({})
    assert isinstance(provider, Provider)
    assert library.servers.get(library.models()[0].path) is None
    first = await collect(provider, model)
    second = await collect(provider, model)
    assert text(first) == text(second)
    assert [type(e) for e in first] == [MessageStart, TextDelta, MessageEnd]
    made, again = codec.made
    assert again == made
    assert made["base_url"].startswith("http://127.0.0.1:")
    assert made["infos"] == {model: library.info(model)}
    assert made["max_retries"] == 1
    assert codec.closed == 2
    await provider.close()


async def test_messages_at_the_same_time_share_the_process(
    ctx: PluginContext, library: Library, model: str, codec: Codec
) -> None:
    """Two conversations do not load the model twice."""
    provider = LocalProvider(ctx, library)
    answers = await asyncio.gather(*(collect(provider, model) for _ in range(4)))
    assert len({text(events) for events in answers}) == 1


async def test_a_process_that_dies_before_output_is_started_again(
    ctx: PluginContext, library: Library, model: str, codec: Codec
) -> None:
    """The person sees one answer, with one beginning."""
    codec.plan = ["die"]
    events = await collect(LocalProvider(ctx, library), model)
    assert [type(e) for e in events] == [MessageStart, TextDelta, MessageEnd]
    assert len(codec.made) == 2
    assert codec.made[0]["api_key"] != codec.made[1]["api_key"]
    assert codec.closed == 2


async def test_a_process_that_keeps_dying_is_an_error(
    ctx: PluginContext, library: Library, model: str, codec: Codec
) -> None:
    """One second chance, then the loop decides."""
    codec.plan = ["die", "die"]
    with pytest.raises(NetworkError):
        await collect(LocalProvider(ctx, library), model)


async def test_nothing_is_repeated_after_output(ctx: PluginContext, library: Library, model: str, codec: Codec) -> None:
    """Words on the screen are not said twice."""
    codec.plan = ["die late"]
    events = LocalProvider(ctx, library).stream(request(model))
    seen = [await anext(events), await anext(events)]
    with pytest.raises(NetworkError):
        await anext(events)
    assert text(seen) == "half"


async def test_a_refusal_by_a_living_process_is_not_repeated(
    ctx: PluginContext, library: Library, model: str, codec: Codec
) -> None:
    """Only the end of the process is this plugin's to mend."""
    codec.plan = ["refuse"]
    with pytest.raises(NetworkError):
        await collect(LocalProvider(ctx, library), model)
    assert len(codec.made) == 1


async def test_closing_a_stream_early_frees_the_model(
    ctx: PluginContext, library: Library, model: str, codec: Codec
) -> None:
    """A stopped answer no longer counts as work."""
    async with aclosing(LocalProvider(ctx, library).stream(request(model))) as events:
        async for _ in events:
            server = library.servers.get(library.models()[0].path)
            assert server is not None
            assert server.busy == 1
            break
    assert server.busy == 0
    assert codec.closed == 1


async def test_errors_are_sentences_of_the_right_kind(
    ctx: PluginContext, library: Library, model: str, codec: Codec, tmp_path: Path
) -> None:
    """A model that is gone is terminal; one that cannot start lets another model answer."""
    provider = LocalProvider(ctx, library)
    with pytest.raises(ModelGoneError, match="nobody is not on this machine"):
        await collect(provider, "nobody")
    (tmp_path / "m.gguf").write_text("broken")
    with pytest.raises(ServerError, match="damaged or incomplete"):
        await collect(provider, model)
    (tmp_path / "m.gguf").unlink()
    with pytest.raises(ModelGoneError, match="There is no file at"):
        await collect(provider, model)


async def test_without_a_codec_the_person_is_told_what_to_enable(
    ctx: PluginContext, library: Library, model: str
) -> None:
    """The wire format belongs to another plugin."""
    with pytest.raises(ConfigError, match="OpenAI-compatible models"):
        await collect(LocalProvider(ctx, library), model)


async def test_the_type_lists_what_is_here(ctx: PluginContext, library: Library, model: str) -> None:
    """Its own page sets it up, so it has no fields."""
    kind = LocalProviderType(ctx, lambda: library)
    assert (kind.id, kind.setup_page, kind.fields) == ("llamacpp", "models", ())
    (found,) = await kind.list_models({})
    assert (found.id, found.title, found.info.weak) == (model, "Tiny", True)
