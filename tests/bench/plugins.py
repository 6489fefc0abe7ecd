"""What many plugins cost: start-up, a judging hook, enabling and disabling one while the others are used.

``--size`` (50) plugins are generated as installed distributions, each with a tool, a route, a page and settings:

- ``start_ms_each`` (at most 5): how much longer the server takes to its first good answer, divided by their number;
- ``hook_us`` (at most 60): one judging hook through the dispatcher with that many implementations;
- ``toggle_ms`` (at most 200): the slowest enable or disable of one of them over HTTP, while requests of another go on;
- ``errors`` (0): how many of those requests failed.

``start_cpu_ms_each`` is the same cost in processor time, which a busy machine changes less.

Last line: one JSON object. Exit status 1 when a bound is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

import httpx

from tests.support.server import ServerProcess, wait_until

BOUNDS = {"start_ms_each": 5.0, "hook_us": 60.0, "toggle_ms": 200.0, "errors": 0}

SOURCE = '''
"""A generated plugin."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, get

from skald_core import api as skald


class Config(msgspec.Struct, frozen=True):
    words: Annotated[str, skald.setting("config.words")] = "hello"


@skald.hookimpl
def skald_config() -> type[Config]:
    return Config


@skald.tool(name="bench_{n}_echo", scope="read", title="plugin.bench-{n}.tool")
async def echo(text: str) -> str:
    """Say a text again.

    Args:
        text: What to say.
    """
    return text


@skald.hookimpl
def skald_tools() -> list[skald.Tool]:
    return [echo]


@skald.hookimpl
def skald_routes(ctx: skald.PluginContext) -> list[Any]:
    @get("/words")
    async def words(request: Request[Any, Any, Any]) -> dict[str, str]:
        return {{"words": ctx.config.words, "user": ctx.caller(request).username}}

    return [words]


@skald.hookimpl
def skald_web_pages() -> list[skald.WebPage]:
    return [skald.WebPage(page_id="main", title="plugin.bench-{n}.page", entry="web/page.js")]


@skald.hookimpl
def skald_gate(call: skald.GateCall) -> None:
    return None


@skald.hookimpl
def skald_i18n(ctx: skald.PluginContext) -> dict[str, dict[str, str]]:
    return ctx.load_i18n()
