"""The provider on the wire, against a server that says exactly what each test wants, byte for byte."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
from typing import Any

import pytest
from ollama_testkit import Make, ask, call, chunk, last

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


def text_of(events: list[StreamEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def end_of(events: list[StreamEvent]) -> MessageEnd:
    end = events[-1]
    assert isinstance(end, MessageEnd)
    assert sum(isinstance(event, MessageEnd) for event in events) == 1
    return end


def says(*chunks: dict[str, Any]) -> Any:
    async def script(wire: Wire) -> None:
        await wire.lines(*chunks)

    return script


hello = says(chunk("Hel"), chunk("lo"), last(prompt_eval_count=7, eval_count=2))


async def failing(provider: Any, request: Any = None) -> ModelError:
    """The error of a call that shows nothing."""
    with pytest.raises(ModelError) as caught:
        await read_all(provider, request or ask())
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None
    assert str(error).endswith((".", "?")) or "It said:" in str(error)
    return error


# --- what good answers look like -----------------------------------------------------------------------------------


async def test_path_headers_and_events(raw: RawServer, make: Make) -> None:
    """A plain answer, its counts, and how it was asked for."""
    raw.answer(hello)
    events = await read_all(make(f"{raw.url}/v1", keep_alive="10m"), ask())
    assert events == [
        MessageStart("qwen3:8b"),
        TextDelta("Hel"),
        TextDelta("lo"),
        MessageEnd("end_turn", Usage(7, 2)),
    ]
    heard = raw.heard[0]
    assert (heard.method, heard.path) == ("POST", "/api/chat")
    assert heard.headers["accept-encoding"] == "identity"
    assert "authorization" not in heard.headers
    assert heard.body["stream"] is True
    assert heard.body["keep_alive"] == "10m"


async def test_thoughts_text_and_calls(raw: RawServer, make: Make) -> None:
    """Calls come whole, with or without ids; their arguments keep every byte."""

    async def script(wire: Wire) -> None:
        await wire.lines(chunk(thinking="Let me "), chunk(thinking="see."), chunk("I'll read."))
        await wire.send(
            '{"model":"m","message":{"role":"assistant","content":"","tool_calls":['
            '{"id":"call_a","function":{"index":0,"name":"read_file","arguments":{ "path" : "b",  "n": 1.50 }}},'
            '{"id":"call_a","function":{"name":"read_file","arguments":{}}},'
            '{"function":{"name":"read_file"}}]},"done":false}\n'
        )
        await wire.line(last(prompt_eval_count=50, eval_count=9))

    raw.answer(script, hello)
    provider = make(raw.url)
    request = ask(tools=(READ_FILE,))
    events = await read_all(provider, request)
    assert events == [
        MessageStart("qwen3:8b"),
        ReasoningDelta("Let me "),
        ReasoningDelta("see."),
        TextDelta("I'll read."),
        CallStart("call_a", "read_file"),
        CallDelta("call_a", '{ "path" : "b",  "n": 1.50 }'),
        CallEnd("call_a"),
        CallStart("made_1", "read_file"),
        CallDelta("made_1", "{}"),
        CallEnd("made_1"),
        CallStart("made_2", "read_file"),
        CallDelta("made_2", "{}"),
        CallEnd("made_2"),
        MessageEnd("tool_use", Usage(50, 9)),
    ]
    back = WireMessage("assistant", (CallPart("call_a", "read_file", '{ "path" : "b",  "n": 1.50 }'),))
    results = WireMessage("tool", (ResultPart("call_a", "milk"),))
    await read_all(provider, ask(messages=(*request.messages, back, results), tools=(READ_FILE,)))
    assert b'{ "path" : "b",  "n": 1.50 }' in raw.heard[1].raw


@pytest.mark.parametrize(
    ("arguments", "want"),
    [({"a": [1]}, '{"a": [1]}'), ('{"a": 1}', '{"a": 1}'), (None, "{}"), ([1], "[1]")],
)
async def test_arguments_however_they_come(raw: RawServer, make: Make, arguments: Any, want: str) -> None:
    """As an object; programs in between also send text, or null. What is no object is for the loop to refuse."""
    raw.answer(says(chunk(tool_calls=[call("f", arguments)]), last()))
    events = await read_all(make(raw.url), ask())
    assert [event.text for event in events if isinstance(event, CallDelta)] == [want]


@pytest.mark.parametrize(
    ("reason", "stop"),
    [("stop", "end_turn"), ("length", "max_tokens"), (None, "end_turn"), ("load", "end_turn"), ("news", "error")],
)
async def test_stop_reasons(raw: RawServer, make: Make, reason: str | None, stop: str) -> None:
    """Old versions say none; a word that is not known is not passed off as a good end."""
    raw.answer(says(chunk("Hi"), last(reason)))
    assert end_of(await read_all(make(raw.url), ask())).stop_reason == stop


async def test_an_answer_at_once(raw: RawServer, make: Make) -> None:
    """Everything in one line, without a line break at its end."""

    async def script(wire: Wire) -> None:
        await wire.whole(json.dumps({**chunk("Hi", tool_calls=[call("f", {})]), "done": True, "done_reason": "stop"}))

    raw.answer(script)
    events = await read_all(make(raw.url), ask())
    assert text_of(events) == "Hi"
    assert end_of(events).stop_reason == "tool_use"


async def test_an_empty_answer_after_results_is_fine(raw: RawServer, make: Make) -> None:
    """A model may have nothing to add to what its tools did; otherwise nothing is no answer."""
    raw.answer(says(last()))
    provider = make(raw.url)
    done = ask(messages=(user("x"), WireMessage("tool", (ResultPart("t", "ok"),))))
    assert end_of(await read_all(provider, done)).stop_reason == "end_turn"
    error = await failing(provider)
    assert type(error) is ProtocolError
    assert "answered with nothing" in str(error)


async def test_sloppy_but_readable_lines(raw: RawServer, make: Make) -> None:
    """CRLF, blank lines, fields nobody knows, raw control characters, halves of a character."""

    async def script(wire: Wire) -> None:
        await wire.head(Content_Type="application/x-ndjson")
        await wire.send('\r\n{"message":{"content":"a","later":1},"done":false,"news":{}}\r\n\r\n')
        await wire.send('{"message":{"content":"b\tc"},"done":false}\n')
        await wire.send('{"message":{"content":"\\ud83d"},"done":false}\n')
        await wire.send(b'{"message":{"content":"\xff"},"done":false}\n')
        await wire.send('{"done":true,"done_reason":"stop"}')

    raw.answer(script)
    assert text_of(await read_all(make(raw.url), ask())) == "ab\tc\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"


async def test_after_the_end_nothing_can_spoil_the_answer(raw: RawServer, make: Make) -> None:
    """What happens to the connection then does not matter."""

    async def script(wire: Wire) -> None:
        await wire.lines(chunk("Hello"), last())
        await wire.send("{broken\n")
        wire.reset()

    raw.answer(script)
    assert text_of(await read_all(make(raw.url), ask())) == "Hello"


# --- bad answers ---------------------------------------------------------------------------------------------------

HTML = "<!DOCTYPE html><html><body>Sign in</body></html>"
OVERFLOW = json.dumps(
    {"error": {"code": 400, "message": "request (2622 tokens) is larger", "type": "exceed_context_size_error"}}
)


def refuse(status: str, body: Any, **headers: str) -> Any:
    async def script(wire: Wire) -> None:
        await wire.whole(body if isinstance(body, str) else json.dumps(body), status, **headers)

    return script


def err(message: str) -> dict[str, str]:
    return {"error": message}


@pytest.mark.parametrize(
    ("status", "body", "error", "words"),
    [
        ("404 No", err('model "qwen3:8b" not found, try pulling it first'), ModelGoneError, "'ollama pull qwen3:8b'"),
        ("404 No", err("model 'qwen3:8b' not found"), ModelGoneError, "'ollama pull qwen3:8b'"),
        ("404 No", "404 page not found", ModelGoneError, "does not speak Ollama's API"),
        ("404 No", HTML, ProtocolError, "web page"),
        ("200 OK", HTML, ProtocolError, "web page"),
        ("302 Found", "", ProtocolError, "redirects to 'https://elsewhere.example'"),
        ("400 Bad", err("the input length exceeds the context length"), ContextLengthError, "Compact it"),
        ("400 Bad", err(OVERFLOW), ContextLengthError, "more context"),
        ("500 Oops", err("model requires more system memory (9 GiB) than is available"), ServerError, "enough memory"),
        ("500 Oops", err("llama runner process has terminated: exit status 2"), ServerError, "It said: llama runner"),
        ("503 Busy", err("server busy, please try again"), ServerError, "busy with other requests"),
        ("401 No", {"error": "unauthorized", "signin_url": "x"}, AuthError, "ollama signin"),
        ("403 No", err("remote inference is disabled"), AuthError, "It said: remote inference"),
        ("429 Slow", err("usage limit"), RateLimitError, "limits how often"),
        ("400 Bad", err('"nomic-embed-text" does not support chat'), InvalidRequestError, "(chat)"),
        ("400 Bad", err("invalid options: num_ctx"), InvalidRequestError, "It said: invalid options"),
        ("502 Bad Gateway", HTML, ServerError, "HTTP 502"),
        ("200 OK", err("unexpected end of input"), ServerError, "It said: unexpected end"),
        ("200 OK", {"hello": "world"}, ProtocolError, "not Ollama's API"),
        ("200 OK", "Ollama is running", ProtocolError, "not Ollama's API"),
        ("200 OK", '{"message": "text"}', ProtocolError, "cannot be read"),
        ("200 OK", "", ProtocolError, "answered with nothing"),
    ],
)
async def test_bad_answers(
    raw: RawServer, make: Make, status: str, body: Any, error: type[ModelError], words: str
) -> None:
    """Each ends in one typed error whose text says what to do."""
    text = body if isinstance(body, str) else json.dumps(body)
    raw.answer(refuse(status, text + ("\n" if text else ""), Location="https://elsewhere.example/api/chat"))
    caught = await failing(make(raw.url))
    assert type(caught) is error
    assert words in str(caught)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("an error was encountered while running the model", ServerError),
        ({"message": "prompt too long"}, ContextLengthError),
        ("model 'qwen3:8b' not found", ModelGoneError),
        ("", ServerError),
    ],
)
async def test_errors_inside_the_stream(raw: RawServer, make: Make, error: Any, kind: type[ModelError]) -> None:
    """An error object among the chunks fails the call, also after text was shown."""
    raw.answer(says(chunk("Hel"), {"error": error}))
    shown: list[StreamEvent] = []
    with pytest.raises(ModelError) as caught:
        await read_into(shown, make(raw.url), ask())
    assert type(caught.value) is kind
    assert text_of(shown) == "Hel"
    assert not [event for event in shown if isinstance(event, MessageEnd)]


@pytest.mark.parametrize("cut", ["after a chunk", "mid-line", "reset"])
async def test_a_cut_stream(raw: RawServer, make: Make, cut: str) -> None:
    """Without the chunk that says done it is a network error and never an answer."""

    async def script(wire: Wire) -> None:
        await wire.lines(chunk("Hel"))
        if cut == "mid-line":
            await wire.send('{"message": {"content": "lo')
        elif cut == "reset":
            wire.reset()

    raw.answer(script)
    shown: list[StreamEvent] = []
    with pytest.raises(NetworkError, match="broke off") as caught:
        await read_into(shown, make(raw.url), ask())
    assert not [event for event in shown if isinstance(event, MessageEnd)]
    assert caught.value.__context__ is None


@pytest.mark.parametrize("line", ["{broken", '{"message": 5, "done": false}', "[1]"])
async def test_lines_that_cannot_be_read(raw: RawServer, make: Make, line: str) -> None:
    """Said, and another try may help."""

    async def script(wire: Wire) -> None:
        await wire.lines()
        await wire.send(line + "\n")

    raw.answer(script)
    assert type(await failing(make(raw.url))) is ProtocolError


async def test_a_call_without_a_name(raw: RawServer, make: Make) -> None:
    """It cannot be run and must not vanish."""
    raw.answer(says(chunk(tool_calls=[call("", {})]), last()))
    error = await failing(make(raw.url))
    assert type(error) is ProtocolError
    assert "without naming it" in str(error)


async def test_a_line_without_end(raw: RawServer, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runaway server cannot fill the memory."""
    monkeypatch.setattr("skald_ollama.reading.MAX_LINE_BYTES", 1000)

    async def script(wire: Wire) -> None:
        await wire.lines()
        await wire.send('{"message": "' + "x" * 5000)

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
    assert str(error) == f"Nothing answers at http://127.0.0.1:{port}. Start Ollama, or 'ollama serve', and try again."


