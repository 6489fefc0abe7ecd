"""The tools on a real home folder, called the way the loop calls them."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

import skald_tools_fs
from skald_core import api as skald

_ids = itertools.count(1)


class Caller:
    """Validates, previews and runs a call, as the loop does: each call has one context and one id."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.fs = skald.UserFs(home)
        self.tools = {tool.name: tool for tool in skald_tools_fs.skald_tools()}

    def context(self, **options: Any) -> skald.ToolContext:
        return skald.ToolContext(
            conversation="c1",  # type: ignore[arg-type]  # plain values for new types
            frame=1,  # type: ignore[arg-type]
            call_id=next(_ids),  # type: ignore[arg-type]
            scope={skald.UserFs: self.fs},
            **options,
        )

    async def output(self, name: str, **raw: Any) -> skald.ToolOutput:
        tool = self.tools[name]
        found = await tool.run(tool.validate(raw), self.context())
        return skald.ToolOutput(found) if isinstance(found, str) else found

    async def __call__(self, name: str, **raw: Any) -> str:
        return (await self.output(name, **raw)).text

    async def json(self, name: str, **raw: Any) -> Any:
        output = await self.output(name, **raw)
        assert output.json
        return json.loads(output.text)

    async def fails(self, name: str, **raw: Any) -> str:
        with pytest.raises(skald.ToolError) as caught:
            await self(name, **raw)
        text = str(caught.value)
        assert str(self.home) not in text
        return text

    async def change(self, name: str, **raw: Any) -> skald.FileChange:
        tool = self.tools[name]
        (change,) = await tool.preview(tool.validate(raw), self.context())
        return change

    def put(self, path: str, content: str | bytes) -> Path:
        target = self.home / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
        return target


@pytest.fixture
def call(tmp_path: Path) -> Caller:
    home = tmp_path / "home"
    home.mkdir()
    return Caller(home)


@pytest.fixture
def cancelled() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event
