"""Every route has a guard, every fetch takes its owner, and odd input is answered, never crashed on."""

import json
import sys
import types
from typing import Any

import pytest
from litestar.routes import HTTPRoute

from skald_core.server.guards import is_guard
from skald_core.server.routes import HANDLERS
from skald_core.testing import AppFactory, ScriptedProvider, TestApp, TestClient, scripted_plugin, text


@pytest.fixture
async def app(skald_app: AppFactory) -> TestApp:
    return await skald_app()


def _routes(app: TestApp) -> list[tuple[str, str]]:
    """(method, path) of every API route, with ids filled in that nobody has."""
    api: Any = app.skald.asgi.api.kernel  # type: ignore[attr-defined]  # the real API, not the one before the start
    found = []
    for route in api.routes:
        if isinstance(route, HTTPRoute) and route.path.startswith("/api") and not route.path.startswith("/api/schema"):
            path = route.path_format
            for name in ("conversation", "request_id", "provider", "model", "plugin", "user"):
                path = path.replace("{" + name + "}", "nobody-has-this")
            path = path.replace("{queued}", "7").replace("{message}", "7").replace("{locale}", "it")
            found += [(m, path) for m in sorted(route.methods - {"OPTIONS", "HEAD"})]
    return found


PUBLIC = {"/api/setup", "/api/auth/login", "/api/auth/logout", "/api/i18n/it"}


@pytest.mark.parametrize("handler", HANDLERS, ids=lambda h: h.fn.__name__)
def test_every_route_names_exactly_one_guard(handler: Any) -> None:
    """Deny by default: a route without an explicit guard does not pass."""
    guards = list(handler.guards or ())
    assert len(guards) == 1
    assert is_guard(guards[0])


async def test_without_signing_in_only_public_routes_answer(app: TestApp) -> None:
    """Everything else says 401 with a stable code."""
    client = app.anonymous()
    for method, path in _routes(app):
        answer = await client.request(method, path, {})
        if path not in PUBLIC:
            assert answer.status_code == 401, (method, path, answer.text)
            assert answer.json()["code"] == "not_signed_in"


async def test_a_member_cannot_administer(app: TestApp) -> None:
    """A role without capabilities is refused by every administrative route; it can read the models it talks to."""
    await app.client()
    member = await app.client("bo", "member")
    refused = {
        (method, path)
        for method, path in _routes(app)
        if path != "/api/auth/logout" and (await member.request(method, path, {})).status_code == 403
    }
    administrative = {
        (m, p)
        for m, p in _routes(app)
        if p.startswith(("/api/providers", "/api/plugins", "/api/users"))
        or (p.startswith("/api/models") and m != "GET")
    } - {("GET", "/api/plugins/pages")}
    assert refused - {("POST", "/api/setup")} == administrative


@pytest.mark.parametrize("body", [[], "text", 7, {"client_id": 7}, {"content": None}, {"ids": {}}, {"values": []}])
async def test_odd_bodies_are_refused_politely(app: TestApp, body: Any) -> None:
    """Wrong shapes get a 4xx problem with a code, on every route, from an administrator too."""
    client = await app.client()
    for method, path in _routes(app):
        if method != "GET" and path != "/api/auth/logout":
            answer = await client.request(method, path, body)
            assert answer.status_code < 500, (method, path, answer.text)
    answer = await client.http.post(
        "/api/conversations", content=b'{"client_id": "x', headers={"content-type": "application/json"}
    )
    assert answer.status_code == 422


