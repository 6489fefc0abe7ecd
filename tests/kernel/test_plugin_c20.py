"""Case C20: bad plugins, installed as real distributions, in a real server process. It starts, the others work, each shows its
reason and can be disabled, and nothing is tried again by itself."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from tests.support.installed import install
from tests.support.server import ROOT, ServerProcess

GOOD = """
from pathlib import Path
from litestar import get
from skald_core.api import hookimpl

@get("/hello")
async def hello() -> str:
    return "hello"

@hookimpl
def skald_routes():
    return [hello]
"""
GOOD_MANIFEST = '[contributes]\nroutes = true\nhooks = ["skald_routes"]\n'

COUNTED = "import os\nwith open(os.environ['IMPORTS'], 'a') as file: file.write(__name__ + '\\n')\n"

BAD = {
    "syntax": ("def broken(:", "import", "invalid syntax"),
    "exits": (COUNTED + "import sys; sys.exit('no thanks')", "import", "no thanks"),
    "needs": (COUNTED + "import a_module_nobody_has", "import", "a_module_nobody_has"),
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    install(folder, "good", GOOD, manifest=GOOD_MANIFEST)
    for name, (source, _, _) in BAD.items():
        install(folder, name, source)
    install(folder, "newer", "raise RuntimeError('imported')", api=">=2,<3")
    install(folder, "twice", GOOD, distribution="skald-twice")
    install(folder, "twice", GOOD, distribution="skald-plugin-twice")
    install(folder, "huge", GOOD, manifest=f"# {'x' * 10_000_000}\n")
    return folder


def _server(tmp_path: Path, site: Path, **env: str) -> ServerProcess:
    return ServerProcess(
        tmp_path / "data",
        env={"PYTHONPATH": str(site), "SKALD_STRICT_PLUGINS": "0", "IMPORTS": str(tmp_path / "imports"), **env},
    )


def _rows(client: httpx.Client) -> dict[str, dict[str, Any]]:
    answer = client.get("/api/plugins")
    answer.raise_for_status()
    return {row["id"]: row for row in answer.json()}


def _listed(server: ServerProcess, site: Path, *options: str) -> str:
    """What ``skald plugin list`` prints."""
    return subprocess.run(
        [sys.executable, "-m", "skald_core", "plugin", "list", "--data", str(server.data), *options],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{site}"},
    ).stdout


def _enable(client: httpx.Client, plugin: str) -> dict[str, Any]:
    found: dict[str, Any] = client.post(f"/api/plugins/{plugin}/enable").json()
    return found


def test_bad_plugins_break_only_themselves(tmp_path: Path, site: Path) -> None:
    """A syntax error, one that exits, a missing dependency, a newer API, two with one id, a manifest of ten megabytes."""
    with _server(tmp_path, site) as server:
        client = server.first_user(encrypted=False)
        assert _enable(client, "good")["state"] == "running"
        for name, (_, phase, words) in BAD.items():
            row = _enable(client, name)
            assert (row["state"], row["error"]["phase"]) == ("failed", phase), row
            assert words in row["error"]["message"]
            assert row["error"]["traceback"]
        row = _enable(client, "newer")
        assert (row["state"], row["error"]["phase"]) == ("incompatible", "compatibility")
        assert ">=2,<3" in row["error"]["message"]
        for name, words in (("twice", "skald-twice"), ("huge", "at most")):
            assert client.post(f"/api/plugins/{name}/enable").json()["code"] == "plugin_broken"
            row = _rows(client)[name]
            assert (row["state"], row["error"]["phase"]) == ("failed", "manifest")
            assert words in row["error"]["message"]
        assert client.get("/api/plugin/good/hello").text == "hello"
        client.close()
    with _server(tmp_path, site) as server:  # enabled ones are tried once per start, and the server starts
        client = server.sign_in()
        rows = _rows(client)
        assert rows["good"]["state"] == "running"
        assert {name: rows[name]["state"] for name in BAD} == dict.fromkeys(BAD, "failed")
        before = (tmp_path / "imports").read_text()
        made = client.post("/api/conversations", json={"client_id": "c20"}).json()
        for number in range(3):
            body = {"client_id": f"m{number}", "content": "Hi"}
            client.post(f"/api/conversations/{made['id']}/messages", json=body).raise_for_status()
        assert client.get("/api/plugin/good/hello").text == "hello"
        assert (tmp_path / "imports").read_text() == before  # a turn imports nothing anew
        told = {line.split()[0]: line for line in _listed(server, site).splitlines() if not line.startswith(" ")}
        assert "enabled" in told["good"]
        for name, (_, phase, words) in BAD.items():  # with phase and message; the traceback where it is asked for
            assert "  failed  " in told[name]
            assert f" {phase}: " in told[name]
            assert words in told[name]
        assert "manifest: " in told["twice"]
        assert "Traceback (most recent call last)" not in _listed(server, site)
        assert "    ModuleNotFoundError: No module named 'a_module_nobody_has'" in _listed(server, site, "--verbose")
        for name in BAD:
            assert client.post(f"/api/plugins/{name}/disable").json()["state"] == "disabled"
        client.close()
        states = {row["id"]: (row["enabled"], row["state"]) for row in json.loads(_listed(server, site, "--json"))}
        assert states["good"] == (True, "running")
        assert states["syntax"] == (False, "disabled")


SLOW = (
    """
