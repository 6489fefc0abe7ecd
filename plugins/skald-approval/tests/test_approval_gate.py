"""Judging calls against real databases and files: seeds, questions, answers, bypasses, and every way it can go wrong."""

from __future__ import annotations

from typing import Any

import pytest

import skald_approval
from skald_approval.rules import Rule
from skald_approval.store import Bypasses, Rules
from skald_core import api as skald
from skald_core.db.migrations import apply_migrations
from skald_core.loop.database import Connection


async def add_rule(
    bench: Any, action: str, tool: str = "*", path: str | None = None, priority: int = 1, **more: Any
) -> None:
    rule = Rule(id=f"{priority}{action}{tool}{path}", priority=priority, tool=tool, path=path, action=action, **more)  # type: ignore[arg-type]
    await Rules(bench.ctx).save(rule)


async def test_seeds(bench: Any, tmp_path: Any) -> None:
    """Reading in the home just happens, also of the home itself; everything else asks."""
    bench.put("notes/a.md", "x\n")
    await bench.allowed("look_at", path="notes/a.md")
    await bench.allowed("look_at", path="~")
    await bench.allowed("look_at", path="not/there")
    await bench.asked("look_at")
    await bench.asked("put_file", path="notes/a.md", text="y\n")
    await bench.asked("run_program", command="ls")
    kitchen = tmp_path / "kitchen"
    kitchen.mkdir()
    bench.fs.set_mounts([skald.Mount("shared/kitchen", kitchen)])
    await bench.asked("look_at", path="shared/kitchen/x")


async def test_seeds_come_once(bench: Any) -> None:
    """A deleted seed stays deleted when the server starts again."""
    assert await Rules(bench.ctx).delete("home-reads")
    (registry, _) = skald_approval.skald_schema()
    await apply_migrations(bench.kernel.system_db, "approval", registry.migrations, prefix="approval_")
    assert [rule.id for rule in await Rules(bench.ctx).load()] == ["delegation", "everything-else"]
    await bench.asked("look_at", path="a")


async def test_the_question(bench: Any) -> None:
    """The card has the diff of what the call would do; the choices come in a fixed order; deny takes a note."""
    bench.put("a.md", "one\ntwo\n")
    require = await bench.asked("put_file", path="./a.md", text="one\n2\n")
    assert require.reason == "Changes to files are asked about first."
    assert require.details == {
        "risk": "medium",
        "changes": [
            {"path": "a.md", "kind": "overwrite", "diff": "@@ -1,2 +1,2 @@\n one\n-two\n+2\n", "added": 1, "removed": 1}
        ],
    }
    assert [(c.id, c.allow, c.note) for c in require.choices] == [
        ("allow_once", True, False),
        ("allow_conversation", True, False),
        ("deny", False, True),
    ]
    assert (bench.home / "a.md").read_text() == "one\ntwo\n"


async def test_the_reason_is_in_the_persons_language(bench: Any) -> None:
    """A rule's own note comes first; without one the reason is in the language of whom it asks."""
    italian = skald.User(id="u1", username="ada", display_name="", role="member", encrypted=True, locale="it")
    assert "modifiche" in (await bench.asked("put_file", path="a", text="x", user=italian)).reason
    await add_rule(bench, "require", "put_file", note="Ask before touching anything here.")
    assert (
        await bench.asked("put_file", path="a", text="x", user=italian)
    ).reason == "Ask before touching anything here."


async def test_denial(bench: Any) -> None:
    """A denied call is refused with the note and with what not to do; its preview is never made."""

    class Explodes(type(bench.call("put_file", path="x", text="").tool)):  # type: ignore[misc]
        async def preview(self, arguments: Any, ctx: skald.ToolContext) -> tuple[skald.FileChange, ...]:
            raise AssertionError("not asked for")

    await add_rule(bench, "deny", "@fs_write", "taxes/*", note="The tax folder is done by hand.")
    reason = await bench.denied(Explodes(), path="~/taxes/2026.csv", text="x")
    assert "does not allow put_file on 'taxes/2026.csv'" in reason
    assert "The tax folder is done by hand." in reason
    assert "another way" in reason
    await bench.asked("put_file", path="taxes-old/2026.csv", text="x")


@pytest.mark.parametrize(
    "path", ["private/x", "./private/x", "~/private/x", "/root/private/x", "a/../private/x", "private//x"]
)
async def test_every_spelling_of_a_path_meets_the_same_rule(bench: Any, path: str) -> None:
    """A rule about a folder cannot be avoided by writing the path differently."""
    await add_rule(bench, "deny", "@fs_any", "private/*")
    await bench.denied("look_at", path=path)
    await bench.denied("put_file", path=path, text="x")


