"""``skald reading-list list|add``."""

from __future__ import annotations

import argparse

from skald_core import api as skald


async def show(args: argparse.Namespace, host: skald.CliHost) -> int:
    for item in await host.request("GET", "items"):
        print(f"{'   ' if item['read_at'] else ' * '}{item['title']}  {item['url']}")
    return 0


async def add(args: argparse.Namespace, host: skald.CliHost) -> int:
    item = await host.request("POST", "items", {"url": args.url, "title": args.title})
    print(item["id"])
    return 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url")
    parser.add_argument("title", nargs="?", default="")


COMMANDS = [
    skald.CliCommand(name="list", help="print the list; * is unread", run=show),
    skald.CliCommand(name="add", help="save a page", run=add, arguments=add_arguments),
]
