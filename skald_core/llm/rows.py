"""Provider and model rows in ``system.db``. Secrets are write-only: they leave this module only towards a provider."""

from __future__ import annotations

import secrets as random
import time
from typing import Any

import msgspec
from sqlcipher3 import dbapi2 as sqlite

from skald_core.errors import BadInput, Conflict, NotFound
from skald_core.loop.database import Connection, Database
from skald_core.loop.types import ModelInfo

__all__ = ("ModelRow", "ModelTable", "ProviderRow")


class ProviderRow(msgspec.Struct, frozen=True):
    """A configured provider. ``settings`` are plain values; ``secrets`` hold keys and never leave the server."""

    id: str
    type: str
    name: str
    settings: dict[str, str]
    secrets: dict[str, str]

    def everything(self) -> dict[str, str]:
        return {**self.settings, **self.secrets}


class ModelRow(msgspec.Struct, frozen=True):
    """A model people can be answered by. Lower ``priority`` is tried first."""

    id: str
    provider: str
    provider_name: str
    type: str
    model: str
    title: str
    priority: int
    enabled: bool
    info: ModelInfo
    extra: dict[str, Any]


_MODEL_QUERY = (
    "SELECT m.id, m.provider_id, p.name, p.type, m.model, m.title, m.priority, m.enabled, m.info, m.extra "
    "FROM llm_models m JOIN llm_providers p ON p.id = m.provider_id "
)


def _provider(row: tuple[Any, ...]) -> ProviderRow:
    text = dict[str, str]
    return ProviderRow(
        row[0], row[1], row[2], msgspec.json.decode(row[3], type=text), msgspec.json.decode(row[4], type=text)
    )


def _model(row: tuple[Any, ...]) -> ModelRow:
    return ModelRow(
        id=row[0],
        provider=row[1],
        provider_name=row[2],
        type=row[3],
        model=row[4],
        title=row[5],
        priority=row[6],
        enabled=bool(row[7]),
        info=msgspec.json.decode(row[8], type=ModelInfo),
        extra=msgspec.json.decode(row[9]),
    )


