"""What is sent to the Responses API: the items, the body around them, and what is learnt from refusals."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai_testkit import Make, ask

from skald_core.api import (
    CallPart,
    InvalidRequestError,
    MediaPart,
    MessageEnd,
    ModelInfo,
    ModelRequest,
    ReasoningPart,
    ResultPart,
    ServerReply,
    SystemBlock,
    TextPart,
    WireMessage,
    encode_body,
)
from skald_core.testing.servers import READ_FILE, RawServer, read_all, replies, streams, user
from skald_openai.responses.answer import ResponseAnswer
from skald_openai.responses.body import build_body
from skald_openai.responses.dialect import ResponsesDialect
from skald_openai.responses.items import to_input
from skald_openai.services import parse_endpoint

MODEL = "gpt-5.5"
PNG = MediaPart("image/png", b"\x89PNG", "cat.png")
PDF = MediaPart("application/pdf", b"%PDF", "plan.pdf")
SEEING = ModelInfo(capabilities=frozenset({"tools", "vision", "documents", "reasoning"}))
PNG_URL = "data:image/png;base64," + base64.b64encode(b"\x89PNG").decode()
PDF_URL = "data:application/pdf;base64," + base64.b64encode(b"%PDF").decode()


def dialect(base_url: str = "https://api.openai.com/v1") -> ResponsesDialect:
    return ResponsesDialect(parse_endpoint(base_url).service)


def asked(*messages: WireMessage, **fields: Any) -> ModelRequest:
    return ask(**{"model": MODEL, "info": SEEING, "messages": messages or (user("Hello"),), **fields})


def items(*messages: WireMessage, at: ResponsesDialect | None = None, **fields: Any) -> list[dict[str, Any]]:
    return to_input(asked(*messages, **fields), at or dialect())


# What a server said, and what the loop keeps of it.
THOUGHT = {"summary": [], "type": "reasoning", "id": "rs_1", "encrypted_content": "gAAA+/=="}
COMMENT = {
    "id": "msg_1",
    "phase": "commentary",
    "type": "message",
    "status": "completed",
    "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": "I will read it."}],
    "role": "assistant",
}
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "arguments": '{ "path":"a" }',
    "call_id": "call_1",
    "name": "read_file",
}
FINAL = {**COMMENT, "id": "msg_2", "phase": "final_answer", "content": [{"type": "output_text", "text": "Or not."}]}


def answered(*output: dict[str, Any], stored: bool = False, request: ModelRequest | None = None) -> WireMessage:
    """A response as the loop shows it again: parts, and the provider's own metadata through JSON."""
    answer = ResponseAnswer(request or asked(tools=(READ_FILE,)), lambda: "made", stored=stored)
    response = {"id": "resp_1", "status": "completed", "output": list(output)}
    events = [*answer.feed({"type": "response.completed", "response": response}), *answer.finish()]
    end = events[-1]
    assert isinstance(end, MessageEnd)
    metadata = None if end.metadata is None else json.loads(json.dumps(end.metadata))
    text = "".join(getattr(event, "text", "") for event in events if type(event).__name__ == "TextDelta")
    calls = [CallPart(i["call_id"], i["name"], i["arguments"]) for i in output if i["type"] == "function_call"]
    return WireMessage("assistant", (*((TextPart(text),) if text else ()), *calls), metadata)


RESULT = WireMessage("tool", (ResultPart("call_1", "text of a"),))

# --- items ---------------------------------------------------------------------------------------------------------


