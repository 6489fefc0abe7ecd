"""The job runner: plans and carries out, one job at a time, with every step stored and told.

It is the same for the server and for the command line; :class:`EngineHost` is where they differ. It never imports a plugin.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import secrets
import shutil
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from skald_core.errors import Conflict, NotFound, SkaldError
from skald_core.loop.database import Connection, Database, DiskFull
from skald_core.loop.errors import LoopError
from skald_core.plugins.install import environment, lockfile, switch
from skald_core.plugins.install.catalog_index import CatalogIndex
from skald_core.plugins.install.environment import Installed, requirements_of
from skald_core.plugins.install.health import GOOD, Unhealthy, check_health
from skald_core.plugins.install.job import LOG_LINES, Act, Change, Job, JobStore, Plan, Step
from skald_core.plugins.install.lockfile import LockedPackage, LockedPlugin, LockFile
from skald_core.plugins.install.messages import Message, message_of
from skald_core.plugins.install.planner import Planner, advice_command
from skald_core.plugins.install.purge import PluginData, plugin_folder, purge_registry, remove_files
from skald_core.plugins.install.wheel import Wheel, read_wheel, sha256_of

__all__ = ("Engine", "EngineHost")

log = logging.getLogger("skald.install")
T = TypeVar("T")

PLAN_SECONDS = 3600.0
"""How long a plan may be carried out."""


class EngineHost(Protocol):
    """What differs between a running server and the command line."""

    def imported(self, modules: frozenset[str]) -> bool:
        """Whether any of these modules is in the memory of a running server."""
        ...

    async def enabled(self) -> frozenset[str]:
        """Ids of enabled plugins."""
        ...

    async def disable(self, plugin_id: str) -> None: ...

    async def refresh(self) -> None:
        """What is installed changed: look again."""
        ...

    async def data_of(self, plugin_id: str) -> PluginData: ...

    async def purge_owners(self) -> None:
        """Carry out noted purges in every database that can be opened now."""
        ...

    async def fetch(self, url: str) -> bytes:
        """The body of an https address through the guarded client."""
        ...

    def tell(self, job: Job) -> None:
        """A job changed."""
        ...

    def spawn(self, coro: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...


class Engine:
    """Create one per data directory and process; :meth:`settle` once before plugins are loaded."""

    def __init__(
        self,
        data_dir: Path,
        database: Database,
        host: EngineHost,
        *,
        api_version: str,
        bundled: Callable[[], frozenset[str]],
    ) -> None:
        self.data_dir = data_dir
        self._db = database
        self._host = host
        self._api = api_version
        self._bundled = bundled
        self.jobs = JobStore(database)
        self.index = CatalogIndex(data_dir, host.fetch)
        self._folder = data_dir / "plugin-jobs"
        self.wheels = data_dir / "plugin-wheels"
        self._live: dict[str, Job] = {}
        self._planning = asyncio.Lock()
        self._busy = False

    # -- plans -----------------------------------------------------------------------------------------------------

    async def plan(self, act: Act, *, requirement: str = "", plugin: str = "", actor: str) -> Job:
        """Start making a plan. What can be refused at once is: BadRequirement, Refused, NotFound, Conflict."""
        if plugin or act in {"uninstall", "purge"}:
            plugin_folder(self.data_dir, plugin)  # refuses what is no id
        planner = await self._planner()
        wanted = planner.wanted(act, requirement, plugin)
        if act == "uninstall":
            planner.removal(plugin)
        if act == "purge":
            await self._purgeable(plugin)
        job = Job(
            id=secrets.token_urlsafe(12),
            act="plan",
            plugin=plugin,
            requirement=requirement or " ".join(map(str, wanted)),
            actor=actor,
            created_at=time.time(),
        )
        self._live[job.id] = job
        await self.jobs.save(job)
        self._host.spawn(self._make(job, act, planner, requirement, plugin))
        return job

    async def _planner(self) -> Planner:
        installed = await asyncio.to_thread(environment.snapshot)
        return Planner(
            api_version=self._api,
            installed=installed,
            bundled=self._bundled(),
            index=await self.index.state(),
            lock=lockfile.read_lock(self.data_dir),
            links=[self.wheels] if self.wheels.is_dir() else [],
            imported=self._host.imported,
        )

    async def _make(self, job: Job, act: Act, planner: Planner, requirement: str, plugin: str) -> None:
        progress = _Progress(self, job)
        try:
            async with self._planning:
                self._prune_folders()
                if act == "uninstall":
                    job.plan = planner.removal(plugin)
                elif act == "purge":
                    job.plan = await self._purge_plan(plugin)
                else:
                    wanted = planner.wanted(act, requirement, plugin)
                    made = await planner.additions(act, wanted, self._folder / job.id, progress)
                    job.plan = msgspec.structs.replace(made, folder=job.id)
            if act != "purge" and environment.advice_reason() is not None:
                job.command = advice_command(job.plan)
            if job.plan.plugins and not job.plugin:
                job.plugin = job.plan.plugins[0]
            job.state, job.step = "done", "done"
        except BaseException as error:
            job.state, job.error = "failed", _told(error)
            shutil.rmtree(self._folder / job.id, ignore_errors=True)
            if not isinstance(error, Exception):
                raise
            if not isinstance(error, LoopError | OSError):
                log.error("making plan %s failed", job.id, exc_info=error)
        finally:
            await self._ended(job)

    def _fetched(self, plan: Plan) -> dict[str, Path]:
        """Wheels of a plan that are still there, by name."""
        paths = {w.name: self._folder / plan.folder / "wheels" / w.file for w in plan.wheels}
        return {name: path for name, path in paths.items() if plan.folder and path.is_file()}

    async def _purge_begun(self, job: Job) -> bool:
        """Whether a purge removed what the registry held: the rest is noted there and done when each database is opened."""
        query = "SELECT 1 FROM plugin_purges WHERE plugin_id=? AND at>=?"
        row = await self._db.read(lambda c: c.execute(query, (job.plugin, job.created_at)).fetchone())
        return row is not None

    async def _purgeable(self, plugin: str) -> PluginData:
        data = await self._host.data_of(plugin)
        if data.empty:
            raise NotFound(f"nothing is stored of a plugin {plugin!r}.", code="nothing_to_purge", name=plugin)
        return data

    async def _purge_plan(self, plugin: str) -> Plan:
        installed = await asyncio.to_thread(environment.snapshot)
        data = await self._purgeable(plugin)
        warnings = [Message("install.warning_purge")]
        if any(table.rows is None for table in data.tables):
            warnings.append(Message("install.warning_purge_locked"))
        if plugin in await self._host.enabled():
            warnings.append(Message("install.warning_purge_disables"))
        return Plan(
            act="purge",
            data=data,
            warnings=warnings,
            plugins=[plugin],
            fingerprint=environment.fingerprint(installed),
            made_at=time.time(),
        )

    def _prune_folders(self) -> None:
        """Forget the files of plans that are too old to be carried out."""
        with contextlib.suppress(FileNotFoundError):
            for folder in self._folder.iterdir():
                if folder.stat().st_mtime < time.time() - PLAN_SECONDS:
                    shutil.rmtree(folder, ignore_errors=True)

    # -- carrying out ----------------------------------------------------------------------------------------------

    async def run(self, plan_id: str, *, actor: str) -> Job:
        """Start carrying out a plan. Raises NotFound, and Conflict ``plan_stale``, ``job_running`` or ``advice_only``."""
        planned = self._live.get(plan_id) or await self.jobs.get(plan_id)
        if planned is None or planned.act != "plan":
            raise NotFound("There is no such plan.", code="job_not_found")
        plan = planned.plan
        if plan is None or planned.state != "done":
            raise _stale()
        if plan.act != "purge" and (reason := environment.advice_reason()) is not None:
            raise Conflict(
                f"This environment is not changed from here. Run by hand: {advice_command(plan)}",
                code="advice_only",
                command=advice_command(plan) or "",
                reason=reason,
            )
        if self._busy:
            raise Conflict("Another job runs; wait for it.", code="job_running")
        self._busy = True
        held = contextlib.ExitStack()
        try:
            if environment.advice_reason() is None:
                held.enter_context(switch.environment_lock())
                await asyncio.to_thread(switch.recover)
            await self._check_fresh(plan_id, plan)
            job = Job(
                id=secrets.token_urlsafe(12),
                act=plan.act,
                plugin=planned.plugin,
                requirement=planned.requirement,
                actor=actor,
                created_at=time.time(),
                step="check",
                plan=plan,
            )
            await self.jobs.save(job)
        except BaseException:
            self._busy = False
            held.close()
            raise
        self._live[job.id] = job
        self._host.spawn(self._carry_out(job, plan, self._folder / plan_id / "wheels", held))
        return job

    async def _check_fresh(self, plan_id: str, plan: Plan) -> None:
        if time.time() - plan.made_at > PLAN_SECONDS:
            raise _stale()
        installed = await asyncio.to_thread(environment.snapshot)
        if plan.act != "purge" and environment.fingerprint(installed) != plan.fingerprint:
            raise _stale()
        if any(not (self._folder / plan_id / "wheels" / wheel.file).is_file() for wheel in plan.wheels):
            raise _stale()

    async def _carry_out(self, job: Job, plan: Plan, wheels: Path, held: contextlib.ExitStack) -> None:
        progress = _Progress(self, job)
        unfinished = False
        try:
            with held:
                if plan.act == "purge":
                    await self._purge(plan, progress)
                else:
                    await self._change(job, plan, wheels, progress)
            progress.step("done")
            progress.say("log_done")
            job.state = "done"
        except BaseException as error:
            # Ended with the process in the middle of a switch: the next start finishes or undoes it and tells which.
            unfinished = isinstance(error, asyncio.CancelledError) and switch.pending()
            if not unfinished:
                job.error = _told(error)
                job.state = "failed" if job.state == "running" else job.state
            if not isinstance(error, Exception):
                raise
            if not isinstance(error, LoopError | OSError):
                log.error("job %s failed", job.id, exc_info=error)
        finally:
            self._busy = False
            shutil.rmtree(wheels.parent, ignore_errors=True)
            if not unfinished:
                await self._ended(job)

    async def _change(self, job: Job, plan: Plan, folder: Path, progress: _Progress) -> None:
        progress.step("check")
        before = await asyncio.to_thread(environment.snapshot)
        planner = await self._planner()
        for change in plan.changes:
            if change.to is not None:
                planner.policy.check(change.name, dependency=change.name not in plan.requested)
        wheels = [await asyncio.to_thread(self._verified, folder / w.file, w.sha256) for w in plan.wheels]
        goes = [before[name] for name in plan.goes]
        progress.say("log_unpack", count=len(wheels))
        staged = await _whole(switch.stage, job.id, self.data_dir, wheels, goes)
        try:
            if wheels:
                await self._check_health(staged, plan, before, progress)
            await self._disable(plan, progress)
            progress.step("switch")
            progress.say("log_switch")
            await _whole(staged.switch)
        except BaseException:
            staged.discard()
            raise
        try:
            await self._settle_change(plan, wheels, progress)
        except BaseException:
            if _cancelled():
                raise  # the server ends: all files are in place, and the next start takes it up from the journal
            progress.step("rollback")
            progress.say("log_rollback")
            await _whole(staged.roll_back)
            staged.discard()
            await self._host.refresh()
            job.state = "rolled_back"
            raise
        await _whole(staged.finish)

    @staticmethod
    def _verified(path: Path, sha256: str) -> Wheel:
        if sha256_of(path) != sha256:
            raise Conflict(
                "A file of this plan was changed since it was fetched. Make the plan again.", code="plan_stale"
            )
        return read_wheel(path)

    async def _check_health(
        self, staged: switch.Staged, plan: Plan, before: Mapping[str, Installed], progress: _Progress
    ) -> None:
        """The plugins that come must start; the enabled ones must still start where a package they may use is moved."""
        mine = set(plan.plugins)
        needed = {str(canonicalize_name(r.name)) for d in before.values() for r in requirements_of(d.requires)}
        moved = any(c.from_ is not None and (c.name in needed or c.name not in plan.requested) for c in plan.changes)
        others = (await self._host.enabled()) - mine if moved else frozenset()
        progress.say("log_health", plugins=", ".join(sorted(mine | others)))
        health = await check_health(staged.import_paths, sorted(mine | others), self.data_dir)
        bad = {i for i, state in health.states.items() if state not in GOOD}
        if bad & others:
            alone = await check_health([], sorted(bad & others), self.data_dir)
            bad -= {i for i, state in alone.states.items() if state not in GOOD}
        if bad:
            first = sorted(bad & mine or bad)[0]
            reason = health.errors.get(first, health.states[first])
            raise Unhealthy(
                f"The check before the switch failed: {first!r} does not start ({reason}). Nothing was changed.",
                reason=f"{first}: {reason}",
            )

    async def _disable(self, plan: Plan, progress: _Progress) -> None:
        if plan.act == "uninstall":
            for plugin_id in plan.plugins:
                progress.say("log_disable", plugin=plugin_id)
                await self._host.disable(plugin_id)

    async def _settle_change(self, plan: Plan, wheels: list[Wheel], progress: _Progress) -> None:
        """After the files are in place: look whether they are what was planned, and tell everyone."""
        progress.step("start")
        after = await asyncio.to_thread(environment.snapshot)
        for change in plan.changes:
            there = after[change.name].version if change.name in after else None
            if there != change.to:
                raise SkaldError(
                    f"after the switch {change.name!r} is there as {there}, not as {change.to}",
                    code="switch_incomplete",
                )
        await self._set_enabled(plan)
        await self._host.refresh()
        await self._keep(plan, after, {w.name: w.path for w in wheels})

    async def _set_enabled(self, plan: Plan) -> None:
        """What was just installed is off, whatever an earlier stay left behind; what is restored is as the lock says."""
        new = {c.name for c in plan.changes if c.from_ is None and c.to is not None}
        lock = (
            {row.id: row.enabled for row in lockfile.read_lock(self.data_dir).plugins} if plan.act == "restore" else {}
        )
        ids = [i for w in plan.wheels if w.name in new for i in w.plugin.split(",") if i]
        now = time.time()

        def write(c: Connection) -> None:
            for plugin_id in ids:
                wanted = int(lock.get(plugin_id, False))
                if plan.act == "restore":
                    c.execute(
                        "INSERT INTO plugins(id,enabled,first_seen,changed_at) VALUES(?,?,?,?) ON CONFLICT(id) DO NOTHING",
                        (plugin_id, wanted, now, now),
                    )
                else:
                    c.execute("UPDATE plugins SET enabled=0, changed_at=? WHERE id=?", (now, plugin_id))

        await self._db.write(write)

    async def _keep(self, plan: Plan, after: Mapping[str, Installed], files: Mapping[str, Path]) -> None:
        """Write plugins.lock and keep the wheels it names, so that it can be restored without an index."""
        enabled = await self.enabled_rows()
        lock = await asyncio.to_thread(
            _relocked, lockfile.read_lock(self.data_dir), plan, after, enabled, self._bundled()
        )
        await asyncio.to_thread(self._keep_wheels, lock, files)
        await asyncio.to_thread(lockfile.write_lock, self.data_dir, lock)

    def _keep_wheels(self, lock: LockFile, files: Mapping[str, Path]) -> None:
        self.wheels.mkdir(exist_ok=True)
        for path in files.values():
            part = self.wheels / (path.name + ".part")
            shutil.copyfile(path, part)
            part.replace(self.wheels / path.name)
        named = {(p.name, p.version) for p in lock.plugins} | {(p.name, p.version) for p in lock.packages}
        for path in self.wheels.glob("*"):
            with contextlib.suppress(InvalidWheelFilename):
                name, version, _, _ = parse_wheel_filename(path.name)
                if (str(name), str(version)) in named:
                    continue
            path.unlink(missing_ok=True)

    async def enabled_rows(self) -> dict[str, bool]:
        rows = await self._db.read(lambda c: c.execute("SELECT id, enabled FROM plugins").fetchall())
        return {row[0]: bool(row[1]) for row in rows}

    async def _purge(self, plan: Plan, progress: _Progress) -> None:
        (plugin_id,) = plan.plugins
        progress.step("switch")
        installed = await asyncio.to_thread(environment.snapshot)
        there = any(plugin_id in d.plugin_ids for d in installed.values())
        if there:
            progress.say("log_disable", plugin=plugin_id)
            await self._host.disable(plugin_id)
        progress.say("log_purge", plugin=plugin_id)
        await self._db.write(lambda c: purge_registry(c, plugin_id, installed=there))
        await self._host.purge_owners()
        await asyncio.to_thread(remove_files, plugin_folder(self.data_dir, plugin_id))
        progress.step("start")
        await self._host.refresh()

    # -- the lock --------------------------------------------------------------------------------------------------

    async def current_lock(self) -> LockFile:
        """The environment as ``plugins.lock`` would describe it; a file that cannot be read counts as none."""
        installed = await asyncio.to_thread(environment.snapshot)
        try:
            old = lockfile.read_lock(self.data_dir)
        except SkaldError as error:
            log.warning("%s", error.detail)
            old = LockFile()
        return lockfile.current(installed, await self.enabled_rows(), self._bundled(), old)

    async def missing(self) -> list[LockedPlugin]:
        """What plugins.lock names and this environment lacks; empty when the file cannot be read."""
        try:
            lock = lockfile.read_lock(self.data_dir)
        except SkaldError as error:
            log.warning("%s", error.detail)
            return []
        return lockfile.missing(lock, await asyncio.to_thread(environment.snapshot)) if lock.plugins else []

    # -- start -----------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Take note of what a process that died left behind: its jobs end, told truly, and none is run again."""
        outcomes = {o.job: o for o in await asyncio.to_thread(switch.outcomes_of, self.data_dir)}
        for job in await self.jobs.running():
            outcome = outcomes.get(job.id)
            if job.act == "purge" and await self._purge_begun(job):
                await asyncio.to_thread(remove_files, plugin_folder(self.data_dir, job.plugin))
                job.state, job.step = "done", "done"
                job.log = [*job.log, Message("install.log_completed")]
            elif outcome is not None and outcome.result == "switched" and job.plan is not None:
                after = await asyncio.to_thread(environment.snapshot)
                await self._set_enabled(job.plan)
                await self._keep(job.plan, after, self._fetched(job.plan))
                job.state, job.step = "done", "done"
                job.log = [*job.log, Message("install.log_completed")]
            elif outcome is not None:
                job.state, job.error = "rolled_back", Message("install.interrupted_rolled_back")
            else:
                job.state, job.error = "failed", Message("install.interrupted")
            job.ended_at = time.time()
            await self.jobs.save(job)
            log.warning("the %s of %s was interrupted: %s", job.act, job.plugin or job.requirement, job.state)
        for outcome in outcomes.values():
            await asyncio.to_thread(switch.forget_outcome, outcome)

    # -- telling ---------------------------------------------------------------------------------------------------

    async def get(self, job_id: str) -> Job:
        """Raises NotFound."""
        job = self._live.get(job_id) or await self.jobs.get(job_id)
        if job is None:
            raise NotFound("There is no such job.", code="job_not_found")
        return job

    async def recent(self) -> list[Job]:
        return [self._live.get(job.id, job) for job in await self.jobs.recent()]

    async def _ended(self, job: Job) -> None:
        job.ended_at = time.time()
        try:
            await asyncio.shield(self.jobs.save(job))
            self._live.pop(job.id, None)
        except (
            LoopError
        ) as error:  # a full disk, or the database is closing: it stays in memory, and settle() tells the rest
            log.warning("the end of job %s could not be stored: %s", job.id, error)
        self._host.tell(job)

    def tell(self, job: Job) -> None:
        self._host.tell(job)


