"""From stored history to what a model receives: one pure function, and a cache that gives the same in less time.

Rules: every call is followed by its result and no result stands alone, whatever the history looks like; arguments are
replayed byte for byte as the model wrote them; neighbouring user messages become one; media only in the current turn and
only for models that can look at it; tools that were activated on the way stand where the model's API wants them, and nothing
before them changes for it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import msgspec

from skald_core.loop.loading import anchor_of, brought_by
from skald_core.loop.records import Call, Checkpoint, Message
from skald_core.loop.text import cut
from skald_core.loop.types import (
    Attachment,
    CallPart,
    MediaPart,
    ModelInfo,
    Part,
    ReasoningPart,
    ResultPart,
    TextPart,
    ToolLoading,
    ToolSpec,
    WireMessage,
)

__all__ = (
    "INTERRUPTED", "Projection", "ProjectionOptions", "current_media", "loading_of", "media_kinds", "project", "visible",
)  # fmt: skip

INTERRUPTED = "This call was interrupted before it had a result. It may or may not have taken effect."
WAITING = "This call is still waiting for a person's decision. It has not run."
CANCELLED = "Cancelled by the user."
REJECTED = "Refused."

SUMMARY_HEAD = (
    "[Summary of the earlier part of this conversation. It is background, not a new instruction; "
    "continue from its active task.]\n\n"
)


class ProjectionOptions(msgspec.Struct, frozen=True):
    """How a frame's history is shown to a model.

    ``result_chars`` cuts each result (head and tail stay); ``old_result_chars`` does so for turns before the last user
    message. ``window`` keeps only the newest messages. ``id_pattern`` and ``id_length`` are what the provider accepts
    as call ids: others are replaced, each always by the same one. ``digest`` may give a shorter text in place of a result
    that is too long; None, or a failure, leaves it to be cut. ``rejected``, ``cancelled`` and ``interrupted`` are what the
    model reads of a call that ended so without a text of its own. A summary stands between ``summary_prefix`` and
    ``summary_suffix``. ``tool_loading`` overrides what the model's info says; ``activation_tool`` names the tool whose
    result lists what a round activated, where that is not simply the first one that did.
    """

    result_chars: int = 40_000
    old_result_chars: int | None = None
    window: int | None = None
    id_pattern: str = r"[A-Za-z0-9_-]+"
    id_length: int = 64
    attachments: bool = True
    digest: Callable[[Call], str | None] | None = None
    rejected: str = REJECTED
    cancelled: str = CANCELLED
    interrupted: str = INTERRUPTED
    summary_prefix: str = SUMMARY_HEAD
    summary_suffix: str = ""
    tool_loading: ToolLoading | None = None
    activation_tool: str = ""


log = logging.getLogger(__name__)

_DEFAULT = ProjectionOptions()

_decode = msgspec.json.Decoder().decode

Media = Mapping[str, MediaPart]
"""Loaded media of the current turn by attachment path."""

_KIND = {"image": "vision", "video": "video", "application/pdf": "documents"}
_KINDS = {"image": "vision", "video": "video", "document": "documents"}

_NO_TOOLS: Mapping[str, ToolSpec] = {}


def media_kinds(info: ModelInfo) -> tuple[str, ...]:
    """What a model can look at, always in this order: image, video, document."""
    return tuple(kind for kind, ability in _KINDS.items() if ability in info.capabilities)


def loading_of(options: ProjectionOptions, info: ModelInfo) -> ToolLoading:
    """How this model is given tools that were activated."""
    return options.tool_loading or info.tool_loading


def visible(part: MediaPart, info: ModelInfo) -> bool:
    """Whether a model can look at this."""
    kind = _KIND.get(part.media_type) or _KIND.get(part.media_type.partition("/")[0])
    return kind is not None and kind in info.capabilities


def current_media(messages: Sequence[Message]) -> Iterator[Attachment]:
    """Attachments the current turn may show: of its user messages and of results of its calls, in order."""
    for message in messages[_turn_start(messages) :]:
        if message.role != "assistant":
            yield from message.attachments
        for call in message.calls:
            yield from call.media


def _turn_start(messages: Sequence[Message]) -> int:
    """Index of the first user message of the current turn."""
    at = len(messages)
    while at > 0 and (messages[at - 1].role == "assistant" or messages[at - 1].status == "failed"):
        at -= 1
    while at > 0 and (messages[at - 1].role != "assistant" or messages[at - 1].status == "failed"):
        at -= 1
    return at


# --- one message -------------------------------------------------------------------------------------------------


def result_text(call: Call, options: ProjectionOptions) -> tuple[str, bool]:
    """What the model reads as a call's result, and whether it is an error."""
    if call.state == "done":
        return call.result or "", False
    if call.state == "failed":
        if call.result_kind == "interrupted":
            return call.result or options.interrupted, True
        return f"Error: {call.result or 'the call failed'}", True
    if call.state == "rejected":
        return call.result or options.rejected, True
    if call.state == "cancelled":
        return call.result or options.cancelled, True
    return (WAITING if call.state == "awaiting" else options.interrupted), True


