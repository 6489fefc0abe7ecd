"""``skald sessions list|show|delete``: conversations as lines of JSON, through the running server."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import msgspec

from skald_core.cli.client import EXIT_ERROR, EXIT_USAGE, Client, CliError
from skald_core.loop.archive import unpack
from skald_core.loop.records import Message

__all__ = ("run",)

PAGE = 200


def run(args: argparse.Namespace) -> int:
    if args.act == "list" and args.limit < 1:
        raise CliError("--limit must be at least 1", EXIT_USAGE)
    return asyncio.run(_run(args))


async def _run(args: argparse.Namespace) -> int:
    client = await Client.sign_in(args.url, args.user)
    try:
        if args.act == "list":
            return await _list(client, args.limit)
        if args.act == "show":
            return await _show(client, args.id)
        return await _delete(client, args.ids, yes=args.yes)
    except BrokenPipeError:
        # Whoever reads has enough; what Python flushes at its end goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    finally:
        await client.close()


def _print(row: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(row) + b"\n")
    sys.stdout.buffer.flush()


async def _list(client: Client, limit: int) -> int:
    cursor: str | None = None
    while limit > 0:
        query = f"counts=true&limit={min(limit, PAGE)}" + (f"&before={quote(cursor)}" if cursor else "")
        page = await client.call("GET", f"/api/conversations?{query}")
        for row in page["items"]:
            _print(
                {
                    "id": row["id"],
                    "created_at": row["created_at"],
                    "updated_at": row["updated_at"],
                    "meta": {key: row[key] for key in ("title", "model", "pinned", "unread", "state")},
                    "message_count": row["message_count"],
                }
            )
        limit -= len(page["items"])
        cursor = page["next"]
        if cursor is None:
            break
    return 0


async def _show(client: Client, conversation: str) -> int:
    archive = unpack(await client.read(f"/api/conversations/{conversation}/export"))
    for message in reversed([*_branch(archive.messages, archive.head)]):
        _print(message)
    return 0


def _branch(messages: tuple[Message, ...], head: int | None) -> Iterator[Message]:
    """The messages shown, newest first."""
    by_id: dict[int, Message] = {message.id: message for message in messages}
    while head is not None:
        yield by_id[head]
        head = by_id[head].parent


async def _delete(client: Client, conversations: list[str], *, yes: bool) -> int:
    status = 0
    for conversation in conversations:
        row = await client.call("GET", f"/api/conversations/{conversation}")
        if not yes and not await _agreed(f"Delete {row['title'] or conversation!r} for good? [y/N] "):
            print(f"skald: {conversation} was not deleted", file=sys.stderr)
            status = EXIT_ERROR
            continue
        await client.call("DELETE", f"/api/conversations/{conversation}")
    return status


async def _agreed(question: str) -> bool:
    """Asked on standard error, so that standard output stays clean. Raises CliError when nobody can answer."""
    print(question, end="", file=sys.stderr, flush=True)
    line = await asyncio.to_thread(sys.stdin.readline)
    if not line:
        print(file=sys.stderr)
        raise CliError("nobody answered; repeat with --yes to delete without being asked", EXIT_USAGE)
    return line.strip().lower() in ("y", "yes")
