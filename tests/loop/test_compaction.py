"""When a conversation is compacted, what of it a model sees then, and what a failing or slow summary does: nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from skald_core.loop.compaction import (
    Compaction,
    CompactionContext,
    CompactionResult,
    Completion,
    KeepTail,
    estimate_tokens,
    known_tokens,
    should_compact,
)
from skald_core.loop.errors import ContextLengthError, ServerError
from skald_core.loop.events import CompactionEvent, ErrorEvent
from skald_core.loop.records import Call, Checkpoint, Message
from skald_core.loop.scripted import ScriptedProvider, Step, call, calls, fail, text
from skald_core.loop.store import Store
from skald_core.loop.types import CallId, ConversationId, FrameId, MessageId, ModelInfo, Usage

from .helpers import Plain, collect, kinds, make, of, pairs, path, result, texts

F = FrameId(1)
SMALL = ModelInfo(context_window=1000)


def messages(*contents: str, usage: Usage | None = None) -> tuple[Message, ...]:
    """User and assistant in turns; ``usage`` belongs to the last one."""
    roles = ("user", "assistant")
    made = [
        Message(MessageId(n + 1), F, MessageId(n) if n else None, roles[n % 2], content, created_at=n + 1)  # type: ignore[arg-type]  # the two literals
        for n, content in enumerate(contents)
    ]
    if usage is not None:
        last = made[-1]
        made[-1] = Message(last.id, F, last.parent, last.role, last.content, created_at=last.created_at, usage=usage)
    return tuple(made)


async def compact(
    strategy: KeepTail, history: tuple[Message, ...], **more: Any
) -> tuple[CompactionResult | None, list[str]]:
    """What a strategy makes of a history, and the prompts it asked with."""
    asked: list[str] = []

    async def complete(system: str, prompt: str, most: int) -> Completion:
        asked.append(prompt)
        return Completion(more.get("answer", f"summary {len(asked)}"), Usage(10, 1), "m")

    info = more.get("info", ModelInfo(context_window=100_000))
    context = CompactionContext(
        ConversationId("c"), F, history, more.get("previous"), info, estimate_tokens(history), "manual", complete
    )
    return await strategy.compact(context), asked


# --- when --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "info", "threshold", "full"),
    [
        (799, SMALL, None, False),
        (800, SMALL, None, True),
        (599, ModelInfo(context_window=1000, max_output_tokens=400), None, False),
        (600, ModelInfo(context_window=1000, max_output_tokens=400), None, True),
        (500, ModelInfo(context_window=1000, max_output_tokens=5000), None, True),
        (300, SMALL, 300, True),
        (799, SMALL, 5000, False),
    ],
)
def test_room_is_kept_for_the_answer_and_the_summary(
    tokens: int, info: ModelInfo, threshold: int | None, full: bool
) -> None:
    """The share of the window, the output the model may write, or an absolute count: what is reached first."""
    assert should_compact(tokens, info, fraction=0.8, threshold=threshold) is full


def test_a_stored_history_knows_its_size() -> None:
    """The last report counts, and an estimate of what came since; a report from before a checkpoint does not."""
    assert known_tokens((), None) == 0
    plain = messages("q" * 400, "a" * 400)
    assert known_tokens(plain, None) == estimate_tokens(plain)
    reported = messages("q", "a", usage=Usage(700, 50))
    assert known_tokens(reported, None) == 750
    after = Message(MessageId(3), F, MessageId(2), "user", "x" * 400, created_at=9)
    assert known_tokens((*reported, after), None) == 750 + estimate_tokens([after])
    early, late = (Checkpoint(1, F, "s" * 40, MessageId(0), created_at=at) for at in (1, 2))
    assert known_tokens(reported, early) == 750
    assert known_tokens(reported, late) == estimate_tokens(reported) + 10
    made = Call(CallId(1), MessageId(2), 0, "u", "t", "{}", "done", result="r" * 4000)
    with_result = Message(
        MessageId(2), F, MessageId(1), "assistant", "", usage=Usage(700, 50), calls=(made,), created_at=2
    )
    assert known_tokens((reported[0], with_result), None) == 1750


async def test_a_turn_that_begins_full_is_compacted_first(store: Store) -> None:
    """What the last turn's model reported is known from the store: also after a restart the next turn compacts, once."""
    provider = ScriptedProvider(
        [*(text(f"answer {n}") for n in range(5)), text("last", usage=Usage(900, 10))], info=SMALL
    )
    session = make(provider, store=store).session("c")
    for n in range(6):
        await collect(session.run(f"question {n}"))
    again = ScriptedProvider([text("THE SUMMARY"), text("after"), text("and on")], info=SMALL)
    session = make(again, store=store).session("c")
    events = await collect(session.run("one more"))
    assert kinds(events)[:3] == ["system", "user", "compaction"]
    (done,) = of(events, CompactionEvent)
    assert (done.trigger, done.strategy, done.tokens_before) == ("threshold", "keep-tail", 910 + 6)
    seen = "".join(texts(again.requests[1]))
    assert "THE SUMMARY" in seen
    assert "question 0" not in seen
    assert "one more" in seen
    pairs(again.requests[1])
    events = await collect(session.run("next"))
    assert not of(events, CompactionEvent), "the report from before the summary no longer counts"
    assert len(await path(store)) == 16, "nothing is removed from the history"