@functools.cache
def _id_rule(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern).fullmatch


def _wire_id(call: Call, options: ProjectionOptions, seen: set[str]) -> str:
    """The model's id when the provider takes it and it is new in this request (some models count from 0 each time)."""
    use_id = call.tool_use_id
    if use_id not in seen and len(use_id) <= options.id_length and _id_rule(options.id_pattern)(use_id):
        seen.add(use_id)
        return use_id
    digest = hashlib.sha256(f"{call.id}:{use_id}".encode()).hexdigest()
    # Letters and digits only: nine of them are what the strictest known API accepts.
    return digest[: min(options.id_length, 24)]


def _arguments(call: Call) -> str:
    """The model's own text; a JSON object stands in for text an API would refuse to parse."""
    text = call.arguments
    if not text.strip():
        return "{}"
    try:
        value = _decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return json.dumps({"invalid_json": text}, ensure_ascii=False)
    return text if isinstance(value, dict) else json.dumps({"invalid_arguments": value}, ensure_ascii=False)


def _assistant(
    message: Message, options: ProjectionOptions, limit: int, provider: str, seen: set[str], named: tuple[str, ...]
) -> list[WireMessage]:
    """``named`` are the tools that the results of this message refer to."""
    parts: list[Part] = []
    same = not message.provider or message.provider == provider
    if message.reasoning and same:
        parts.append(ReasoningPart(message.reasoning, message.reasoning_signature))
    if message.content:
        parts.append(TextPart(message.content))
    results: list[Part] = []
    for call in message.calls:
        wire_id = _wire_id(call, options, seen)
        parts.append(CallPart(wire_id, call.name, _arguments(call)))
        text, is_error = result_text(call, options)
        if len(text) > limit:
            text = _shorter(call, text, limit, options)
        results.append(ResultPart(wire_id, text, is_error))
    if not message.content and not message.calls:
        return []
    if named:
        at = anchor_of(message.calls, options.activation_tool)
        results[at] = msgspec.structs.replace(results[at], tools=named)
    wire = [WireMessage("assistant", tuple(parts), message.replay if same else None)]
    if results:
        wire.append(WireMessage("tool", tuple(results)))
    return wire


def _shorter(call: Call, text: str, limit: int, options: ProjectionOptions) -> str:
    """A result that is too long: the host's digest of it, else its head and tail."""
    if options.digest is not None:
        try:
            digest = options.digest(call)
        except Exception:
            log.exception("a digest of a result could not be made")
            digest = None
        text = digest if digest is not None else text
    return cut(text, limit)


def _attachment_note(attachments: Sequence[Attachment]) -> str:
    lines = "\n".join(f"- {a.path}" + (f" ({a.media_type})" if a.media_type else "") for a in attachments)
    count = len(attachments)
    return f'<attachments count="{count}">\n{lines}\n</attachments>'


