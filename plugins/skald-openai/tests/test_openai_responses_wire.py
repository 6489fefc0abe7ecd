"""The Responses API on the wire: what its events become, whatever a server leaves out, and which API a call goes through."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai_testkit import Make, ask, chunks

import skald_openai.services
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
    ModelRequest,
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
from skald_core.testing.servers import READ_FILE, RawServer, Script, Waits, Wire, read_all, read_into, replies, streams
from skald_openai.choice import ApiChoice
from skald_openai.responses.answer import ResponseAnswer
from skald_openai.services import ServiceSpec, all_services, parse_endpoint

Event = dict[str, Any]

USAGE = {
    "input_tokens": 50,
    "input_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 10},
    "output_tokens": 9,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 59,
}


def event(kind: str, **fields: Any) -> Event:
    return {"type": f"response.{kind}", **fields}


def created() -> Event:
    return event("created", response={"id": "resp_1", "model": "gpt-5.5-x", "status": "in_progress", "output": []})


def ended(*output: Event, status: str = "completed", **fields: Any) -> Event:
    response = {
        "id": "resp_1",
        "model": "gpt-5.5-x",
        "status": status,
        "output": list(output),
        "usage": USAGE,
        **fields,
    }
    return event(status, response=response)


def thought(**fields: Any) -> Event:
    summary = [{"type": "summary_text", "text": "Two files."}, {"type": "summary_text", "text": "Read both."}]
    return {"id": "rs_1", "type": "reasoning", "summary": summary, "encrypted_content": "gAAA+/=", **fields}


def message(text: str, item_id: str = "msg_1", **fields: Any) -> Event:
    content = [{"type": "output_text", "annotations": [], "logprobs": [], "text": text}]
    return {"id": item_id, "type": "message", "status": "completed", "content": content, "role": "assistant", **fields}


def called(number: int, arguments: str) -> Event:
    return {
        "id": f"fc_{number}",
        "type": "function_call",
        "status": "completed",
        "arguments": arguments,
        "call_id": f"call_{number}",
        "name": "read_file",
    }


def whole_stream() -> list[Event]:
    """An answer with a thought in two parts, text and two calls, told the way OpenAI tells it: everything four times."""
    say, first, second = message("I will read them."), called(1, '{ "path":"a" }'), called(2, '{"path": "b"}')
    part = {"type": "output_text", "annotations": [], "text": ""}
    out: list[Event] = [
        created(),
        event("in_progress", response={"model": "gpt-5.5-x"}),
        event("output_item.added", output_index=0, item={"id": "rs_1", "type": "reasoning", "summary": []}),
    ]
    for number, words in enumerate((("Two ", "files."), ("Read both.",))):
        at = {"item_id": "rs_1", "output_index": 0, "summary_index": number}
        out += [
            event("reasoning_summary_part.added", **at, part={"type": "summary_text", "text": ""}),
            *(event("reasoning_summary_text.delta", **at, delta=word) for word in words),
            event("reasoning_summary_text.done", **at, text="".join(words)),
            event("reasoning_summary_part.done", **at, part={"type": "summary_text", "text": "".join(words)}),
        ]
    at = {"item_id": "msg_1", "output_index": 1, "content_index": 0}
    out += [
        event("output_item.done", output_index=0, item=thought()),
        event("output_item.added", output_index=1, item={**say, "status": "in_progress", "content": []}),
        event("content_part.added", **at, part=part),
        event("output_text.delta", **at, delta="I will "),
        event("output_text.delta", **at, delta="read them."),
        event("output_text.done", **at, text="I will read them."),
        event("content_part.done", **at, part={**part, "text": "I will read them."}),
        event("output_item.done", output_index=1, item=say),
    ]
    for index, call in ((2, first), (3, second)):
        at = {"item_id": call["id"], "output_index": index}
        middle = len(call["arguments"]) // 2
        out += [
            event("output_item.added", output_index=index, item={**call, "arguments": "", "status": "in_progress"}),
            event("function_call_arguments.delta", **at, delta=call["arguments"][:middle]),
            event("function_call_arguments.delta", **at, delta=call["arguments"][middle:]),
            event("function_call_arguments.done", **at, arguments=call["arguments"]),
            event("output_item.done", output_index=index, item=call),
        ]
    return [*out, ended(thought(), say, first, second)]


def told(events: list[StreamEvent]) -> dict[str, Any]:
    """An answer without the way it was cut into pieces."""
    calls = {e.id: [e.name, ""] for e in events if isinstance(e, CallStart)}
    for e in events:
        if isinstance(e, CallDelta):
            calls[e.id][1] += e.text
    end = events[-1]
    assert isinstance(end, MessageEnd)
    assert isinstance(events[0], MessageStart)
    return {
        "text": "".join(e.text for e in events if isinstance(e, TextDelta)),
        "thought": "".join(e.text for e in events if isinstance(e, ReasoningDelta)),
        "calls": calls,
        "ended": [e.id for e in events if isinstance(e, CallEnd)],
        "end": end,
    }


WHOLE = {
    "text": "I will read them.",
    "thought": "Two files.\n\nRead both.",
    "calls": {"call_1": ["read_file", '{ "path":"a" }'], "call_2": ["read_file", '{"path": "b"}']},
    "ended": ["call_1", "call_2"],
}


def asked(**fields: Any) -> ModelRequest:
    return ask(model="gpt-5.5-x", tools=(READ_FILE,), **fields)


def read(*events: Event, request: ModelRequest | None = None) -> list[StreamEvent]:
    """What the events become, without a wire between."""
    numbers = iter(range(1, 99))
    answer = ResponseAnswer(request or asked(), lambda: f"made_{next(numbers)}")
    return [*(out for chunk in events for out in answer.feed(chunk)), *answer.finish()]


def speaking(make: Make, raw: RawServer, **options: Any) -> Any:
    return make(raw.url, api="responses", **options)


# --- a good answer -------------------------------------------------------------------------------------------------


async def test_an_answer_as_openai_tells_it(raw: RawServer, make: Make) -> None:
    """Every kind of output, each piece once, in order, with the usage and what has to be kept of it."""
    raw.answer(streams(*whole_stream()))
    events = await read_all(speaking(make, raw), asked())
    assert raw.heard[0].path == "/v1/responses"
    assert events[:9] == [
        MessageStart("gpt-5.5-x"),
        ReasoningDelta("Two "),
        ReasoningDelta("files."),
        ReasoningDelta("\n\n"),
        ReasoningDelta("Read both."),
        TextDelta("I will "),
        TextDelta("read them."),
        CallStart("call_1", "read_file"),
        CallDelta("call_1", '{ "path'),
    ]
    end = told(events)["end"]
    assert (end.stop_reason, end.usage) == ("tool_use", Usage(50, 9, 40, 10))
    kept = end.metadata["openai"]
    assert kept["model"] == "gpt-5.5-x"
    assert kept["items"][0] == {"item": thought()}, "byte for byte, in its order"
    assert kept["items"][1]["texts"] == [[0, 17]]
    assert "I will read them." not in json.dumps(kept), "the message holds its text already"
    assert "response" not in kept


@pytest.mark.parametrize(
    "leave",
    [
        ("_text.delta", "arguments.delta"),
        ("delta", ".done"),
        ("delta", ".added", "part"),
        ("in_progress", "part", "output_item.added"),
        ("output_item", "part"),
        ("output_item.done", ".done"),
        ("response.reasoning", "response.output", "response.content", "response.function"),
    ],
)
async def test_whatever_a_server_leaves_out(raw: RawServer, make: Make, leave: tuple[str, ...]) -> None:
    """Deltas only, finished parts only, finished items only, or nothing but the whole response: the answer is the same."""
    stream = whole_stream()
    last = stream.pop()
    sent = [e for e in stream if not any(word in e["type"] for word in leave)]
    raw.answer(streams(*sent, last))
    answer = told(await read_all(speaking(make, raw), asked()))
    assert {key: answer[key] for key in WHOLE} == WHOLE
    assert answer["end"].stop_reason == "tool_use"


@pytest.mark.parametrize("change", ["ids", "places", "none", "no whole"])
def test_servers_that_number_badly(change: str) -> None:
    """Another item id in every event, the same place for every item, neither of them, or an empty whole at the end."""
    stream = whole_stream()
    last = stream.pop()
    for number, e in enumerate(stream):
        if change == "ids":
            e["item_id"] = f"x_{number}"
            if "item" in e:
                e["item"] = {**e["item"], "id": f"y_{number}"}
        if change in ("places", "none") and "output_index" in e:
            e["output_index"] = 0
        if change == "none":
            e.pop("output_index", None)
            e.pop("item_id", None)
    if change == "no whole":
        last["response"]["output"] = []
    answer = told(read(*stream, last))
    assert {key: answer[key] for key in WHOLE} == WHOLE


@given(st.integers(0, 2**30 - 1))
def test_no_selection_of_events_shows_anything_twice(mask: int) -> None:
    """Whichever events get lost on the way, as long as the whole response comes."""
    stream = whole_stream()
    last = stream.pop()
    sent = [e for number, e in enumerate(stream) if not mask >> number & 1 or "delta" in e["type"]]
    answer = told(read(*sent, last))
    assert {key: answer[key] for key in WHOLE} == WHOLE


async def test_a_server_that_does_not_stream(raw: RawServer, make: Make) -> None:
    """The whole response as plain JSON."""
    raw.answer(replies(json.dumps({"object": "response", "error": None, **whole_stream()[-1]["response"]})))
    answer = told(await read_all(speaking(make, raw), asked()))
    assert {key: answer[key] for key in WHOLE} == WHOLE
    assert answer["end"].usage == Usage(50, 9, 40, 10)


async def test_events_named_only_by_sse(raw: RawServer, make: Make) -> None:
    """Some servers leave the type out of the data."""

    async def script(wire: Wire) -> None:
        await wire.head(Content_Type="text/event-stream")
        for e in whole_stream():
            data = {key: value for key, value in e.items() if key != "type"}
            await wire.send(f"event: {e['type']}\ndata: {json.dumps(data)}\n\n")
        await wire.send("data: [DONE]\n\n")

    raw.answer(script)
    answer = told(await read_all(speaking(make, raw), asked()))
    assert {key: answer[key] for key in WHOLE} == WHOLE


def test_ids_of_items_are_not_ids_of_calls() -> None:
    """Results refer to ``call_id``; a server that sends none gets one made."""
    call = called(1, "{}")
    del call["call_id"]
    answer = told(read(created(), event("output_item.done", output_index=0, item=call), ended(call)))
    assert answer["calls"] == {"made_1": ["read_file", "{}"]}


def test_a_name_that_comes_late() -> None:
    """Arguments wait for it."""
    events = read(
        event("output_item.added", output_index=0, item={"type": "function_call", "id": "fc_1"}),
        event("function_call_arguments.delta", item_id="fc_1", delta='{"path"'),
        event("function_call_arguments.delta", item_id="fc_1", delta=': "a"}'),
        event("output_item.done", output_index=0, item=called(1, '{"path": "a"}')),
        ended(),
    )
    assert told(events)["calls"] == {"call_1": ["read_file", '{"path": "a"}']}


def test_arguments_sent_as_an_object() -> None:
    """Not what the API says, but readable."""
    call = called(1, "")
    answer = told(read(event("output_item.done", output_index=0, item={**call, "arguments": {"path": "a"}}), ended()))
    assert answer["calls"] == {"call_1": ["read_file", '{"path":"a"}']}


def test_thoughts_in_full() -> None:
    """Open models show them; a summary of the same thought is not shown as well."""
    item = {
        "id": "rs_1",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "short"}],
        "content": [{"type": "reasoning_text", "text": "at length"}],
    }
    answer = told(
        read(
            event("reasoning_text.delta", item_id="rs_1", output_index=0, content_index=0, delta="at "),
            event("reasoning_text.delta", item_id="rs_1", output_index=0, content_index=0, delta="length"),
            event("output_item.done", output_index=0, item=item),
            ended(item, message("Yes")),
        )
    )
    assert answer["thought"] == "at length"
    assert answer["end"].metadata["openai"]["items"][0] == {"item": item}


def test_two_messages_do_not_stick_together() -> None:
    """A comment and an answer are two messages; the gap between them is ours and is not sent back."""
    say, then = message("On it.", phase="commentary"), message("Done.", "msg_2", phase="final_answer")
    answer = told(read(ended(say, then)))
    assert answer["text"] == "On it.\n\nDone."
    kept = answer["end"].metadata["openai"]["items"]
    assert [entry["texts"] for entry in kept] == [[[0, 6]], [[2, 5]]]
    assert [entry["item"]["phase"] for entry in kept] == ["commentary", "final_answer"]


@pytest.mark.parametrize("cut", [1, 2])
def test_characters_torn_apart(cut: int) -> None:
    """A character cut into two halves by a server that counts in UTF-16 arrives whole; half of one does not stop an answer."""
    halves = ["a\ud83d", "\ude00b"][:cut]
    deltas = [event("output_text.delta", item_id="m", output_index=0, content_index=0, delta=half) for half in halves]
    answer = told(read(*deltas, event("completed", response={"status": "completed", "output": [], "usage": {}})))
    assert answer["text"] == ["a\N{REPLACEMENT CHARACTER}", "a😀b"][cut - 1]
    assert answer["end"].usage == Usage()


def test_what_cannot_be_replayed_is_not_kept() -> None:
    """A thought without its encrypted content is only known to a server that stores it; ours does not."""
    bare = thought()
    del bare["encrypted_content"]
    assert told(read(ended(bare, message("Yes"))))["end"].metadata is None
    assert told(read(ended(message("Yes"))))["end"].metadata is None, "nothing a plain message would not say"


def test_metadata_can_be_stored() -> None:
    """Halves of characters in what is kept would stop every store."""
    kept = told(read(ended(thought(summary=[{"type": "summary_text", "text": "x\ud83d"}]), message("Yes"))))
    msgspec.json.encode(kept["end"].metadata)


# --- how it stops --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "reason", "output", "stop"),
    [
        ("completed", None, (message("Hi"),), "end_turn"),
        ("completed", None, (message("Hi"), called(1, "{}")), "tool_use"),
        ("incomplete", "max_output_tokens", (message("Hi"),), "max_tokens"),
        ("incomplete", "content_filter", (message("Hi"),), "refusal"),
        ("incomplete", "something_new", (message("Hi"),), "error"),
        ("incomplete", None, (message("Hi"),), "max_tokens"),
    ],
)
def test_stop_reasons(status: str, reason: str | None, output: tuple[Event, ...], stop: str) -> None:
    """The table of the API; an answer that was cut is not kept for replay."""
    end = told(read(ended(*output, status=status, incomplete_details=reason and {"reason": reason})))["end"]
    assert (end.stop_reason, end.metadata) == (stop, None)


@pytest.mark.parametrize(("arguments", "ended_calls"), [('{"path": "un', []), ("{}", ["call_1"])])
def test_a_call_cut_by_the_cap(arguments: str, ended_calls: list[str]) -> None:
    """It is only ended when it is whole."""
    call = {**called(1, arguments), "status": "incomplete"}
    answer = told(read(ended(call, status="incomplete", incomplete_details={"reason": "max_output_tokens"})))
    assert answer["ended"] == ended_calls
    assert answer["end"].stop_reason == "max_tokens"


@pytest.mark.parametrize("streamed", [True, False])
def test_a_refusal_is_shown_as_text(streamed: bool) -> None:
    """Nobody should face an empty answer; it comes in deltas or not."""
    item = message("")
    item["content"] = [{"type": "refusal", "refusal": "I cannot do that."}]
    deltas = [
        event("refusal.delta", item_id="msg_1", output_index=0, content_index=0, delta=piece)
        for piece in ("I cannot ", "do that.")
    ]
    answer = told(read(*(deltas if streamed else ()), ended(item)))
    assert answer["text"] == "I cannot do that."
    assert answer["end"].stop_reason == "refusal"


async def test_an_empty_answer(raw: RawServer, make: Make) -> None:
    """An error, but not after results, when a model may have nothing to add."""
    raw.answer(streams(created(), ended()))
    with pytest.raises(ProtocolError, match="answered with nothing"):
        await read_all(speaking(make, raw), asked())
    after = (*asked().messages, WireMessage("tool", (ResultPart("c", "x"),)))
    events = await read_all(speaking(make, raw), asked(messages=after))
    assert told(events)["end"].stop_reason == "end_turn"


# --- what goes wrong -----------------------------------------------------------------------------------------------


def failed(code: str, text: str = "It broke.") -> Event:
    return event("failed", response={"status": "failed", "error": {"code": code, "message": text}, "output": []})


@pytest.mark.parametrize(
    ("code", "error", "text"),
    [
        ("server_error", ServerError, "It broke."),
        ("rate_limit_exceeded", RateLimitError, "It broke."),
        ("insufficient_quota", RateLimitError, "You exceeded your quota."),
        ("invalid_prompt", InvalidRequestError, "It broke."),
        ("image_parse_error", InvalidRequestError, "It broke."),
        ("context_length_exceeded", ContextLengthError, "Your input exceeds the context window of this model."),
        ("", ContextLengthError, "Your input exceeds the context window of this model."),
        ("something_new", ServerError, "It broke."),
    ],
)
@pytest.mark.parametrize("form", ["failed", "error", "nested", "whole"])
async def test_failures_are_typed(
    raw: RawServer, make: Make, code: str, error: type[ModelError], text: str, form: str
) -> None:
    """In the response, in an event of its own, in an error inside of that, or in a response sent whole."""
    said = {"code": code, "message": text}
    scripts: dict[str, Script] = {
        "failed": streams(created(), failed(code, text)),
        "error": streams(created(), {"type": "error", **said, "param": None, "sequence_number": 3}),
        "nested": streams(created(), {"type": "error", "error": said}),
        "whole": replies(json.dumps({"object": "response", "status": "failed", "error": said, "output": []})),
    }
    raw.answer(scripts[form])
    with pytest.raises(error) as caught:
        await read_all(speaking(make, raw), asked())
    assert type(caught.value) is error


async def test_a_failure_without_a_word(raw: RawServer, make: Make) -> None:
    """The status alone is enough."""
    raw.answer(streams(created(), event("failed", response={"status": "failed", "error": None, "output": []})))
    with pytest.raises(ServerError, match="problem of its own"):
        await read_all(speaking(make, raw), asked())


async def test_a_cut_stream(raw: RawServer, make: Make) -> None:
    """Without its last event an answer is not complete, however much came; nothing is repeated behind anybody's back."""
    raw.answer(streams(*whole_stream()[:-1]))
    shown: list[StreamEvent] = []
    with pytest.raises(NetworkError, match="broke off"):
        await read_into(shown, speaking(make, raw, retry=RetryPolicy(max_retries=3)), asked())
    assert TextDelta("read them.") in shown
    assert len(raw.heard) == 1


