"""Plugins' part of the system prompt: frozen where provider caches need it, fresh where it must be, and bounded."""

from __future__ import annotations

from typing import Any

import pytest

from skald_core import api as skald
from skald_core.chat import prompt as chat_prompt
from skald_core.testing import AppFactory, ScriptedProvider, TestApp, call, calls, scripted_plugin
from tests.support.asking import new, wire
from tests.support.plugins import allowing, made


class Blocks:
    """A plugin that counts how often it was asked and says so in both places."""

    def __init__(self, plugin_id: str, *, priority: int = 100) -> None:
        self.id = plugin_id
        self.turns: list[skald.TurnInfo] = []
        self.priority = priority
        self.ctx: skald.PluginContext | None = None
        self.more: list[Any] = []
        self.fails = False

    def plugin(self) -> Any:
        def skald_prompt_blocks(ctx: skald.PluginContext, turn: skald.TurnInfo) -> Any:
            self.ctx = ctx
            self.turns.append(turn)
            if self.fails:
                raise RuntimeError("no")
            n = len(self.turns)
            return [
                skald.PromptBlock(text=f"<{self.id} prefix {n}>", priority=self.priority),
                skald.PromptBlock(text=f"<{self.id} tail {n}>", place="tail", priority=self.priority),
                *self.more,
            ]

        return made(self.id, skald_prompt_blocks)


def system(provider: ScriptedProvider) -> str:
    return "\n".join(block.text for block in provider.requests[-1].system)


async def _app(skald_app: AppFactory, provider: ScriptedProvider, *plugins: Blocks, weak: bool = False) -> TestApp:
    app = await skald_app(scripted_plugin(provider), *(plugin.plugin() for plugin in plugins))
    await app.add_model(weak=weak)
    return app


async def test_skald_prompt_blocks(skald_app: AppFactory) -> None:
    """By priority, then plugin. The prefix stays byte for byte the same from turn to turn of a conversation, which has its
    own; the tail is made anew in each turn and goes after the person's words."""
    late, early, other = Blocks("alpha"), Blocks("omega", priority=1), Blocks("beta")
    provider = ScriptedProvider(then=lambda request: "fine")
    app = await _app(skald_app, provider, other, late, early)
    client = await app.client()
    conversation = await new(client)
    await client.run_turn("one", conversation)
    first = system(provider)
    assert first.index("<omega prefix 1>") < first.index("<alpha prefix 1>") < first.index("<beta prefix 1>")
    assert "tail" not in first
    last = provider.requests[-1].messages[-1].parts[0]
    assert isinstance(last, skald.TextPart)
    assert last.text.index("one") < last.text.index("<omega tail 1>") < last.text.index("<alpha tail 1>")
    await client.run_turn("two", conversation)
    assert system(provider) == first
    assert "<alpha tail 2>" in wire(provider)
    assert "<alpha tail 1>" not in wire(provider)
    await client.run_turn("hello", await new(client))
    assert "<alpha prefix 3>" in system(provider)
    turn = late.turns[0]
    assert (turn.user.username, turn.conversation, turn.agent, turn.depth) == ("ada", conversation, "assistant", 0)
    assert turn.run_id
    assert turn.model


async def test_a_prefix_is_asked_again_when_it_should_be(
    skald_app: AppFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the plugin says so, after another of the user's plugins came or went, and after twenty idle minutes; not for
    twenty minutes of turns."""
    blocks, guest = Blocks("blocks"), Blocks("guest")
    provider = ScriptedProvider(then=lambda request: "fine")
    app = await _app(skald_app, provider, blocks, guest)
    clock = [1_800_000_000.0]
    monkeypatch.setattr(app.skald, "now", lambda: clock[0])
    client = await app.client()
    conversation = await new(client)

    async def prefix(minutes: float = 1) -> str:
        clock[0] += minutes * 60
        await client.run_turn("x", conversation)
        return system(provider).partition("<blocks prefix ")[2].partition(">")[0]

    assert [await prefix(), await prefix(19), await prefix(19)] == ["1", "1", "1"]
    assert await prefix(20.1) == "4"
    assert blocks.ctx is not None
    assert client.user is not None
    blocks.ctx.prompt_changed(client.user["id"])
    assert [await prefix(), await prefix()] == ["5", "5"]
    await app.skald.plugins.disable("guest")
    assert [await prefix(), await prefix()] == ["7", "7"]
    assert "<guest" not in system(provider)


async def test_a_failing_plugin_leaves_only_itself_out(skald_app: AppFactory) -> None:
    """An exception, a wrong type and a block far too long drop that plugin's blocks; the prefix is frozen once all are well
    again, with all of them."""
    good, bad = Blocks("good"), Blocks("bad")
    provider = ScriptedProvider(then=lambda request: "fine")
    app = await _app(skald_app, provider, good, bad)
    client = await app.client()
    conversation = await new(client)
    bad.fails = True
    await client.run_turn("one", conversation)
    assert "<good prefix 1>" in system(provider)
    assert "<bad" not in wire(provider)
    bad.fails = False
    bad.more = ["text"]
    await client.run_turn("two", conversation)
    assert "<bad" not in wire(provider)
    bad.more = [skald.PromptBlock(text="x" * (chat_prompt.BLOCK_CHARS + 1))]
    await client.run_turn("three", conversation)
    assert "<bad" not in wire(provider)
    error = app.skald.plugins.rows["bad"].error
    assert error is not None
    assert "skald_prompt_blocks" in error.message
    bad.more = []
    await client.run_turn("four", conversation)
    await client.run_turn("five", conversation)
    assert "<bad prefix 4>" in system(provider)
    assert "<good prefix 4>" in system(provider)


async def test_models_with_little_context_get_little(skald_app: AppFactory) -> None:
    """Blocks are taken whole, by priority, until what all plugins may add is used up; the plugin is told."""
    small, large = Blocks("small"), Blocks("large", priority=1)
    large.more = [
        skald.PromptBlock(text="L" * chat_prompt.WEAK_CHARS, priority=1),
        skald.PromptBlock(text="T" * (chat_prompt.WEAK_CHARS + 1), place="tail", priority=1),
    ]
    provider = ScriptedProvider(then=lambda request: "fine")
    app = await _app(skald_app, provider, small, large, weak=True)
    client = await app.client()
    await client.run_turn("one")
    assert "<small prefix 1>" in system(provider)
    assert "<small tail 1>" in wire(provider)
    assert "LLL" not in system(provider)
    assert "TTT" not in wire(provider)
    assert small.turns[0].weak


async def test_sub_agents_get_blocks_of_their_own(skald_app: AppFactory) -> None:
    """The plugin hears which agent asks, how deep, and with which model."""
    blocks = Blocks("blocks")
    agent = skald.AgentSpec(id="scout", name="Scout", description="d", prompt="I am the scout.")

    def skald_agents() -> list[skald.AgentSpec]:
        return [agent]

    provider = ScriptedProvider(
        [calls(call("execute_subtask", {"agent_id": "scout", "prompt": "look"})), "child", "parent"]
    )
    app = await skald_app(scripted_plugin(provider), blocks.plugin(), made("crew", skald_agents), allowing())
    model = await app.add_model()
    client = await app.client()
    await client.run_turn("go")
    assert [(turn.agent, turn.depth, turn.model) for turn in blocks.turns] == [
        ("assistant", 0, model), ("scout", 1, model),
    ]  # fmt: skip
    assert blocks.turns[0].run_id == blocks.turns[1].run_id
    assert any("<blocks prefix 2>" in block.text for block in provider.requests[1].system)
