"""The plugin against a real server of bare sockets."""

import pytest

from skald_core import api as skald
from skald_core.testing import AppFactory, TestClient, allow_all, local_plugin, tools_plugin
from skald_core.testing.servers import RawServer, Wire, replies

PACKAGE = "skald_plugin_parley"


@skald.tool(scope="read")
async def dice(sides: int) -> str:
    """Throw a die."""
    return f"4 of {sides}"


async def calls_a_tool(wire: Wire) -> None:
    await wire.lines(
        {"call": {"id": "a", "name": "dice", "arguments": {"sides": 6}}}, {"end": "call", "in": 5, "out": 2}
    )


async def says_it(wire: Wire) -> None:
    await wire.lines({"say": "A "}, {"say": "four."}, {"end": "stop", "in": 9, "out": 3})


async def breaks_off(wire: Wire) -> None:
    await wire.lines({"say": "A "})


async def add_server(admin: TestClient, url: str) -> None:
    provider = await admin.post("/api/providers", {"type": "parley", "name": "P", "settings": {"base_url": url}})
    await admin.post("/api/models", {"provider": provider["id"], "model": "polly", "title": "Polly"})


async def test_a_turn_with_a_tool(skald_app: AppFactory) -> None:
    """The call runs, its result goes back, the answer comes, and both requests are counted."""
    app = await skald_app(local_plugin(PACKAGE), tools_plugin(dice), allow_all())
    app.assert_loaded("parley")
    ada = await app.client()
    async with RawServer() as server:
        server.answer(calls_a_tool, says_it)
        await add_server(ada, server.url)
        messages = await ada.run_turn("Throw a die")
    assert messages[-1]["content"] == "A four."
    assert {"from": "tool", "id": "a", "say": "4 of 6"} in server.heard[1].body["messages"]
    (used,) = await ada.get("/api/plugin/parley/usage")
    assert (used["model"], used["calls"]) == ("polly", 2)


async def test_the_key_is_sent_and_never_shown(skald_app: AppFactory) -> None:
    """Saved under the plugin's settings, it goes with every request; the form only tells that there is one."""
    app = await skald_app(local_plugin(PACKAGE), allow_all())
    ada = await app.client()
    async with RawServer() as server:
        server.answer(says_it)
        await add_server(ada, server.url)
        await ada.run_turn("Hello")
        await ada.put("/api/plugins/parley/config", {"values": {"key": "s3cret"}})
        await ada.run_turn("Hello")
    assert [heard.headers.get("authorization") for heard in server.heard] == [None, "Bearer s3cret"]
    form = await ada.get("/api/plugins/parley/config")
    assert (form["values"], form["secrets"]) == ({}, {"key": True})


async def test_a_broken_stream_is_no_answer(skald_app: AppFactory) -> None:
    app = await skald_app(local_plugin(PACKAGE), allow_all())
    ada = await app.client()
    async with RawServer() as server:
        server.answer(breaks_off)
        await add_server(ada, server.url)
        messages = await ada.run_turn("Throw a die")
    assert messages[-1]["error"]["kind"] == "network"


@pytest.mark.parametrize(("status", "kind"), [("404 Not Found", "model_gone"), ("503 Busy", "server")])
async def test_what_the_server_says_is_understood(skald_app: AppFactory, status: str, kind: str) -> None:
    app = await skald_app(local_plugin(PACKAGE))
    ada = await app.client()
    async with RawServer() as server:
        server.answer(replies("{}", status))
        tried = await ada.post("/api/providers/test", {"type": "parley", "settings": {"base_url": server.url}})
    assert tried["error"]["kind"] == kind
