"""The plugin in a real Skald, at night and by day."""

import asyncio
import datetime as dt

import pytest

from skald_core import api as skald
from skald_core.testing import (
    AppFactory,
    FakeClock,
    ScriptedProvider,
    allow_all,
    call,
    calls,
    local_plugin,
    run_turn,
    scripted_plugin,
    tools_plugin,
)

PACKAGE = "skald_plugin_quiet_hours"


@skald.tool(scope="write")
async def write_note(text: str) -> str:
    """Write a note."""
    return "written"


@skald.tool(scope="read")
async def read_note() -> str:
    """Read the note."""
    return "a note"


def at(clock: FakeClock, hour: int) -> None:
    """Move on to this hour of the next day."""
    now = dt.datetime.fromtimestamp(clock.now()).astimezone()
    wanted = (now + dt.timedelta(days=1)).replace(hour=hour, minute=30, second=0, microsecond=0)
    clock.advance(wanted.timestamp() - clock.now())


@pytest.mark.parametrize(("hour", "state"), [(23, "rejected"), (3, "rejected"), (12, "done")])
async def test_writing_is_refused_at_night(
    skald_clock: FakeClock, skald_app: AppFactory, hour: int, state: str
) -> None:
    """Also after midnight; another plugin's yes does not help. Reading goes on. An answer that hides it is sent on once."""
    at(skald_clock, hour)
    steps = [calls(call("write_note", {"text": "x"}), call("read_note")), "Done."]
    night = state == "rejected"
    turn = await run_turn(
        skald_app,
        PACKAGE,
        tools_plugin(write_note, read_note),
        say="Write",
        role="member",
        steps=[*steps, *(["I could not, it is night."] if night else [])],
    )
    assert [c["state"] for c in turn.calls] == [state, "done"]
    assert ("It is night here" in str(turn.requests[0])) is night
    admin = await turn.app.client("grace")
    refusals = await admin.get("/api/plugin/quiet-hours/log")
    assert [r["tool"] for r in refusals] == (["write_note"] if night else [])


async def test_the_same_time_twice_means_never(skald_clock: FakeClock, skald_app: AppFactory) -> None:
    """An empty span holds no minute: what was refused a moment ago is done."""
    at(skald_clock, 23)
    provider = ScriptedProvider([calls(call("write_note", {"text": "x"})), "Done."])
    app = await skald_app(local_plugin(PACKAGE), tools_plugin(write_note), allow_all(), scripted_plugin(provider))
    await app.add_model()
    ada = await app.client()
    bob = await app.client("bob", role="member")
    values = (await ada.get("/api/plugins/quiet-hours/config"))["values"]
    await ada.put("/api/plugins/quiet-hours/config", {"values": {"start": values["start"], "end": values["start"]}})
    messages = await bob.run_turn("Write")
    assert [c["state"] for m in messages for c in m["calls"]] == ["done"]


async def test_who_may_work_at_any_hour_is_asked(skald_clock: FakeClock, skald_app: AppFactory) -> None:
    """Administrators hold every capability: the call waits for them in the inbox, although a plugin allows it."""
    at(skald_clock, 23)
    provider = ScriptedProvider([calls(call("write_note", {"text": "x"})), "Done, although it is night."])
    app = await skald_app(local_plugin(PACKAGE), tools_plugin(write_note), allow_all(), scripted_plugin(provider))
    await app.add_model()
    ada = await app.client()
    chat = (await ada.post("/api/conversations"))["id"]
    async with asyncio.TaskGroup() as group:
        turn = group.create_task(ada.run_turn("Write", chat))
        while not (pending := (await ada.get("/api/inbox?status=pending"))["items"]):
            await asyncio.sleep(0)
        assert pending[0]["reason"] == "It is night. Do it anyway?"
        await ada.post(f"/api/requests/{pending[0]['id']}/answer", {"choice": "allow_once"})
    assert [c["state"] for m in turn.result() for c in m["calls"]] == ["done"]
