"""Discovery, the dispatcher and the life of plugins: a broken one breaks only itself."""

import sys
from collections.abc import AsyncIterator, Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from skald_core.cli.main import _commands_of, _parser
from skald_core.db import schema
from skald_core.db.migrations import apply_migrations
from skald_core.loop.database import Database
from skald_core.plugins.discovery import discover
from skald_core.plugins.manifest import RESERVED, ManifestError, canonical_id, read_manifest
from tests.support.plugin_bench import GOOD, MANIFEST, Bench


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    database = await Database.open(tmp_path / "system.db")
    await apply_migrations(database, "kernel", schema.REGISTRY)
    yield Bench(database, tmp_path, monkeypatch)
    await database.close()


async def test_hook_skald_tools_brings_tools_and_disabling_takes_them_away(bench: Bench) -> None:
    """A running plugin's tools are offered; a disabled one's are gone at once and its state is kept."""
    bench.write("good", GOOD)
    plugins = await bench.boot()
    assert [t.name for _, t in plugins.contributed.tools()] == ["hello"]
    await plugins.disable("good")
    assert plugins.contributed.tools() == []
    again = await bench.boot()
    assert again.rows["good"].state == "disabled"
    await again.enable("good")
    assert again.rows["good"].state == "running"


async def test_a_disabled_plugin_is_not_imported(bench: Bench) -> None:
    """Listing reads metadata and manifest only."""
    bench.write("sleeper", "raise RuntimeError('imported')")
    plugins = await bench.boot(bundled=frozenset())
    assert plugins.rows["sleeper"].state == "disabled"
    assert "bench_sleeper" not in sys.modules


@pytest.mark.parametrize(
    ("source", "phase", "words"),
    [
        ("def broken(:", "import", "SyntaxError|invalid syntax"),
        ("import sys; sys.exit(3)", "import", "3"),
        ("import a_module_nobody_has", "import", "a_module_nobody_has"),
        ("@hookimpl\ndef skald_tools(ctx, wrong): return []", "register", "wrong"),
        ("@hookimpl\ndef skald_toolz(ctx): return []", "register", "skald_toolz"),
        ("@hookimpl\ndef skald_tools(ctx): return ['no tool']", "register", "list of Tool"),
        ("@hookimpl\ndef skald_startup(ctx): 1 / 0", "start", "division"),
        ("@hookimpl\nasync def skald_startup(ctx): raise SystemExit(1)", "start", "1"),
        (
            "@hookimpl\ndef skald_schema(ctx): return [Schema('registry', (Migration(1, 'CREATE TABLE other(a)'),))]",
            "migrate",
            "names that start with",
        ),
    ],
)
async def test_a_broken_plugin_is_shown_and_hurts_nobody(bench: Bench, source: str, phase: str, words: str) -> None:
    """Case C20: each fault is shown with its phase and reason; the good plugin runs; the broken one can be disabled."""
    bench.write("bad", source)
    bench.write("good", GOOD)
    plugins = await bench.boot()
    row = plugins.rows["bad"]
    assert row.state == "failed"
    assert row.error is not None
    assert row.error.phase == phase
    assert any(word in row.error.message + row.error.traceback for word in words.split("|"))
    assert plugins.rows["good"].state == "running"
    assert plugins.dispatcher.hooks_of("bad") == []
    stored = await bench.db.read(lambda c: dict(c.execute("SELECT id, state FROM plugins").fetchall()))
    assert stored == {"bad": "failed", "good": "running"}
    await plugins.disable("bad")
    assert plugins.rows["bad"].state == "disabled"


async def test_a_plugin_for_a_newer_api_is_not_imported(bench: Bench) -> None:
    """The kernel-API range is checked before import."""
    bench.write("future", "raise RuntimeError('imported')", api=">=2")
    plugins = await bench.boot()
    row = plugins.rows["future"]
    assert row.state == "incompatible"
    assert row.error is not None
    assert ">=2" in row.error.message
    assert "bench_future" not in sys.modules


async def test_a_plugin_that_killed_the_last_boot_starts_disabled(bench: Bench) -> None:
    """The crash-loop guard: what was being loaded when the process died is switched off, with the reason."""
    bench.write("killer", GOOD)
    (bench.folder / "plugins.loading").write_text("killer")
    plugins = await bench.boot()
    row = plugins.rows["killer"]
    assert row.state == "disabled"
    assert row.error is not None
    assert "died" in row.error.message
    await plugins.enable("killer")
    assert plugins.rows["killer"].state == "running"
    assert not (bench.folder / "plugins.loading").exists()