class _Progress:
    """Keeps a job's log and step, and tells both."""

    def __init__(self, engine: Engine, job: Job) -> None:
        self._engine = engine
        self._job = job

    def step(self, step: Step) -> None:
        self._job.step = step
        self._engine.tell(self._job)

    def say(self, key: str, **params: object) -> None:
        self._add(Message(f"install.{key}", dict(params)))

    def echo(self, line: str) -> None:
        self._add(Message("", {}, line[:500]))

    def _add(self, message: Message) -> None:
        self._job.log = [*self._job.log, message][-LOG_LINES:]
        self._engine.tell(self._job)


def _relocked(
    old: LockFile, plan: Plan, after: Mapping[str, Installed], enabled: Mapping[str, bool], bundled: frozenset[str]
) -> LockFile:
    """The lock after a job. What it names and the environment lacks stays wanted: only an uninstall takes a plugin out."""
    gone = {c.name for c in plan.changes if c.to is None}
    hashes = {(w.name, w.version): w.sha256 for w in plan.wheels}
    came = {c.name for c in plan.changes if c.to is not None}
    plugins = {row.name: row for row in old.plugins if row.name not in gone}
    for dist in after.values():
        for plugin_id in dist.plugin_ids:
            if dist.name in bundled:
                continue
            known = hashes.get((dist.name, dist.version)) or old.hash_of(dist.name, dist.version)
            plugins[dist.name] = LockedPlugin(
                plugin_id, dist.name, dist.version, known, enabled.get(plugin_id, False), dist.editable
            )
    packages = {row.name: row for row in old.packages if row.name not in gone}
    for change in plan.changes:
        dist_there = after.get(change.name)
        if (
            change.name in came
            and dist_there is not None
            and not dist_there.plugin_ids
            and _came_with(change, packages)
        ):
            digest = hashes.get((change.name, dist_there.version), "")
            packages[change.name] = LockedPackage(change.name, dist_there.version, digest)
    return LockFile(plugins=list(plugins.values()), packages=list(packages.values()))


def _came_with(change: Change, packages: Mapping[str, LockedPackage]) -> bool:
    """Whether a package is here because of plugins: it was new, or was so before. What somebody else installed is theirs."""
    return change.from_ is None or change.name in packages


def _told(error: BaseException) -> Message:
    if isinstance(error, asyncio.CancelledError):
        return Message("install.interrupted")
    if isinstance(error, DiskFull) or (
        isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
    ):
        return Message("error.disk_full")
    if isinstance(error, OSError):
        return Message("", {}, f"{os.strerror(error.errno or errno.EIO)}: {Path(str(error.filename or '')).name}")
    return message_of(error)


def _stale() -> Conflict:
    return Conflict("Something changed since this plan was made. Make it again.", code="plan_stale")


def _cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _whole(work: Callable[..., T], *args: Any) -> T:
    """Run ``work`` in a thread to its end, also when the wait for it is cancelled: files are never left half moved."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *args))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.cancelled():
            await asyncio.wait({task})
            task.exception()
        raise
