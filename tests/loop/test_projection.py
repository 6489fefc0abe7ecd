"""From history to wire: the rules one by one, then for any history at all."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from skald_core.loop.projection import Projection, ProjectionOptions, project
from skald_core.loop.records import Call, Checkpoint, Message
from skald_core.loop.types import (
    Attachment,
    CallId,
    CallPart,
    FrameId,
    MediaPart,
    MessageId,
    ModelInfo,
    ModelRequest,
    ReasoningPart,
    ResultPart,
    TextPart,
    WireMessage,
)
from tests.loop.helpers import pairs, texts

F = FrameId(1)
VISION = ModelInfo(capabilities=frozenset({"tools", "vision"}))


def request(messages: tuple[WireMessage, ...]) -> ModelRequest:
    return ModelRequest("m", (), messages)


def wire(messages: list[Message], **options: Any) -> list[str]:
    return texts(request(project(messages, **options)))


class History:
    """Builds messages with rising ids."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._calls = 0

    def user(self, text: str, **more: Any) -> History:
        return self._add("user", text, more)

    def says(self, text: str = "", *calls: tuple[str, Any], **more: Any) -> History:
        made = []
        for state, answer in calls:
            self._calls += 1
            made.append(
                Call(
                    CallId(self._calls),
                    MessageId(0),
                    len(made),
                    f"u{self._calls}",
                    "t",
                    '{"a":  1}',
                    state,
                    result=answer,
                )
            )
        return self._add("assistant", text, {**more, "calls": tuple(made)})

    def _add(self, role: Any, text: str, more: dict[str, Any]) -> History:
        self.messages.append(Message(MessageId(len(self.messages) + 1), F, None, role, text, **more))
        return self


def test_every_call_state_has_a_result() -> None:
    states: list[tuple[str, Any]] = [
        ("done", "fine"), ("failed", "broke"), ("cancelled", None), ("cancelled", "Stopped."), ("rejected", None),
        ("rejected", "no"), ("running", None), ("awaiting", None),
    ]  # fmt: skip
    made = project(History().user("q").says("", *states).messages)
    results = [p for p in made[2].parts if isinstance(p, ResultPart)]
    assert [p.content for p in results][:6] == [
        "fine", "Error: broke", "Cancelled by the user.", "Stopped.", "Refused.", "no",
    ]  # fmt: skip
    assert "interrupted" in results[6].content
    assert "waiting" in results[7].content
    assert [p.is_error for p in results] == [False] + [True] * 7
    pairs(request(made))


def test_arguments_are_replayed_byte_for_byte() -> None:
    made = project(History().user("q").says("", ("done", "r")).messages)
    assert [p.arguments for p in made[1].parts if isinstance(p, CallPart)] == ['{"a":  1}']


def test_arguments_no_api_would_parse_are_replaced() -> None:
    history = History().user("q").says("", ("failed", "bad"), ("failed", "bad"), ("failed", "bad"))
    message = history.messages[1]
    calls = tuple(
        Call(c.id, c.message, c.index, c.tool_use_id, c.name, bad, c.state, result=c.result)
        for c, bad in zip(message.calls, ('{"a": }', "[1]", ""), strict=True)
    )
    history.messages[1] = Message(message.id, F, None, "assistant", "", calls=calls)
    made = [json.loads(p.arguments) for p in project(history.messages)[1].parts if isinstance(p, CallPart)]
    assert made == [{"invalid_json": '{"a": }'}, {"invalid_arguments": [1]}, {}]


def test_neighbouring_user_messages_become_one() -> None:
    history = History().user("a").user("b", attachments=(Attachment("x.txt", "x.txt"),)).says("c")
    assert wire(history.messages)[0] == 'user: a\n\nb\n\n<attachments count="1">\n- x.txt\n</attachments>'


def test_failed_messages_stay_out_and_partial_ones_stay_in() -> None:
    history = (
        History().user("a", status="failed").user("b").says("c", status="partial").user("d").says("", status="failed")
    )
    assert wire(history.messages) == ["user: b", "assistant: c", "user: d"]


def test_a_summary_leads_and_joins_the_first_user_message() -> None:
    checkpoint = Checkpoint(1, F, "SUM", MessageId(9))
    (first, *_) = wire(History().user("q").says("a").messages, checkpoint=checkpoint)
    assert first.startswith("user: [Summary of the earlier part")
    assert first.endswith("SUM\n\nq")
    (first, second) = wire(History().says("a").messages, checkpoint=checkpoint)
    assert first.startswith("user: [Summary")
    assert second == "assistant: a"


def test_a_history_that_opens_with_an_answer_gets_a_user_message_first() -> None:
    made = wire(History().says("hello").says("again").messages)
    assert [m.split(":")[0] for m in made] == ["user", "assistant", "user", "assistant"]