def test_a_whole_request_snapshot() -> None:
    """Everything at once, as a conversation that began with another provider is sent, to the byte."""
    request = asked(
        user("Read it"),
        WireMessage(
            "assistant", (ReasoningPart("hm"), TextPart("I will."), CallPart("a", "read_file", '{ "path":"x" }'))
        ),
        WireMessage("tool", (ResultPart("a", "first"), PNG)),
        WireMessage("assistant", (TextPart("Done."),)),
        WireMessage("user", (TextPart("And"), TextPart("this?"), PDF)),
        system=(SystemBlock("now: noon", stable=False), SystemBlock("You are Skald.")),
        tools=(READ_FILE,),
        effort="high",
        max_output_tokens=500,
        cache_key="c1",
    )
    assert json.loads(encode_body(build_body(request, dialect()))) == {
        "model": MODEL,
        "instructions": "You are Skald.\n\nnow: noon",
        "input": [
            {"role": "user", "content": "Read it"},
            {"role": "assistant", "content": "I will."},
            {"type": "function_call", "call_id": "a", "arguments": '{ "path":"x" }', "name": "read_file"},
            {
                "type": "function_call_output",
                "call_id": "a",
                "output": [
                    {"type": "input_text", "text": "first"},
                    {"type": "input_image", "detail": "auto", "image_url": PNG_URL},
                ],
            },
            {"role": "assistant", "content": "Done."},
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "And\n\nthis?"},
                    {"type": "input_file", "filename": "plan.pdf", "file_data": PDF_URL},
                ],
            },
        ],
        "tools": [
            {
                "type": "function",
                "name": "read_file",
                "description": "Read a file.",
                "parameters": READ_FILE.parameters,
                "strict": False,
            }
        ],
        "tool_choice": "auto",
        "reasoning": {"effort": "high", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": 500,
        "prompt_cache_key": "c1",
        "store": False,
        "stream": True,
    }


def test_the_smallest_body() -> None:
    """Nothing that was not asked for, but that the server is to keep nothing and to stream."""
    request = asked(system=(), info=ModelInfo(), model="gpt-4o")
    assert build_body(request, dialect()) == {
        "model": "gpt-4o",
        "input": [{"role": "user", "content": "Hello"}],
        "store": False,
        "stream": True,
    }


def test_what_the_model_said_goes_back_to_the_byte() -> None:
    """Thoughts with what is encrypted, messages with their phases, calls with their own text: in their places, as JSON that
    cannot be told from what came."""
    said = (THOUGHT, COMMENT, CALL, {**THOUGHT, "id": "rs_2"}, FINAL)
    wire = items(user("Read it"), answered(*said), RESULT)
    assert encode_body(wire[1:6]) == encode_body(list(said))
    assert wire[6] == {"type": "function_call_output", "call_id": "call_1", "output": "text of a"}


def test_tools_of_the_server_go_back_as_they_came() -> None:
    """A person may have added one in the model's extra settings."""
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "x"},
    }
    assert items(answered(search, FINAL)) == [search, FINAL]


@pytest.mark.parametrize(
    "change",
    [
        {"parts": (TextPart("I was cut"), CallPart("call_1", "read_file", "{}"))},
        {"parts": (TextPart("I will read it."),)},
        {
            "parts": (
                TextPart("I will read it."),
                CallPart("call_1", "read_file", "{}"),
                CallPart("c2", "read_file", "{}"),
            )
        },
    ],
)
def test_a_message_that_is_no_longer_the_same_is_sent_plainly(change: dict[str, Any]) -> None:
    """Ids of the server's own items would not be what they say."""
    kept = answered(THOUGHT, COMMENT, CALL)
    wire = items(WireMessage("assistant", change["parts"], kept.metadata))
    assert [item.get("type") for item in wire] == [None, *["function_call"] * (len(change["parts"]) - 1)]
    assert not any("id" in item for item in wire)


def test_another_model_gets_no_thoughts() -> None:
    """It could not read them, and would refuse the calls that belong to them."""
    wire = items(answered(THOUGHT, COMMENT, CALL), model="gpt-4.1")
    assert [item.get("type", item.get("role")) for item in wire] == ["assistant", "function_call"]
    assert not any("id" in item for item in wire)


def test_a_call_whose_id_was_changed_keeps_its_result() -> None:
    """As when an id came twice in one conversation."""
    kept = answered(THOUGHT, CALL)
    moved = WireMessage("assistant", (CallPart("other", "read_file", CALL["arguments"]),), kept.metadata)
    wire = items(moved, WireMessage("tool", (ResultPart("other", "x"),)))
    assert wire[1] == {**CALL, "call_id": "other"}
    assert wire[2]["call_id"] == "other"


def test_long_ids_of_other_providers_are_made_to_fit() -> None:
    """Call and result keep belonging together."""
    long = "x" * 80
    wire = items(
        WireMessage("assistant", (CallPart(long, "read_file", "{}"),)), WireMessage("tool", (ResultPart(long, "x"),))
    )
    assert wire[0]["call_id"] == wire[1]["call_id"]
    assert len(wire[0]["call_id"]) <= 64