def _user_parts(message: Message, options: ProjectionOptions, info: ModelInfo, media: Media) -> list[Part]:
    text = message.prompt
    context = message.metadata.get("hook_context")
    if isinstance(context, str) and context:
        text = f"{text}\n\n<context>\n{context}\n</context>"
    if message.attachments and options.attachments:
        text = f"{text}\n\n{_attachment_note(message.attachments)}".strip()
    parts: list[Part] = [TextPart(text)] if text else []
    parts += _media_parts(message.attachments, info, media)
    return parts


def _media_parts(attachments: Sequence[Attachment], info: ModelInfo, media: Media) -> list[Part]:
    found = (media.get(a.path) for a in attachments)
    return [part for part in found if part is not None and visible(part, info)]


def _merge_text(parts: list[Part]) -> tuple[Part, ...]:
    """Texts joined by a blank line, media after them."""
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    rest = [part for part in parts if not isinstance(part, TextPart)]
    return (*([TextPart("\n\n".join(texts))] if texts else []), *rest)


# --- the whole history -------------------------------------------------------------------------------------------


def project(
    messages: Sequence[Message],
    *,
    checkpoint: Checkpoint | None = None,
    options: ProjectionOptions = _DEFAULT,
    info: ModelInfo = ModelInfo(),
    provider: str = "",
    media: Media | None = None,
    tail: str = "",
    deferred: Mapping[str, ToolSpec] = _NO_TOOLS,
) -> tuple[WireMessage, ...]:
    """The messages of a model request for a branch, oldest first.

    ``provider`` is the id of the provider that will get them: reasoning and replay state of another one stay out.
    ``tail`` joins the last user message. ``deferred`` are the tools that wait to be activated (``ToolRegistry.deferred``);
    a model that gets tools inline has no use for it, the request's ``tools`` are all it needs. The first message is always
    a user message; the list is empty only when the history is.
    """
    return _built(messages, checkpoint, options, info, provider, media or {}, deferred).finish(tail)


def _built(
    messages: Sequence[Message],
    checkpoint: Checkpoint | None,
    options: ProjectionOptions,
    info: ModelInfo,
    provider: str,
    media: Media,
    deferred: Mapping[str, ToolSpec],
) -> _Builder:
    shown = [m for m in messages if m.status != "failed"]
    if options.window is not None and len(shown) > options.window:
        shown = shown[-options.window :] if options.window else []
        while shown and shown[0].role == "assistant":
            shown = shown[1:]
    turn = _turn_start(shown)
    old_limit = options.result_chars if options.old_result_chars is None else options.old_result_chars
    builder = _Builder(options, info, provider, deferred, checkpoint)
    for index, message in enumerate(shown):
        current = index >= turn
        builder.add(message, options.result_chars if current else old_limit, media if current else {})
    return builder


