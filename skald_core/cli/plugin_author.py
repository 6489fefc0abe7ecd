"""``skald plugin new|dev|check``: for those who write plugins. They work on a folder and ask no running server."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

__all__ = ("ACTS", "add_parsers", "run")

ACTS = frozenset({"new", "dev", "check"})
_KINDS = ("tool", "page", "provider", "channel", "gate")  # as in scaffold.py, which is imported only when it is used


def add_parsers(acts: Any) -> None:
    """Add the acts to the sub-parsers of ``skald plugin``."""
    new = acts.add_parser("new", help="start a plugin of your own: a project that installs and has a passing test")
    new.add_argument("name", help="its name: letters, digits and hyphens")
    new.add_argument("--kind", choices=_KINDS, default="tool", help="what it brings (default: %(default)s)")
    new.add_argument("--in", dest="folder", type=Path, default=Path(), metavar="DIR", help="where (default: here)")

    dev = acts.add_parser("dev", help="run a server with a plugin's project, restarted when a file changes")
    dev.add_argument("path", type=Path, nargs="?", default=Path(), help="the project's folder (default: here)")
    dev.add_argument("--data", type=Path, metavar="DIR", help="data directory (default: .skald in the project)")
    dev.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    dev.add_argument(
        "--port", type=int, default=9000, help="port to listen on; 0 picks a free one (default: %(default)s)"
    )
    dev.add_argument("--strict", action="store_true", help="end the server at the first fault of a plugin")
    dev.add_argument("--trace", action="store_true", help="print every hook call, without contents")
    dev.add_argument("--no-install", action="store_true", help="it is installed already")

    check = acts.add_parser("check", help="judge a plugin's project and say what to mend; exit status 1 on errors")
    check.add_argument("path", type=Path, nargs="?", default=Path(), help="the project's folder (default: here)")
    check.add_argument("--json", action="store_true", help="one JSON object")
    check.add_argument("--no-run", action="store_true", help="only read it: do not import or start it")


def run(args: argparse.Namespace) -> int:
    if args.act == "new":
        return _new(args)
    if args.act == "dev":
        return _dev(args)
    return _check(args)


def _new(args: argparse.Namespace) -> int:
    from skald_core.authoring.naming import names_for
    from skald_core.authoring.scaffold import write_project

    folder = write_project(names_for(args.name), args.kind, args.folder)
    shown = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    print(
        f"{shown} is ready. Next:\n\n  cd {shown}\n  skald plugin dev .\n  python -m pytest\n  skald plugin check .\n"
    )
    return 0


def _dev(args: argparse.Namespace) -> int:
    from skald_core.authoring.develop import Development, DevServer

    def say(line: str) -> None:
        print(line, flush=True)

    async def serve() -> int:
        wanted = Development(
            root=args.path,
            data_dir=args.data,
            host=args.host,
            port=args.port,
            install=not args.no_install,
            strict=args.strict,
            trace=args.trace,
            say=say,
        )
        return await DevServer(wanted).run()

    return asyncio.run(serve())


def _check(args: argparse.Namespace) -> int:
    import msgspec

    from skald_core.authoring.check import check_project

    judged = check_project(args.path, run=not args.no_run)
    if args.json:
        print(msgspec.json.encode(judged).decode())
        return 0 if judged.ok else 1
    for finding in judged.findings:
        print(finding)
    errors = sum(f.severity == "error" for f in judged.findings)
    warnings = len(judged.findings) - errors
    if errors or warnings:
        print()
    print(
        f"{judged.plugin} {judged.version}: {_count(errors, 'error')}, {_count(warnings, 'warning')}; "
        f"import {judged.import_ms:g} ms, start {judged.start_ms:g} ms"
    )
    return 0 if judged.ok else 1


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"
