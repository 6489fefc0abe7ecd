"""Model providers and models. Stored secrets never leave through here."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from litestar import Request, delete, get, patch, post, put
from litestar.params import FromPath, JSONBody

from skald_core.errors import BadInput
from skald_core.llm.catalogue import ModelCatalogue
from skald_core.llm.rows import ModelRow, ProviderRow
from skald_core.loop.errors import LoopError, ModelError, NetworkError
from skald_core.loop.types import ModelInfo
from skald_core.plugins.contributions import ProviderType, RemoteModel
from skald_core.server.guards import caller, capability, runtime, signed_in

__all__ = ("HANDLERS",)

AnyRequest = Request[Any, Any, Any]
Value = Annotated[str, msgspec.Meta(max_length=8192)]
manage = capability("models.manage")


class ProviderBody(msgspec.Struct):
    type: str
    name: str
    settings: dict[str, Value] = {}


class ChangeProvider(msgspec.Struct):
    name: str | None = None
    settings: dict[str, Value] | None = None


class TestBody(msgspec.Struct):
    type: str
    settings: dict[str, Value] = {}
    provider: str | None = None


class ModelBody(msgspec.Struct):
    provider: str
    model: Annotated[str, msgspec.Meta(max_length=300)]
    title: Annotated[str, msgspec.Meta(max_length=300)] = ""
    info: ModelInfo = ModelInfo()
    extra: dict[str, Any] = {}


class ChangeModel(msgspec.Struct):
    title: str | None = None
    priority: int | None = None
    enabled: bool | None = None
    info: ModelInfo | None = None
    extra: dict[str, Any] | None = None


class Order(msgspec.Struct):
    ids: list[str]


def error_view(error: Exception) -> dict[str, Any]:
    kind = error.kind if isinstance(error, LoopError) else "error"
    detail = error.detail if isinstance(error, ModelError) else ""
    return {"kind": kind, "message": str(error), "detail": detail, "retryable": getattr(error, "retryable", False)}


def _type(request: AnyRequest, type_id: str) -> ProviderType:
    found = runtime(request).plugins.contributed.provider_type(type_id)
    if found is None:
        raise BadInput(
            f"no enabled plugin knows providers of type {type_id!r}; enable it under Plugins", code="provider_type"
        )
    return found[1]


def _split(kind: ProviderType, settings: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Plain settings and secrets, by the type's fields; unknown keys are refused."""
    fields = {f.key: f for f in kind.fields}
    unknown = sorted(set(settings) - set(fields))
    if unknown:
        raise BadInput(f"{kind.title} providers have no setting {unknown[0]!r}", code="bad_setting")
    plain = {k: v.strip() for k, v in settings.items() if fields[k].kind != "secret"}
    return plain, {k: v.strip() for k, v in settings.items() if fields[k].kind == "secret"}


def _complete(request: AnyRequest, kind: ProviderType, settings: dict[str, str]) -> dict[str, str]:
    full = {f.key: f.default for f in kind.fields if f.default} | {k: v for k, v in settings.items() if v}
    missing = [f.label for f in kind.fields if f.required and not full.get(f.key)]
    if missing:
        label = runtime(request).texts.t(missing[0], caller(request).locale)
        raise BadInput(f"{label} is needed.", code="missing_setting", label=label)
    return full


def _provider_view(row: ProviderRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "type": row.type,
        "name": row.name,
        "settings": row.settings,
        "secrets": dict.fromkeys(row.secrets, True),
    }


def _model_view(catalogue: ModelCatalogue, row: ModelRow) -> dict[str, Any]:
    health = catalogue.health(row.id)
    try:
        info = catalogue.handle(row).info
    except LoopError:
        info = row.info
    return {
        "id": row.id,
        "provider": row.provider,
        "provider_name": row.provider_name,
        "type": row.type,
        "model": row.model,
        "title": row.title,
        "priority": row.priority,
        "enabled": row.enabled,
        "info": {"context_window": info.context_window, "capabilities": sorted(info.capabilities), "weak": info.weak},
        "health": health.state,
        "last_error": health.last_error,
    }


