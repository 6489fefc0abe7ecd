"""What is sent: from wire messages to the JSON body, and what a refusal changes about it."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ollama_testkit import INFO, ask

from skald_core.api import (
    CallPart,
    ConfigError,
    MediaPart,
    ModelInfo,
    ModelRequest,
    ReasoningPart,
    ResultPart,
    SystemBlock,
    TextPart,
    WireMessage,
    encode_body,
)
from skald_core.testing.servers import READ_FILE, user
from skald_ollama.address import parse_address, parse_keep_alive
from skald_ollama.dialect import Dialect
from skald_ollama.payload import build_body


def sent(request: ModelRequest, at: Dialect | None = None, keep_alive: int | str | None = None) -> dict[str, Any]:
    """The body as the server decodes it."""
    decoded: dict[str, Any] = json.loads(encode_body(build_body(request, at or Dialect(), keep_alive)))
    return decoded


def messages(*wire: WireMessage, **changes: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = sent(ask(messages=wire, system=(), **changes))["messages"]
    return found


LOOP = (
    user("x"),
    WireMessage("assistant", (ReasoningPart("Hm."), CallPart("c1", "read_file", '{"path": "a"}'))),
    WireMessage("tool", (ResultPart("c1", "milk"), MediaPart("image/png", b"png"))),
)


def test_a_whole_round_snapshot() -> None:
    """Everything that can be in a conversation, as it goes over the wire."""
    request = ask(
        system=(SystemBlock("You help."), SystemBlock("It is noon.", stable=False), SystemBlock("Be brief.")),
        messages=(
            WireMessage(
                "user", (TextPart("Compare."), MediaPart("image/png", b"png"), MediaPart("video/mp4", b"v", "v.mp4"))
            ),
            WireMessage(
                "assistant",
                (
                    ReasoningPart("Let me see."),
                    TextPart("I'll read."),
                    CallPart("c1", "read_file", '{ "path": "b",  "n": 1.0 }'),
                    CallPart("c2", "read_file", "{broken"),
                ),
            ),
            WireMessage("tool", (ResultPart("c1", "milk"), ResultPart("c2", "", is_error=True))),
            WireMessage("assistant", (ReasoningPart("Done."), TextPart("Milk."))),
            user("Thanks."),
        ),
        tools=(READ_FILE,),
        max_output_tokens=2000,
        temperature=0.5,
        stop_sequences=("END",),
        effort="high",
    )
    assert list(sent(request, keep_alive="1h")) == [
        "model",
        "messages",
        "tools",
        "stream",
        "think",
        "keep_alive",
        "truncate",
        "shift",
        "options",
    ]
    assert sent(request, keep_alive="1h") == {
        "model": "qwen3:8b",
        "messages": [
            {"role": "system", "content": "You help.\n\nBe brief.\n\nIt is noon."},
            {
                "role": "user",
                "content": "Compare.\n\n['v.mp4' (video/mp4) was left out: this model cannot look at it.]",
                "images": [base64.b64encode(b"png").decode()],
            },
            {
                "role": "assistant",
                "content": "I'll read.",
                "thinking": "Let me see.",
                "tool_calls": [
                    {"id": "c1", "function": {"name": "read_file", "arguments": {"path": "b", "n": 1.0}}},
                    {"id": "c2", "function": {"name": "read_file", "arguments": {"invalid_arguments": "{broken"}}},
                ],
            },
            {"role": "tool", "tool_name": "read_file", "tool_call_id": "c1", "content": "milk"},
            {"role": "tool", "tool_name": "read_file", "tool_call_id": "c2", "content": "(no output)"},
            {"role": "assistant", "content": "Milk."},
            {"role": "user", "content": "Thanks."},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "read_file",
                    "description": "Read a file.",
                    "parameters": READ_FILE.parameters,
                },
            }
        ],
        "stream": True,
        "think": "high",
        "keep_alive": "1h",
        "truncate": False,
        "shift": False,
        "options": {"num_ctx": 16384, "num_predict": 2000, "temperature": 0.5, "stop": ["END"]},
    }


def test_the_smallest_body() -> None:
    """The context is always said: Ollama's own 4,096 would drop the beginning without a word."""
    assert sent(ModelRequest(model="m", system=(), messages=(user("Hi"),))) == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "truncate": False,
        "shift": False,
        "options": {"num_ctx": 32768},
    }