async def test_what_comes_after_the_end_does_not_matter(raw: RawServer, make: Make) -> None:
    """The whole response has come; the connection may break, and nonsense may follow."""

    async def script(wire: Wire) -> None:
        await wire.events(created(), ended(message("Hi")), "nonsense", failed("server_error"))
        wire.reset()

    raw.answer(script)
    assert told(await read_all(speaking(make, raw), asked()))["text"] == "Hi"


async def test_a_server_that_does_not_hang_up(raw: RawServer, make: Make) -> None:
    """The answer is complete when the whole response has come, not when the connection ends."""

    async def script(wire: Wire) -> None:
        await wire.events(created(), ended(message("Hi")))
        await wire.server.hung_up.wait()

    raw.answer(script)
    assert told(await read_all(speaking(make, raw, after_stop=600.0), asked()))["text"] == "Hi"


async def test_retry_before_output(raw: RawServer, make: Make) -> None:
    """A status, a failed response, a cut, and a wait the server asked for; one start is given out, and then the answer."""
    waits = Waits()
    raw.answer(
        replies("{}", "503 Busy"),
        streams(created(), failed("server_error")),
        replies("{}", "429 Slow down", {"Retry-After": "7"}),
        streams(created()),
        streams(created(), ended(message("At last."))),
    )
    provider = speaking(make, raw, retry=RetryPolicy(max_retries=4), sleep=waits, jitter=lambda: 0.5)
    events = await read_all(provider, asked())
    assert [type(e) for e in events] == [MessageStart, TextDelta, MessageEnd]
    assert waits == [1.0, 2.0, 7.0, 8.0]