@pytest.mark.parametrize(
    ("parts", "output"),
    [
        ((ResultPart("c", ""),), "(no output)"),
        ((ResultPart("c", "", is_error=True),), "(no output)"),
        ((ResultPart("c", ""), PNG), [{"type": "input_image", "detail": "auto", "image_url": PNG_URL}]),
        (
            (ResultPart("c", "two"), PNG, PDF),
            [
                {"type": "input_text", "text": "two"},
                {"type": "input_image", "detail": "auto", "image_url": PNG_URL},
                {"type": "input_file", "filename": "plan.pdf", "file_data": PDF_URL},
            ],
        ),
        (
            (ResultPart("c", "a film"), MediaPart("video/mp4", b"x", "f.mp4")),
            "a film\n\n['f.mp4' (video/mp4) was left out: this model cannot look at it.]",
        ),
    ],
)
def test_results(parts: tuple[Any, ...], output: Any) -> None:
    """Text, images, both or neither; what cannot be looked at becomes a note."""
    assert items(WireMessage("tool", parts)) == [{"type": "function_call_output", "call_id": "c", "output": output}]


def test_media_belong_to_the_result_before_them() -> None:
    """And what comes before any result is not lost."""
    wire = items(WireMessage("tool", (PDF, ResultPart("a", "one"), PNG, ResultPart("b", "two"))))
    assert [len(item["output"]) for item in wire[:2]] == [2, 3]
    assert wire[1]["output"] == "two"
    assert wire[2]["role"] == "user"
    assert wire[2]["content"][1]["type"] == "input_file"


def test_messages_that_hold_nothing_are_left_out() -> None:
    """Servers refuse them."""
    assert items(user("a"), WireMessage("assistant", (ReasoningPart("x"),)), user("")) == [
        {"role": "user", "content": "a"}
    ]


@pytest.mark.parametrize(("raw", "sent"), [("", "{}"), ("[1]", '{"invalid_arguments":"[1]"}')])
def test_broken_arguments_are_sent_back_as_an_object(raw: str, sent: str) -> None:
    """A server that parses history would refuse the conversation for ever otherwise."""
    assert items(WireMessage("assistant", (CallPart("c", "read_file", raw),)))[0]["arguments"] == sent


# --- the body ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "effort", "sent"),
    [
        (MODEL, None, {"summary": "auto"}),
        (MODEL, "xhigh", {"effort": "xhigh", "summary": "auto"}),
        (MODEL, "max", {"effort": "max", "summary": "auto"}),
        (MODEL, "none", {"effort": "none"}),
        ("gpt-4o", "high", None),
        ("unheard-of", "high", {"effort": "high"}),
        ("unheard-of", None, None),
    ],
)
def test_reasoning(model: str, effort: str | None, sent: Any) -> None:
    """Asked for with a summary, which is all this API shows of it; nothing for a model known not to reason."""
    body = build_body(asked(model=model, effort=effort, info=ModelInfo()), dialect())
    assert body.get("reasoning") == sent
    assert ("include" in body) == (model == MODEL)


def test_the_output_cap() -> None:
    """Left out unless asked for; the API takes none below sixteen."""
    assert "max_output_tokens" not in build_body(asked(), dialect())
    assert build_body(asked(max_output_tokens=8), dialect())["max_output_tokens"] == 16
    assert build_body(asked(max_output_tokens=99), dialect())["max_output_tokens"] == 99


def test_extra_settings_win() -> None:
    """They are merged last; null takes a field out."""
    body = build_body(asked(extra={"include": None, "text": {"verbosity": "low"}, "model": "other"}), dialect())
    assert (body["model"], body["text"], "include" in body) == ("other", {"verbosity": "low"}, False)


CHAINED = {"store": True, "previous_response_id": "auto"}


def chained(**fields: Any) -> ModelRequest:
    first = asked(user("Read it"), extra=CHAINED)
    said = answered(THOUGHT, CALL, stored=True, request=first)
    return asked(*first.messages, said, RESULT, **{"extra": CHAINED, **fields})


def test_building_on_what_the_server_stores() -> None:
    """Only when both settings say so: then only what came after the last response is sent, and the instructions again."""
    body = build_body(chained(), dialect())
    assert body["previous_response_id"] == "resp_1"
    assert [item["type"] for item in body["input"]] == ["function_call_output"]
    assert body["instructions"] == "Be brief."
    assert body["store"] is True


