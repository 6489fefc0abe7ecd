"""Installing, upgrading and removing through the real server, in a real environment, from wheels in a folder."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlcipher3 import dbapi2 as sqlite
from websockets.sync.client import connect

from tests.install.conftest import Catalog
from tests.support.plugin_venv import PluginVenv
from tests.support.plugin_wheels import plugin_wheel, wheel
from tests.support.server import PASSWORD, wait_until


def _states(catalog: Catalog, plugin_id: str) -> tuple[str, bool, str, bool]:
    row = catalog.row(plugin_id)
    assert row is not None
    return row["state"], row["enabled"], row["version"], row["restart_needed"]


def _answer(catalog: Catalog, name: str) -> bool:
    """Whether a tool of the plugin is offered now."""
    row = catalog.row(name)
    return row is not None and row["state"] == "running" and bool(row["contributes"]["tools"])


def test_a_plugin_is_installed_upgraded_uninstalled_and_purged(venv: PluginVenv, catalog: Catalog) -> None:
    """The whole life: off by default, live at once, a restart badge after an upgrade, data kept, then purged."""
    plugin_wheel(venv.wheels, "one", "1.0", requires=("dep-of-one>=1", "skald-core"), tables=True)
    wheel(venv.wheels, "dep-of-one", "1.0", {"dep_of_one.py": "X = 1"})
    plan = catalog.plan(act="install", requirement="Skald_Plugin.One")
    assert plan["plan"]["changes"] == [
        {"name": "skald-plugin-one", "from": None, "to": "1.0"},
        {"name": "dep-of-one", "from": None, "to": "1.0"},
    ]
    assert plan["plan"]["contributes"]["added"] == {"tools": ["one_version"]}
    assert plan["plan"]["restart_needed"] is False
    assert venv.version_of("skald-plugin-one") is None, "a plan changes nothing"
    done = catalog.ended(catalog.start(plan).json())
    assert (done["state"], done["step"]) == ("done", "done"), done
    assert _states(catalog, "one") == ("disabled", False, "1.0", False)
    assert catalog.client.post("/api/plugins/one/enable").json()["state"] == "running"
    assert _answer(catalog, "one")

    plugin_wheel(venv.wheels, "one", "2.0", requires=("skald-core",), tables=True, capabilities=("files.read",))
    plan = catalog.plan(act="upgrade", plugin="one")
    assert {(c["name"], c["from"], c["to"]) for c in plan["plan"]["changes"]} == {
        ("skald-plugin-one", "1.0", "2.0"),
        ("dep-of-one", "1.0", None),
    }
    assert plan["plan"]["capabilities"] == {"added": ["files.read"], "removed": []}
    assert plan["plan"]["restart_needed"] is True
    assert catalog.ended(catalog.start(plan).json())["state"] == "done"
    row = catalog.row("one")
    assert row is not None
    assert (row["version"], row["running_version"], row["restart_needed"]) == ("2.0", "1.0", True)
    assert venv.version_of("dep-of-one") is None, "what only came with the plugin goes when nobody needs it"
    catalog.restart()
    assert _states(catalog, "one") == ("running", True, "2.0", False)

    assert catalog.do(act="uninstall", plugin="one")["state"] == "done"
    assert venv.version_of("skald-plugin-one") is None
    left = catalog.client.get("/api/plugins/remains").json()
    assert [entry["id"] for entry in left] == ["one"]
    assert {t["name"] for t in left[0]["data"]["tables"]} == {"one_notes", "one_mine"}
    catalog.restart()
    assert catalog.row("one") is None

    plan = catalog.plan(act="purge", plugin="one")
    assert {t["name"] for t in plan["plan"]["data"]["tables"]} == {"one_notes", "one_mine"}
    assert catalog.ended(catalog.start(plan).json())["state"] == "done"
    assert catalog.client.get("/api/plugins/remains").json() == []
    catalog.close()
    for path in (catalog.server.data / "database").glob("*.db"):
        connection = sqlite.connect(str(path))
        assert not connection.execute("SELECT name FROM sqlite_master WHERE name LIKE 'one\\_%' ESCAPE '\\'").fetchall()
        assert not connection.execute("SELECT * FROM schema_ledger WHERE component LIKE 'plugin:one:%'").fetchall()
        connection.close()


def test_what_cannot_be_carried_out_changes_nothing(venv: PluginVenv, catalog: Catalog) -> None:
    """A conflict with the kernel, no plugin, a wrong requirement, an address among the needs, an old API: told, not done."""
    before = venv.tree()
    wheel(venv.wheels, "msgspec", "0.0.1", {"msgspec_old.py": ""})
    plugin_wheel(venv.wheels, "mover", requires=("msgspec<0.1",))
    plugin_wheel(venv.wheels, "direct", requires=("evil @ file:///nowhere/evil.tar.gz",))
    plugin_wheel(venv.wheels, "futuristic", api=">=99")
    wheel(venv.wheels, "library", "1.0", {"library.py": ""})
    expected = {
        "skald-plugin-mover": "msgspec<0.1",
        "skald-plugin-direct": "evil @ file:",
        "skald-plugin-futuristic": ">=99",
        "library": "no Skald plugin",
        "nobody-wrote-this": "nobody-wrote-this",
    }
    for requirement, words in expected.items():
        plan = catalog.plan(act="install", requirement=requirement)
        assert plan["state"] == "failed", requirement
        assert words in plan["error"]["message"], plan["error"]
        assert catalog.start(plan).json()["code"] == "plan_stale"
    for requirement, code in (
        ("https://example.org/x.whl", "bad_requirement"),
        ("skald-core", "plugin_is_kernel"),
        ("Msgspec", "plugin_is_kernel"),
    ):
        refused = catalog.ask(act="install", requirement=requirement)
        assert refused.json()["code"] == code, refused.text
    assert catalog.ask(act="uninstall", plugin="nobody").status_code == 404
    assert catalog.ask(act="purge", plugin="nobody").json()["code"] == "nothing_to_purge"
    for odd in ("", ".", "..", "../database", "one/../../database", "ONE", "one\n", "/etc"):
        assert catalog.ask(act="purge", plugin=odd).status_code == 404, odd
    assert catalog.ask(act="restore").json()["code"] == "nothing_to_restore"
    assert venv.tree() == before


def test_a_version_that_does_not_start_is_never_switched_to(venv: PluginVenv, catalog: Catalog) -> None:
    """The health check runs before the switch: the running version stays, the reason is told, nothing is retried."""
    plugin_wheel(venv.wheels, "one", "1.0")
    assert catalog.do(act="install", requirement="skald-plugin-one")["state"] == "done"
    catalog.client.post("/api/plugins/one/enable").raise_for_status()
    before = venv.tree()
    plugin_wheel(venv.wheels, "one", "2.0", source="import a_module_nobody_has")
    failed = catalog.do(act="upgrade", plugin="one")
    assert (failed["state"], failed["step"]) == ("failed", "check")
    assert "a_module_nobody_has" in failed["error"]["message"]
    assert venv.tree() == before
    assert _states(catalog, "one") == ("running", True, "1.0", False)
    plugin_wheel(venv.wheels, "one", "3.0", source="import os; os._exit(7)")
    failed = catalog.do(act="upgrade", plugin="one")
    assert failed["state"] == "failed"
    count = len(catalog.jobs())
    catalog.restart()
    assert len(catalog.jobs()) == count, "a failure is remembered and never tried again by itself"
    assert _states(catalog, "one") == ("running", True, "1.0", False)
    assert venv.tree() == before


def test_other_plugins_must_still_start_when_a_shared_package_moves(venv: PluginVenv, catalog: Catalog) -> None:
    """A new plugin that moves a shared package so that an enabled one breaks is not switched to."""
    wheel(venv.wheels, "shared", "1.0", {"shared.py": "GOOD = 1"})
    plugin_wheel(venv.wheels, "one", "1.0", requires=("shared",), source="from shared import GOOD")
    assert catalog.do(act="install", requirement="skald-plugin-one")["state"] == "done"
    assert catalog.client.post("/api/plugins/one/enable").json()["state"] == "running"
    wheel(venv.wheels, "shared", "2.0", {"shared.py": "OTHER = 1"})
    plugin_wheel(venv.wheels, "two", "1.0", requires=("shared>=2",), source="from shared import OTHER")
    plan = catalog.plan(act="install", requirement="skald-plugin-two")
    assert {"name": "shared", "from": "1.0", "to": "2.0"} in plan["plan"]["changes"]
    failed = catalog.ended(catalog.start(plan).json())
    assert failed["state"] == "failed"
    assert "one" in failed["error"]["message"]
    assert venv.version_of("shared") == "1.0"
    plugin_wheel(venv.wheels, "strict", "1.0", requires=("shared<2",))
    assert catalog.do(act="install", requirement="skald-plugin-strict")["state"] == "done"
    plan = catalog.plan(act="install", requirement="skald-plugin-two")
    assert plan["state"] == "failed", "the needs of installed plugins are solved together with the new one's"
    assert "shared" in plan["error"]["message"]


def test_who_may_and_how(venv: PluginVenv, catalog: Catalog) -> None:
    """Only plugin.manage, only with the password, through the sign-in limiter; a plan is carried out once; all is audited."""
    plugin_wheel(venv.wheels, "one", "1.0")
    member = {"username": "bo", "password": "a long password for bo", "role": "member", "encrypted": False}
    catalog.client.post("/api/users", json=member).raise_for_status()
    stranger = catalog.server.sign_in("bo", member["password"])
    for method, path in (
        ("GET", "/api/plugins/available"),
        ("GET", "/api/plugins/remains"),
        ("GET", "/api/plugins/jobs"),
        ("POST", "/api/plugins/plans"),
        ("POST", "/api/plugins/jobs"),
    ):
        body = {"act": "install", "requirement": "skald-plugin-one", "plan": "x", "password": "x"}
        assert stranger.request(method, path, json=body if method == "POST" else None).status_code == 403, path
    stranger.close()
    plan = catalog.plan(act="install", requirement="skald-plugin-one")
    wrong = catalog.start(plan, "not the password")
    assert (wrong.status_code, wrong.json()["code"]) == (403, "bad_password")
    assert catalog.ended(catalog.start(plan).json())["state"] == "done"
    assert catalog.start(plan).json()["code"] == "plan_stale"
    assert catalog.client.post("/api/plugins/jobs", json={"plan": "nobody", "password": PASSWORD}).status_code == 404
    for _ in range(8):
        last = catalog.start(plan, "not the password")
    assert last.status_code == 429
    catalog.close()
    connection = sqlite.connect(str(catalog.server.data / "database" / "system.db"))
    rows = connection.execute("SELECT action, target, detail FROM audit_log WHERE action LIKE 'plugin.%'").fetchall()
    connection.close()
    assert ("plugin.install", "one") in {(row[0], row[1]) for row in rows}
    assert any("skald-plugin-one - -> 1.0" in row[2] for row in rows)


def test_progress_reaches_administrators_live(venv: PluginVenv, catalog: Catalog) -> None:
    """Every step and line arrives as plugin_job on an administrator's socket, in their language; a member gets none."""
    plugin_wheel(venv.wheels, "one", "1.0")
    catalog.client.put("/api/auth/profile", json={"locale": "it"}).raise_for_status()
    url = "ws" + catalog.server.url.removeprefix("http") + "/api/ws"
    cookie = f"skald_session={catalog.client.cookies['skald_session']}"
    with connect(url, additional_headers={"Cookie": cookie}, proxy=None, max_size=None) as socket:
        plan = catalog.plan(act="install", requirement="skald-plugin-one")
        job = catalog.start(plan).json()
        steps: list[str] = []
        while True:
            event = json.loads(socket.recv(timeout=60))
            if event["type"] != "plugin_job" or event["job"]["id"] != job["id"]:
                continue
            steps.append(event["job"]["step"])
            if event["job"]["state"] != "running":
                break
    assert list(dict.fromkeys(steps)) == ["check", "switch", "start", "done"]
    assert event["job"]["log"][-1] == "Fatto."