async def test_one_user_cannot_reach_what_is_anothers(skald_app: AppFactory) -> None:
    """Ids of another user's conversation and request answer 404 on every route, for a member and an administrator."""
    provider = ScriptedProvider([text("hello")])
    app = await skald_app(scripted_plugin(provider))
    await app.add_model()
    owner = await app.client("ada", "member")
    (said, _) = await owner.run_turn("my secret")
    conversation = (await owner.get("/api/conversations"))["items"][0]["id"]
    for other in (await app.client("bo", "member"), await app.client("eve", "admin")):
        base = f"/api/conversations/{conversation}"
        body = {"client_id": "c", "content": "x", "message": said["id"]}
        for method, path in (
            ("GET", base), ("PATCH", base), ("DELETE", base), ("GET", f"{base}/messages"), ("POST", f"{base}/messages"),
            ("POST", f"{base}/stop"), ("POST", f"{base}/retry"), ("POST", f"{base}/continue"), ("POST", f"{base}/edit"),
            ("POST", f"{base}/regenerate"), ("POST", f"{base}/head"), ("POST", f"{base}/compact"),
            ("PATCH", f"{base}/queue/1"), ("DELETE", f"{base}/queue/1"),
        ):  # fmt: skip
            answer = await other.request(method, path, body if method != "GET" else None)
            assert answer.status_code == 404, (method, path, answer.text)
        assert (await other.get("/api/conversations"))["items"] == []
    assert len((await owner.get(f"/api/conversations/{conversation}/messages"))["items"]) == 2


async def test_stored_keys_never_come_back(app: TestApp, skald_app: AppFactory) -> None:
    """A provider's secret is not in any answer, and leaving it out of a change keeps it."""
    from skald_core.hookspecs import hookimpl
    from skald_core.plugins.contributions import ProviderField, ProviderType
    from skald_core.plugins.manifest import Manifest
    from skald_core.testing import local_plugin

    class Cloud(ProviderType):
        id = "cloud"
        title = "Cloud"
        fields = (ProviderField(key="url", label="URL"), ProviderField(key="api_key", label="Key", kind="secret"))

        def create(self, settings: dict[str, str]) -> Any:
            return ScriptedProvider([])

    module = types.ModuleType("skald_test_cloud")

    @hookimpl
    def skald_llm_providers() -> list[ProviderType]:
        return [Cloud()]

    module.skald_llm_providers = skald_llm_providers  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    app = await skald_app(local_plugin(module, Manifest(id="cloud", title="Cloud", api=">=1")))
    client = await app.client()
    body = {"type": "cloud", "name": "C", "settings": {"url": "http://a", "api_key": "sk-very-secret"}}
    made = await client.post("/api/providers", body)
    changed = await client.request("PATCH", f"/api/providers/{made['id']}", {"settings": {"url": "http://b"}})
    listed = await client.get("/api/providers")
    assert "sk-very-secret" not in json.dumps([made, changed.json(), listed])
    assert changed.json()["secrets"] == {"api_key": True}
    row = await app.skald.catalogue.table.provider(made["id"])
    assert row.everything() == {"url": "http://b", "api_key": "sk-very-secret"}


async def test_set_up_needs_the_console_token_and_works_once(app: TestApp) -> None:
    """Nobody else can claim a new instance; afterwards the link is dead."""
    client = app.anonymous()
    assert (await client.get("/api/setup"))["needed"] is True
    body = {"token": "guess", "username": "eve", "password": "correct horse battery"}
    answer = await client.request("POST", "/api/setup", body)
    assert (answer.status_code, answer.json()["code"]) == (403, "setup_token")
    token = app.skald.setup_token
    weak = await client.request("POST", "/api/setup", {**body, "token": token, "password": "short"})
    assert (weak.status_code, weak.json()["code"]) == (422, "weak_password")
    me = await client.post("/api/setup", {**body, "token": token, "username": "ada", "locale": "it"})
    assert me["role"] == "admin"
    assert me["instance_locale"] == "it"
    again = await client.request("POST", "/api/setup", {**body, "token": token})
    assert again.status_code == 409
    assert (await client.get("/api/setup"))["needed"] is False


async def test_errors_speak_the_users_language(app: TestApp) -> None:
    """The sentence follows the browser's language before, and the user's after signing in; the code stays."""
    client = app.anonymous()
    answer = await client.http.get("/api/auth/me", headers={"accept-language": "fr-FR,fr;q=0.9"})
    assert answer.json()["detail"] == "Connectez-vous pour continuer."
    signed = await app.client()
    await signed.request("PUT", "/api/auth/profile", {"locale": "it"})
    answer = await signed.request("GET", "/api/conversations/none")
    assert answer.json()["detail"].startswith("Questa conversazione non esiste")