async def test_the_budget_counts_after_the_first_attempt(raw: RawServer, make: Make) -> None:
    """Two retries are three attempts; what cannot get better is sent once; a senseless budget is refused before."""
    raw.answer(replies("{}", "500 Oh"))
    with pytest.raises(ServerError):
        await read_all(speaking(make, raw, retry=RetryPolicy(max_retries=2)), asked())
    assert len(raw.heard) == 3
    raw.answer(replies('{"error": {"message": "no"}}', "401 No"))
    with pytest.raises(AuthError):
        await read_all(speaking(make, raw, retry=RetryPolicy(max_retries=2)), asked())
    assert len(raw.heard) == 4
    with pytest.raises(ConfigError):
        RetryPolicy(max_retries=-1)


# --- which API -----------------------------------------------------------------------------------------------------


async def chat_hello(wire: Wire) -> None:
    await chunks(wire, {"choices": [{"delta": {"content": "Hello"}, "finish_reason": "stop"}]})


@pytest.fixture
def known(raw: RawServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The raw server counts as a service known to offer the Responses API."""
    spec = ServiceSpec(id="known", title="Known", base_url=raw.url, local=True, responses=True)
    monkeypatch.setattr(skald_openai.services, "all_services", lambda: (spec,))


def test_automatic_takes_responses_at_openai_and_chat_elsewhere() -> None:
    """As the services' file says; what a person chose is never overruled."""
    for service in all_services():
        endpoint = parse_endpoint(service.base_url)
        assert ApiChoice("automatic", endpoint.service).of(ask()) == ("responses" if service.id == "openai" else "chat")
        assert ApiChoice("chat", endpoint.service).of(ask()) == "chat"
        assert ApiChoice("responses", endpoint.service).of(ask(extra={"seed": 1})) == "responses"
    unknown = parse_endpoint("http://127.0.0.1:4711/v1").service
    assert ApiChoice("automatic", unknown).of(ask()) == "chat"


@pytest.mark.parametrize("fields", [{"stop_sequences": ("END",)}, {"extra": {"reasoning_effort": "low"}}])
def test_what_only_chat_completions_can_say_goes_there(fields: dict[str, Any]) -> None:
    """Stop sequences, and extra settings in the other API's words."""
    service = parse_endpoint("https://api.openai.com/v1").service
    assert ApiChoice("automatic", service).of(ask(**fields)) == "chat"
    assert ApiChoice("automatic", service).of(ask(extra={"reasoning_effort": None})) == "responses"


@pytest.mark.parametrize(
    "answer",
    [
        replies('{"detail":"Not Found"}', "404 Not Found"),
        replies("404 page not found", "404 Not Found", {"Content-Type": "text/plain"}),
        replies("<html>Not found</html>", "404 Not Found", {"Content-Type": "text/html"}),
        replies('{"detail":"Method Not Allowed"}', "405 Method Not Allowed"),
        replies('{"error":{"message":"Invalid URL (POST /v1/responses)","type":"invalid_request_error"}}', "404 No"),
        replies('{"error":"Unexpected endpoint or method. (POST /v1/responses)"}'),
        replies("{}", "501 Not Implemented"),
    ],
    ids=["fastapi", "go", "proxy", "405", "openai", "lmstudio", "501"],
)
async def test_a_server_without_it_gets_chat_completions(
    raw: RawServer, make: Make, known: None, answer: Script
) -> None:
    """In the same call, without a retry being counted, and from then on at once."""
    raw.answer(answer, chat_hello)
    provider = make(raw.url)
    for _ in range(2):
        assert told(await read_all(provider, ask()))["text"] == "Hello"
    assert [heard.path for heard in raw.heard] == ["/v1/responses", *["/v1/chat/completions"] * 2]
    assert "messages" in raw.heard[1].body
    assert "input" not in raw.heard[1].body


async def test_nothing_is_remembered_before_chat_has_answered(raw: RawServer, make: Make, known: None) -> None:
    """A wrong address, or a server that is being moved, teaches nothing about its APIs."""
    raw.answer(replies('{"detail":"Not Found"}', "404 Not Found"))
    provider = make(raw.url)
    with pytest.raises(ModelGoneError, match="no chat completions at"):
        await read_all(provider, ask())
    raw.answer(streams(created(), ended(message("Back."))))
    assert told(await read_all(provider, ask()))["text"] == "Back."


async def test_a_missing_model_is_no_missing_api(raw: RawServer, make: Make, known: None) -> None:
    """It is said at once, and nothing is asked twice."""
    said = {"error": {"message": "The model 'gpt-4o-mini' does not exist", "code": "model_not_found"}}
    raw.answer(replies(json.dumps(said), "404 Not Found"))
    with pytest.raises(ModelGoneError, match="does not have the model 'gpt-4o-mini'"):
        await read_all(make(raw.url), ask())
    assert [heard.path for heard in raw.heard] == ["/v1/responses"]


async def test_a_person_who_chose_responses_gets_an_error(raw: RawServer, make: Make) -> None:
    """And the words that help, instead of another API behind their back."""
    raw.answer(replies('{"detail":"Not Found"}', "404 Not Found"))
    with pytest.raises(ModelGoneError, match=r"has no Responses API at .* automatically"):
        await read_all(speaking(make, raw), asked())
    assert [heard.path for heard in raw.heard] == ["/v1/responses"]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("404 Not Found", "This model is only supported in v1/responses and not in v1/chat/completions."),
        (
            "400 Bad Request",
            "Function tools with reasoning_effort are not supported here. Use /v1/responses or set it to 'none'.",
        ),
    ],
)
async def test_a_model_that_wants_the_other_api_gets_it(raw: RawServer, make: Make, status: str, words: str) -> None:
    """At a server not known to have it, such as a gateway; its other models stay where they are."""
    hello = streams(created(), ended(message("Hello")))
    raw.answer(replies(json.dumps({"error": {"message": words}}), status), hello, hello, chat_hello)
    provider = make(raw.url)
    for request in (asked(), asked(), ask()):
        assert told(await read_all(provider, request))["text"] == "Hello"
    assert [heard.path.removeprefix("/v1") for heard in raw.heard] == [
        "/chat/completions",
        "/responses",
        "/responses",
        "/chat/completions",
    ]


