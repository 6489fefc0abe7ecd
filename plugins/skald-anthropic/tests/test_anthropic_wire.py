"""The provider on the wire, against a server that says exactly what each test wants, byte for byte."""

from __future__ import annotations

import asyncio
import email.utils
import gc
import itertools
import json
import logging
import socket
from typing import Any

import pytest
from anthropic_testkit import Make, ask, closed, delta, ended, opened, start, text_block
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skald_anthropic.answer import Answer
from skald_core.api import (
    AuthError,
    CallDelta,
    CallEnd,
    CallPart,
    CallStart,
    ConfigError,
    ContextLengthError,
    InvalidRequestError,
    MessageEnd,
    MessageStart,
    ModelError,
    ModelGoneError,
    NetworkError,
    ProtocolError,
    RateLimitError,
    ReasoningDelta,
    ReasoningPart,
    ResultPart,
    RetryPolicy,
    ServerError,
    SseDecoder,
    StreamEvent,
    TextDelta,
    TextPart,
    Usage,
    WireMessage,
)
from skald_core.testing.servers import FAULTS, READ_FILE, RawServer, Waits, Wire, read_all, read_into, user

KEY = "sk-ant-test-0123456789abcdef"
PING = {"type": "ping"}


def text_of(events: list[StreamEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def end_of(events: list[StreamEvent]) -> MessageEnd:
    end = events[-1]
    assert isinstance(end, MessageEnd)
    assert sum(isinstance(event, MessageEnd) for event in events) == 1
    return end


def says(*payloads: dict[str, Any]) -> Any:
    async def script(wire: Wire) -> None:
        await wire.events(*payloads)

    return script


hello = says(start(input_tokens=3), *text_block(0, "Hello"), *ended())


async def failing(provider: Any, request: Any = None) -> ModelError:
    """The error of a call that shows nothing."""
    with pytest.raises(ModelError) as caught:
        await read_all(provider, request or ask())
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None
    assert KEY not in f"{error} {error.detail}"
    assert str(error).endswith((".", "?")) or "It said:" in str(error)
    return error


# --- what good answers look like -----------------------------------------------------------------------------------


async def test_headers_and_path(raw: RawServer, make: Make) -> None:
    """Key and version in their headers, nothing compressed, the base URL's path kept and what is too much of it not."""
    raw.answer(hello)
    await read_all(make(f"{raw.url}/proxy/v1/messages", api_key=f" {KEY} "), ask())
    heard = raw.heard[0]
    assert (heard.method, heard.path) == ("POST", "/proxy/v1/messages")
    assert heard.headers["x-api-key"] == KEY
    assert heard.headers["authorization"] == f"Bearer {KEY}"
    assert heard.headers["anthropic-version"] == "2023-06-01"
    assert heard.headers["accept-encoding"] == "identity"
    assert "anthropic-beta" not in heard.headers


async def test_betas_go_into_the_header(raw: RawServer, make: Make) -> None:
    """And a local server without a key gets no empty one."""
    raw.answer(hello)
    await read_all(make(raw.url), ask(extra={"betas": ["a-2026-01-01", "b"]}))
    assert raw.heard[0].headers["anthropic-beta"] == "a-2026-01-01,b"
    assert not {"x-api-key", "authorization"} & set(raw.heard[0].headers)


async def test_thoughts_text_calls_and_usage(raw: RawServer, make: Make) -> None:
    """All kinds of blocks in one answer; usage counts the cache in; the next request gets everything back in its place."""
    raw.answer(
        says(
            start(input_tokens=5, cache_read_input_tokens=40, cache_creation_input_tokens=8, output_tokens=1),
            PING,
            opened(0, "thinking", thinking="", signature=""),
            delta(0, "thinking_delta", thinking="Let me "),
            delta(0, "thinking_delta", thinking="see."),
            delta(0, "signature_delta", signature="c2ln"),
            closed(0),
            opened(1, "redacted_thinking", data="b3Bh"),
            closed(1),
            *text_block(2, "I will ", "read it."),
            PING,
            opened(3, "tool_use", id="toolu_1", name="read_file", input={}),
            delta(3, "input_json_delta", partial_json=""),
            delta(3, "input_json_delta", partial_json='{ "path":'),
            delta(3, "input_json_delta", partial_json=' "a" }'),
            closed(3),
            opened(4, "tool_use", id="toolu_2", name="read_file", input={}),
            closed(4),
            *ended("tool_use", output_tokens=30),
        ),
        hello,
    )
    provider = make(raw.url)
    request = ask(tools=(READ_FILE,))
    events = await read_all(provider, request)
    assert events == [
        MessageStart("claude-x"),
        ReasoningDelta("Let me "),
        ReasoningDelta("see."),
        ReasoningDelta("", "c2ln"),
        TextDelta("I will "),
        TextDelta("read it."),
        CallStart("toolu_1", "read_file"),
        CallDelta("toolu_1", '{ "path":'),
        CallDelta("toolu_1", ' "a" }'),
        CallEnd("toolu_1"),
        CallStart("toolu_2", "read_file"),
        CallDelta("toolu_2", "{}"),
        CallEnd("toolu_2"),
        MessageEnd(
            "tool_use",
            Usage(53, 30, 40, 8),
            {
                "anthropic": {
                    "model": "claude-sonnet-4-5",
                    "blocks": [
                        {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"},
                        {"type": "redacted_thinking", "data": "b3Bh"},
                        {"type": "text", "skip": 0, "length": 15},
                        {"type": "tool_use"},
                        {"type": "tool_use"},
                    ],
                }
            },
        ),
    ]
    back = WireMessage("assistant", stored(events), end_of(events).metadata)
    results = WireMessage("tool", (ResultPart("toolu_1", "x"), ResultPart("toolu_2", "y")))
    await read_all(provider, ask(messages=(*request.messages, back, results), tools=(READ_FILE,)))
    assert [b["type"] for b in raw.heard[1].body["messages"][1]["content"]] == [
        "thinking",
        "redacted_thinking",
        "text",
        "tool_use",
        "tool_use",
    ]
    assert b'{ "path": "a" }' in raw.heard[1].raw


def stored(events: list[StreamEvent]) -> Any:
    """The parts a host makes of an answer."""
    thought = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    calls = [
        CallPart(c.id, c.name, "".join(e.text for e in events if isinstance(e, CallDelta) and e.id == c.id))
        for c in events
        if isinstance(c, CallStart)
    ]
    return (ReasoningPart(thought), TextPart(text_of(events)), *calls)


async def test_text_that_goes_on_after_a_thought(raw: RawServer, make: Make) -> None:
    """It reads as two paragraphs, and still goes back as it came."""
    raw.answer(
        says(
            start(),
            *text_block(0, "First."),
            opened(1, "thinking", thinking="Hm.", signature="cw"),
            closed(1),
            *text_block(2, "Second."),
            *ended(),
        ),
        hello,
    )
    provider = make(raw.url)
    events = await read_all(provider, ask())
    assert text_of(events) == "First.\n\nSecond."
    back = WireMessage("assistant", stored(events), end_of(events).metadata)
    await read_all(provider, ask(messages=(user("x"), back, user("y"))))
    assert raw.heard[1].body["messages"][1]["content"] == [
        {"type": "text", "text": "First."},
        {"type": "thinking", "thinking": "Hm.", "signature": "cw"},
        {"type": "text", "text": "Second."},
    ]


async def test_two_blocks_of_text_side_by_side_are_one(raw: RawServer, make: Make) -> None:
    """Citations cut sentences into blocks; nothing is put between those."""
    raw.answer(says(start(), *text_block(0, "The sky"), *text_block(1, " is blue."), *ended()))
    events = await read_all(make(raw.url), ask())
    assert text_of(events) == "The sky is blue."
    assert end_of(events).metadata is None


async def test_thoughts_that_are_not_shown(raw: RawServer, make: Make) -> None:
    """With the display omitted a thought is nothing but its signature, which has to come back too."""
    raw.answer(
        says(
            start(),
            opened(0, "thinking", thinking="", signature=""),
            delta(0, "signature_delta", signature="cw"),
            closed(0),
            *text_block(1, "Yes."),
            *ended(),
        )
    )
    end = end_of(await read_all(make(raw.url), ask(model="claude-opus-5-20260724")))
    assert end.metadata == {
        "anthropic": {
            "model": "claude-opus-5",
            "blocks": [
                {"type": "thinking", "thinking": "", "signature": "cw"},
                {"type": "text", "skip": 0, "length": 4},
            ],
        }
    }


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", "end_turn"),
        ("max_tokens", "max_tokens"),
        ("stop_sequence", "stop_sequence"),
        ("refusal", "refusal"),
        ("pause_turn", "end_turn"),
        ("model_context_window_exceeded", "max_tokens"),
        ("tool_use", "end_turn"),
        ("something_new", "error"),
        (None, "error"),
    ],
)
async def test_stop_reasons(raw: RawServer, make: Make, reason: str | None, stop: str) -> None:
    """Each word of the API; one that is not known is not passed off as a good end."""
    raw.answer(says(start(), *text_block(0, "Hi"), *ended(reason)))
    assert end_of(await read_all(make(raw.url), ask())).stop_reason == stop


async def test_calls_win_over_the_end_of_the_turn(raw: RawServer, make: Make) -> None:
    """Some servers say end_turn although there are calls to run."""
    call = [opened(0, "tool_use", id="t", name="read_file", input={"path": "a"}), closed(0)]
    raw.answer(says(start(), *call, *ended("end_turn")))
    events = await read_all(make(raw.url), ask())
    assert end_of(events).stop_reason == "tool_use"
    assert CallDelta("t", '{"path":"a"}') in events, "arguments that came at once"


async def test_a_call_cut_by_the_cap_is_not_ended(raw: RawServer, make: Make) -> None:
    """It is not what the model meant; broken without being cut, it is, and the loop tells the model."""
    call = [
        opened(0, "tool_use", id="t", name="f", input={}),
        delta(0, "input_json_delta", partial_json='{"a'),
        closed(0),
    ]
    raw.answer(says(start(), *call, *ended("max_tokens")), says(start(), *call, *ended("tool_use")))
    provider = make(raw.url)
    cut = await read_all(provider, ask())
    assert end_of(cut).stop_reason == "max_tokens"
    assert CallEnd("t") not in cut
    broken = await read_all(provider, ask())
    assert CallEnd("t") in broken
    assert end_of(broken).stop_reason == "tool_use"


async def test_ids_that_come_twice_or_not_at_all(raw: RawServer, make: Make) -> None:
    """Every call gets an id of its own."""
    calls = [
        event
        for n, call_id in enumerate(["t", "t", ""])
        for event in (opened(n, "tool_use", id=call_id, name="f", input={}), closed(n))
    ]
    raw.answer(says(start(), *calls, *ended("tool_use")))
    events = await read_all(make(raw.url), ask())
    assert [event.id for event in events if isinstance(event, CallStart)] == ["t", "made_1", "made_2"]


async def test_a_refusal_explains_itself(raw: RawServer, make: Make) -> None:
    """When the model said nothing, the API's explanation is what the person reads."""
    stop = {"stop_reason": "refusal", "stop_details": {"type": "refusal", "explanation": "That could harm."}}
    raw.answer(says(start(), {"type": "message_delta", "delta": stop, "usage": {}}, {"type": "message_stop"}))
    events = await read_all(make(raw.url), ask())
    assert text_of(events) == "That could harm."
    assert end_of(events).stop_reason == "refusal"


async def test_what_is_not_known_is_ignored(raw: RawServer, make: Make) -> None:
    """New event types, blocks and deltas are promised to come."""
    raw.answer(
        says(
            start(),
            {"type": "fanfare", "volume": 11},
            opened(0, "server_tool_use", id="s", name="web_search", input={}),
            delta(0, "input_json_delta", partial_json="{}"),
            closed(0),
            opened(1, "text", text="A"),
            delta(1, "citations_delta", citation={}),
            delta(1, "text_delta", text="B"),
            delta(7, "text_delta", text="lost"),
            *ended(),
        )
    )
    assert text_of(await read_all(make(raw.url), ask())) == "AB"


async def test_a_server_that_does_not_stream(raw: RawServer, make: Make) -> None:
    """The whole message at once is understood."""
    message = {
        "type": "message",
        "model": "m",
        "content": [
            {"type": "text", "text": "Hi"},
            {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 4, "output_tokens": 2},
    }

    async def script(wire: Wire) -> None:
        await wire.whole(json.dumps(message))

    raw.answer(script)
    events = await read_all(make(raw.url), ask())
    assert events == [
        MessageStart("m"),
        TextDelta("Hi"),
        CallStart("t", "f"),
        CallDelta("t", '{"a":1}'),
        CallEnd("t"),
        MessageEnd("tool_use", Usage(4, 2)),
    ]


async def test_usage_that_is_said_late(raw: RawServer, make: Make) -> None:
    """Some servers count the input only at the end, some only at the start."""
    raw.answer(says(start(input_tokens=0), *text_block(0, "Hi"), *ended(input_tokens=9, output_tokens=2)))
    assert end_of(await read_all(make(raw.url), ask())).usage == Usage(9, 2)


async def test_an_empty_answer_after_results_is_fine(raw: RawServer, make: Make) -> None:
    """A model may have nothing to add to what its tools did; otherwise nothing is no answer."""
    raw.answer(says(start(), *ended()))
    provider = make(raw.url)
    done = ask(messages=(user("x"), WireMessage("tool", (ResultPart("t", "ok"),))))
    assert end_of(await read_all(provider, done)).stop_reason == "end_turn"
    error = await failing(provider)
    assert type(error) is ProtocolError
    assert "answered with nothing" in str(error)


async def test_sloppy_but_readable_streams(raw: RawServer, make: Make) -> None:
    """No event names, CRLF, comments, a raw line break in a string, halves of a character."""

    async def script(wire: Wire) -> None:
        await wire.head(Content_Type="text/event-stream")
        await wire.send(": hi\r\n\r\n")
        for payload in [start(), opened(0, "text", text="")]:
            await wire.send(f"data:{json.dumps(payload)}\r\n\r\n")
        await wire.send(
            'data: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a\nb"}}\n\n'
        )
        await wire.send(
            'data: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "\\ud83d"}}\n\n'
        )
        await wire.send('data: {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}\n\n')
        await wire.send('data: {"type": "message_stop"}')

    raw.answer(script)
    assert text_of(await read_all(make(raw.url), ask())) == "a\nb\N{REPLACEMENT CHARACTER}"


async def test_after_the_end_nothing_can_spoil_the_answer(raw: RawServer, make: Make) -> None:
    """What happens to the connection then does not matter."""

    async def script(wire: Wire) -> None:
        await wire.events(start(), *text_block(0, "Hello"), *ended())
        await wire.send("data: {broken\n\n")
        wire.reset()

    raw.answer(script)
    assert text_of(await read_all(make(raw.url), ask())) == "Hello"


ANSWER = [
    start(input_tokens=2),
    opened(0, "thinking", thinking="", signature=""),
    delta(0, "thinking_delta", thinking="Ünïcödé 🙂"),
    delta(0, "signature_delta", signature="cw"),
    closed(0),
    *text_block(1, "Grüße ", "🙂"),
    opened(2, "tool_use", id="t", name="f", input={}),
    delta(2, "input_json_delta", partial_json='{"ä": "🙂"}'),
    closed(2),
    *ended("tool_use", output_tokens=9),
]


@given(st.lists(st.integers(1, 2000), max_size=40))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_how_bytes_are_cut_makes_no_difference(cuts: list[int]) -> None:
    """Chunks end anywhere, in the middle of a character too."""
    data = "".join(f"event: {e['type']}\ndata: {json.dumps(e, ensure_ascii=False)}\n\n" for e in ANSWER).encode()
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    assert events_of([data[a:b] for a, b in itertools.pairwise(edges)]) == events_of([data])


def events_of(chunks: list[bytes]) -> list[StreamEvent]:
    decoder, answer, out = SseDecoder(), Answer(ask(), lambda: "new"), []
    for chunk in chunks:
        for event in decoder.feed(chunk):
            out += list(answer.feed(json.loads(event.data), event.event))
    assert answer.ended
    return [*out, *answer.finish()]


# --- bad answers ---------------------------------------------------------------------------------------------------

HTML = "<!DOCTYPE html><html><body>Sign in</body></html>"


def refuse(status: str, body: Any, **headers: str) -> Any:
    async def script(wire: Wire) -> None:
        await wire.whole(body if isinstance(body, str) else json.dumps(body), status, **headers)

    return script


def err(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


INVALID = "invalid_request_error"


@pytest.mark.parametrize(
    ("status", "body", "error", "words"),
    [
        ("401 No", err("authentication_error", f"invalid x-api-key {KEY}"), AuthError, "refused the API key"),
        ("403 No", err("permission_error", "Not your model"), AuthError, "It said: Not your model"),
        ("404 No", err("not_found_error", "model: claude-sonnet-4-5"), ModelGoneError, "Choose another model"),
        ("404 No", err("not_found_error", "Not Found"), ModelGoneError, "does not speak Anthropic's API"),
        ("404 No", {"detail": "Not Found"}, ModelGoneError, "Check the base URL"),
        ("404 No", HTML, ProtocolError, "web page, not the API"),
        ("200 OK", HTML, ProtocolError, "web page, not the API"),
        ("302 Found", "", ProtocolError, "redirects to 'https://elsewhere.example'"),
        ("402 Pay", err("billing_error", "Pay first"), RateLimitError, "no credit left"),
        ("400 Bad", err(INVALID, "Your credit balance is too low to access the API"), RateLimitError, "no credit left"),
        ("400 Bad", err(INVALID, "prompt is too long: 21 tokens > 20 maximum"), ContextLengthError, "Compact it"),
        (
            "400 Bad",
            err(INVALID, "input length and `max_tokens` exceed context limit: 198000 + 8192 > 200000"),
            ContextLengthError,
            "Compact it",
        ),
        (
            "413 Large",
            err("request_too_large", "Request exceeds the maximum size"),
            InvalidRequestError,
            "smaller files",
        ),
        ("413 Large", HTML, InvalidRequestError, "smaller files"),
        ("400 Bad", err(INVALID, "tools.0.name: too long"), InvalidRequestError, "It said: tools.0.name"),
        ("422 Bad", {"message": "no such field"}, InvalidRequestError, "It said: no such field"),
        ("429 Slow", err("rate_limit_error", "Slow down"), RateLimitError, "Try again in a moment"),
        ("500 Oops", err("api_error", "Internal server error"), ServerError, "HTTP 500"),
        ("502 Bad Gateway", HTML, ServerError, "HTTP 502"),
        ("529 Busy", err("overloaded_error", "Overloaded"), ServerError, "too much to do"),
        ("200 OK", err("overloaded_error", "Overloaded"), ServerError, "too much to do"),
        ("200 OK", {"hello": "world"}, ProtocolError, "not Anthropic's API"),
        ("200 OK", "Welcome to my server", ProtocolError, "not Anthropic's API"),
        ("200 OK", '{"content": [', ProtocolError, "cannot be read"),
        ("200 OK", "", ProtocolError, "answered with nothing"),
    ],
)
async def test_bad_answers(
    raw: RawServer, make: Make, status: str, body: Any, error: type[ModelError], words: str
) -> None:
    """Each ends in one typed error whose text says what to do."""
    raw.answer(refuse(status, body, Location="https://elsewhere.example/v1/messages?x=1"))
    caught = await failing(make(raw.url, api_key=KEY))
    assert type(caught) is error
    assert words in str(caught)


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens: must be greater than thinking.budget_tokens",
        "messages.3: `tool_use` ids were found without `tool_result` blocks: context matters",
        "stop_sequences: each is too long",
    ],
)
async def test_what_is_no_context_overflow(raw: RawServer, make: Make, message: str) -> None:
    """A wrong guess would cost a compaction that cannot help."""
    raw.answer(refuse("400 Bad", err(INVALID, message)))
    assert type(await failing(make(raw.url))) is InvalidRequestError


async def test_a_missing_key_is_told_from_a_wrong_one(raw: RawServer, make: Make) -> None:
    """The remedy is another."""
    raw.answer(refuse("401 No", err("authentication_error", "x-api-key header is required")))
    assert "wants an API key" in str(await failing(make(raw.url)))


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("overloaded_error", ServerError),
        ("api_error", ServerError),
        ("timeout_error", ServerError),
        ("rate_limit_error", RateLimitError),
        ("authentication_error", AuthError),
        ("invalid_request_error", InvalidRequestError),
        ("something_new", ServerError),
    ],
)
async def test_errors_inside_the_stream(raw: RawServer, make: Make, kind: str, error: type[ModelError]) -> None:
    """An ``error`` event fails the call with what its type means, also after text was shown."""
    raw.answer(says(start(), *text_block(0, "Hel"), err(kind, "broke")))
    shown: list[StreamEvent] = []
    with pytest.raises(ModelError) as caught:
        await read_into(shown, make(raw.url), ask())
    assert type(caught.value) is error
    assert text_of(shown) == "Hel"
    assert not [event for event in shown if isinstance(event, MessageEnd)]