@get("/api/provider-types", guards=[signed_in])
async def types(request: AnyRequest) -> list[dict[str, Any]]:
    """Kinds of model API. A preset for a service that has a type of its own is left to that type."""
    own = {t.id for _, t in runtime(request).plugins.contributed.provider_types() if t.presets}
    return [
        {
            "id": t.id,
            "plugin": plugin_id,
            "title": t.title,
            "summary": t.summary,
            "fields": t.fields,
            "presets": [p for p in t.presets if p.id == t.id or p.id not in own],
            "setup_page": {"plugin": plugin_id, "page": t.setup_page} if t.setup_page else None,
        }
        for plugin_id, t in runtime(request).plugins.contributed.provider_types()
    ]


@get("/api/providers", guards=[manage])
async def providers(request: AnyRequest) -> list[dict[str, Any]]:
    return [_provider_view(row) for row in await runtime(request).catalogue.table.providers()]


@post("/api/providers", guards=[manage], status_code=201)
async def add_provider(request: AnyRequest, data: JSONBody[ProviderBody]) -> dict[str, Any]:
    app = runtime(request)
    kind = _type(request, data.type)
    plain, secrets = _split(kind, _complete(request, kind, data.settings))
    kind.create({**plain, **secrets})  # refuses settings that make no sense
    row = await app.catalogue.table.add_provider(
        data.type, data.name or kind.title, plain, {k: v for k, v in secrets.items() if v}
    )
    await app.audit(caller(request), "provider.create", row.name)
    await app.models_changed()
    return _provider_view(row)


@patch("/api/providers/{provider:str}", guards=[manage])
async def change_provider(
    request: AnyRequest, provider: FromPath[str], data: JSONBody[ChangeProvider]
) -> dict[str, Any]:
    app = runtime(request)
    row = await app.catalogue.table.provider(provider)
    plain: dict[str, str] | None = None
    secrets: dict[str, str] = {}
    if data.settings is not None:
        plain, secrets = _split(_type(request, row.type), data.settings)
        plain = {k: v for k, v in {**row.settings, **plain}.items() if v}
    row = await app.catalogue.table.change_provider(provider, name=data.name, settings=plain, secrets=secrets)
    await app.audit(caller(request), "provider.change", row.name)
    await app.models_changed()
    return _provider_view(row)


@delete("/api/providers/{provider:str}", guards=[manage], status_code=204)
async def remove_provider(request: AnyRequest, provider: FromPath[str]) -> None:
    app = runtime(request)
    row = await app.catalogue.table.provider(provider)
    await app.catalogue.table.remove_provider(provider)
    await app.audit(caller(request), "provider.delete", row.name)
    await app.models_changed()


@post("/api/providers/test", guards=[manage], status_code=200)
async def test_provider(request: AnyRequest, data: JSONBody[TestBody]) -> dict[str, Any]:
    """Ask the server for its models with these settings; a secret left out is taken from ``provider``. Stores nothing."""
    kind = _type(request, data.type)
    settings = dict(data.settings)
    if data.provider is not None:
        row = await runtime(request).catalogue.table.provider(data.provider)
        settings = {**row.settings, **row.secrets, **{k: v for k, v in settings.items() if v}}
    try:
        async with asyncio.timeout(20):
            models = await kind.list_models(_complete(request, kind, settings))
    except TimeoutError:
        return {
            "ok": False,
            "models": [],
            "error": {"kind": "network", "message": "The server did not answer within 20 seconds."},
        }
    except LoopError as error:
        return {"ok": False, "models": [], "error": error_view(error)}
    return {"ok": True, "models": [_remote_view(m) for m in models]}


def _remote_view(model: RemoteModel) -> dict[str, Any]:
    return {
        "id": model.id,
        "title": model.title or model.id,
        "info": {
            "context_window": model.info.context_window,
            "capabilities": sorted(model.info.capabilities),
            "weak": model.info.weak,
        },
    }


