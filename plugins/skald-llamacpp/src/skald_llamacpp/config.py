"""What an admin may set."""

from __future__ import annotations

from typing import Annotated

import msgspec

__all__ = ("Config",)


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the plugin; they count from the next start of a model. Titles and helps are keys of its texts."""

    idle_minutes: Annotated[
        int,
        msgspec.Meta(
            ge=0,
            le=10_080,
            title="plugin.llamacpp.config.idle_minutes",
            description="plugin.llamacpp.config.idle_minutes.help",
        ),
    ] = 20
    threads: Annotated[
        int,
        msgspec.Meta(
            ge=0, le=512, title="plugin.llamacpp.config.threads", description="plugin.llamacpp.config.threads.help"
        ),
    ] = 0
    context_size: Annotated[
        int,
        msgspec.Meta(
            ge=2048,
            le=262_144,
            title="plugin.llamacpp.config.context_size",
            description="plugin.llamacpp.config.context_size.help",
        ),
    ] = 8192
