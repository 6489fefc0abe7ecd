"""docs/plugins/tutorial.md, followed to the letter: its files written, its commands run, its outputs seen."""

import re
import shlex
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests.support.authors import AuthorEnvironment, DevProcess
from tests.support.server import PASSWORD

PAGE = Path(__file__).parent.parent.parent / "docs" / "plugins" / "tutorial.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Step(NamedTuple):
    """``kind`` is ``write`` (``what`` is the path), ``run`` (the command) or ``see`` (text the last command printed)."""

    kind: str
    what: str
    text: str = ""


def steps() -> Iterator[Step]:
    page = PAGE.read_text(encoding="utf-8")
    at = 0
    for block in BLOCK.finditer(page):
        before = page[at : block.start()].rstrip()
        at = block.end()
        written = re.search(r"[Ww]rite\s+`([^`]+)`:$", before)
        if written:
            yield Step("write", written[1], block[2])
        elif block[1] == "sh":
            for line in block[2].splitlines():
                yield Step("run", line)
        elif block[1] == "text":
            for line in block[2].splitlines():
                yield Step("see", line)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def shown(line: str, output: str) -> bool:
    """Whether a promised line is in the output; the port is this machine's."""
    pattern = re.escape(line).replace("9000", r"\d+")
    return re.search(pattern, output) is not None


@pytest.fixture
def weather(environment: AuthorEnvironment, workshop: Path) -> Path:
    """The folder the reader is in, after every step was done and every promise kept."""
    here = workshop
    output = ""
    done: list[Step] = []
    dev: DevProcess | None = None
    for step in steps():
        if step.kind != "see" and dev is not None:
            assert dev.interrupt() == 0
            dev = None
        match step:
            case Step("write", path, text):
                target = here / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8")
            case Step("run", line) if line.startswith("cd "):
                here = here / line.removeprefix("cd ")
                assert here.is_dir()
            case Step("run", "skald plugin dev ."):
                dev = DevProcess(environment, here)
                dev.ready()
            case Step("run", line):
                words = shlex.split(line)
                command = (
                    environment.skald(*words[1:]) if words[0] == "skald" else [str(environment.python), *words[1:]]
                )
                ran = environment.run(command, here, timeout=240.0)
                output = ran.stdout
                assert ran.returncode == 0, f"{line}\n{output}"
            case Step("see", line):
                text = "\n".join(dev.output) if dev is not None else output
                assert shown(line, text), f"{line!r} is not in:\n{text}"
        done.append(step)
    assert [s.kind for s in done].count("write") == 13
    assert [s.what for s in done if s.kind == "run"].count("python -m pytest -q") == 2
    return here


def test_the_tutorial(weather: Path, environment: AuthorEnvironment) -> None:
    """After the last step the plugin works in a server: set up over HTTP as the page says, with the page's own service."""
    port = free_port()
    service = subprocess.Popen(
        [str(environment.python), "fake_weather.py", str(port)], cwd=weather, stderr=subprocess.DEVNULL
    )
    try:
        with DevProcess(environment, weather) as dev:
            url = dev.ready()
            token = dev.until(r"/setup#token=(\S+)")[1]
            with httpx.Client(base_url=url, timeout=30, trust_env=False) as ada:
                account = {"token": token, "username": "ada", "password": PASSWORD, "encrypted": True, "locale": "it"}
                ada.post("/api/setup", json=account).raise_for_status()
                refused = ada.get("/api/plugin/weather/today")
                assert refused.status_code == 422
                assert refused.json()["detail"] == "Quale città? Dilla, o impostala in I miei plugin."
                values = {"service": f"http://127.0.0.1:{port}"}
                ada.put("/api/plugins/weather/config", json={"values": values}).raise_for_status()
                ada.put("/api/my/plugins/weather/config", json={"values": {"city": "Roma"}}).raise_for_status()
                assert ada.get("/api/plugin/weather/today").json() == {"sky": "sunny", "celsius": 21}
                (page,) = [p for p in ada.get("/api/plugins/pages").json() if p["plugin"] == "weather"]
                assert page["title"] == "Meteo"
                assert "export default class WeatherPage" in ada.get(page["entry"]).text
            assert dev.interrupt() == 0
    finally:
        service.terminate()
        service.wait(10)