def test_arguments_keep_their_bytes() -> None:
    """Key order, spaces, number forms and escapes: what the model wrote is what it reads."""
    raw = '{ "z":1.50,"a" : "\\u00e9",  "n":1e3}'
    request = ask(messages=(user("x"), WireMessage("assistant", (CallPart("c", "f", raw),))))
    assert raw.encode() in encode_body(build_body(request, Dialect()))


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        ("", {}),
        ("[1]", {"invalid_arguments": "[1]"}),
        ('{"a": ', {"invalid_arguments": '{"a": '}),
        ("x\ud800", {"invalid_arguments": "x?"}),
        ("{" * 5000, {"invalid_arguments": "{" * 5000}),
    ],
)
def test_arguments_that_are_no_object(raw: str, want: dict[str, Any]) -> None:
    """A conversation must not be stuck because of one bad call."""
    (wire,) = messages(WireMessage("assistant", (CallPart("c", "f", raw),)))
    assert wire["tool_calls"][0]["function"]["arguments"] == want


def test_what_tools_brought_follows_as_an_image() -> None:
    """A tool message holds text only."""
    assert messages(*LOOP)[-2:] == [
        {"role": "tool", "tool_name": "read_file", "tool_call_id": "c1", "content": "milk"},
        {"role": "user", "content": "Files from the tool results above:", "images": ["cG5n"]},
    ]


def test_a_model_without_tools_still_learns_what_they_gave() -> None:
    """Its template would leave calls and results out; so the results come as words of the user."""
    info = ModelInfo(4096, None, frozenset())
    assert messages(*LOOP, info=info) == [
        {"role": "user", "content": "x"},
        {"role": "user", "content": "Result of read_file:\nmilk"},
        {
            "role": "user",
            "content": "Files from the tool results above:\n\n"
            "[A file (image/png) was left out: this model cannot look at it.]",
        },
    ]


def test_messages_that_hold_nothing_are_left_out() -> None:
    """Empty turns confuse templates."""
    assert messages(user(""), WireMessage("assistant", (ReasoningPart("Hm."),)), user("x")) == [
        {"role": "user", "content": "x"}
    ]


@pytest.mark.parametrize(
    ("effort", "cap", "reasons", "want"),
    [
        (None, None, True, None),
        (None, 64, True, False),
        ("none", None, True, False),
        ("minimal", None, True, "low"),
        ("medium", 64, True, "medium"),
        ("max", None, True, "high"),
        ("high", None, False, None),
        ("none", None, False, False),
        (None, 64, False, False),
        (None, 2000, False, None),
    ],
)
def test_thinking(effort: str | None, cap: int | None, reasons: bool, want: Any) -> None:
    """Asked for in three levels; a short answer leaves no room for it; one that cannot is not asked."""
    info = INFO if reasons else ModelInfo()
    assert sent(ask(effort=effort, max_output_tokens=cap, info=info)).get("think") == want


def test_extra_settings_win() -> None:
    """They come last, those among the options one by one; None takes a field out."""
    extra = {"options": {"num_ctx": 8192, "num_gpu": 0, "temperature": None}, "truncate": None, "format": "json"}
    body = sent(ask(extra=extra, temperature=0.5, max_output_tokens=9))
    assert body["options"] == {"num_ctx": 8192, "num_predict": 9, "num_gpu": 0}
    assert body["format"] == "json"
    assert "truncate" not in body
    assert sent(ask(extra={"options": None})).get("options") is None


def test_half_characters_do_not_stop_a_request() -> None:
    """JSON cannot carry them; everything else goes through."""
    assert b"a?b" in encode_body(build_body(ask("a\ud800b"), Dialect()))


# --- learning ------------------------------------------------------------------------------------------------------


def test_tools_that_are_refused() -> None:
    """From then on the model is asked without."""
    at = Dialect()
    request = ask(messages=LOOP, tools=(READ_FILE,))
    at.learn("registry.example/library/gemma:2b does not support tools", build_body(request, at), {})
    body = sent(request, at)
    assert "tools" not in body
    assert "tool_calls" not in json.dumps(body)
    assert "Result of read_file" in json.dumps(body)


