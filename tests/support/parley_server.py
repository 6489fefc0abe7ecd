"""A server that speaks Parley, the made-up model API of the stranger of that name, on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

from skald_core.testing.servers import Heard, RawServer, Wire

__all__ = ("ParleyServer",)

T = TypeVar("T")


class ParleyServer:
    """Has one model, ``polly``, and answers every turn with ``answer``, counted as ``words`` tokens."""

    def __init__(self, answer: str, words: int) -> None:
        self._answer = answer
        self._count = words
        self._loop = asyncio.new_event_loop()
        self._server = RawServer()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    def __enter__(self) -> Self:
        self._thread.start()
        self._wait(self._server.__aenter__())
        self._server.answer(self._serve)
        return self

    def __exit__(self, *_: object) -> None:
        self._wait(self._server.__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def turns(self) -> list[Heard]:
        """The requests for an answer, in their order."""
        return [heard for heard in self._server.heard if heard.path == "/turns"]

    async def _serve(self, wire: Wire) -> None:
        if wire.server.heard[-1].path == "/models":
            await wire.whole('["polly"]')
        else:
            await wire.lines({"say": self._answer}, {"end": "stop", "in": 3, "out": self._count})
