"""The provider type the admin meets on the models page."""

from __future__ import annotations

from collections.abc import Sequence

from skald_anthropic.address import DEFAULT_BASE_URL, parse_address
from skald_core.api import ConfigError, Provider, ProviderField, ProviderPreset, ProviderType, RemoteModel

__all__ = ("AnthropicMessages",)


class AnthropicMessages(ProviderType):
    """Anthropic, or any server that speaks its Messages API."""

    id = "anthropic"
    title = "Anthropic"
    summary = "plugin.anthropic.summary"
    fields = (
        ProviderField(
            key="base_url",
            label="plugin.anthropic.base_url",
            kind="url",
            required=True,
            default=DEFAULT_BASE_URL,
            help="plugin.anthropic.base_url_help",
        ),
        ProviderField(
            key="api_key",
            label="plugin.anthropic.api_key",
            kind="secret",
            help="plugin.anthropic.api_key_help",
        ),
    )
    presets = (
        ProviderPreset(
            id="anthropic",
            title="Anthropic",
            settings={"base_url": DEFAULT_BASE_URL},
            help_url="https://platform.claude.com/settings/keys",
        ),
    )

    def create(self, settings: dict[str, str]) -> Provider:
        """Raises ConfigError for an address or key that makes no sense, or a missing key where one is certainly needed."""
        from skald_anthropic.provider import AnthropicProvider

        base_url, api_key = settings.get("base_url", ""), settings.get("api_key", "").strip()
        address = parse_address(base_url)
        if address.known and not api_key:
            raise ConfigError("Anthropic wants an API key. Enter one for this provider.")
        # The id tells servers apart, so that what one of them wants back is never sent to another.
        return AnthropicProvider(
            provider_id=f"anthropic:{address.base_url.partition('://')[2]}", base_url=base_url, api_key=api_key
        )

    async def list_models(self, settings: dict[str, str]) -> Sequence[RemoteModel]:
        from skald_anthropic.listing import list_models

        return await list_models(parse_address(settings.get("base_url", "")), settings.get("api_key", "").strip())
