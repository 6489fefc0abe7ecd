"""The bundled providers against aimock, which others wrote: four APIs, the same conversations, the same faults.

What aimock cannot do (a 429 without ``Retry-After``, an empty body, a wrong content type, bytes of every other kind) the tests
of each plugin do with a server of bare sockets; llmock judges retries there.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from skald_anthropic.provider import AnthropicProvider
from skald_core.api import (
    CallDelta,
    CallEnd,
    CallPart,
    CallStart,
    MessageEnd,
    MessageStart,
    ModelError,
    ModelInfo,
    ModelRequest,
    NetworkError,
    ProtocolError,
    Provider,
    RateLimitError,
    ReasoningDelta,
    ReasoningPart,
    ResultPart,
    RetryPolicy,
    ServerError,
    StreamEvent,
    TextDelta,
    TextPart,
    WireMessage,
)
from skald_core.testing.servers import READ_FILE, Waits, ask, providers, read_all, read_into
from skald_ollama.provider import OllamaProvider
from skald_openai.provider import OpenAIProvider
from tests.support.aimock import AiMock, running_aimock

APIS = ("chat", "responses", "anthropic", "ollama")
MODELS = {"chat": "gpt-5.5", "responses": "gpt-5.5", "anthropic": "claude-sonnet-4-5", "ollama": "qwen3:8b"}
INFO = ModelInfo(200_000, None, frozenset({"tools", "reasoning"}))
ANSWER = {
    "content": "All is well today, as it was yesterday and the day before.",
    "usage": {"input_tokens": 12, "output_tokens": 9},
}
LONG = {"content": "An answer that is long enough to be cut somewhere in the middle. " * 4}

Made = Callable[..., Provider]


@pytest.fixture(scope="module")
def aimock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AiMock]:
    with running_aimock(tmp_path_factory.mktemp("aimock")) as running:
        yield running


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def make(aimock: AiMock, api: str) -> AsyncIterator[Made]:
    """Makes providers of one API that notice their waits in ``waits`` instead of waiting."""
    kinds: dict[str, tuple[Callable[..., Provider], str, dict[str, Any]]] = {
        "chat": (OpenAIProvider, "/v1", {"api": "chat", "api_key": "key-of-nobody"}),
        "responses": (OpenAIProvider, "/v1", {"api": "responses", "api_key": "key-of-nobody"}),
        "anthropic": (AnthropicProvider, "", {"api_key": "key-of-nobody"}),
        "ollama": (OllamaProvider, "", {}),
    }
    kind, path, fixed = kinds[api]
    async with providers(kind) as build:
        yield lambda **options: build(aimock.origin + path, **fixed, jitter=lambda: 0.5, **options)


def asked(api: str, words: str, **fields: Any) -> ModelRequest:
    return ask(words, **{"model": MODELS[api], "info": INFO, "tools": (READ_FILE,), **fields})


def said(events: list[StreamEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def end_of(events: list[StreamEvent]) -> MessageEnd:
    assert isinstance(events[0], MessageStart)
    assert isinstance(events[-1], MessageEnd)
    return events[-1]


async def test_an_answer(aimock: AiMock, api: str, make: Made) -> None:
    """It streams, and says what it cost."""
    aimock.answer(f"plain {api}", ANSWER)
    events = await read_all(make(), asked(api, f"plain {api}"))
    assert said(events) == ANSWER["content"]
    assert len([event for event in events if isinstance(event, TextDelta)]) > 2
    end = end_of(events)
    assert end.stop_reason == "end_turn"
    if api != "ollama":  # where aimock counts nothing
        assert (end.usage.input_tokens, end.usage.output_tokens) == (12, 9)


@pytest.mark.parametrize("api", [api for api in APIS if api != "ollama"])  # where aimock knows no reasons
async def test_an_answer_that_is_cut_by_the_cap(aimock: AiMock, api: str, make: Made) -> None:
    """It says so."""
    aimock.answer(f"long {api}", {**LONG, "finishReason": "length"})
    assert end_of(await read_all(make(), asked(api, f"long {api}"))).stop_reason == "max_tokens"


async def test_two_calls_and_their_results(aimock: AiMock, api: str, make: Made) -> None:
    """Calls come with whole arguments, byte for byte; what goes back is what the server expects, and leads to an answer."""
    words = f"calls {api}"
    arguments = ['{"path": "a.txt"}', '{ "path":"b.txt" }']
    calls = [{"name": "read_file", "arguments": text} for text in arguments]
    aimock.after_results(words, {"content": "Milk and eggs."})
    aimock.answer(words, {"content": "Let me look.", "reasoning": "Two files, then.", "toolCalls": calls})
    provider = make()
    request = asked(api, words)
    events = await read_all(provider, request)
    ids = [event.id for event in events if isinstance(event, CallStart)]
    got = ["".join(e.text for e in events if isinstance(e, CallDelta) and e.id == i) for i in ids]
    assert [json.loads(text) for text in got] == [json.loads(text) for text in arguments]
    if api != "ollama":  # whose API carries arguments as objects, not as text
        assert api == "anthropic" or got == arguments
    assert [event.id for event in events if isinstance(event, CallEnd)] == ids
    assert end_of(events).stop_reason == "tool_use"

    thought = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    parts = (
        ReasoningPart(thought),
        TextPart(said(events)),
        *(CallPart(i, "read_file", t) for i, t in zip(ids, got, strict=True)),
    )
    history = (
        *request.messages,
        WireMessage("assistant", parts, end_of(events).metadata),
        WireMessage("tool", tuple(ResultPart(i, "milk and eggs") for i in ids)),
    )
    assert said(await read_all(provider, asked(api, words, messages=history))) == "Milk and eggs."


@pytest.mark.parametrize(
    ("status", "error", "wait"),
    [(429, RateLimitError, 7.0), (500, ServerError, 1.0), (503, ServerError, 1.0)],
)
async def test_a_failure_that_passes(
    aimock: AiMock, api: str, make: Made, status: int, error: type[ModelError], wait: float
) -> None:
    """It is tried again after the wait that was asked for, or a second; without retries it is a typed error."""
    failure = {"error": {"message": "busy", "type": "server_error"}, "status": status, "retryAfter": 7}
    words, waits = f"busy{status} {api}", Waits()
    aimock.answer(words, failure, ANSWER)
    provider = make(retry=RetryPolicy(max_retries=1), sleep=waits)
    assert said(await read_all(provider, asked(api, words))) == ANSWER["content"]
    assert waits == [wait]
    words = f"down{status} {api}"
    aimock.answer(words, failure)
    with pytest.raises(ModelError) as caught:
        await read_all(make(), asked(api, words))
    assert type(caught.value) is error
    assert caught.value.status == status
    assert getattr(caught.value, "retry_after", None) == (7.0 if status == 429 else None)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"chaos": {"dropRate": 1}}, ServerError),
        ({"chaos": {"rateLimitRate": 1}}, RateLimitError),
        ({"chaos": {"disconnectRate": 1}}, NetworkError),
        ({"chaos": {"malformedRate": 1}}, ProtocolError),
        ({"chaos": {"latencyMs": 30_000}}, NetworkError),
    ],
    ids=["500", "429", "hangs-up", "malformed", "slow-headers"],
)
async def test_chaos(aimock: AiMock, api: str, make: Made, fault: dict[str, Any], error: type[ModelError]) -> None:
    """Every attempt ends in the same fault: the call is repeated as often as it may be, then the fault has its type."""
    words, waits = f"{next(iter(fault['chaos']))} {api}", Waits()
    aimock.answer(words, ANSWER, **fault)
    patience = 0.3 if "latencyMs" in fault["chaos"] else 10.0
    with pytest.raises(ModelError) as caught:
        await read_all(make(retry=RetryPolicy(max_retries=2), sleep=waits, timeout=patience), asked(api, words))
    if (api, error) == ("ollama", ProtocolError):
        error = NetworkError  # half a line of JSON without its end is what a cut looks like there
    assert type(caught.value) is error
    assert len(waits) == 2


async def test_a_stream_that_is_cut(aimock: AiMock, api: str, make: Made) -> None:
    """What had come is kept, nothing is repeated behind anybody's back, and asking again works."""
    words = f"cut {api}"
    aimock.answer(words, LONG, ANSWER, truncateAfterChunks=12, chunkSize=8, latency=10)
    shown: list[StreamEvent] = []
    provider = make(retry=RetryPolicy(max_retries=3))
    with pytest.raises(NetworkError, match="broke off"):
        await read_into(shown, provider, asked(api, words))
    assert LONG["content"].startswith(said(shown))
    assert said(shown)
    assert len(aimock.heard(words)) == 1
    assert said(await read_all(provider, asked(api, words))) == ANSWER["content"]
