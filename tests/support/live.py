"""A WebSocket client for tests, as careful as the browser's: it checks sequence numbers and rebuilds the conversation."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import httpx
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

__all__ = ("Live",)


class Live:
    """Follows one conversation. ``text`` is the answer as a reader would see it now; ``events`` all events received."""

    def __init__(self, client: httpx.Client, conversation: str) -> None:
        self._url = "ws" + str(client.base_url).rstrip("/").removeprefix("http") + "/api/ws"
        self._cookie = f"skald_session={client.cookies['skald_session']}"
        self.conversation = conversation
        self.epoch: str | None = None
        self.seq: int | None = None
        self.events: list[dict[str, Any]] = []
        self.messages: dict[int, dict[str, Any]] = {}
        self.text = ""
        self.requests: dict[str, dict[str, Any]] = {}
        self.running = False
        self.queue: list[dict[str, Any]] = []
        self._socket: Any = None
        self.open()

    def open(self) -> None:
        """Connect and subscribe from where it was."""
        self._connection = connect(self._url, additional_headers={"Cookie": self._cookie}, max_size=None, proxy=None)
        self._socket = self._connection.__enter__()
        ask = {"type": "subscribe", "conversation": self.conversation, "epoch": self.epoch, "after": self.seq}
        self._socket.send(json.dumps(ask))

    def drop(self) -> None:
        """Lose the connection without a goodbye."""
        self._socket.socket.shutdown(socket.SHUT_RDWR)
        self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._connection.__exit__(None, None, None)
            self._socket = None

    def next(self, timeout: float = 20.0) -> dict[str, Any]:
        """The next event of the conversation. Raises TimeoutError, and AssertionError on a gap or a duplicate."""
        end = time.monotonic() + timeout
        while True:
            event: dict[str, Any] = json.loads(self._socket.recv(timeout=max(0.0, end - time.monotonic())))
            if event.get("conversation") != self.conversation:
                continue
            self._apply(event)
            return event

    def until(self, kind: str, timeout: float = 30.0, **fields: Any) -> dict[str, Any]:
        """Receive until an event of this type with these fields comes."""
        end = time.monotonic() + timeout
        while True:
            event = self.next(max(0.1, end - time.monotonic()))
            if event["type"] == kind and all(event.get(k) == v for k, v in fields.items()):
                return event

    def until_closed(self) -> None:
        """Receive until the server ends the connection."""
        try:
            while True:
                self.next()
        except ConnectionClosed:
            return

    def _apply(self, event: dict[str, Any]) -> None:
        if event["type"] == "snapshot":
            self.epoch, self.seq = event["epoch"], event["seq"]
            self.messages = {m["id"]: m for m in event["messages"]}
            self.text = event["live"]["content"] if event["live"] else ""
            self.requests = {r["id"]: r for r in event["requests"]}
            self.running = event["turn"] is not None
            self.queue = event["queue"]
        else:
            assert self.seq is not None
            assert event["seq"] == self.seq + 1, f"a gap: {self.seq} then {event['seq']}"
            self.seq = event["seq"]
        self.events.append(event)
        match event["type"]:
            case "assistant_started":
                self.text = ""
            case "token_delta" if event["kind"] == "content":
                self.text += event["delta"]
            case "user_message":
                self.messages[event["message"]["id"]] = event["message"]
            case "assistant_message":
                self.messages[event["message"]["id"]] = event["message"]
                self.text = event["message"]["content"]
            case "approval_required":
                self.requests[event["request"]["id"]] = event["request"]
            case "approval_resolved":
                self.requests.pop(event["request"]["id"], None)
            case "turn_started":
                self.running = True
            case "turn_finished":
                self.running = False
            case "queue_changed":
                self.queue = event["queue"]
