"""What the tests of skald-openai share beside ``skald_core.testing``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from skald_core.api import ModelInfo
from skald_core.testing.servers import Wire
from skald_core.testing.servers import ask as any_request
from skald_openai.provider import OpenAIProvider

ask = functools.partial(any_request, model="gpt-4o-mini", info=ModelInfo(context_window=128000))
"""A request of one user message."""

Make = Callable[..., OpenAIProvider]


async def chunks(wire: Wire, *payloads: Any) -> None:
    """A stream of chat completions, with its end mark."""
    await wire.events(*payloads, done=True)
