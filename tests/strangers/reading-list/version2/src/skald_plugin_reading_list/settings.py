"""What the administrator sets, and what each user sets for themselves."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from skald_core import api as skald


class Config(msgspec.Struct, frozen=True):
    remind_hours: Annotated[int, skald.setting("config.remind", "config.remind_help", ge=1, le=8760)] = 168

    @property
    def remind_seconds(self) -> float:
        return self.remind_hours * 3600.0


class UserConfig(msgspec.Struct, frozen=True):
    at_most: Annotated[int, skald.setting("user.at_most", "user.at_most_help", ge=0, le=20)] = 3


def migrate(values: dict[str, Any], version: int) -> dict[str, Any]:
    """Version 1 counted days."""
    if version < 2 and "remind_days" in values:
        values["remind_hours"] = values.pop("remind_days") * 24
    return values


SETTINGS: type[msgspec.Struct] | skald.Settings = skald.Settings(type=Config, version=2, migrate_config=migrate)