@pytest.mark.parametrize(
    "cut", ["mid-word", "mid-json", "mid-arguments", "no message_stop", "reset", "after a comment"]
)
async def test_a_cut_stream(raw: RawServer, make: Make, cut: str) -> None:
    """Wherever it breaks off, even with the reason to stop already said, it is a network error and never an answer."""

    async def script(wire: Wire) -> None:
        await wire.head(Content_Type="text/event-stream")
        if cut == "after a comment":
            await wire.send(": waiting\n\n")
            return
        await wire.event(start())
        await wire.event(opened(0, "text", text="Hel"))
        if cut == "mid-json":
            await wire.send('data: {"type": "content_block_delta", "index": 0, "delta": {"type": "te')
        elif cut == "mid-arguments":
            await wire.event(opened(1, "tool_use", id="t", name="f", input={}))
            await wire.event(delta(1, "input_json_delta", partial_json='{"pa'))
        elif cut == "no message_stop":
            await wire.event(closed(0))
            await wire.event(ended()[0])
        elif cut == "reset":
            wire.reset()

    raw.answer(script)
    shown: list[StreamEvent] = []
    with pytest.raises(NetworkError, match="broke off") as caught:
        await read_into(shown, make(raw.url), ask())
    assert not [event for event in shown if isinstance(event, (CallEnd, MessageEnd))]
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    "payload",
    ["{broken", "[1]", '{"type": "content_block_start", "content_block": {"type": "tool_use", "id": "t"}}'],
)
async def test_pieces_that_cannot_be_read(raw: RawServer, make: Make, payload: str) -> None:
    """Said, and another try may help."""

    async def script(wire: Wire) -> None:
        await wire.head(Content_Type="text/event-stream")
        await wire.send(f"data: {payload}\n\n")

    raw.answer(script)
    assert type(await failing(make(raw.url))) is ProtocolError


