"""One user's running part of the server: their agent, conversations, requests, feed. It exists while their data is open."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from skald_core.chat.agent_work import recorded_work
from skald_core.chat.agents import MAIN, Agents
from skald_core.chat.commands import Commands
from skald_core.chat.conversations import Conversation, Conversations, LastTurn
from skald_core.chat.gate import Interactive, PluginGate
from skald_core.chat.hooks import KeepTailTold, TurnHooks
from skald_core.chat.human import HumanRequest, HumanRequests
from skald_core.chat.mounts import UserMounts
from skald_core.chat.prompt import PromptBlocks, system_prompt
from skald_core.chat.translate import Translator
from skald_core.chat.turns import TurnWatch
from skald_core.chat.views import Views
from skald_core.errors import BadInput, Conflict, NotFound, SkaldError
from skald_core.files.userfs import FilesError, UserFs
from skald_core.identity.models import User
from skald_core.loop.agent import Agent
from skald_core.loop.compaction import Compaction
from skald_core.loop.database import Database
from skald_core.loop.delegate import DelegateTool
from skald_core.loop.errors import ConfigError, StoreError
from skald_core.loop.gate import PendingCall
from skald_core.loop.profile import Profile, SystemContext, SystemPrompt
from skald_core.loop.session import Session
from skald_core.loop.sniff import media_type_of
from skald_core.loop.sqlite_store import SqliteStore
from skald_core.loop.tools import Tool, ToolRegistry
from skald_core.loop.types import Attachment, ConversationId, MediaPart, MessageId, ModelInfo
from skald_core.plugins.contributions import AgentSpec
from skald_core.plugins.user_hooks import UserHooks
from skald_core.runtime.feed import Feed, Subscriber
from skald_core.runtime.loop_events import LoopEvents

if TYPE_CHECKING:
    from skald_core.runtime.app import Skald

__all__ = ("MAX_MESSAGE", "UserContext")

log = logging.getLogger("skald.chat")

MAX_MESSAGE = 1_000_000
"""Characters of one chat message."""

SNAPSHOT_MESSAGES = 50
REMEMBERED = 256
"""Messages whose preparation is kept for the case that they are sent again."""
TELL_SECONDS = 0.1
USER_HOOK_SECONDS = 10.0
CLOSE_SECONDS = 10.0
"""How long closing waits for running turns to stop, and for what plugins still have to be told."""
MAX_MEDIA = 32 * 1024 * 1024  # bytes; the loop has its own, smaller bounds for pictures
"""Bytes of one file shown to a model."""

DELEGATE = "execute_subtask"
"""The kernel's own tool, with which an agent gives work to another."""

_ANY_TOOLS = ModelInfo()
_ANY_AGENT = AgentSpec(id="", name="", description="", prompt="")


