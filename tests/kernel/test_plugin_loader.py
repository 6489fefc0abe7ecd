"""What a plugin can do while it is loaded, run and replaced, and what that does to everybody else: nothing."""

import asyncio
import logging
import sys
import threading
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import skald_core
from skald_core.db import schema
from skald_core.db.migrations import apply_migrations
from skald_core.loop.database import Database
from skald_core.plugins.deprecations import warn_deprecated
from skald_core.plugins.lifecycle import Limits
from skald_core.plugins.phases import interrupted_after
from tests.support.plugin_bench import GOOD, Bench


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    database = await Database.open(tmp_path / "system.db")
    await apply_migrations(database, "kernel", schema.REGISTRY)
    yield Bench(database, tmp_path, monkeypatch)
    await database.close()


QUICK = Limits(slow=0.05, give_up=0.3)


@pytest.mark.parametrize(
    ("source", "phase"),
    [
        ("import time\nwhile True: time.sleep(0.01)", "import"),
        ("@hookimpl\ndef skald_tools():\n    while True: pass", "register"),
        ("import time\n@hookimpl\ndef skald_tools(): time.sleep(3600)", "register"),
        ("import asyncio\n@hookimpl\nasync def skald_tools(): await asyncio.Event().wait()", "register"),
        ("@hookimpl\nasync def skald_startup():\n    while True: pass", "start"),
        (
            (
                "import time\n@hookimpl\ndef skald_startup():\n    while True:\n        try:\n            time.sleep(3600)\n"
                "        except Exception as error: caught.append(error)\n        if len(caught) > 1: break\ncaught = []"
            ),
            "running",
        ),
    ],
    ids=["import", "busy hook", "sleeping hook", "waiting hook", "busy async hook", "hook that catches it"],
)
async def test_what_never_returns_is_given_up(
    bench: Bench, source: str, phase: str, caplog: Any, request: pytest.FixtureRequest
) -> None:
    """An import, a busy loop, a sleeping system call, an endless wait: each ends with its reason, and the others start."""
    plugin_id = f"aa-{request.node.callspec.id.replace(' ', '-')}"  # a stuck import keeps its module's lock for good
    bench.write(plugin_id, source)
    bench.write("good", GOOD)
    with caplog.at_level(logging.WARNING):
        plugins = await bench.boot(limits=QUICK)
        await plugins.settled()
    row = plugins.rows[plugin_id]
    assert plugins.rows["good"].state == "running"
    if phase == "running":  # interrupted again and again until it let go
        assert row.state == "running"
        return
    assert row.state == "failed"
    assert row.error is not None
    assert row.error.phase == phase
    assert "0.3 s" in row.error.message
    assert plugin_id in caplog.text


async def test_a_slow_plugin_does_not_hold_up_the_others(bench: Bench) -> None:
    """The start goes on without it; it says so, runs when it is ready, and takes its place then."""
    bench.write(
        "aa-slow",
        """
        import asyncio
        ready = asyncio.Event()
        @hookimpl
        async def skald_startup(ctx): await ready.wait()
        """,
        extra='[contributes]\nhooks = ["skald_startup"]',
    )
    bench.write("good", GOOD)
    plugins = await bench.boot(limits=Limits(slow=0.05, give_up=30))
    row = plugins.rows["aa-slow"]
    assert (row.state, plugins.rows["good"].state) == ("starting", "running")
    assert any("went on without it" in problem for problem in row.problems)
    told: list[str] = []

    async def changed(plugin_id: str) -> None:
        told.append(plugin_id)

    plugins.changed = changed
    sys.modules["bench_aa_slow"].ready.set()
    await plugins.settled()
    assert (row.state, row.problems, told) == ("running", [], ["aa-slow"])