@pytest.mark.parametrize(
    "fields",
    [
        {"extra": {}},
        {"extra": {"previous_response_id": "auto"}},
        {"extra": {"store": False, "previous_response_id": "auto"}},
        {"model": "gpt-5.4", "extra": CHAINED},
    ],
)
def test_not_building_on_it(fields: dict[str, Any]) -> None:
    """By default, without storing, or with another model, everything is sent."""
    body = build_body(chained(**fields), dialect())
    assert "previous_response_id" not in body
    assert len(body["input"]) == 4 if fields.get("model") is None else len(body["input"]) == 3
    assert body["store"] is (fields["extra"].get("store") is True)


def test_a_compacted_conversation_is_not_built_on() -> None:
    """The server would remember what was to be forgotten."""
    request = chained()
    assert (
        build_body(asked(user("A summary"), *request.messages, extra=CHAINED), dialect()).get("previous_response_id")
        is None
    )
    forgotten = dialect()
    forgotten.refused.add("resp_1")
    assert "previous_response_id" not in build_body(request, forgotten)


def test_a_first_request_builds_on_nothing() -> None:
    """Nor does one after an answer that was not stored."""
    assert "previous_response_id" not in build_body(asked(extra=CHAINED), dialect())
    plain = WireMessage("assistant", (TextPart("Hi"),))
    assert "previous_response_id" not in build_body(asked(user("a"), plain, user("b"), extra=CHAINED), dialect())


# --- learning ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "gone"),
    [
        (
            ServerReply(
                "Your organization must be verified to generate reasoning summaries.", param="reasoning.summary"
            ),
            ("reasoning", "summary"),
        ),
        (
            ServerReply("Unsupported parameter: 'reasoning.effort' is not supported with this model."),
            ("reasoning", "effort"),
        ),
        (ServerReply("Unknown parameter: 'reasoning'."), ("reasoning", "")),
        (ServerReply("Encrypted content is not supported with this model.", param="include"), ("include", "")),
        (ServerReply("Encrypted content is not supported with this model."), ("include", "")),
        (ServerReply("Unsupported parameter: 'temperature'", param="temperature"), ("temperature", "")),
        (ServerReply("Extra inputs are not permitted", param="store"), ("store", "")),
        (ServerReply("Unknown parameter: prompt_cache_key"), ("prompt_cache_key", "")),
    ],
)
def test_fields_that_are_refused_are_left_out(reply: ServerReply, gone: tuple[str, str]) -> None:
    """Each by itself, and for good."""
    at = dialect()
    request = asked(effort="high", temperature=0.5, cache_key="k")
    before = build_body(request, at)
    at.learn(reply, before, request.extra)
    after = build_body(request, at)
    field, inner = gone
    expected = {key: value for key, value in before.items() if key != field}
    if inner:
        expected[field] = {key: value for key, value in before[field].items() if key != inner}
    assert after == expected


def test_levels_the_model_has() -> None:
    """The nearest one is taken from then on; the same refusal of a call that was under way changes nothing."""
    at = dialect()
    request = asked(effort="xhigh")
    sent = build_body(request, at)
    said = "Unsupported value: 'xhigh' is not supported with this model. Supported values are: 'low', 'medium', and 'high'."
    for _ in range(2):
        at.learn(ServerReply(said, param="reasoning.effort"), sent, {})
        assert build_body(request, at)["reasoning"]["effort"] == "high"


def test_instructions_that_are_refused_become_a_message() -> None:
    """Some servers have no such field."""
    at = dialect()
    at.learn(ServerReply("Argument not supported: instructions"), build_body(asked(), at), {})
    body = build_body(asked(), at)
    assert "instructions" not in body
    assert body["input"][0] == {"role": "system", "content": "Be brief."}


def test_what_a_person_set_is_never_touched() -> None:
    """They get the refusal."""
    at = dialect()
    extra = {"reasoning": {"summary": "detailed"}, "instructions": "x"}
    for field in ("reasoning.summary", "instructions"):
        at.learn(ServerReply("Unsupported value", param=field), build_body(asked(extra=extra), at), extra)
    assert (at.left_out, at.instructions) == (set(), True)