async def test_too_many_wrong_passwords_are_slowed_down(app: TestApp) -> None:
    """After five failures the sixth is not even tried, and the answer says how long to wait."""
    await app.client()
    client = app.anonymous()
    for _ in range(5):
        answer = await client.request("POST", "/api/auth/login", {"username": "ada", "password": "wrong password"})
        assert answer.json()["code"] == "bad_credentials"
    answer = await client.request("POST", "/api/auth/login", {"username": "ada", "password": "correct horse battery"})
    assert answer.status_code == 429
    assert answer.json()["retry_after"] > 0
    assert int(answer.headers["retry-after"]) > 0


async def test_a_password_change_ends_other_sessions_before_it_answers(app: TestApp) -> None:
    """The changing session goes on under a new token; every older one is out on its next request."""
    client = await app.client()
    other = app.anonymous()
    await other.post("/api/auth/login", {"username": "ada", "password": "correct horse battery"})
    body = {"old": "correct horse battery", "new": "another long password"}
    assert (await client.request("POST", "/api/auth/password", body)).status_code == 204
    assert (await other.request("GET", "/api/auth/me")).status_code == 401
    assert (await client.request("GET", "/api/auth/me")).status_code == 200


async def test_an_encrypted_user_is_locked_after_a_restart(skald_app: AppFactory) -> None:
    """An old session is not enough to open encrypted data; a plain user's still works."""
    app = await skald_app()
    sealed = await app.client("ada", "member", encrypted=True)
    plain = await app.client("bo", "member")
    cookies = [dict(sealed.http.cookies), dict(plain.http.cookies)]
    app = await skald_app()
    answers = []
    for jar in cookies:
        client: TestClient = app.anonymous()
        client.http.cookies.update(jar)
        answers.append(await client.request("GET", "/api/conversations"))
    assert answers[0].status_code == 401
    assert answers[0].json()["code"] == "locked"
    assert answers[1].status_code == 200


async def test_foreign_hosts_and_origins_are_refused(app: TestApp) -> None:
    """DNS rebinding and cross-site requests stop at the door."""
    client = await app.client()
    assert (await client.http.get("/healthz", headers={"host": "evil.example"})).status_code == 403
    for origin in ("http://evil.example", "null", "http://127.0.0.1:8080"):
        answer = await client.http.post("/api/conversations", json={}, headers={"origin": origin})
        assert answer.status_code == 403, origin
    assert (
        await client.http.post("/api/conversations", json={}, headers={"origin": "http://127.0.0.1"})
    ).status_code == 201


async def test_the_openapi_document_is_complete(app: TestApp) -> None:
    """Every route is described."""
    client = await app.client()
    document = await client.get("/api/schema/openapi.json")
    described = {p.replace("{", "").replace("}", "") for p in document["paths"]}
    api: Any = app.skald.asgi.api.kernel  # type: ignore[attr-defined]  # the real API, not the one before the start
    for route in api.routes:
        if isinstance(route, HTTPRoute) and route.path.startswith("/api") and not route.path.startswith("/api/schema"):
            assert route.path_format.replace("{", "").replace("}", "") in described


async def test_only_an_unencrypted_users_password_can_be_reset(app: TestApp) -> None:
    """The reset ends their sessions at once; an encrypted user's is refused, and says why."""
    admin = await app.client()
    plain = await app.client("bo", "member")
    sealed = await app.client("cy", "member", encrypted=True)
    assert plain.user is not None
    assert sealed.user is not None
    await admin.post(f"/api/users/{plain.user['id']}/password", {"new": "a fresh password"})
    assert (await plain.request("GET", "/api/auth/me")).status_code == 401
    await plain.post("/api/auth/login", {"username": "bo", "password": "a fresh password"})
    answer = await admin.request("POST", f"/api/users/{sealed.user['id']}/password", {"new": "a fresh password"})
    assert (answer.status_code, answer.json()["code"]) == (409, "encrypted")
    assert (await sealed.request("GET", "/api/auth/me")).status_code == 200


