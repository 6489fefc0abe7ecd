"""Against servers this project did not write: fakellm for whole conversations, llmock for faults and its verdict."""

from __future__ import annotations

import asyncio

import pytest
from anthropic_testkit import Make, ask

from skald_anthropic.address import parse_address
from skald_anthropic.listing import list_models
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


def said(events: list[StreamEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


# --- fakellm -----------------------------------------------------------------------------------------------------


async def test_text_streams_in_pieces(fakellm: str, make: Make) -> None:
    """A plain answer comes as a start, its words, and one end."""
    events = await read_all(make(fakellm), ask("Hello"))
    assert isinstance(events[0], MessageStart)
    assert said(events) == "Hello, how can I help?"
    assert sum(isinstance(event, TextDelta) for event in events) > 3, "it was streamed, not delivered at once"
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
    assert said(again) == "You need milk and eggs."


# --- llmock: faults ----------------------------------------------------------------------------------------------

QUICK = RetryPolicy(max_retries=3, base=0.08)


@pytest.fixture
def patient(make: Make, llmock):  # type: ignore[no-untyped-def]  # llmock's own fixture
    """A provider that really sleeps, since llmock judges by the clock."""
    return make(llmock.base_url("anthropic"), api_key="llmock-test-key", retry=QUICK, timeout=1.0, sleep=asyncio.sleep)


async def test_llmock_plain_answer_with_usage(patient, llmock) -> None:  # type: ignore[no-untyped-def]
    """The body is one llmock accepts, and usage arrives."""
    llmock.reply("All is well.")
    events = await read_all(patient, ask("Report"))
    assert said(events) == "All is well."
    end = events[-1]
    assert isinstance(end, MessageEnd)
    assert end.usage.input_tokens > 0
    assert end.usage.output_tokens > 0
    assert llmock.last_request.body["max_tokens"] == 32768
    llmock.assert_resilient(strict=True)


async def test_llmock_tool_call_with_fragmented_arguments(patient, llmock) -> None:  # type: ignore[no-untyped-def]
    """llmock cuts arguments into pieces of twelve characters."""
    llmock.call_tool("read_file", {"path": "a/rather/long/path/to/a/file.md"})
    events = await read_all(patient, ask("Read it", tools=(READ_FILE,)))
    pieces = [event.text for event in events if isinstance(event, CallDelta)]
    assert len(pieces) > 2
    assert "".join(pieces) == '{"path": "a/rather/long/path/to/a/file.md"}'
    assert any(isinstance(event, CallEnd) for event in events)


@pytest.mark.parametrize(("status", "times"), [(500, 3), (529, 2), (429, 1), (503, 1)])
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
        (413, InvalidRequestError),
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
    """In Anthropic's words, it is a context error, which the loop may answer with a compaction."""
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
    """One event in, which is only the start, nothing was shown yet: the call is repeated and nobody notices."""
    llmock.reply("Second time lucky.", times=None)
    getattr(llmock.pace(20), fault)(after_chunks=1)  # paced, so that llmock sees that nobody reads on
    assert said(await read_all(patient, ask("Try"))) == "Second time lucky."
    assert len(llmock.requests) == 2
    llmock.assert_resilient(strict=True)


@pytest.mark.parametrize(
    ("fault", "error"),
    [("disconnect", NetworkError), ("truncate", NetworkError), ("corrupt", ProtocolError), ("stall", NetworkError)],
)
async def test_llmock_stream_faults_after_output_surface(patient, llmock, fault: str, error: type[Exception]) -> None:  # type: ignore[no-untyped-def]
    """Once something was shown nothing is repeated behind anybody's back: the error says so, and asking again works."""
    llmock.reply("One two three four.", times=None)
    getattr(llmock.pace(20), fault)(after_chunks=5)
    shown: list[StreamEvent] = []
    with pytest.raises(error):
        await read_into(shown, patient, ask("Try"))
    assert said(shown).startswith("One")
    assert len(llmock.requests) == 1
    assert said(await read_all(patient, ask("Try"))) == "One two three four."
    llmock.assert_resilient(strict=True)


async def test_llmock_model_list(llmock) -> None:  # type: ignore[no-untyped-def]
    """The list of a server others wrote is read."""
    models = await list_models(parse_address(llmock.base_url("anthropic")), "llmock-test-key")
    assert "Claude Opus 4.6" in [model.title for model in models]