@pytest.mark.parametrize(
    "reply",
    [
        ServerReply("The encrypted content gAAA... could not be verified.", code="invalid_encrypted_content"),
        ServerReply("Item 'rs_1' of type 'reasoning' was provided without its required following item."),
        ServerReply("Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."),
    ],
)
def test_thoughts_the_server_cannot_read_are_left_out(reply: ServerReply) -> None:
    """Those, as after a change of the account; later ones go back as before."""
    at = dialect()
    old, new = answered(THOUGHT, CALL), answered({**THOUGHT, "id": "rs_9"}, {**CALL, "call_id": "call_9"})
    at.learn(reply, build_body(asked(old, RESULT), at), {})
    wire = items(old, RESULT, new, at=at)
    assert [(item["type"], item.get("id")) for item in wire] == [
        ("function_call", None),
        ("function_call_output", None),
        ("reasoning", "rs_9"),
        ("function_call", "fc_1"),
    ]


async def test_a_forgotten_response_is_sent_in_full(raw: RawServer, make: Make) -> None:
    """In the same call: what the server stored may be gone."""
    said = {
        "error": {"message": "Previous response with id 'resp_1' not found.", "code": "previous_response_not_found"}
    }
    raw.answer(
        replies(json.dumps(said), "400 Bad Request"),
        streams({"type": "response.completed", "response": {"status": "completed", "output": [FINAL]}}),
    )
    await read_all(make(raw.url, api="responses"), chained())
    assert [len(heard.body["input"]) for heard in raw.heard] == [1, 4]


async def test_a_refusal_that_teaches_nothing_is_final(raw: RawServer, make: Make) -> None:
    """It is sent once, and comes with the server's words."""
    raw.answer(replies('{"error": {"message": "No.", "param": "input"}}', "400 Bad Request"))
    with pytest.raises(InvalidRequestError, match=r"It said: No\."):
        await read_all(make(raw.url, api="responses"), chained())
    assert len(raw.heard) == 1


# --- whatever the history ------------------------------------------------------------------------------------------

USERS = st.builds(
    WireMessage, st.just("user"), st.lists(st.builds(TextPart, st.text(max_size=8)), max_size=2).map(tuple)
)
KEPT = st.sampled_from([None, answered(THOUGHT, COMMENT, CALL).metadata, answered(THOUGHT, CALL).metadata])


@st.composite
def histories(draw: st.DrawFn) -> tuple[WireMessage, ...]:
    """Lawful histories, with replay state that fits or does not."""
    out: list[WireMessage] = []
    for number in range(draw(st.integers(0, 4))):
        out.append(draw(USERS))
        said = draw(st.sampled_from([("I will read it.", 1), ("", 1), ("Or so.", 0), ("I will read it.", 2)]))
        calls = [CallPart(f"c{number}_{i}", "read_file", draw(st.text(max_size=9))) for i in range(said[1])]
        text = (TextPart(said[0]),) if said[0] else ()
        out.append(WireMessage("assistant", (*text, *calls), draw(KEPT)))
        if calls:
            media = (PNG,) if draw(st.booleans()) else ()
            results = tuple(ResultPart(c.id, draw(st.text(max_size=8))) for c in calls)
            out.append(WireMessage("tool", (*results, *media)))
    return tuple(out)


@given(histories(), st.booleans(), st.sampled_from([MODEL, "gpt-4.1"]))
def test_no_history_breaks_the_rules(history: tuple[WireMessage, ...], sees: bool, model: str) -> None:
    """Every call has its one result after it, arguments are objects, a thought is followed by what belongs to it, and nothing
    a model cannot look at is sent."""
    info = SEEING if sees else ModelInfo()
    wire = json.loads(encode_body(to_input(asked(*history, model=model, info=info), dialect())))
    calls = [item["call_id"] for item in wire if item.get("type") == "function_call"]
    results = [item["call_id"] for item in wire if item.get("type") == "function_call_output"]
    assert calls == results
    assert len(set(calls)) == len(calls)
    for item, after in zip(wire, [*wire[1:], {}], strict=True):
        if item.get("type") == "function_call":
            assert isinstance(json.loads(item["arguments"]), dict)
        if item.get("type") == "reasoning":
            assert model == MODEL
            assert after.get("type") in ("message", "function_call")
    assert sees or "input_image" not in json.dumps(wire)


@given(histories())
def test_a_longer_history_keeps_the_prefix(history: tuple[WireMessage, ...]) -> None:
    """So that the server's prompt cache does."""
    whole = to_input(asked(*history), dialect())
    for size in range(1, len(history) + 1):
        part = to_input(asked(*history[:size]), dialect())
        assert encode_body(whole[: len(part)]) == encode_body(part)
