"""Settings of plugins: forms, secrets, tests, versions; an admin's and everybody's own."""

import asyncio
import json
from typing import Annotated, Any

import msgspec
import pytest

from skald_core import api as skald
from skald_core.plugins import configure
from skald_core.plugins.settings_form import SettingsForm
from skald_core.testing import AppFactory, TestApp
from tests.support.plugin_forms import Config, UserConfig, form_plugin, settings_plugin
from tests.support.plugins import made


async def test_skald_config(skald_app: AppFactory) -> None:
    """A struct becomes a form; without a value for what is needed the plugin waits; saving starts it with the values."""
    started: list[Any] = []
    app = await skald_app(form_plugin(started))
    client = await app.client()
    row = (await client.get("/api/plugins"))[0]
    assert (row["state"], row["configurable"], row["error"], started) == ("needs_config", True, None, [])
    form = await client.get("/api/plugins/weather/config")
    assert form["required"] == ["city"]
    assert form["schema"]["properties"]["city"] == {
        "title": "City", "description": "Where you are", "type": "string", "minLength": 2,
    }  # fmt: skip
    assert form["schema"]["properties"]["key"] == {"title": "API key", "type": "string", "x-kind": "secret"}
    assert form["schema"]["properties"]["notes"]["x-kind"] == "textarea"
    assert form["values"] == {"days": 3, "units": "metric", "model": "", "station": "", "notes": ""}
    assert form["secrets"] == {"key": False}
    assert form["choices"] == {
        "units": [{"value": "metric", "label": "Metric"}, {"value": "imperial", "label": "Imperial"}],
        "station": [{"value": "a", "label": "Near"}, {"value": "b", "label": "Far"}],
    }
    assert form["testable"] is True
    answer = await client.request("PUT", "/api/plugins/weather/config", {"values": {"city": "Rome", "key": "s3cret"}})
    assert answer.json()["state"] == "running"
    (ctx,) = started
    assert (ctx.config.city, ctx.config.key.reveal(), ctx.config.days) == ("Rome", "s3cret", 3)
    assert "s3cret" not in repr(ctx.config)
    assert "s3cret" not in answer.text
    form = await client.get("/api/plugins/weather/config")
    assert (form["values"]["city"], form["secrets"]) == ("Rome", {"key": True})
    assert "s3cret" not in json.dumps(form)


async def test_a_secret_left_out_is_kept_and_null_removes_it(skald_app: AppFactory) -> None:
    """A browser never has the secret, so it cannot send it back; each save of a running plugin starts it anew."""
    started: list[Any] = []
    app = await skald_app(form_plugin(started))
    desk = app.skald.settings_desk
    await desk.save("weather", {"city": "Rome", "key": "s3cret"}, "en")
    await desk.save("weather", {"city": "Pisa"}, "en")
    assert (started[-1].config.city, started[-1].config.key.reveal()) == ("Pisa", "s3cret")
    await desk.save("weather", {"city": "Pisa", "key": None}, "en")
    assert not started[-1].config.key
    assert len(started) == 3
    await app.skald.plugins.disable("weather")
    await desk.save("weather", {"city": "Bari"}, "en")
    assert (len(started), app.skald.plugins.get("weather").state) == (3, "disabled")
    await app.skald.plugins.enable("weather")
    assert started[-1].config.city == "Bari"


async def test_each_field_says_what_is_wrong_in_the_readers_language(skald_app: AppFactory) -> None:
    """All at once, nothing is stored, and the plugin goes on as it was."""
    app = await skald_app(form_plugin())
    client = await app.client()
    await client.request("PUT", "/api/auth/profile", {"locale": "it"})
    await app.skald.settings_desk.save("weather", {"city": "Rome"}, "en")
    values = {"city": "R", "days": 30, "units": "feet", "bogus": 1, "notes": 5, "model": 7}
    answer = await client.request("PUT", "/api/plugins/weather/config", {"values": values})
    assert (answer.status_code, answer.json()["code"]) == (422, "bad_settings")
    told = {e["field"]: e["message"] for e in answer.json()["errors"]}
    assert told == {
        "city": "Almeno 2 caratteri.",
        "days": "Al massimo 14.",
        "units": "Scegli una voce dell'elenco.",
        "bogus": "Questa impostazione non esiste.",
        "notes": "Questo non va bene: Expected `str`, got `int`",
        "model": "Questo non va bene: Expected `str`, got `int`",
    }
    values = {"city": "Rome", "model": "nobody-has-this"}
    answer = await client.request("PUT", "/api/plugins/weather/config", {"values": values})
    assert [e["field"] for e in answer.json()["errors"]] == ["model"]
    assert (await app.skald.settings_desk.view("weather", "en")).values["model"] == ""
    form = await client.get("/api/plugins/weather/config")
    assert form["schema"]["properties"]["city"]["title"] == "Città"
    assert [c["label"] for c in form["choices"]["units"]] == ["Metriche", "Imperial"]


