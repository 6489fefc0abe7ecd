"""The small parts by themselves: calls, usage, inline thoughts, error texts, services, the table of models."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skald_core.api import CallDelta, CallEnd, CallStart, ConfigError, Usage
from skald_openai.calls import CallAssembler, NamelessCallError
from skald_openai.inline import InlineText
from skald_openai.known import known_info, parameters, speaks_chat, traits_of
from skald_openai.replies import read_error
from skald_openai.services import all_services, parse_endpoint
from skald_openai.usage import read_usage

# --- tool calls --------------------------------------------------------------------------------------------------

OFFERED = frozenset({"read_file", "list_files"})


def entry(
    index: int | None = None, call: str | None = None, name: str | None = None, args: Any = None
) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", args)) if value is not None}
    whole = {"index": index, "id": call, "function": function}
    return {key: value for key, value in whole.items() if value is not None}


def assemble(*deltas: list[Any], cut: bool = False) -> list[tuple[str, str, str, bool]]:
    """(id, name, arguments, ended) of each call, after checking that the events tell them in a lawful order."""
    counter = itertools.count(1)
    calls = CallAssembler(OFFERED, lambda: f"made_{next(counter)}")
    events = [event for delta in deltas for event in calls.feed(delta)]
    events += calls.finish(cut=cut)
    found: dict[str, list[Any]] = {}
    for event in events:
        match event:
            case CallStart(id, name):
                assert id not in found
                found[id] = [name, "", False]
            case CallDelta(id, text):
                assert not found[id][2]
                found[id][1] += text
            case CallEnd(id):
                found[id][2] = True
    return [(call, *rest) for call, rest in found.items()]


@pytest.mark.parametrize(
    "deltas",
    [
        [[entry(0, "a", "read_file", '{"path":"x"}')]],
        [[entry(0, "a", "read_file", "")], [entry(0, None, None, '{"path"')], [entry(0, None, None, ':"x"}')]],
        [[entry(0, "a", None, '{"pa')], [entry(0, None, "read_file", 'th":"x"}')]],
        [[entry(0, None, "read_file", '{"pa')], [entry(0, "a", None, 'th":"x"}')]],
        [[entry(0, "a", "read_file", '{"pa')], [entry(0, "a", "read_file", 'th":"x"}')]],
        [
            [entry(0, "a", "read_file", '{"pa')],
            [entry(0, "", "read_file", 'th":"x"}')],
            [entry(0, "", "read_file", "")],
        ],
        [[entry(None, "a", "read_file", '{"pa')], [entry(None, None, None, 'th":"x"}')]],
        [[entry(0, "a", "functions.read_file:0", '{"path":"x"}')]],
        [[entry(0, "a", "read_file<|channel|>commentary", '{"path":"x"}')]],
        [[None, entry(0, "a", "read_file", '{"path":"x"}'), "noise"]],
    ],
    ids=[
        "whole",
        "split",
        "name late",
        "id late",
        "all repeated",
        "name repeated",
        "no index",
        "prefixed",
        "trailed",
        "noise",
    ],
)
def test_one_call_however_it_comes(deltas: list[list[Any]]) -> None:
    """Every way servers cut a call gives the same call."""
    assert assemble(*deltas) == [("a", "read_file", '{"path":"x"}', True)]


@pytest.mark.parametrize(
    "deltas",
    [
        [[entry(0, "a", "read_file", "{}"), entry(1, "b", "list_files", "{}")]],
        [[entry(0, "a", "read_file", "{"), entry(1, "b", "list_files", "{")], [entry(1, args="}"), entry(0, args="}")]],
        [[entry(0, "a", "read_file", "{}")], [entry(0, "b", "list_files", "{}")]],
        [[entry(None, "a", "read_file", "{}"), entry(None, "b", "list_files", "{}")]],
        [
            [entry(None, "a", "read_file", "{")],
            [entry(None, "b", "list_files", "{")],
            [entry(None, "b", args="}")],
            [entry(None, "a", args="}")],
        ],
    ],
    ids=["by index", "interleaved", "all index 0", "no index", "by id"],
)
def test_two_calls_are_told_apart(deltas: list[list[Any]]) -> None:
    """By index, or where that is missing or always the same, by id."""
    assert assemble(*deltas) == [("a", "read_file", "{}", True), ("b", "list_files", "{}", True)]


def test_calls_without_ids_get_their_own() -> None:
    """Also when every call claims index 0 and is told apart only by its complete arguments."""
    deltas = [[entry(0, None, "read_file", '{"path":"x"}')], [entry(0, "", "read_file", '{"path":"y"}')]]
    assert assemble(*deltas) == [
        ("made_1", "read_file", '{"path":"x"}', True),
        ("made_2", "read_file", '{"path":"y"}', True),
    ]


def test_an_id_used_twice_is_replaced() -> None:
    """Results could not be told apart otherwise."""
    ids = [call[0] for call in assemble([entry(0, "a", "read_file", "{}"), entry(1, "a", "list_files", "{}")])]
    assert ids == ["a", "made_1"]


def test_arguments_as_an_object_become_text() -> None:
    """Some servers forget to encode them."""
    assert assemble([entry(0, "a", "read_file", {"path": "x"})]) == [("a", "read_file", '{"path":"x"}', True)]


def test_a_call_cut_by_the_length_is_not_ended() -> None:
    """The complete one before it is."""
    deltas = [[entry(0, "a", "read_file", "{}")], [entry(1, "b", "list_files", '{"path": "unfini')]]
    assert [call[3] for call in assemble(*deltas, cut=True)] == [True, False]


def test_a_call_that_never_gets_a_name_is_an_error() -> None:
    """Silently dropping it would lose what the model wanted."""
    with pytest.raises(NamelessCallError):
        assemble([entry(0, "a", None, "{}")])


CALL = st.tuples(
    st.sampled_from(sorted(OFFERED)), st.dictionaries(st.text(max_size=4), st.text(max_size=8), max_size=2)
)


@given(st.lists(CALL, min_size=1, max_size=4), st.randoms(use_true_random=False), st.booleans(), st.booleans())
def test_fragments_in_any_mixture_give_the_same_calls(
    calls: list[Any], random: Any, late_id: bool, late_name: bool
) -> None:
    """Arguments cut anywhere and calls interleaved in any order, as long as each has its index."""
    queues = []
    for index, (name, arguments) in enumerate(calls):
        text = json.dumps(arguments)
        cuts = sorted(random.randrange(len(text) + 1) for _ in range(3))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        queue = [entry(index, args=piece) for piece in pieces]
        queue[random.randrange(4) if late_id else 0]["id"] = f"id_{index}"
        queue[random.randrange(4) if late_name else 0]["function"]["name"] = name
        queues.append(queue)
    deltas = []
    while any(queues):
        deltas.append([random.choice([queue for queue in queues if queue]).pop(0)])
    want = {(f"id_{i}", name, json.dumps(arguments), True) for i, (name, arguments) in enumerate(calls)}
    assert set(assemble(*deltas)) == want


# --- usage -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}, Usage(10, 5)),
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 5,
                "total_tokens": 105,
                "prompt_tokens_details": {"cached_tokens": 80},
            },
            Usage(100, 5, 80),
        ),
        ({"prompt_tokens": 100, "completion_tokens": 5, "prompt_cache_hit_tokens": 64}, Usage(100, 5, 64)),
        ({"prompt_tokens": 100, "completion_tokens": 5, "cached_tokens": 64}, Usage(100, 5, 64)),
        ({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 85}, Usage(10, 75)),
        (
            {
                "prompt_tokens": 20,
                "completion_tokens": 5,
                "total_tokens": 105,
                "prompt_tokens_details": {"cached_tokens": 80},
            },
            Usage(100, 5, 80),
        ),
        (
            {
                "prompt_tokens": 20,
                "completion_tokens": 5,
                "cache_read_input_tokens": 80,
                "cache_creation_input_tokens": 10,
            },
            Usage(110, 5, 80, 10),
        ),
        ({"prompt_tokens": 1, "completion_tokens": 1, "cost": 0.0025}, Usage(1, 1, cost_usd=0.0025)),
        ({"prompt_tokens": 1, "completion_tokens": 1, "cost": {"total_cost": 0.5}}, Usage(1, 1, cost_usd=0.5)),
        ({"prompt_tokens": None, "completion_tokens": "5", "prompt_tokens_details": None, "cost": -1}, Usage()),
        ({"prompt_tokens": True, "completion_tokens": float("nan"), "cost": float("inf")}, Usage()),
    ],
    ids=[
        "plain",
        "openai",
        "deepseek",
        "moonshot",
        "hidden reasoning",
        "cache left out",
        "anthropic",
        "cost",
        "cost object",
        "junk",
        "more junk",
    ],
)
def test_usage(raw: dict[str, Any], want: Usage) -> None:
    """Whatever the dialect: input with the cache, output with the thoughts."""
    assert read_usage(raw) == want


# --- thoughts in the text ----------------------------------------------------------------------------------------


def split(*pieces: str) -> list[tuple[str, str]]:
    inline = InlineText()
    found = [piece for text in pieces for piece in inline.feed(text)]
    found += inline.finish()
    joined: list[tuple[str, str]] = []
    for kind, text in found:
        if joined and joined[-1][0] == kind:
            joined[-1] = (kind, joined[-1][1] + text)
        else:
            joined.append((kind, text))
    return joined


@given(st.integers(1, 12))
def test_a_leading_think_block_is_reasoning(size: int) -> None:
    """However it is cut."""
    text = "\n<think>\nSo < 3 & </b>…\n</think>\n\nThe answer is <think>."
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    assert split(*pieces) == [("reasoning", "So < 3 & </b>…\n"), ("text", "The answer is <think>.")]


@pytest.mark.parametrize("text", ["Plain.", "<thinking> is a tag", "A <think> later", "  indented code", "<"])
def test_other_text_stays_as_it_is(text: str) -> None:
    """To the letter, its leading space included."""
    assert split(*text) == [("text", text)]


def test_an_unclosed_thought_is_all_reasoning() -> None:
    """The model ran into its length while thinking."""
    assert split("<think>hm</thi") == [("reasoning", "hm</thi")]


# --- what servers say --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        ({"error": {"message": "No", "code": "bad_key"}}, "No", "bad_key"),
        ({"error": "Just text"}, "Just text", ""),
        ([{"error": {"message": "No", "status": "INVALID_ARGUMENT"}}], "No", ""),
        ({"object": "error", "message": "No", "type": "x", "code": 400}, "No", "400"),
        ({"detail": "Not Found"}, "Not Found", ""),
        ({"detail": [{"loc": ["body", "stop"], "msg": "Extra inputs"}]}, "body.stop: Extra inputs", ""),
        ({"success": False, "errors": [{"message": "No", "code": 7}]}, "No", "7"),
        ({"error": {"message": {"error": {"message": "Deep"}}}}, "", ""),
        (
            {
                "error": {
                    "message": "Provider returned error",
                    "code": 502,
                    "metadata": {"raw": '{"error":{"message":"Why"}}'},
                }
            },
            "Why",
            "",
        ),
    ],
)
def test_error_shapes(body: Any, message: str, code: str) -> None:
    """Each server has its own envelope."""
    reply = read_error(body)
    assert reply is not None
    assert (reply.message, reply.code) == (message, code)


@pytest.mark.parametrize(
    "body", [{"choices": []}, {"id": "x"}, [], "text", None, {"error": None, "choices": [{}]}, {"error": {}}]
)
def test_what_is_no_error(body: Any) -> None:
    """A normal chunk, also one that carries an empty error field, is not one."""
    assert read_error(body) in (None, read_error({"error": {}}))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda s: (
            st.lists(s, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "error",
                        "errors",
                        "detail",
                        "message",
                        "msg",
                        "code",
                        "type",
                        "metadata",
                        "raw",
                        "loc",
                        "param",
                        "object",
                    ]
                ),
                s,
                max_size=4,
            )
        ),
    )
)
def test_no_body_breaks_the_reader(body: Any) -> None:
    """A server may send anything."""
    reply = read_error(body)
    assert reply is None or len(reply.message) <= 300


# --- services ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "base", "label"),
    [
        (" https://api.openai.com/v1/ ", "https://api.openai.com/v1", "OpenAI"),
        ("https://openrouter.ai/api/v1/chat/completions", "https://openrouter.ai/api/v1", "OpenRouter"),
        ("http://localhost:11434/v1", "http://localhost:11434/v1", "Ollama"),
        ("http://127.0.0.1:1234/v1", "http://127.0.0.1:1234/v1", "LM Studio"),
        ("http://192.168.1.5:11434/v1", "http://192.168.1.5:11434/v1", "192.168.1.5:11434"),
        ("http://[::1]:8080/v1", "http://[::1]:8080/v1", "llama.cpp server"),
        ("https://llm.example.org", "https://llm.example.org", "llm.example.org"),
    ],
)
def test_addresses(typed: str, base: str, label: str) -> None:
    """What a person typed is trimmed, and the service behind it is recognised."""
    endpoint = parse_endpoint(typed)
    assert (endpoint.base_url, endpoint.label) == (base, label)


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("", "is empty"),
        ("api.openai.com/v1", "must start with https"),
        ("ftp://host/v1", "must start with https"),
        ("https:///v1", "not a valid address"),
        ("https://host:port/v1", "not a valid address"),
        ("https://ho st/v1", "not a valid address"),
        ("https://me:secret@host/v1", "API key field"),
        ("https://host/v1?key=abc", "'https://host/v1'"),
    ],
)
def test_addresses_that_make_no_sense(typed: str, hint: str) -> None:
    """Each is refused with what to change, and without repeating a secret."""
    with pytest.raises(ConfigError, match=hint) as caught:
        parse_endpoint(typed)
    assert "secret" not in str(caught.value)
    assert "abc" not in str(caught.value)


def test_the_services_file_is_sound() -> None:
    """Unique ids and hosts, https for what is far away, a key where one is needed, a place to get it."""
    services = all_services()
    assert len({service.id for service in services}) == len(services)
    for service in services:
        endpoint = parse_endpoint(service.base_url)
        assert endpoint.service is service
        assert endpoint.base_url == service.base_url
        assert service.help_url.startswith("https://")
        assert endpoint.loopback is service.local
        assert endpoint.origin.startswith("https://") is not service.local
        assert (service.key == "required") is not service.local


def test_a_local_services_port_far_away_is_not_that_service() -> None:
    """Only on this machine does a port say what listens there."""
    assert not parse_endpoint("http://10.0.0.1:1234/v1").known
    assert parse_endpoint("http://127.0.0.1:1234/v1").known


# --- models ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "context", "has", "lacks"),
    [
        ("gpt-4o-mini", 128000, {"tools", "vision"}, {"reasoning"}),
        ("openai/gpt-5.5:free", 1050000, {"reasoning", "documents"}, set()),
        ("gpt-5-nano-2025-08-07", 400000, {"reasoning"}, set()),
        ("models/gemini-2.5-pro", 1048576, {"video"}, set()),
        ("deepseek/deepseek-v3.2", 131072, {"reasoning"}, {"vision"}),
        ("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", 32768, {"tools"}, {"vision"}),
        ("accounts/fireworks/models/kimi-k2p6", 262144, {"vision"}, set()),
        ("ministral-3b-latest", 128000, {"tools"}, {"vision"}),
    ],
)
def test_known_models(name: str, context: int, has: set[str], lacks: set[str]) -> None:
    """The family is found under gateway prefixes, variants and capital letters."""
    info = known_info(name)
    assert info is not None
    assert info.context_window == context
    assert has <= info.capabilities
    assert not lacks & info.capabilities


@pytest.mark.parametrize(
    ("name", "weak"), [("qwen2.5-coder:1.5b", True), ("llama3.2:3b", True), ("qwen3-30b-a3b", False), ("gpt-4o", False)]
)
def test_small_models_are_weak(name: str, weak: bool) -> None:
    """By the size in their name; of a mixture of experts the whole counts."""
    info = known_info(name)
    assert info is not None
    assert info.weak is weak


@pytest.mark.parametrize(
    ("text", "size"), [("7.6B", 7.6), ("x-0.5b-q4", 0.5), ("gemma3:270m", 0.27), ("gpt-4o", None), ("v2b4", None)]
)
def test_sizes(text: str, size: float | None) -> None:
    """Numbers that are no sizes are left alone."""
    assert parameters(text) == size


def test_models_that_do_not_chat() -> None:
    """They are left out of lists; talking models are not."""
    for name in (
        "text-embedding-3-small",
        "nomic-embed-text",
        "whisper-1",
        "dall-e-3",
        "gpt-image-2",
        "tts-1",
        "omni-moderation-latest",
    ):
        assert not speaks_chat(name), name
    for name in ("gpt-4o", "llama3.2", "gpt-5.5", "qwen2.5-coder:7b", "mistral-large-latest", "deepseek-chat"):
        assert speaks_chat(name), name


def test_an_unknown_model_has_no_traits() -> None:
    """What is not known is treated plainly."""
    assert known_info("someones-own-model") is None
    traits = traits_of("someones-own-model")
    assert (traits.echo, traits.bridge, traits.marks) == (False, False, False)