'''
MANIFEST = """id = "bench-{n}"
title = "Bench {n}"
summary = "A generated plugin."
api = ">=1,<2"

[contributes]
tools = ["bench_{n}_echo"]
pages = ["main"]
routes = true
"""


def generate(folder: Path, size: int) -> list[str]:
    """Packages and dist-info directories, as an installer leaves them; returns the ids."""
    ids = []
    for n in range(size):
        package = folder / f"skald_plugin_bench_{n}"
        (package / "i18n").mkdir(parents=True)
        (package / "web").mkdir()
        (package / "__init__.py").write_text(SOURCE.format(n=n))
        (package / "skald-plugin.toml").write_text(MANIFEST.format(n=n))
        (package / "web" / "page.js").write_text("export default class extends HTMLElement {}\n")
        texts = {"config.words": "Words", "tool": "Echo", "page": f"Bench {n}"}
        for locale in ("en", "it", "fr"):
            (package / "i18n" / f"{locale}.json").write_text(json.dumps(texts))
        info = folder / f"skald_plugin_bench_{n}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: skald-plugin-bench-{n}\nVersion: 1.0\nAuthor: Bench\n"
        )
        (info / "entry_points.txt").write_text(f"[skald.plugins]\nbench-{n} = skald_plugin_bench_{n}\n")
        (info / "RECORD").write_text("")
        (info / "INSTALLER").write_text("bench\n")
        ids.append(f"bench-{n}")
    return ids


async def enable(data: Path, ids: list[str]) -> None:
    from skald_core.loop.database import Database
    from skald_core.plugins.lifecycle import set_enabled_offline

    database = await Database.open(data / "database" / "system.db", readers=1)
    try:
        for plugin_id in ids:
            await database.write(lambda c, plugin_id=plugin_id: set_enabled_offline(c, plugin_id, True))
    finally:
        await database.close()


def ready(server: ServerProcess) -> float:
    """Seconds from process start to the first good answer."""
    server.start()
    with httpx.Client(trust_env=False) as http:
        wait_until(lambda: http.get(f"{server.url}/healthz").status_code == 200, "healthz")
    return time.monotonic() - server.started_at


def cpu(server: ServerProcess) -> float:
    """Seconds of processor time a server has used so far; NaN where there is no /proc."""
    assert server.process is not None
    try:
        fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return math.nan
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start_cost(bare: ServerProcess, full: ServerProcess, runs: int) -> dict[ServerProcess, tuple[float, float]]:
    """Median seconds of either, by the clock and of the processor, in turns so that the machine's mood falls on both."""
    times: dict[ServerProcess, list[tuple[float, float]]] = {bare: [], full: []}
    for server in (bare, full):  # once for the byte code and the disk's cache
        ready(server)
        server.stop()
    for _ in range(runs):
        for server in (bare, full):
            clock = ready(server)
            times[server].append((clock, cpu(server)))
            server.stop()
    return {s: (statistics.median(c for c, _ in t), statistics.median(p for _, p in t)) for s, t in times.items()}


class Requests(threading.Thread):
    """Asks a plugin's route without a pause until it is told to stop."""

    def __init__(self, url: str, cookies: httpx.Cookies, path: str) -> None:
        super().__init__(daemon=True)
        self._client = httpx.Client(base_url=url, cookies=cookies, trust_env=False, timeout=10)
        self._path = path
        self._halt = threading.Event()
        self.sent = 0
        self.errors: list[str] = []

    def run(self) -> None:
        while not self._halt.is_set():
            self.sent += 1
            try:
                answer = self._client.get(self._path)
                if answer.status_code != 200:
                    self.errors.append(f"{answer.status_code} {answer.text[:200]}")
            except httpx.HTTPError as error:
                self.errors.append(repr(error))
        self._client.close()

    def stop(self) -> None:
        self._halt.set()
        self.join(20)


def toggles(client: httpx.Client, server: ServerProcess, ids: list[str], times: int) -> tuple[list[float], Requests]:
    """Milliseconds of each disable and enable of the first plugin, while the last one's route is asked."""
    requests = Requests(server.url, client.cookies, f"/api/plugin/{ids[-1]}/words")
    requests.start()
    spent = []
    try:
        for _ in range(times):
            for act in ("disable", "enable"):
                began = time.perf_counter()
                client.post(f"/api/plugins/{ids[0]}/{act}").raise_for_status()
                spent.append((time.perf_counter() - began) * 1000)
                status = client.get(f"/api/plugin/{ids[0]}/words").status_code
                assert status == (200 if act == "enable" else 404), f"{act}: {status}"
    finally:
        requests.stop()
    return spent, requests


async def hook_us(folder: Path, size: int, rounds: int) -> float:
    """Microseconds of one judging hook with ``size`` implementations: the median of ``rounds``."""
    from skald_core.plugins.discovery import discover
    from skald_core.testing import AppFactory

    sys.path.insert(0, str(folder))
    found = [row for row in discover() if row.id.startswith("bench-")]
    assert len(found) == size
    with tempfile.TemporaryDirectory() as data:
        factory = AppFactory(Path(data))
        try:
            app = await factory(*found)
            plugins = app.skald.plugins
            visible = frozenset(row.id for row in found)
            call: Any = object()
            spent = []
            for _ in range(rounds):
                asked = 0
                began = time.perf_counter()
                async for _outcome in plugins.dispatcher.call("skald_gate", {"call": call}, only=visible, timeout=20.0):
                    asked += 1
                spent.append((time.perf_counter() - began) * 1e6)
                assert asked == size
            return statistics.median(spent)
        finally:
            await factory.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=50, help="how many plugins (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=5, help="starts of either server (default: %(default)s)")
    parser.add_argument(
        "--toggles", type=int, default=10, help="times one is disabled and enabled (default: %(default)s)"
    )
    parser.add_argument("--small", action="store_true", help="2 starts, 3 toggles")
    args = parser.parse_args()
    if args.small:
        args.runs, args.toggles = 2, 3
    with tempfile.TemporaryDirectory(prefix="skald-bench-") as temporary:
        folder = Path(temporary) / "site"
        folder.mkdir()
        ids = generate(folder, args.size)
        hook = asyncio.run(hook_us(folder, args.size, 2000))
        with (
            ServerProcess() as bare,
            ServerProcess(env={"PYTHONPATH": str(folder), "SKALD_STRICT_PLUGINS": "1"}) as full,
        ):
            bare.first_user().close()
            full.first_user().close()
            bare.stop()
            full.stop()
            asyncio.run(enable(full.data, ids))
            costs = start_cost(bare, full, args.runs)
            (without, cpu_without), (with_all, cpu_with) = costs[bare], costs[full]
            ready(full)
            client = full.sign_in()
            rows = {row["id"]: row for row in client.get("/api/plugins").json()}
            assert all(rows[i]["state"] == "running" for i in ids), {i: rows[i]["state"] for i in ids}
            spent, requests = toggles(client, full, ids, args.toggles)
            client.close()
    result = {
        "start_ms_each": round((with_all - without) * 1000 / args.size, 2),
        "hook_us": round(hook, 1),
        "toggle_ms": round(max(spent), 1),
        "errors": len(requests.errors),
        "start_cpu_ms_each": round((cpu_with - cpu_without) * 1000 / args.size, 2),
        "toggle_ms_median": round(statistics.median(spent), 1),
        "requests": requests.sent,
        "ready_s": [round(without, 3), round(with_all, 3)],
        "size": args.size,
        "bounds": BOUNDS,
    }
    if requests.errors:
        print("\n".join(requests.errors[:5]), file=sys.stderr)
    print(json.dumps(result))
    return 1 if any(result[key] > bound for key, bound in BOUNDS.items()) else 0


if __name__ == "__main__":
    sys.exit(main())
