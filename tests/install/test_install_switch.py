"""The switch: complete or not at all, whatever kills it, and only ever over files that are the plugin's own."""

import json
import signal
import subprocess
from pathlib import Path

from tests.support.plugin_venv import PluginVenv
from tests.support.plugin_wheels import plugin_wheel, wheel

PROGRAM = Path(__file__).parent / "switch_program.py"
RECOVER = (
    "from skald_core.plugins.install.switch import recover_at_start, outcomes_of, forget_outcome\n"
    "recover_at_start()\n"
    "for o in outcomes_of(None): print(o.job, o.result, o.data_dir); forget_outcome(o)\n"
)


def switch(venv: PluginVenv, path: Path, die_at: int = 0) -> subprocess.CompletedProcess[str]:
    return venv.run(str(PROGRAM), str(venv.folder / "data"), str(path), str(die_at), check=False)


def test_a_kill_after_any_move_is_undone_at_the_next_start(venv: PluginVenv) -> None:
    """SIGKILL after each rename of an upgrade in turn: recovering gives back exactly the files of before."""
    one = plugin_wheel(
        venv.wheels, "one", "1.0", extra={"skald_plugin_one/old/a.py": "A=1", "skald_plugin_one/b.txt": "b"}
    )
    two = plugin_wheel(
        venv.wheels, "one", "2.0", extra={"skald_plugin_one/new/a.py": "A=2", "skald_plugin_one/b.txt": "B"}
    )
    assert switch(venv, one).returncode == 0
    before = venv.tree()
    moves = 0
    while True:
        ended = switch(venv, two, die_at=moves + 1)
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        moves += 1
        assert venv.tree() != before
        assert venv.run("-c", RECOVER).stdout.split() == ["the-job", "rolled_back", str(venv.folder / "data")]
        assert venv.tree() == before
    assert moves > 10
    assert venv.version_of("skald-plugin-one") == "2.0"
    after = venv.tree()
    assert not any("old/a.py" in name for name in after)
    assert any("new/a.py" in name for name in after)
    assert not (venv.site / "skald_plugin_one" / "old").exists()


def test_a_kill_after_the_last_move_keeps_the_new_set(venv: PluginVenv) -> None:
    """When all files are in place there is nothing to undo: the next start is told that the switch was complete."""
    path = plugin_wheel(venv.wheels, "one")
    assert switch(venv, path, die_at=-1).returncode == -signal.SIGKILL
    assert venv.run("-c", RECOVER).stdout.split()[:2] == ["the-job", "switched"]
    assert venv.version_of("skald-plugin-one") == "1.0"
    assert venv.run("-c", RECOVER).stdout == ""


def test_rolling_back_twice_is_rolling_back_once(venv: PluginVenv) -> None:
    """It looks at what is there, so it may be stopped and begun again."""
    assert switch(venv, plugin_wheel(venv.wheels, "one", "1.0")).returncode == 0
    before = venv.tree()
    assert switch(venv, plugin_wheel(venv.wheels, "one", "2.0"), die_at=-2).returncode == 0
    assert venv.tree() == before


def test_what_was_installed_is_what_any_tool_expects(venv: PluginVenv) -> None:
    """The record lists every file with its hash, scripts run this environment's Python, and pip can remove it."""
    path = wheel(
        venv.wheels,
        "with-script",
        "1.0",
        {"with_script.py": "def main(): print('it runs')"},
        entry_points="[console_scripts]\nrun-it = with_script:main\n",
    )
    assert switch(venv, path).returncode == 0
    script = venv.folder / "bin" / "run-it"
    assert subprocess.run([str(script)], capture_output=True, text=True, env=venv.env).stdout == "it runs\n"
    assert (venv.site / "with_script-1.0.dist-info" / "INSTALLER").read_text() == "skald\n"
    assert "No broken requirements" in venv.run("-m", "pip", "check").stdout
    venv.run("-m", "pip", "uninstall", "--yes", "with-script")
    assert not script.exists()
    assert not (venv.site / "with_script.py").exists()