async def test_a_search_around_a_closed_folder_is_refused(bench: Any) -> None:
    """The folder is looked up on the disk: a file of that name would not be one, a folder is."""
    bench.put("docs/private/x", "")
    bench.put("docs/public/x", "")
    await add_rule(bench, "deny", "@fs_read", "docs/private/*")
    assert "Part of that folder is closed" in await bench.denied("look_at", path="docs")
    await bench.denied("look_at", path="~")
    await bench.allowed("look_at", path="docs/public")
    await bench.allowed("look_at", path="docs/public/x")


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a\0b", "a\\b"])
async def test_a_path_that_is_none_is_refused_with_the_files_own_words(bench: Any, path: str) -> None:
    """Nobody is asked about a call that could only fail."""
    reason = await bench.denied("look_at", path=path)
    with pytest.raises(skald.FilesError) as error:
        bench.fs.display(path)
    assert reason == str(error.value)


async def test_a_call_that_would_fail_is_refused_with_the_tools_words(bench: Any) -> None:
    """The person is not bothered, the model learns why, and the call does not run in case it works by then."""
    (bench.home / "dir").mkdir()
    assert "is a folder" in await bench.denied("put_file", path="dir", text="x")


async def test_a_tool_whose_preview_is_broken_is_asked_about(bench: Any) -> None:
    """A bug in showing the effect neither allows nor denies: the person decides, without a diff."""

    class Broken(type(bench.call("put_file", path="x", text="").tool)):  # type: ignore[misc]
        async def preview(self, arguments: Any, ctx: skald.ToolContext) -> tuple[skald.FileChange, ...]:
            raise RuntimeError("a bug")

    require = await bench.asked(Broken(), path="x", text="y")
    assert require.details == {"risk": "medium"}
    with pytest.raises(RuntimeError):  # and when it is answered, what cannot be shown is not run
        await bench.answer(require, "allow_once")


async def test_allow_once_is_once(bench: Any) -> None:
    """The next call asks again."""
    await bench.answer(await bench.asked("put_file", path="a", text="x"), "allow_once")
    await bench.asked("put_file", path="a", text="x")
    assert await Bypasses(bench.ctx, bench.call("look_at").user).list() == ()


async def test_allow_for_this_conversation(bench: Any) -> None:
    """It covers the same tool, agent and place in that conversation, survives a restart, and nothing more."""
    await bench.answer(await bench.asked("put_file", path="a", text="x"), "allow_conversation")
    bench.ctx = bench.fresh_context()
    await bench.allowed("put_file", path="other/b", text="y")
    await bench.asked("put_file", path="a", text="x", conversation="c2")
    await bench.asked("put_file", path="a", text="x", agent="helper")
    await bench.asked("put_file", path="a", text="x", interactive=False)
    await bench.asked("run_program", command="ls")
    await add_rule(bench, "deny", "put_file", "a")
    await bench.denied("put_file", path="a", text="x")


async def test_a_bypass_stays_in_its_mount(bench: Any, tmp_path: Any) -> None:
    """What was allowed in one's own home is not allowed in a folder shared with others."""
    kitchen = tmp_path / "kitchen"
    kitchen.mkdir()
    bench.fs.set_mounts([skald.Mount("shared/kitchen", kitchen)])
    await bench.answer(await bench.asked("put_file", path="a", text="x"), "allow_conversation")
    shared = await bench.asked("put_file", path="shared/kitchen/a", text="x")
    await bench.answer(shared, "allow_conversation")
    await bench.allowed("put_file", path="shared/kitchen/deep/b", text="x")
    assert {b.path for b in await Bypasses(bench.ctx, bench.call("look_at").user).list("c1")} == {
        "~/*",
        "shared/kitchen/*",
    }


async def test_a_bypass_for_a_tool_without_a_path(bench: Any) -> None:
    """Other tools can be allowed for a conversation too, each for itself."""
    await bench.answer(await bench.asked("run_program", command="ls"), "allow_conversation")
    await bench.allowed("run_program", command="rm -r x")
    await bench.asked("put_file", path="a", text="x")


async def test_bypasses_expire_and_can_be_taken_back(bench: Any) -> None:
    """An expired or deleted bypass asks again; renewing keeps one entry."""
    bypasses = Bypasses(bench.ctx, bench.call("look_at").user)
    for seconds in (50, 100):
        await bypasses.add(conversation="c1", agent="main", tool="put_file", path="~/*", seconds=seconds)
    (found,) = await bypasses.list("c1")
    assert found.expires_at == bench.kernel.clock + 100
    await bench.allowed("put_file", path="a", text="x")
    bench.kernel.clock += 100
    await bench.asked("put_file", path="a", text="x")
    await bypasses.add(conversation="c1", agent="main", tool="put_file", path="")
    (found,) = await bypasses.list()
    assert await bypasses.delete(found.id)
    assert not await bypasses.delete(found.id)
    await bench.asked("put_file", path="a", text="x")


async def test_unattended_runs_are_asked_about_without_a_bypass_on_offer(bench: Any) -> None:
    """The request parks in the inbox; what would not apply is not offered."""
    require = await bench.asked("put_file", path="a", text="x", interactive=False)
    assert [c.id for c in require.choices] == ["allow_once", "deny"]
    assert require.details["changes"][0]["kind"] == "create"


