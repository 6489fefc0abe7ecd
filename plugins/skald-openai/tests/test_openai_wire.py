"""The provider on the wire, against a server that says exactly what each test wants, byte for byte."""

from __future__ import annotations

import asyncio
import email.utils
import gc
import json
import logging
import socket
from typing import Any

import pytest
from openai_testkit import Make, ask, chunks

from skald_core.api import (
    AuthError,
    CallDelta,
    CallEnd,
    CallStart,
    ConfigError,
    ContextLengthError,
    InvalidRequestError,
    MessageEnd,
    MessageStart,
    ModelError,
    ModelGoneError,
    ModelInfo,
    NetworkError,
    ProtocolError,
    RateLimitError,
    ReasoningDelta,
    ResultPart,
    RetryPolicy,
    ServerError,
    StreamEvent,
    TextDelta,
    Usage,
    WireMessage,
)
from skald_core.testing.servers import FAULTS, READ_FILE, RawServer, Waits, Wire, read_all, read_into, user

KEY = "sk-test-0123456789abcdef"


def chunk(content: Any = None, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    """One piece of a streamed answer."""
    if content is not None:
        delta["content"] = content
    return {"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def text_of(events: list[StreamEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def end_of(events: list[StreamEvent]) -> MessageEnd:
    end = events[-1]
    assert isinstance(end, MessageEnd)
    assert sum(isinstance(event, MessageEnd) for event in events) == 1
    return end


async def hello(wire: Wire) -> None:
    await chunks(wire, chunk("Hello"), chunk(finish="stop"))


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
    """The key as a bearer, nothing compressed, the base URL's path kept."""
    raw.answer(hello)
    await read_all(make(raw.url, api_key=f" {KEY} "), ask())
    heard = raw.heard[0]
    assert (heard.method, heard.path) == ("POST", "/v1/chat/completions")
    assert heard.headers["authorization"] == f"Bearer {KEY}"
    assert heard.headers["accept-encoding"] == "identity"
    assert heard.headers["content-type"] == "application/json"


async def test_no_key_no_header(raw: RawServer, make: Make) -> None:
    """A local server gets no empty bearer."""
    raw.answer(hello)
    await read_all(make(raw.url), ask())
    assert "authorization" not in raw.heard[0].headers


async def test_reasoning_text_calls_and_usage(raw: RawServer, make: Make) -> None:
    """All kinds of output in one answer, with what has to be kept for the next request."""

    async def script(wire: Wire) -> None:
        await chunks(
            wire,
            chunk(role="assistant", content=None),
            chunk(reasoning_content="Let me "),
            chunk(reasoning_content="think."),
            chunk("I will read it."),
            chunk(tool_calls=[{"index": 0, "id": "c1", "function": {"name": "read_file", "arguments": ""}}]),
            chunk(tool_calls=[{"index": 0, "function": {"arguments": '{ "path": "a" }'}}]),
            chunk(finish="tool_calls"),
            {
                "choices": [],
                "usage": {
                    "prompt_tokens": 50,
                    "completion_tokens": 9,
                    "prompt_tokens_details": {"cached_tokens": 40},
                    "cost": 0.001,
                },
            },
        )

    raw.answer(script)
    events = await read_all(make(raw.url), ask(tools=(READ_FILE,)))
    assert events == [
        MessageStart("m"),
        ReasoningDelta("Let me "),
        ReasoningDelta("think."),
        TextDelta("I will read it."),
        CallStart("c1", "read_file"),
        CallDelta("c1", '{ "path": "a" }'),
        CallEnd("c1"),
        MessageEnd(
            "tool_use",
            Usage(50, 9, 40, cost_usd=0.001),
            {"openai": {"model": "gpt-4o-mini", "reasoning_field": "reasoning_content"}},
        ),
    ]


async def test_calls_with_finish_stop_are_calls(raw: RawServer, make: Make) -> None:
    """Many local servers say 'stop'."""

    async def script(wire: Wire) -> None:
        call = {"index": 0, "id": "c", "function": {"name": "read_file", "arguments": "{}"}}
        await chunks(wire, chunk(tool_calls=[call]), chunk(finish="stop"))

    raw.answer(script)
    assert end_of(await read_all(make(raw.url), ask(tools=(READ_FILE,)))).stop_reason == "tool_use"


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("model_length", "max_tokens"),
        ("content_filter", "refusal"),
        ("content_filter: OTHER", "refusal"),
        ("tool_calls", "end_turn"),
        ("eos", "end_turn"),
    ],
)
async def test_stop_reasons(raw: RawServer, make: Make, finish: str, stop: str) -> None:
    """Each word of each server; an unknown one still ended a whole answer, and 'tool_calls' without a call is none."""

    async def script(wire: Wire) -> None:
        await chunks(wire, chunk("Hi"), chunk(finish=finish))

    raw.answer(script)
    assert end_of(await read_all(make(raw.url), ask())).stop_reason == stop