async def test_silence_ends_at_the_timeout(raw: RawServer, make: Make) -> None:
    """A model that is too large for the machine hangs."""
    over = asyncio.Event()

    async def script(wire: Wire) -> None:
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
    assert "closed the connection without an answer" in str(await failing(make(raw.url)))


# --- retry and learning --------------------------------------------------------------------------------------------


async def test_retry_before_output(raw: RawServer, make: Make) -> None:
    """Busy, failed in the stream, then cut before a word: all repeated, one start, waits as planned."""
    waits = Waits()
    raw.answer(
        refuse("503 Busy", err("server busy"), Retry_After="7"),
        says({"error": "runner broke"}),
        says(chunk()),
        hello,
    )
    events = await read_all(make(raw.url, retry=RetryPolicy(max_retries=3), sleep=waits, jitter=lambda: 0.5), ask())
    assert text_of(events) == "Hello"
    assert sum(isinstance(event, MessageStart) for event in events) == 1
    assert waits == [7.0, 2.0, 4.0]
    assert len({heard.raw for heard in raw.heard}) == 1, "the same request each time"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        ("400 Bad", err("bad")),
        ("404 Bad", err("model not found")),
        ("500 Oops", err("model requires more system memory")),
        ("200 OK", HTML),
        ("301 Moved", ""),
    ],
)
async def test_what_is_never_repeated(raw: RawServer, make: Make, status: str, body: Any) -> None:
    """Asking again could not help."""
    raw.answer(refuse(status, body))
    await failing(make(raw.url, retry=RetryPolicy(max_retries=5)))
    assert len(raw.heard) == 1