async def test_an_absolute_threshold_compacts_within_a_turn(store: Store) -> None:
    """Between two rounds, calls and results stay together."""
    tool = Plain("look", "x" * 200)
    steps: list[Step | str] = [calls(call("look"), usage=Usage(10 + n, 5)) for n in range(3)]
    steps += [calls(call("look"), usage=Usage(5000, 5)), text("SUM"), text("done")]
    provider = ScriptedProvider(steps)
    compaction = Compaction(strategy=KeepTail(1), threshold=4000)
    session = make(provider, tool, store=store, compaction=compaction).session("c")
    events = await collect(session.run("go"))
    assert result(events).final_text == "done"
    assert len(of(events, CompactionEvent)) == 1
    pairs(provider.requests[-1])
    assert "SUM" in texts(provider.requests[-1])[0]
    assert len(texts(provider.requests[-1])) < len(texts(provider.requests[3]))


async def test_a_failing_or_slow_summary_leaves_the_turn_alone(store: Store) -> None:
    """The turn goes on with the long history; only one attempt a turn."""
    full = Usage(900, 10)
    for problem in (fail(ServerError("down")), text("", gate=asyncio.Event(), gate_after=None), text("")):
        provider = ScriptedProvider([text("a", usage=full), problem, text("fine", usage=full)], info=SMALL)
        conversation = f"c{id(problem)}"
        compaction = Compaction(strategy=KeepTail(1), seconds=0.05)
        session = make(provider, store=store, compaction=compaction).session(conversation)
        await collect(session.run("one"))
        events = await collect(session.run("two"))
        assert result(events).final_text == "fine"
        assert not of(events, CompactionEvent)


async def test_manual_compaction_needs_no_setting(store: Store) -> None:
    """However short the chat, as long as something stays; the checkpoint outlives the process."""
    provider = ScriptedProvider(["a", "b", "SUMMARY", "c"])
    session = make(provider, store=store, compaction=Compaction(strategy=KeepTail(1), automatic=False)).session("c")
    assert not await session.compact(), "there is nothing yet"
    await collect(session.run("one"))
    await collect(session.run("two"))
    assert await session.compact()
    again = ScriptedProvider(["c"])
    await collect(make(again, store=store).session("c").run("three"))
    seen = texts(again.requests[0])
    assert "SUMMARY" in seen[0]
    assert "one" not in "".join(seen)


# --- what --------------------------------------------------------------------------------------------------------


async def test_the_tail_stays_and_nothing_is_split() -> None:
    """The cut goes back to a user message; too short a history is left alone."""
    done, asked = await compact(KeepTail(3), messages("q1", "a1", "q2", "a2", "q3", "a3"))
    assert done is not None
    assert done.covered_up_to == 2, "going back from the middle of a turn to its user message"
    assert "q1" in asked[0]
    assert "q2" not in asked[0]
    assert (await compact(KeepTail(6), messages("q1", "a1", "q2")))[0] is None
    assert (await compact(KeepTail(), ()))[0] is None


async def test_an_earlier_summary_is_updated_not_nested() -> None:
    """The model gets the old text to bring up to date."""
    previous = Checkpoint(1, F, "OLD", MessageId(0))
    done, asked = await compact(KeepTail(1), messages("q1", "a1", "q2"), previous=previous)
    assert done is not None
    assert done.summary == "summary 1"
    assert asked[0].startswith("PREVIOUS CHECKPOINT")
    assert "OLD" in asked[0]