async def test_a_stop_sequence_the_server_names(raw: RawServer, make: Make) -> None:
    """vLLM says which one it met."""

    async def script(wire: Wire) -> None:
        last = chunk("Hi", finish="stop")
        last["choices"][0]["stop_reason"] = "END"
        await chunks(wire, last)

    raw.answer(script)
    assert end_of(await read_all(make(raw.url), ask(stop_sequences=("END",)))).stop_reason == "stop_sequence"


async def test_a_refusal_is_shown_as_text(raw: RawServer, make: Make) -> None:
    """Nobody should face an empty answer."""

    async def script(wire: Wire) -> None:
        await chunks(wire, chunk(refusal="I cannot "), chunk(refusal="do that."), chunk(finish="stop"))

    raw.answer(script)
    events = await read_all(make(raw.url), ask())
    assert text_of(events) == "I cannot do that."
    assert end_of(events).stop_reason == "refusal"


async def test_a_call_cut_by_the_length(raw: RawServer, make: Make) -> None:
    """The stop reason says so and the call is not ended."""

    async def script(wire: Wire) -> None:
        call = {"index": 0, "id": "c", "function": {"name": "read_file", "arguments": '{"path": "un'}}
        await chunks(wire, chunk(tool_calls=[call]), chunk(finish="length"))

    raw.answer(script)
    events = await read_all(make(raw.url), ask(tools=(READ_FILE,)))
    assert end_of(events).stop_reason == "max_tokens"
    assert not [event for event in events if isinstance(event, CallEnd)]


async def test_the_length_is_the_reason_even_when_a_call_is_whole(raw: RawServer, make: Make) -> None:
    """More may have been meant to follow."""

    async def script(wire: Wire) -> None:
        call = {"index": 0, "function": {"name": "read_file", "arguments": "{}"}}
        await chunks(wire, chunk(tool_calls=[call]), chunk(finish="length"))

    raw.answer(script)
    events = await read_all(make(raw.url), ask(tools=(READ_FILE,)))
    assert CallEnd("made_1") in events
    assert end_of(events).stop_reason == "max_tokens"


async def test_text_that_was_kept_back_comes_before_the_call(raw: RawServer, make: Make) -> None:
    """A lone '<' might have begun a thought; it did not, and its place is where it was said."""

    async def script(wire: Wire) -> None:
        call = {"index": 0, "id": "c", "function": {"name": "read_file", "arguments": "{}"}}
        await chunks(wire, chunk("<"), chunk(tool_calls=[call]), chunk(finish="stop"))

    raw.answer(script)
    events = await read_all(make(raw.url), ask(tools=(READ_FILE,)))
    assert events[1:3] == [TextDelta("<"), CallStart("c", "read_file")]


async def test_thoughts_in_the_text(raw: RawServer, make: Make) -> None:
    """A server without a reasoning parser passes the tags through."""

    async def script(wire: Wire) -> None:
        await chunks(
            wire, *(chunk(piece) for piece in ("<th", "ink>\nhm", "</think>\n", "\nYes")), chunk(finish="stop")
        )

    raw.answer(script)
    events = await read_all(make(raw.url), ask())
    assert [event for event in events if isinstance(event, ReasoningDelta)] == [ReasoningDelta("hm")]
    assert text_of(events) == "Yes"


async def test_content_in_parts(raw: RawServer, make: Make) -> None:
    """Mistral's thinking models answer with lists."""

    async def script(wire: Wire) -> None:
        thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
        await chunks(wire, chunk([thought]), chunk([{"type": "text", "text": "Yes"}]), chunk("!", finish="stop"))

    raw.answer(script)
    events = await read_all(make(raw.url), ask())
    assert [event.text for event in events if isinstance(event, ReasoningDelta)] == ["hm"]
    assert text_of(events) == "Yes!"


