"""The provider: makes sure the model's process is up, and leaves the talking to the plugin that speaks chat completions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from skald_core.api import (
    ChatCompletions,
    ConfigError,
    MessageStart,
    ModelGoneError,
    ModelInfo,
    ModelRequest,
    NetworkError,
    PluginContext,
    Provider,
    ProviderType,
    RemoteModel,
    ServerError,
    StreamEvent,
)

if TYPE_CHECKING:
    from skald_llamacpp.library import Library
    from skald_llamacpp.servers import Endpoint, ServerFailure

__all__ = ("LocalProvider", "LocalProviderType")

_GONE = frozenset({"unknown_model", "file_gone"})


class LocalProviderType(ProviderType):
    """Models of this machine. Set up on this plugin's own page; a row has no settings."""

    id = "llamacpp"
    setup_page = "models"

    def __init__(self, ctx: PluginContext, library: Callable[[], Library]) -> None:
        """``library`` is called when a model is first needed, so that enabling the plugin stays quick."""
        self._ctx = ctx
        self._library = library
        self.title = "plugin.llamacpp.type.title"
        self.summary = "plugin.llamacpp.type.summary"

    def create(self, settings: dict[str, str]) -> Provider:
        return LocalProvider(self._ctx, self._library())

    async def list_models(self, settings: dict[str, str]) -> Sequence[RemoteModel]:
        library = self._library()
        return [RemoteModel(id=k.id, title=k.title, info=library.info(k.id)) for k in library.models()]


class LocalProvider:
    """Implements ``Provider`` for the models of this machine. Each has a process of its own, shared by everyone."""

    id = "llamacpp"

    def __init__(self, ctx: PluginContext, library: Library) -> None:
        self._ctx = ctx
        self._library = library

    def info(self, model: str) -> ModelInfo:
        return self._library.info(model)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        """Start the process when it is not up, then stream. A process that dies before it said anything is started again,
        once.

        Raises:
            ConfigError: no plugin that speaks chat completions is enabled.
            ModelGoneError: the model or its file is not here any more.
            ServerError: the process does not start or died; another model may answer.
        """
        from skald_llamacpp.servers import ServerFailure

        shown = started = False
        for last in (False, True):
            try:
                server = await self._library.server(request.model)
                async with server.use() as endpoint:
                    inner = self._codec(request.model, endpoint)
                    try:
                        async with aclosing(inner.stream(request)) as events:  # type: ignore[type-var]  # a generator
                            async for event in events:
                                if isinstance(event, MessageStart):
                                    if started:
                                        continue
                                    started = True
                                else:
                                    shown = True
                                yield event
                        return
                    except NetworkError as error:
                        if shown or last or not await server.ended(endpoint):
                            raise
                        self._ctx.log.warning("the process of %s ended during a call: %s", request.model, error)
                    finally:
                        await inner.close()
            except ServerFailure as failure:
                raise self._error(failure) from None

    def _codec(self, model: str, endpoint: Endpoint) -> Provider:
        """A codec for one call.

        It is not kept: llama.cpp's server now and then closes a connection on which the next request follows a stream at
        once, so connections are not used twice. To this machine a new one costs a fraction of a millisecond.
        """
        make = self._ctx.service(ChatCompletions)  # type: ignore[type-abstract]  # looked up by its protocol
        if make is None:
            raise ConfigError(self._ctx.t("error.no_codec"))
        return make(
            provider_id=self.id,
            base_url=endpoint.base_url,
            api_key=endpoint.key,
            infos={model: self._library.info(model)},
            max_retries=1,
        )

    def _error(self, failure: ServerFailure) -> ModelGoneError | ServerError:
        from skald_llamacpp.texts import tell

        text = tell(self._ctx, failure.code, failure.values)
        return ModelGoneError(text) if failure.code in _GONE else ServerError(text)

    async def close(self) -> None:
        """Nothing to do: connections end with their calls, processes with the plugin."""