class UserContext:
    """Made by :meth:`open`. ``user`` is replaced when the profile changes."""

    def __init__(self, app: Skald, user: User, database: Database) -> None:
        self.app = app
        self.user = user
        self.feed = Feed(app.epoch)
        self.files = UserFs(app.home_of(user.id))
        self.hooks = UserHooks(app.plugins.dispatcher, lambda: app.plugins.visible_to(self.user.id))
        self.agents = Agents(app.agents, app.plugins.contributed)
        self.commands = Commands(app.plugins.contributed, self.hooks, longest=MAX_MESSAGE, text=self._text)
        self.mounts = UserMounts(self.hooks, self.files, user=lambda: self.user, problem=self._mount_problem)
        self.conversations = Conversations(database, now=app.now)
        self.requests = HumanRequests(database, now=app.now, changed=self._request_changed)
        self.views = Views(self._tool, self._model_title)
        self._titles: dict[str, str] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._unjudged: set[str] = set()
        self._last: dict[str, asyncio.Task[None]] = {}
        self._changed: set[str] = set()
        self._closed = False
        self._registries: dict[tuple[str, bool], tuple[tuple[int, frozenset[str]], ToolRegistry]] = {}
        self._plugins: dict[str, object] = {}
        self._prepared: dict[tuple[str, str], dict[str, Any]] = {}
        gate = PluginGate(
            dispatcher=app.plugins.dispatcher,
            visible=app.plugins.visible_to,
            requests=self.requests,
            no_judge=self._no_judge,
            unjudged=self._tell_unjudged,
            card=self._card,
            offered=self._offered,
            lifetime=app.settings.request_lifetime,
        )
        self.store = SqliteStore(database)
        turns = TurnWatch(
            hooks=self.hooks, user=lambda: self.user, files=self.files, weak=self._is_weak, later=self._later
        )
        self.turn_hooks = TurnHooks(self.hooks, turns, gate.expect)
        self.prompts = PromptBlocks(self.hooks, turns, now=app.now)
        self.agent = Agent(
            selector=app.catalogue,
            profiles=self._profile,
            gate=gate,
            hooks=self.turn_hooks,
            store=self.store,
            compaction=Compaction(KeepTailTold(self.hooks, turns, self.store)),
            media=_Media(),
            partials=True,
        )
        translator = Translator(
            feed=self.feed,
            views=self.views,
            model_title=self._model_title,
            texts=lambda key: app.texts.t(key, self.user.locale),
            agent_title=self._agent_name,
            began=self._began,
            ended=self._ended,
        )
        self.translator = translator
        self._unlisten = self.agent.on_event(translator)
        self.agent.on_event(turns)
        self.loop_events = LoopEvents(self.feed)
        self.agent.on_event(self.loop_events)

    @classmethod
    async def open(cls, app: Skald, user: User, database: Database) -> UserContext:
        """Make the context and take up what a crash or stop interrupted."""
        context = cls(app, user, database)
        await context.requests.load()
        context._plugins = {plugin: app.plugins.contributed.of(plugin) for plugin in sorted(context.hooks.visible())}
        await context.mounts.ask(context._plugins)
        await context.agent.recover()
        context._later("user", context.hooks.tell("skald_user_unlocked", {"user": user}, timeout=USER_HOOK_SECONDS))
        return context

    async def close(self, reason: str, *, stop: str = "") -> None:
        """Let every client go and end the turns: as a crash would, so that the next start takes them up, or for good when
        ``stop`` says why."""
        self.feed.close(reason)
        if stop:
            self.agent.abort_all(stop)
            ending = [asyncio.ensure_future(self.agent.session(c).wait()) for c in self.agent.running()]
            if ending:
                await asyncio.wait(ending, timeout=CLOSE_SECONDS)
        self.requests.release()
        await self.agent.close()
        self._unlisten()
        self._closed = True
        self.feed.close(reason)
        await self._settle()
        if self.app.vault.get(self.user.id) is not None:
            locking = self.hooks.tell("skald_user_locked", {"user": self.user}, timeout=USER_HOOK_SECONDS)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(locking, USER_HOOK_SECONDS)

    async def _settle(self) -> None:
        """Wait, within bounds, for what runs off the turns' path: rows to write, plugins to tell."""
        left = set(self._last.values())
        if left:
            _, late = await asyncio.wait(left, timeout=CLOSE_SECONDS)
            for task in late:
                task.cancel()
            if late:
                log.warning(
                    "user %s: %d hooks or notes were not done in time and are given up", self.user.id, len(late)
                )
                await asyncio.wait(late)

    # -- plugins come and go ---------------------------------------------------------------------------------------

    async def plugin_changed(self, plugin: str) -> None:
        """A plugin started or stopped, or this user may use it now or no longer. All of it holds when this returns."""
        brought = self.app.plugins.contributed.of(plugin) if plugin in self.hooks.visible() else None
        if self._plugins.get(plugin) is brought:
            return
        self.mounts.drop_invisible()
        self.prompts.thaw()
        if brought is None:
            del self._plugins[plugin]
            return
        self._plugins[plugin] = brought
        await self.mounts.ask([plugin])
        await self.hooks.one("skald_user_unlocked", plugin, {"user": self.user}, timeout=USER_HOOK_SECONDS)

    def _mount_problem(self, plugin: str, old: list[str], new: list[str]) -> None:
        row = self.app.plugins.rows.get(plugin)
        if row is not None:
            row.problems = [text for text in row.problems if text not in old] + new
            for text in new:
                log.warning("plugin %s: %s", plugin, text)

    # -- what the agent is -----------------------------------------------------------------------------------------

    async def _profile(self, conversation: ConversationId, agent: str) -> Profile:
        """What an agent is: the conversation's own, or one that work is delegated to."""
        own: Conversation | None = None
        if not agent:
            with contextlib.suppress(NotFound):
                own = await self.conversations.get(conversation)
        wanted = agent or (own.agent if own is not None else "") or MAIN
        known = self.agents.all(self.hooks.visible()).get(wanted)
        if known is None:
            raise ConfigError(f"there is no agent {wanted!r} (any more); choose another one for this conversation")
        spec = known.spec
        if agent and spec.type != "task":
            raise ConfigError(f"the agent {agent!r} takes no work from others; choose one of type 'task'")
        pin = (own.model if own is not None else None) or self._pinned(spec)

        async def system(context: SystemContext) -> SystemPrompt:
            blocks = await self.prompts.of(context)
            return system_prompt(spec, self.user, context, dt.datetime.now().astimezone(), blocks)

        return Profile(
            agent=spec.id,
            system=system,
            tools=lambda info: self._tools(info, spec),
            pin=pin,
            scope={User: self.user, UserFs: self.files, Interactive: Interactive()},
            cwd="~",
        )

    def _pinned(self, spec: AgentSpec) -> str | None:
        """The model an agent names by id, title or name; None, so that one is chosen, when it is not there."""
        if spec.model is None:
            return None
        for row in self.app.catalogue.models():
            if row.enabled and spec.model in (row.id, row.title, row.model):
                return row.id
        log.info("agent %s: its model %r is not set up here, so another is chosen", spec.id, spec.model)
        return None

    def _tools(self, info: ModelInfo, spec: AgentSpec) -> ToolRegistry:
        """An agent's tools with a model: of the plugins the user may use now, those it may have."""
        if "tools" not in info.capabilities:
            return ToolRegistry()
        visible = self.hooks.visible()
        version = (self.app.plugins.contributed.version, visible)
        key = (spec.id, info.weak)
        cached = self._registries.get(key)
        if cached is None or cached[0] != version:
            cached = self._registries[key] = (version, self._made_tools(info, spec, visible))
        return cached[1]

    def _made_tools(self, info: ModelInfo, spec: AgentSpec, visible: frozenset[str]) -> ToolRegistry:
        found: list[Tool] = [tool for _, tool in self.app.plugins.contributed.tools(visible) if tool.name != DELEGATE]
        tasks = self.agents.tasks(visible, without=spec.id)
        if tasks and not info.weak:  # models with little context lose the thread with one more tool of this kind
            about = {key: known.spec.description for key, known in tasks.items()}
            found.append(DelegateTool(about, name=DELEGATE, title=self._text("agent.delegate")))
        return ToolRegistry(tool for tool in found if spec.tools is None or tool.name in spec.tools)

    def tool(self, name: str) -> Tool | None:
        """The tool of this name that the user has now."""
        return self._tool(name)

    def _tool(self, name: str) -> Tool | None:
        return self._tools(_ANY_TOOLS, _ANY_AGENT).get(name)

    def _offered(self, tool: Tool) -> bool:
        """Whether the user still has this very tool: not one of a plugin that was taken away, or has started anew."""
        return tool.name == DELEGATE or self._tool(tool.name) is tool

    def _is_weak(self, model: str) -> bool:
        for row in self.app.catalogue.models():
            if row.id == model:
                with contextlib.suppress(ConfigError):
                    return self.app.catalogue.handle(row).info.weak
        return False

    def _text(self, key: str, **values: object) -> str:
        return self.app.texts.t(key, self.user.locale, values)

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
        page = await self.store.frame_history(
            call.context.frame, limit=1
        )  # a sub-agent's own, when it is one that asks
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
        found = self.agents.all(self.hooks.visible()).get(agent_id)
        return found.title(self.app.texts.resolve(self.user.locale)) if found else agent_id

    def _request_changed(self, request: HumanRequest) -> None:
        kind = "approval_required" if request.status == "pending" else "approval_resolved"
        self.feed.emit(request.conversation, {"type": kind, "request": self.request_view(request)})
        self.loop_events.request_changed(request.conversation, kind, self.request_view(request))
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
        self.prompts.touch(conversation)
        self._later(conversation, self._store_turn(conversation, last))

    async def _store_turn(self, conversation: str, last: LastTurn) -> None:
        watched = any(conversation in s.conversations for s in self.feed.subscribers())
        await self.conversations.ended(conversation, last if last.error is not None else None, unread=not watched)
        self._tell_conversation(conversation)

    def _later(self, key: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` after earlier work of the same key, in order, off the turn's path."""
        before = self._last.get(key)

        async def chained() -> None:
            if before is not None:
                await asyncio.wait({before})
            try:
                await work
            except SkaldError as error:
                log.info("conversation %s: %s", key, error)

        task = self.app.supervisor.spawn(f"user:{self.user.id}", chained())
        self._last[key] = task
        task.add_done_callback(lambda done: work.close())  # given up before it began, it would be reported as forgotten
        task.add_done_callback(lambda done: self._last.pop(key, None) if self._last.get(key) is done else None)
        return task

    def _tell_conversation(self, conversation: str) -> None:
        """Tell every client of a conversation's row, a moment later and once for several changes: it is for lists."""
        if not self._changed:
            asyncio.get_running_loop().call_later(TELL_SECONDS, self._flush_changed)
        self._changed.add(conversation)

    def _flush_changed(self) -> None:
        changed, self._changed = self._changed, set()
        if self._closed:
            return  # nobody listens any more
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
            "agent": row.agent or MAIN,
        }

    async def message_counts(self, conversations: list[str]) -> dict[str, int]:
        """How many messages each conversation has on all its branches; those without any are left out."""
        found = await asyncio.gather(*(self.store.conversation(ConversationId(c)) for c in conversations))
        return {str(info.id): info.message_count for info in found if info is not None}

    def _chat_agent(self, agent: str) -> str:
        """The stored form of an agent a person may talk with. Raises BadInput ``unknown_agent``."""
        if agent in ("", MAIN):
            return ""
        known = self.agents.all(self.hooks.visible()).get(agent)
        if known is None or known.spec.type != "chat":
            raise BadInput(f"There is no agent {agent[:60]!r} to talk with.", code="unknown_agent")
        return agent

    async def create(self, *, client_id: str | None, title: str, model: str | None, agent: str = "") -> Conversation:
        if model is not None:
            self.app.catalogue.find(model)
        row = await self.conversations.create(
            client_id=client_id, title=title, model=model, agent=self._chat_agent(agent)
        )
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
        agent: str | None = None,
    ) -> Conversation:
        if isinstance(model, str):
            self.app.catalogue.find(model)
        row = await self.conversations.change(
            conversation,
            title=title,
            pinned=pinned,
            unread=unread,
            model=model,
            agent=None if agent is None else self._chat_agent(agent),
        )
        self._tell_conversation(conversation)
        return row

    async def delete(self, conversation: str) -> None:
        await self.conversations.get(conversation)
        await self.agent.session(conversation).delete()
        await self.conversations.delete(conversation)
        self.feed.broadcast({"type": "conversation_deleted", "id": conversation})
        self.feed.broadcast({"type": "inbox_changed", "pending": await self.requests.pending()})
        self.feed.forget(conversation)
        self.loop_events.forget(conversation)
        self.prompts.forget(conversation)
        about = {"user": self.user, "conversation": conversation}
        telling = self.hooks.tell("skald_conversation_deleted", about, timeout=USER_HOOK_SECONDS)
        told = self._later(f"turn {conversation}", telling)  # after what plugins hear of its last turn
        await asyncio.wait({told}, timeout=USER_HOOK_SECONDS)

    async def _session(self, conversation: str) -> Session:
        """The loop's session of an existing conversation of this user. Raises NotFound."""
        await self.conversations.get(conversation)
        return self.agent.session(conversation)

    async def send(
        self, conversation: str, content: str, *, client_id: str, attachments: tuple[Attachment, ...] = ()
    ) -> dict[str, Any]:
        """Store once and answer; the view tells whether it is a message already or waits.

        Raises BadInput, with nothing stored, for what is empty or too long, for a slash command that cannot be carried out
        and for words a plugin refuses.
        """
        self.check_text(content, attachments)
        session = await self._session(conversation)
        async with self._locks.setdefault(conversation, asyncio.Lock()):
            more = await self._prepare(conversation, content, attachments, client_id)
            sent = await session.send(content, client_id=client_id, attachments=attachments, metadata=more)
        await self.conversations.name_if_untitled(conversation, content)
        if sent.message_id is not None:
            message = await self.agent.store.message(sent.message_id)
            return {"message": self.views.message(message) if message else None, "queued": None, "known": sent.existing}
        waiting = [q for q in await session.queue() if q.id == sent.queued_id]
        queued = self.views.queued(waiting)
        return {"message": None, "queued": queued[0] if queued else None, "known": sent.existing}

    async def _prepare(
        self, conversation: str, content: str, attachments: tuple[Attachment, ...] = (), client_id: str = ""
    ) -> dict[str, Any]:
        """What models read besides, or instead of, a person's words: stored with the message, so that every later request
        for it says the same. What is sent a second time, because no answer arrived, is not asked about again."""
        known = self._prepared.get((conversation, client_id))
        if client_id and known is not None:
            return known
        more: dict[str, Any] = {}
        expanded = await self.commands.expand(self.user, conversation, content)
        if expanded is not None:
            more["prompt"] = expanded
        context = await self.turn_hooks.context_for(conversation, content, attachments)
        if context:
            more["hook_context"] = context
        if client_id:
            self._prepared[conversation, client_id] = more
            while len(self._prepared) > REMEMBERED:
                del self._prepared[next(iter(self._prepared))]
        return more

    @staticmethod
    def check_text(content: str, attachments: tuple[Attachment, ...] = ()) -> None:
        """Raises BadInput for a message that is too long or says nothing."""
        if len(content) > MAX_MESSAGE:
            error = BadInput("The message is too long.", code="message_too_large", limit="1,000,000")
            error.status = 413
            raise error
        if not content.strip() and not attachments:
            raise BadInput("The message is empty.", code="empty_message")

    async def stop(self, conversation: str, reason: str = "") -> bool:
        return await (await self._session(conversation)).stop(reason or "stopped by the person")

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
        self.check_text(content)
        session = await self._session(conversation)
        message = await self._message(conversation, message_id)
        if message.role != "user":
            raise BadInput("Only your own messages can be edited.", code="not_editable")
        if session.running:
            raise Conflict("This conversation has a turn running; wait for it or stop it.", code="busy")
        more = await self._prepare(conversation, content, message.attachments, client_id)
        with _busy():
            session.edit(message, content, client_id=client_id, metadata=more)
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

    def history_changed(self, conversation: str) -> None:
        """Tell every client that messages it has may be gone or in another place."""
        self._history_changed(conversation)

    def _history_changed(self, conversation: str) -> None:
        self.feed.emit(conversation, {"type": "history_changed"})

    async def _message(self, conversation: str, message_id: int) -> Any:
        root = await self.agent.store.root(ConversationId(conversation))
        message = await self.agent.store.message(MessageId(message_id))
        if root is None or message is None or message.frame != root.id:
            raise NotFound("This message does not exist (any more).", code="message_not_found")
        return message

    async def edit_queued(self, conversation: str, queued: int, content: str) -> None:
        self.check_text(content)
        session = await self._session(conversation)
        try:
            await session.edit_queued(queued, content, metadata=await self._prepare(conversation, content))
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
        await self._add_work(views)
        if before is None and views and not session.running:
            last = views[-1]
            if row.last_turn is not None and row.last_turn.error is not None:
                last["error"] = row.last_turn.error
            elif last["status"] == "partial":
                text = self.app.texts.t("turn.interrupted", self.user.locale)
                last["error"] = {"kind": "interrupted", "message": text, "detail": "", "retryable": True}
        return views, page.before is not None

    async def _add_work(self, views: list[dict[str, Any]]) -> None:
        """What agents did for calls that delegated: as it is told while they work, else as it is stored."""
        for call in (call for view in views for call in view["calls"] if call["name"] == DELEGATE):
            progress = self.translator.working(call["id"]) or await recorded_work(
                self.store, call["id"], name=self._agent_name, describe=self.views.describe
            )
            if progress is not None:
                call["progress"] = progress

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

    async def follow(self, subscriber: Subscriber, conversation: str, epoch: str | None, after: int | None) -> None:
        """The same for the loop's own events."""
        await self.conversations.get(conversation)
        session = self.agent.session(conversation)

        async def requests() -> list[dict[str, Any]]:
            pending = await self.requests.list(status="pending", conversation=conversation)
            return [self.request_view(r) for r in reversed(pending)]

        await self.loop_events.follow(subscriber, conversation, epoch, after, live=session.live, requests=requests)

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
        media_type = media_type_of(data)
        return MediaPart(media_type, data, attachment.name) if media_type else None
