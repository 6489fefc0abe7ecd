"""The routes of the rules page, in a real Litestar application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from litestar import Litestar, Request
from litestar.testing import AsyncTestClient

import skald_approval
from skald_approval.store import Bypasses
from skald_core import api as skald

ADMIN = skald.User(id="u1", username="ada", display_name="", role="admin", encrypted=True, locale="fr")


@pytest.fixture
async def client(bench: Any) -> AsyncIterator[AsyncTestClient[Litestar]]:
    async def sign_in(request: Request[Any, Any, Any]) -> None:
        request.scope["skald_user"] = ADMIN  # type: ignore[typeddict-unknown-key]  # as the kernel's guard does

    app = Litestar(list(skald_approval.skald_routes(bench.ctx)), before_request=sign_in, logging_config=None)
    async with AsyncTestClient(app) as found:
        yield found


def test_rules_are_for_those_who_may_manage_them(bench: Any) -> None:
    """Every route about rules names the capability; those about one's own bypasses need none."""
    for handler in skald_approval.skald_routes(bench.ctx):
        (path,) = handler.paths
        assert handler.opt.get("capability") == ("approval.manage" if path.startswith("/rules") else None)


async def test_rules(client: AsyncTestClient[Litestar], bench: Any) -> None:
    """Add, list in order, change, delete; each works from the next call on, and open pages hear of it."""
    first = [r["id"] for r in (await client.get("/rules")).json()]
    assert first == ["home-reads", "delegation", "everything-else"]
    body = {"tool": "put_file", "action": "allow", "path": "./drafts//*", "priority": 10, "note": " fine "}
    added = await client.post("/rules", json=body)
    assert added.status_code == 201
    rule = added.json()
    assert (rule["path"], rule["note"], rule["agent"]) == ("drafts/*", "fine", None)
    assert (await client.get("/rules")).json()[0] == rule
    await bench.allowed("put_file", path="drafts/a", text="x")
    await bench.asked("put_file", path="a", text="x")

    changed = await client.put(f"/rules/{rule['id']}", json={**body, "action": "deny"})
    assert changed.json()["action"] == "deny"
    await bench.denied("put_file", path="drafts/a", text="x")

    assert (await client.delete(f"/rules/{rule['id']}")).status_code == 204
    await bench.asked("put_file", path="drafts/a", text="x")
    assert [e["type"] for _, e in bench.kernel.events] == ["plugin.approval.rules_changed"] * 3


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"tool": "", "action": "allow"}, "nom d'un outil"),
        ({"tool": "a b", "action": "allow"}, "nom d'un outil"),
        ({"tool": "@fs_all", "action": "allow"}, "nom d'un outil"),
        ({"tool": "*x", "action": "allow"}, "nom d'un outil"),
        ({"tool": "x", "action": "allow", "path": "/etc/*"}, "chemin"),
        ({"tool": "x", "action": "allow", "path": "../x"}, "chemin"),
        ({"tool": "x", "action": "allow", "path": "a*b"}, "chemin"),
        ({"tool": "x", "action": "allow", "path": "a\\b"}, "chemin"),
        ({"tool": "x", "action": "allow", "path": "a\u202eb"}, "chemin"),
        ({"tool": "x", "action": "allow", "path": "x" * 1025}, "chemin"),
        ({"tool": "x", "action": "allow", "priority": -1}, "Ordre"),
        ({"tool": "x", "action": "allow", "note": "x" * 501}, "500"),
        ({"tool": "*", "action": "allow"}, "déjà une règle"),
        ({"tool": "@fs_read", "path": "~/*", "action": "deny"}, "déjà une règle"),
    ],
)
async def test_rules_that_make_no_sense(
    client: AsyncTestClient[Litestar], bench: Any, body: dict[str, Any], words: str
) -> None:
    """Each is refused with a sentence in the administrator's language; nothing is stored."""
    answer = await client.post("/rules", json=body)
    assert answer.status_code in {409, 422}
    assert words in answer.json()["detail"]
    assert len((await client.get("/rules")).json()) == 3


@pytest.mark.parametrize("body", [{}, {"tool": "x", "action": "maybe"}, {"tool": 5, "action": "allow"}, [], "x"])
async def test_malformed_bodies_are_client_errors(client: AsyncTestClient[Litestar], body: Any) -> None:
    """Missing and odd-typed fields are 4xx, never a server error."""
    for call in (
        client.post("/rules", json=body),
        client.put("/rules/home-reads", json=body),
        client.post("/rules/try", json=body),
    ):
        assert 400 <= (await call).status_code < 500


async def test_rules_that_are_gone(client: AsyncTestClient[Litestar]) -> None:
    """Changing or deleting what another administrator deleted says so."""
    assert (await client.delete("/rules/none")).status_code == 404
    assert (await client.put("/rules/none", json={"tool": "x", "action": "deny"})).status_code == 404


async def test_try(client: AsyncTestClient[Litestar], bench: Any) -> None:
    """'Would this run?' answers like the gate does."""

    async def ask(**body: Any) -> tuple[str, str | None]:
        found = (await client.post("/rules/try", json=body)).json()
        return found["action"], found["rule"] and found["rule"]["id"]

    bench.put("private/x", "")
    assert await ask(tool="read_file", scope="read", path="a.md") == ("allow", "home-reads")
    assert await ask(tool="write_file", scope="write", path="a.md") == ("require", "everything-else")
    assert await ask(tool="execute_cmd") == ("require", "everything-else")
    await client.post("/rules", json={"tool": "@fs_read", "path": "private/x", "action": "deny", "priority": 1})
    assert (await ask(tool="grep_files", scope="read", path="private"))[0] == "deny"
    assert (await ask(tool="grep_files", scope="read", path="~"))[0] == "deny"
    for rule in ("home-reads", "delegation", "everything-else"):
        await client.delete(f"/rules/{rule}")
    assert await ask(tool="anything") == ("require", None)


async def test_bypasses(client: AsyncTestClient[Litestar], bench: Any) -> None:
    """A person sees and takes back what they allowed."""
    await bench.answer(await bench.asked("put_file", path="a", text="x"), "allow_conversation")
    (found,) = (await client.get("/bypasses")).json()
    assert (found["conversation"], found["tool"], found["path"]) == ("c1", "put_file", "~/*")
    assert (await client.delete(f"/bypasses/{found['id']}")).status_code == 204
    assert (await client.delete(f"/bypasses/{found['id']}")).status_code == 404
    assert await Bypasses(bench.ctx, ADMIN).list() == ()