async def test_a_plugin_that_keeps_killing_starts_stays_off(bench: Bench) -> None:
    """Behind its import one end of the process may be anybody's doing; a second in a row switches the plugin off, and a
    start that went well in between forgets the first."""
    mark = bench.folder / "plugins.loading"
    bench.write("killer", "from pathlib import Path\n@hookimpl\ndef skald_startup():\n    global seen\n"
        f"    seen = Path({str(mark)!r}).read_text()\n")  # fmt: skip
    for _ in range(2):
        plugins = await bench.boot()
        await plugins.enable("killer")
        assert sys.modules["bench_killer"].seen == "killer 1"  # what would be left if it ended the process here
        await plugins.shutdown()
        mark.write_text("killer 1")
        plugins = await bench.boot()
        assert (plugins.rows["killer"].state, sys.modules["bench_killer"].seen) == ("running", "killer 2")
        await plugins.shutdown()
    mark.write_text("killer 2")
    plugins = await bench.boot()
    row = plugins.rows["killer"]
    assert (row.state, row.enabled) == ("disabled", False)
    assert row.error is not None
    assert (row.error.phase, "died" in row.error.message) == ("start", True)


async def test_safe_mode_starts_only_what_is_listed(bench: Bench) -> None:
    """`SKALD_PLUGINS=` leaves every plugin out, and says so."""
    bench.write("good", GOOD)
    plugins = await bench.boot(only=frozenset())
    assert plugins.rows["good"].state == "stopped"
    assert "safe mode" in plugins.rows["good"].problems[0]


async def test_strict_mode_raises(bench: Bench) -> None:
    """Tests and CI want the first fault, loudly."""
    bench.write("bad", "1 / 0")
    with pytest.raises(RuntimeError, match="'bad' failed in import"):
        await bench.boot(strict=True)


async def test_the_later_of_two_equal_tool_names_is_left_out(bench: Bench) -> None:
    """Names in a model request are unique; the loser says why."""
    bench.write("aaa", GOOD)
    bench.write("bbb", GOOD)
    plugins = await bench.boot()
    assert [p for p, _ in plugins.contributed.tools()] == ["aaa"]
    assert any("hello" in problem and "aaa" in problem for problem in plugins.problems(plugins.rows["bbb"]))


async def test_order_follows_before_and_after_and_a_circle_is_told(bench: Bench) -> None:
    """Declared order wins over names; two that each want to be first are started by name, with a problem on both."""
    bench.write("alpha", GOOD.replace("hello", "one"), extra='after = ["omega"]')
    bench.write("omega", GOOD.replace("hello", "two"))
    plugins = await bench.boot()
    assert [p for p, _ in plugins.contributed.tools()] == ["omega", "alpha"]
    bench.found.clear()
    bench.write("left", GOOD.replace("hello", "three"), extra='before = ["right"]')
    bench.write("right", GOOD.replace("hello", "four"), extra='before = ["left"]')
    plugins = await bench.boot()
    assert [p for p, _ in plugins.contributed.tools()] == ["left", "right"]
    assert all("circle" in plugins.rows[i].problems[0] for i in ("left", "right"))


async def test_what_the_code_registers_is_compared_with_the_manifest(bench: Bench) -> None:
    """A tool the manifest does not name is shown as a problem."""
    bench.write("good", GOOD, extra='[contributes]\ntools = ["goodbye"]')
    plugins = await bench.boot()
    assert "goodbye" in plugins.rows["good"].problems[0]


async def test_registrations_are_undone_in_reverse(bench: Bench) -> None:
    """Disposers run last to first, each guarded."""
    source = """
        log = []
        @hookimpl
        def skald_startup(ctx):
            ctx.on_dispose(lambda: log.append("first"))
            ctx.on_dispose(lambda: 1 / 0)
            ctx.on_dispose(lambda: log.append("last"))
    """
    bench.write("tidy", source)
    plugins = await bench.boot()
    await plugins.disable("tidy")
    assert sys.modules["bench_tidy"].log == ["last", "first"]


async def test_dispatcher_attributes_awaits_bounds_and_isolates(bench: Bench) -> None:
    """Each implementation gives its own outcome: a value, an error, or a time-out; payloads are never traced."""
    bench.write("one", "@hookimpl\nasync def skald_gate(ctx, call): return Allow()")
    bench.write("three", "import asyncio\n@hookimpl\nasync def skald_gate(call): await asyncio.Event().wait()")
    bench.write("two", "@hookimpl\ndef skald_gate(): raise ValueError('secret payload')")
    plugins = await bench.boot()
    outcomes = {
        o.plugin: o async for o in plugins.dispatcher.call("skald_gate", {"call": "secret payload"}, timeout=0.05)
    }
    assert type(outcomes["one"].value).__name__ == "Allow"
    assert outcomes["two"].error is not None
    assert outcomes["two"].error.kind == "ValueError"
    assert outcomes["three"].error is not None
    assert outcomes["three"].error.kind == "TimeoutError"
    assert any("skald_gate two" in line for line in bench.traced)
    assert not any("secret payload" in line for line in bench.traced)
    assert plugins.rows["two"].error is not None
    only = [o.plugin async for o in plugins.dispatcher.call("skald_gate", {"call": 1}, only={"one"})]
    assert only == ["one"]


# --- discovery ------------------------------------------------------------------------------------------------------