import os, time
while not os.path.exists(os.environ["RELEASE"]):
    time.sleep(0.05)
"""
    + GOOD
)  # stands for an import of thirty seconds: it takes as long as the test says


def test_a_slow_import_does_not_hold_up_the_server(tmp_path: Path, site: Path) -> None:
    """The server is there before the plugin is; the plugin says that it is slow, and runs when it is ready, unasked."""
    install(site, "aa-slow", SLOW, manifest=GOOD_MANIFEST)
    release = tmp_path / "release"
    release.touch()
    env = {"RELEASE": str(release), "SKALD_PLUGIN_PATIENCE": "0.5"}
    with _server(tmp_path, site, **env) as server:
        client = server.first_user(encrypted=False)
        for name in ("aa-slow", "good"):
            assert _enable(client, name)["state"] == "running"
        client.close()
    release.unlink()
    with _server(tmp_path, site, **env) as server:
        client = server.sign_in()
        rows = _rows(client)
        assert (rows["aa-slow"]["state"], rows["good"]["state"]) == ("starting", "running")
        assert any("went on without it" in problem for problem in rows["aa-slow"]["problems"])
        assert client.get("/api/plugin/aa-slow/hello").status_code == 404
        cookie = f"skald_session={client.cookies['skald_session']}"
        url = "ws" + server.url.removeprefix("http") + "/api/ws"
        with connect(url, additional_headers={"Cookie": cookie}, proxy=None) as socket:
            json.loads(socket.recv(timeout=20))
            release.touch()
            while json.loads(socket.recv(timeout=30)) != {"type": "plugins_changed", "id": "aa-slow"}:
                pass
        row = _rows(client)["aa-slow"]
        assert (row["state"], row["problems"]) == ("running", [])
        assert client.get("/api/plugin/aa-slow/hello").text == "hello"
        release.unlink()
        client.close()
    with _server(tmp_path, site, **env) as server:  # and it can be disabled while it is at it
        client = server.sign_in()
        assert _rows(client)["aa-slow"]["state"] == "starting"
        assert client.post("/api/plugins/aa-slow/disable").json()["state"] == "disabled"
        client.close()


def test_a_server_told_to_stop_while_it_starts_blames_nobody(tmp_path: Path, site: Path) -> None:
    """SIGTERM in the middle of an import ends the start in order; the plugin is loaded again at the next one."""
    install(site, "aa-slow", f"print('importing', flush=True){SLOW}", manifest=GOOD_MANIFEST)
    release = tmp_path / "release"
    release.touch()
    env = {"RELEASE": str(release)}
    with _server(tmp_path, site, **env) as server:
        client = server.first_user(encrypted=False)
        assert _enable(client, "aa-slow")["state"] == "running"
        client.close()
    release.unlink()
    starting = subprocess.Popen(
        [sys.executable, "-m", "skald_core", "serve", "--data", str(server.data), "--port", "0", "--no-input"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{site}", "SKALD_STRICT_PLUGINS": "0", **env},
    )
    assert starting.stdout is not None
    with starting.stdout:
        assert starting.stdout.readline() == "importing\n"
        starting.terminate()
        assert starting.wait(30) == 0
    release.touch()
    with _server(tmp_path, site, **env) as server:
        client = server.sign_in()
        assert _rows(client)["aa-slow"]["state"] == "running"
        client.close()


def test_a_plugin_that_kills_the_process_is_off_at_the_next_start(tmp_path: Path, site: Path) -> None:
    """One that ends the process at import, as a crash in native code would, keeps the server down once, not twice."""
    install(site, "killer", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    with _server(tmp_path, site) as server:
        client = server.first_user(encrypted=False)
        _enable(client, "good")
        with pytest.raises(httpx.TransportError):
            client.post("/api/plugins/killer/enable")
        assert server.process is not None
        assert server.process.wait(20) == -signal.SIGKILL
        client.close()
    with _server(tmp_path, site) as server:
        client = server.sign_in()
        rows = _rows(client)
        assert (rows["killer"]["state"], rows["killer"]["enabled"]) == ("disabled", False)
        assert "died while loading" in rows["killer"]["error"]["message"]
        assert rows["good"]["state"] == "running"
        client.close()
