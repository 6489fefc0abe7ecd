"""What is sent: the messages, the body around them, and what is learnt from refusals."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai_testkit import ask

from skald_core.api import (
    CallPart,
    MediaPart,
    ModelInfo,
    ModelRequest,
    ReasoningPart,
    ResultPart,
    ServerReply,
    SystemBlock,
    TextPart,
    ToolSpec,
    WireMessage,
    encode_body,
)
from skald_core.testing.servers import READ_FILE, user
from skald_openai.dialect import Dialect
from skald_openai.messages import to_messages
from skald_openai.payload import build_body
from skald_openai.provider import OpenAIProvider
from skald_openai.services import parse_endpoint

PNG = MediaPart("image/png", b"\x89PNG", "cat.png")
SEEING = ModelInfo(capabilities=frozenset({"tools", "vision"}))


def dialect(base_url: str = "http://127.0.0.1:8080/v1", model: str = "some-model") -> Dialect:
    return Dialect(parse_endpoint(base_url).service, model)


def messages(*wire: WireMessage, at: Dialect | None = None, **changes: Any) -> list[dict[str, Any]]:
    changes.setdefault("system", ())
    return to_messages(ask(messages=wire, **changes), at or dialect())


def called(*parts: Any, state: dict[str, Any] | None = None) -> WireMessage:
    """An assistant message that calls a tool."""
    metadata = {"openai": state} if state else None
    return WireMessage("assistant", (*parts, CallPart("c1", "read_file", '{"path":"a"}')), metadata)


ANSWERED = WireMessage("tool", (ResultPart("c1", "text"),))

# --- messages ----------------------------------------------------------------------------------------------------


def test_a_whole_round_snapshot() -> None:
    """System first and joined, text and calls together, raw arguments byte for byte, one message per result."""
    wire = to_messages(
        ask(
            system=(SystemBlock("now: noon", stable=False), SystemBlock("You are Skald."), SystemBlock("Tools: one.")),
            messages=(
                user("Read both"),
                WireMessage(
                    "assistant",
                    (
                        ReasoningPart("hm"),
                        TextPart("I will."),
                        CallPart("a", "read_file", '{ "path":"x" }'),
                        CallPart("b", "read_file", '{"path":"y"}'),
                    ),
                ),
                WireMessage("tool", (ResultPart("a", "first"), ResultPart("b", "Error: no", is_error=True))),
                WireMessage("assistant", (TextPart("Done."),)),
            ),
        ),
        dialect(),
    )
    assert wire == [
        {"role": "system", "content": "You are Skald.\n\nTools: one.\n\nnow: noon"},
        {"role": "user", "content": "Read both"},
        {
            "role": "assistant",
            "content": "I will.",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "read_file", "arguments": '{ "path":"x" }'}},
                {"id": "b", "type": "function", "function": {"name": "read_file", "arguments": '{"path":"y"}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "first"},
        {"role": "tool", "tool_call_id": "b", "content": "Error: no"},
        {"role": "assistant", "content": "Done."},
    ]


def test_calls_without_text_have_null_content() -> None:
    """As the API wants it."""
    assert messages(called())[0]["content"] is None


def test_messages_that_hold_nothing_are_left_out() -> None:
    """Servers refuse them."""
    empty = WireMessage("assistant", (ReasoningPart("only thought"),))
    assert messages(user("a"), empty, user("")) == [{"role": "user", "content": "a"}]


@pytest.mark.parametrize(
    ("raw", "sent"),
    [
        ("", "{}"),
        ("  ", "{}"),
        ('{"a": 1', '{"invalid_arguments":"{\\"a\\": 1"}'),
        ("[1]", '{"invalid_arguments":"[1]"}'),
    ],
)
def test_broken_arguments_are_sent_back_as_an_object(raw: str, sent: str) -> None:
    """A server that parses history would refuse the conversation for ever otherwise."""
    (wire,) = messages(WireMessage("assistant", (CallPart("c", "read_file", raw),)))
    assert wire["tool_calls"][0]["function"]["arguments"] == sent


def test_an_empty_result_says_so() -> None:
    """Some servers refuse empty content, and models take it for a fault."""
    assert messages(WireMessage("tool", (ResultPart("c", ""),)))[0]["content"] == "(no output)"


def test_an_image_for_a_model_that_sees() -> None:
    """As a data URL, in the order given, neighbouring texts joined."""
    (wire,) = messages(WireMessage("user", (TextPart("Look"), TextPart("here"), PNG, TextPart("well?"))), info=SEEING)
    url = "data:image/png;base64," + base64.b64encode(b"\x89PNG").decode()
    assert wire["content"] == [
        {"type": "text", "text": "Look\n\nhere"},
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": "well?"},
    ]


def test_an_image_for_a_model_that_does_not_see() -> None:
    """Never the bytes; a note in their place."""
    (wire,) = messages(WireMessage("user", (TextPart("Look"), PNG)))
    assert wire["content"] == "Look\n\n['cat.png' (image/png) was left out: this model cannot look at it.]"


@pytest.mark.parametrize(
    ("media", "capability", "kind"),
    [
        ("application/pdf", "documents", "file"),
        ("video/mp4", "video", "video_url"),
        ("image/webp", "vision", "image_url"),
        ("image/svg+xml", "vision", "text"),
        ("audio/wav", "vision", "text"),
    ],
)
def test_each_kind_of_media(media: str, capability: str, kind: str) -> None:
    """Each in the part its capability stands for; what has none becomes a note."""
    info = ModelInfo(capabilities=frozenset({capability}))
    content = messages(WireMessage("user", (MediaPart(media, b"x"),)), info=info)[0]["content"]
    assert kind == ("text" if isinstance(content, str) else content[0]["type"])
    blind = messages(WireMessage("user", (MediaPart(media, b"x"),)), info=ModelInfo(capabilities=frozenset()))
    assert isinstance(blind[0]["content"], str)


def test_media_of_tools_follows_as_a_user_message() -> None:
    """A tool message can only hold text."""
    wire = messages(called(), WireMessage("tool", (ResultPart("c1", "a picture"), PNG)), info=SEEING)
    assert [m["role"] for m in wire] == ["assistant", "tool", "user"]
    assert wire[2]["content"][0]["text"] == "Files from the tool results above:"
    assert wire[2]["content"][1]["type"] == "image_url"


# --- reasoning goes back where it is wanted ------------------------------------------------------------------------


def test_reasoning_is_dropped_by_default() -> None:
    """No field a server did not ask for."""
    assert set(messages(called(ReasoningPart("hm")))[0]) == {"role", "content", "tool_calls"}


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_families_that_need_it_get_it_back_in_the_field_it_came_in(field: str) -> None:
    """Wherever they are served, with the messages that call tools and only there."""
    at = dialect(model="moonshotai/kimi-k2.6")
    plain = WireMessage("assistant", (ReasoningPart("hm"), TextPart("Hi")), {"openai": {"reasoning_field": field}})
    wire = messages(called(ReasoningPart("hm"), state={"reasoning_field": field}), ANSWERED, plain, at=at)
    assert wire[0][field] == "hm"
    assert "reasoning_content" not in wire[2]
    assert "reasoning" not in wire[2]


def test_a_placeholder_where_reasoning_must_not_be_missing() -> None:
    """A chat that moves to DeepSeek brings calls of models that do not think; plain messages get no placeholder."""
    at = dialect("https://api.deepseek.com/v1", "deepseek-v4-pro")
    wire = messages(called(), ANSWERED, WireMessage("assistant", (TextPart("Hi"),)), at=at)
    assert wire[0]["reasoning_content"] == "."
    assert "reasoning_content" not in wire[2]


def test_empty_reasoning_never_makes_an_empty_field() -> None:
    """Where no placeholder is known, the field stays away."""
    wire = messages(called(ReasoningPart("")), at=dialect(model="kimi-k2.6"))
    assert "reasoning_content" not in wire[0]


def test_vllm_gets_it_in_both_fields() -> None:
    """Its releases differ in the name; plain answers get neither, and no message an empty one."""
    at = dialect("http://127.0.0.1:8000/v1", "qwen3-8b")
    wire = messages(
        called(ReasoningPart("hm"), state={"reasoning_field": "reasoning"}), ANSWERED, called(), ANSWERED,
        WireMessage("assistant", (ReasoningPart("hm"), TextPart("Done."))), at=at,
    )  # fmt: skip
    assert (wire[0]["reasoning_content"], wire[0]["reasoning"]) == ("hm", "hm")
    for plain in (wire[2], wire[4]):
        assert not plain.keys() & {"reasoning", "reasoning_content"}


MAIL = ToolSpec("mail", "Send mail.", {"type": "object", "properties": {}})
LOADED = (user("Write to Ada."), called(), ANSWERED, WireMessage("system", (), tools=(MAIL,)))


def test_tools_loaded_by_message_snapshot() -> None:
    """A system message with tools and no content, right after the results; the request's own list stays as it was."""
    body = build_body(ask(messages=LOADED, tools=(READ_FILE,)), dialect("https://api.moonshot.ai/v1", "kimi-k3"))
    assert [tool["function"]["name"] for tool in body["tools"]] == ["read_file"]
    assert body["messages"][-2]["role"] == "tool"
    assert body["messages"][-1] == {
        "role": "system",
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "mail",
                    "description": "Send mail.",
                    "parameters": {"type": "object", "properties": {}},
                },
            }
        ],
    }


