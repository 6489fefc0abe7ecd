"""`skald plugin dev`: installs, serves, restarts on changes, survives faults, ends on Ctrl-C."""

import contextlib
import os
import signal
import sys
from pathlib import Path

import httpx
import pytest

from skald_core.authoring.develop import install_command, installed_from
from skald_core.authoring.naming import names_for
from skald_core.authoring.project import read_project
from skald_core.authoring.scaffold import write_project
from tests.support.authors import AuthorEnvironment, DevProcess


def test_a_day_of_work(environment: AuthorEnvironment, workshop: Path) -> None:
    """The first start installs it; a change of code starts again, one of a page does not; a fault is shown and mended."""
    project = write_project(names_for("workday"), "page", workshop)
    package = project / "src" / "skald_plugin_workday"
    with DevProcess(environment, project, "--trace") as dev:
        url = dev.ready()
        assert any("Installing skald-plugin-workday in place" in line for line in dev.output)
        assert any(line.startswith("workday 0.1.0  running") for line in dev.output)
        assert any("pages: main" in line for line in dev.output)
        assert any("skald_web_pages workday" in line for line in dev.output)
        assert (project / ".skald").is_dir()

        at = len(dev.output)
        page = package / "web" / "page.js"
        page.write_text(page.read_text() + "\n// changed\n")
        dev.until(r"Changed: src/skald_plugin_workday/web/page.js. Load the page again.", after=at)
        assert httpx.get(f"{url}/healthz", trust_env=False).status_code == 200

        at = len(dev.output)
        init = package / "__init__.py"
        good = init.read_text()
        init.write_text(good + "\n1 / 0\n")
        dev.until(r"import: division by zero", after=at)
        dev.ready(after=at)
        at = len(dev.output)
        init.write_text(good)
        dev.until(r"workday 0.1.0  running", after=at)
        dev.ready(after=at)
        assert dev.interrupt() == 0
    assert dev.output[-1] == "Stopped."


def test_a_server_that_ends_starts_again_with_the_next_change(environment: AuthorEnvironment, workshop: Path) -> None:
    """With --strict the first fault ends the server; the runner waits, and goes on when it is mended."""
    project = write_project(names_for("strictly"), "tool", workshop)
    init = project / "src" / "skald_plugin_strictly" / "__init__.py"
    good = init.read_text()
    init.write_text(good + "\n1 / 0\n")
    with DevProcess(environment, project, "--strict") as dev:
        dev.until(r"The server ended \(status \d+\)")
        at = len(dev.output)
        init.write_text(good)
        dev.ready(after=at)
        assert dev.interrupt() == 0


def test_no_server_is_left_behind(environment: AuthorEnvironment, workshop: Path) -> None:
    """SIGTERM ends the runner and the server with it."""
    project = write_project(names_for("tidy"), "gate", workshop)
    with DevProcess(environment, project) as dev:
        dev.ready()
        server = int((project / ".skald" / "skald.lock").read_text())
        os.kill(server, 0)
        dev.process.send_signal(signal.SIGTERM)
        assert dev.process.wait(30) == 0
    with contextlib.suppress(ProcessLookupError):
        os.kill(server, 0)
        pytest.fail("the server still runs")


def test_a_folder_that_is_no_project(environment: AuthorEnvironment, workshop: Path) -> None:
    """One sentence and a status, no traceback."""
    done = environment.run(environment.skald("plugin", "dev", str(workshop)), workshop)
    assert done.returncode == 1
    assert "no pyproject.toml" in done.stdout
    assert "Traceback" not in done.stdout


def test_a_project_that_cannot_be_installed(environment: AuthorEnvironment, workshop: Path) -> None:
    """The installer's own words, and no server."""
    project = write_project(names_for("hopeless"), "tool", workshop)
    path = project / "pyproject.toml"
    path.write_text(path.read_text().replace('"skald-core>=0.1"', '"skald-core>=0.1", "no-such-thing-at-all>=1"'))
    done = environment.run(environment.skald("plugin", "dev", str(project), "--port", "0"), workshop)
    assert done.returncode == 3
    assert "cannot be installed" in done.stdout
    assert "no-such-thing-at-all" in done.stdout


def test_the_environment_it_runs_in_is_the_one_it_installs_into(workshop: Path) -> None:
    """The command names this interpreter; nothing is installed elsewhere."""
    project = read_project(write_project(names_for("somewhere"), "tool", workshop))
    assert sys.executable in install_command(project)
    assert "--no-build-isolation" in install_command(project)
    assert installed_from(project) is None