def test_the_window_never_opens_in_an_exchange() -> None:
    history = History().user("1").says("", ("done", "r")).says("x").user("2").says("y").user("3")
    assert wire(history.messages, options=ProjectionOptions(window=4))[0] == "user: 2"


def test_results_are_cut_in_the_middle_and_older_turns_more() -> None:
    long = "a" * 500 + "b" * 500
    history = History().user("1").says("", ("done", long)).user("2").says("", ("done", long))
    options = ProjectionOptions(result_chars=600, old_result_chars=100)
    first, second = (
        p.content for m in project(history.messages, options=options) for p in m.parts if isinstance(p, ResultPart)
    )
    assert len(first) < 200 < 600 < len(second) < 800
    assert second.startswith("aaa")
    assert second.endswith("bbb")
    assert "400 of 1000" in second


def test_reasoning_and_replay_state_go_back_only_to_their_provider() -> None:
    history = History().user("q").says("a", reasoning="hm", reasoning_signature="s", replay={"k": 1}, provider="p")
    mine = project(history.messages, provider="p")[1]
    assert mine.parts[0] == ReasoningPart("hm", "s")
    assert mine.metadata == {"k": 1}
    other = project(history.messages, provider="q")[1]
    assert other.parts == (TextPart("a"),)
    assert other.metadata is None


def test_ids_a_provider_refuses_are_mapped_alike_every_time() -> None:
    history = History().user("q").says("", ("done", "r"))
    options = ProjectionOptions(id_pattern="[A-Za-z0-9]{9}", id_length=9)
    one, two = (project(history.messages, options=options) for _ in range(2))
    assert one == two
    (call,) = [p for p in one[1].parts if isinstance(p, CallPart)]
    assert len(call.id) == 9
    assert call.id.isalnum()
    pairs(request(one))


def test_repeated_ids_are_told_apart() -> None:
    history = History().user("q").says("", ("done", "1")).says("", ("done", "2"))
    twin = history.messages[2]
    call = twin.calls[0]
    again = Call(call.id, call.message, 0, "u1", "t", "{}", "done", result="2")
    history.messages[2] = Message(twin.id, F, None, "assistant", "", calls=(again,))
    ids = [p.id for m in project(history.messages) for p in m.parts if isinstance(p, CallPart)]
    assert len(set(ids)) == 2


def test_media_goes_only_to_models_that_see_and_only_in_its_turn() -> None:
    picture = (Attachment("p.png", "p.png", "image/png"),)
    media = {"p.png": MediaPart("image/png", b"1")}
    history = History().user("look", attachments=picture)
    assert project(history.messages, info=VISION, media=media)[0].parts[1] == media["p.png"]
    assert len(project(history.messages, media=media)[0].parts) == 1
    history.says("nice").user("next")
    assert not [
        p for m in project(history.messages, info=VISION, media=media) for p in m.parts if isinstance(p, MediaPart)
    ]


def test_the_host_words_calls_that_ended_without_a_result_and_the_summary() -> None:
    """A text that was recorded goes before the configured one."""
    options = ProjectionOptions(
        rejected="no!", cancelled="stop!", interrupted="cut!", summary_prefix="<s>", summary_suffix="</s>"
    )
    states: list[tuple[str, Any]] = [
        ("rejected", None),
        ("cancelled", ""),
        ("running", None),
        ("rejected", "own words"),
    ]
    checkpoint = Checkpoint(1, F, "SUM", MessageId(9))
    made = project(History().user("q").says("", *states).messages, options=options, checkpoint=checkpoint)
    assert [p.content for p in made[2].parts if isinstance(p, ResultPart)] == ["no!", "stop!", "cut!", "own words"]
    assert made[0].parts == (TextPart("<s>SUM</s>\n\nq"),)


def test_text_after_media_joins_the_text_before_it() -> None:
    """One text part, then the media of all of the user's messages in their order."""
    one, two = (Attachment(f"{n}.png", f"{n}.png", "image/png") for n in "ab")
    media = {"a.png": MediaPart("image/png", b"1"), "b.png": MediaPart("image/png", b"2")}
    history = History().user("look", attachments=(one,)).user("and here", attachments=(two,)).user("well?")
    options = ProjectionOptions(attachments=False)
    (made,) = project(history.messages, info=VISION, media=media, options=options)
    assert made.parts == (TextPart("look\n\nand here\n\nwell?"), media["a.png"], media["b.png"])