async def test_a_plugin_that_is_being_started_can_be_disabled(bench: Bench) -> None:
    """Nobody has to wait for a start to give up."""
    bench.write("stuck", "import asyncio\n@hookimpl\nasync def skald_startup(): await asyncio.Event().wait()")
    plugins = await bench.boot(bundled=frozenset())
    starting = asyncio.create_task(plugins.enable("stuck"))
    while plugins.rows["stuck"].state != "starting" or not plugins.dispatcher.hooks_of("stuck"):
        await asyncio.sleep(0)
    await plugins.disable("stuck")
    assert (await starting).state == "disabled"
    assert plugins.dispatcher.hooks_of("stuck") == []
    assert not (bench.folder / "plugins.loading").exists()


async def test_only_the_main_thread_is_interrupted() -> None:
    """Elsewhere there are no signals: the guard does nothing there, and nothing is left armed here."""
    done: list[bool] = []

    def work() -> None:
        with interrupted_after(0.001, 0.001, lambda: None):
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]


async def test_blocked_plugins_do_not_run_and_may_come_back(bench: Bench) -> None:
    """A block stops what runs, is stored and shown with its reason, and its end lets the plugin go on."""
    bench.write("good", GOOD)
    plugins = await bench.boot()
    reasons: dict[str, str] = {"good": "it steals keys"}
    plugins.block_reason = lambda found: reasons.get(found.id)
    await plugins.recheck_blocked()
    row = plugins.rows["good"]
    assert (row.state, plugins.visible_to("anyone")) == ("blocked", frozenset())
    assert row.error is not None
    assert row.error.message == "it steals keys"
    stored = await bench.db.read(lambda c: c.execute("SELECT state FROM plugins").fetchall())
    assert stored == [("blocked",)]
    await plugins.enable("good")
    assert row.state == "blocked"
    reasons.clear()
    await plugins.recheck_blocked()
    assert row.state == "running"


async def test_every_end_of_a_state_is_told(bench: Bench) -> None:
    """Open catalogs load again for a plugin that could not start, and when one that failed is disabled; not for nothing."""
    bench.write("bad", "raise RuntimeError('no')")
    bench.write("good", GOOD)
    plugins = await bench.boot(bundled=frozenset())
    told: list[tuple[str, str]] = []

    async def changed(plugin_id: str) -> None:
        told.append((plugin_id, plugins.rows[plugin_id].state))

    plugins.changed = changed
    await plugins.enable("bad")
    for _ in range(2):
        await plugins.disable("bad")
    plugins.block_reason = lambda found: "it steals keys"
    await plugins.enable("good")
    assert told == [("bad", "failed"), ("bad", "disabled"), ("good", "blocked")]
    stored = await bench.db.read(lambda c: c.execute("SELECT id, state FROM plugins ORDER BY id").fetchall())
    assert stored == [("bad", "disabled"), ("good", "blocked")]


NOTES = """
@hookimpl
def skald_schema(ctx):
    return [Schema("registry", ({steps}))]
"""


def _steps(*sql: str) -> str:
    return NOTES.format(steps="".join(f"Migration({n}, {text!r})," for n, text in enumerate(sql, 1)))


async def test_a_ledger_ahead_of_the_code_refuses_to_start(bench: Bench) -> None:
    """After a downgrade the plugin stays off, untouched, and says which version wrote its data."""
    bench.write("notes", _steps("CREATE TABLE notes_a(x)", "CREATE TABLE notes_b(x)"), version="2.0")
    await (await bench.boot()).shutdown()
    bench.write("notes", _steps("CREATE TABLE notes_a(x)"), version="1.0")
    plugins = await bench.boot()
    row = plugins.rows["notes"]
    assert row.state == "failed"
    assert row.error is not None
    assert row.error.phase == "migrate"
    assert "skald-plugin-notes 2.0" in row.error.message
    assert "schema version 2" in row.error.message


