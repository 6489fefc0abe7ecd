"""Folders plugins show beside a home: there for the file tools, bounded by what was granted, and gone when they should be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skald_core import api as skald
from skald_core.chat import mounts as chat_mounts
from skald_core.testing import AppFactory, ScriptedProvider, call, calls, local_plugin, scripted_plugin
from tests.support.asking import context_of
from tests.support.plugins import allowing, made

Folders = Callable[[skald.User], Any]


def mounting(plugin_id: str, folders: Folders, contexts: list[skald.PluginContext] | None = None) -> Any:
    def skald_mounts(ctx: skald.PluginContext, user: skald.User) -> Any:
        if contexts is not None:
            contexts.append(ctx)
        return folders(user)

    return made(plugin_id, skald_mounts)


def folder(tmp_path: Path, name: str, **files: str) -> Path:
    made_folder = tmp_path / name
    made_folder.mkdir(parents=True)
    for stem, content in files.items():
        (made_folder / f"{stem}.md").write_text(content)
    return made_folder


async def test_skald_mounts(skald_app: AppFactory, tmp_path: Path) -> None:
    """The file tools read and write in what is mounted, only where it may be written; nothing of the host's path is told."""
    shared = folder(tmp_path, "shared", list="milk")
    manual = folder(tmp_path, "manual", intro="welcome")

    def folders(user: skald.User) -> list[skald.Mount]:
        return [skald.Mount("shared/kitchen", shared), skald.Mount("docs", manual, writable=False)]

    provider = ScriptedProvider(
        [
            calls(
                call("read_file", {"path": "docs/intro.md"}),
                call("read_file", {"path": "shared/kitchen/list.md"}),
                call("write_file", {"path": "shared/kitchen/new.md", "content": "eggs"}),
                call("write_file", {"path": "docs/new.md", "content": "no"}),
                call("list_files", {"path": "~"}),
            ),
            "done",
        ]
    )
    app = await skald_app(
        scripted_plugin(provider), local_plugin("skald_tools_fs"), allowing(), mounting("folders", folders)
    )
    await app.add_model()
    client = await app.client()
    messages = await client.run_turn("go")
    intro, listed, written, refused, home = messages[1]["calls"]
    assert "welcome" in intro["result"]
    assert "milk" in listed["result"]
    assert written["state"] == "done", written["result"]
    assert (shared / "new.md").read_text() == "eggs"
    assert refused["state"] in ("failed", "rejected")
    assert not (manual / "new.md").exists()
    assert "docs" in home["result"]
    assert "shared" in home["result"]
    assert str(tmp_path) not in str(messages)


async def test_mounts_are_gone_before_a_disable_or_a_revocation_answers(skald_app: AppFactory, tmp_path: Path) -> None:
    """And there again before an enable or a grant answers; other users and other plugins keep theirs."""
    one, two = folder(tmp_path, "one"), folder(tmp_path, "two")
    app = await skald_app(
        mounting("first", lambda user: [skald.Mount("first", one)]),
        mounting("second", lambda user: [skald.Mount("second", two)]),
    )
    ada, bo = await app.client(), await app.client("bo", "member")
    assert bo.user is not None
    files = {name: (await context_of(app, client)).files for name, client in (("ada", ada), ("bo", bo))}

    def there(name: str) -> list[str]:
        return [prefix for prefix in ("first", "second") if files[name].mount_of(f"{prefix}/x") == prefix]

    assert (there("ada"), there("bo")) == (["first", "second"], ["first", "second"])
    await ada.put("/api/plugins/first/access", {"users": {bo.user["id"]: False}})
    assert (there("ada"), there("bo")) == (["first", "second"], ["second"])
    await ada.post("/api/plugins/second/disable")
    assert (there("ada"), there("bo")) == (["first"], [])
    await ada.put("/api/plugins/first/access", {"users": {bo.user["id"]: None}})
    await ada.post("/api/plugins/second/enable")
    assert (there("ada"), there("bo")) == (["first", "second"], ["first", "second"])
    assert app.skald.files_for(app.skald.open_contexts()[0].user).mount_of("first/x") == "first"  # what plugins get


async def test_a_plugin_changes_its_mounts(skald_app: AppFactory, tmp_path: Path) -> None:
    """``ctx.mounts_changed`` asks again for that user; awaited, the change holds. A user nobody opened is no error."""
    shared, contexts = folder(tmp_path, "shared"), list[skald.PluginContext]()
    granted: set[str] = set()
    app = await skald_app(
        mounting("folders", lambda user: [skald.Mount("shared", shared)] if user.username in granted else [], contexts)
    )
    ada, bo = await app.client(), await app.client("bo", "member")
    assert ada.user is not None
    files = (await context_of(app, ada)).files
    assert files.mount_of("shared/x") == ""
    granted.update(("ada", "bo"))
    await contexts[0].mounts_changed(ada.user["id"])
    assert files.mount_of("shared/x") == "shared"
    assert (await context_of(app, bo)).files.mount_of("shared/x") == ""  # not asked about
    granted.clear()
    await contexts[0].mounts_changed(ada.user["id"])
    assert files.mount_of("shared/x") == ""
    await contexts[0].mounts_changed("nobody")


async def test_what_does_not_fit_is_left_out_and_shown(skald_app: AppFactory, tmp_path: Path) -> None:
    """The second at one place, one in place of the home, a path that leads out; the others of the same plugin work. The
    problem goes when its cause does."""
    one, two = folder(tmp_path, "one", a="first"), folder(tmp_path, "two", a="second")
    app = await skald_app(
        mounting("first", lambda user: [skald.Mount("docs", one)]),
        mounting(
            "second",
            lambda user: [
                skald.Mount("./docs/", two),
                skald.Mount("", two),
                skald.Mount("../out", two),
                skald.Mount("mine", two),
            ],
        ),
    )
    client = await app.client()
    files = (await context_of(app, client)).files
    assert await files.read_text("docs/a.md") == "first"
    assert files.mount_of("mine/a.md") == "mine"
    assert files.mount_of("") == ""

    def problems() -> str:
        return "\n".join(app.skald.plugins.problems(app.skald.plugins.rows["second"]))

    assert "'first' has one there already" in problems()
    assert "place of the home" in problems()
    assert "out" in problems()
    await app.skald.plugins.disable("first")
    assert await files.read_text("docs/a.md") == "second"
    assert "'first'" not in problems()
    await app.skald.plugins.enable("first")
    assert await files.read_text("docs/a.md") == "second"  # the one that is there keeps its place
    assert "'second' has one" in "\n".join(app.skald.plugins.rows["first"].problems)


@pytest.mark.parametrize("value", ["text", [1], "relative", "hangs", "raises"])
async def test_a_failing_plugin_mounts_nothing(
    skald_app: AppFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: Any
) -> None:
    """An exception, a hook that never returns, a wrong type: shown with the plugin, and the others' folders are there."""
    monkeypatch.setattr(chat_mounts, "MOUNT_SECONDS", 0.01)

    async def skald_mounts(user: skald.User) -> Any:
        if value == "hangs":
            await asyncio.Event().wait()
        if value == "raises":
            raise RuntimeError("no")
        return [skald.Mount("bad", Path("relative"))] if value == "relative" else value

    good = folder(tmp_path, "good")
    app = await skald_app(made("bad", skald_mounts), mounting("good", lambda user: [skald.Mount("good", good)]))
    client = await app.client()
    files = (await context_of(app, client)).files
    assert files.mount_of("good/x") == "good"
    assert files.mount_of("bad/x") == ""
    error = app.skald.plugins.rows["bad"].error
    assert error is not None
    assert "skald_mounts" in error.message