async def test_a_file_that_changed_before_the_answer_is_not_run(bench: Any) -> None:
    """The person agreed to a diff; when it would be another by now, the answer is an error, and nothing is remembered."""
    bench.put("a", "one\n")
    require = await bench.asked("put_file", path="a", text="two\n")
    bench.put("a", "somebody else\n")
    with pytest.raises(skald.ToolError, match="'a' was changed after this call was shown"):
        await bench.answer(require, "allow_conversation")
    assert await Bypasses(bench.ctx, bench.call("look_at").user).list() == ()
    again = await bench.asked("put_file", path="a", text="two\n")
    await bench.answer(again, "allow_once")


async def test_that_holds_over_a_restart(bench: Any) -> None:
    """After a restart the call is judged anew while the old card is still in the inbox: the old card counts."""
    bench.put("a", "one\n")
    await bench.asked("put_file", path="a", text="two\n", call_id=77)
    bench.ctx = bench.fresh_context()
    bench.put("a", "somebody else\n")
    resumed = await bench.asked("put_file", path="a", text="two\n", call_id=77)
    with pytest.raises(skald.ToolError, match="was changed after"):
        await bench.answer(resumed, "allow_once")
    bench.put("b", "one\n")
    await bench.asked("put_file", path="b", text="two\n", call_id=78)
    bench.ctx = bench.fresh_context()
    await bench.answer(await bench.asked("put_file", path="b", text="two\n", call_id=78), "allow_once")
    rows = await bench.kernel.owner.read(lambda c: c.execute("SELECT count(*) FROM approval_shown").fetchone()[0])
    assert rows == 0


async def test_another_persons_edit_of_the_call_is_another_request(bench: Any) -> None:
    """A call whose arguments were changed (by a hook, or by the person) is not held to the first arguments' effect."""
    await bench.asked("put_file", path="a", text="one\n", call_id=80)
    await bench.answer(await bench.asked("put_file", path="a", text="two\n", call_id=80), "allow_once")


async def test_deny_remembers_nothing(bench: Any) -> None:
    """A no needs no check of the file and leaves nothing behind."""
    bench.put("a", "one\n")
    require = await bench.asked("put_file", path="a", text="two\n")
    bench.put("a", "changed\n")
    await bench.answer(require, "deny", note="not now")
    rows = await bench.kernel.owner.read(
        lambda c: c.execute(
            "SELECT (SELECT count(*) FROM approval_shown)+(SELECT count(*) FROM approval_bypasses)"
        ).fetchone()[0]
    )
    assert rows == 0


async def test_rules_that_cannot_be_read_ask(bench: Any) -> None:
    """Fail closed: with a broken rules table even reading asks, and says why."""
    await bench.kernel.system_db.write(lambda c: c.execute("DROP TABLE approval_rules"))
    require = await bench.asked("look_at", path="a")
    assert "cannot be read" in require.reason
    await bench.asked("put_file", path="a", text="x")


async def test_a_locked_user_is_asked(bench: Any) -> None:
    """Without the user's database nothing counts as allowed in advance; the question itself still works."""
    await bench.answer(await bench.asked("put_file", path="a", text="x"), "allow_conversation")
    bench.kernel.locked = True
    require = await bench.asked("put_file", path="a", text="x")
    await bench.answer(require, "allow_once")
    bench.put("a", "changed")
    with pytest.raises(skald.ToolError):
        await bench.answer(require, "allow_once")


async def test_a_bypass_that_cannot_be_stored_allows_this_once(bench: Any) -> None:
    """A full disk at that moment does not turn a yes into a no."""
    require = await bench.asked("put_file", path="a", text="x")

    def break_table(c: Connection) -> None:
        c.execute("DROP TABLE approval_bypasses")

    await bench.kernel.owner.write(break_table)
    await bench.answer(require, "allow_conversation")
    await bench.asked("put_file", path="a", text="x")


async def test_one_users_bypass_is_not_anothers(bench: Any) -> None:
    """Bypasses live in each user's own database; a user without an open one is asked."""
    await bench.answer(await bench.asked("put_file", path="a", text="x"), "allow_conversation")
    other = skald.User(id="u2", username="bob", display_name="", role="member", encrypted=False)
    await bench.asked("put_file", path="a", text="x", user=other)


async def test_skald_conversation_deleted(bench: Any) -> None:
    """What was allowed and shown in a deleted conversation is gone; another conversation keeps its own."""
    for conversation in ("c1", "c2"):
        require = await bench.asked("run_program", conversation=conversation, command="ls")
        await bench.answer(require, "allow_conversation")
        await bench.allowed("run_program", conversation=conversation, command="ls -l")
        await bench.asked("put_file", conversation=conversation, path="a.md", text="x\n")
    user = bench.call("look_at").user
    await skald_approval.skald_conversation_deleted(bench.ctx, user, "c1")
    await bench.asked("run_program", conversation="c1", command="ls")
    await bench.allowed("run_program", conversation="c2", command="ls")
    query = "SELECT conversation FROM approval_shown ORDER BY conversation"
    shown = await bench.ctx.owner_tables(user).read(lambda c: [row[0] for row in c.execute(query)])
    assert shown == ["c1", "c2"]  # of c1 only what was asked about since