@get("/api/providers/discover", guards=[manage])
async def discover(request: AnyRequest) -> list[dict[str, Any]]:
    """Servers already running on this machine."""
    kinds = [t for _, t in runtime(request).plugins.contributed.provider_types()]
    found = await asyncio.gather(*(_discover(t) for t in kinds))
    rows = [row for rows in found for row in rows]
    # One server found by two types: the one made for it (its title is the type's id) goes first and is kept.
    rows.sort(key=lambda row: row["title"].lower() != row["type"])
    by_place: dict[str, dict[str, Any]] = {}
    for row in rows:
        by_place.setdefault(urlsplit(row["settings"].get("base_url", "")).netloc or row["title"], row)
    return list(by_place.values())


async def _discover(kind: ProviderType) -> list[dict[str, Any]]:
    try:
        async with asyncio.timeout(3):
            servers = await kind.discover()
    except Exception:  # noqa: BLE001 -- looking around is a favour; a plugin's failure must not spoil the page
        return []
    return [
        {"type": kind.id, "title": s.title, "settings": s.settings, "models": [_remote_view(m) for m in s.models]}
        for s in servers
    ]


@get("/api/providers/{provider:str}/models", guards=[manage])
async def remote_models(request: AnyRequest, provider: FromPath[str]) -> list[dict[str, Any]]:
    row = await runtime(request).catalogue.table.provider(provider)
    try:
        async with asyncio.timeout(30):
            return [_remote_view(m) for m in await _type(request, row.type).list_models(row.everything())]
    except TimeoutError:
        raise NetworkError("The server did not answer within 30 seconds.") from None


@get("/api/models", guards=[signed_in])
async def models(request: AnyRequest) -> list[dict[str, Any]]:
    catalogue = runtime(request).catalogue
    return [_model_view(catalogue, row) for row in catalogue.models()]


@post("/api/models", guards=[manage], status_code=201)
async def add_model(request: AnyRequest, data: JSONBody[ModelBody]) -> dict[str, Any]:
    app = runtime(request)
    row = await app.catalogue.table.add_model(
        data.provider, data.model, title=data.title, info=data.info, extra=data.extra
    )
    await app.audit(caller(request), "model.create", row.title)
    await app.models_changed()
    return _model_view(app.catalogue, row)


@patch("/api/models/{model:str}", guards=[manage])
async def change_model(request: AnyRequest, model: FromPath[str], data: JSONBody[ChangeModel]) -> dict[str, Any]:
    app = runtime(request)
    row = await app.catalogue.table.change_model(
        model, title=data.title, priority=data.priority, enabled=data.enabled, info=data.info, extra=data.extra
    )
    await app.audit(caller(request), "model.change", row.title)
    await app.models_changed()
    return _model_view(app.catalogue, row)


@delete("/api/models/{model:str}", guards=[manage], status_code=204)
async def remove_model(request: AnyRequest, model: FromPath[str]) -> None:
    app = runtime(request)
    row = await app.catalogue.table.model(model)
    await app.catalogue.table.remove_model(model)
    await app.audit(caller(request), "model.delete", row.title)
    await app.models_changed()


@put("/api/models/order", guards=[manage])
async def order(request: AnyRequest, data: JSONBody[Order]) -> list[dict[str, Any]]:
    app = runtime(request)
    await app.catalogue.table.order(data.ids)
    await app.audit(caller(request), "model.order", ", ".join(data.ids))
    await app.models_changed()
    return [_model_view(app.catalogue, row) for row in app.catalogue.models()]


@post("/api/models/{model:str}/test", guards=[manage], status_code=200)
async def test_model(request: AnyRequest, model: FromPath[str]) -> dict[str, Any]:
    """One short real call."""
    app = runtime(request)
    try:
        text = await app.try_model(app.catalogue.find(model), locale=caller(request).locale)
    except LoopError as error:
        return {"ok": False, "error": error_view(error)}
    return {"ok": True, "text": text}


HANDLERS = (
    types, providers, add_provider, change_provider, remove_provider, test_provider, discover, remote_models, models, add_model,
    change_model, remove_model, order, test_model,
)  # fmt: skip