@pytest.mark.parametrize(
    "message",
    [
        "messages[3].content: field required",
        "Invalid request: message at position 3 must not be empty: content is missing",
        "messages.3.tools: Extra inputs are not permitted",
    ],
)
def test_a_server_that_takes_no_tools_in_messages_gets_them_in_its_list(message: str) -> None:
    """Learnt from one refusal."""
    at = dialect("https://api.moonshot.ai/v1", "kimi-k3")
    request = ask(messages=LOADED, tools=(READ_FILE,))
    assert at.learn(ServerReply(message=message, status=400), build_body(request, at), {})
    body = build_body(request, at)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["read_file", "mail"]
    assert [found["role"] for found in body["messages"]][-1] == "tool"
    assert not at.learn(ServerReply(message=message, status=400), body, {})


@pytest.mark.parametrize(
    ("base_url", "model", "want"),
    [
        ("https://api.moonshot.ai/v1", "kimi-k3", "system"),
        ("https://api.moonshot.cn/v1", "kimi-k3-turbo", "system"),
        ("https://api.moonshot.ai/v1", "kimi-k2.6", "inline"),
        ("http://127.0.0.1:8000/v1", "kimi-k3", "inline"),
        ("https://api.openai.com/v1", "gpt-5.5", "inline"),
    ],
)
def test_which_models_load_tools_by_message(base_url: str, model: str, want: str) -> None:
    """Where the service is known to take it; what the caller says wins."""
    assert OpenAIProvider(provider_id="p", base_url=base_url).info(model).tool_loading == want
    said = OpenAIProvider(provider_id="p", base_url=base_url, infos={model: SEEING})
    assert said.info(model).tool_loading == "inline"


