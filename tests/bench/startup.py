"""How long the server takes to start, and how much memory it holds idle.

Process start to the first 200 on /healthz, all bundled plugins on, warm disk (the first start is not counted): at most
1.5 s; resident memory after ``--idle`` seconds (30): at most 150 MB. Last line: one JSON object with ``ready_s``, ``rss_mb``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

import httpx

from tests.support.server import ServerProcess, wait_until

READY_S = 1.5
RSS_MB = 150.0


def rss_mb(pid: int) -> float:
    """Resident memory of a process and its children, in MB."""
    listing = subprocess.run(["ps", "-eo", "pid=,ppid=,rss="], capture_output=True, text=True, check=True).stdout
    rows = [tuple(map(int, line.split())) for line in listing.splitlines()]
    mine = {pid}
    while grown := {p for p, parent, _ in rows if parent in mine} - mine:
        mine |= grown
    return sum(rss for p, _, rss in rows if p in mine) / 1024


def ready(server: ServerProcess) -> float:
    """Seconds from process start to the first good answer."""
    server.start()
    with httpx.Client(trust_env=False) as http:
        wait_until(lambda: http.get(f"{server.url}/healthz").status_code == 200, "healthz")
    return time.monotonic() - server.started_at


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--idle", type=float, default=30.0, help="seconds before memory is read")
    args = parser.parse_args()
    with ServerProcess() as server:
        server.first_user().close()
        server.stop()
        times = []
        for _ in range(args.runs):
            times.append(ready(server))
            server.stop()
        ready(server)
        client = server.sign_in()
        plugins = client.get("/api/plugins").json()
        client.close()
        server.stop()
        ready(server)
        time.sleep(args.idle)
        assert server.process is not None
        memory = rss_mb(server.process.pid)
        # After a sign-in too: the 256 MiB of the key derivation must go back.
        client = server.sign_in()
        client.close()
        time.sleep(min(args.idle, 5.0))
        signed_in = rss_mb(server.process.pid)
    result = {
        "ready_s": round(statistics.median(times), 3),
        "ready_s_max": round(max(times), 3),
        "rss_mb": round(memory, 1),
        "rss_mb_signed_in": round(signed_in, 1),
        "plugins_ms": round(sum(p["import_ms"] + p["start_ms"] for p in plugins)),
        "plugins_running": sum(p["state"] == "running" for p in plugins),
        "bounds": {"ready_s": READY_S, "rss_mb": RSS_MB},
    }
    print(json.dumps(result))
    good = result["ready_s"] <= READY_S and memory <= RSS_MB and all(p["state"] == "running" for p in plugins)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