@pytest.mark.parametrize(
    "words",
    [
        "This model is only supported in v1/chat/completions and not in v1/responses.",
        "The requested model 'gpt-4o-mini' cannot be used with the Responses API.",
        "The model `gpt-4o-mini` is not supported with the Responses API.",
    ],
)
async def test_a_model_that_only_chats(raw: RawServer, make: Make, known: None, words: str) -> None:
    """It gets chat completions; the others of its server keep what they have."""
    refusal = replies(json.dumps({"error": {"message": words}}), "400 Bad Request")
    raw.answer(refusal, chat_hello, chat_hello, streams(created(), ended(message("Hello"))))
    provider = make(raw.url)
    for request in (ask(), ask(), asked()):
        assert told(await read_all(provider, request))["text"] == "Hello"
    assert [heard.path.removeprefix("/v1") for heard in raw.heard] == [
        "/responses",
        "/chat/completions",
        "/chat/completions",
        "/responses",
    ]


async def test_two_apis_that_send_each_other_away(raw: RawServer, make: Make, known: None) -> None:
    """A call changes its API once."""
    raw.answer(
        replies('{"detail":"Not Found"}', "404 Not Found"),
        replies('{"error": {"message": "Only supported in v1/responses."}}', "404 Not Found"),
    )
    with pytest.raises(ModelGoneError):
        await read_all(make(raw.url), ask())
    assert len(raw.heard) == 2


async def test_stop_sequences_where_responses_was_chosen(raw: RawServer, make: Make) -> None:
    """The API has none, and silence about it would be worse."""
    with pytest.raises(ConfigError, match="no stop sequences"):
        await read_all(speaking(make, raw), ask(stop_sequences=("END",)))
    assert raw.heard == []


def test_models_nobody_knows(make: Make) -> None:
    """At OpenAI they have at least 128,000 tokens of context; elsewhere nobody can tell."""
    assert make("https://api.openai.com/v1").info("new-model").context_window == 128_000
    assert make("http://127.0.0.1:9/v1").info("new-model").context_window == 32_768