async def test_an_event_without_end(raw: RawServer, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runaway server cannot fill the memory."""
    monkeypatch.setattr("skald_anthropic.reading.MAX_EVENT_BYTES", 1000)

    async def script(wire: Wire) -> None:
        await wire.head(Content_Type="text/event-stream")
        await wire.send("data: " + "x" * 5000)

    raw.answer(script)
    assert type(await failing(make(raw.url, retry=RetryPolicy(max_retries=3)))) is ProtocolError
    assert len(raw.heard) == 1


async def test_nothing_listens(make: Make) -> None:
    """The usual reason is named."""
    with socket.socket() as taken:  # bound but not listening: nobody else can take the port meanwhile
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        error = await failing(make(f"http://127.0.0.1:{port}"))
    assert type(error) is NetworkError
    assert str(error) == f"Nothing answers at http://127.0.0.1:{port}. Is the model server running?"


async def test_https_to_a_plain_server(make: Make) -> None:
    """A frequent slip with servers nearby."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    error = await failing(make(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
    server.close()
    await server.wait_closed()
    assert type(error) is NetworkError
    assert "does not speak https" in str(error)


async def test_silence_ends_at_the_timeout(raw: RawServer, make: Make) -> None:
    """In the middle of an answer too."""
    over = asyncio.Event()

    async def script(wire: Wire) -> None:
        await wire.events(start(), PING)
        await over.wait()

    raw.answer(script)
    error = await failing(make(raw.url, timeout=0.1))
    over.set()
    assert type(error) is NetworkError
    assert "sent nothing for 0.1 s" in str(error)


async def test_a_server_that_hangs_up_at_once(raw: RawServer, make: Make) -> None:
    """No answer at all."""

    async def script(wire: Wire) -> None:
        wire.reset()

    raw.answer(script)
    error = await failing(make(raw.url))
    assert type(error) is NetworkError
    assert "closed the connection without an answer" in str(error)


# --- retry -------------------------------------------------------------------------------------------------------


async def test_retry_before_output(raw: RawServer, make: Make) -> None:
    """Busy, limited, then cut after the start: all repeated, one start, waits as planned."""
    waits = Waits()
    raw.answer(
        refuse("529 Busy", err("overloaded_error", "Overloaded")),
        refuse("429 Slow", err("rate_limit_error", "x"), Retry_After="7"),
        says(start(), PING),
        hello,
    )
    events = await read_all(make(raw.url, retry=RetryPolicy(max_retries=3), sleep=waits, jitter=lambda: 0.5), ask())
    assert text_of(events) == "Hello"
    assert sum(isinstance(event, MessageStart) for event in events) == 1
    assert waits == [1.0, 7.0, 4.0]
    assert len({heard.raw for heard in raw.heard}) == 1, "the same request each time"


async def test_the_budget_counts_after_the_first_attempt(raw: RawServer, make: Make) -> None:
    """Two retries are three attempts, for errors inside the stream too."""
    raw.answer(says(start(), err("overloaded_error", "Overloaded")))
    error = await failing(make(raw.url, retry=RetryPolicy(max_retries=2)))
    assert type(error) is ServerError
    assert len(raw.heard) == 3


async def test_waits_the_server_asks_for(raw: RawServer, make: Make) -> None:
    """A date counts from the provider's clock; a wait that is too long fails at once and is passed on."""
    waits = Waits()
    date = email.utils.formatdate(1060, usegmt=True)
    raw.answer(refuse("429 Slow", "", Retry_After=date), hello, refuse("429 Slow", "", Retry_After="3600"))
    provider = make(raw.url, retry=RetryPolicy(), sleep=waits, clock=lambda: 1000.0)
    await read_all(provider, ask())
    error = await failing(provider)
    assert waits == [60.0]
    assert isinstance(error, RateLimitError)
    assert error.retry_after == 3600.0


@pytest.mark.parametrize(
    ("status", "body"),
    [
        ("400 Bad", err(INVALID, "bad")),
        ("401 Bad", ""),
        ("404 Bad", ""),
        ("413 Large", ""),
        ("402 Pay", ""),
        ("200 OK", HTML),
        ("301 Moved", ""),
    ],
)
async def test_what_is_never_repeated(raw: RawServer, make: Make, status: str, body: Any) -> None:
    """Asking again could not help."""
    raw.answer(refuse(status, body))
    await failing(make(raw.url, api_key=KEY, retry=RetryPolicy(max_retries=5)))
    assert len(raw.heard) == 1


async def test_never_after_output(raw: RawServer, make: Make) -> None:
    """What was shown stays the only attempt; a thought is shown too."""
    raw.answer(says(start(), opened(0, "thinking", thinking="Hm", signature="")))
    with pytest.raises(NetworkError):
        await read_all(make(raw.url, retry=RetryPolicy(max_retries=5)), ask())
    assert len(raw.heard) == 1


async def test_a_refused_field_is_left_out_from_then_on(raw: RawServer, make: Make) -> None:
    """One refusal is enough, costs no retry, and is remembered for the model."""
    raw.answer(refuse("400 Bad", err(INVALID, "`temperature` is deprecated for this model.")), hello)
    provider = make(raw.url)
    for _ in range(2):
        assert text_of(await read_all(provider, ask(temperature=0.3))) == "Hello"
    assert len(raw.heard) == 3
    assert "temperature" not in raw.heard[-1].body


async def test_thoughts_of_another_context_are_dropped(raw: RawServer, make: Make) -> None:
    """The beta header comes with the setting it allows."""
    raw.answer(
        refuse(
            "400 Bad",
            err(
                INVALID,
                "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different "
                'conversation. Set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".',
            ),
        ),
        hello,
    )
    state = {
        "anthropic": {"model": "claude-opus-5-5", "blocks": [{"type": "thinking", "thinking": "", "signature": "s"}]}
    }
    history = (user("x"), WireMessage("assistant", (TextPart("Hi"),), state), user("y"))
    assert text_of(await read_all(make(raw.url), ask(model="claude-opus-5-5", messages=history))) == "Hello"
    assert raw.heard[1].headers["anthropic-beta"] == "thinking-binding-controls-2026-08-01"
    assert raw.heard[1].body["thinking"]["block_binding"] == {"prefix_mismatch_behavior": "drop_block"}


async def test_a_server_that_refuses_everything_is_not_asked_for_ever(raw: RawServer, make: Make) -> None:
    """A handful of lessons, then the error."""

    async def script(wire: Wire) -> None:
        body = raw.heard[-1].body
        field = next((name for name in ("temperature", "thinking", "output_config") if name in body), "cache_control")
        await wire.whole(json.dumps(err(INVALID, f"unknown field {field}")), "400 Bad")

    raw.answer(script)
    error = await failing(make(raw.url), ask(model="claude-opus-4-6", effort="low"))
    assert type(error) is InvalidRequestError
    assert len(raw.heard) <= 6


# --- stopping ----------------------------------------------------------------------------------------------------


async def endless(wire: Wire) -> None:
    await wire.events(start(), opened(0, "text", text=""))
    while True:
        await wire.event(delta(0, "text_delta", text="more "))
        await asyncio.sleep(0)


async def test_closing_the_iterator_closes_the_connection(raw: RawServer, make: Make) -> None:
    """The server stops paying for an answer nobody reads."""
    raw.answer(endless)
    stream = make(raw.url).stream(ask())
    async for event in stream:
        if isinstance(event, TextDelta):
            break
    await stream.aclose()
    async with asyncio.timeout(10):
        await raw.hung_up.wait()


async def test_cancelling_closes_the_connection(raw: RawServer, make: Make) -> None:
    """At once, and the cancellation is passed on."""
    raw.answer(endless)
    reading = asyncio.Event()

    async def read() -> None:
        async for _ in make(raw.url).stream(ask()):
            reading.set()

    task = asyncio.create_task(read())
    await reading.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(10):
        await raw.hung_up.wait()
    gc.collect()  # a generator left open would warn here, and warnings are errors


async def test_cancelled_while_waiting(raw: RawServer, make: Make) -> None:
    """Nobody waits out a backoff after pressing stop."""
    waiting = asyncio.Event()

    async def sleep(_: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    raw.answer(refuse("503 Busy", ""))
    task = asyncio.create_task(read_all(make(raw.url, retry=RetryPolicy(), sleep=sleep), ask()))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(raw.heard) == 1


async def test_a_closed_provider_lets_calls_end(raw: RawServer, make: Make) -> None:
    """An admin who changes a setting does not cut anybody's answer; new calls are refused."""
    go_on = asyncio.Event()

    async def script(wire: Wire) -> None:
        await wire.events(start(), opened(0, "text", text="Hel"))
        await go_on.wait()
        for event in (delta(0, "text_delta", text="lo"), closed(0), *ended()):
            await wire.event(event)

    raw.answer(script)
    provider = make(raw.url)
    shown = []
    async for event in provider.stream(ask()):
        shown.append(event)
        if isinstance(event, TextDelta) and not go_on.is_set():
            await provider.close()
            go_on.set()
    assert text_of(shown) == "Hello"
    with pytest.raises(ConfigError, match="was closed"):
        await read_all(provider, ask())


async def test_many_calls_at_once(raw: RawServer, make: Make) -> None:
    """Thirty conversations share a provider and do not mix."""

    async def echo(wire: Wire) -> None:
        name = raw.heard[-1].body["messages"][-1]["content"][0]["text"]
        await wire.events(start(), *text_block(0, *(f"{name}.{n} " for n in range(20))), *ended())

    raw.answer(echo)
    provider = make(raw.url)
    answers = await asyncio.gather(*(read_all(provider, ask(f"c{n}")) for n in range(30)))
    for number, events in enumerate(answers):
        assert text_of(events) == "".join(f"c{number}.{n} " for n in range(20))


# --- secrets and settings ------------------------------------------------------------------------------------------


async def test_the_key_shows_up_nowhere(raw: RawServer, make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """Not in logs, not in errors, not in the object's own words, even when the server repeats it."""
    caplog.set_level(logging.DEBUG)
    raw.answer(refuse("500 Oops", f"key {KEY} exploded"), refuse("400 Bad", err(INVALID, f"{KEY} is bad")))
    provider = make(raw.url, api_key=KEY, retry=RetryPolicy(max_retries=1))
    error = await failing(provider)
    assert "***" in error.detail
    assert KEY not in caplog.text
    assert KEY not in repr(provider)


@pytest.mark.parametrize("key", ["sk with space", "sk-é", "sk-\r\nX-Other: 1"])
def test_a_key_no_header_can_carry(key: str, make: Make) -> None:
    """Said at once, without repeating it."""
    with pytest.raises(ConfigError, match="Copy it again") as caught:
        make("http://127.0.0.1:1", api_key=key)
    assert key not in str(caught.value)


async def test_the_key_is_not_carried_elsewhere(raw: RawServer, make: Make) -> None:
    """A redirect is reported, never followed."""
    async with RawServer() as other:
        other.answer(hello)
        raw.answer(refuse("307 Moved", "", Location=f"{other.url}/v1/messages"))
        error = await failing(make(raw.url, api_key=KEY))
        assert other.heard == []
        assert other.url in str(error)


async def test_extra_settings_that_are_no_json(raw: RawServer, make: Make) -> None:
    """A mistake in them is the admin's to mend, and is said before anything is sent."""
    raw.answer(hello)
    with pytest.raises(ConfigError, match="extra settings"):
        await read_all(make(raw.url), ask(extra={"x": object()}))
    assert raw.heard == []


# --- faults every server may have ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAULTS)
async def test_faults_before_output(raw: RawServer, make: Make, name: str) -> None:
    """Each becomes the error it is, and is tried again where that can help, after the wait that was asked for."""
    fault, waits = FAULTS[name], Waits()
    raw.answer(fault.script)
    retry = RetryPolicy(max_retries=1)
    provider = make(
        raw.url, timeout=0.3 if name == "stays silent" else 10.0, retry=retry, sleep=waits, jitter=lambda: 0.5
    )
    with pytest.raises(ModelError) as caught:
        await read_all(provider, ask())
    assert type(caught.value) is fault.error
    assert len(raw.heard) == 1 + fault.again
    expected = {"429 with Retry-After": 7.0, "hangs up": 0.0}.get(name, 1.0)
    assert waits == [expected] * fault.again