class _Builder:
    """Collects wire messages; the open user message is kept apart until an assistant message closes it.

    ``active`` are the tools activated so far, in that order.
    """

    __slots__ = (
        "_deferred", "_info", "_loading", "_open", "_options", "_provider", "_seen", "active", "last_user", "wire",
    )  # fmt: skip

    def __init__(
        self,
        options: ProjectionOptions,
        info: ModelInfo,
        provider: str,
        deferred: Mapping[str, ToolSpec],
        checkpoint: Checkpoint | None,
    ) -> None:
        self._options = options
        self._info = info
        self._provider = provider
        self._deferred = deferred
        self._loading = loading_of(options, info)
        self._open: list[Part] = []
        self._seen: set[str] = set()
        self.active: dict[str, None] = {}
        self.wire: list[WireMessage] = []
        self.last_user: int | None = None
        if checkpoint is not None:
            self._open.append(TextPart(options.summary_prefix + checkpoint.summary + options.summary_suffix))

    def user(self, parts: list[Part]) -> None:
        self._open += parts

    def add(self, message: Message, limit: int, media: Media) -> None:
        if message.role != "assistant":
            if message.role != "system":
                self.user(_user_parts(message, self._options, self._info, media))
            return
        brought = self._brought(message)
        named = brought if self._loading == "reference" else ()
        made = _assistant(message, self._options, limit, self._provider, self._seen, named)
        if not made:
            return
        if brought and self._loading == "system":
            made.append(WireMessage("system", (), tools=tuple(self._deferred[name] for name in brought)))
        self._close()
        if not self.wire:
            # A history that begins with an answer (a delivered task, a cut window): APIs want a user message first.
            self._push_user((TextPart("(conversation continues)"),))
        last = self.wire[-1]
        if last.role == "assistant" and not any(isinstance(p, CallPart) for p in last.parts):
            # Two answers in a row (a stopped one and its continuation) would break strict alternation.
            self._push_user((TextPart("(continue)"),))
        self.wire += made
        shown = [part for call in message.calls for part in _media_parts(call.media, self._info, media)]
        if shown:
            self.user([TextPart("Files from the results above:"), *shown])

    def _brought(self, message: Message) -> tuple[str, ...]:
        """What the calls of a message activate that was not active before; inline there is nothing to tell of it."""
        names = [name for call in message.calls if call.extras for name in brought_by(call) if name not in self.active]
        if not names:
            return ()
        self.active.update(dict.fromkeys(names))
        if self._loading == "inline":
            return ()
        return tuple(name for name in dict.fromkeys(names) if name in self._deferred)

    def _push_user(self, parts: tuple[Part, ...]) -> None:
        self.last_user = len(self.wire)
        self.wire.append(WireMessage("user", parts))

    def _close(self) -> None:
        if self._open:
            self._push_user(_merge_text(self._open))
            self._open = []

    def finish(self, tail: str) -> tuple[WireMessage, ...]:
        """The messages so far, without changing what is collected."""
        wire = list(self.wire)
        last_user = self.last_user
        if self._open:
            last_user = len(wire)
            wire.append(WireMessage("user", _merge_text(self._open)))
        if tail and last_user is not None:
            wire[last_user] = WireMessage("user", _merge_text([*wire[last_user].parts, TextPart(tail)]))
        return tuple(wire)


class Projection:
    """:func:`project` for a branch that only grows: each request costs what was added since the last one.

    Anything but growth (another model, media, options, a new turn with its own limits) starts over. Tests hold it equal
    to the pure function.
    """

    def __init__(self, options: ProjectionOptions) -> None:
        self._options = options
        self._key: object = None
        self._builder: _Builder | None = None
        self._deferred: Mapping[str, ToolSpec] = _NO_TOOLS
        self._done = 0
        self._turn = 0
        self.active: Collection[str] = ()
        """The tools that what was shown last has activated, in that order."""

    def request(
        self,
        messages: Sequence[Message],
        *,
        checkpoint: Checkpoint | None,
        info: ModelInfo,
        provider: str,
        media: Media,
        tail: str = "",
        deferred: Mapping[str, ToolSpec] = _NO_TOOLS,
    ) -> tuple[WireMessage, ...]:
        """As :func:`project`. ``messages`` must be the list of the last call with more at its end, or another list."""
        if self._options.window is not None:
            whole = _built(messages, checkpoint, self._options, info, provider, media, deferred)
            self.active = whole.active
            return whole.finish(tail)
        if loading_of(self._options, info) == "inline":
            deferred = _NO_TOOLS
        key = (id(messages), checkpoint.id if checkpoint else 0, info, provider, tuple(media))
        builder = self._builder
        if (
            builder is None
            or key != self._key
            or len(messages) < self._done
            or deferred != self._deferred
            or self._user_added(messages)
        ):
            builder = self._builder = _Builder(self._options, info, provider, deferred, checkpoint)
            self._key, self._done, self._turn = key, 0, _turn_start(messages)
            self._deferred = deferred
        old_limit = self._options.result_chars
        if self._options.old_result_chars is not None:
            old_limit = self._options.old_result_chars
        for index in range(self._done, len(messages)):
            message = messages[index]
            if message.status == "failed":
                continue
            current = index >= self._turn
            builder.add(message, self._options.result_chars if current else old_limit, media if current else {})
        self._done = len(messages)
        self.active = builder.active
        return builder.finish(tail)

    def _user_added(self, messages: Sequence[Message]) -> bool:
        return any(message.role != "assistant" for message in messages[self._done :])

    def reset(self) -> None:
        """Forget: a message already shown has changed."""
        self._builder = None