async def test_never_after_output(raw: RawServer, make: Make) -> None:
    """What was shown stays the only attempt; a thought is shown too."""
    raw.answer(says(chunk(thinking="Hm")))
    with pytest.raises(NetworkError):
        await read_all(make(raw.url, retry=RetryPolicy(max_retries=5)), ask())
    assert len(raw.heard) == 1


async def test_a_model_without_tools_is_asked_without_them(raw: RawServer, make: Make) -> None:
    """Once more at once, costing no retry, and remembered for this model only."""
    raw.answer(refuse("400 Bad", err("registry.example/library/gemma:2b does not support tools")), hello)
    provider = make(raw.url)
    for _ in range(2):
        assert text_of(await read_all(provider, ask(model="gemma:2b", tools=(READ_FILE,)))) == "Hello"
    await read_all(provider, ask(tools=(READ_FILE,)))
    assert ["tools" in heard.body for heard in raw.heard] == [True, False, False, True]


async def test_calls_refused_at_the_same_time_all_learn(raw: RawServer, make: Make) -> None:
    """The second one's lesson is known already, and still its request is worth sending again."""
    both = asyncio.Barrier(2)

    async def script(wire: Wire) -> None:
        if "tools" in raw.heard[-1].body:
            await both.wait()
            await wire.whole(json.dumps(err("it does not support tools")), "400 Bad")
        else:
            await hello(wire)

    raw.answer(script)
    provider = make(raw.url)
    answers = await asyncio.gather(*(read_all(provider, ask(text, tools=(READ_FILE,))) for text in "ab"))
    assert [text_of(events) for events in answers] == ["Hello", "Hello"]


