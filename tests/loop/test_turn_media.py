"""Which files a model is shown in a turn, and what stands for a result that is too long."""

from __future__ import annotations

from typing import Any

import pytest

from skald_core.loop.agent import Agent
from skald_core.loop.gate import AllowAll
from skald_core.loop.profile import Limits, Profile
from skald_core.loop.projection import ProjectionOptions
from skald_core.loop.records import Call
from skald_core.loop.scripted import ScriptedProvider, call, calls, text
from skald_core.loop.store import Store
from skald_core.loop.tools import ToolRegistry
from skald_core.loop.types import Attachment, ConversationId, MediaPart, ModelInfo, ModelRequest, ResultPart

from .helpers import Plain, collect, make

SEES = ModelInfo(capabilities=frozenset({"tools", "vision"}))


class Files:
    """Media by path: the type, and how many bytes."""

    def __init__(self, **files: tuple[str, int]) -> None:
        self._files = files
        self.loaded: list[str] = []

    async def load(self, attachment: Attachment, scope: dict[type[Any], Any]) -> MediaPart | None:
        self.loaded.append(attachment.path)
        if attachment.path == "broken":
            raise OSError("gone")
        found = self._files.get(attachment.path)
        return MediaPart(found[0], bytes(found[1]), attachment.path) if found else None


def shown(request: ModelRequest) -> list[str]:
    return [part.name for message in request.messages for part in message.parts if isinstance(part, MediaPart)]


async def seen_of(store: Store, files: Files, *paths: str, info: ModelInfo = SEES, **limits: Any) -> list[str]:
    provider = ScriptedProvider([text("ok")], info=info)
    agent = make(provider, media=files, limits=Limits(**limits), store=store)
    attachments = [Attachment(path, path) for path in paths]
    await collect(agent.session("c").run("look", attachments=attachments))
    return shown(provider.requests[0])


async def test_the_first_four_files_are_shown(store: Store) -> None:
    """More are only named; so is one that cannot be read."""
    files = Files(**dict.fromkeys("abcdef", ("image/png", 10)))
    assert await seen_of(store, files, "broken", "gone", *"abcdef") == list("abcd")
    assert await seen_of(store, files, *"abc", media_files=0) == []


@pytest.mark.parametrize(("size", "seen"), [(10 * 2**20, ["a"]), (10 * 2**20 + 1, [])])
async def test_a_picture_may_have_ten_mebibytes(store: Store, size: int, seen: list[str]) -> None:
    assert await seen_of(store, Files(a=("image/png", size)), "a") == seen


async def test_together_they_stay_within_the_turns_bytes(store: Store) -> None:
    """One that no longer fits is left out, a smaller one after it is not."""
    files = Files(a=("image/png", 60), b=("image/png", 50), c=("image/png", 40))
    assert await seen_of(store, files, "a", "b", "c", media_bytes=100) == ["a", "c"]


async def test_a_model_that_sees_nothing_costs_no_reading(store: Store) -> None:
    """And one that sees pictures gets no document."""
    files = Files(a=("image/png", 10), b=("application/pdf", 10))
    assert await seen_of(store, files, "a", "b", info=ModelInfo()) == []
    assert files.loaded == []
    assert await seen_of(store, files, "a", "b") == ["a"]


async def test_a_file_is_read_once_a_turn(store: Store) -> None:
    files = Files(a=("image/png", 10))
    provider = ScriptedProvider([calls(call("look")), calls(call("look")), text("ok")], info=SEES)
    agent = make(provider, Plain("look"), media=files, store=store)
    await collect(agent.session("c").run("look", attachments=[Attachment("a", "a")]))
    assert [shown(request) for request in provider.requests] == [["a"]] * 3
    assert files.loaded == ["a"]


@pytest.mark.parametrize("how", ["digest", "none", "fails", "long"])
async def test_a_digest_may_stand_for_a_long_result(store: Store, how: str) -> None:
    """Without one, or when it fails or is too long itself, head and tail are shown."""

    def digest(made: Call) -> str | None:
        if how == "fails":
            raise RuntimeError("boom")
        return {"digest": f"{made.name}: {len(made.result or '')} characters", "none": None, "long": "y" * 500}[how]

    tools = ToolRegistry([Plain("read", "x" * 1000), Plain("short", "brief")])
    own = Profile(system="s", tools=tools, projection=ProjectionOptions(result_chars=100, digest=digest))

    async def profiles(conversation: ConversationId, agent: str) -> Profile:
        return own

    provider = ScriptedProvider([calls(call("read"), call("short")), text("ok")])
    agent = Agent(provider=provider, model="m", profiles=profiles, gate=AllowAll(), store=store)
    await collect(agent.session("c").run("hi"))
    long, short = (p.content for m in provider.requests[1].messages for p in m.parts if isinstance(p, ResultPart))
    assert short == "brief"
    assert len(long) < 250
    assert (long == "read: 1000 characters") is (how == "digest")
    assert ("left out" in long) is (how != "digest")
