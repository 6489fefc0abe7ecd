"""``skald``: one command for people and admins. Each subcommand imports only what it needs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from skald_core.cli import plugin_author
from skald_core.errors import SkaldError, StartError
from skald_core.version import VERSION

__all__ = ("main",)

EXIT_USAGE = 2
EXIT_START = 3


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="skald",
        description="A self-hosted assistant for a small trusted group.",
        epilog="Plugins have commands of their own: skald <plugin id> --help",
    )
    parser.add_argument("--version", action="version", version=f"skald {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    def data(command: argparse.ArgumentParser) -> None:
        command.add_argument("--data", type=Path, metavar="DIR", help="data directory (default: $SKALD_DATA)")

    serve = commands.add_parser("serve", help="run the server")
    data(serve)
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    serve.add_argument(
        "--port", type=int, default=9000, help="port to listen on; 0 picks a free one (default: %(default)s)"
    )
    serve.add_argument(
        "--allowed-host", action="append", default=[], metavar="NAME", help="a further name people open this server by"
    )
    serve.add_argument(
        "--trusted-proxy", action="append", default=[], metavar="ADDRESS", help="believe its X-Forwarded-For"
    )
    serve.add_argument("--behind-tls", action="store_true", help="a TLS proxy is in front: mark cookies Secure")
    serve.add_argument("--port-file", type=Path, metavar="FILE", help="write the port here once listening")
    serve.add_argument("--no-input", action="store_true", help="ask nothing in the terminal")

    setup = commands.add_parser("setup", help="make the first account in the terminal")
    data(setup)
    setup.add_argument("--check", action="store_true", help="only tell: exit status 0 set up, 1 not yet")

    for name, text in (("chat", "talk in the terminal"), ("run", "ask once and print the answer")):
        client = commands.add_parser(name, help=text)
        client.add_argument("--url", help="the server (default: $SKALD_URL or http://127.0.0.1:9000)")
        client.add_argument("--user", help="user name (default: asked, or $SKALD_USER with $SKALD_PASSWORD)")
        client.add_argument("--model", help="use this model (id or title)")
        client.add_argument("--conversation", metavar="ID", help="go on with this conversation")
        if name == "run":
            client.add_argument("prompt", nargs="?", help="what to ask; '-' reads standard input")
            client.add_argument(
                "--json",
                action="store_true",
                help="events on standard output, commands on standard input, one JSON a line",
            )
            client.add_argument(
                "--interactive-permissions",
                action="store_true",
                help="with --json: let commands, or any other surface, answer what needs permission; else the answer is no",
            )

    sessions = commands.add_parser("sessions", help="list, show and delete conversations; one JSON a line")
    acts = sessions.add_subparsers(dest="act", required=True, metavar="act")
    for act, text in (
        ("list", "conversations, newest first"),
        ("show", "the stored messages of a conversation"),
        ("delete", "delete conversations for good"),
    ):
        one = acts.add_parser(act, help=text)
        one.add_argument("--url", help="the server (default: $SKALD_URL or http://127.0.0.1:9000)")
        one.add_argument("--user", help="user name (default: asked, or $SKALD_USER with $SKALD_PASSWORD)")
        if act == "list":
            one.add_argument("--limit", type=int, default=20, help="how many (default: %(default)s)")
        if act == "show":
            one.add_argument("id")
        if act == "delete":
            one.add_argument("ids", nargs="+", metavar="id")
            one.add_argument("--yes", action="store_true", help="do not ask")

    commands.add_parser("version", help="print the version")
    commands.add_parser("help", help="print this help")

    plugin = commands.add_parser("plugin", help="list, install, enable and remove plugins; write your own")
    acts = plugin.add_subparsers(dest="act", required=True, metavar="act")
    listing = acts.add_parser("list", help="what is installed")
    data(listing)
    listing.add_argument("--json", action="store_true", help="one JSON array, with everything that is known")
    listing.add_argument("--verbose", "-v", action="store_true", help="with the traceback of what went wrong")
    for act in ("enable", "disable"):
        one = acts.add_parser(act, help=f"{act} a plugin; a running server does it at once")
        data(one)
        one.add_argument("id")
        one.add_argument("--url", help="the running server (default: $SKALD_URL or http://127.0.0.1:9000)")
        one.add_argument("--user", help="user name for the running server")
    _add_installing(acts, data)
    plugin_author.add_parsers(acts)
    user = commands.add_parser("user", help="list, add and help the people of this server")
    acts = user.add_subparsers(dest="act", required=True, metavar="act")
    for act, text in (
        ("list", "who has an account"),
        ("add", "make an account; its password is asked"),
        ("reset-password", "a new password for somebody whose data is not encrypted"),
    ):
        one = acts.add_parser(act, help=text)
        one.add_argument("--url", help="the server (default: $SKALD_URL or http://127.0.0.1:9000)")
        one.add_argument("--user", help="sign in as this administrator")
        if act != "list":
            one.add_argument("name")
        if act == "add":
            one.add_argument("--role", default="member", help="admin or member (default: %(default)s)")
            one.add_argument(
                "--not-encrypted", action="store_true", help="do not encrypt their data with their password"
            )
    return parser


def _add_installing(acts: Any, data: Callable[[argparse.ArgumentParser], None]) -> None:
    """Subcommands that change what is installed; ``data`` adds the option for the data directory."""
    for act, text in (
        ("install", "install a plugin, after showing what would change"),
        ("upgrade", "bring a plugin to its newest version"),
        ("uninstall", "remove a plugin's code; its data stay"),
        ("purge", "remove what a plugin stored, for good"),
    ):
        one = acts.add_parser(act, help=text)
        data(one)
        if act == "install":
            one.add_argument("requirement", nargs="?", help="name, or name with versions: 'skald-plugin-x>=1.2'")
            one.add_argument("--from-lock", action="store_true", help="put back what plugins.lock names")
        elif act == "upgrade":
            one.add_argument("requirement", metavar="plugin", help="id, distribution name, or name with versions")
        else:
            one.add_argument("plugin", help="the plugin's id")
        one.add_argument("--yes", action="store_true", help="do not ask")
        one.add_argument("--url", help="the running server (default: $SKALD_URL or http://127.0.0.1:9000)")
        one.add_argument("--user", help="user name for the running server")
    lock = acts.add_parser("lock", help="write plugins.lock from what is installed, and print it")
    data(lock)
    lock.add_argument("--print", action="store_true", dest="print_only", help="print it, write nothing")


def _commands_of(parser: argparse.ArgumentParser) -> frozenset[str]:
    """The kernel's own commands: no plugin can take one over."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return frozenset(name for group in groups for name in group.choices)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status (0 fine, 1 it failed, 2 wrong use, 3 the server cannot start).

    ``run`` and ``sessions`` have more of them (docs/cli.md).
    """
    words = list(sys.argv[1:] if argv is None else argv)
    parser = _parser()
    try:
        if words and not words[0].startswith("-") and words[0] not in _commands_of(parser):
            from skald_core.cli import plugin_command

            return plugin_command.run(parser, words)
        args = parser.parse_args(words)
        if args.command == "version":
            print(f"skald {VERSION}")
            return 0
        if args.command == "help":
            parser.print_help()
            return 0
        if args.command == "serve":
            from skald_core.cli import serve

            return serve.run(args)
        if args.command == "setup":
            from skald_core.cli import setup

            return setup.run(args)
        if args.command == "plugin" and args.act in plugin_author.ACTS:
            return plugin_author.run(args)
        if args.command == "plugin":
            from skald_core.cli import plugin

            return plugin.run(args)
        if args.command == "user":
            from skald_core.cli import user

            return user.run(args)
        if args.command == "run":
            from skald_core.cli import run

            return run.run(args)
        if args.command == "sessions":
            from skald_core.cli import sessions

            return sessions.run(args)
        from skald_core.cli import chat

        return chat.run(args)
    except StartError as error:
        print(f"skald: {error.detail}", file=sys.stderr)
        return EXIT_START
    except SkaldError as error:
        print(f"skald: {error.detail}", file=sys.stderr)
        return int(getattr(error, "exit_status", 1))
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