async def test_a_refusal_that_teaches_nothing_is_final(raw: RawServer, make: Make) -> None:
    """The same request is not sent twice."""
    raw.answer(refuse("400 Bad", err("it does not support tools")))
    error = await failing(make(raw.url))
    assert type(error) is InvalidRequestError
    assert len(raw.heard) == 1


# --- stopping ------------------------------------------------------------------------------------------------------


async def endless(wire: Wire) -> None:
    await wire.lines()
    while True:
        await wire.line(chunk("more "))
        await asyncio.sleep(0)


async def test_closing_the_iterator_closes_the_connection(raw: RawServer, make: Make) -> None:
    """The machine stops working on an answer nobody reads."""
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


async def test_a_closed_provider_refuses_new_calls(raw: RawServer, make: Make) -> None:
    """In the words of the host."""
    raw.answer(hello)
    provider = make(raw.url)
    await read_all(provider, ask())
    await provider.close()
    with pytest.raises(ConfigError, match="was closed"):
        await read_all(provider, ask())


async def test_many_calls_at_once(raw: RawServer, make: Make) -> None:
    """Thirty conversations share a provider and do not mix."""

    async def echo(wire: Wire) -> None:
        name = raw.heard[-1].body["messages"][-1]["content"]
        await wire.lines(*(chunk(f"{name}.{n} ") for n in range(20)), last())

    raw.answer(echo)
    provider = make(raw.url)
    answers = await asyncio.gather(*(read_all(provider, ask(f"c{n}")) for n in range(30)))
    for number, events in enumerate(answers):
        assert text_of(events) == "".join(f"c{number}.{n} " for n in range(20))


# --- settings ------------------------------------------------------------------------------------------------------


async def test_extra_settings_that_are_no_json(raw: RawServer, make: Make) -> None:
    """A mistake in them is the admin's to mend, and is said before anything is sent."""
    raw.answer(hello)
    with pytest.raises(ConfigError, match="extra settings"):
        await read_all(make(raw.url), ask(extra={"x": object()}))
    assert raw.heard == []


def test_what_is_known_of_a_model(make: Make) -> None:
    """The caller's word, else a context a small machine can hold."""
    mine = ModelInfo(context_window=4096, weak=True)
    provider = make("", infos={"a": mine})
    assert provider.info("a") == mine
    assert provider.info("b").context_window == 16384


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