class FakeDist:
    """The part of a distribution that discovery reads."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.version = "1.0"
        self.metadata: dict[str, str] = {"Author": "Ada"}

    def read_text(self, name: str) -> str | None:
        return None


def _point(name: str, value: str, dist: str) -> EntryPoint:
    point = EntryPoint(name=name, value=value, group="skald.plugins")
    vars(point).update(dist=FakeDist(dist))
    return point


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(name: str, manifest: str) -> None:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('imported')")
        (tmp_path / name / "skald-plugin.toml").write_text(manifest)

    return make


def test_discovery_reads_without_importing(package: Callable[[str, str], None]) -> None:
    """The manifest is found next to the package, whose code would raise."""
    package("disc_weather", MANIFEST.format(id="weather", api=">=1"))
    (row,) = discover([_point("weather", "disc_weather", "skald-plugin-weather")])
    assert row.error == ""
    assert row.author == "Ada"
    assert row.manifest is not None
    assert row.manifest.title == "T"


def test_two_distributions_with_one_id_are_both_told(package: Callable[[str, str], None]) -> None:
    """A clash is a visible error on both, never a silent pick; a duplicate of one distribution is folded."""
    package("disc_a", MANIFEST.format(id="rag", api=">=1"))
    package("disc_b", MANIFEST.format(id="rag", api=">=1"))
    rows = discover(
        [
            _point("rag", "disc_a", "skald-rag"),
            _point("rag", "disc_a", "skald-rag"),
            _point("rag", "disc_b", "skald-plugin-rag"),
        ]
    )
    assert len(rows) == 2
    assert all("skald-rag" in row.error and "skald-plugin-rag" in row.error and row.manifest is None for row in rows)


@pytest.mark.parametrize(
    ("name", "dist", "manifest", "words"),
    [
        ("weather", "skald-plugin-sunshine", MANIFEST.format(id="weather", api=">=1"), "may only use 'sunshine'"),
        ("weather", "skald-weather", MANIFEST.format(id="other", api=">=1"), "make them equal"),
        ("weather", "skald-weather", MANIFEST.format(id="weather", api="one"), "no version range"),
        ("weather", "skald-weather", "id = ", "skald-plugin.toml"),
        ("weather", "skald-weather", 'id = "weather"\n', "title"),
        ("weather", "skald-weather", "# " + "x" * 10_000_000, "bytes"),
    ],
)
def test_a_bad_manifest_is_told(
    package: Callable[[str, str], None], name: str, dist: str, manifest: str, words: str
) -> None:
    """Wrong id, wrong range, broken TOML, missing field, ten megabytes: one sentence each."""
    package("disc_x", manifest)
    (row,) = discover([_point(name, "disc_x", dist)])
    assert words in row.error
    assert row.manifest is None


def test_a_missing_package_or_manifest_is_told(tmp_path: Path) -> None:
    """Half-removed installs are listed with their reason."""
    (row,) = discover([_point("gone", "disc_not_there", "skald-gone")])
    assert "cannot be found" in row.error
    with pytest.raises(ManifestError, match="author's guide"):
        read_manifest(tmp_path / "skald-plugin.toml")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("skald-plugin-weather", "weather"),
        ("Skald_Weather", "weather"),
        ("weather.pro", "weather-pro"),
        ("skald-", "skald-"),
    ],
)
def test_canonical_ids(name: str, expected: str) -> None:
    """The id follows PEP 503 names, without the two leading words."""
    assert canonical_id(name) == expected


def test_a_plugin_cannot_take_a_word_of_the_command_line(tmp_path: Path) -> None:
    """`skald serve` stays `skald serve`: every command is a reserved id, and a manifest with one is refused."""
    assert _commands_of(_parser()) <= RESERVED
    (tmp_path / "skald-plugin.toml").write_text(MANIFEST.format(id="serve", api=">=1"))
    with pytest.raises(ManifestError, match="word of Skald's own"):
        read_manifest(tmp_path / "skald-plugin.toml")


async def test_hooks_are_called_in_the_order_of_starting(bench: Bench) -> None:
    """Declared order, then ids; ``tryfirst`` before and ``trylast`` behind everybody."""
    says = "@hookimpl({how})\ndef skald_stop(): return 'x'"
    bench.write("bbb", says.format(how=""))
    bench.write("aaa", says.format(how=""), extra='after = ["bbb"]')
    bench.write("ccc", says.format(how="tryfirst=True"))
    bench.write("abc", says.format(how="trylast=True"))
    plugins = await bench.boot()
    assert [o.plugin async for o in plugins.dispatcher.call("skald_stop")] == ["ccc", "bbb", "aaa", "abc"]


async def test_a_wrapper_is_refused_with_a_reason(bench: Bench) -> None:
    """pluggy's wrappers cannot go around asynchronous hooks, so they do not look as if they did."""
    bench.write("bad", "@hookimpl(wrapper=True)\ndef skald_stop():\n    return (yield)")
    plugins = await bench.boot()
    assert plugins.rows["bad"].error is not None
    assert "wrapper" in plugins.rows["bad"].error.message