@pytest.mark.parametrize(
    "base", ["https://api.openai.com/v1", "https://api.groq.com/openai/v1", "https://api.mistral.ai/v1"]
)
def test_services_that_refuse_it_never_get_it(base: str) -> None:
    """Whatever the family."""
    wire = messages(
        called(ReasoningPart("hm"), state={"reasoning_field": "reasoning"}), at=dialect(base, "gpt-oss-120b")
    )
    assert "reasoning" not in wire[0]


def test_openrouters_details_go_back_to_the_model_that_wrote_them() -> None:
    """They are signed; another model could not use them."""
    details = [{"type": "reasoning.encrypted", "data": "xyz"}]
    state = {"model": "anthropic/claude-sonnet-4.5", "reasoning_details": details}
    at = dialect("https://openrouter.ai/api/v1", "anthropic/claude-sonnet-4.5")
    assert messages(called(state=state), at=at, model="anthropic/claude-sonnet-4.5")[0]["reasoning_details"] == details
    assert "reasoning_details" not in messages(called(state=state), at=at, model="openai/gpt-5.5")[0]


def test_geminis_signatures() -> None:
    """What came with a call goes back with it; a call of another model gets the word that skips the check."""
    at = dialect("https://generativelanguage.googleapis.com/v1beta/openai", "gemini-3.5-flash")
    signed = {"google": {"thought_signature": "sig"}}
    own = messages(called(state={"calls": {"c1": signed}}), at=at, model="gemini-3.5-flash")
    assert own[0]["tool_calls"][0]["extra_content"] == signed
    foreign = messages(called(), at=at, model="gemini-3.5-flash")
    assert "skip" in foreign[0]["tool_calls"][0]["extra_content"]["google"]["thought_signature"]
    assert "extra_content" not in messages(called(), at=at, model="models/gemini-2.5-pro")[0]["tool_calls"][0]
    assert "extra_content" not in messages(called(state={"calls": {"c1": signed}}))[0]["tool_calls"][0]


