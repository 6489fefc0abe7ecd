"""``skald plugin install|upgrade|uninstall|purge|lock``: the same engine without a server, or through one."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlcipher3 import dbapi2 as sqlite

from tests.install.conftest import Catalog
from tests.support.plugin_venv import PluginVenv
from tests.support.plugin_wheels import plugin_wheel, wheel
from tests.support.server import PASSWORD, USERNAME

DYING = str(Path(__file__).parent / "dying_command.py")


class Skald:
    """The command in a virtual environment, with a data directory of its own."""

    def __init__(self, venv: PluginVenv) -> None:
        self.venv = venv
        self.data = venv.folder.parent / "data"

    def __call__(
        self, act: str, *args: str, at: str = "", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        program = [DYING, at] if at else ["-m", "skald_core"]
        return self.venv.run(*program, "plugin", act, "--data", str(self.data), *args, env=env, check=False)

    def jobs(self) -> list[tuple[str, str, str]]:
        connection = sqlite.connect(str(self.data / "database" / "system.db"))
        rows = connection.execute(
            "SELECT act, state, error FROM plugin_jobs WHERE act<>'plan' ORDER BY created_at"
        ).fetchall()
        connection.close()
        return rows


@pytest.fixture
def skald(venv: PluginVenv) -> Skald:
    return Skald(venv)


def test_without_a_server(venv: PluginVenv, skald: Skald) -> None:
    """Installs, shows the difference, asks unless told not to, locks, upgrades, uninstalls, purges; no plugin is imported."""
    plugin_wheel(venv.wheels, "one", "1.0", tables=True)
    asked = skald("install", "skald-plugin-one")
    assert asked.returncode == 2, "there is no terminal to ask in"
    assert "skald-plugin-one: not installed → 1.0" in asked.stdout
    assert venv.version_of("skald-plugin-one") is None
    installed = skald("install", "skald-plugin-one", "--yes")
    assert installed.returncode == 0, installed.stderr
    assert "skald plugin enable one" in installed.stderr
    listed = json.loads(skald("list", "--json").stdout)
    assert [(row["id"], row["enabled"]) for row in listed] == [("one", False)]
    locked = skald("lock")
    assert locked.returncode == 0, locked.stderr
    assert json.loads(locked.stdout)["plugins"][0]["name"] == "skald-plugin-one"
    package = venv.site / "skald_plugin_one" / "__init__.py"
    package.write_text("raise SystemExit('imported')")
    plugin_wheel(venv.wheels, "one", "2.0")
    assert skald("upgrade", "one", "--yes").returncode == 0
    assert venv.version_of("skald-plugin-one") == "2.0"
    package.write_text("raise SystemExit('imported')")
    gone = skald("uninstall", "one", "--yes")
    assert gone.returncode == 0, gone.stderr
    assert venv.version_of("skald-plugin-one") is None
    assert not package.parent.exists()
    assert skald("purge", "one", "--yes").returncode == 1, "it was never started, so nothing is stored"
    assert [(act, state) for act, state, _ in skald.jobs()] == [
        ("install", "done"),
        ("upgrade", "done"),
        ("uninstall", "done"),
    ]


REFUSED: tuple[tuple[tuple[str, ...], int, str], ...] = (
    (("install",), 2, "--from-lock"),
    (("install", "--from-lock", "--yes"), 1, "plugins.lock"),
    (("install", "-e.", "--yes"), 2, "unrecognized"),
    (("install", "git+https://example.org/x", "--yes"), 1, "cannot be installed from here"),
    (("install", "skald-core", "--yes"), 1, "belongs to Skald"),
    (("install", "Blocked.One", "--yes"), 1, "SKALD_PLUGIN_BLOCK"),
    (("install", "nobody-wrote-this", "--yes"), 1, "nobody-wrote-this"),
    (("upgrade", "nobody-wrote-this", "--yes"), 1, "not installed"),
    (("uninstall", "nobody", "--yes"), 1, "nobody"),
)


def test_refusals_are_one_sentence(skald: Skald) -> None:
    """No way around the lists by the command line; every refusal says why, on standard error."""
    for args, status, words in REFUSED:
        refused = skald(*args, env={"SKALD_PLUGIN_BLOCK": "blocked-one"})
        assert refused.returncode == status, (args, refused.stderr)
        assert words in refused.stderr, args
        assert "Traceback" not in refused.stderr


def test_a_kill_or_a_full_disk_in_the_middle_of_the_switch(venv: PluginVenv, skald: Skald) -> None:
    """Killed while files move: the next command puts everything back and says so. A disk that fills does so at once.
    Killed after the last move: the next command completes the job."""
    plugin_wheel(venv.wheels, "one", "1.0")
    assert skald("install", "skald-plugin-one", "--yes").returncode == 0
    before = venv.tree()
    plugin_wheel(venv.wheels, "one", "2.0")
    for point in ("move:3", "move:8"):
        assert skald("upgrade", "one", "--yes", at=point).returncode == -signal.SIGKILL
        assert venv.tree() != before
        skald("uninstall", "nobody")
        assert venv.tree() == before, point
        assert skald.jobs()[-1][:2] == ("upgrade", "rolled_back")
    for point in ("full:2", "full:7"):
        failed = skald("upgrade", "one", "--yes", at=point)
        assert failed.returncode == 1
        assert "disk" in failed.stderr
        assert venv.tree() == before, point
    assert skald("upgrade", "one", "--yes", at="stop:4").returncode == 130
    skald("uninstall", "nobody")
    assert skald.jobs()[-1][:2] == ("upgrade", "done"), (
        "files are never left half moved by a stop that can wait for them"
    )
    assert venv.version_of("skald-plugin-one") == "2.0"
    plugin_wheel(venv.wheels, "one", "3.0")
    assert skald("upgrade", "one", "--yes", at="switched").returncode == -signal.SIGKILL
    assert venv.version_of("skald-plugin-one") == "3.0"
    skald("uninstall", "nobody")
    assert skald.jobs()[-1][:2] == ("upgrade", "done")
    assert json.loads((skald.data / "plugins.lock").read_text())["plugins"][0]["version"] == "3.0"
    assert not list((venv.folder / ".skald-plugins").glob("j*/*"))


def test_a_kill_in_the_middle_of_a_purge(venv: PluginVenv, skald: Skald) -> None:
    """What was removed cannot come back, so the next command does the rest and says so."""
    plugin_wheel(venv.wheels, "one", "1.0")
    assert skald("install", "skald-plugin-one", "--yes").returncode == 0
    kept = skald.data / "plugins" / "one" / "notes.txt"
    kept.parent.mkdir(parents=True)
    kept.write_text("written by the plugin")
    assert skald("uninstall", "one", "--yes").returncode == 0
    assert kept.exists(), "uninstalling touches no data"
    assert "bytes of files: 21" in skald("purge", "one").stdout
    assert skald("purge", "one", "--yes", at="purged").returncode == -signal.SIGKILL
    assert kept.exists()
    skald("uninstall", "nobody")
    assert not kept.parent.exists()
    assert skald.jobs()[-1][:2] == ("purge", "done")


def test_a_server_recovers_before_it_looks_for_plugins(
    venv: PluginVenv, skald: Skald, open_catalog: Callable[[PluginVenv], Catalog]
) -> None:
    """The half-switched environment is put back before the server imports anything from it."""
    plugin_wheel(venv.wheels, "one", "1.0")
    assert skald("install", "skald-plugin-one", "--yes").returncode == 0
    assert skald("enable", "one").returncode == 0
    before = venv.tree()
    plugin_wheel(venv.wheels, "one", "2.0")
    assert skald("upgrade", "one", "--yes", at="move:4").returncode == -signal.SIGKILL
    catalog = open_catalog(venv)
    row = catalog.row("one")
    assert row is not None
    assert (row["state"], row["version"]) == ("running", "1.0")
    assert venv.tree() == before
    job = next(job for job in catalog.jobs() if job["act"] == "upgrade")
    assert job["state"] == "rolled_back"
    assert "put back" in job["error"]["message"]
    assert any("was interrupted" in line for line in catalog.server.output)


def test_through_a_running_server(
    venv: PluginVenv, skald: Skald, open_catalog: Callable[[PluginVenv], Catalog]
) -> None:
    """With a server the command is its client: signs in, plans, proves the password, follows; the plugin is there at once."""
    plugin_wheel(venv.wheels, "one", "1.0")
    catalog = open_catalog(venv)
    env = {
        "SKALD_URL": catalog.server.url,
        "SKALD_USER": USERNAME,
        "SKALD_PASSWORD": PASSWORD,
        "XDG_CONFIG_HOME": str(venv.folder / "config"),
    }
    done = skald("install", "skald-plugin-one", "--yes", env=env)
    assert done.returncode == 0, done.stderr
    row = catalog.row("one")
    assert row is not None
    assert (row["state"], row["version"]) == ("disabled", "1.0")
    refused = skald("install", "skald-plugin-one", "--yes", env=env)
    assert refused.returncode == 1
    assert "installed already" in refused.stderr
    wrong = skald("uninstall", "one", "--yes", env=env | {"SKALD_PASSWORD": "not the password"})
    assert wrong.returncode == 4
    assert skald("uninstall", "one", "--yes", env=env).returncode == 0
    assert venv.version_of("skald-plugin-one") is None


def test_put_back_from_the_lock(venv: PluginVenv, skald: Skald, tmp_path: Path) -> None:
    """`install --from-lock` in a new environment needs neither a server nor the wheels' first source."""
    plugin_wheel(venv.wheels, "one", "1.0", requires=("dep-of-one",))
    wheel(venv.wheels, "dep-of-one", "1.0", {"dep_of_one.py": ""})
    assert skald("install", "skald-plugin-one", "--yes").returncode == 0
    rebuilt = Skald(PluginVenv(tmp_path / "rebuilt", tmp_path / "no-wheels"))
    rebuilt.data = skald.data
    done = rebuilt("install", "--from-lock", "--yes")
    assert done.returncode == 0, done.stderr
    assert rebuilt.venv.version_of("skald-plugin-one") == "1.0"
    assert rebuilt.venv.version_of("dep-of-one") == "1.0"
    changed = next((rebuilt.data / "plugin-wheels").glob("dep*"))
    third = Skald(PluginVenv(tmp_path / "third", tmp_path / "none"))
    third.data = skald.data
    changed.unlink()
    wheel(third.data / "plugin-wheels", "dep-of-one", "1.0", {"dep_of_one.py": "evil = 1"})
    tampered = third("install", "--from-lock", "--yes")
    assert tampered.returncode == 1
    assert "hash" in tampered.stderr
    assert third.venv.version_of("skald-plugin-one") is None


def test_a_lock_that_cannot_be_read_is_not_guessed_at(venv: PluginVenv, skald: Skald) -> None:
    """Nothing is installed over a damaged plugins.lock, which would forget plugins; writing it anew mends it."""
    plugin_wheel(venv.wheels, "one", "1.0")
    assert skald("lock").returncode == 0
    (skald.data / "plugins.lock").write_text("{ half a fi")
    refused = skald("install", "skald-plugin-one", "--yes")
    assert refused.returncode == 1
    assert "skald plugin lock" in refused.stderr
    assert skald("lock").returncode == 0
    assert skald("install", "skald-plugin-one", "--yes").returncode == 0
