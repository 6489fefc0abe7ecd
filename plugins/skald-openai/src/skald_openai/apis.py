"""OpenAI's two APIs, and the setting that chooses. Imported at start: it brings nothing else."""

from __future__ import annotations

from typing import Literal, get_args

from skald_core.api import ConfigError

__all__ = ("SETTINGS", "Api", "ApiSetting", "parse_api")

Api = Literal["chat", "responses"]
ApiSetting = Literal["automatic", "chat", "responses"]
SETTINGS: tuple[ApiSetting, ...] = get_args(ApiSetting)


def parse_api(text: str) -> ApiSetting:
    """The setting as it was stored; empty means automatic.

    Raises:
        ConfigError: it is none.
    """
    found = next((setting for setting in SETTINGS if setting == (text.strip() or "automatic")), None)
    if found is None:
        raise ConfigError(f"The API {text!r} is unknown. Choose one of: {', '.join(SETTINGS)}.")
    return found