async def test_an_edited_step_is_told(bench: Bench) -> None:
    """A step that was applied with other words makes installations differ: a problem, not a failure."""
    bench.write("notes", _steps("CREATE TABLE notes_a(x)"))
    await (await bench.boot()).shutdown()
    bench.write("notes", _steps("CREATE TABLE notes_a(x, y)"))
    plugins = await bench.boot()
    assert plugins.rows["notes"].state == "running"
    assert any("step 1" in problem and "edited" in problem for problem in plugins.rows["notes"].problems)


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE other(a)",
        "CREATE TABLE evil_ok(a); DROP TABLE users",
        "CREATE TABLE evil_ok(a); INSERT INTO roles VALUES('root', 'Root', 0)",
        "UPDATE users SET role_id='admin'",
        "DELETE FROM evil_b_notes",
        "ALTER TABLE evil_b_notes ADD COLUMN z",
        "CREATE TRIGGER evil_t AFTER INSERT ON users BEGIN SELECT 1; END",
        "CREATE INDEX users_evil ON users(role_id)",
    ],
)
async def test_a_schema_touches_only_its_own(bench: Bench, sql: str) -> None:
    """Not the kernel's tables, not those of a plugin whose id begins with its own; what it did before is undone."""
    bench.write("evil-b", _steps("CREATE TABLE evil_b_notes(x); INSERT INTO evil_b_notes VALUES(1)"))
    await (await bench.boot()).shutdown()
    bench.write("evil", _steps(sql))
    plugins = await bench.boot()
    row = plugins.rows["evil"]
    assert row.state == "failed"
    assert row.error is not None
    assert "'evil_'" in row.error.message
    names = await bench.db.read(lambda c: {r[0] for r in c.execute("SELECT name FROM sqlite_master")})
    assert "users" in names
    assert not {n for n in names if n.startswith("evil_") and not n.startswith("evil_b_")}
    assert await bench.db.read(lambda c: c.execute("SELECT count(*) FROM evil_b_notes").fetchone()[0]) == 1


async def test_an_endless_migration_is_given_up(bench: Bench) -> None:
    """It runs where everybody's writes run."""
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) INSERT INTO notes_a SELECT x FROM n"
    bench.write("notes", _steps(f"CREATE TABLE notes_a(x); {endless}"))
    plugins = await bench.boot(limits=Limits(slow=10, give_up=0.3))
    assert plugins.rows["notes"].state == "failed"
    await bench.db.write(lambda c: c.execute("SELECT 1"))


async def test_an_upgrade_of_running_code_asks_for_a_restart(bench: Bench) -> None:
    """What is installed and what runs are told apart; what was uninstalled stays until the restart, and says so."""
    first = bench.write("good", GOOD, version="1.0")
    plugins = await bench.boot()
    row = plugins.rows["good"]
    assert (row.found.version, row.running_version, row.restart_needed) == ("1.0", "1.0", False)
    second = bench.write("good", GOOD, version="2.0")
    await plugins.rescan([second])
    assert (row.found.version, row.running_version, row.restart_needed, row.state) == ("2.0", "1.0", True, "running")
    await plugins.rescan([])
    assert (row.state, row.removed, row.restart_needed) == ("stopped", True, True)
    assert plugins.contributed.tools() == []
    assert any("uninstalled" in problem for problem in row.problems)
    await plugins.rescan([first])
    assert (row.state, row.removed) == ("disabled", False)


async def test_rescan_takes_up_what_was_installed(bench: Bench) -> None:
    """A plugin installed while the server runs is there at once, disabled until somebody enables it."""
    plugins = await bench.boot()
    fresh = bench.write("fresh", GOOD)
    await plugins.rescan([fresh])
    assert plugins.rows["fresh"].state == "disabled"
    assert "bench_fresh" not in sys.modules
    await plugins.enable("fresh")
    assert [p for p, _ in plugins.contributed.tools()] == ["fresh"]
    await plugins.rescan([fresh])
    assert plugins.rows["fresh"].state == "running"


