"""The plugin on real databases (the user's encrypted), real files and real tool calls; only the kernel around is replaced."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest

import skald_approval
from skald_core import api as skald
from skald_core.db.migrations import apply_migrations
from skald_core.loop.database import Database
from skald_core.loop.gate import PendingCall
from skald_core.plugins.context import ModelRows

PACKAGE = Path(skald_approval.__file__).parent
USER = skald.User(id="u1", username="ada", display_name="Ada", role="member", encrypted=True)
_calls = itertools.count(1)


class KernelStub:
    """What a plugin context stands on."""

    models: ModelRows

    def __init__(self, data_dir: Path, system_db: Database, owner: Database) -> None:
        self.data_dir = data_dir
        self.system_db = system_db
        self.owner = owner
        self.locked = False
        self.clock = 1_800_000_000.0
        self.events: list[tuple[str | None, dict[str, Any]]] = []
        self._ids = itertools.count(1)
        self._texts = {p.stem: json.loads(p.read_text(encoding="utf-8")) for p in (PACKAGE / "i18n").glob("*.json")}

    def owner_db(self, user_id: str) -> Database:
        if self.locked or user_id != USER.id:
            raise LookupError(f"user {user_id!r} is locked")
        return self.owner

    def files_for(self, user: skald.User) -> skald.UserFs:
        return skald.UserFs(self.data_dir / "homes" / user.id)

    def lookup_service(self, protocol: type[Any], user_id: str | None) -> Any | None:
        return None

    def translate(self, key: str, locale: str, values: dict[str, object]) -> str:
        text: str = self._texts[locale or "en"][key.removeprefix("plugin.approval.")]
        return text.format(**values)

    def http_client(self, *, allow_private: bool) -> httpx.AsyncClient:
        raise NotImplementedError

    def publish(self, plugin_id: str, user_id: str | None, event: dict[str, Any]) -> None:
        self.events.append((user_id, event))

    def spawn(self, owner: str, coro: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        raise NotImplementedError

    def now(self) -> float:
        return self.clock

    def new_id(self) -> str:
        return f"id{next(self._ids)}"


class PutFile(skald.Tool):
    """Writes ``text`` to ``path``: a tool like those of another plugin."""

    name = "put_file"
    scope = "write"

    def target_path(self, arguments: Any) -> str:
        return str(arguments["path"])

    async def preview(self, arguments: Any, ctx: skald.ToolContext) -> tuple[skald.FileChange, ...]:
        fs = ctx.get(skald.UserFs)
        found = await fs.find(arguments["path"])
        before = None if found is None else await fs.read_text(arguments["path"])
        return (skald.FileChange(fs.display(arguments["path"]), before, arguments["text"]),)


class LookAt(skald.Tool):
    name = "look_at"
    scope = "read"

    def target_path(self, arguments: Any) -> str | None:
        path = arguments.get("path")
        return None if path is None else str(path)


class RunProgram(skald.Tool):
    name = "run_program"
    scope = "exec"


TOOLS: dict[str, skald.Tool] = {tool.name: tool for tool in (PutFile(), LookAt(), RunProgram())}


class Bench:
    """Asks the plugin about calls, as the kernel's gate does."""

    def __init__(self, kernel: KernelStub) -> None:
        self.kernel = kernel
        self.fs = kernel.files_for(USER)
        self.home = kernel.data_dir / "homes" / USER.id
        self.home.mkdir(parents=True)
        self.ctx = self.fresh_context()

    def fresh_context(self) -> skald.PluginContext:
        """What a restarted server makes."""
        return skald.PluginContext(self.kernel, "approval", "0.1.0", PACKAGE)

    def call(
        self,
        tool: str | skald.Tool,
        *,
        conversation: str = "c1",
        agent: str = "main",
        interactive: bool = True,
        call_id: int | None = None,
        user: skald.User = USER,
        **raw: Any,
    ) -> skald.GateCall:
        found = TOOLS[tool] if isinstance(tool, str) else tool
        context = skald.ToolContext(
            conversation=conversation,  # type: ignore[arg-type]  # plain values for new types
            frame=1,  # type: ignore[arg-type]
            agent=agent,
            call_id=next(_calls) if call_id is None else call_id,  # type: ignore[arg-type]
            scope={skald.UserFs: self.fs, skald.User: user},
        )
        return skald.GateCall(
            user=user,
            conversation=conversation,
            agent=agent,
            tool=found,
            raw=raw,
            arguments=raw,
            summary="",
            path=found.target_path(raw),
            files=self.fs,
            interactive=interactive,
            pending=PendingCall(found, raw, raw, "", context),
        )

    async def judge(self, tool: str | skald.Tool, **options: Any) -> skald.Decision:
        return await skald_approval.skald_gate(self.ctx, self.call(tool, **options))

    async def asked(self, tool: str | skald.Tool, **options: Any) -> skald.Require:
        decision = await self.judge(tool, **options)
        assert isinstance(decision, skald.Require), decision
        return decision

    async def denied(self, tool: str | skald.Tool, **options: Any) -> str:
        decision = await self.judge(tool, **options)
        assert isinstance(decision, skald.Deny), decision
        return decision.reason

    async def allowed(self, tool: str | skald.Tool, **options: Any) -> None:
        decision = await self.judge(tool, **options)
        assert isinstance(decision, skald.Allow), decision

    async def answer(self, require: skald.Require, choice: str, note: str = "") -> None:
        """What the kernel does with a person's answer."""
        assert require.on_answer is not None
        (chosen,) = [c for c in require.choices if c.id == choice]
        await require.on_answer(skald.Answer(choice=choice, allow=chosen.allow, note=note))

    def put(self, path: str, text: str) -> None:
        target = self.home / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    system = await Database.open(tmp_path / "system.db")
    owner = await Database.open(tmp_path / "u1.db", key=b"k" * 32)
    for schema in skald_approval.skald_schema():
        database = system if schema.bucket == "registry" else owner
        await apply_migrations(database, "approval", schema.migrations, prefix="approval_")
    yield Bench(KernelStub(tmp_path, system, owner))
    await system.close()
    await owner.close()