def test_two_jobs_do_not_run_at_once(venv: PluginVenv, catalog: Catalog) -> None:
    """The second is refused while the first runs; so is one while another process holds the environment."""
    go_on = venv.folder / "go-on"
    waiting = f"import pathlib, time\nwhile not pathlib.Path({str(go_on)!r}).exists(): time.sleep(0.05)"
    plugin_wheel(venv.wheels, "one", "1.0", source=waiting)
    plugin_wheel(venv.wheels, "two", "1.0")
    first = catalog.plan(act="install", requirement="skald-plugin-one")
    second = catalog.plan(act="install", requirement="skald-plugin-two")
    hold = "from skald_core.plugins.install.switch import environment_lock\nwith environment_lock():\n print(flush=True); input()"
    holder = subprocess.Popen(
        [str(venv.python), "-c", hold], env=venv.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    assert catalog.start(first).json()["code"] == "job_running"
    holder.communicate("\n")
    running = catalog.start(first)
    assert running.status_code == 202, running.text
    assert catalog.start(second).json()["code"] == "job_running"
    go_on.touch()
    assert catalog.ended(running.json())["state"] == "done"
    assert catalog.start(second).json()["code"] == "plan_stale", "what is installed has changed since it was planned"


def test_a_file_with_another_hash_is_refused(venv: PluginVenv, open_catalog: Callable[[PluginVenv], Catalog]) -> None:
    """The index's hash rules: a wheel that differs is not installed, a listed one is, an older or blocked one is not."""
    good = plugin_wheel(venv.wheels, "one", "1.1")
    plugin_wheel(venv.wheels, "two", "1.0")
    digest = hashlib.sha256(good.read_bytes()).hexdigest()
    entries = [
        {
            "name": "skald-plugin-one",
            "verified": True,
            "min_good_version": "1.1",
            "versions": [{"version": "1.0", "sha256": ["0" * 64]}, {"version": "1.1", "sha256": [digest]}],
        },
        {"name": "skald-plugin-two", "versions": [{"version": "1.0", "sha256": ["0" * 64]}]},
        {"name": "Bad_One", "blocked": "it deletes homes"},
    ]
    index = venv.folder.parent / "index.json"
    index.write_text(json.dumps({"schema": 1, "title": "Ours", "plugins": entries}))
    venv.extra["SKALD_PLUGIN_INDEX"] = str(index)
    catalog = open_catalog(venv)
    listed = catalog.client.get("/api/plugins/available").json()
    assert [item["name"] for item in listed["items"]] == ["bad-one", "skald-plugin-one", "skald-plugin-two"]
    assert catalog.ask(act="install", requirement="bad.one").json()["code"] == "plugin_blocked_by_index"
    assert catalog.ask(act="install", requirement="skald-plugin-one==1.0").json()["code"] == "plugin_not_reviewed"
    tampered = catalog.plan(act="install", requirement="skald-plugin-two")
    assert tampered["state"] == "failed"
    assert "hash" in tampered["error"]["message"]
    plan = catalog.plan(act="install", requirement="skald-plugin-one")
    assert plan["plan"]["hashes"] is True
    assert plan["plan"]["warnings"] == []
    assert catalog.ended(catalog.start(plan).json())["state"] == "done"
    index.write_text("broken")
    broken = catalog.client.get("/api/plugins/available").json()
    assert broken["index"]["error"]
    assert [i["installed"] for i in broken["items"] if i["name"] == "skald-plugin-one"] == ["1.1"]


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_an_end_during_the_check_leaves_nothing_behind(venv: PluginVenv, catalog: Catalog, end: str) -> None:
    """SIGKILL or SIGTERM of the server while the new set is being checked: it is told, and nothing was changed."""
    plugin_wheel(venv.wheels, "slow", "1.0", source="import time\ntime.sleep(20)")
    before = venv.tree()
    plan = catalog.plan(act="install", requirement="skald-plugin-slow")
    job = catalog.start(plan).json()

    def checking() -> bool:
        lines = catalog.client.get(f"/api/plugins/jobs/{job['id']}").json()["log"]
        return any("slow" in line for line in lines)

    wait_until(checking, "the health check to begin")
    catalog.client.close()
    getattr(catalog.server, end)()
    catalog.server.start()
    catalog.client = catalog.server.sign_in()
    told = catalog.client.get(f"/api/plugins/jobs/{job['id']}").json()
    assert told["state"] == "failed"
    assert "Nothing was changed" in told["error"]["message"]
    assert venv.tree() == before
    assert catalog.row("slow") is None
    plugin_wheel(venv.wheels, "one", "1.0")
    assert catalog.do(act="install", requirement="skald-plugin-one")["state"] == "done"


def test_a_failure_after_the_switch_is_rolled_back(venv: PluginVenv, catalog: Catalog) -> None:
    """plugins.lock cannot be written: the files are put back, the catalog shows the old set, the reason is told."""
    plugin_wheel(venv.wheels, "one", "1.0")
    before = venv.tree()
    obstacle = catalog.server.data / "plugins.lock.new"
    obstacle.mkdir()
    failed = catalog.do(act="install", requirement="skald-plugin-one")
    assert (failed["state"], failed["step"]) == ("rolled_back", "rollback")
    assert "plugins.lock" in failed["error"]["message"]
    assert venv.tree() == before
    assert catalog.row("one") is None
    obstacle.rmdir()
    assert catalog.do(act="install", requirement="skald-plugin-one")["state"] == "done"
    obstacle.mkdir()
    failed = catalog.do(act="uninstall", plugin="one")
    assert failed["state"] == "rolled_back"
    assert venv.version_of("skald-plugin-one") == "1.0"
    assert _states(catalog, "one")[:3] == ("disabled", False, "1.0")


def test_advice_where_the_environment_is_not_changed_from_here(
    venv: PluginVenv, open_catalog: Callable[[PluginVenv], Catalog]
) -> None:
    """The page says why and shows the command; the command works; a purge, which changes no package, is still done."""
    plugin_wheel(venv.wheels, "one", "1.0", tables=True)
    venv.extra["SKALD_PLUGIN_INSTALL"] = "advise"
    catalog = open_catalog(venv)
    assert "SKALD_PLUGIN_INSTALL" in catalog.client.get("/api/plugins/available").json()["advice"]["reason"]
    plan = catalog.plan(act="install", requirement="skald-plugin-one")
    assert plan["command"] == f"{venv.python} -m pip install --only-binary :all: skald-plugin-one==1.0"
    refused = catalog.start(plan)
    assert refused.json()["code"] == "advice_only"
    assert "skald-plugin-one==1.0" in refused.json()["detail"]
    venv.run("-m", "pip", "install", "--find-links", str(venv.wheels), *plan["command"].split()[4:])
    catalog.restart()
    assert catalog.client.post("/api/plugins/one/enable").json()["state"] == "running"
    assert catalog.plan(act="uninstall", plugin="one")["command"].endswith("uninstall --yes skald-plugin-one")
    assert catalog.do(act="purge", plugin="one")["state"] == "done"
    assert _states(catalog, "one")[:2] == ("disabled", False)


def test_a_rebuilt_environment_gets_its_plugins_back(
    venv: PluginVenv, tmp_path: Path, open_catalog: Callable[[PluginVenv], Catalog]
) -> None:
    """plugins.lock and the kept wheels outlive the environment: the start says what is missing, restore puts it back."""
    plugin_wheel(venv.wheels, "one", "1.0", requires=("dep-of-one",))
    wheel(venv.wheels, "dep-of-one", "1.0", {"dep_of_one.py": ""})
    catalog = open_catalog(venv)
    assert catalog.do(act="install", requirement="skald-plugin-one")["state"] == "done"
    catalog.client.post("/api/plugins/one/enable").raise_for_status()
    lock = json.loads((catalog.server.data / "plugins.lock").read_text())
    assert [(p["name"], p["version"], len(p["sha256"])) for p in lock["plugins"]] == [("skald-plugin-one", "1.0", 64)]
    assert [p["name"] for p in lock["packages"]] == ["dep-of-one"]
    catalog.close()

    rebuilt = PluginVenv(tmp_path / "rebuilt", tmp_path / "no-wheels")
    wheel(rebuilt.wheels, "dep-of-one", "2.0", {"dep_of_one.py": ""})
    again = catalog.server
    again._python, again._env = str(rebuilt.python), rebuilt.settings
    again.start()
    catalog.client, catalog.venv = again.sign_in(), rebuilt
    wait_until(lambda: any("plugins.lock names skald-plugin-one 1.0" in line for line in again.output), "the log line")
    assert catalog.client.get("/api/plugins/available").json()["missing"] == [
        {"id": "one", "name": "skald-plugin-one", "version": "1.0"}
    ]
    plugin_wheel(rebuilt.wheels, "other", "1.0")
    assert catalog.do(act="install", requirement="skald-plugin-other")["state"] == "done"
    assert catalog.client.get("/api/plugins/available").json()["missing"], "another job does not forget what is missing"
    restored = catalog.do(act="restore")
    assert restored["state"] == "done", restored
    assert rebuilt.version_of("skald-plugin-one") == "1.0"
    assert rebuilt.version_of("dep-of-one") == "1.0", "the locked version, though the folder has a newer one"
    catalog.restart()
    assert _states(catalog, "one")[:2] == ("running", True)


def test_a_locked_owner_is_purged_when_they_sign_in(venv: PluginVenv, catalog: Catalog) -> None:
    """Encrypted data cannot be reached at the purge; it goes at the next sign-in, before any plugin sees it."""
    plugin_wheel(venv.wheels, "one", "1.0", tables=True)
    assert catalog.do(act="install", requirement="skald-plugin-one")["state"] == "done"
    catalog.client.post("/api/plugins/one/enable").raise_for_status()
    person = {"username": "cy", "password": "a long password for cy", "role": "member", "encrypted": True}
    catalog.client.post("/api/users", json=person).raise_for_status()
    catalog.server.sign_in("cy", person["password"]).close()
    catalog.restart()
    plan = catalog.plan(act="purge", plugin="one")
    rows = {t["name"]: t["rows"] for t in plan["plan"]["data"]["tables"]}
    assert rows == {"one_notes": 0, "one_mine": None}
    assert len(plan["plan"]["warnings"]) == 3
    assert catalog.ended(catalog.start(plan).json())["state"] == "done"
    assert catalog.do(act="uninstall", plugin="one")["state"] == "done"
    probe = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from skald_core.runtime.app import Skald\nfrom skald_core.runtime.settings import Settings\n"
        "async def main():\n"
        "    app = await Skald.start(Settings(data_dir=Path(sys.argv[1])))\n"
        "    user, _ = await app.sign_in('cy', sys.argv[2], address='127.0.0.1')\n"
        "    names = await app.owner_db(user.id).read(lambda c: [r[0] for r in c.execute('SELECT name FROM sqlite_master')])\n"
        "    print([n for n in names if n.startswith('one_')])\n"
        "    await app.stop()\n"
        "asyncio.run(main())\n"
    )
    catalog.close()
    assert venv.run("-c", probe, str(catalog.server.data), person["password"]).stdout == "[]\n"
