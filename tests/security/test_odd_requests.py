"""Input nobody should send, sessions that end, and what is left behind: defects the isolation program found, each once."""

import logging
from typing import Any

import pytest

from skald_core.runtime.feed import Subscriber
from skald_core.server.guards import COOKIE
from skald_core.server.sockets import _cookie
from skald_core.testing import AppFactory, ScriptedProvider, TestApp, TestClient, call, calls, scripted_plugin, text
from tests.support.plugins import allowing, with_tools

HUGE = "1" + "0" * 40
DEEP = "[" * 100_000
PASSWORD = "correct horse battery"


@pytest.fixture
async def app(skald_app: AppFactory) -> TestApp:
    return await skald_app()


async def _post(client: TestClient, path: str, body: str, media_type: str = "application/json") -> Any:
    return await client.http.post(path, content=body, headers={"content-type": media_type})


@pytest.mark.parametrize("body", [DEEP, f'{{"title":"x","more":{DEEP}', f'{{"title":{DEEP}'])
async def test_nesting_without_end_is_refused(app: TestApp, body: str) -> None:
    """A body that is nested too deeply to be read is the client's fault, not the server's."""
    answer = await _post(await app.client(), "/api/conversations", body)
    assert (answer.status_code, answer.json()["code"]) == (422, "bad_input")


async def test_numbers_no_column_takes_are_refused(app: TestApp) -> None:
    """In paths, queries, cursors and bodies. What names nothing at all may just as well be a page with nothing on it."""
    client = await app.client()
    made = (await client.post("/api/conversations", {}))["id"]
    for method, path, body in (
        ("GET", f"/api/conversations?before={HUGE}~1~x", None),
        ("GET", f"/api/conversations/{made}/messages?before={HUGE}", None),
        ("DELETE", f"/api/conversations/{made}/messages/{HUGE}", None),
        ("DELETE", f"/api/conversations/{made}/queue/{HUGE}", None),
        ("POST", f"/api/conversations/{made}/head", {"message": int(HUGE)}),
    ):
        answer = await client.request(method, path, body)
        nothing = method == "GET" and answer.status_code == 200 and answer.json()["items"] == []
        assert nothing or 400 <= answer.status_code < 500, (method, path, answer.text)


async def test_a_body_that_is_no_json_is_refused_where_a_body_is_optional(app: TestApp) -> None:
    """Stopping takes no body or an object; anything else is said to be wrong."""
    client = await app.client()
    made = (await client.post("/api/conversations", {}))["id"]
    answer = await _post(client, f"/api/conversations/{made}/stop", "--x\r\n", "multipart/form-data")
    assert (answer.status_code, answer.json()["code"]) == (422, "bad_input")


async def test_a_name_no_file_system_takes_is_no_page(app: TestApp) -> None:
    """A NUL in the path of a file."""
    assert (await app.anonymous().http.get("/assets/%00.js")).status_code == 404


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("b@d=1; skald_session=abc", "abc"),
        ("a[]=1;skald_session=abc; x", "abc"),
        ('"; other=1', None),
        ("skald_session", ""),
        ("xskald_session=abc", None),
    ],
)
def test_cookies_of_others_do_not_hide_ours_from_the_socket(header: str, token: str | None) -> None:
    """What other programs of this host set beside the session neither hides it nor breaks the handshake."""
    scope: Any = {"headers": [(b"cookie", header.encode())]}
    assert _cookie(scope) == token


async def test_signing_out_ends_the_sockets_of_that_session_alone(app: TestApp) -> None:
    """An open page of a browser that signed out hears nothing more; the other devices go on."""
    here, there = await app.client("bo", "member"), app.anonymous()
    await there.post("/api/auth/login", {"username": "bo", "password": PASSWORD})
    user = await app.skald.users.get(str(here.user["id"]))
    feed = (await app.skald.context(user)).feed
    mine, other = (Subscriber(session=client.http.cookies[COOKIE]) for client in (here, there))
    feed.attach(mine)
    feed.attach(other)
    await here.request("POST", "/api/auth/logout")
    assert mine.closed_reason == "signed_out"
    assert other.closed_reason == ""


async def test_what_is_deleted_is_overwritten(skald_app: AppFactory) -> None:
    """A conversation somebody deletes is not left in the free pages of a file that is not encrypted."""
    word = "unmistakable-7d1f"
    app = await skald_app(scripted_plugin(ScriptedProvider([text(f"about {word}")])))
    await app.add_model()
    client = await app.client()
    await client.run_turn(f"tell me about {word}")
    (conversation,) = (await client.get("/api/conversations"))["items"]
    path = app.skald.vault.path(str(client.user["id"]))
    await client.delete(f"/api/conversations/{conversation['id']}")
    await app.stop()
    assert word.encode() not in path.read_bytes()


async def test_the_log_tells_where_a_tool_broke_and_not_what_it_worked_on(
    skald_app: AppFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """What an exception says may be somebody's own words: the model and its person read them, the log does not."""
    from skald_core import api as skald

    @skald.tool(scope="read")
    async def break_down(text: str) -> str:
        """Fail.

        text: what the failure tells
        """
        raise RuntimeError(f"cannot work with {text}")

    provider = ScriptedProvider([calls(call("break_down", {"text": "my secret"})), text("sorry")])
    app = await skald_app(scripted_plugin(provider), with_tools(break_down), allowing())
    await app.add_model()
    with caplog.at_level(logging.INFO):
        messages = await (await app.client()).run_turn("go")
    assert "RuntimeError: cannot work with my secret" in str(messages)
    assert "tool 'break_down' failed with RuntimeError" in caplog.text
    assert "in break_down" in caplog.text
    assert "my secret" not in caplog.text