class ModelTable:
    """Reads and writes the rows; a caller that changes something tells the catalogue afterwards."""

    def __init__(self, database: Database) -> None:
        self._db = database

    # providers ----------------------------------------------------------------------------------------------------

    async def providers(self) -> list[ProviderRow]:
        query = "SELECT id, type, name, settings, secrets FROM llm_providers ORDER BY name"
        return [_provider(r) for r in await self._db.read(lambda c: c.execute(query).fetchall())]

    async def provider(self, provider_id: str) -> ProviderRow:
        """Raises NotFound."""
        query = "SELECT id, type, name, settings, secrets FROM llm_providers WHERE id=?"
        row = await self._db.read(lambda c: c.execute(query, (provider_id,)).fetchone())
        if row is None:
            raise NotFound(f"there is no model provider {provider_id!r}", code="provider_not_found")
        return _provider(row)

    async def add_provider(
        self, type_id: str, name: str, settings: dict[str, str], secrets: dict[str, str]
    ) -> ProviderRow:
        row = ProviderRow(random.token_hex(8), type_id, _name(name), settings, secrets)
        values = (row.id, row.type, row.name, _json(settings), _json(secrets), time.time())

        def insert(c: Connection) -> None:
            try:
                c.execute("INSERT INTO llm_providers VALUES(?,?,?,?,?,?)", values)
            except sqlite.IntegrityError:
                raise Conflict(f"a provider called {row.name!r} exists already; give this one another name") from None

        await self._db.write(insert)
        return row

    async def change_provider(
        self, provider_id: str, *, name: str | None, settings: dict[str, str] | None, secrets: dict[str, str]
    ) -> ProviderRow:
        """``secrets`` holds only those to replace; an empty value removes one."""
        old = await self.provider(provider_id)
        kept = {k: v for k, v in {**old.secrets, **secrets}.items() if v}
        new = ProviderRow(old.id, old.type, old.name if name is None else _name(name), settings or old.settings, kept)

        def update(c: Connection) -> None:
            try:
                c.execute(
                    "UPDATE llm_providers SET name=?, settings=?, secrets=? WHERE id=?",
                    (new.name, _json(new.settings), _json(new.secrets), new.id),
                )
            except sqlite.IntegrityError:
                raise Conflict(f"a provider called {new.name!r} exists already; give this one another name") from None

        await self._db.write(update)
        return new

    async def remove_provider(self, provider_id: str) -> None:
        await self.provider(provider_id)
        await self._db.write(lambda c: c.execute("DELETE FROM llm_providers WHERE id=?", (provider_id,)))

    # models -------------------------------------------------------------------------------------------------------

    async def models(self) -> list[ModelRow]:
        query = _MODEL_QUERY + "ORDER BY m.priority, m.created_at, m.id"
        return [_model(r) for r in await self._db.read(lambda c: c.execute(query).fetchall())]

    async def model(self, model_id: str) -> ModelRow:
        """Raises NotFound."""
        row = await self._db.read(lambda c: c.execute(_MODEL_QUERY + "WHERE m.id=?", (model_id,)).fetchone())
        if row is None:
            raise NotFound(f"there is no model {model_id!r}", code="model_not_found")
        return _model(row)

    async def add_model(
        self,
        provider_id: str,
        model: str,
        *,
        title: str = "",
        info: ModelInfo = ModelInfo(),
        extra: dict[str, Any] | None = None,
    ) -> ModelRow:
        """Added last in priority; a model the provider already has is a Conflict."""
        if not model.strip():
            raise BadInput("Name the model as its server knows it.", code="bad_model")
        await self.provider(provider_id)
        model_id = random.token_hex(8)
        values = (
            provider_id,
            model.strip(),
            (title.strip() or model.strip())[:120],
            _json(info),
            _json(extra or {}),
            time.time(),
        )

        def insert(c: Connection) -> None:
            last = c.execute("SELECT coalesce(max(priority), 0) FROM llm_models").fetchone()[0]
            try:
                c.execute(
                    "INSERT INTO llm_models(id,provider_id,model,title,priority,info,extra,created_at) VALUES(?,?,?,?,?,?,?,?)",
                    (model_id, *values[:3], last + 10, *values[3:]),
                )
            except sqlite.IntegrityError:
                raise Conflict(f"the model {model!r} of this provider is in the list already") from None

        await self._db.write(insert)
        return await self.model(model_id)

    async def change_model(
        self,
        model_id: str,
        *,
        title: str | None = None,
        priority: int | None = None,
        enabled: bool | None = None,
        info: ModelInfo | None = None,
        extra: dict[str, Any] | None = None,
    ) -> ModelRow:
        await self.model(model_id)
        changes: dict[str, Any] = {
            "title": title,
            "priority": priority,
            "enabled": None if enabled is None else int(enabled),
            "info": None if info is None else _json(info),
            "extra": None if extra is None else _json(extra),
        }
        named = {k: v for k, v in changes.items() if v is not None}
        if named:
            sets = ", ".join(f"{k}=?" for k in named)
            values = (*named.values(), model_id)
            await self._db.write(lambda c: c.execute(f"UPDATE llm_models SET {sets} WHERE id=?", values))
        return await self.model(model_id)

    async def remove_model(self, model_id: str) -> None:
        await self.model(model_id)
        await self._db.write(lambda c: c.execute("DELETE FROM llm_models WHERE id=?", (model_id,)))

    async def order(self, ids: list[str]) -> None:
        """Put these models first, in this order; the others keep theirs behind them."""

        def update(c: Connection) -> None:
            known = [row[0] for row in c.execute("SELECT id FROM llm_models ORDER BY priority, created_at, id")]
            wanted = [i for i in dict.fromkeys(ids) if i in known]
            for place, model_id in enumerate([*wanted, *(i for i in known if i not in wanted)], 1):
                c.execute("UPDATE llm_models SET priority=? WHERE id=?", (place * 10, model_id))

        await self._db.write(update)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _name(name: str) -> str:
    if not 1 <= len(name.strip()) <= 80:
        raise BadInput("A provider's name has 1 to 80 characters.", code="bad_name")
    return name.strip()
