"""Against servers this project did not write: fakellm for whole conversations, llmock for faults and its verdict."""

from __future__ import annotations

import asyncio

import pytest
from openai_testkit import Make, ask

from skald_core.api import (
    AuthError,
    CallDelta,
    CallEnd,
    CallPart,
    CallStart,
    ContextLengthError,
    InvalidRequestError,
    MessageEnd,
    MessageStart,
    ModelGoneError,
    NetworkError,
    ProtocolError,
    ResultPart,
    RetryPolicy,
    ServerError,
    StreamEvent,
    TextDelta,
    WireMessage,
)
from skald_core.testing.servers import READ_FILE, read_all, read_into
from skald_openai.listing import list_models
from skald_openai.services import parse_endpoint

# --- fakellm -----------------------------------------------------------------------------------------------------


async def test_text_streams_in_pieces(fakellm: str, make: Make) -> None:
    """A plain answer comes as a start, its words, and one end."""
    events = await read_all(make(fakellm), ask("Hello"))
    assert isinstance(events[0], MessageStart)
    words = [event.text for event in events if isinstance(event, TextDelta)]
    assert "".join(words) == "Hello, how can I help?"
    assert len(words) > 3, "it was streamed, not delivered at once"
    assert events[-1] == MessageEnd("end_turn")
    assert sum(isinstance(event, MessageEnd) for event in events) == 1


async def test_a_conversation_with_two_parallel_calls(fakellm: str, make: Make) -> None:
    """Calls arrive with ids and whole arguments; their results, sent back, lead to the answer."""
    provider = make(fakellm)
    request = ask("What is on my groceries list?", tools=(READ_FILE,))
    events = await read_all(provider, request)
    starts = [event for event in events if isinstance(event, CallStart)]
    assert [call.name for call in starts] == ["read_file", "read_file"]
    arguments = {
        call.id: "".join(e.text for e in events if isinstance(e, CallDelta) and e.id == call.id) for call in starts
    }
    assert list(arguments.values()) == ['{"path": "groceries.md"}', '{"path": "pantry.md"}']
    assert [event.id for event in events if isinstance(event, CallEnd)] == list(arguments)
    end = events[-1]
    assert isinstance(end, MessageEnd)
    assert end.stop_reason == "tool_use"

    calls = WireMessage("assistant", tuple(CallPart(i, "read_file", text) for i, text in arguments.items()))
    results = WireMessage("tool", tuple(ResultPart(i, "milk and eggs") for i in arguments))
    again = await read_all(provider, ask(tools=(READ_FILE,), messages=(*request.messages, calls, results)))
    assert "".join(event.text for event in again if isinstance(event, TextDelta)) == "You need milk and eggs."


# --- llmock: faults ----------------------------------------------------------------------------------------------

QUICK = RetryPolicy(max_retries=3, base=0.08)


@pytest.fixture(params=["chat", "responses"])
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def patient(make: Make, llmock, api: str):  # type: ignore[no-untyped-def]  # llmock's own fixture
    """A provider that really sleeps, since llmock judges by the clock."""
    return make(
        llmock.base_url("openai"), api_key="llmock-test-key", api=api, retry=QUICK, timeout=1.0, sleep=asyncio.sleep
    )


def said(events) -> str:  # type: ignore[no-untyped-def]
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def test_llmock_plain_answer_with_usage(patient, llmock, api: str) -> None:  # type: ignore[no-untyped-def]
    """Usage comes, where necessary because it was asked for, and the body is one llmock accepts."""
    llmock.reply("All is well.")
    events = await read_all(patient, ask("Report"))
    assert said(events) == "All is well."
    end = events[-1]
    assert isinstance(end, MessageEnd)
    assert end.usage.input_tokens > 0
    assert end.usage.output_tokens > 0
    sent = llmock.last_request.body
    assert sent["stream"] is True
    assert sent.get("stream_options") == ({"include_usage": True} if api == "chat" else None)
    assert sent.get("store") is (None if api == "chat" else False)
    llmock.assert_resilient(strict=True)


async def test_llmock_tool_call_with_fragmented_arguments(patient, llmock) -> None:  # type: ignore[no-untyped-def]
    """llmock cuts arguments into pieces of twelve characters."""
    llmock.call_tool("read_file", {"path": "a/rather/long/path/to/a/file.md"})
    events = await read_all(patient, ask("Read it", tools=(READ_FILE,)))
    pieces = [event.text for event in events if isinstance(event, CallDelta)]
    assert len(pieces) > 2
    assert "".join(pieces) == '{"path": "a/rather/long/path/to/a/file.md"}'
    end = events[-1]
    assert isinstance(end, MessageEnd)
    assert end.stop_reason == "tool_use"


@pytest.mark.parametrize(("status", "times"), [(500, 3), (502, 3), (429, 1), (503, 1)])
async def test_llmock_retries_with_growing_waits(patient, llmock, status: int, times: int) -> None:  # type: ignore[no-untyped-def]
    """Failures, then an answer; llmock finds no fault with the waits between."""
    llmock.fail(status, times=times)
    llmock.reply("At last.")
    assert said(await read_all(patient, ask("Try"))) == "At last."
    llmock.assert_resilient(strict=True)
    assert len(llmock.requests) == times + 1


