"""The plugin as the kernel sees it: hooks, routes, what an import costs."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from litestar import Litestar, Request, Response, Router
from litestar.testing import TestClient

import skald_llamacpp
from skald_core.api import ConfigError, PluginContext, User
from skald_llamacpp import machine

SOURCE = Path(skald_llamacpp.__file__).parent


@pytest.fixture
def browser(ctx: PluginContext, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient[Litestar]]:
    """The plugin's routes in an application of their own, with the caller and the problem answers of the server."""
    monkeypatch.setattr(machine, "runtime_version", lambda: None)  # nothing is fetched or started here

    def problem(_: Request[Any, Any, Any], error: ConfigError) -> Response[dict[str, str]]:
        return Response({"code": error.kind, "detail": str(error)}, status_code=422)

    def sign_in(request: Request[Any, Any, Any]) -> None:
        user = User("u", "ada", "Ada", "admin", False, locale=request.headers.get("x-locale", ""))
        request.scope["skald_user"] = user  # type: ignore[typeddict-unknown-key]  # as the server does

    async def start() -> None:
        await skald_llamacpp.skald_startup(ctx)

    async def stop() -> None:
        await skald_llamacpp.skald_shutdown(ctx)

    app = Litestar(
        [Router("/api/plugin/llamacpp", route_handlers=skald_llamacpp.skald_routes(ctx), before_request=sign_in)],
        exception_handlers={ConfigError: problem},  # type: ignore[dict-item]  # narrower than the general handler
        on_startup=[start],
        on_shutdown=[stop],
    )
    with TestClient(app, base_url="http://testserver.local/api/plugin/llamacpp/") as client:
        yield client


def test_the_status_describes_models_and_machine(browser: TestClient[Litestar]) -> None:
    """One call gives the page everything."""
    status = browser.get("status").json()
    (starter,) = status["models"]
    assert starter["state"] == "absent"
    assert starter["size"] == 1_117_320_768
    assert starter["needed"] > starter["size"]
    assert status["machine"]["disk_free"] > 0
    assert status["runtime"]["version"] is None
    assert status["settings"] == {"idle_minutes": 20, "context_size": 8192}


def test_every_route_needs_the_right_to_manage_models(ctx: PluginContext) -> None:
    """Paths of the machine and what runs on it are not everybody's business."""
    routes = skald_llamacpp.skald_routes(ctx)
    assert {next(iter(r.paths)) for r in routes} == {
        "/status", "/download", "/cancel", "/use", "/unload", "/remove", "/add-path"
    }  # fmt: skip
    assert all(route.opt == {"capability": "models.manage"} for route in routes)


@pytest.mark.parametrize(
    ("locale", "words"), [("en", "not installed"), ("it", "non è installato"), ("fr", "n'est pas installé")]
)
def test_a_refusal_is_in_the_callers_language(browser: TestClient[Litestar], locale: str, words: str) -> None:
    """With a stable code for clients."""
    answer = browser.post(
        "download", json={"model": "qwen2.5-coder-1.5b-instruct-q4_k_m"}, headers={"x-locale": locale}
    )
    assert answer.status_code == 422
    assert answer.json()["code"] == "llamacpp_runtime_missing"
    assert words in answer.json()["detail"]


@pytest.mark.parametrize("call", ["download", "cancel", "use", "remove"])
def test_an_unknown_model_is_refused(browser: TestClient[Litestar], call: str) -> None:
    """Whatever the call."""
    answer = browser.post(call, json={"model": "../../etc/passwd"})
    assert (answer.status_code, answer.json()["code"]) == (422, "llamacpp_unknown_model")


@pytest.mark.parametrize("body", [{}, {"model": ""}, {"model": 7}, {"model": "x" * 200}, [], "x"])
def test_odd_bodies_are_the_callers_fault(browser: TestClient[Litestar], body: Any) -> None:
    """Never a server error."""
    assert browser.post("use", json=body).status_code in (400, 422)


def test_a_path_is_added_through_the_page(browser: TestClient[Litestar], tmp_path: Path, make_gguf: Any) -> None:
    """The answer is the new state."""
    assert browser.post("add-path", json={"path": "x.gguf"}).json()["code"] == "llamacpp_path_not_absolute"
    path = tmp_path / "m.gguf"
    path.write_bytes(make_gguf())
    models = browser.post("add-path", json={"path": str(path)}).json()["models"]
    assert [(m["id"], m["state"]) for m in models[1:]] == [("m", "ready")]
    models = browser.post("remove", json={"model": "m"}).json()["models"]
    assert len(models) == 1
    assert path.exists()


def test_the_manifest_says_what_the_code_does(ctx: PluginContext) -> None:
    """The catalog shows the manifest of a plugin that was never imported."""
    manifest = tomllib.loads((SOURCE / "skald-plugin.toml").read_text())
    assert manifest["id"] == "llamacpp"
    assert manifest["contributes"]["providers"] == [t.id for t in skald_llamacpp.skald_llm_providers(ctx)]
    assert manifest["contributes"]["pages"] == [p.page_id for p in skald_llamacpp.skald_web_pages()]
    hooks = sorted(n for n in vars(skald_llamacpp) if hasattr(getattr(skald_llamacpp, n), "skald_impl"))
    assert manifest["contributes"]["hooks"] == hooks
    (page,) = skald_llamacpp.skald_web_pages()
    assert (SOURCE / page.entry).is_file()
    assert skald_llamacpp.skald_i18n(ctx).keys() == {"en", "it", "fr"}


async def test_the_library_goes_with_the_plugin(ctx: PluginContext) -> None:
    """Disabling ends it; enabling again makes a new one."""
    first = skald_llamacpp.library_of(ctx)
    assert skald_llamacpp.library_of(ctx) is first
    await skald_llamacpp.skald_startup(ctx)
    await skald_llamacpp.skald_shutdown(ctx)
    second = skald_llamacpp.library_of(ctx)
    assert second is not first
    await skald_llamacpp.skald_shutdown(ctx)
    await skald_llamacpp.skald_shutdown(ctx)


def test_an_import_stays_light() -> None:
    """Neither the model runtime nor the HTTP client nor the web framework is loaded by the hooks for models."""
    code = (
        "import sys, skald_core.api\n"
        "before = set(sys.modules)\n"
        "import skald_llamacpp\n"
        "mine = set(sys.modules) - before\n"
        "assert {m for m in mine if m.partition('.')[0] != 'skald_llamacpp'} == set(), mine\n"
        "skald_llamacpp.skald_config(); skald_llamacpp.skald_web_pages()\n"
        "import skald_llamacpp.library, skald_llamacpp.provider\n"
        "assert not {m for m in sys.modules if m.startswith(('xllamacpp', 'litestar', 'httpx'))}\n"
    )
    path = [str(SOURCE.parent), *sys.path]
    import os

    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": os.pathsep.join(path)}, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()