# --- other services' rules -----------------------------------------------------------------------------------------


def test_mistral_gets_nine_character_ids_that_still_match() -> None:
    """Call and result keep belonging together; an id that fits already stays."""
    at = dialect("https://api.mistral.ai/v1", "mistral-large-latest")
    wire = messages(called(), ANSWERED, at=at)
    call_id = wire[0]["tool_calls"][0]["id"]
    assert len(call_id) == 9
    assert call_id.isalnum()
    assert wire[1]["tool_call_id"] == call_id
    kept = messages(WireMessage("assistant", (CallPart("abcDEF123", "read_file", "{}"),)), at=at)
    assert kept[0]["tool_calls"][0]["id"] == "abcDEF123"


def test_openai_gets_no_id_over_forty_characters() -> None:
    """Kimi's and others' may be longer."""
    at = dialect("https://api.openai.com/v1", "gpt-5.5")
    long = "functions.read_file:" + "0" * 40
    wire = messages(
        WireMessage("assistant", (CallPart(long, "read_file", "{}"),)),
        WireMessage("tool", (ResultPart(long, "x"),)),
        at=at,
    )
    call_id = wire[0]["tool_calls"][0]["id"]
    assert len(call_id) <= 40
    assert wire[1]["tool_call_id"] == call_id


def test_mistral_families_get_a_message_between_result_and_person() -> None:
    """They refuse a user message right after a tool's, as when somebody steers a running turn."""
    at = dialect(model="mistralai/devstral-small-2512")
    wire = messages(called(), ANSWERED, user("Stop"), at=at)
    assert [m["role"] for m in wire] == ["assistant", "tool", "assistant", "user"]
    assert [m["role"] for m in messages(called(), ANSWERED, user("Stop"))] == ["assistant", "tool", "user"]