@pytest.mark.parametrize(
    ("message", "want"),
    [
        ('"qwen3:8b" does not support thinking', None),
        ('invalid think value: "high" (must be "high", "medium", "low", true, or false)', True),
        ("json: cannot unmarshal string into Go struct field ChatRequest.think of type bool", True),
        ("something else", "high"),
    ],
)
def test_thinking_that_is_refused(message: str, want: Any) -> None:
    """Not at all, or only as a switch."""
    at = Dialect()
    request = ask(effort="high")
    at.learn(message, build_body(request, at), {})
    assert sent(request, at).get("think") == want


def test_fields_that_are_refused_are_left_out() -> None:
    """But none the admin set."""
    at = Dialect()
    body = build_body(ask(), at, "5m")
    at.learn("unknown field: shift", body, {})
    at.learn("invalid keep_alive", body, {"keep_alive": "5m"})
    assert "shift" not in sent(ask(), at)
    assert sent(ask(), at, "5m")["keep_alive"] == "5m"


# --- settings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "want"),
    [
        ("", None),
        ("  ", None),
        ("300", 300),
        ("-1", -1),
        ("0", 0),
        ("1h30m", "1h30m"),
        (" 10M ", "10m"),
        ("-1s", "-1s"),
    ],
)
def test_keep_alive(typed: str, want: int | str | None) -> None:
    """Seconds or a duration."""
    assert parse_keep_alive(typed) == want


@pytest.mark.parametrize("typed", ["for ever", "5 minutes", "1d", "h"])
def test_keep_alive_that_makes_no_sense(typed: str) -> None:
    """Said before it is saved."""
    with pytest.raises(ConfigError, match="Enter one such as 30m"):
        parse_keep_alive(typed)


@pytest.mark.parametrize(
    ("typed", "base"),
    [
        ("", "http://127.0.0.1:11434"),
        ("localhost:11434", "http://localhost:11434"),
        ("http://box:11434/v1/", "http://box:11434"),
        ("https://box/ollama/api/chat", "https://box/ollama"),
    ],
)
def test_addresses(typed: str, base: str) -> None:
    """As OLLAMA_HOST is written, and as other programs want it."""
    assert parse_address(typed).base_url == base


@pytest.mark.parametrize(
    "typed", ["ftp://x", "http://", "http://a:b@c", "http://a b", "http://h:99999", "http://h/?k=1"]
)
def test_addresses_that_make_no_sense(typed: str) -> None:
    """Each is refused with a sentence."""
    with pytest.raises(ConfigError, match=r"\.$"):
        parse_address(typed)


# --- properties ----------------------------------------------------------------------------------------------------

texts = st.text(max_size=8)


@st.composite
def histories(draw: st.DrawFn) -> tuple[WireMessage, ...]:
    out: list[WireMessage] = []
    for number in range(draw(st.integers(0, 5))):
        if draw(st.booleans()):
            out.append(WireMessage("user", (TextPart(draw(texts)), MediaPart("image/png", b"x"))))
            continue
        calls = [CallPart(f"c{number}.{n}", "f", draw(texts)) for n in range(draw(st.integers(0, 3)))]
        out.append(WireMessage("assistant", (TextPart(draw(texts)), *calls)))
        if calls:
            out.append(WireMessage("tool", tuple(ResultPart(call.id, draw(texts)) for call in calls)))
    return tuple(out)


@given(histories(), st.booleans())
def test_no_history_breaks_the_rules(history: tuple[WireMessage, ...], tools: bool) -> None:
    """Every call is followed by its result, every result names its tool, and nothing is empty."""
    info = INFO if tools else ModelInfo(4096, None, frozenset())
    wire = messages(*history, info=info)
    waiting: list[str] = []
    for message in wire:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            assert message["tool_name"] == "f"
            continue
        assert not waiting
        waiting = [call["id"] for call in message.get("tool_calls", [])]
        assert message["content"] or waiting or message.get("images")
    assert not waiting


@given(histories())
def test_a_longer_history_keeps_the_prefix(history: tuple[WireMessage, ...]) -> None:
    """Else the model would read everything again with every round."""
    before = messages(*history)
    assert messages(*history, user("More?"))[: len(before)] == before