async def test_openrouters_reasoning_details_are_put_together(raw: RawServer, make: Make) -> None:
    """Pieces of one detail are joined, its signature kept, the text shown once."""

    def detail(**values: Any) -> dict[str, Any]:
        return {"type": "reasoning.text", "index": 0, **values}

    async def script(wire: Wire) -> None:
        await chunks(
            wire,
            chunk(reasoning="So ", reasoning_details=[detail(text="So ", format="x")]),
            chunk(reasoning="it is.", reasoning_details=[detail(text="it is.")]),
            chunk(reasoning_details=[detail(signature="sig", text=None)]),
            chunk("Yes", finish="stop"),
        )

    raw.answer(script)
    events = await read_all(make(raw.url), ask())
    assert [event.text for event in events if isinstance(event, ReasoningDelta)] == ["So ", "it is."]
    metadata = end_of(events).metadata
    assert metadata is not None
    assert metadata["openai"]["reasoning_details"] == [detail(text="So it is.", format="x", signature="sig")]


async def test_a_server_that_does_not_stream(raw: RawServer, make: Make) -> None:
    """A whole completion is understood as well."""

    async def script(wire: Wire) -> None:
        call = {"id": "c", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
        message = {"role": "assistant", "content": "Reading.", "tool_calls": [call]}
        usage = {"prompt_tokens": 3, "completion_tokens": 4}
        choices = [{"index": 0, "message": message, "finish_reason": "tool_calls"}]
        await wire.whole(json.dumps({"model": "m", "choices": choices, "usage": usage}))

    raw.answer(script)
    events = await read_all(make(raw.url), ask(tools=(READ_FILE,)))
    assert text_of(events) == "Reading."
    assert CallEnd("c") in events
    assert end_of(events).usage == Usage(3, 4)


async def test_characters_torn_apart(raw: RawServer, make: Make) -> None:
    """A character cut in its bytes, and one cut into two escapes, both arrive whole."""
    payload = "data: " + json.dumps(chunk("né €"), ensure_ascii=False) + "\n\n"
    emoji = [
        r'data: {"choices":[{"delta":{"content":"\ud83d"}}]}',
        r'data: {"choices":[{"delta":{"content":"\ude00!"}}]}',
    ]

    async def script(wire: Wire) -> None:
        await wire.head(Content_Type="text/event-stream")
        for byte in payload.encode():
            await wire.send(bytes([byte]))
        await wire.send("\n\n".join([*emoji, "data: " + json.dumps(chunk(finish="stop")), "data: [DONE]", ""]) + "\n")

    raw.answer(script)
    assert text_of(await read_all(make(raw.url), ask())) == "né €😀!"


async def test_sloppy_but_readable_streams(raw: RawServer, make: Make) -> None:
    """CR line ends, comments, a raw tab inside a string, no content type, no final newline: all forgiven."""

    async def script(wire: Wire) -> None:
        await wire.head()
        await wire.send(": OPENROUTER PROCESSING\r\rdata:" + json.dumps(chunk("a")) + "\r\r")
        await wire.send('data: {"choices":[{"delta":{"content":"\tb"}}]}\n\n')
        await wire.send('data: {"choices":[{"delta":{"content":"c"},"finish_reason":"stop"}]}')

    raw.answer(script)
    assert text_of(await read_all(make(raw.url), ask())) == "a\tbc"


async def test_usage_that_comes_with_every_chunk(raw: RawServer, make: Make) -> None:
    """The last count is the whole."""

    async def script(wire: Wire) -> None:
        pieces = [chunk("a"), chunk("b"), chunk(finish="stop")]
        for number, piece in enumerate(pieces, 1):
            piece["usage"] = {"prompt_tokens": 5, "completion_tokens": number}
        await chunks(wire, *pieces)

    raw.answer(script)
    assert end_of(await read_all(make(raw.url), ask())).usage == Usage(5, 3)


@pytest.mark.parametrize("how", ["hold", "reset", "close"])
async def test_after_the_stop_reason_nothing_can_spoil_the_answer(raw: RawServer, make: Make, how: str) -> None:
    """A server that never ends its stream, or drops it, has still answered."""
    over = asyncio.Event()

    async def script(wire: Wire) -> None:
        await wire.events(chunk("Hi"), chunk(finish="stop"))
        if how == "reset":
            wire.reset()
        elif how == "hold":
            await over.wait()

    raw.answer(script)
    assert text_of(await read_all(make(raw.url, after_stop=0.05), ask())) == "Hi"
    over.set()


async def test_an_end_mark_without_a_reason_ends_the_answer(raw: RawServer, make: Make) -> None:
    """[DONE] is enough."""

    async def script(wire: Wire) -> None:
        await chunks(wire, chunk("Hi"))

    raw.answer(script)
    assert end_of(await read_all(make(raw.url), ask())).stop_reason == "end_turn"


async def test_an_empty_answer_after_results_is_fine(raw: RawServer, make: Make) -> None:
    """The model has nothing to add."""

    async def script(wire: Wire) -> None:
        await chunks(wire, chunk(finish="stop"))

    raw.answer(script)
    results = WireMessage("tool", (ResultPart("c", "x"),))
    assert end_of(await read_all(make(raw.url), ask(messages=(user("a"), results)))).stop_reason == "end_turn"


async def test_connections_are_kept(raw: RawServer, make: Make) -> None:
    """Two calls of one provider share a connection, since the first was read to its end."""
    connections: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        payload = f"data: {json.dumps(chunk('Hi', finish='stop'))}\n\ndata: [DONE]\n\n".encode()
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().split(b"content-length: ")[1].split(b"\r")[0])
                await reader.readexactly(size)
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
                )
                writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(payload), payload))
        except asyncio.IncompleteReadError:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    provider = make(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
    for _ in range(3):
        assert text_of(await read_all(provider, ask())) == "Hi"
    assert len(connections) == 1
    await provider.close()
    server.close()
    await server.wait_closed()


# --- bad input ---------------------------------------------------------------------------------------------------

HTML = "<!DOCTYPE html><html><body>Sign in</body></html>"


def refuse(status: str, body: Any, **headers: str) -> Any:
    async def script(wire: Wire) -> None:
        await wire.whole(body if isinstance(body, str) else json.dumps(body), status, **headers)

    return script


def err(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


NO_SUCH_MODEL = err("The model `gpt-4o-mini` does not exist", code="model_not_found")
VLLM_TOOLS = {
    "object": "error",
    "message": '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser',
}
OLLAMA_TOOLS = err("registry.example/library/gemma:2b does not support tools")
LOADING = err("Loading model", type="unavailable_error")


@pytest.mark.parametrize(
    ("status", "body", "error", "words"),
    [
        ("401 Unauthorized", err(f"Incorrect API key provided: {KEY}"), AuthError, "refused the API key"),
        ("403 Forbidden", err("Region not supported"), AuthError, "It said: Region not supported"),
        ("404 Not Found", NO_SUCH_MODEL, ModelGoneError, "Choose another model"),
        ("404 Not Found", {"detail": "Not Found"}, ModelGoneError, "most end in /v1"),
        ("404 Not Found", err("Tenant is gone"), ModelGoneError, "It said: Tenant is gone"),
        ("404 Not Found", HTML, ProtocolError, "web page, not the API"),
        ("404 Not Found", err("No endpoints found that support tool use"), ModelGoneError, "without tools"),
        ("200 OK", HTML, ProtocolError, "web page, not the API"),
        ("302 Found", "", ProtocolError, "redirects to 'https://elsewhere.example/v1'"),
        ("402 Payment Required", err("Insufficient Balance"), RateLimitError, "no credit left"),
        ("429 Too Many", err("You exceeded", code="insufficient_quota"), RateLimitError, "no credit left"),
        ("429 Too Many", err("Slow down"), RateLimitError, "Try again in a moment"),
        ("400 Bad Request", err("Bad stop", param="stop"), InvalidRequestError, "It said: Bad stop"),
        ("400 Bad Request", VLLM_TOOLS, InvalidRequestError, "Start vLLM with"),
        ("400 Bad Request", OLLAMA_TOOLS, InvalidRequestError, "can use tools"),
        ("422 Bad", {"detail": [{"loc": ["body", "n"], "msg": "must be 1"}]}, InvalidRequestError, "body.n: must be 1"),
        ("418 Teapot", "short and stout", InvalidRequestError, "short and stout"),
        ("500 Internal Server Error", "", ServerError, "HTTP 500"),
        ("502 Bad Gateway", HTML, ServerError, "HTTP 502"),
        ("503 Service Unavailable", LOADING, ServerError, "still loading"),
        ("200 OK", err("upstream broke", code=502), ServerError, "HTTP 502"),
        ("200 OK", err("bad key", code=401), AuthError, "refused the API key"),
        ("200 OK", {"hello": "world"}, ProtocolError, "not the API"),
        ("200 OK", "Welcome to my server", ProtocolError, "not the API"),
        ("200 OK", '{"choices": [', ProtocolError, "cannot be read"),
        ("200 OK", "", ProtocolError, "answered with nothing"),
    ],
)
async def test_bad_answers(
    raw: RawServer, make: Make, status: str, body: Any, error: type[ModelError], words: str
) -> None:
    """Each ends in one typed error whose text says what to do."""
    raw.answer(refuse(status, body, Location="https://elsewhere.example/v1/chat/completions?x=1"))
    caught = await failing(make(raw.url, api_key=KEY))
    assert type(caught) is error
    assert words in str(caught)


async def test_a_missing_key_is_told_from_a_wrong_one(raw: RawServer, make: Make) -> None:
    """The remedy differs."""
    raw.answer(refuse("401 Unauthorized", {"error": "no"}))
    assert "wants an API key" in str(await failing(make(raw.url)))


@pytest.mark.parametrize(
    ("message", "more"),
    [
        ("whatever", {"code": "context_length_exceeded"}),
        ("whatever", {"code": 400, "type": "exceed_context_size_error"}),
        ("Prompt exceeds max length", {"code": "1261"}),
        ("This model's maximum context length is 8192 tokens. However, you requested 9000 tokens", {}),
        ("Prompt contains 90000 tokens, too large for model with 32768 maximum context length", {}),
        ("Invalid request: Your request exceeded model token limit: 262144", {}),
        ("This model's maximum prompt length is 131072 but the request contains 200000 tokens.", {}),
        ("The input token count (2000000) exceeds the maximum number of tokens allowed (1048575).", {}),
        ("the request exceeds the available context size, try increasing it", {}),
    ],
)
@pytest.mark.parametrize("status", ["400 Bad Request", "413 Payload Too Large"])
async def test_context_overflow(raw: RawServer, make: Make, status: str, message: str, more: dict[str, Any]) -> None:
    """In the words of OpenAI, llama.cpp, Z.ai, vLLM, Mistral, Moonshot, xAI and Gemini."""
    raw.answer(refuse(status, err(message, **more)))
    assert type(await failing(make(raw.url))) is ContextLengthError


@pytest.mark.parametrize(
    "message",
    [
        "'max_tokens' or 'max_completion_tokens' is too large: 60000. This model's maximum context length is 4096 tokens",
        "Invalid 'messages[3].content': too long",
        "Too many images in the context",
        "context is a required field",
    ],
)  # fmt: skip
async def test_what_is_no_context_overflow(raw: RawServer, make: Make, message: str) -> None:
    """A wrong guess would cost a compaction that cannot help."""
    raw.answer(refuse("400 Bad Request", {"error": {"message": message}}))
    assert type(await failing(make(raw.url))) is InvalidRequestError


def streaming_error(payload: Any, event: str = "") -> Any:
    async def script(wire: Wire) -> None:
        await wire.head(Content_Type="text/event-stream")
        if event:
            await wire.send(f"event: {event}\n")
        await wire.event(payload)

    return script


@pytest.mark.parametrize(
    ("payload", "event", "error"),
    [
        ({"error": {"message": "overloaded", "code": 529}}, "", ServerError),
        ({"error": {"message": "slow down", "type": "rate_limit_exceeded"}}, "", RateLimitError),
        ({"error": {"code": "context_length_exceeded", "message": "x"}}, "", ContextLengthError),
        ({"error": {"message": "something"}}, "", ServerError),
        ({"message": "something"}, "error", ServerError),
        ({"code": 429}, "error", RateLimitError),
        ("boom", "error", ServerError),
        (
            {"choices": [{"delta": {}, "finish_reason": "error", "error": {"code": 429, "message": "x"}}]},
            "",
            RateLimitError,
        ),
        ({"choices": [{"delta": {}, "finish_reason": "insufficient_system_resource"}]}, "", ServerError),
        ("{broken", "", ProtocolError),
        ("[1, 2]", "", ProtocolError),
        ('"text"', "", ProtocolError),
    ],
)
async def test_errors_inside_the_stream(
    raw: RawServer, make: Make, payload: Any, event: str, error: type[ModelError]
) -> None:
    """Typed like those of an HTTP status."""
    raw.answer(streaming_error(payload, event))
    assert type(await failing(make(raw.url))) is error


@pytest.mark.parametrize("cut", ["mid-word", "mid-json", "mid-arguments", "reset", "after a comment"])
async def test_a_cut_stream(raw: RawServer, make: Make, cut: str) -> None:
    """Wherever it breaks off, it is a network error and never an answer."""

    async def script(wire: Wire) -> None:
        await wire.head(Content_Type="text/event-stream")
        if cut == "after a comment":
            await wire.send(": waiting\n\n")
            return
        await wire.event(chunk("Hel"))
        if cut == "mid-json":
            await wire.send('data: {"choices": [{"delta": {"content": "lo')
        elif cut == "mid-arguments":
            await wire.event(
                chunk(tool_calls=[{"index": 0, "id": "c", "function": {"name": "read_file", "arguments": '{"pa'}}])
            )
        elif cut == "reset":
            wire.reset()

    raw.answer(script)
    shown: list[StreamEvent] = []
    with pytest.raises(NetworkError, match="broke off") as caught:
        await read_into(shown, make(raw.url), ask(tools=(READ_FILE,)))
    assert not [event for event in shown if isinstance(event, (CallEnd, MessageEnd))]
    assert caught.value.__context__ is None


async def test_nothing_listens(make: Make) -> None:
    """The usual reason is named."""
    with socket.socket() as taken:  # bound but not listening: nobody else can take the port meanwhile
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        error = await failing(make(f"http://127.0.0.1:{port}/v1"))
    assert type(error) is NetworkError
    assert str(error) == f"Nothing answers at http://127.0.0.1:{port}. Is the model server running?"


@pytest.mark.parametrize("host", ["\u2603.invalid", "xn--a", "\u202eabc"])
async def test_a_host_no_server_can_have(make: Make, host: str) -> None:
    """Said when the first call finds it out, and never as an exception of a library."""
    with pytest.raises(ConfigError, match="not a valid address"):
        await read_all(make(f"http://{host}/v1"), ask())


async def test_an_unknown_host(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that does not resolve is told from a server that is down."""

    async def nowhere(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", nowhere)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    error = await failing(make("http://llm.invalid/v1"))
    assert type(error) is NetworkError
    assert "'llm.invalid' cannot be found" in str(error)


async def test_https_to_a_plain_server(make: Make) -> None:
    """A frequent slip with servers nearby."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    error = await failing(make(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"))
    server.close()
    await server.wait_closed()
    assert type(error) is NetworkError
    assert "does not speak https" in str(error)


@pytest.mark.parametrize("when", ["headers", "body"])
async def test_silence_ends_at_the_timeout(raw: RawServer, make: Make, when: str) -> None:
    """Before the headers or in the middle."""
    over = asyncio.Event()

    async def script(wire: Wire) -> None:
        if when == "body":
            await wire.head(Content_Type="text/event-stream")
            await wire.event(chunk(role="assistant"))
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


async def test_an_event_without_end(raw: RawServer, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runaway server cannot fill the memory."""
    monkeypatch.setattr("skald_openai.reading.MAX_EVENT_BYTES", 1000)

    async def script(wire: Wire) -> None:
        await wire.head(Content_Type="text/event-stream")
        await wire.send("data: " + "x" * 5000)

    raw.answer(script)
    error = await failing(make(raw.url, retry=RetryPolicy(max_retries=3)))
    assert type(error) is ProtocolError
    assert len(raw.heard) == 1


@pytest.mark.parametrize("finish", ["stop", "tool_calls", None])
async def test_an_empty_answer(raw: RawServer, make: Make, finish: str | None) -> None:
    """Nothing said, thought or called is no answer."""

    async def script(wire: Wire) -> None:
        await chunks(wire, chunk(role="assistant", content=""), chunk(finish=finish))

    raw.answer(script)
    error = await failing(make(raw.url))
    assert type(error) is ProtocolError
    assert "answered with nothing" in str(error)


async def test_a_call_without_a_name(raw: RawServer, make: Make) -> None:
    """It cannot be run and must not vanish."""

    async def script(wire: Wire) -> None:
        await chunks(
            wire, chunk(tool_calls=[{"index": 0, "id": "c", "function": {"arguments": "{}"}}]), chunk(finish="stop")
        )

    raw.answer(script)
    assert type(await failing(make(raw.url), ask(tools=(READ_FILE,)))) is ProtocolError


# --- retry -------------------------------------------------------------------------------------------------------


async def test_retry_before_output(raw: RawServer, make: Make) -> None:
    """Refused, limited, then cut after the role: all repeated, one start, waits as planned."""

    async def role_only(wire: Wire) -> None:
        await wire.events(chunk(role="assistant"))

    waits = Waits()
    raw.answer(
        refuse("503 Busy", ""), refuse("429 Slow", {"error": {"message": "x"}}, Retry_After="7"), role_only, hello
    )
    events = await read_all(make(raw.url, retry=RetryPolicy(max_retries=3), sleep=waits, jitter=lambda: 0.5), ask())
    assert text_of(events) == "Hello"
    assert sum(isinstance(event, MessageStart) for event in events) == 1
    assert waits == [1.0, 7.0, 4.0]
    assert len({heard.raw for heard in raw.heard}) == 1, "the same request each time"


async def test_the_budget_counts_after_the_first_attempt(raw: RawServer, make: Make) -> None:
    """Two retries are three attempts."""
    raw.answer(refuse("500 Oops", ""))
    error = await failing(make(raw.url, retry=RetryPolicy(max_retries=2)))
    assert type(error) is ServerError
    assert len(raw.heard) == 3


async def test_a_wait_as_a_date(raw: RawServer, make: Make) -> None:
    """Counted from the provider's clock."""
    waits = Waits()
    raw.answer(refuse("429 Slow", "", Retry_After=email.utils.formatdate(1060, usegmt=True)), hello)
    await read_all(make(raw.url, retry=RetryPolicy(), sleep=waits, clock=lambda: 1000.0), ask())
    assert waits == [60.0]


async def test_a_wait_that_is_too_long(raw: RawServer, make: Make) -> None:
    """Fails at once and passes the wait on."""
    waits = Waits()
    raw.answer(refuse("429 Slow", "", Retry_After="3600"))
    error = await failing(make(raw.url, retry=RetryPolicy(max_retries=5), sleep=waits))
    assert isinstance(error, RateLimitError)
    assert error.retry_after == 3600.0
    assert "in 3600 s" in str(error)
    assert waits == []


@pytest.mark.parametrize(
    ("status", "body"),
    [
        ("400 Bad", {"error": {"message": "bad"}}),
        ("401 Bad", ""),
        ("404 Bad", ""),
        ("402 Pay", ""),
        ("429 Broke", {"error": {"code": "insufficient_quota"}}),
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
    """What was shown stays the only attempt."""

    async def script(wire: Wire) -> None:
        await wire.events(chunk("Hel"))

    raw.answer(script)
    with pytest.raises(NetworkError):
        await read_all(make(raw.url, retry=RetryPolicy(max_retries=5)), ask())
    assert len(raw.heard) == 1


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


# --- stopping ----------------------------------------------------------------------------------------------------


async def endless(wire: Wire) -> None:
    await wire.head(Content_Type="text/event-stream")
    while True:
        await wire.event(chunk("more "))
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


async def test_a_closed_provider_lets_calls_end(raw: RawServer, make: Make) -> None:
    """An admin who changes a setting does not cut anybody's answer; new calls are refused."""
    go_on = asyncio.Event()

    async def script(wire: Wire) -> None:
        await wire.head(Content_Type="text/event-stream")
        await wire.event(chunk("Hel"))
        await go_on.wait()
        await wire.event(chunk("lo", finish="stop"))
        await wire.send("data: [DONE]\n\n")

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
        name = raw.heard[-1].body["messages"][-1]["content"]
        await chunks(wire, *(chunk(f"{name}.{n} ") for n in range(20)), chunk(finish="stop"))

    raw.answer(echo)
    provider = make(raw.url)
    answers = await asyncio.gather(*(read_all(provider, ask(f"c{n}")) for n in range(30)))
    for number, events in enumerate(answers):
        assert text_of(events) == "".join(f"c{number}.{n} " for n in range(20))


# --- adjusting ---------------------------------------------------------------------------------------------------


async def test_a_refused_field_is_left_out_from_then_on(raw: RawServer, make: Make) -> None:
    """One refusal is enough, costs no retry, and is remembered for the model."""
    raw.answer(
        refuse("400 Bad", err("Unsupported parameter. Use 'max_completion_tokens'", param="max_tokens")),
        refuse("422 Bad", {"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]}),
        hello,
    )  # fmt: skip
    provider = make(raw.url, retry=RetryPolicy(max_retries=0))
    assert text_of(await read_all(provider, ask(max_output_tokens=7))) == "Hello"
    assert text_of(await read_all(provider, ask(max_output_tokens=7))) == "Hello"
    assert len(raw.heard) == 4
    last = raw.heard[-1].body
    assert last["max_completion_tokens"] == 7
    assert "stream_options" not in last


async def test_calls_refused_at_the_same_time_all_learn(raw: RawServer, make: Make) -> None:
    """The second one's lesson is known already, and still its request is worth sending again."""
    both = asyncio.Barrier(2)

    async def script(wire: Wire) -> None:
        if "stream_options" in raw.heard[-1].body:
            await both.wait()
            await wire.whole(json.dumps(err("unknown field stream_options")), "400 Bad")
        else:
            await hello(wire)

    raw.answer(script)
    provider = make(raw.url)
    answers = await asyncio.gather(read_all(provider, ask("a")), read_all(provider, ask("b")))
    assert [text_of(events) for events in answers] == ["Hello", "Hello"]


async def test_a_server_that_refuses_everything_is_not_asked_for_ever(raw: RawServer, make: Make) -> None:
    """A handful of lessons, then the error."""

    async def script(wire: Wire) -> None:
        optional = ("stream_options", "temperature", "tool_choice", "max_tokens", "max_completion_tokens")
        field = next((name for name in optional if name in raw.heard[-1].body), "messages")
        await wire.whole(json.dumps(err(f"unknown field {field}")), "400 Bad")

    raw.answer(script)
    error = await failing(make(raw.url), ask(temperature=1.0, max_output_tokens=5, tools=(READ_FILE,)))
    assert type(error) is InvalidRequestError
    assert len(raw.heard) <= 6


# --- secrets and settings ------------------------------------------------------------------------------------------


async def test_the_key_shows_up_nowhere(raw: RawServer, make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """Not in logs, not in errors, not in the object's own words, even when the server repeats it."""
    caplog.set_level(logging.DEBUG)
    logging.getLogger("httpcore").setLevel(logging.INFO)  # what it logs at DEBUG is its own affair
    raw.answer(refuse("500 Oops", f"key {KEY} exploded"), refuse("400 Bad", {"error": {"message": f"{KEY} is bad"}}))
    provider = make(raw.url, api_key=KEY, retry=RetryPolicy(max_retries=1))
    error = await failing(provider)
    assert "***" in error.detail
    assert KEY not in caplog.text
    assert KEY not in repr(provider)


@pytest.mark.parametrize("key", ["sk with space", "sk-é", "sk-\r\nX-Other: 1"])
def test_a_key_no_header_can_carry(key: str, make: Make) -> None:
    """Said at once, without repeating it."""
    with pytest.raises(ConfigError, match="Copy it again") as caught:
        make("http://127.0.0.1:1/v1", api_key=key)
    assert key not in str(caught.value)


async def test_the_key_is_not_carried_elsewhere(raw: RawServer, make: Make) -> None:
    """A redirect is reported, never followed."""
    async with RawServer("/v1") as other:
        other.answer(hello)
        raw.answer(refuse("307 Moved", "", Location=f"{other.url}/chat/completions"))
        error = await failing(make(raw.url, api_key=KEY))
        assert other.heard == []
        assert other.url in str(error)


async def test_proxies_are_not_used_for_this_machine(
    raw: RawServer, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model nearby is reached directly whatever the environment says."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    raw.answer(hello)
    assert text_of(await read_all(make(raw.url), ask())) == "Hello"


async def test_extra_settings_that_are_no_json(raw: RawServer, make: Make) -> None:
    """A mistake in them is the admin's to mend, and is said before anything is sent."""
    raw.answer(hello)
    with pytest.raises(ConfigError, match="extra settings"):
        await read_all(make(raw.url), ask(extra={"x": object()}))
    assert raw.heard == []


def test_what_is_known_of_a_model(make: Make) -> None:
    """The caller's word, else the table's, else defaults."""
    mine = ModelInfo(context_window=4096, weak=True)
    provider = make("http://127.0.0.1:1/v1", infos={"gpt-4o": mine})
    assert provider.info("gpt-4o") == mine
    assert provider.info("gpt-4.1").context_window == 1047576
    assert provider.info("unheard-of") == ModelInfo()


# --- faults every server may have ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_faults_before_output(raw: RawServer, make: Make, name: str, api: str) -> None:
    """Each becomes the error it is, and is tried again where that can help, after the wait that was asked for."""
    fault, waits = FAULTS[name], Waits()
    raw.answer(fault.script)
    retry = RetryPolicy(max_retries=1)
    provider = make(
        raw.url, api=api, timeout=0.3 if name == "stays silent" else 10.0, retry=retry, sleep=waits, jitter=lambda: 0.5
    )
    with pytest.raises(ModelError) as caught:
        await read_all(provider, ask())
    assert type(caught.value) is fault.error
    assert len(raw.heard) == 1 + fault.again
    expected = {"429 with Retry-After": 7.0, "hangs up": 0.0}.get(name, 1.0)
    assert waits == [expected] * fault.again
