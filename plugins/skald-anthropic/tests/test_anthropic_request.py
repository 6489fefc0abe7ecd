"""What is sent: from wire messages to the JSON body, and what a refusal changes about it."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest
from anthropic_testkit import INFO, ask
from hypothesis import given
from hypothesis import strategies as st

from skald_anthropic.dialect import BINDING_BETA, Dialect
from skald_anthropic.payload import betas_of, build_body
from skald_anthropic.provider import AnthropicProvider
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

MARK = {"type": "ephemeral"}
THOUGHT = {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"}
HIDDEN = {"type": "redacted_thinking", "data": "b3BhcXVl"}


def sent(request: ModelRequest, at: Dialect | None = None) -> dict[str, Any]:
    """The body as the server decodes it."""
    decoded: dict[str, Any] = json.loads(encode_body(build_body(request, at or Dialect(request.model))))
    return decoded


def messages(*wire: WireMessage, **changes: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = sent(ask(messages=wire, cache=False, **changes))["messages"]
    return found


def said(*parts: Any, state: dict[str, Any] | None = None) -> WireMessage:
    return WireMessage("assistant", parts, None if state is None else {"anthropic": state})


def result(call_id: str, text: str, **more: Any) -> WireMessage:
    return WireMessage("tool", (ResultPart(call_id, text, **more),))


# --- snapshots -----------------------------------------------------------------------------------------------------


def test_a_whole_round_snapshot() -> None:
    """Everything that can be in a conversation, as it goes over the wire."""
    png = MediaPart("image/png", b"\x89PNG", "photo.png")
    pdf = MediaPart("application/pdf", b"%PDF-", "paper.pdf")
    state = {
        "model": "claude-sonnet-4-5",
        "blocks": [THOUGHT, {"type": "text", "length": 10}, HIDDEN, {"type": "tool_use"}, {"type": "tool_use"}],
    }
    request = ask(
        system=(SystemBlock("You help."), SystemBlock("You are brief."), SystemBlock("It is noon.", stable=False)),
        messages=(
            WireMessage("user", (TextPart("Compare these."), png, pdf)),
            said(
                ReasoningPart("Let me see.", "c2ln"),
                TextPart("I'll read."),
                CallPart("toolu_1", "read_file", '{ "path": "b",  "n": 1.0 }'),
                CallPart("call|2", "read_file", "{broken"),
                state=state,
            ),
            WireMessage("tool", (ResultPart("toolu_1", "milk"), ResultPart("call|2", "", is_error=True))),
            user("Go on."),
        ),
        tools=(READ_FILE,),
        max_output_tokens=2000,
        stop_sequences=("END", "\n"),
    )
    body = sent(request)
    assert list(body) == ["model", "max_tokens", "system", "messages", "tools", "stream", "stop_sequences"]
    other_id = "toolu_" + hashlib.sha256(b"call|2").hexdigest()[:24]
    assert body == {
        "model": "claude-sonnet-4-5",
        "max_tokens": 2000,
        "system": [
            {"type": "text", "text": "You help.\n\nYou are brief.", "cache_control": MARK},
            {"type": "text", "text": "It is noon."},
        ],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Compare these."},
                    {"type": "image", "source": source("image/png", b"\x89PNG")},
                    {"type": "document", "source": source("application/pdf", b"%PDF-"), "title": "paper.pdf"},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    THOUGHT,
                    {"type": "text", "text": "I'll read."},
                    HIDDEN,
                    {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "b", "n": 1.0}},
                    {
                        "type": "tool_use",
                        "id": other_id,
                        "name": "read_file",
                        "input": {"invalid_arguments": "{broken"},
                    },
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "milk"},
                    {"type": "tool_result", "tool_use_id": other_id, "content": "(no output)", "is_error": True},
                    {"type": "text", "text": "Go on.", "cache_control": MARK},
                ],
            },
        ],
        "tools": [{"name": "read_file", "description": "Read a file.", "input_schema": READ_FILE.parameters}],
        "stream": True,
        "stop_sequences": ["END"],
    }


def source(kind: str, data: bytes) -> dict[str, str]:
    return {"type": "base64", "media_type": kind, "data": base64.b64encode(data).decode()}


def test_the_smallest_body() -> None:
    """Nothing is sent that was not asked for, but the cap the API insists on."""
    request = ModelRequest(model="some-model", system=(), messages=(user("Hi"),), cache=False)
    assert sent(request) == {
        "model": "some-model",
        "max_tokens": 32768,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
        "stream": True,
    }


def test_arguments_keep_their_bytes() -> None:
    """Key order, spaces, number forms and escapes: what the model wrote is what it reads."""
    raw = '{ "z":1.50,"a" : "\\u00e9",  "n":1e3}'
    request = ask(messages=(user("x"), said(CallPart("t1", "read_file", raw)), result("t1", "ok")))
    assert raw.encode() in encode_body(build_body(request, Dialect(request.model)))


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        ("", {}),
        ("  ", {}),
        ("[1]", {"invalid_arguments": "[1]"}),
        ('"x"', {"invalid_arguments": '"x"'}),
        ('{"a": ', {"invalid_arguments": '{"a": '}),
        ('{"a": "\\ud800"}', {"invalid_arguments": '{"a": "\\ud800"}'}),
        ("{" * 5000, {"invalid_arguments": "{" * 5000}),
    ],
)
def test_arguments_that_are_no_object(raw: str, want: dict[str, Any]) -> None:
    """The API takes an object and nothing else; a conversation must not be stuck because of one bad call."""
    _, answer, _ = messages(user("x"), said(CallPart("t1", "read_file", raw)), result("t1", "ok"))
    assert answer["content"][0]["input"] == want


# --- cache marks ---------------------------------------------------------------------------------------------------


def marks(body: dict[str, Any]) -> list[str]:
    """Where the marks are: ``system 0`` and so on, in order."""
    found = [f"system {n}" for n, block in enumerate(body.get("system", [])) if "cache_control" in block]
    for number, message in enumerate(body["messages"]):
        found += [
            f"{message['role']} {number} {block['type']}" for block in message["content"] if "cache_control" in block
        ]
    return found


def test_system_text_that_changes_has_no_mark() -> None:
    """The mark stays with what is stable, so that a new hour costs nothing of the prefix before it."""
    stable, noon, one = SystemBlock("Stable."), SystemBlock("Noon.", stable=False), SystemBlock("One.", stable=False)
    first, second = sent(ask(system=(stable, noon))), sent(ask(system=(stable, one)))
    assert first["system"][0] == second["system"][0] == {"type": "text", "text": "Stable.", "cache_control": MARK}
    assert "cache_control" not in first["system"][1]
    assert marks(sent(ask(system=(noon,)))) == ["user 0 text"]
    assert marks(sent(ask(system=()))) == ["user 0 text"]


def test_marks_end_the_conversation() -> None:
    """The last block of the last user message, a result too; none at all when no cache is wanted."""
    loop = (user("x"), said(CallPart("t1", "read_file", "{}")), result("t1", "ok"))
    assert marks(sent(ask(messages=loop))) == ["system 0", "user 2 tool_result"]
    assert marks(sent(ask(messages=loop, cache=False))) == []


# --- order and shape -----------------------------------------------------------------------------------------------


MAIL = ToolSpec("mail", "Send mail.", {"type": "object", "properties": {}}, defer_loading=True)
MAPS = ToolSpec("maps", "Find a place.", {"type": "object", "properties": {}}, defer_loading=True)
LOADED = (
    user("Write to Ada."),
    said(CallPart("toolu_1", "find", "{}"), CallPart("toolu_2", "read_file", "{}")),
    WireMessage("tool", (ResultPart("toolu_1", "Found one.", tools=("mail", "gone")), ResultPart("toolu_2", "hi"))),
)


def test_tools_loaded_by_reference_snapshot() -> None:
    """Deferred tools are declared so; the result that brings them holds references alone, its text follows the results."""
    got = sent(ask(messages=LOADED, tools=(READ_FILE, MAIL, MAPS), cache=False))
    assert [(tool["name"], tool.get("defer_loading")) for tool in got["tools"]] == [
        ("read_file", None), ("mail", True), ("maps", True),
    ]  # fmt: skip
    assert got["messages"][2] == {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "toolu_1",
                "content": [{"type": "tool_reference", "tool_name": "mail"}],
            },
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": "hi"},
            {"type": "text", "text": "Found one."},
        ],
    }


def test_a_server_that_knows_no_references_gets_the_tools_inline() -> None:
    """Learnt from one refusal: what was brought in is a tool like any other, and the result is its text."""
    at = Dialect("claude-sonnet-4-5")
    request = ask(messages=LOADED, tools=(READ_FILE, MAIL, MAPS), cache=False)
    reply = ServerReply(message="tools.1.defer_loading: Extra inputs are not permitted", status=400)
    assert at.learn(reply, build_body(request, at), {})
    assert not at.learn(reply, build_body(request, at), {})
    got = sent(request, at)
    assert [tool["name"] for tool in got["tools"]] == ["read_file", "mail"]
    assert "defer_loading" not in json.dumps(got)
    assert got["messages"][2]["content"][0]["content"] == "Found one."


def test_never_are_all_tools_deferred() -> None:
    """The API refuses that, and nothing could bring them in."""
    got = sent(ask(tools=(MAIL, MAPS)))
    assert [(tool["name"], "defer_loading" in tool) for tool in got["tools"]] == [("mail", False), ("maps", False)]


@pytest.mark.parametrize(
    ("base_url", "model", "want"),
    [
        ("", "claude-haiku-4-5-20251001", "reference"),
        ("", "claude-opus-4-8", "reference"),
        ("", "claude-opus-4-1", "inline"),
        ("", "other-model", "inline"),
        ("http://127.0.0.1:9", "claude-opus-4-8", "inline"),
    ],
)
def test_which_models_load_tools_by_reference(base_url: str, model: str, want: str) -> None:
    """From 4.5, and at Anthropic's own address; what the caller says wins."""
    assert AnthropicProvider(base_url=base_url).info(model).tool_loading == want
    assert AnthropicProvider(base_url=base_url, infos={model: INFO}).info(model).tool_loading == "inline"


