"""The provider type the admin meets on the models page."""

from __future__ import annotations

from collections.abc import Sequence

from skald_core.api import (
    ConfigError,
    FieldOption,
    FoundServer,
    Provider,
    ProviderField,
    ProviderPreset,
    ProviderType,
    RemoteModel,
)
from skald_openai.apis import SETTINGS, parse_api
from skald_openai.services import ServiceSpec, all_services, parse_endpoint

__all__ = ("OpenAICompatible",)


class OpenAICompatible(ProviderType):
    """Any server that speaks chat completions, or OpenAI's Responses API.

    ``local_urls`` replaces where local servers are looked for (tests).
    """

    id = "openai"
    title = "OpenAI-compatible"
    summary = "plugin.openai.summary"
    fields = (
        ProviderField(
            key="base_url",
            label="plugin.openai.base_url",
            kind="url",
            required=True,
            help="plugin.openai.base_url_help",
        ),
        ProviderField(
            key="api_key",
            label="plugin.openai.api_key",
            kind="secret",
            help="plugin.openai.api_key_help",
        ),
        ProviderField(
            key="api",
            label="plugin.openai.api",
            kind="select",
            default="automatic",
            options=tuple(FieldOption(value=value, label=f"plugin.openai.api_{value}") for value in SETTINGS),
            help="plugin.openai.api_help",
        ),
    )

    def __init__(self, *, local_urls: Sequence[str] | None = None) -> None:
        self.presets = tuple(_preset(service) for service in all_services())
        self._local_urls = local_urls

    def create(self, settings: dict[str, str]) -> Provider:
        """Raises ConfigError for settings that make no sense, or a missing key where one is certainly needed."""
        from skald_openai.provider import OpenAIProvider

        base_url, api_key = settings.get("base_url", ""), settings.get("api_key", "").strip()
        endpoint = parse_endpoint(base_url)
        if endpoint.service.key == "required" and not api_key:
            raise ConfigError(f"{endpoint.label} wants an API key. Enter one for this provider.")
        # The id tells servers apart, so that what one of them wants back is never sent to another.
        return OpenAIProvider(
            provider_id=f"openai:{endpoint.origin.partition('://')[2]}",
            base_url=base_url,
            api_key=api_key,
            api=parse_api(settings.get("api", "")),
        )

    async def list_models(self, settings: dict[str, str]) -> Sequence[RemoteModel]:
        from skald_openai.listing import list_models

        endpoint = parse_endpoint(settings.get("base_url", ""))
        return await list_models(endpoint, settings.get("api_key", "").strip())

    async def discover(self) -> Sequence[FoundServer]:
        from skald_openai import discovery

        urls = discovery.local_urls() if self._local_urls is None else self._local_urls
        return await discovery.discover(urls)


def _preset(service: ServiceSpec) -> ProviderPreset:
    return ProviderPreset(
        id=service.id,
        title=service.title,
        settings={"base_url": service.base_url},
        key=service.key,
        help_url=service.help_url,
        local=service.local,
    )
