"""One conversation, as a host works with it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from skald_core.loop.archive import Archive, pack, unpack
from skald_core.loop.compaction import estimate_tokens
from skald_core.loop.errors import AbortError, ConfigError
from skald_core.loop.kernel import FrameRun
from skald_core.loop.ops import (
    AppendMessage,
    DeleteQueued,
    EditQueued,
    Enqueue,
    ImportMessages,
    MergeMeta,
    NewCall,
    Op,
    OpenFrame,
    RemoveMessages,
    ReorderQueue,
    ResolveCall,
    SetHead,
    TaskDone,
    UpdateMessage,
    kept_before,
)
from skald_core.loop.profile import Profile
from skald_core.loop.records import ConversationInfo, HistoryPage, Message, QueuedInput, QueueKind
from skald_core.loop.runner import Opening, Prompted, Resumed, Runner, Sent, new_run_id
from skald_core.loop.services import LiveTurn, Services, TurnState
from skald_core.loop.subscription import EventHub, RunStream, Subscription
from skald_core.loop.types import Attachment, CallId, ConversationId, FrameId, MessageId

__all__ = ("CONTINUE", "Session")

CONTINUE = "Continue exactly where you stopped."

When = Literal["turn", "steer", "interrupt"]


class Session:
    """A handle on a conversation; cheap, holds no history, and any number of them may exist.

    ``profile`` replaces the Agent's profile for turns started here; what is taken up after a restart has the Agent's.
    """

    def __init__(
        self,
        services: Services,
        runner: Runner,
        hub: EventHub,
        conversation: ConversationId,
        *,
        profile: Profile | None = None,
        buffer: int = 4096,
    ) -> None:
        self.conversation = conversation
        self._services = services
        self._store = services.store
        self._runner = runner
        self._hub = hub
        self._profile = profile
        self._buffer = buffer

    # -- talking -----------------------------------------------------------------------------------------------------

    def run(
        self,
        prompt: str,
        *,
        client_id: str = "",
        attachments: Sequence[Attachment] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> RunStream:
        """Begin a turn and follow its events up to ``result``.

        The turn begins now, whether or not anybody reads, and leaving the loop early does not stop it. Raises
        ConfigError at once when a turn is running. A ``client_id`` known already ends the stream without events.
        """
        self._need_text(prompt, attachments)
        return self._follow(
            Prompted(prompt, client_id, tuple(attachments), dict(metadata or {})),
        )

    def _follow(self, opening: Opening, model: str | None = None) -> RunStream:
        stream = RunStream(self._hub, self.conversation, self._buffer, new_run_id())
        opened = self._runner.start(self.conversation, opening, profile=self._profile, run_id=stream.run_id, pin=model)
        self._hub.add(stream)
        opened.add_done_callback(lambda done: _close_if_known(stream, done))
        return stream

    async def send(
        self,
        content: str,
        *,
        client_id: str = "",
        attachments: Sequence[Attachment] = (),
        metadata: Mapping[str, Any] | None = None,
        when: When = "turn",
        synthetic: bool = False,
    ) -> Sent:
        """Store a message and see that it gets its turn; returns once it is durable.

        Idle: a turn begins with it (behind input that still waits). Running: it waits for its own turn, joins the
        running one at the next round (``steer``), or goes next after the current round (``interrupt``). A ``client_id``
        known already stores nothing. Raises ConfigError for an empty message and HookError when a hook refuses it.
        """
        self._need_text(content, attachments)
        kind: QueueKind = "synthetic" if synthetic else "user"
        more = dict(metadata or {})
        if not self._runner.running(self.conversation):
            # What no person typed does not set going what a person's stop holds.
            prompt = Prompted(content, client_id, tuple(attachments), more, synthetic, queue=not synthetic)
            opened = self._runner.start(self.conversation, prompt, profile=self._profile)
            sent = await asyncio.shield(opened)
            assert sent is not None
            return sent
        steering = when == "steer" and not synthetic
        sent = await self._runner.enqueue(
            Enqueue(
                self.conversation, content, "steer" if steering else kind, client_id, tuple(attachments), more,
                self._services.clock(),
            )
        )  # fmt: skip
        if sent.queued_id is None or sent.existing:
            return sent
        turn = self._runner.turn(self.conversation)
        if steering and turn is not None and turn.steerable:
            turn.steering.setdefault(sent.queued_id, None)
        if when == "interrupt":
            await self.reorder_queue([sent.queued_id])
            self._runner.interrupt(self.conversation)
        self._runner.run_queue(self.conversation, self._profile, held=not synthetic)
        return sent

    async def steer(self, prompt: str, *, attachments: Sequence[Attachment] = ()) -> MessageId:
        """Say something to the running turn; returns once it is part of it.

        Raises ConfigError when no turn runs, HookError when a hook refuses the text, AbortError when the turn ends first
        (then the text is not kept, unless the process ends: then it waits like any message).
        """
        self._need_text(prompt, attachments)
        turn = self._need_turn()
        sent = await self._runner.enqueue(
            Enqueue(self.conversation, prompt, "steer", attachments=tuple(attachments), at=self._services.clock())
        )
        assert sent.queued_id is not None
        if self._runner.turn(self.conversation) is not turn or not turn.steerable:
            await self._store.apply([DeleteQueued(sent.queued_id)])
            raise AbortError("the turn ended before this message could join it")
        told: asyncio.Future[MessageId] = asyncio.get_running_loop().create_future()
        turn.steering[sent.queued_id] = told
        return await told

    def _need_turn(self) -> TurnState:
        turn = self._runner.turn(self.conversation)
        if turn is None:
            raise ConfigError("no turn is running; start one with run() or send()")
        return turn

    @staticmethod
    def _need_text(content: str, attachments: Sequence[Attachment]) -> None:
        if not content.strip() and not attachments:
            raise ConfigError("the message is empty; write something or attach a file")

    async def deliver(self, content: str, *, client_id: str = "", metadata: Mapping[str, Any] | None = None) -> Sent:
        """Bring in text no person typed (a finished task, a notification) and have the agent answer it."""
        return await self.send(content, client_id=client_id, metadata=metadata, synthetic=True)

    async def deliver_result(
        self, task_id: str, result: str, *, title: str = "", metadata: Mapping[str, Any] | None = None
    ) -> Sent:
        """Bring in what a background task came to and have the agent go on with it; the same task's result only once.

        The history shows it as a finished ``task_completed`` call whose result is ``{task_id, title, result}``.
        """
        content = msgspec.json.encode(TaskDone(task_id, title, result)).decode()
        op = Enqueue(
            self.conversation, content, "task", f"task:{task_id}", metadata=dict(metadata or {}),
            at=self._services.clock(),
        )  # fmt: skip
        sent = await self._runner.enqueue(op)
        if not sent.existing:
            self._runner.run_queue(self.conversation, self._profile)
        return sent

    # -- control -----------------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        return self._runner.running(self.conversation)

    def interrupt(self) -> bool:
        """Let the current round finish, then end the turn as ``interrupted``. False when none runs."""
        return self._runner.interrupt(self.conversation)

    def abort(self, reason: str = "") -> bool:
        """Stop at once; open calls are recorded as cancelled. False when nothing runs. What waits is held."""
        return self._runner.abort(self.conversation, reason)

    async def stop(self, reason: str = "") -> bool:
        """:meth:`abort`, and wait until it is done."""
        stopped = self.abort(reason)
        await self._runner.idle(self.conversation)
        return stopped

    async def wait(self) -> None:
        """Wait until no turn runs and no queued input is about to start one."""
        await self._runner.idle(self.conversation)

    def live(self) -> LiveTurn | None:
        """The running turn beyond the stored history, or None. Consistent with the events emitted so far."""
        return self._runner.live(self.conversation)

    def subscribe(self, *, buffer: int | None = None) -> Subscription:
        """Events of this conversation from now on, over all turns."""
        return self._hub.subscribe(self.conversation, buffer or self._buffer)

    def resume(self) -> RunStream:
        """Take up a turn whose calls wait for a person, or that ended between two steps. Judges and asks again."""
        return self._follow(Resumed())

    async def resolve_call(self, call: CallId, *, allow: bool, reason: str = "") -> bool:
        """Answer a call that waits while no turn runs. False when it has a result already.

        Refused: ``reason`` becomes its result and the agent goes on. Allowed: the gate is asked again and is expected to
        find the answer; use :meth:`resume` where the gate keeps answers itself.
        """
        found = await self._store.call(call)
        if found is None or found.terminal:
            return False
        if not allow:
            await self._store.apply(
                [ResolveCall(call, "rejected", reason or "Refused.", "rejected", at=self._services.clock())]
            )
        self.resume()
        return True

    # -- branches ----------------------------------------------------------------------------------------------------

    async def retry(self, *, model: str | None = None) -> RunStream:
        """Try again after a failed or interrupted answer, keeping finished tool rounds; after a good one, answer anew."""
        free = self._runner.claim(self.conversation)
        try:
            ops = await self._retry_ops()
        finally:
            free()
        return self._follow(Resumed(ops), model)

    async def _retry_ops(self) -> tuple[Op, ...]:
        frame, message = await self._head()
        if message is None:
            raise ConfigError("there is nothing to retry yet; send a message first")
        if message.role == "assistant" and message.status == "ok" and not message.calls:
            return await self._regenerate_ops(message)
        ops: list[Op] = []
        while message is not None and message.role == "assistant" and message.status != "ok":
            ops = [SetHead(frame, message.parent)]
            message = await self._store.message(message.parent) if message.parent is not None else None
        if message is not None and message.status == "failed":
            ops.append(UpdateMessage(message.id, status="ok"))
        return tuple(ops)

    async def regenerate(self, message: MessageId, *, model: str | None = None) -> RunStream:
        """Answer the user message before ``message`` anew, as a sibling branch."""
        found = await self._need_message(message)
        ops = await self._regenerate_ops(found)
        return self._follow(Resumed(ops), model)

    async def _regenerate_ops(self, message: Message) -> tuple[Op, ...]:
        at: Message | None = message
        while at is not None and at.role == "assistant":
            at = await self._store.message(at.parent) if at.parent is not None else None
        if at is None:
            raise ConfigError("no user message comes before this answer, so it cannot be made anew")
        ops: list[Op] = [SetHead(at.frame, at.id)]
        if at.status == "failed":
            ops.append(UpdateMessage(at.id, status="ok"))
        return tuple(ops)

    def edit(
        self,
        message: Message,
        content: str,
        *,
        client_id: str = "",
        attachments: Sequence[Attachment] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> RunStream:
        """Send another text in place of a user message, as a sibling branch."""
        kept = message.attachments if attachments is None else tuple(attachments)
        self._need_text(content, kept)
        return self._follow(Prompted(content, client_id, kept, dict(metadata or {}), parent=message.parent))

    async def continue_(self, *, model: str | None = None) -> RunStream:
        """Go on after a stopped, cut or limited answer, keeping it."""
        await self._head()
        prompt = Prompted(CONTINUE, metadata={"source": "continue"}, synthetic=True)
        return self._follow(prompt, model)

    async def select(self, message: MessageId) -> None:
        """Show the branch ``message`` is on, down to its newest reply. Raises ConfigError while a turn runs."""
        free = self._runner.claim(self.conversation)
        try:
            found = await self._need_message(message)
            leaf = await self._store.leaf(message)
            await self._store.apply([SetHead(found.frame, leaf)])
        finally:
            free()

    async def _head(self) -> tuple[FrameId, Message | None]:
        root = await self._store.root(self.conversation)
        if root is None:
            raise ConfigError("this conversation has no messages yet")
        return root.id, await self._store.message(root.head) if root.head is not None else None

    async def _need_message(self, message: MessageId) -> Message:
        root = await self._store.root(self.conversation)
        found = await self._store.message(message)
        if root is None or found is None or found.frame != root.id:
            raise ConfigError(f"message {message!r} is not part of this conversation")
        return found

    # -- the queue ---------------------------------------------------------------------------------------------------

    async def queue(self) -> tuple[QueuedInput, ...]:
        return await self._store.queued(self.conversation)

    async def edit_queued(self, queued: int, content: str, *, metadata: Mapping[str, Any] | None = None) -> None:
        """Change what waits; ``metadata`` replaces the old when given. Raises StoreError when it was sent or deleted
        meanwhile."""
        self._need_text(content, ())
        await self._need_queued(queued)
        more = None if metadata is None else dict(metadata)
        await self._store.apply([EditQueued(queued, content, metadata=more)])
        await self._runner.queue_changed(self.conversation)

    async def delete_queued(self, queued: int) -> bool:
        """False when it no longer waits."""
        if queued not in {item.id for item in await self.queue()}:
            return False
        (done,) = await self._store.apply([DeleteQueued(queued)])
        await self._runner.queue_changed(self.conversation)
        return done.changed

    async def reorder_queue(self, order: Sequence[int]) -> None:
        """Put these first, in this order."""
        await self._store.apply([ReorderQueue(self.conversation, tuple(order))])
        await self._runner.queue_changed(self.conversation)

    async def send_queued_now(self, queued: int) -> None:
        """Move waiting input into the running turn (steering), or begin a turn with it when none runs."""
        await self._need_queued(queued)
        turn = self._runner.turn(self.conversation)
        if turn is not None:
            await self._store.apply([EditQueued(queued, kind="steer")])
            if turn.steerable:
                turn.steering.setdefault(queued, None)
            await self._runner.queue_changed(self.conversation)
        else:
            await self.reorder_queue([queued])
            self.run_queue()

    async def _need_queued(self, queued: int) -> None:
        if queued not in {item.id for item in await self.queue()}:
            raise ConfigError(f"queued message {queued!r} waits no more: it was sent or deleted")

    def run_queue(self) -> None:
        """Begin with what waits, when no turn runs. Input held after a stop goes on with this."""
        self._runner.run_queue(self.conversation, self._profile, held=True)

    # -- history -----------------------------------------------------------------------------------------------------

    async def history(self, *, before: MessageId | None = None, limit: int = 50) -> HistoryPage:
        """A page of the visible branch, oldest first."""
        return await self._store.history(self.conversation, before=before, limit=limit)

    async def compact(self) -> bool:
        """Summarize the older part of the conversation now, whatever its length. False when there is too little.

        Raises ConfigError while a turn runs, TimeoutError or a ModelError when the summary could not be made; the
        conversation is unchanged then.
        """
        free = self._runner.claim(self.conversation)
        try:
            root = await self._store.root(self.conversation)
            loaded = await self._store.load(root.id) if root is not None else None
            if loaded is None:
                return False
            profile = self._profile or await self._services.profiles(self.conversation, "")
            turn = TurnState(self.conversation, new_run_id(), self._services.clock())
            run = FrameRun(self._services, turn, loaded, profile, token=turn.token, emit=self._hub.emit)
            return await run.compact("manual", estimate_tokens(loaded.messages))
        finally:
            free()

    async def append(self, *ops: AppendMessage) -> tuple[MessageId, ...]:
        """Add messages without a turn (an import, a delivered result). Raises ConfigError while a turn runs."""
        free = self._runner.claim(self.conversation)
        try:
            return tuple(MessageId(done.id) for done in await self._store.apply(ops))
        finally:
            free()

    async def info(self) -> ConversationInfo | None:
        """The conversation as lists show it; None before its first message."""
        return await self._store.conversation(self.conversation)

    async def update_meta(self, meta: Mapping[str, Any]) -> None:
        """Add keys to what the host keeps with the conversation. Raises ConfigError before its first message."""
        root = await self._store.root(self.conversation)
        if root is None:
            raise ConfigError("this conversation has no messages yet")
        await self._store.apply([MergeMeta(root.id, dict(meta))])

    async def export(self, *, title: str = "") -> bytes:
        """The whole history, every branch of it, as a JSON document for :meth:`import_`; ``title`` is kept with it."""
        root = await self._store.root(self.conversation)
        if root is None:
            return pack(Archive((), None, title=title))
        messages, checkpoints = await self._store.tree(root.id), await self._store.checkpoints(root.id)
        return pack(Archive(messages, root.head, root.agent, checkpoints, title=title))

    async def import_(self, data: bytes | Archive) -> None:
        """Take over an exported history, all of it or nothing; only into a conversation without messages.

        Raises ConfigError when there are messages already and while a turn runs, ArchiveError for data that is no export.
        Unpack a large one on a worker thread first.
        """
        archive = data if isinstance(data, Archive) else unpack(data)
        free = self._runner.claim(self.conversation)
        try:
            root = await self._store.root(self.conversation)
            if root is not None and await self._store.tree(root.id):
                raise ConfigError("this conversation has messages already; import into a new one")
            opened = OpenFrame(self.conversation, archive.agent, at=self._services.clock())
            messages = ImportMessages(None, archive.messages, archive.head, archive.checkpoints)
            await self._store.apply([opened, messages])
        finally:
            free()

    async def remove(self, message: MessageId) -> tuple[Message, ...]:
        """Delete the turn ``message`` belongs to for good: what the person said and every answer to it, on all branches.

        Later turns stay and follow what came before; the person's other versions of the same message stay, too, and when
        nothing would be shown after the gap, the newest of those is. Returns what was deleted. Raises ConfigError while a
        turn runs and for a message of another conversation.
        """
        free = self._runner.claim(self.conversation)
        try:
            found = await self._need_message(message)
            tree = await self._store.tree(found.frame)
            gone = _turn_of(found.id, tree)
            root = await self._store.root(self.conversation)
            assert root is not None
            ops: list[Op] = [RemoveMessages(found.frame, tuple(m.id for m in gone))]
            if root.head in {m.id for m in gone}:
                ops.append(SetHead(found.frame, _newest_without(root.head, gone, tree)))
            await self._store.apply(ops)
            return gone
        finally:
            free()

    async def call_again(self, name: str, arguments: str, *, note: str) -> None:
        """Put a call that was refused for want of an answer before the gate once more, and go on from its result.

        ``note`` is what the model reads about it. The call is judged and asked about like any other. Returns once it is
        stored. Raises ConfigError while a turn runs.
        """
        at = self._services.clock()
        metadata = {"source": "call_again"}
        ops = (
            AppendMessage(None, "user", note, synthetic=True, metadata=metadata, at=at),
            AppendMessage(None, "assistant", "", synthetic=True, metadata=metadata, calls=(NewCall(name, arguments),), at=at),
        )  # fmt: skip
        await asyncio.shield(self._runner.start(self.conversation, Resumed(ops), profile=self._profile))

    async def delete(self) -> None:
        """Stop what runs and remove the whole conversation."""
        await self.stop("the conversation was deleted")
        free = self._runner.claim(self.conversation)
        try:
            await self._store.delete_conversation(self.conversation)
        finally:
            free()


def _turn_of(message: MessageId, tree: Sequence[Message]) -> tuple[Message, ...]:
    """What a person said and every answer to it. A request to continue belongs to the turn it continues."""
    by_id = {m.id: m for m in tree}
    first = by_id[message]
    while not _begins_turn(first) and first.parent is not None:
        first = by_id[first.parent]
    turn = {first.id: first}
    for candidate in tree:  # parents come before their replies
        if candidate.parent in turn and not _begins_turn(candidate):
            turn[candidate.id] = candidate
    return tuple(turn.values())


def _begins_turn(message: Message) -> bool:
    return message.role == "user" and message.metadata.get("source") not in ("continue", "stop_hook", "call_again")


def _newest_without(head: MessageId | None, gone: Sequence[Message], tree: Sequence[Message]) -> MessageId | None:
    """Where ``head`` moves when ``gone`` is removed: back to what is left, then on to the newest reply there is."""
    removed = {m.id for m in gone}
    parents = {m.id: m.parent for m in tree}
    at = kept_before(head, parents, removed)
    replies: dict[MessageId | None, MessageId] = {}
    for message in tree:
        if message.id not in removed:
            replies[kept_before(message.parent, parents, removed)] = message.id  # the newest comes last
    while at in replies:
        at = replies[at]
    return at


def _close_if_known(stream: RunStream, opened: asyncio.Future[Sent | None]) -> None:
    if opened.cancelled() or opened.exception() is not None:
        return
    sent = opened.result()
    if sent is not None and sent.existing:
        stream.close()
