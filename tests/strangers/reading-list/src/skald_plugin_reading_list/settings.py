"""What the administrator sets, and what each user sets for themselves."""

from __future__ import annotations

from typing import Annotated

import msgspec

from skald_core import api as skald


class Config(msgspec.Struct, frozen=True):
    remind_days: Annotated[int, skald.setting("config.remind", "config.remind_help", ge=1, le=365)] = 7

    @property
    def remind_seconds(self) -> float:
        return self.remind_days * 86400.0


class UserConfig(msgspec.Struct, frozen=True):
    at_most: Annotated[int, skald.setting("user.at_most", "user.at_most_help", ge=0, le=20)] = 3


SETTINGS: type[msgspec.Struct] | skald.Settings = Config