def test_files_of_others_are_never_overwritten(venv: PluginVenv) -> None:
    """A wheel that brings a file of the kernel, of another distribution, or through a link is refused, nothing touched."""
    assert switch(venv, wheel(venv.wheels, "first", "1.0", {"shared_name.py": "1"})).returncode == 0
    before = venv.tree()
    for files in ({"shared_name.py": "2"}, {"msgspec/extra.py": "evil"}, {"litestar/__init__.py": "evil"}):
        refused = switch(venv, wheel(venv.wheels, "second", "1.0", files))
        assert refused.returncode == 1
        assert "would" in refused.stderr
        assert venv.tree() == before
    clash = wheel(venv.wheels, "third", "1.0", {"x.py": ""}, entry_points="[console_scripts]\npython = x:main\n")
    assert switch(venv, clash).returncode == 1
    assert venv.tree() == before


def test_a_wheel_that_is_not_what_its_record_says_is_refused(venv: PluginVenv) -> None:
    """Every file is compared with the hash in the record while it is unpacked beside the environment."""
    refused = switch(venv, wheel(venv.wheels, "spoilt", "1.0", {"spoilt.py": "1"}, spoil_record=True))
    assert refused.returncode == 1
    assert "not what its record says" in refused.stderr
    assert venv.version_of("spoilt") is None


def test_a_path_out_of_the_environment_is_refused(venv: PluginVenv) -> None:
    """Neither a wheel's file nor a record's line reaches beyond the environment."""
    refused = switch(venv, wheel(venv.wheels, "climber", "1.0", {"../../../../../climbed.txt": "1"}))
    assert refused.returncode == 1
    assert not list(venv.folder.parent.rglob("climbed.txt"))
    assert switch(venv, wheel(venv.wheels, "victim", "1.0", {"victim.py": "1"})).returncode == 0
    precious = venv.folder.parent / "precious.txt"
    precious.write_text("keep me")
    record = venv.site / "victim-1.0.dist-info" / "RECORD"
    record.write_text(record.read_text() + "../../../../precious.txt,,\n")
    refused = switch(venv, wheel(venv.wheels, "victim", "2.0", {"victim.py": "2"}))
    assert refused.returncode == 1
    assert precious.read_text() == "keep me"
    assert venv.version_of("victim") == "1.0"


def test_an_editable_install_and_one_without_a_record_are_left_alone(venv: PluginVenv) -> None:
    """What a developer or another tool put there is refused with a sentence."""
    assert switch(venv, wheel(venv.wheels, "mine", "1.0", {"mine.py": "1"})).returncode == 0
    info = venv.site / "mine-1.0.dist-info"
    (info / "direct_url.json").write_text(json.dumps({"url": "file:///x", "dir_info": {"editable": True}}))
    newer = wheel(venv.wheels, "mine", "2.0", {"mine.py": "2"})
    assert "for development" in switch(venv, newer).stderr
    (info / "direct_url.json").unlink()
    (info / "RECORD").unlink()
    assert "record of its files" in switch(venv, newer).stderr
    assert venv.version_of("mine") == "1.0"


def test_a_second_change_of_the_environment_waits_its_turn(venv: PluginVenv) -> None:
    """The lock belongs to the environment: another server or command line is told that a job runs."""
    holder = (
        "import subprocess, sys\n"
        "from skald_core.plugins.install.switch import environment_lock\n"
        "with environment_lock():\n"
        "    print(subprocess.run([sys.executable, *sys.argv[1:]], capture_output=True, text=True).stderr)\n"
    )
    path = plugin_wheel(venv.wheels, "one")
    told = venv.run("-c", holder, str(PROGRAM), str(venv.folder / "data"), str(path), "0").stdout
    assert "being installed or removed" in told
    assert venv.version_of("skald-plugin-one") is None