def test_media_of_a_result_follows_its_group() -> None:
    """As a user message of its own, after all results of the round."""
    media = {"p.png": MediaPart("image/png", b"1")}
    history = History().user("q").says("", ("done", "r"), ("done", "s"))
    call = msgspec.structs.replace(history.messages[1].calls[0], media=(Attachment("p.png", "p.png"),))
    history.messages[1] = msgspec.structs.replace(history.messages[1], calls=(call, history.messages[1].calls[1]))
    made = project(history.messages, info=VISION, media=media)
    assert [m.role for m in made] == ["user", "assistant", "tool", "user"]
    assert made[3].parts[1] == media["p.png"]


def test_the_tail_ends_the_last_user_message() -> None:
    history = History().user("q").says("", ("done", "r"))
    assert wire(history.messages, tail="noon")[0] == "user: q\n\nnoon"


# --- any history -------------------------------------------------------------------------------------------------

STATES = st.sampled_from(["done", "failed", "cancelled", "rejected", "running", "awaiting"])
CALLS = st.lists(
    st.builds(
        lambda state, use_id, arguments, answer: (state, use_id, arguments, answer),
        STATES,
        st.sampled_from(["u1", "u2", "bad id!", "x" * 80, ""]),
        st.sampled_from(["{}", '{"a":1}', "{", "", "[1]", "null"]),
        st.none() | st.just("r") | st.just("r" * 300),
    ),
    max_size=3,
)
MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(["user", "assistant", "agent", "system"]),
        st.sampled_from(["", "text"]),
        st.sampled_from(["ok", "ok", "ok", "partial", "failed"]),
        CALLS,
    ),
    max_size=12,
)


def build(drawn: list[Any]) -> list[Message]:
    messages: list[Message] = []
    count = 0
    for role, content, status, calls in drawn:
        made = []
        for state, use_id, arguments, answer in calls if role == "assistant" else ():
            count += 1
            made.append(Call(CallId(count), MessageId(0), len(made), use_id, "t", arguments, state, result=answer))
        messages.append(
            Message(
                MessageId(len(messages) + 1), F, None, role, content, reasoning="", status=status, calls=tuple(made)
            )
        )
    return messages


def check(made: tuple[WireMessage, ...]) -> None:
    """What every API asks for: user first, strict alternation, each call answered once, right after."""
    if not made:
        return
    pairs(request(made))
    before = ""
    for message in made:
        assert message.parts
        allowed = {"": {"user"}, "user": {"assistant"}, "assistant": {"user", "tool"}, "tool": {"assistant", "user"}}
        assert message.role in allowed[before]
        before = message.role
    ids = [p.id for m in made for p in m.parts if isinstance(p, CallPart)]
    assert len(ids) == len(set(ids))
    for part in (p for m in made for p in m.parts if isinstance(p, CallPart)):
        assert isinstance(json.loads(part.arguments), dict)
    assert not [p for m in made for p in m.parts if isinstance(p, TextPart) and not p.text]


ID_RULES = {"openai": (r"[\s\S]+", 64), "anthropic": (r"[A-Za-z0-9_-]+", 64), "nine": (r"[A-Za-z0-9]{9}", 9)}
"""What APIs accept as call ids: the pattern and the length."""


@given(MESSAGES, st.none() | st.integers(0, 6), st.booleans(), st.sampled_from(sorted(ID_RULES)))
def test_any_history_is_well_formed_on_the_wire(drawn: list[Any], window: int | None, summary: bool, rule: str) -> None:
    """For every provider's rules about ids, windows, and histories damaged on purpose."""
    pattern, length = ID_RULES[rule]
    options = ProjectionOptions(window=window, id_pattern=pattern, id_length=length)
    checkpoint = Checkpoint(1, F, "S", MessageId(0)) if summary else None
    made = project(build(drawn), options=options, checkpoint=checkpoint, tail="t")
    check(made)
    ids = [part.id for message in made for part in message.parts if isinstance(part, CallPart | ResultPart)]
    assert all(re.fullmatch(pattern, use_id) and len(use_id) <= length for use_id in ids)
    assert made == project(build(drawn), options=options, checkpoint=checkpoint, tail="t"), "ids are mapped alike"


@given(MESSAGES, st.data())
def test_the_cache_gives_what_the_pure_function_gives(drawn: list[Any], data: st.DataObject) -> None:
    """Growing a history message by message gives at each step exactly the projection of the whole."""
    options = ProjectionOptions(result_chars=200, old_result_chars=50)
    cache = Projection(options)
    messages: list[Message] = []
    for message in build(drawn):
        messages.append(message)
        if data.draw(st.booleans()):
            continue
        provider = data.draw(st.sampled_from(["p", "p", "q"]))
        made = cache.request(messages, checkpoint=None, info=VISION, provider=provider, media={}, tail="t")
        assert made == project(messages, options=options, info=VISION, provider=provider, tail="t")
