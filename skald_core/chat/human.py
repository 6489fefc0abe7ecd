"""Human requests: an approval (later: a question, an elicitation) a person must answer.

A request is a row before it is an event. It has one answer, given from any surface. A request that nobody answers in time
expires: that is a denial, said to the model in words, and the row stays in the inbox, from where it can be raised again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from skald_core.errors import BadInput, Conflict, NotFound
from skald_core.loop.database import Connection, Database
from skald_core.plugins.contributions import Answer, Choice

__all__ = ("HumanRequest", "HumanRequests", "Status")

Status = Literal["pending", "answered", "expired", "cancelled", "raised"]
"""``raised``: it expired, and a person had the same thing asked again, as a new request."""


class HumanRequest(msgspec.Struct, frozen=True):
    """A row. ``payload`` holds what the card shows, ``choices`` its buttons in order."""

    id: str
    kind: str
    status: Status
    conversation: str
    call_id: int | None
    payload: dict[str, Any]
    choices: tuple[Choice, ...]
    created_at: float
    expires_at: float | None = None
    answer: Answer | None = None

    def view(self) -> dict[str, Any]:
        """The shape clients get (docs/http-api.md)."""
        return {
            "id": self.id,
            "kind": self.kind,
            "status": self.status,
            "conversation": self.conversation,
            "call_id": self.call_id,
            **self.payload,
            "choices": self.choices,
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            "answer": self.answer,
        }


class _Payload(msgspec.Struct):
    card: dict[str, Any]
    choices: tuple[Choice, ...]


_COLUMNS = "id, kind, status, conversation, call_id, payload, created_at, expires_at, answer"


def _request(row: tuple[Any, ...]) -> HumanRequest:
    payload = msgspec.json.decode(row[5], type=_Payload)
    answer = msgspec.json.decode(row[8], type=Answer) if row[8] else None
    return HumanRequest(row[0], row[1], row[2], row[3], row[4], payload.card, payload.choices, row[6], row[7], answer)


class HumanRequests:
    """The requests of one user. ``changed`` is called after every change, with the row as it now is."""

    def __init__(
        self, database: Database, *, now: Callable[[], float], changed: Callable[[HumanRequest], None]
    ) -> None:
        self._db = database
        self._now = now
        self._changed = changed
        self._waiters: dict[str, asyncio.Future[Answer | None]] = {}
        self._released = False
        self._pending_calls: dict[tuple[str, int], str] = {}

    async def open(
        self,
        *,
        kind: str,
        conversation: str,
        call_id: int | None,
        card: dict[str, Any],
        choices: tuple[Choice, ...],
        lifetime: float | None,
    ) -> HumanRequest:
        """Store a request, or return the one the same call has already: pending, or answered while nobody waited.

        Looking and storing are one transaction, so an answer that arrives meanwhile is never asked for again. ``lifetime``
        is seconds.
        """
        now = self._now()
        request = HumanRequest(
            id=secrets.token_urlsafe(12),
            kind=kind,
            status="pending",
            conversation=conversation,
            call_id=call_id,
            payload=card,
            choices=choices,
            created_at=now,
            expires_at=None if lifetime is None else now + lifetime,
        )
        text = msgspec.json.encode(_Payload(card, choices)).decode()

        def work(c: Connection) -> HumanRequest:
            if call_id is not None:
                row = c.execute(
                    f"SELECT {_COLUMNS} FROM human_requests WHERE conversation=? AND call_id=? "
                    "AND status IN ('pending', 'answered') ORDER BY created_at DESC LIMIT 1",
                    (conversation, call_id),
                ).fetchone()
                if row is not None:
                    return _request(row)
            c.execute(
                "INSERT INTO human_requests(id,kind,status,conversation,call_id,payload,created_at,expires_at) "
                "VALUES(?,?,'pending',?,?,?,?,?)",
                (request.id, kind, conversation, call_id, text, now, request.expires_at),
            )
            return request

        writing = asyncio.ensure_future(self._db.write(work))
        try:
            stored = await asyncio.shield(writing)
        except (
            asyncio.CancelledError
        ):  # the run was stopped while it was written: a card nobody waits for must not stay
            await asyncio.shield(self._take_back(writing))
            raise
        if stored.status != "pending":
            return stored
        self._waiters.setdefault(stored.id, asyncio.get_running_loop().create_future())
        self._changed(stored)
        return stored

    async def wait(self, request: HumanRequest) -> Answer | None:
        """The answer, or None when it expired or was cancelled. Cancelling the wait cancels the request."""
        waiter = self._waiters.setdefault(request.id, asyncio.get_running_loop().create_future())
        timeout = None if request.expires_at is None else max(0.0, request.expires_at - self._now())
        try:
            current = await self.get(request.id)  # an answer given before anybody waited told no waiter
            if current.status != "pending":
                return current.answer
            async with asyncio.timeout(timeout):
                return await asyncio.shield(waiter)
        except TimeoutError:
            await self._end(request.id, "expired")
            return None
        except asyncio.CancelledError:
            # The run was stopped: nobody waits for the answer any more. Shielded, so that the row is not left pending.
            if not self._released:
                await asyncio.shield(self._end(request.id, "cancelled"))
            raise
        finally:
            self._waiters.pop(request.id, None)

    def release(self) -> None:
        """The server stops or the user is locked: let waits go without touching the rows, which are asked again later."""
        self._released = True

    async def answer(
        self, request_id: str, choice_id: str, note: str = "", arguments: dict[str, Any] | None = None
    ) -> HumanRequest:
        """Give the one answer. Raises NotFound, BadInput for a choice it does not have, Conflict ``already_answered``.

        ``arguments`` replace those of a call that is allowed; the gate judges them again before it runs.
        """
        request = await self.get(request_id)
        choice = next((c for c in request.choices if c.id == choice_id), None)
        if choice is None:
            raise BadInput(f"this request has no choice {choice_id!r}", code="bad_choice")
        if arguments is not None and not choice.allow:
            raise BadInput("Only a call that is allowed can be given other arguments.", code="bad_choice")
        answer = Answer(choice=choice.id, allow=choice.allow, note=note.strip()[:2000], arguments=arguments)
        text = msgspec.json.encode(answer).decode()

        def work(c: Connection) -> bool:
            changed = c.execute(
                "UPDATE human_requests SET status='answered', answer=?, answered_at=? WHERE id=? AND status='pending'",
                (text, self._now(), request_id),
            ).rowcount
            return bool(changed)

        if not await self._db.write(work):
            current = await self.get(request_id)
            raise Conflict(f"This request is {current.status} already.", code="already_answered", status=current.status)
        stored = await self.get(request_id)
        waiter = self._waiters.get(request_id)
        if waiter is not None and not waiter.done():
            waiter.set_result(answer)
        self._changed(stored)
        return stored

    async def withdraw(self, conversation: str, call_id: int) -> None:
        """Cancel the pending request of a call that needs no answer any more; without one this does nothing."""
        known = self._pending_calls.pop((conversation, call_id), None)
        if known is not None:
            await self._end(known, "cancelled")

    async def load(self) -> None:
        """Remember which calls have a pending request from before this start."""
        query = "SELECT conversation, call_id, id FROM human_requests WHERE status='pending' AND call_id IS NOT NULL"
        rows = await self._db.read(lambda c: c.execute(query).fetchall())
        self._pending_calls = {(row[0], row[1]): row[2] for row in rows}

    async def mark_raised(self, request_id: str) -> HumanRequest:
        """An expired request was asked again; it cannot be raised twice. Raises NotFound."""
        await self._db.write(
            lambda c: c.execute(
                "UPDATE human_requests SET status='raised' WHERE id=? AND status='expired'", (request_id,)
            )
        )
        raised = await self.get(request_id)
        self._changed(raised)
        return raised

    async def forget_calls(self, conversation: str, calls: Sequence[int]) -> None:
        """Delete the requests of calls that were deleted with their messages."""
        rows = [(conversation, call) for call in calls]
        await self._db.write(
            lambda c: c.executemany("DELETE FROM human_requests WHERE conversation=? AND call_id=?", rows)
        )

    async def _take_back(self, writing: asyncio.Future[HumanRequest]) -> None:
        stored = await writing
        if stored.status == "pending" and not self._released:
            await self._end(stored.id, "cancelled")

    async def _end(self, request_id: str, status: Status) -> None:
        values = (status, self._now(), request_id)
        changed = await self._db.write(
            lambda c: (
                c.execute(
                    "UPDATE human_requests SET status=?, answered_at=? WHERE id=? AND status='pending'", values
                ).rowcount
            )
        )
        if changed:
            self._changed(await self.get(request_id))

    async def get(self, request_id: str) -> HumanRequest:
        """Raises NotFound."""
        query = f"SELECT {_COLUMNS} FROM human_requests WHERE id=?"
        row = await self._db.read(lambda c: c.execute(query, (request_id,)).fetchone())
        if row is None:
            raise NotFound("This request does not exist (any more).", code="request_not_found")
        return _request(row)

    async def list(
        self, *, status: str | None = None, conversation: str | None = None, limit: int = 200
    ) -> list[HumanRequest]:
        where, values = ["1"], []
        if status is not None:
            where.append("status=?")
            values.append(status)
        if conversation is not None:
            where.append("conversation=?")
            values.append(conversation)
        query = f"SELECT {_COLUMNS} FROM human_requests WHERE {' AND '.join(where)} ORDER BY created_at DESC LIMIT ?"
        return [_request(r) for r in await self._db.read(lambda c: c.execute(query, (*values, limit)).fetchall())]

    async def pending(self) -> int:
        query = "SELECT count(*) FROM human_requests WHERE status='pending'"
        return await self._db.read(lambda c: int(c.execute(query).fetchone()[0]))
