"""``skald user list|add|reset-password``, through the running server and as one of its administrators."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import os
import sys

from skald_core.cli.client import Client, CliError

__all__ = ("run",)


def run(args: argparse.Namespace) -> int:
    return asyncio.run(_run(args))


def _new_password(name: str) -> str:
    """Asked twice in a terminal; ``$SKALD_NEW_PASSWORD`` for scripts."""
    given = os.environ.get("SKALD_NEW_PASSWORD")
    if given is not None:
        return given
    if not sys.stdin.isatty():
        raise CliError("there is no terminal to ask for the password in; set SKALD_NEW_PASSWORD")
    while True:
        first = getpass.getpass(f"Password for {name}: ")
        if getpass.getpass("The same again: ") == first:
            return first
        print("They differ. Once more.")


async def _run(args: argparse.Namespace) -> int:
    client = await Client.sign_in(args.url, args.user)
    try:
        if args.act == "list":
            for row in await client.call("GET", "/api/users"):
                notes = [row["role"], "encrypted" if row["encrypted"] else "not encrypted"]
                print(f"{row['username']:<20}  {row['display_name']:<24}  {', '.join(notes)}")
            return 0
        if args.act == "add":
            body = {
                "username": args.name,
                "password": await asyncio.to_thread(_new_password, args.name),
                "role": args.role,
                "encrypted": not args.not_encrypted,
            }
            made = await client.call("POST", "/api/users", body)
            print(f"{made['username']} can sign in now.")
            return 0
        found = [u for u in await client.call("GET", "/api/users") if u["username"] == args.name.lower()]
        if not found:
            raise CliError(f"there is no user {args.name!r}")
        password = await asyncio.to_thread(_new_password, args.name)
        await client.call("POST", f"/api/users/{found[0]['id']}/password", {"new": password})
        print(f"{args.name} has a new password; they were signed out everywhere.")
        return 0
    finally:
        await client.close()
