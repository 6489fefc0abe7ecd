"""Choosing a model for a turn: rows by priority, health from what really happened, one live provider object per row."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from skald_core.errors import NotFound
from skald_core.llm.rows import ModelRow, ModelTable, ProviderRow
from skald_core.loop.errors import AuthError, ConfigError, ModelGoneError
from skald_core.loop.provider import ModelHandle, Provider
from skald_core.loop.types import ModelInfo
from skald_core.plugins.contributions import ProviderType

__all__ = ("Health", "ModelCatalogue", "NoModel")

log = logging.getLogger("skald.llm")

DEGRADED_AFTER = 3
DOWN_AFTER = 5


class NoModel(ConfigError):
    """No model can be used; the sentence tells the person where to go."""

    kind = "no_model"


class Health(msgspec.Struct):
    """Consecutive failures of a model and the last reason."""

    failures: int = 0
    last_error: str = ""

    @property
    def state(self) -> Literal["ok", "degraded", "down"]:
        if self.failures >= DOWN_AFTER:
            return "down"
        return "degraded" if self.failures >= DEGRADED_AFTER else "ok"


class ModelCatalogue:
    """The models of the instance. Implements the loop's ``ModelSelector``.

    Automatic choice: enabled models by priority, those that are *down* last. A pin is used first, whatever its health; a
    fallback leaves out what was tried.
    """

    def __init__(self, table: ModelTable, provider_type: Callable[[str], ProviderType | None]) -> None:
        self.table = table
        self._type = provider_type
        self._models: list[ModelRow] = []
        self._rows: dict[str, ProviderRow] = {}
        self._live: dict[str, Provider] = {}
        self._health: dict[str, Health] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def reload(self) -> None:
        """Read the rows again; providers whose row changed or went are closed."""
        models, providers = await self.table.models(), {p.id: p for p in await self.table.providers()}
        for provider_id in list(self._live):
            if providers.get(provider_id) != self._rows.get(provider_id):
                self._retire(provider_id)
        self._models, self._rows = models, providers
        known = {m.id for m in models}
        self._health = {k: v for k, v in self._health.items() if k in known}

    def drop_type(self, type_id: str) -> None:
        """A plugin went away or was restarted: forget the providers it made."""
        for provider_id, row in self._rows.items():
            if row.type == type_id:
                self._retire(provider_id)

    def drop_missing_types(self) -> None:
        for type_id in {row.type for row in self._rows.values()}:
            self.drop_type(type_id)

    def _retire(self, provider_id: str) -> None:
        provider = self._live.pop(provider_id, None)
        if provider is not None:
            task = asyncio.get_running_loop().create_task(provider.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def models(self) -> list[ModelRow]:
        return self._models

    def health(self, model_id: str) -> Health:
        return self._health.setdefault(model_id, Health())

    def find(self, model_id: str) -> ModelRow:
        for row in self._models:
            if row.id == model_id:
                return row
        raise NotFound(f"there is no model {model_id!r}", code="model_not_found")

    def provider_for(self, row: ProviderRow) -> Provider:
        """The live provider of a row. Raises ConfigError when its plugin is not enabled or its settings make no sense."""
        live = self._live.get(row.id)
        if live is None:
            kind = self._type(row.type)
            if kind is None:
                raise ConfigError(
                    f"the provider {row.name!r} needs a plugin for {row.type!r} models that is not enabled; "
                    "an administrator can enable it under Plugins"
                )
            live = self._live[row.id] = kind.create(row.everything())
        return live

    def handle(self, row: ModelRow) -> ModelHandle:
        provider = self.provider_for(self._rows[row.provider])
        return ModelHandle(row.id, provider, row.model, _merge(provider.info(row.model), row.info), row.extra)

    async def select(self, *, pin: str | None = None, exclude: frozenset[str] = frozenset()) -> ModelHandle:
        usable = [m for m in self._models if m.enabled]
        if pin is not None and not exclude:
            pinned = next((m for m in self._models if m.id == pin), None)
            if pinned is None:
                raise NoModel(
                    "The model chosen for this conversation is gone. Choose another one below the message box."
                )
            return self.handle(pinned)
        order = sorted(usable, key=lambda m: (self.health(m.id).state == "down", m.priority))
        problem = ""
        for row in order:
            if row.id in exclude:
                continue
            try:
                return self.handle(row)
            except ConfigError as error:
                problem = problem or str(error)
        if exclude:
            raise NoModel("No other model is left to try.")
        if problem:
            raise NoModel(f"No model can be used: {problem}.")
        raise NoModel("No model is set up yet. Choose one on the Models page.")

    def report_success(self, handle_id: str) -> None:
        self._health[handle_id] = Health()

    def report_failure(self, handle_id: str, error: Exception) -> None:
        health = self.health(handle_id)
        health.failures += 1
        health.last_error = str(error)[:300]
        if isinstance(error, AuthError | ModelGoneError):
            health.failures = max(health.failures, DEGRADED_AFTER)
        log.info("model %s failed (%d in a row): %s", handle_id, health.failures, type(error).__name__)

    async def close(self) -> None:
        for provider_id in list(self._live):
            self._retire(provider_id)
        if self._closing:
            await asyncio.gather(*self._closing, return_exceptions=True)


def _merge(known: ModelInfo, stored: ModelInfo) -> ModelInfo:
    """What the admin stored wins over what the provider knows; defaults count as nothing said."""
    default = ModelInfo()
    changes: dict[str, Any] = {
        field: getattr(stored, field)
        for field in ModelInfo.__struct_fields__
        if getattr(stored, field) != getattr(default, field)
    }
    return msgspec.structs.replace(known, **changes)
