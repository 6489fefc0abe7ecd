"""A tool by which the agent asks the person, and the channel a host answers through."""

from __future__ import annotations

import logging
from typing import Annotated, Any, Protocol

import msgspec

from skald_core.loop.errors import LoopError, ToolError, ToolSuspended
from skald_core.loop.tools import InvalidArguments, Tool, ToolContext, ToolOutput
from skald_core.loop.types import CallId, ConversationId, FrameId

__all__ = ("Answered", "AskUserTool", "Declined", "HumanChannel", "HumanGone", "Option", "Question", "Questions")

log = logging.getLogger(__name__)

_Text = Annotated[str, msgspec.Meta(min_length=1)]


class Option(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An answer to choose. Another one, in the person's own words, is always possible."""

    label: _Text
    description: str = ""


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """``header`` is a tag of at most twelve characters; ``options`` are none, or two to four."""

    question: _Text
    header: Annotated[str, msgspec.Meta(min_length=1, max_length=12)] | None = None
    options: tuple[Option, ...] = ()
    multi_select: bool = False


class Questions(msgspec.Struct, frozen=True):
    """What one call asks, and whose call it is."""

    questions: tuple[Question, ...]
    call_id: CallId
    tool_use_id: str
    conversation: ConversationId
    frame: FrameId
    agent: str
    title: str = ""


class Answered(msgspec.Struct, frozen=True):
    """For each question, in order, what was chosen or written: one text, or several where ``multi_select`` says so."""

    answers: tuple[tuple[str, ...], ...]


class Declined(msgspec.Struct, frozen=True):
    """The person does not want to answer; the agent goes on with assumptions it names."""

    reason: str = ""


class HumanGone(msgspec.Struct, frozen=True):
    """Nobody can be reached now: the call stays open and the turn ends; ``Session.resume`` asks again."""


class HumanChannel(Protocol):
    """How a host puts questions to its person."""

    async def ask(self, asked: Questions) -> Answered | Declined | HumanGone:
        """Wait for the answer. Cancelled when the turn is stopped: what is answered after that is nobody's concern."""
        ...


class _Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    questions: Annotated[tuple[Question, ...], msgspec.Meta(min_length=1, max_length=4)]
    title: str = ""


_OPTION = {
    "type": "object",
    "properties": {"label": {"type": "string"}, "description": {"type": "string"}},
    "required": ["label"],
}
_QUESTION = {
    "type": "object",
    "properties": {
        "question": {"type": "string"},
        "header": {"type": "string", "description": "A tag of at most 12 characters.", "maxLength": 12},
        "options": {
            "type": "array",
            "items": _OPTION,
            "maxItems": 4,
            "description": "Two to four answers to choose from, or none. The person may always write another one.",
        },
        "multi_select": {"type": "boolean"},
    },
    "required": ["question"],
}


class AskUserTool(Tool):
    """Asks the person up to four questions. Only the conversation's own agent has it.

    Models also get away with one plain question: ``{"question": …, "suggested": […]}`` (or ``suggested_answers``).
    """

    scope = "read"  # asking changes nothing, so it needs no permission
    restart_hint = "rerun"
    root_only = True
    icon = "question"
    description = (
        "Ask the person when you cannot go on without a decision that is theirs. "
        "Do not ask what you can find out yourself."
    )
    parameters = {  # noqa: RUF012 -- replaced, never changed
        "type": "object",
        "properties": {"questions": {"type": "array", "items": _QUESTION, "minItems": 1, "maxItems": 4}},
        "required": ["questions"],
    }

    def __init__(self, channel: HumanChannel, *, name: str = "ask_user", title: str = "") -> None:
        self.name = name
        self.title = title
        self._channel = channel

    def validate(self, arguments: dict[str, Any]) -> _Arguments:
        try:
            made = msgspec.convert(_one_question(arguments), _Arguments)
        except msgspec.ValidationError as error:
            raise InvalidArguments(f"{self.name}: {error}") from None
        for question in made.questions:
            labels = [option.label for option in question.options]
            if len(labels) == 1 or len(labels) > 4:
                raise InvalidArguments(f"{self.name}: give two to four options, or none, not {len(labels)}")
            if len(set(labels)) != len(labels):
                raise InvalidArguments(f"{self.name}: the labels of a question's options must differ")
        return made

    def summarize(self, arguments: _Arguments) -> str:
        first, *more = (question.question for question in arguments.questions)
        short = first if len(first) <= 60 else first[:59] + "…"
        return f"{short} (+{len(more)} more)" if more else short

    async def run(self, arguments: _Arguments, ctx: ToolContext) -> ToolOutput:
        asked = Questions(
            arguments.questions, ctx.call_id, ctx.tool_use_id, ctx.conversation, ctx.frame, ctx.agent, arguments.title
        )
        try:
            answer = await self._channel.ask(asked)
        except LoopError:
            raise
        except Exception:
            log.exception("the human channel failed")
            raise ToolError("the question could not be asked; go on with an assumption and say so") from None
        match answer:
            case Answered(answers):
                return ToolOutput(_told(arguments.questions, answers))
            case Declined(reason):
                why = f" They said: {reason}" if reason else ""
                return ToolOutput(
                    f"The person does not want to answer.{why} Go on with a sensible assumption and say which."
                )
            case HumanGone():
                raise ToolSuspended("the question waits for a person")
            case _:
                # a channel is foreign code and may return anything.
                raise ToolError("the question got no usable answer")


def _one_question(arguments: dict[str, Any]) -> dict[str, Any]:
    """The plain form as the full one; anything else as it is."""
    if "questions" in arguments or not isinstance(arguments.get("question"), str):
        return arguments
    rest = dict(arguments)
    suggested = rest.pop("suggested", None) or rest.pop("suggested_answers", None) or []
    question: dict[str, Any] = {"question": rest.pop("question")}
    if isinstance(suggested, list):
        labels = list(dict.fromkeys(text for text in suggested if isinstance(text, str) and text.strip()))
        if len(labels) > 1:
            question["options"] = [{"label": label} for label in labels[:4]]
    return {"questions": [question], **rest}


def _told(questions: tuple[Question, ...], answers: object) -> str:
    """The answers as the model reads them. Raises ToolError when they do not fit the questions."""
    if not isinstance(answers, tuple | list) or len(answers) != len(questions):
        raise ToolError("the question got no usable answer: there is not one answer for each question")
    lines: list[str] = []
    for question, chosen in zip(questions, answers, strict=True):
        texts = [text for text in chosen if isinstance(text, str) and text] if isinstance(chosen, tuple | list) else []
        if not texts or len(texts) != len(chosen) or (len(texts) > 1 and not question.multi_select):
            raise ToolError(f"the question {question.question!r} got no usable answer")
        lines.append(f"{question.question} → {', '.join(texts)}" if len(questions) > 1 else ", ".join(texts))
    return "\n".join(lines)
