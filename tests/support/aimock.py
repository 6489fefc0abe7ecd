"""aimock, a server of many model APIs that others wrote (npm ``@copilotkit/aimock``, pinned in ``tests/node``)."""

from __future__ import annotations

import json
import os
import shutil
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from skald_core.testing.programs import running_server

__all__ = ("AiMock", "running_aimock")

FOLDER = Path(__file__).parent.parent / "node"
PROGRAM = FOLDER / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"

Json = dict[str, Any]


class AiMock:
    """A running one. It answers what it was told to, by words of the last user message, in every API it speaks."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def answer(self, words: str, *responses: Json, **options: Any) -> None:
        """To a message with ``words``: each response in turn. ``options`` (its chaos, where it is cut) are the first one's.

        Raises:
            urllib.error.HTTPError: it does not take such a response.
        """
        fixtures = []
        for number, response in enumerate(responses):
            match: Json = {"userMessage": words}
            if len(responses) > 1:
                match["sequenceIndex"] = number
            fixtures.append({"match": match, "response": response, **(options if number == 0 else {})})
        self._call("POST", "/__aimock/fixtures", {"fixtures": fixtures})

    def after_results(self, words: str, response: Json) -> None:
        """To a conversation that began with ``words`` and whose calls have results. Say it before :meth:`answer`."""
        fixture = {"match": {"userMessage": words, "hasToolResult": True}, "response": response}
        self._call("POST", "/__aimock/fixtures", {"fixtures": [fixture]})

    def heard(self, words: str) -> list[Json]:
        """The requests with ``words`` in them, oldest first."""
        return [entry for entry in self._call("GET", "/__aimock/journal") if words in json.dumps(entry.get("body"))]

    def _call(self, method: str, path: str, body: Json | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.origin + path, data, {"Content-Type": "application/json"}, method=method)
        with self._opener.open(request, timeout=10) as response:
            return json.load(response)


@contextmanager
def running_aimock(folder: Path) -> Iterator[AiMock]:
    """Start it with nothing to say. Without Node.js the test is skipped, but never where tests have to run (``CI``)."""
    node = (
        os.environ.get("SKALD_NODE") or shutil.which("node") or shutil.which("node", path=Path(sys.executable).parent)
    )
    if node is None:
        if os.environ.get("CI"):
            pytest.fail("Node.js is missing: ./test.sh installs it")
        pytest.skip("Node.js is missing: ./test.sh installs it")
    assert PROGRAM.is_file(), f"{PROGRAM} is missing: run 'npm ci' in {FOLDER}, or ./test.sh"
    first = folder / "aimock.json"
    first.write_text(json.dumps({"fixtures": [{"match": {"userMessage": "ping"}, "response": {"content": "pong"}}]}))
    command = [node, str(PROGRAM), "--port", "{port}", "--fixtures", str(first), "--strict", "--log-level", "warn"]
    with running_server(command, ready="/health") as origin:
        yield AiMock(origin)