async def test_llmock_retry_after_is_kept(patient, llmock) -> None:  # type: ignore[no-untyped-def]
    """A wait the server asked for is not cut short."""
    llmock.rate_limit(times=2, retry_after=0.4)
    llmock.reply("Thanks for waiting.")
    assert said(await read_all(patient, ask("Try"))) == "Thanks for waiting."
    llmock.assert_resilient(strict=True)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, InvalidRequestError),
        (401, AuthError),
        (403, AuthError),
        (404, ModelGoneError),
        (422, InvalidRequestError),
    ],
)
async def test_llmock_refusals_are_not_repeated(patient, llmock, status: int, error: type[Exception]) -> None:  # type: ignore[no-untyped-def]
    """What can never succeed is sent once."""
    llmock.fail(status, times=5)
    with pytest.raises(error):
        await read_all(patient, ask("Try"))
    assert len(llmock.requests) == 1
    llmock.assert_resilient(strict=True)


async def test_llmock_context_overflow(patient, llmock) -> None:  # type: ignore[no-untyped-def]
    """The structured code makes it a context error, which the loop may answer with a compaction."""
    llmock.context_overflow()
    with pytest.raises(ContextLengthError, match="Compact it"):
        await read_all(patient, ask("Try"))
    llmock.assert_resilient(strict=True)


async def test_llmock_outage_ends_after_the_retries(patient, llmock) -> None:  # type: ignore[no-untyped-def]
    """A server that stays down gets four attempts in all, then one clear error."""
    llmock.outage(status=502)
    with pytest.raises(ServerError, match="Try again in a moment"):
        await read_all(patient, ask("Try"))
    assert len(llmock.requests) == 4
    llmock.assert_resilient()


@pytest.mark.parametrize("fault", ["disconnect", "truncate", "corrupt", "stall"])
async def test_llmock_stream_faults_before_output_are_retried(patient, llmock, fault: str) -> None:  # type: ignore[no-untyped-def]
    """One chunk in, which holds no word yet, nothing was shown yet: the call is repeated and nobody notices."""
    llmock.reply("Second time lucky.", times=None)
    getattr(llmock.pace(20), fault)(after_chunks=1)  # paced, so that llmock sees that nobody reads on
    assert said(await read_all(patient, ask("Try"))) == "Second time lucky."
    assert len(llmock.requests) == 2
    llmock.assert_resilient(strict=True)


@pytest.mark.parametrize(
    ("fault", "error"),
    [("disconnect", NetworkError), ("truncate", NetworkError), ("corrupt", ProtocolError), ("stall", NetworkError)],
)
async def test_llmock_stream_faults_after_output_surface(  # type: ignore[no-untyped-def]
    patient, llmock, api: str, fault: str, error: type[Exception]
) -> None:
    """Once something was shown nothing is repeated behind anybody's back: the error says so, and asking again works."""
    llmock.reply("One two three four.", times=None)
    getattr(llmock.pace(20), fault)(after_chunks=3 if api == "chat" else 6)
    shown: list[StreamEvent] = []
    with pytest.raises(error):
        await read_into(shown, patient, ask("Try"))
    assert said(shown).startswith("One")
    assert len(llmock.requests) == 1
    assert said(await read_all(patient, ask("Try"))) == "One two three four."
    llmock.assert_resilient(strict=True)


async def test_llmock_broken_arguments_are_passed_on(patient, llmock) -> None:  # type: ignore[no-untyped-def]
    """Arguments that are no JSON reach the loop as they are: it answers the model with an error."""
    llmock.call_tool("read_file", {"path": "x"}).break_tool_call("malformed_arguments")
    events = await read_all(patient, ask("Read it", tools=(READ_FILE,)))
    assert any(isinstance(event, CallEnd) for event in events)
    text = "".join(event.text for event in events if isinstance(event, CallDelta))
    assert text
    assert text != '{"path": "x"}'


async def test_llmock_model_list(llmock) -> None:  # type: ignore[no-untyped-def]
    """The list of a server others wrote is read; models that do not chat are left out."""
    models = await list_models(parse_endpoint(llmock.base_url("openai")), "llmock-test-key")
    assert models
    assert not [model.id for model in models if "embedding" in model.id]


@pytest.mark.parametrize("service", ["mistral", "groq", "together", "xai"])
async def test_llmock_speaks_for_other_services(make: Make, llmock, service: str) -> None:  # type: ignore[no-untyped-def]
    """Each service's own flavour of the API and of its errors is understood."""
    provider = make(llmock.base_url(service), api_key="k" * 20)
    llmock.reply("Bonjour.")
    assert said(await read_all(provider, ask("Salut"))) == "Bonjour."
    llmock.fail(401)
    with pytest.raises(AuthError, match="refused the API key"):
        await read_all(provider, ask("Encore"))