async def test_hook_skald_routes_are_mounted_guarded_and_cannot_break_the_server(skald_app: AppFactory) -> None:
    """A plugin's routes live below its id, signed in, with their capability; routes that cannot be built fail only it."""
    from litestar import get, post

    from skald_core.hookspecs import hookimpl
    from skald_core.plugins.manifest import Manifest
    from skald_core.testing import local_plugin

    @get("/hello")
    async def hello() -> dict[str, str]:
        return {"say": "hello"}

    @post("/secret", opt={"capability": "plugin.manage"})
    async def secret() -> None:
        return None

    @get("/same")
    async def one() -> None:
        return None

    @get("/same")
    async def other() -> None:
        return None

    def plugin(plugin_id: str, *handlers: Any) -> Any:
        module = types.ModuleType(f"skald_test_{plugin_id}")

        @hookimpl
        def skald_routes() -> list[Any]:
            return list(handlers)

        module.skald_routes = skald_routes  # type: ignore[attr-defined]
        sys.modules[module.__name__] = module
        return local_plugin(module, Manifest(id=plugin_id, title=plugin_id, api=">=1"))

    good, bad = plugin("good", hello, secret), plugin("bad", one, other)
    app = await skald_app(good, bad, strict=False)
    assert app.skald.plugins.rows["bad"].state == "failed"
    member = await app.client("bo", "member")
    assert await member.get("/api/plugin/good/hello") == {"say": "hello"}
    assert (await member.request("POST", "/api/plugin/good/secret", {})).status_code == 403
    assert (await app.anonymous().request("GET", "/api/plugin/good/hello")).status_code == 401
    await app.skald.plugins.disable("good")
    assert (await member.request("GET", "/api/plugin/good/hello")).status_code == 404
    await app.skald.plugins.enable("good")
    assert (await member.request("GET", "/api/plugin/good/hello")).status_code == 200
    app = await skald_app(good, bad, strict=False)  # at boot: built together first, then each by itself
    row = app.skald.plugins.rows["bad"]
    assert (row.state, app.skald.plugins.rows["good"].state) == ("failed", "running")


async def test_a_service_with_a_type_of_its_own_is_offered_once(skald_app: AppFactory) -> None:
    """A general type's preset, and its find of a running server, give way to the type made for that service."""
    from skald_core.hookspecs import hookimpl
    from skald_core.plugins.contributions import FoundServer, ProviderPreset, ProviderType
    from skald_core.plugins.manifest import Manifest
    from skald_core.testing import local_plugin

    class General(ProviderType):
        id = "general"
        presets = (
            ProviderPreset(id="lama", title="Lama", settings={}),
            ProviderPreset(id="other", title="Other", settings={}),
        )

        def create(self, settings: dict[str, str]) -> Any:
            return ScriptedProvider([])

        async def discover(self) -> list[FoundServer]:
            return [FoundServer(title="Lama", settings={"base_url": "http://127.0.0.1:11/v1"})]

    class Native(General):
        id = "lama"
        presets = (ProviderPreset(id="lama", title="Lama", settings={}),)

        async def discover(self) -> list[FoundServer]:
            return [FoundServer(title="Lama", settings={"base_url": "http://127.0.0.1:11"})]

    module = types.ModuleType("skald_test_lama")

    @hookimpl
    def skald_llm_providers() -> list[ProviderType]:
        return [General(), Native()]

    module.skald_llm_providers = skald_llm_providers  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    app = await skald_app(local_plugin(module, Manifest(id="lama", title="Lama", api=">=1")))
    client = await app.client()
    offered = {t["id"]: [p["id"] for p in t["presets"]] for t in await client.get("/api/provider-types")}
    assert offered == {"general": ["other"], "lama": ["lama"]}
    assert [f["type"] for f in await client.get("/api/providers/discover")] == ["lama"]
