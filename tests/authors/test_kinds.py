"""Every kind of scaffold, from nothing to a running server: installed without a network, its test green, judged, started."""

import json
from pathlib import Path

import httpx
import pytest

from skald_core.authoring.scaffold import KINDS
from tests.support.authors import AuthorEnvironment, DevProcess


@pytest.mark.parametrize("kind", KINDS)
def test_a_scaffold_is_a_whole_plugin(kind: str, environment: AuthorEnvironment, workshop: Path) -> None:
    """new, install, test, check without a finding, dev until it runs, Ctrl-C."""
    name = f"try-{kind}"
    made = environment.run(environment.skald("plugin", "new", name, "--kind", kind), workshop)
    assert made.returncode == 0, made.stdout
    project = workshop / f"skald-plugin-{name}"
    environment.install(project)
    assert " passed" in environment.test(project)
    checked = environment.run(environment.skald("plugin", "check", ".", "--json"), project)
    judged = json.loads(checked.stdout)
    assert judged["findings"] == [], checked.stdout
    assert checked.returncode == 0
    with DevProcess(environment, project, "--no-install", "--strict") as dev:
        url = dev.ready()
        assert any(line.startswith(f"{name} 0.1.0  running") for line in dev.output), dev.output
        assert httpx.get(f"{url}/healthz", trust_env=False).status_code == 200
        assert dev.interrupt() == 0
    assert dev.output[-1] == "Stopped."
    assert not any("Traceback" in line for line in dev.output)
