"""Model selectors for embedders; the server brings its own."""

from __future__ import annotations

from collections.abc import Sequence

from skald_core.loop.errors import ConfigError
from skald_core.loop.provider import ModelHandle, Provider

__all__ = ("SingleModel", "StaticModels")


class StaticModels:
    """A list in order of preference: the first one not excluded, or the pinned one on the first attempt."""

    def __init__(self, handles: Sequence[ModelHandle]) -> None:
        if not handles:
            raise ConfigError("no model is configured; give at least one")
        self._handles = tuple(handles)

    async def select(self, *, pin: str | None = None, exclude: frozenset[str] = frozenset()) -> ModelHandle:
        if pin is not None and not exclude:
            for handle in self._handles:
                if pin in (handle.id, handle.model):
                    return handle
            raise ConfigError(f"the model {pin!r} is not configured; choose one of {[h.id for h in self._handles]}")
        for handle in self._handles:
            if handle.id not in exclude:
                return handle
        raise ConfigError("every configured model has failed")

    def report_success(self, handle_id: str) -> None:
        return None

    def report_failure(self, handle_id: str, error: Exception) -> None:
        return None


class SingleModel(StaticModels):
    """Always the same model."""

    def __init__(self, provider: Provider, model: str) -> None:
        if not model:
            raise ConfigError('name a model: Agent(provider=…, model="…")')
        super().__init__([ModelHandle(f"{provider.id}/{model}", provider, model, provider.info(model))])
