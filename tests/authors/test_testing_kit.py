"""`skald_core.testing` as authors meet it: their tests, run by a pytest of their own."""

import socket

import pytest

from skald_core.testing import FakeClock, NetworkRefused, refuse_network

pytest_plugins = ["pytester"]

INI = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
addopts = -p no:cacheprovider --strict-markers
"""

PLUGIN = """
from skald_core import api as skald

@skald.tool(scope="read", title="Toss")
async def toss(coin: str) -> str:
    "Toss a coin."
    return coin + ": heads"

@skald.hookimpl
def skald_tools(): return [toss]

@skald.hookimpl
def skald_prompt_blocks(ctx, turn):
    return [skald.PromptBlock(text="now is " + str(ctx.now()), place="tail")]
"""


MANIFEST = """
id = "coins"
title = "Coins"
api = ">=1"
[contributes]
tools = ["toss"]
hooks = ["skald_prompt_blocks", "skald_tools"]
"""


@pytest.fixture
def author(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder with a plugin package `coins` and pytest set up."""
    pytester.makefile(".ini", pytest=INI)
    package = pytester.path / "coins"
    package.mkdir()
    (package / "__init__.py").write_text(PLUGIN)
    (package / "skald-plugin.toml").write_text(MANIFEST)
    return pytester


def run(author: pytest.Pytester, source: str) -> pytest.RunResult:
    author.makepyfile(source)
    return author.runpytest_subprocess()


def test_a_turn_in_one_call(author: pytest.Pytester) -> None:
    """run_turn starts, says, plays and waits; its Turn has the answer, the calls and what the model was sent."""
    result = run(
        author,
        """
        from skald_core.testing import call, calls, run_turn

        async def test_it(skald_app):
            steps = [calls(call("toss", {"coin": "euro"})), "Heads."]
            turn = await run_turn(skald_app, "coins", say="Toss", steps=steps)
            assert turn.answer == "Heads."
            assert [c["result"] for c in turn.calls] == ["euro: heads"]
            assert len(turn.requests) == 2
            assert "toss" in [t.name for t in turn.requests[0].tools]
        """,
    )
    result.assert_outcomes(passed=1)


def test_a_step_nobody_asked_for_fails_the_test(author: pytest.Pytester) -> None:
    """It is the test that fails, not its teardown."""
    result = run(
        author,
        """
        from skald_core.testing import run_turn
        import pytest

        def test_unused(skald_provider):
            skald_provider.add("never asked for")

        async def test_helper(skald_app):
            with pytest.raises(AssertionError, match="1 of 2 scripted answers"):
                await run_turn(skald_app, "coins", say="Hello", steps=["Hello", "too much"])
        """,
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*1 of 1 scripted answers were never asked for*"])


def test_the_network_is_refused_even_when_the_error_is_swallowed(author: pytest.Pytester) -> None:
    """A connection elsewhere fails the test; this machine may be reached; a mark allows the rest."""
    result = run(
        author,
        """
        import contextlib, socket
        import pytest

        async def test_swallowed(skald_app):
            with contextlib.suppress(Exception):
                socket.create_connection(("192.0.2.1", 9), timeout=0.1)

        async def test_name(skald_app):
            socket.getaddrinfo("example.invalid", 80)

        async def test_here(skald_app):
            with socket.create_server(("127.0.0.1", 0)) as server:
                socket.create_connection(server.getsockname()).close()

        @pytest.mark.skald_network
        async def test_marked(skald_app):
            with pytest.raises(OSError):
                socket.create_connection(("192.0.2.1", 9), timeout=0.01)
        """,
    )
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["*the network was tried: 192.0.2.1:9*", "*this test tried to reach example.invalid*"])


def test_the_clock_stands_still(author: pytest.Pytester) -> None:
    """The plugin's time and the server's are the test's."""
    result = run(
        author,
        """
        from skald_core.testing import run_turn

        async def test_it(skald_clock, skald_app):
            skald_clock.advance(60)
            turn = await run_turn(skald_app, "coins", say="Hello", steps=["Hello"])
            conversation = await turn.client.get(f"/api/conversations/{turn.conversation}")
            assert conversation["created_at"] == skald_clock.now()
            assert f"now is {skald_clock.now()}" in str(turn.requests[0])
        """,
    )
    result.assert_outcomes(passed=1)


def test_a_plugin_that_fails_is_told(author: pytest.Pytester) -> None:
    """Strict by default: the first fault raises with phase and message."""
    (author.path / "coins" / "__init__.py").write_text("1 / 0")
    result = run(
        author,
        """
        from skald_core.testing import assert_loaded

        async def test_it(skald_app):
            await assert_loaded(skald_app, "coins")
        """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*division by zero*"])


def test_plugins_around_it(author: pytest.Pytester) -> None:
    """Tools, hooks and an allowing gate from functions; without a gate nothing runs."""
    result = run(
        author,
        """
        from skald_core import api as skald
        from skald_core.testing import allow_all, assert_loaded, call, calls, hooks_plugin, run_turn, tools_plugin

        @skald.tool(scope="read")
        async def ping() -> str:
            "Answer a ping."
            return "pong"

        async def test_denied(skald_app):
            turn = await run_turn(
                skald_app, tools_plugin(ping), say="x", steps=[calls(call("ping")), "no"], judge=False
            )
            assert turn.calls[0]["state"] == "rejected"

        async def test_hooks(skald_app):
            seen = []
            def skald_startup(ctx): seen.append(ctx.id)
            app = await assert_loaded(skald_app, hooks_plugin("probe", skald_startup=skald_startup), allow_all())
            assert seen == ["probe"]
            await app.client("bob", role="member")
        """,
    )
    result.assert_outcomes(passed=2)


def test_the_plugin_imports_nothing_by_itself(author: pytest.Pytester) -> None:
    """Every pytest run of the environment loads it; the server is imported only when a fixture asks for it."""
    result = run(
        author,
        """
        import sys

        def test_it():
            assert "skald_core.runtime.app" not in sys.modules
            assert "litestar" not in sys.modules
        """,
    )
    result.assert_outcomes(passed=1)


def test_refuse_network_ends_with_its_block() -> None:
    """Everything is as before afterwards."""
    before = (socket.socket.connect, socket.getaddrinfo)
    with refuse_network() as tried:
        with pytest.raises(NetworkRefused):
            socket.getaddrinfo("example.invalid", 1)
        with socket.socket() as client, pytest.raises(NetworkRefused):
            client.connect(("203.0.113.7", 80))
    assert tried == ["example.invalid", "203.0.113.7:80"]
    assert (socket.socket.connect, socket.getaddrinfo) == before


def test_a_clock_does_not_go_back() -> None:
    """A negative step is a mistake in the test."""
    clock = FakeClock(10.0)
    assert clock.advance(2.5) == 12.5
    with pytest.raises(ValueError, match="back"):
        clock.advance(-1)