def test_cache_marks_for_claude_through_a_gateway() -> None:
    """On the stable part of the system message and on the end; nowhere for other families, or when caching is off."""
    at = dialect("https://openrouter.ai/api/v1", "anthropic/claude-sonnet-4.5")
    system = (SystemBlock("stable"), SystemBlock("moving", stable=False))
    wire = messages(user("Hi"), at=at, system=system)
    mark = {"type": "ephemeral"}
    assert wire == [
        {
            "role": "system",
            "content": [
                {"type": "text", "text": "stable", "cache_control": mark},
                {"type": "text", "text": "moving"},
            ],
        },
        {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": mark}]},
    ]
    assert messages(user("Hi"), at=at, system=system, cache=False)[1]["content"] == "Hi"
    plain = dialect("https://openrouter.ai/api/v1", "openai/gpt-5.5")
    assert messages(user("Hi"), at=plain, system=system)[0]["content"] == "stable\n\nmoving"


PARTS = st.builds(TextPart, st.text(max_size=8)) | st.builds(
    MediaPart, st.sampled_from(["image/png", "audio/wav"]), st.binary(max_size=4)
)
USERS = st.builds(WireMessage, st.just("user"), st.lists(PARTS, max_size=3).map(tuple))
CALLS = st.lists(
    st.builds(CallPart, st.sampled_from("abc"), st.just("read_file"), st.text(max_size=9)),
    max_size=2,
    unique_by=lambda c: c.id,
)


@st.composite
def histories(draw: st.DrawFn) -> tuple[WireMessage, ...]:
    """Lawful histories: every call is answered right after it."""
    out: list[WireMessage] = []
    for _ in range(draw(st.integers(0, 4))):
        out.append(draw(USERS))
        calls = draw(CALLS)
        texts = draw(
            st.lists(
                st.builds(TextPart, st.text(max_size=8)) | st.builds(ReasoningPart, st.text(max_size=8)), max_size=2
            )
        )
        out.append(WireMessage("assistant", (*texts, *calls)))
        if calls:
            out.append(WireMessage("tool", tuple(ResultPart(c.id, draw(st.text(max_size=8))) for c in calls)))
    return tuple(out)


@given(
    histories(),
    st.sampled_from(["some-model", "mistral-large", "kimi-k2.6", "claude-x"]),
    st.sampled_from(["http://127.0.0.1:8080/v1", "https://openrouter.ai/api/v1", "https://api.mistral.ai/v1"]),
    st.booleans(),
)
def test_no_history_breaks_the_rules(history: tuple[WireMessage, ...], model: str, base: str, sees: bool) -> None:
    """No unanswered call, no orphan result, no empty message, arguments always a JSON object, and always the same bytes."""
    info = SEEING if sees else ModelInfo()
    request = ask(model=model, messages=history, info=info)
    wire = to_messages(request, dialect(base, model))
    assert wire == to_messages(request, dialect(base, model))
    waiting: list[str] = []
    for message in wire:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
        else:
            assert not waiting
        assert message["content"] or message.get("tool_calls")
        for call in message.get("tool_calls", ()):
            waiting.append(call["id"])
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
    assert not waiting
    json.loads(encode_body({"messages": wire}))


@given(histories())
def test_a_longer_history_keeps_the_prefix(history: tuple[WireMessage, ...]) -> None:
    """What was sent before is sent again byte for byte, or the server's cache would be lost."""
    full = to_messages(ask(messages=history), dialect())
    for cut in range(len(history)):
        if history[cut].role != "tool":
            before = to_messages(ask(messages=history[:cut]), dialect())
            assert full[: len(before)] == before


# --- the body ------------------------------------------------------------------------------------------------------


def body(request: ModelRequest, base: str = "http://127.0.0.1:8080/v1") -> dict[str, Any]:
    return build_body(request, dialect(base, request.model))


def test_the_body_of_a_plain_call() -> None:
    """Streaming with usage; nothing that was not asked for."""
    assert body(ask()) == {
        "model": "gpt-4o-mini",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_the_body_of_a_full_call() -> None:
    """Everything in its place, the extra settings last."""
    tools = (READ_FILE, ToolSpec("now", "The time.", {}))
    got = body(
        ask(
            tools=tools,
            max_output_tokens=99,
            temperature=0.5,
            stop_sequences=("END",),
            extra={"top_p": 1, "temperature": 0},
        )
    )
    assert [tool["function"]["name"] for tool in got["tools"]] == ["read_file", "now"]
    assert got["tools"][0]["function"]["parameters"] == READ_FILE.parameters
    assert got["tools"][1]["function"]["parameters"] == {"type": "object", "properties": {}}
    assert got["tool_choice"] == "auto"
    assert got["max_tokens"] == 99
    assert got["stop"] == ["END"]
    assert (got["top_p"], got["temperature"]) == (1, 0)
    assert list(got)[-1] == "top_p"


def test_an_extra_setting_of_none_takes_a_field_out() -> None:
    """For servers that refuse one."""
    assert "stream_options" not in body(ask(extra={"stream_options": None}))


def test_the_output_cap_has_two_names() -> None:
    """OpenAI's reasoning models refuse the old one, most other servers do not know the new one."""
    request = ask(max_output_tokens=5)
    assert "max_tokens" not in body(request, "https://api.openai.com/v1")
    assert body(request, "https://api.openai.com/v1")["max_completion_tokens"] == 5
    assert body(request, "https://api.deepseek.com/v1")["max_tokens"] == 5


def test_the_cache_key_goes_to_openai_only() -> None:
    """Others may refuse it."""
    request = ask(cache_key="conversation-7")
    assert body(request, "https://api.openai.com/v1")["prompt_cache_key"] == "conversation-7"
    assert "prompt_cache_key" not in body(request)


@pytest.mark.parametrize(
    ("base", "model", "effort", "want"),
    [
        ("https://api.openai.com/v1", "gpt-5.5", "high", {"reasoning_effort": "high"}),
        ("https://api.openai.com/v1", "gpt-5.5", "max", {"reasoning_effort": "max"}),
        ("https://openrouter.ai/api/v1", "openai/gpt-5.5", "max", {"reasoning": {"effort": "xhigh"}}),
        ("https://api.openai.com/v1", "gpt-4o", "high", {}),
        ("http://127.0.0.1:8080/v1", "unheard-of", "minimal", {"reasoning_effort": "low"}),
        ("http://127.0.0.1:8080/v1", "unheard-of", "none", {"reasoning_effort": "none"}),
        ("http://127.0.0.1:8080/v1", "unheard-of", "ludicrous", {"reasoning_effort": "ludicrous"}),
        ("https://openrouter.ai/api/v1", "openai/gpt-5.5", "low", {"reasoning": {"effort": "low"}}),
        (
            "https://api.deepseek.com/v1",
            "deepseek-v4-pro",
            "medium",
            {"thinking": {"type": "enabled"}, "reasoning_effort": "medium"},
        ),
        ("https://api.deepseek.com/v1", "deepseek-v4-pro", "none", {"thinking": {"type": "disabled"}}),
        ("https://api.moonshot.ai/v1", "kimi-k2.6", "high", {"thinking": {"type": "enabled"}}),
        ("https://api.z.ai/api/paas/v4", "glm-5.1", "none", {"thinking": {"type": "disabled"}}),
    ],
)
def test_effort_in_each_services_words(base: str, model: str, effort: str, want: dict[str, Any]) -> None:
    """Moved to the nearest level there is; not sent to a model known not to reason."""
    got = body(ask(model=model, effort=effort), base)
    assert {key: got[key] for key in ("reasoning", "reasoning_effort", "thinking") if key in got} == want


def test_services_extras_come_before_the_models() -> None:
    """OpenRouter is asked for the cost, unless the admin says otherwise."""
    assert body(ask(), "https://openrouter.ai/api/v1")["usage"] == {"include": True}
    assert body(ask(extra={"usage": {"include": False}}), "https://openrouter.ai/api/v1")["usage"] == {"include": False}
    assert "stream_options" not in body(ask(), "https://api.mistral.ai/v1")


def test_half_characters_do_not_stop_a_request() -> None:
    """A lone surrogate cannot be sent as UTF-8; the rest of the text still can."""
    sent = json.loads(encode_body(body(ask("a\ud83db"))))
    assert sent["messages"][1]["content"] == "a?b"


# --- learning from refusals ------------------------------------------------------------------------------------------


def learn(
    reply: ServerReply, request: ModelRequest, base: str = "http://127.0.0.1:9/v1", times: int = 1
) -> dict[str, Any] | None:
    """The body after the lesson, or None when nothing was learnt."""
    at = dialect(base, request.model)
    for _ in range(times):
        if not at.learn(reply, build_body(request, at), request.extra):
            return None
    return build_body(request, at)


def refusal(message: str, param: str = "") -> ServerReply:
    return ServerReply(message, param=param, status=400)


@pytest.mark.parametrize(
    "reply",
    [
        refusal(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            "max_tokens",
        ),
        refusal("Unrecognized request argument supplied: max_tokens"),
    ],
)
def test_the_other_name_of_the_cap_is_tried(reply: ServerReply) -> None:
    """OpenAI's own words, and those of a proxy."""
    got = learn(reply, ask(max_output_tokens=5))
    assert got is not None
    assert got["max_completion_tokens"] == 5
    assert "max_tokens" not in got


@pytest.mark.parametrize(
    ("field", "reply"),
    [
        ("stream_options", refusal("body.stream_options: Extra inputs are not permitted")),
        (
            "temperature",
            refusal(
                "Unsupported value: 'temperature' does not support 0.5 with this model. Only the default (1) value is supported.",
                "temperature",
            ),
        ),
        ("tool_choice", refusal("Unknown field: tool_choice")),
    ],
)
def test_an_optional_field_that_is_refused_is_left_out(field: str, reply: ServerReply) -> None:
    """Once; if the server still complains the error surfaces."""
    request = ask(temperature=0.5, tools=(READ_FILE,))
    got = learn(reply, request)
    assert got is not None
    assert field not in got
    assert learn(reply, request, times=2) is None


def test_what_the_admin_set_is_never_taken_away() -> None:
    """A refusal of an extra setting is the admin's to see."""
    reply = refusal("temperature is not supported", "temperature")
    assert learn(reply, ask(extra={"temperature": 2})) is None
    effort = refusal("reasoning_effort is not supported", "reasoning_effort")
    assert learn(effort, ask(extra={"reasoning_effort": "high"})) is None
    cap = refusal("max_tokens is not supported", "max_tokens")
    assert learn(cap, ask(extra={"max_tokens": 5})) is None


NO_TOOLS_WITH_EFFORT = refusal(
    "Function tools with reasoning_effort are not supported for gpt-5.6-sol in /v1/chat/completions. "
    "To use function tools, use /v1/responses or set reasoning_effort to 'none'.",
    "reasoning_effort",
)


@pytest.mark.parametrize("effort", [None, "high"])
def test_models_that_use_tools_only_without_reasoning(effort: str | None) -> None:
    """The effort they ask for is sent, whether or not one had been."""
    got = learn(
        NO_TOOLS_WITH_EFFORT, ask(model="gpt-5.6-sol", effort=effort, tools=(READ_FILE,)), "https://api.openai.com/v1"
    )
    assert got is not None
    assert got["reasoning_effort"] == "none"


def test_an_effort_the_model_does_not_know() -> None:
    """The nearest of those it names is used."""
    reply = refusal(
        "Unsupported value: 'reasoning_effort' does not support 'xhigh'. Supported values are: 'low', 'medium', and 'high'.",
        "reasoning_effort",
    )
    got = learn(reply, ask(model="gpt-5", effort="xhigh"), "https://api.openai.com/v1")
    assert got is not None
    assert got["reasoning_effort"] == "high"
    gone = learn(refusal("reasoning_effort is not supported"), ask(model="unheard-of", effort="low"))
    assert gone is not None
    assert "reasoning_effort" not in gone


def test_reasoning_that_is_missed_is_sent_from_then_on() -> None:
    """A gateway whose model nobody knew to need it."""
    reply = refusal("thinking is enabled but reasoning_content is missing in assistant tool call message at index 2")
    got = learn(reply, ask(messages=(user("a"), called(), ANSWERED)))
    assert got is not None
    assert got["messages"][2]["reasoning_content"] == "."


def test_reasoning_that_is_refused_is_no_longer_sent() -> None:
    """A server that is stricter than the model's family."""
    request = ask(
        model="kimi-k2.6",
        messages=(user("a"), called(ReasoningPart("hm"), state={"reasoning_field": "reasoning_content"}), ANSWERED),
    )
    assert "reasoning_content" in body(request)["messages"][2]
    got = learn(refusal("messages.2.reasoning_content: Extra inputs are not permitted"), request)
    assert got is not None
    assert "reasoning_content" not in got["messages"][2]


def test_the_order_of_roles_is_learnt() -> None:
    """From a server of a Mistral model under another name."""
    got = learn(
        refusal("Unexpected role 'user' after role 'tool'"), ask(messages=(user("a"), called(), ANSWERED, user("b")))
    )
    assert got is not None
    assert [m["role"] for m in got["messages"]] == ["system", "user", "assistant", "tool", "assistant", "user"]


@pytest.mark.parametrize(
    "message",
    [
        "Invalid value for 'messages': content must not be empty",
        "max_tokens is too large: 50000. This model supports at most 16384 completion tokens",
        "The model is not supported",
        "",
    ],
)
def test_other_refusals_teach_nothing(message: str) -> None:
    """They surface at once."""
    assert learn(refusal(message), ask(max_output_tokens=5, temperature=1.0, tools=(READ_FILE,))) is None


def test_the_request_is_never_changed() -> None:
    """It is frozen data, and its dictionaries belong to others."""
    request = ask(tools=(READ_FILE,), extra={"a": {"b": 1}})
    before = msgspec.json.encode(request)
    body(request, "https://openrouter.ai/api/v1")
    assert msgspec.json.encode(request) == before
