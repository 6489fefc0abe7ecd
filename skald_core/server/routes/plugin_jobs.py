"""Installing, upgrading, removing and purging plugins: planned, then carried out as a job (docs/http-api.md, "Installing")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from litestar import Request, get, post
from litestar.params import FromPath, JSONBody
from packaging.utils import canonicalize_name

from skald_core.errors import Forbidden
from skald_core.plugins.install import environment
from skald_core.plugins.install.job import Act, Job, audit_detail, job_view
from skald_core.plugins.install.purge import remains
from skald_core.server.guards import caller, capability, peer_address, runtime

if TYPE_CHECKING:
    from skald_core.plugins.install.catalog_index import Entry  # imported on first use, as the whole job runner is

__all__ = ("HANDLERS",)

AnyRequest = Request[Any, Any, Any]
manage = capability("plugin.manage")


class PlanBody(msgspec.Struct):
    act: Act
    requirement: Annotated[str, msgspec.Meta(max_length=500)] = ""
    plugin: Annotated[str, msgspec.Meta(max_length=100)] = ""


class JobBody(msgspec.Struct):
    plan: Annotated[str, msgspec.Meta(max_length=64)]
    password: Annotated[str, msgspec.Meta(max_length=4096)]


def _view(request: AnyRequest, job: Job) -> dict[str, Any]:
    app = runtime(request)
    return job_view(job, app.texts, app.texts.resolve(caller(request).locale))


def _available(entry: Entry, installed: dict[str, str]) -> dict[str, Any]:
    return {
        "name": entry.canonical,
        "title": entry.title or entry.canonical,
        "summary": entry.summary,
        "author": entry.author,
        "homepage": entry.homepage,
        "license": entry.license,
        "versions": msgspec.to_builtins(entry.versions),
        "latest": entry.latest,
        "min_good_version": entry.min_good_version,
        "blocked": entry.blocked,
        "installed": installed.get(entry.canonical),
        "verified": entry.verified,
    }


@get("/api/plugins/available", guards=[manage])
async def available(request: AnyRequest) -> dict[str, Any]:
    """What the catalog index offers, what plugins.lock misses, and whether this environment may be changed from here."""
    app = runtime(request)
    index = await app.installer.index.state()
    await app.recheck_blocked()
    reason = environment.advice_reason()
    locale = app.texts.resolve(caller(request).locale)
    installed = {
        str(canonicalize_name(row.found.distribution)): row.found.version
        for row in app.plugins.rows.values()
        if not row.removed
    }
    return {
        "index": {
            "title": index.title,
            "source": index.source,
            "updated_at": index.updated_at,
            **({"error": index.error} if index.error else {}),
        },
        "advice": None if reason is None else {"reason": app.texts.t(f"install.advice_{reason}", locale)},
        "items": [_available(entry, installed) for entry in sorted(index.entries.values(), key=lambda e: e.canonical)],
        "missing": [{"id": row.id, "name": row.name, "version": row.version} for row in await app.installer.missing()],
    }


@get("/api/plugins/remains", guards=[manage])
async def left_behind(request: AnyRequest) -> list[dict[str, Any]]:
    """Plugins that are gone but left data: what may be purged."""
    app = runtime(request)
    there = [row.id for row in app.plugins.rows.values() if not row.removed]
    ids = await remains(app.system_db, app.data_dir, there)
    return [{"id": i, "data": msgspec.to_builtins(await app.plugin_data(i))} for i in ids]


@post("/api/plugins/plans", guards=[manage], status_code=202)
async def plan(request: AnyRequest, data: JSONBody[PlanBody]) -> dict[str, Any]:
    """Find out what an act would change. Nothing is changed."""
    app = runtime(request)
    user = caller(request)
    job = await app.installer.plan(data.act, requirement=data.requirement, plugin=data.plugin, actor=user.id)
    return _view(request, job)


@post("/api/plugins/jobs", guards=[manage], status_code=202)
async def start(request: AnyRequest, data: JSONBody[JobBody]) -> dict[str, Any]:
    """Carry out a plan. The caller proves their password first; the act is in the audit log before it begins."""
    app = runtime(request)
    user = caller(request)
    if not await app.prove_again(user, data.password, address=peer_address(request)):
        raise Forbidden("The password is not right.", code="bad_password")
    planned = await app.installer.get(data.plan)
    if planned.plan is not None:
        target = planned.plugin or planned.requirement
        await app.audit(user, f"plugin.{planned.plan.act}", target, audit_detail(planned.plan))
    return _view(request, await app.installer.run(data.plan, actor=user.id))


@get("/api/plugins/jobs", guards=[manage])
async def jobs(request: AnyRequest) -> list[dict[str, Any]]:
    """The newest plans and jobs."""
    return [_view(request, job) for job in await runtime(request).installer.recent()]


@get("/api/plugins/jobs/{job:str}", guards=[manage])
async def one(request: AnyRequest, job: FromPath[str]) -> dict[str, Any]:
    return _view(request, await runtime(request).installer.get(job))


HANDLERS = (available, left_behind, plan, start, jobs, one)