async def test_the_later_of_two_takes_its_place_when_the_earlier_goes(bench: Bench) -> None:
    """A name is free again once its owner stops; nothing has to be started again for it."""
    bench.write("aaa", GOOD)
    bench.write("bbb", GOOD)
    plugins = await bench.boot()
    assert [p for p, _ in plugins.contributed.tools()] == ["aaa"]
    await plugins.disable("aaa")
    assert [p for p, _ in plugins.contributed.tools()] == ["bbb"]
    assert not [p for p in plugins.problems(plugins.rows["bbb"]) if "left out" in p]


async def test_deprecations_name_plugin_file_and_line(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog says what will stop working, where it is used; the author's tests get a warning for the same line."""
    bench.write(
        "oldish",
        """
        @hookimpl
        def skald_startup(ctx):
            import skald_core.api
            skald_core.api.old_words()
        """,
    )

    # A deprecated function of the public surface: its code is the kernel's, which is what the search for the caller passes by.
    code = 'def old_words():\n    warn("old_words()", since="1.3", until="2.0", instead="new_words()")\n'
    shim: dict[str, Any] = {"warn": warn_deprecated}
    exec(compile(code, str(Path(skald_core.__file__).parent / "shim.py"), "exec"), shim)
    monkeypatch.setattr("skald_core.api.old_words", shim["old_words"], raising=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plugins = await bench.boot()
        await plugins.restart("oldish")
    (use,) = plugins.rows["oldish"].deprecations
    file = bench.code / "bench_oldish" / "__init__.py"
    line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if "old_words()" in text)
    assert use == (
        f"old_words() is deprecated since kernel API 1.3 and stops working in 2.0; use new_words() ({file}:{line})"
    )
    assert [(w.filename, w.lineno) for w in caught if issubclass(w.category, DeprecationWarning)] == [
        (str(file), line)
    ] * 2


async def test_hooks_of_a_plugin_disabled_meanwhile_are_not_called(bench: Bench) -> None:
    """A round of calls that is under way passes over a plugin that has gone."""
    gate = "@hookimpl\ndef skald_gate(ctx, call): return Allow()"
    bench.write("aaa", gate)
    bench.write("bbb", gate)
    plugins = await bench.boot()
    called = []
    async for outcome in plugins.dispatcher.call("skald_gate", {"call": None}):
        called.append(outcome.plugin)
        await plugins.disable("aaa" if outcome.plugin == "bbb" else "bbb")
    assert len(called) == 1


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("@hookimpl\ndef skald_tools(): return tool", "must return a list of Tool"),
        ("@hookimpl\ndef skald_tools(): return {'hello': 1}", "it returned dict"),
        (
            "class Bad(Tool):\n    name = 'has space'\n@hookimpl\ndef skald_tools(): return [Bad()]",
            "1 to 64 letters",
        ),
        ("@hookimpl\ndef skald_tools(): return [Tool]", "the class Tool itself"),
        (
            "@hookimpl\ndef skald_web_pages(): return [WebPage(page_id='a', title=None, entry='web/a.js')]",
            "title of WebPage",
        ),
        (
            "@hookimpl\ndef skald_web_pages(): return [WebPage(page_id='a', title='A', entry='../other/a.js')]",
            "below the plugin's own",
        ),
        ("@hookimpl\ndef skald_schema(): return [Schema('both', ())]", "'registry' or 'owner'"),
        ("@hookimpl\ndef skald_commands(): return [Command(name='Bad Name', title='', prompt='')]", "lower-case"),
        ("@hookimpl\ndef skald_config(): return 7", "must return a msgspec.Struct class"),
    ],
)
async def test_a_wrong_type_fails_its_plugin_with_a_sentence(bench: Bench, source: str, words: str) -> None:
    """What would break a page or a turn later is refused when it is declared."""
    bench.write("bad", source)
    bench.write("good", GOOD)
    plugins = await bench.boot()
    row = plugins.rows["bad"]
    assert row.state == "failed"
    assert row.error is not None
    assert row.error.phase == "register"
    assert words in row.error.message
    assert plugins.rows["good"].state == "running"
