"""The provider type the admin meets on the models page."""

from __future__ import annotations

from collections.abc import Sequence

from skald_core.api import FoundServer, Provider, ProviderField, ProviderPreset, ProviderType, RemoteModel
from skald_ollama.address import DEFAULT_BASE_URL, parse_address

__all__ = ("Ollama",)


class Ollama(ProviderType):
    """An Ollama. ``local_url`` replaces where a local one is looked for (tests)."""

    id = "ollama"
    title = "Ollama"
    summary = "plugin.ollama.summary"
    fields = (
        ProviderField(
            key="base_url",
            label="plugin.ollama.base_url",
            kind="url",
            required=True,
            default=DEFAULT_BASE_URL,
            help="plugin.ollama.base_url_help",
        ),
        ProviderField(key="keep_alive", label="plugin.ollama.keep_alive", help="plugin.ollama.keep_alive_help"),
    )
    presets = (
        ProviderPreset(
            id="ollama",
            title="Ollama",
            settings={"base_url": DEFAULT_BASE_URL},
            key="none",
            help_url="https://docs.ollama.com/quickstart",
            local=True,
        ),
    )

    def __init__(self, *, local_url: str = DEFAULT_BASE_URL) -> None:
        self._local_url = local_url

    def create(self, settings: dict[str, str]) -> Provider:
        """Raises ConfigError for an address or a time that makes no sense."""
        from skald_ollama.provider import OllamaProvider

        base_url = settings.get("base_url", "")
        return OllamaProvider(
            provider_id=f"ollama:{parse_address(base_url).base_url.partition('://')[2]}",
            base_url=base_url,
            keep_alive=settings.get("keep_alive", ""),
        )

    async def list_models(self, settings: dict[str, str]) -> Sequence[RemoteModel]:
        from skald_ollama.listing import list_models

        return await list_models(parse_address(settings.get("base_url", "")))

    async def discover(self) -> Sequence[FoundServer]:
        from skald_ollama.listing import discover

        return await discover(parse_address(self._local_url))
