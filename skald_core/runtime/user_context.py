"""One user's running part of the server: their agent, conversations, requests, feed. It exists while their data is open."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from skald_core.chat.conversations import Conversation, Conversations, LastTurn
from skald_core.chat.gate import Interactive, PluginGate
from skald_core.chat.human import HumanRequest, HumanRequests
from skald_core.chat.prompt import system_prompt
from skald_core.chat.translate import Translator
from skald_core.chat.views import Views
from skald_core.errors import BadInput, Conflict, NotFound, SkaldError
from skald_core.files.userfs import FilesError, UserFs
from skald_core.identity.models import User
from skald_core.loop.agent import Agent
from skald_core.loop.database import Database
from skald_core.loop.errors import ConfigError, StoreError
from skald_core.loop.gate import PendingCall
from skald_core.loop.profile import Profile, SystemContext, SystemPrompt
from skald_core.loop.session import Session
from skald_core.loop.sqlite_store import SqliteStore
from skald_core.loop.tools import Tool, ToolRegistry
from skald_core.loop.types import Attachment, ConversationId, MediaPart, MessageId, ModelInfo
from skald_core.runtime.feed import Feed, Subscriber

if TYPE_CHECKING:
    from skald_core.runtime.app import Skald

__all__ = ("MAX_MESSAGE", "UserContext")

log = logging.getLogger("skald.chat")

MAX_MESSAGE = 1_000_000
"""Characters of one chat message."""

SNAPSHOT_MESSAGES = 50
TELL_SECONDS = 0.1
MAX_MEDIA = 10 * 1024 * 1024
"""Bytes of one file shown to a model."""

_ANY_TOOLS = ModelInfo()
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
)


class UserContext:
    """Made by :meth:`open`. ``user`` is replaced when the profile changes."""

    def __init__(self, app: Skald, user: User, database: Database) -> None:
        self.app = app
        self.user = user
        self.feed = Feed(app.epoch)
        self.files = app.files_for(user)
        self.conversations = Conversations(database, now=app.now)
        self.requests = HumanRequests(database, now=app.now, changed=self._request_changed)
        self.views = Views(self._tool, self._model_title)
        self._titles: dict[str, str] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._unjudged: set[str] = set()
        self._last: dict[str, asyncio.Task[None]] = {}
        self._changed: set[str] = set()
        self._registry: tuple[tuple[int, frozenset[str]], ToolRegistry] | None = None
        gate = PluginGate(
            dispatcher=app.plugins.dispatcher,
            visible=app.plugins.visible_to,
            requests=self.requests,
            no_judge=self._no_judge,
            unjudged=self._tell_unjudged,
            card=self._card,
            lifetime=app.settings.request_lifetime,
        )
        self.agent = Agent(
            selector=app.catalogue,
            profiles=self._profile,
            gate=gate,
            store=SqliteStore(database),
            media=_Media(),
        )
        translator = Translator(
            feed=self.feed,
            views=self.views,
            model_title=self._model_title,
            texts=lambda key: app.texts.t(key, self.user.locale),
            began=self._began,
            ended=self._ended,
        )
        self._unlisten = self.agent.on_event(translator)

    @classmethod
    async def open(cls, app: Skald, user: User, database: Database) -> UserContext:
        """Make the context and take up what a crash or stop interrupted."""
        context = cls(app, user, database)
        await context.requests.load()
        await context.agent.recover()
        return context

    async def close(self, reason: str) -> None:
        """End the turns as a crash would, so that the next start takes them up; let every client go."""
        self.requests.release()
        await self.agent.close()
        self._unlisten()
        self.feed.close(reason)
        if self._last:
            await asyncio.gather(*self._last.values(), return_exceptions=True)

    # -- what the agent is -----------------------------------------------------------------------------------------

    async def _profile(self, conversation: ConversationId, agent: str) -> Profile:
        found = self.app.agents.get(agent or "assistant")
        if found is None:
            raise ConfigError(f"there is no agent {agent!r}")
        pin: str | None = None
        if not agent:
            with contextlib.suppress(NotFound):
                pin = (await self.conversations.get(conversation)).model

        async def system(context: SystemContext) -> SystemPrompt:
            return system_prompt(found, self.user, context, dt.datetime.now().astimezone())

        return Profile(
            agent=found.id,
            system=system,
            tools=self._tools,
            pin=pin,
            scope={User: self.user, UserFs: self.files, Interactive: Interactive()},
        )

    def _tools(self, info: ModelInfo) -> ToolRegistry:
        if "tools" not in info.capabilities:
            return ToolRegistry()
        visible = self.app.plugins.visible_to(self.user.id)
        key = (self.app.plugins.contributed.version, visible)
        if self._registry is None or self._registry[0] != key:
            registry = ToolRegistry(tool for _, tool in self.app.plugins.contributed.tools(visible))
            self._registry = (key, registry)
        return self._registry[1]

    def _tool(self, name: str) -> Tool | None:
        return self._tools(_ANY_TOOLS).get(name)

    def _model_title(self, model: str) -> str:
        for row in self.app.catalogue.models():
            if model in (row.id, row.model):
                return row.title
        return model

    # -- the gate --------------------------------------------------------------------------------------------------

    def _no_judge(self) -> str:
        locale = self.app.texts.resolve(self.user.locale)
        could = [
            row.found.manifest.localized(locale)[0] for row in self.app.plugins.could_judge() if row.found.manifest
        ]
        if not could:
            return self.app.texts.t("gate.nothing_installed", locale)
        return self.app.texts.t("gate.none", locale, {"plugins": ", ".join(could)})

    def _tell_unjudged(self, conversation: str) -> None:
        action = {"label": self.app.texts.t("gate.open_plugins", self.user.locale), "route": "/plugins"}
        event = {"type": "notice", "level": "warning", "code": "no_gate", "text": self._no_judge(), "action": action}
        if conversation not in self._unjudged:
            self._unjudged.add(conversation)
            self.feed.emit(conversation, event)

    async def _card(self, call: PendingCall) -> dict[str, Any]:
        """What the kernel knows of a call that waits: who asks, for what, and the model's words before it."""
        conversation = call.context.conversation
        with contextlib.suppress(NotFound):
            self._titles[conversation] = (await self.conversations.get(conversation)).title
        page = await self.agent.session(conversation).history(limit=1)
        last = page.items[-1].message if page.items else None
        why = last.content.strip()[-400:] if last is not None and last.role == "assistant" else ""
        return {
            "conversation_title": self._titles.get(conversation, ""),
            "tool": call.tool.name,
            "title": call.tool.title or call.tool.name,
            "icon": call.tool.icon,
            "summary": call.summary,
            "path": call.tool.target_path(call.arguments),
            "arguments": call.raw,
            "why": why,
            "agent": self._agent_name(call.context.agent),
        }

    def _agent_name(self, agent_id: str) -> str:
        found = self.app.agents.get(agent_id)
        return found.names.get(self.app.texts.resolve(self.user.locale), found.name) if found else agent_id

    def _request_changed(self, request: HumanRequest) -> None:
        kind = "approval_required" if request.status == "pending" else "approval_resolved"
        self.feed.emit(request.conversation, {"type": kind, "request": self.request_view(request)})
        self._later(f"inbox {request.id}", self._tell_inbox(request.conversation))

    async def _tell_inbox(self, conversation: str) -> None:
        self.feed.broadcast({"type": "inbox_changed", "pending": await self.requests.pending()})
        self._tell_conversation(conversation)

    def request_view(self, request: HumanRequest) -> dict[str, Any]:
        return request.view()

    # -- turns begin and end ---------------------------------------------------------------------------------------

    def _began(self, conversation: str) -> None:
        self._unjudged.discard(conversation)
        self._later(conversation, self.conversations.began(conversation))
        self._tell_conversation(conversation)

    def _ended(self, conversation: str, last: LastTurn) -> None:
        self._later(conversation, self._store_turn(conversation, last))

    async def _store_turn(self, conversation: str, last: LastTurn) -> None:
        watched = any(conversation in s.conversations for s in self.feed.subscribers())
        await self.conversations.ended(conversation, last if last.error is not None else None, unread=not watched)
        self._tell_conversation(conversation)

    def _later(self, key: str, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` after earlier work of the same key, in order, off the turn's path."""
        before = self._last.get(key)

        async def chained() -> None:
            if before is not None:
                await asyncio.gather(before, return_exceptions=True)
            try:
                await work
            except SkaldError as error:
                log.info("conversation %s: %s", key, error)

        task = self.app.supervisor.spawn(f"user:{self.user.id}", chained())
        self._last[key] = task
        task.add_done_callback(lambda done: self._last.pop(key, None) if self._last.get(key) is done else None)

    def _tell_conversation(self, conversation: str) -> None:
        """Tell every client of a conversation's row, a moment later and once for several changes: it is for lists."""
        if not self._changed:
            asyncio.get_running_loop().call_later(TELL_SECONDS, self._flush_changed)
        self._changed.add(conversation)

    def _flush_changed(self) -> None:
        changed, self._changed = self._changed, set()
        for conversation in changed:
            self._later(conversation, self._broadcast_conversation(conversation))

    async def _broadcast_conversation(self, conversation: str) -> None:
        with contextlib.suppress(NotFound):
            view = self.conversation_view(await self.conversations.get(conversation))
            self.feed.broadcast({"type": "conversation_changed", "conversation_info": view})

    # -- conversations ---------------------------------------------------------------------------------------------

    def conversation_view(self, row: Conversation) -> dict[str, Any]:
        live = self.agent.session(row.id).live()
        state = "idle" if live is None else ("waiting" if live.phase == "waiting" else "running")
        return {
            "id": row.id,
            "title": row.title,
            "created_at": row.created_at,
            "updated_at": row.updated_at,
            "state": state,
            "unread": row.unread,
            "pinned": row.pinned,
            "model": row.model,
        }

    async def create(self, *, client_id: str | None, title: str, model: str | None) -> Conversation:
        if model is not None:
            self.app.catalogue.find(model)
        row = await self.conversations.create(client_id=client_id, title=title, model=model)
        self._tell_conversation(row.id)
        return row

    async def change(
        self,
        conversation: str,
        *,
        title: str | None,
        pinned: bool | None,
        unread: bool | None,
        model: str | msgspec.UnsetType | None,
    ) -> Conversation:
        if isinstance(model, str):
            self.app.catalogue.find(model)
        row = await self.conversations.change(conversation, title=title, pinned=pinned, unread=unread, model=model)
        self._tell_conversation(conversation)
        return row

    async def delete(self, conversation: str) -> None:
        await self.conversations.get(conversation)
        await self.agent.session(conversation).delete()
        await self.conversations.delete(conversation)
        self.feed.broadcast({"type": "conversation_deleted", "id": conversation})
        self.feed.broadcast({"type": "inbox_changed", "pending": await self.requests.pending()})
        self.feed.forget(conversation)

    async def _session(self, conversation: str) -> Session:
        """The loop's session of an existing conversation of this user. Raises NotFound."""
        await self.conversations.get(conversation)
        return self.agent.session(conversation)

    async def send(
        self, conversation: str, content: str, *, client_id: str, attachments: tuple[Attachment, ...] = ()
    ) -> dict[str, Any]:
        """Store once and answer; the view tells whether it is a message already or waits."""
        self._check_text(content, attachments)
        session = await self._session(conversation)
        async with self._locks.setdefault(conversation, asyncio.Lock()):
            sent = await session.send(content, client_id=client_id, attachments=attachments)
        await self.conversations.name_if_untitled(conversation, content)
        if sent.message_id is not None:
            message = await self.agent.store.message(sent.message_id)
            return {"message": self.views.message(message) if message else None, "queued": None, "known": sent.existing}
        waiting = [q for q in await session.queue() if q.id == sent.queued_id]
        queued = self.views.queued(waiting)
        return {"message": None, "queued": queued[0] if queued else None, "known": sent.existing}

    @staticmethod
    def _check_text(content: str, attachments: tuple[Attachment, ...] = ()) -> None:
        if len(content) > MAX_MESSAGE:
            error = BadInput("The message is too long.", code="message_too_large", limit="1,000,000")
            error.status = 413
            raise error
        if not content.strip() and not attachments:
            raise BadInput("The message is empty.", code="empty_message")

    async def stop(self, conversation: str) -> bool:
        return await (await self._session(conversation)).stop("stopped by the person")

    async def retry(self, conversation: str) -> None:
        session = await self._session(conversation)
        with _busy():
            await session.retry()
        self._history_changed(conversation)

    async def go_on(self, conversation: str) -> None:
        session = await self._session(conversation)
        with _busy():
            await session.continue_()

    async def edit(self, conversation: str, message_id: int, content: str, *, client_id: str) -> None:
        self._check_text(content)
        session = await self._session(conversation)
        message = await self._message(conversation, message_id)
        if message.role != "user":
            raise BadInput("Only your own messages can be edited.", code="not_editable")
        with _busy():
            session.edit(message, content, client_id=client_id)
        self._history_changed(conversation)

    async def regenerate(self, conversation: str, message_id: int) -> None:
        session = await self._session(conversation)
        with _busy():
            await session.regenerate(MessageId(message_id))
        self._history_changed(conversation)

    async def switch(self, conversation: str, message_id: int) -> None:
        session = await self._session(conversation)
        with _busy():
            await session.select(MessageId(message_id))
        await self.conversations.ended(conversation, None, unread=False)
        self._history_changed(conversation)

    async def compact(self, conversation: str) -> bool:
        session = await self._session(conversation)
        with _busy():
            return await session.compact()

    def _history_changed(self, conversation: str) -> None:
        self.feed.emit(conversation, {"type": "history_changed"})

    async def _message(self, conversation: str, message_id: int) -> Any:
        root = await self.agent.store.root(ConversationId(conversation))
        message = await self.agent.store.message(MessageId(message_id))
        if root is None or message is None or message.frame != root.id:
            raise NotFound("This message does not exist (any more).", code="message_not_found")
        return message

    async def edit_queued(self, conversation: str, queued: int, content: str) -> None:
        self._check_text(content)
        session = await self._session(conversation)
        try:
            await session.edit_queued(queued, content)
        except (ConfigError, StoreError):
            raise Conflict("This message was sent or deleted meanwhile.", code="not_queued") from None

    async def delete_queued(self, conversation: str, queued: int) -> None:
        session = await self._session(conversation)
        if not await session.delete_queued(queued):
            raise Conflict("This message was sent or deleted meanwhile.", code="not_queued")

    # -- history and live events -----------------------------------------------------------------------------------

    async def history(self, conversation: str, *, before: int | None, limit: int) -> tuple[list[dict[str, Any]], bool]:
        """(messages oldest first, whether older ones exist). The newest carries why its turn did not end well."""
        if (settling := self._last.get(conversation)) is not None:
            await asyncio.wait({settling})  # how the last turn ended is being stored
        row = await self.conversations.get(conversation)
        session = self.agent.session(conversation)
        page = await session.history(before=None if before is None else MessageId(before), limit=limit)
        views = [self.views.item(item) for item in page.items]
        if before is None and views and not session.running:
            last = views[-1]
            if row.last_turn is not None and row.last_turn.error is not None:
                last["error"] = row.last_turn.error
            elif last["status"] == "partial":
                text = self.app.texts.t("turn.interrupted", self.user.locale)
                last["error"] = {"kind": "interrupted", "message": text, "detail": "", "retryable": True}
        return views, page.before is not None

    async def subscribe(self, subscriber: Subscriber, conversation: str, epoch: str | None, after: int | None) -> None:
        """Send what the client missed, or a snapshot, then live events."""
        await self.conversations.get(conversation)
        snapshot: bytes | None = None
        if epoch != self.feed.epoch or after is None:
            after, snapshot = await self._snapshot(conversation)
        # No await from here on: what was emitted while the snapshot was made is in the ring and follows it without a gap.
        while (missed := self.feed.since(conversation, after)) is None:
            after, snapshot = await self._snapshot(conversation)
        subscriber.conversations.add(conversation)
        for payload in [snapshot, *missed] if snapshot is not None else missed:
            subscriber.push(payload)

    async def _snapshot(self, conversation: str) -> tuple[int, bytes]:
        """The conversation as of an event number; messages stored after it may be in it already."""
        session = self.agent.session(conversation)
        seq = self.feed.seq(conversation)
        live = session.live()
        messages, has_more = await self.history(conversation, before=None, limit=SNAPSHOT_MESSAGES)
        pending = await self.requests.list(status="pending", conversation=conversation)
        row = await self.conversations.get(conversation)
        streaming = live is not None and live.phase in {"model", "starting"}
        return seq, msgspec.json.encode(
            {
                "type": "snapshot",
                "conversation": conversation,
                "epoch": self.feed.epoch,
                "seq": seq,
                "conversation_info": self.conversation_view(row),
                "messages": messages,
                "has_more": has_more,
                "live": {
                    "message_id": None,
                    "content": live.text,
                    "reasoning": live.reasoning,
                    "model": "",
                    "started_at": live.started_at / 1000,
                }
                if live is not None and streaming
                else None,
                "queue": self.views.queued(await session.queue()),
                "requests": [self.request_view(r) for r in reversed(pending)],
                "turn": {"run_id": live.run_id, "started_at": live.started_at / 1000} if live is not None else None,
                "last_turn": row.last_turn if live is None else None,
            }
        )


@contextlib.contextmanager
def _busy() -> Any:
    """The loop's refusals as answers to a client."""
    try:
        yield
    except ConfigError as error:
        if "turn running" in str(error):
            raise Conflict(str(error), code="busy") from None
        raise BadInput(str(error), code="not_possible") from None


class _Media:
    """Files a model may look at, from the caller's own namespace."""

    async def load(self, attachment: Attachment, scope: dict[type[Any], Any]) -> MediaPart | None:
        files = scope.get(UserFs)
        if not isinstance(files, UserFs):
            return None
        try:
            data = await files.read_bytes(attachment.path, limit=MAX_MEDIA)
        except FilesError:
            return None
        for magic, media_type in _MAGIC:
            if data.startswith(magic):
                return MediaPart(media_type, data, attachment.name)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return MediaPart("image/webp", data, attachment.name)
        return None
