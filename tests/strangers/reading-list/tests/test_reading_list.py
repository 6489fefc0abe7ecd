"""The plugin in a real Skald."""

from skald_core import api as skald
from skald_core.testing import (
    AppFactory,
    ScriptedProvider,
    call,
    calls,
    hooks_plugin,
    local_plugin,
    run_turn,
    scripted_plugin,
)

PACKAGE = "skald_plugin_reading_list"
URL = "https://example.org/tea"


async def test_the_assistant_saves_and_is_reminded(skald_app: AppFactory) -> None:
    """What it saves with a text is on the list and in the folder; the next turn knows that it is unread."""
    seen = []

    async def skald_after_tool(call: skald.GateCall) -> None:
        assert call.files is not None
        seen.append(await call.files.read_text("reading-list/on-tea.md"))

    reader = hooks_plugin("reader", skald_after_tool=skald_after_tool)
    steps = [calls(call("reading_list_save", {"url": URL, "title": "On tea", "text": "Tea is hot."})), "Saved."]
    turn = await run_turn(skald_app, PACKAGE, reader, say="Keep this", steps=steps)
    assert turn.calls[0]["state"] == "done", turn.calls
    (item,) = await turn.client.get("/api/plugin/reading-list/items")
    assert (item["title"], item["read_at"]) == ("On tea", None)
    assert seen == ["Tea is hot."]


async def test_the_prompt_names_what_is_unread(skald_app: AppFactory, skald_provider: ScriptedProvider) -> None:
    """At most as many titles as the user wants; nothing when they want none."""
    app = await skald_app(local_plugin(PACKAGE), scripted_plugin(skald_provider))
    app.assert_loaded("reading-list")
    await app.add_model()
    ada = await app.client()
    for n in range(4):
        await ada.post("/api/plugin/reading-list/items", {"url": f"{URL}/{n}", "title": f"Tea {n}"})
    skald_provider.add("Hello", "Hello again")
    await ada.run_turn("Hello")
    assert "unread: 4 (Tea 3, Tea 2, Tea 1)" in str(skald_provider.requests[0])
    await ada.put("/api/my/plugins/reading-list/config", {"values": {"at_most": 0}})
    await ada.run_turn("Hello")
    assert "unread:" not in str(skald_provider.requests[1])


async def test_the_slash_command(skald_app: AppFactory, skald_provider: ScriptedProvider) -> None:
    """With nothing unread it says so and sends nothing; else the model reads the list."""
    app = await skald_app(local_plugin(PACKAGE), scripted_plugin(skald_provider))
    await app.add_model()
    ada = await app.client()
    chat = (await ada.post("/api/conversations"))["id"]
    refused = await ada.request("POST", f"/api/conversations/{chat}/messages", {"client_id": "1", "content": "/unread"})
    assert refused.status_code == 422
    assert "nothing unread" in refused.json()["detail"]
    await ada.post("/api/plugin/reading-list/items", {"url": URL, "title": "On tea"})
    skald_provider.add("Tea.")
    await ada.run_turn("/unread about drinks", chat)
    assert "about drinks" in str(skald_provider.requests[0].messages)
    assert f"On tea <{URL}>" in str(skald_provider.requests[0].messages)


async def test_lists_are_private_and_picks_are_not(skald_app: AppFactory) -> None:
    """Sharing needs the capability, which members have from the start."""
    app = await skald_app(local_plugin(PACKAGE))
    ada = await app.client("ada")
    bob = await app.client("bob", role="member")
    item = await bob.post("/api/plugin/reading-list/items", {"url": URL})
    assert await ada.get("/api/plugin/reading-list/items") == []
    assert (await ada.request("POST", f"/api/plugin/reading-list/items/{item['id']}/share")).status_code == 404
    await bob.post(f"/api/plugin/reading-list/items/{item['id']}/share")
    assert [p["url"] for p in await ada.get("/api/plugin/reading-list/picks")] == [URL]
    await ada.patch(f"/api/users/{bob.user['id']}", {"active": False})
    assert await ada.get("/api/plugin/reading-list/picks") == []


async def test_what_is_no_address_is_refused(skald_app: AppFactory) -> None:
    """Scripts and files stay out of the list."""
    app = await skald_app(local_plugin(PACKAGE))
    ada = await app.client()
    for url in ("javascript:alert(1)", "file:///etc/passwd", "", "x" * 3000):
        answer = await ada.request("POST", "/api/plugin/reading-list/items", {"url": url})
        assert answer.status_code == 422, url


async def test_reading_and_removing(skald_app: AppFactory) -> None:
    """Read pages stay on the list, removed ones do not; the health check is well."""
    app = await skald_app(local_plugin(PACKAGE))
    ada = await app.client()
    item = await ada.post("/api/plugin/reading-list/items", {"url": URL})
    await ada.post(f"/api/plugin/reading-list/items/{item['id']}/read")
    (read,) = await ada.get("/api/plugin/reading-list/items")
    assert read["read_at"] is not None
    await ada.delete(f"/api/plugin/reading-list/items/{item['id']}")
    assert await ada.get("/api/plugin/reading-list/items") == []
    (check,) = await ada.post("/api/plugins/reading-list/health")
    assert check["ok"] is True
