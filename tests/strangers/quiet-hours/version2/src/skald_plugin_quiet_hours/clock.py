"""Whether it is night."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

import msgspec

from skald_core import api as skald

_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]"


class Config(msgspec.Struct, frozen=True):
    start: Annotated[str, skald.setting("config.start", pattern=f"^{_TIME}$")] = "22:00"
    end: Annotated[str, skald.setting("config.end", pattern=f"^{_TIME}$")] = "07:00"

    @property
    def minutes(self) -> tuple[int, int]:
        start, end = ((int(t[:2]) * 60 + int(t[3:])) for t in (self.start, self.end))
        return start, end


def migrate(values: dict[str, Any], version: int) -> dict[str, Any]:
    """Version 1 had whole hours."""
    if version < 2:
        values = {key: f"{value:02d}:00" if isinstance(value, int) else value for key, value in values.items()}
    return values


SETTINGS: Any = skald.Settings(type=Config, version=2, migrate_config=migrate)


def is_quiet(ctx: skald.PluginContext) -> bool:
    """By the server's clock; the hours may pass midnight."""
    now = dt.datetime.fromtimestamp(ctx.now()).astimezone()
    minute = now.hour * 60 + now.minute
    start, end = ctx.config.minutes
    return start <= minute < end if start <= end else minute >= start or minute < end