async def test_a_test_runs_before_anything_is_stored(skald_app: AppFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the plugin waits for settings. What it raises, and that it never returns, is told."""
    app = await skald_app(form_plugin())
    client = await app.client()

    async def tried(values: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = await client.post("/api/plugins/weather/config/test", {"values": values})
        return found

    assert await tried({"city": "Rome"}) == {"ok": True, "text": "It works."}
    assert await tried({"city": "Rome", "key": "wrong"}) == {"ok": False, "text": "The key is not right."}
    assert await tried({"city": "Rome", "key": "broken"}) == {"ok": False, "text": "The test failed: no connection"}
    assert (await app.skald.settings_desk.view("weather", "en")).values.get("city") is None
    answer = await client.request("POST", "/api/plugins/weather/config/test", {"values": {}})
    assert answer.json()["errors"] == [{"field": "city", "message": "This is needed."}]

    async def forever(config: Any) -> str:
        await asyncio.Event().wait()
        return ""

    slow = await skald_app(settings_plugin(config=skald.Settings(type=UserConfig, test=forever)))
    monkeypatch.setattr(configure, "TEST_SECONDS", 0.05)
    found = await slow.skald.settings_desk.test("weather", {}, "en")
    assert (found.ok, found.text) == (False, "The test did not end within 0.05 seconds.")


async def test_choices_that_cannot_be_had_do_not_hide_the_form(
    skald_app: AppFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each says why: a server that does not answer, a plugin's fault, a wrong type."""

    class Three(msgspec.Struct):
        slow: str = ""
        wrong: str = ""
        told: str = ""

    async def slow() -> Any:
        await asyncio.Event().wait()

    async def wrong() -> Any:
        return ["no option"]

    async def told() -> Any:
        raise skald.ToolError("Set the key first.")

    settings = skald.Settings(type=Three, choices={"slow": slow, "wrong": wrong, "told": told})
    app = await skald_app(settings_plugin(config=settings))
    monkeypatch.setattr(configure, "CHOICES_SECONDS", 0.05)
    form = await app.skald.settings_desk.view("weather", "en")
    assert form.choices == {"slow": [], "wrong": [], "told": []}
    assert form.choice_errors["told"] == "Set the key first."
    assert "0.05 seconds" in form.choice_errors["slow"]
    assert "Option" in form.choice_errors["wrong"]


async def test_skald_user_config(skald_app: AppFactory) -> None:
    """Everybody has their own, kept in their own database, and sees no one else's."""
    started: list[Any] = []
    app = await skald_app(settings_plugin(user_config=UserConfig, started=started))
    ada, bo = await app.client(encrypted=True), await app.client("bo", "member", encrypted=True)
    (ctx,) = started
    answer = await ada.request(
        "PUT", "/api/my/plugins/weather/config", {"values": {"city": "Bari", "token": "ada's secret"}}
    )
    assert (answer.json()["values"], answer.json()["secrets"]) == ({"city": "Bari"}, {"token": True})
    assert ada.user is not None
    assert bo.user is not None
    own = await ctx.user_config(ada.user["id"])
    assert (own.city, own.token.reveal()) == ("Bari", "ada's secret")
    assert (await ctx.user_config(bo.user["id"])).city == "Rome"
    assert (await bo.get("/api/my/plugins/weather/config"))["values"] == {"city": "Rome"}
    assert (await bo.get("/api/my/plugins"))[0]["configurable"] is True
    await app.skald.vault.close()
    for path in (app.skald.data_dir / "database").iterdir():
        assert b"ada's secret" not in path.read_bytes(), path
    with pytest.raises(LookupError, match="locked"):
        await ctx.user_config(ada.user["id"])


async def test_user_settings_need_defaults(skald_app: AppFactory) -> None:
    """Nobody has saved any when the plugin first asks."""
    app = await skald_app(settings_plugin(user_config=Config), strict=False)
    row = app.skald.plugins.get("weather")
    assert row.state == "failed"
    assert row.error is not None
    assert "'city' needs a default" in row.error.message


# --- versions ------------------------------------------------------------------------------------------------------


class Old(msgspec.Struct):
    place: str = ""
    key: skald.Secret = skald.Secret()
    days: int = 3


class New(msgspec.Struct):
    city: str = "Rome"
    token: skald.Secret = skald.Secret()
    days: Annotated[int, msgspec.Meta(le=14)] = 3


async def _saved(skald_app: AppFactory, values: dict[str, Any]) -> None:
    app = await skald_app(settings_plugin(config=Old))
    await app.skald.settings_desk.save("weather", values, "en")


async def _problems(app: TestApp) -> list[str]:
    return [p for p in app.skald.plugins.problems(app.skald.plugins.get("weather")) if "manifest" not in p]


async def test_settings_of_an_older_version_are_brought_up(skald_app: AppFactory) -> None:
    """``migrate_config`` sees the old values, secrets too, and what it makes of them is stored in the new form."""
    await _saved(skald_app, {"place": "Bari", "key": "s3cret", "days": 5})
    seen: list[tuple[dict[str, Any], int]] = []

    def migrate(values: dict[str, Any], version: int) -> dict[str, Any]:
        seen.append((dict(values), version))
        values["city"] = values.pop("place")
        values["token"] = values.pop("key")
        return values

    started: list[Any] = []
    settings = skald.Settings(type=New, version=2, migrate_config=migrate)
    for _ in range(2):  # the second start finds the new form
        app = await skald_app(settings_plugin(config=settings, version="2.0", started=started))
    assert seen == [({"place": "Bari", "days": 5, "key": skald.Secret("s3cret")}, 1)]
    config = started[-1].config
    assert (config.city, config.token.reveal(), config.days) == ("Bari", "s3cret", 5)
    assert await _problems(app) == []


@pytest.mark.parametrize("fault", ["raises", "no dict", "does not fit", "no migration"])
async def test_settings_that_cannot_be_read_are_kept_aside(skald_app: AppFactory, fault: str) -> None:
    """Defaults take their place, the admin is told and sees them, and saving settles it without throwing them away."""
    await _saved(skald_app, {"place": "Bari", "days": 99})

    def migrate(values: dict[str, Any], version: int) -> Any:
        if fault == "raises":
            raise KeyError("nowhere")
        return None if fault == "no dict" else values

    settings = skald.Settings(type=New, version=2, migrate_config=None if fault == "no migration" else migrate)
    for _ in range(2):  # told until somebody saves, not only once
        app = await skald_app(settings_plugin(config=settings, version="2.0"))
        assert app.skald.plugins.get("weather").state == "running"
        (problem,) = await _problems(app)
        assert "version 1" in problem
        assert "kept aside" in problem
    form = await app.skald.settings_desk.view("weather", "en")
    assert form.values == {"city": "Rome", "days": 3}
    assert [(a["values"], a["version"]) for a in form.aside] == [({"place": "Bari", "days": 99}, 1)]
    await app.skald.settings_desk.save("weather", {"city": "Pisa"}, "en")
    assert await _problems(app) == []
    rows = await app.skald.system_db.read(lambda c: c.execute("SELECT config FROM plugin_config_aside").fetchall())
    assert [json.loads(row[0]) for row in rows] == [{"place": "Bari", "days": 99}]


class Plain(msgspec.Struct):
    city: str = "Rome"
    key: str = ""


class Hidden(msgspec.Struct):
    city: str = "Rome"
    key: skald.Secret = skald.Secret()


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("fails", [False, True])
async def test_a_text_that_becomes_a_secret_is_one(skald_app: AppFactory, version: int, fails: bool) -> None:
    """With or without a new version, also when ``migrate_config`` fails: the value is kept, and no answer has it."""

    def migrate(values: dict[str, Any], was: int) -> dict[str, Any]:
        if fails:
            raise KeyError("nowhere")
        return values

    app = await skald_app(settings_plugin(config=Plain, version="1.0"))
    await app.skald.settings_desk.save("weather", {"city": "Bari", "key": "s3cret"}, "en")
    started: list[Any] = []
    settings = skald.Settings(type=Hidden, version=version, migrate_config=migrate)
    app = await skald_app(settings_plugin(config=settings, version="2.0", started=started))
    assert started[-1].config.key.reveal() == "s3cret"
    client = await app.client()
    for path in ("/api/plugins/weather/config", "/api/plugins/weather", "/api/plugins"):
        assert "s3cret" not in (await client.request("GET", path)).text
    assert (await client.get("/api/plugins/weather/config"))["secrets"] == {"key": True}
    rows = await app.skald.system_db.read(
        lambda c: c.execute("SELECT config FROM plugin_config UNION SELECT config FROM plugin_config_aside").fetchall()
    )
    assert "s3cret" not in str(rows)


async def test_settings_ahead_of_the_code_refuse_to_start(skald_app: AppFactory) -> None:
    """After a downgrade nothing is touched, and the reason names the version that wrote them."""
    app = await skald_app(settings_plugin(config=skald.Settings(type=New, version=2), version="2.0"))
    await app.skald.settings_desk.save("weather", {"city": "Bari"}, "en")
    app = await skald_app(settings_plugin(config=Old, version="1.0"), strict=False)
    client = await app.client()
    row = await client.get("/api/plugins/weather")
    assert (row["state"], row["error"]["phase"]) == ("failed", "migrate")
    assert "version 2.0" in row["error"]["message"]
    answer = await client.request("GET", "/api/plugins/weather/config")
    assert (answer.status_code, answer.json()["code"]) == (409, "settings_ahead")
    app = await skald_app(settings_plugin(config=skald.Settings(type=New, version=2), version="2.0"))
    assert (await app.skald.settings_desk.view("weather", "en")).values["city"] == "Bari"


async def test_user_settings_are_brought_up_when_they_are_read(skald_app: AppFactory) -> None:
    """Each user's database is migrated when the plugin first asks; a newer one counts as unset and is not overwritten."""
    app = await skald_app(settings_plugin(user_config=Old))
    client = await app.client()
    await client.request("PUT", "/api/my/plugins/weather/config", {"values": {"place": "Bari"}})
    assert client.user is not None
    user = client.user["id"]
    started: list[Any] = []

    def migrate(values: dict[str, Any], version: int) -> dict[str, Any]:
        return {"city": values["place"]}

    settings = skald.Settings(type=New, version=2, migrate_config=migrate)
    app = await skald_app(settings_plugin(user_config=settings, version="2.0", started=started))
    await app.skald.require_open(await app.skald.users.get(user))
    assert (await started[-1].user_config(user)).city == "Bari"
    app = await skald_app(settings_plugin(user_config=Old, started=started))
    await app.skald.require_open(await app.skald.users.get(user))
    assert (await started[-1].user_config(user)).place == ""
    again = app.anonymous()
    await again.post("/api/auth/login", {"username": "ada", "password": "correct horse battery"})
    answer = await again.request("PUT", "/api/my/plugins/weather/config", {"values": {"place": "x"}})
    assert answer.json()["code"] == "settings_ahead"


async def test_a_plugin_without_settings_says_so(skald_app: AppFactory) -> None:
    """No form is made up for it."""
    app = await skald_app(made("plain"))
    client = await app.client()
    answer = await client.request("GET", "/api/plugins/plain/config")
    assert (answer.status_code, answer.json()["code"]) == (409, "no_settings")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (dict, "must return a msgspec.Struct class"),
        (msgspec.defstruct("Inside", [("keys", list[skald.Secret])]), "must be a field of Inside itself"),
        (msgspec.defstruct("Odd", [("when", complex)]), "no form can be made of Odd"),
        (skald.Settings(type=New, version=0), "version counts from 1"),
        (skald.Settings(type=New, choices={"town": None}), "'town', which is no field"),  # type: ignore[dict-item]
    ],
)
def test_settings_an_author_got_wrong(kind: Any, words: str) -> None:
    """The sentence names the hook and what to change."""
    with pytest.raises(TypeError, match=words):
        SettingsForm(kind, "skald_config")


def test_the_authors_own_check_is_told() -> None:
    """What ``__post_init__`` raises is a fault of the whole form."""

    class Range(msgspec.Struct):
        low: int = 0
        high: int = 10

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError("low is above high")

    form = SettingsForm(Range, "skald_config")
    instance, errors = form.check({"low": 20}, {})
    assert instance is None
    assert [(e.field, e.params) for e in errors] == [("", {"reason": "low is above high"})]
    assert form.salvage({"low": 20}, {}).instance == Range()