async def test_an_empty_summary_saves_nothing() -> None:
    assert (await compact(KeepTail(1), messages("q1", "a1", "q2"), answer="  \n"))[0] is None


async def test_a_history_larger_than_the_window_goes_in_pieces() -> None:
    """Each piece fits, carries the summary so far, and all of the history is in some piece."""
    history = messages(*(f"<{n}>" + "w" * 5000 for n in range(12)))
    info = ModelInfo(context_window=6000)
    done, asked = await compact(KeepTail(1), history, info=info)
    assert done is not None
    assert done.usage == Usage(10 * len(asked), len(asked))
    assert len(asked) > 2
    assert all(len(prompt) // 4 < info.context_window for prompt in asked)
    for number, prompt in enumerate(asked[1:], 1):
        assert f"summary {number}" in prompt
    covered = done.covered_up_to
    assert all(any(f"<{n}>" in prompt for prompt in asked) for n in range(covered))


async def test_one_message_larger_than_the_window_is_cut_not_refused() -> None:
    """Its head and tail are what the summary sees."""
    history = messages("HEAD" + "w" * 500_000 + "TAIL", "a", "q")
    done, asked = await compact(KeepTail(1), history, info=ModelInfo(context_window=4000))
    assert done is not None
    joined = "".join(asked)
    assert "HEAD" in joined
    assert "TAIL" in joined
    assert len(joined) < 40_000


async def test_a_huge_last_message_does_not_keep_the_rest_in() -> None:
    """When even the tail is too long, all but the very last message is covered."""
    history = messages("q", "a", "q2", "a2", "w" * 400_000)
    done, _ = await compact(KeepTail(6), history, info=ModelInfo(context_window=10_000))
    assert done is not None
    assert done.covered_up_to == 4


async def test_another_strategy_takes_the_place_of_the_built_in_one(store: Store) -> None:
    """Its id is reported, and its summary is what models see."""

    class First:
        id = "drop-all-but-last"

        async def compact(self, context: CompactionContext) -> CompactionResult | None:
            return CompactionResult(f"{len(context.messages)} messages", context.messages[-2].id)

    provider = ScriptedProvider(["a", "b"])
    session = make(provider, store=store, compaction=Compaction(strategy=First())).session("c")
    await collect(session.run("one"))
    seen = session.subscribe()
    assert await session.compact()
    seen.close()
    (event,) = of(await collect(seen), CompactionEvent)
    assert (event.strategy, event.messages_before, event.messages_after) == ("drop-all-but-last", 2, 1)
    await collect(session.run("two"))
    assert "2 messages" in texts(provider.requests[1])[0]


class AllButLast:
    """Covers everything but the last message, without asking a model."""

    id = "all-but-last"

    async def compact(self, context: CompactionContext) -> CompactionResult | None:
        if len(context.messages) < 2:
            return None
        return CompactionResult(f"covers {len(context.messages) - 1}", context.messages[-2].id)


async def test_every_round_may_make_room_once(store: Store) -> None:
    """A long turn outgrows its model more than once: each refused request is compacted and sent again, once a round."""
    too_long = ContextLengthError("too long", status=400)
    steps = [calls(call("look")), fail(too_long), calls(call("look")), fail(too_long), text("done")]
    settings = Compaction(strategy=AllButLast())
    agent = make(ScriptedProvider(steps), Plain("look"), store=store, compaction=settings)
    events = await collect(agent.session("c").run("go"))
    assert [(e.trigger, e.messages_after) for e in of(events, CompactionEvent)] == [("forced", 1), ("forced", 1)]
    assert result(events).final_text == "done"


async def test_a_request_that_stays_too_long_fails_with_its_own_error(store: Store) -> None:
    """A second refusal in the same round, or nothing left to cover, is told as it is."""
    too_long = ContextLengthError("too long", status=400)
    for steps in ([text("a"), fail(too_long), fail(too_long)], [text("a"), fail(too_long)]):
        strategy = AllButLast() if len(steps) == 3 else KeepTail(50)
        agent = make(ScriptedProvider(steps), store=store, compaction=Compaction(strategy=strategy))
        session = agent.session(f"c{len(steps)}")
        await collect(session.run("one"))
        events = await collect(session.run("two"))
        assert [e.kind for e in of(events, ErrorEvent)] == ["context_length"]
        assert result(events).subtype == "error"
        assert len(of(events, CompactionEvent)) == len(steps) - 2
