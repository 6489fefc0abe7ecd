"""Talks with a Parley server. Imported with the first call: httpx takes long to import."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx

from skald_core import api as skald
from skald_plugin_parley.kind import INFO
from skald_plugin_parley.usage import count


class Parley:
    """Implements ``skald.Provider``. Raises ConfigError for an address that is none."""

    id = "parley"

    def __init__(self, ctx: skald.PluginContext, url: str) -> None:
        url = url.strip().rstrip("/")
        if not url.startswith(("http://", "https://")):
            raise skald.ConfigError(ctx.t("error.address"))
        self._ctx = ctx
        self._url = url
        self._http = ctx.http(allow_private=True)  # the administrator's own choice of server
        self._headers = {"Authorization": f"Bearer {ctx.config.key.reveal()}"} if ctx.config.key else {}

    def info(self, model: str) -> skald.ModelInfo:
        return INFO

    async def models(self) -> list[str]:
        with _network():
            answer = await self._http.get(f"{self._url}/models", headers=self._headers)
        _check(answer.status_code, answer.text)
        try:
            return [str(name) for name in answer.json()]
        except ValueError:
            raise skald.ProtocolError("the server did not answer a list of models") from None

    async def stream(self, request: skald.ModelRequest) -> AsyncIterator[skald.StreamEvent]:
        with _network():
            asked = self._http.stream("POST", f"{self._url}/turns", json=body(request), headers=self._headers)
            async with asked as answer:
                if answer.status_code != httpx.codes.OK:
                    _check(answer.status_code, (await answer.aread()).decode(errors="replace"))
                yield skald.MessageStart(request.model)
                async for line in answer.aiter_lines():
                    if not line.strip():
                        continue
                    for event in events(_object(line)):
                        if isinstance(event, skald.MessageEnd):
                            await count(self._ctx, request.model, event.usage)
                            yield event
                            return
                        yield event
        raise skald.NetworkError("the answer broke off before its end")

    async def close(self) -> None:
        """The HTTP client is shared and stays open."""


def body(request: skald.ModelRequest) -> dict[str, Any]:
    """A request in Parley's words."""
    messages: list[dict[str, Any]] = []
    for message in request.messages:
        for part in message.parts:
            match part:
                case skald.TextPart(text):
                    messages.append({"from": message.role, "say": text})
                case skald.CallPart(id, name, arguments):
                    messages.append({"from": "assistant", "call": {"id": id, "name": name, "arguments": arguments}})
                case skald.ResultPart(id, content):
                    messages.append({"from": "tool", "id": id, "say": content})
    return {
        "model": request.model,
        "system": "\n\n".join(block.text for block in request.system),
        "messages": messages,
        "tools": [{"name": t.name, "about": t.description, "arguments": t.parameters} for t in request.tools],
    }


def events(line: dict[str, Any]) -> Iterator[skald.StreamEvent]:
    if "say" in line:
        yield skald.TextDelta(str(line["say"]))
    elif "call" in line:
        made = line["call"]
        yield skald.CallStart(str(made["id"]), str(made["name"]))
        yield skald.CallDelta(str(made["id"]), json.dumps(made.get("arguments", {})))
        yield skald.CallEnd(str(made["id"]))
    elif "end" in line:
        usage = skald.Usage(int(line.get("in", 0)), int(line.get("out", 0)))
        yield skald.MessageEnd("tool_use" if line["end"] == "call" else "end_turn", usage)


def _object(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise skald.ProtocolError(f"the server sent a line that is no JSON object: {line[:80]!r}")
    return found


def _check(status: int, text: str) -> None:
    if 200 <= status < 300:
        return
    detail = skald.clean_detail(text)
    if status == 404:
        raise skald.ModelGoneError("the server does not know this address or model", status=status, detail=detail)
    if status == 429:
        raise skald.RateLimitError("the server has too much to do", status=status, detail=detail)
    if status >= 500:
        raise skald.ServerError("the server failed", status=status, detail=detail)
    raise skald.InvalidRequestError("the server refuses the request", status=status, detail=detail)


@contextlib.contextmanager
def _network() -> Iterator[None]:
    try:
        yield
    except httpx.TransportError as error:
        raise skald.NetworkError(f"the server cannot be reached: {error or type(error).__name__}") from None
