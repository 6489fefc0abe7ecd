"""Jobs and plans as they are stored and shown (docs/http-api.md, "Installing")."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from skald_core.loop.database import Connection, Database
from skald_core.plugins.install.messages import Message, Translator
from skald_core.plugins.install.purge import PluginData

__all__ = ("ACTS", "Act", "Change", "Job", "JobStore", "Plan", "PlannedWheel", "Step", "audit_detail", "job_view")

Act = Literal["install", "upgrade", "uninstall", "purge", "restore"]
ACTS: tuple[Act, ...] = ("install", "upgrade", "uninstall", "purge", "restore")
Step = Literal["resolve", "download", "check", "switch", "start", "rollback", "done"]
State = Literal["running", "done", "failed", "rolled_back"]

KEPT_JOBS = 200
LOG_LINES = 400


class Change(msgspec.Struct, frozen=True, rename={"from_": "from"}):
    """One package of the difference; ``from_`` is None for a new one, ``to`` for one that goes."""

    name: str
    from_: str | None
    to: str | None


class PlannedWheel(msgspec.Struct, frozen=True):
    """A file that was fetched and looked at for the plan; the job installs exactly these."""

    name: str
    version: str
    sha256: str
    file: str
    plugin: str = ""


class Difference(msgspec.Struct, frozen=True):
    added: list[str] = []
    removed: list[str] = []


class Contributions(msgspec.Struct, frozen=True):
    """By kind (``tools``, ``pages`` …) the names that come and go."""

    added: dict[str, list[str]] = {}
    removed: dict[str, list[str]] = {}


class Plan(msgspec.Struct, frozen=True):
    """What would be done. ``wheels``, ``goes`` and what follows are the job's own; nobody is shown them."""

    act: Act
    changes: list[Change] = []
    hashes: bool = False
    capabilities: Difference = Difference()
    contributes: Contributions = Contributions()
    data: PluginData | None = None
    restart_needed: bool = False
    warnings: list[Message] = []
    wheels: list[PlannedWheel] = []
    goes: list[str] = []
    plugins: list[str] = []
    requested: list[str] = []
    folder: str = ""
    fingerprint: str = ""
    made_at: float = 0.0


class Job(msgspec.Struct):
    """A plan being made (``act`` is ``plan``) or carried out."""

    id: str
    act: Act | Literal["plan"]
    plugin: str
    requirement: str
    actor: str
    created_at: float
    state: State = "running"
    step: Step = "resolve"
    log: list[Message] = []
    plan: Plan | None = None
    error: Message | None = None
    command: str | None = None
    ended_at: float | None = None


def job_view(job: Job, texts: Translator, locale: str = "") -> dict[str, Any]:
    """A job as docs/http-api.md shows it, its sentences in the reader's language."""
    view: dict[str, Any] = {
        "id": job.id,
        "act": job.act,
        "plugin": job.plugin,
        "requirement": job.requirement,
        "state": job.state,
        "step": job.step,
        "log": [line.say(texts, locale) for line in job.log],
        "created_at": job.created_at,
        "ended_at": job.ended_at,
    }
    if job.error is not None:
        view["error"] = {"message": job.error.say(texts, locale)}
    if job.plan is not None:
        plan = msgspec.to_builtins(job.plan)
        shown = ("act", "changes", "hashes", "capabilities", "contributes", "data", "restart_needed")
        view["plan"] = {key: plan[key] for key in shown} | {
            "warnings": [warning.say(texts, locale) for warning in job.plan.warnings]
        }
    if job.command is not None:
        view["command"] = job.command
    return view


def audit_detail(plan: Plan) -> str:
    """What a plan changes, for the audit log."""
    body: dict[str, Any] = {
        "changes": [f"{c.name} {c.from_ or '-'} -> {c.to or '-'}" for c in plan.changes],
        "hashes": plan.hashes,
        "capabilities": plan.capabilities,
        "data": plan.data,
    }
    return msgspec.json.encode(body).decode()


class JobStore:
    """``plugin_jobs`` in ``system.db``."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def save(self, job: Job) -> None:
        row = (
            job.id, job.act, job.plugin, job.requirement, job.actor, job.state, job.step, _json(job.log), _json(job.plan),
            _json(job.error), job.command, job.created_at, job.ended_at,
        )  # fmt: skip

        def write(c: Connection) -> None:
            c.execute(
                "INSERT INTO plugin_jobs(id,act,plugin,requirement,actor,state,step,log,plan,error,command,created_at,ended_at) "
                "VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT(id) DO UPDATE SET state=excluded.state, step=excluded.step, "
                "log=excluded.log, plan=excluded.plan, error=excluded.error, command=excluded.command, plugin=excluded.plugin, "
                "ended_at=excluded.ended_at",
                row,
            )
            c.execute(
                "DELETE FROM plugin_jobs WHERE state<>'running' AND id NOT IN "
                "(SELECT id FROM plugin_jobs ORDER BY created_at DESC LIMIT ?)",
                (KEPT_JOBS,),
            )

        await self._db.write(write)

    async def get(self, job_id: str) -> Job | None:
        row = await self._db.read(lambda c: c.execute(f"{_SELECT} WHERE id=?", (job_id,)).fetchone())
        return None if row is None else _job(row)

    async def recent(self, limit: int = 50) -> list[Job]:
        query = f"{_SELECT} ORDER BY created_at DESC, id LIMIT ?"
        return [_job(row) for row in await self._db.read(lambda c: c.execute(query, (limit,)).fetchall())]

    async def running(self) -> list[Job]:
        query = f"{_SELECT} WHERE state='running' ORDER BY created_at"
        return [_job(row) for row in await self._db.read(lambda c: c.execute(query).fetchall())]


_SELECT = (
    "SELECT id,act,plugin,requirement,actor,state,step,log,plan,error,command,created_at,ended_at FROM plugin_jobs"
)


def _json(value: Any) -> str:
    return "" if value is None else msgspec.json.encode(value).decode()


def _job(row: Any) -> Job:
    return Job(
        id=row[0],
        act=row[1],
        plugin=row[2],
        requirement=row[3],
        actor=row[4],
        state=row[5],
        step=row[6],
        log=msgspec.json.decode(row[7], type=list[Message]),
        plan=msgspec.json.decode(row[8], type=Plan) if row[8] else None,
        error=msgspec.json.decode(row[9], type=Message) if row[9] else None,
        command=row[10],
        created_at=row[11],
        ended_at=row[12],
    )