def test_roles_alternate_and_the_user_has_first_and_last_word() -> None:
    """Whatever the history looks like: older APIs want it to begin so, newer ones to end so."""
    wire = messages(said(TextPart("A")), said(TextPart("B")), user("C"), user("D"), said(TextPart("E")))
    assert [message["role"] for message in wire] == ["user", "assistant", "user", "assistant", "user"]
    assert [block["text"] for block in wire[1]["content"]] == ["A", "B"]
    assert [block["text"] for block in wire[2]["content"]] == ["C", "D"]


def test_blank_text_is_left_out() -> None:
    """The API refuses text of nothing but space."""
    assert messages(user(" \n"), user("x"), said(TextPart(" "), CallPart("t", "f", "{}")), result("t", "ok")) == [
        {"role": "user", "content": [{"type": "text", "text": "x"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]},
    ]


@pytest.mark.parametrize("media", ["image/png", "application/pdf", "video/mp4", "image/tiff"])
def test_media_nobody_can_look_at_becomes_a_note(media: str) -> None:
    """A model without the ability, and kinds no model takes, get a line of text instead of bytes."""
    (message,) = messages(WireMessage("user", (MediaPart(media, b"x", "f"),)), info=ModelInfo())
    assert message["content"] == [
        {"type": "text", "text": f"['f' ({media}) was left out: this model cannot look at it.]"}
    ]


def test_half_characters_do_not_stop_a_request() -> None:
    """JSON cannot carry them; everything else goes through, arguments still byte for byte."""
    request = ask(messages=(user("a\ud800b"), said(CallPart("t", "f", '{ "k":1}')), result("t", "c\udc00")))
    content = encode_body(build_body(request, Dialect(request.model)))
    assert b"a?b" in content
    assert b'{ "k":1}' in content


# --- thoughts ------------------------------------------------------------------------------------------------------


def replayed(
    state: dict[str, Any], *, model: str = "claude-sonnet-4-5", text: str = "Hello", calls: int = 0
) -> list[str]:
    """The kinds of the assistant's blocks."""
    answer = said(TextPart(text), *(CallPart(f"t{n}", "f", "{}") for n in range(calls)), state=state)
    request = ask(model=model, messages=(user("x"), answer, user("y")))
    return [block["type"] for block in sent(request)["messages"][1]["content"]]


def test_thoughts_go_back_to_their_family_only() -> None:
    """The date of a release does not matter, another model does."""
    state = {"model": "claude-sonnet-4-5", "blocks": [THOUGHT, {"type": "text", "skip": 0, "length": 5}]}
    assert replayed(state) == ["thinking", "text"]
    assert replayed(state, model="claude-sonnet-4-5-20250929") == ["thinking", "text"]
    assert replayed(state, model="claude-opus-4-5") == ["text"]
    assert replayed(state, model="claude-sonnet-4-6") == ["text"]


def test_thoughts_between_calls_stay_in_their_place() -> None:
    """Interleaved thinking: the order of blocks is part of what is signed."""
    state = {
        "model": "claude-sonnet-4-5",
        "blocks": [
            {"type": "text", "skip": 0, "length": 3},
            THOUGHT,
            {"type": "text", "skip": 2, "length": 3},
            {"type": "tool_use"},
        ],
    }
    answer = said(TextPart("One\n\nTwo"), CallPart("t", "f", "{}"), state=state)
    content = messages(user("x"), answer, result("t", "ok"))[1]["content"]
    assert content == [
        {"type": "text", "text": "One"},
        THOUGHT,
        {"type": "text", "text": "Two"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {}},
    ]


def test_a_changed_message_keeps_its_leading_thoughts() -> None:
    """When lengths or calls no longer fit, the places of the others are not known."""
    state = {
        "model": "claude-sonnet-4-5",
        "blocks": [THOUGHT, HIDDEN, {"type": "text", "length": 99}, THOUGHT, {"type": "tool_use"}],
    }
    assert replayed(state, calls=1) == ["thinking", "redacted_thinking", "text", "tool_use"]
    assert replayed({"model": "claude-sonnet-4-5", "blocks": "?"}) == ["text"]


def test_a_signature_alone_is_enough_for_an_embedder() -> None:
    """A message put together by hand has no replay state."""
    wire = WireMessage("assistant", (ReasoningPart("Hm.", "sig"), TextPart("Yes.")))
    assert messages(user("x"), wire, user("y"))[1]["content"][0] == {
        "type": "thinking",
        "thinking": "Hm.",
        "signature": "sig",
    }
    unsigned = WireMessage("assistant", (ReasoningPart("Hm."), TextPart("Yes.")))
    assert [block["type"] for block in messages(user("x"), unsigned, user("y"))[1]["content"]] == ["text"]


# --- effort --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "effort", "want"),
    [
        ("claude-3-5-sonnet-20241022", "high", {}),
        ("claude-sonnet-4-5", None, {}),
        ("claude-sonnet-4-5", "none", {}),
        ("claude-sonnet-4-5", "low", {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
        ("claude-3-7-sonnet-20250219", "max", {"thinking": {"type": "enabled", "budget_tokens": 32000}}),
        ("claude-opus-4-6", None, {}),
        ("claude-opus-4-6", "none", {}),
        ("claude-opus-4-6", "xhigh", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
        (
            "claude-opus-4-7",
            "xhigh",
            {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "xhigh"}},
        ),
        ("claude-opus-5", None, {"thinking": {"type": "adaptive", "display": "summarized"}}),
        ("claude-opus-5", "none", {"thinking": {"type": "disabled"}}),
        (
            "anthropic/claude-sonnet-5.5",
            "minimal",
            {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "low"}},
        ),
        ("kimi-k2", "medium", {"thinking": {"type": "enabled", "budget_tokens": 8192}}),
    ],
)
def test_effort_in_each_versions_words(model: str, effort: str | None, want: dict[str, Any]) -> None:
    """A budget up to 4.5, adaptive with an effort from 4.6, and from 5 thinking is on by itself."""
    body = sent(ask(model=model, effort=effort))
    assert {key: body[key] for key in ("thinking", "output_config") if key in body} == want


def test_a_model_that_does_not_reason_is_not_asked_to() -> None:
    """What the host knows of the model counts."""
    assert "thinking" not in sent(ask(model="some-model", effort="high", info=ModelInfo()))


def test_thoughts_get_room_of_their_own() -> None:
    """They count towards the cap; a short answer shall still come out, within what the model can give."""
    assert sent(ask(effort="high", max_output_tokens=64))["max_tokens"] == 16384 + 64
    assert sent(ask(model="claude-opus-5", max_output_tokens=64))["max_tokens"] == 4096 + 64
    assert sent(ask(max_output_tokens=64))["max_tokens"] == 64
    small = sent(ask(effort="high", info=ModelInfo(200_000, 8192, INFO.capabilities)))
    assert small["max_tokens"] == 8192
    assert small["thinking"]["budget_tokens"] == 4096
    tiny = sent(ask(effort="high", info=ModelInfo(200_000, 4096, INFO.capabilities)))
    assert "thinking" not in tiny
    assert tiny["max_tokens"] == 4096


def test_the_cap_falls_back() -> None:
    """The API insists on one: what the model can give, at most 32,768."""
    assert sent(ask())["max_tokens"] == 32768
    assert sent(ask(info=ModelInfo(200_000, 4096)))["max_tokens"] == 4096
    assert sent(ask(max_output_tokens=9000, info=ModelInfo(200_000, 4096)))["max_tokens"] == 4096


def test_no_budget_in_the_middle_of_calls_made_without_thoughts() -> None:
    """Another model made the call: with a budget the request would be refused until the turn is over."""
    loop = (user("x"), said(CallPart("t1", "f", "{}")), result("t1", "ok"))
    assert "thinking" not in sent(ask(effort="high", messages=loop))
    assert "thinking" in sent(ask(effort="high", messages=(*loop, said(TextPart("Done.")), user("More?"))))
    thought = said(
        CallPart("t1", "f", "{}"), state={"model": "claude-sonnet-4-5", "blocks": [THOUGHT, {"type": "tool_use"}]}
    )
    assert "thinking" in sent(ask(effort="high", messages=(user("x"), thought, result("t1", "ok"))))
    assert "thinking" in sent(ask(model="claude-opus-4-6", effort="high", messages=loop))


@pytest.mark.parametrize(
    ("model", "effort", "want"),
    [
        ("claude-sonnet-4-5", None, 0.4),
        ("claude-sonnet-4-5", "high", None),
        ("claude-opus-4-7", None, None),
        ("claude-opus-5", "none", None),
    ],
)
def test_temperature_where_it_is_taken(model: str, effort: str | None, want: float | None) -> None:
    """Not beside thoughts, and not by the newest models."""
    assert sent(ask(model=model, effort=effort, temperature=0.4)).get("temperature") == want


def test_extra_settings_win() -> None:
    """They come last; None takes a field out; ``betas`` goes into the header."""
    request = ask(extra={"top_k": 5, "max_tokens": 7, "system": None, "betas": ["context-1m-2025-08-07"]})
    body = sent(request)
    assert (body["top_k"], body["max_tokens"]) == (5, 7)
    assert "system" not in body
    assert "betas" not in body
    assert betas_of(request, Dialect(request.model)) == ["context-1m-2025-08-07"]


# --- learning ------------------------------------------------------------------------------------------------------


def after(message: str, request: ModelRequest) -> tuple[dict[str, Any], Dialect]:
    """The body once the server has refused the first one with ``message``."""
    at = Dialect(request.model)
    body = build_body(request, at)
    assert at.learn(ServerReply(message), body, request.extra)
    assert not at.learn(ServerReply(message), body, request.extra), "each lesson is learnt once"
    return sent(request, at), at


def test_the_form_of_thinking_is_learnt() -> None:
    """The API's own words for a model the version does not tell."""
    words = (
        '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and '
        '"output_config.effort" to control thinking behavior.'
    )
    at = Dialect("some-model")
    request = ask(model="some-model", effort="high")
    assert at.learn(ServerReply(words), build_body(request, at), {})
    body = sent(request, at)
    assert body["thinking"] == {"type": "adaptive"}
    assert body["output_config"] == {"effort": "high"}
    body, _ = after(
        "thinking: Input tag 'adaptive' found using 'type' does not match any of the expected tags",
        ask(model="claude-opus-4-6", effort="high"),
    )
    assert body["thinking"]["type"] == "enabled"
    assert "output_config" not in body


def test_thinking_that_cannot_be_turned_off() -> None:
    """The least effort is what comes nearest."""
    body, _ = after(
        '"thinking.type.disabled" is not supported for this model.', ask(model="claude-opus-5", effort="none")
    )
    assert body["thinking"]["type"] == "adaptive"
    assert body["output_config"] == {"effort": "low"}


@pytest.mark.parametrize(
    ("message", "request_", "gone"),
    [
        ("`temperature` is deprecated for this model.", ask(temperature=0.5), "temperature"),
        (
            "thinking.display: Extra inputs are not permitted",
            ask(model="claude-opus-4-7", effort="low"),
            "thinking.display",
        ),
        ("thinking is not supported by this model", ask(model="some-model", effort="low"), "thinking"),
        ("output_config: Extra inputs are not permitted", ask(model="claude-opus-4-6", effort="low"), "output_config"),
        ("system.0.cache_control: unknown field", ask(), "system.0.cache_control"),
    ],
)
def test_a_refused_field_is_left_out(message: str, request_: ModelRequest, gone: str) -> None:
    """One refusal is enough."""
    body, _ = after(message, request_)
    value: Any = body
    for key in gone.split("."):
        if isinstance(value, list):
            value = value[int(key)]
        elif key not in value:
            return
        else:
            value = value[key]
    pytest.fail(f"{gone} is still there")


def test_levels_and_caps_are_learnt() -> None:
    """What the server says it takes."""
    body, _ = after(
        "output_config.effort: 'max' is not available for this model", ask(model="claude-sonnet-4-6", effort="max")
    )
    assert body["output_config"] == {"effort": "high"}
    body, _ = after(
        "max_tokens: 32768 > 8192, which is the maximum allowed number of output tokens for claude-x",
        ask(model="claude-x"),
    )
    assert body["max_tokens"] == 8192


def test_thoughts_bound_to_another_context() -> None:
    """The newest models refuse them when system text changed before them; they are asked to drop those instead."""
    state = {"model": "claude-opus-5-5", "blocks": [THOUGHT, {"type": "text", "length": 5}]}
    wire = (user("x"), said(TextPart("Hello"), state=state), user("y"))
    request = ask(model="claude-opus-5-5", messages=wire)
    refusal = (
        "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation. "
        'Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
    )
    at = Dialect(request.model)
    assert at.learn(ServerReply(refusal), build_body(request, at), {})
    body = sent(request, at)
    assert body["thinking"]["block_binding"] == {"prefix_mismatch_behavior": "drop_block"}
    assert body["messages"][1]["content"][0] == THOUGHT
    assert betas_of(request, at) == [BINDING_BETA]
    quiet = sent(ask(model="claude-opus-5-5", messages=wire, effort="none"), at)
    assert [block["type"] for block in quiet["messages"][1]["content"]] == ["text"], (
        "it could not say what becomes of them"
    )
    assert at.learn(ServerReply(refusal), body, {}), "still refused: no thoughts at all"
    assert [block["type"] for block in sent(request, at)["messages"][1]["content"]] == ["text"]
    assert not at.learn(ServerReply(refusal), body, {})


def test_a_signature_that_is_refused() -> None:
    """Without thoughts the conversation goes on."""
    at = Dialect("claude-sonnet-4-5")
    assert at.learn(ServerReply("messages.1.content.0: Invalid `signature` in `thinking` block"), {}, {})
    assert not at.replay


def test_what_the_admin_set_is_never_taken_away() -> None:
    """And what is no lesson teaches nothing."""
    request = ask(temperature=0.5, extra={"temperature": 0.5})
    at = Dialect(request.model)
    body = build_body(request, at)
    assert not at.learn(ServerReply("`temperature` is deprecated for this model."), body, request.extra)
    assert not at.learn(ServerReply("messages: at least one message is required"), body, {})
    assert not at.learn(ServerReply("tools.0.name: String should match pattern"), body, {})


# --- properties ----------------------------------------------------------------------------------------------------

texts = st.text(max_size=8)
ids = st.text(min_size=1, max_size=6)


@st.composite
def histories(draw: st.DrawFn) -> tuple[WireMessage, ...]:
    """Histories as the loop's projection makes them: calls are answered at once, everything else is free."""
    out: list[WireMessage] = []
    for _ in range(draw(st.integers(0, 5))):
        if draw(st.booleans()):
            out.append(WireMessage("user", (TextPart(draw(texts)), MediaPart("image/png", b"x"))))
            continue
        calls = [CallPart(i, "f", draw(texts)) for i in draw(st.lists(ids, max_size=3, unique=True))]
        blocks = draw(
            st.lists(
                st.sampled_from([THOUGHT, HIDDEN, {"type": "text", "length": 3}, {"type": "tool_use"}]), max_size=4
            )
        )
        state = draw(st.none() | st.just({"anthropic": {"model": "claude-sonnet-4-5", "blocks": blocks}}))
        out.append(WireMessage("assistant", (TextPart(draw(texts)), *calls), state))
        if calls:
            out.append(WireMessage("tool", tuple(ResultPart(call.id, draw(texts)) for call in calls)))
    return tuple(out)


@given(histories(), st.booleans())
def test_no_history_breaks_the_rules(history: tuple[WireMessage, ...], moving: bool) -> None:
    """Roles alternate, every call is answered at once, nothing is empty, at most two marks and none on a thought."""
    system = (SystemBlock("Stable."), *((SystemBlock("Now.", stable=False),) if moving else ()))
    body = sent(ask(messages=history, system=system))
    wire = body["messages"]
    assert [message["role"] for message in wire] == ["user", "assistant"] * (len(wire) // 2) + ["user"] * (
        len(wire) % 2
    )
    found = marks(body)
    assert len(found) <= 2
    assert not any(word.endswith(("thinking", "tool_use")) for word in found)
    for at, message in enumerate(wire):
        assert message["content"]
        assert all(block["text"].strip() for block in message["content"] if block["type"] == "text")
        asked = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        if asked:
            answers = [b["tool_use_id"] for b in wire[at + 1]["content"][: len(asked)] if b["type"] == "tool_result"]
            assert answers == asked
            assert all(set(i) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") for i in asked)


@given(histories())
def test_a_longer_history_keeps_the_prefix(history: tuple[WireMessage, ...]) -> None:
    """Only the last message may differ, by its mark: else the server's cache would start over with every round."""
    longer = (*history, user("More?"), said(TextPart("Yes.")), user("Go."))
    before = sent(ask(messages=(*history, user("More?")), cache=False))["messages"]
    assert sent(ask(messages=longer, cache=False))["messages"][: len(before)] == before
