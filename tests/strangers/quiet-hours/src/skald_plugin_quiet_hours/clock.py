"""Whether it is night."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

import msgspec

from skald_core import api as skald


class Config(msgspec.Struct, frozen=True):
    start: Annotated[int, skald.setting("config.start", ge=0, le=23)] = 22
    end: Annotated[int, skald.setting("config.end", ge=0, le=23)] = 7

    @property
    def minutes(self) -> tuple[int, int]:
        return self.start * 60, self.end * 60


SETTINGS: Any = Config


def is_quiet(ctx: skald.PluginContext) -> bool:
    """By the server's clock; the hours may pass midnight."""
    now = dt.datetime.fromtimestamp(ctx.now()).astimezone()
    minute = now.hour * 60 + now.minute
    start, end = ctx.config.minutes
    return start <= minute < end if start <= end else minute >= start or minute < end
