"""Against servers this project did not write: fakellm for whole conversations, llmock for faults and its verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from skald_openai.listing import list_models
from skald_openai.retry import RetryPolicy
from skald_openai.services import parse_endpoint

from skald_core.api import (
    AuthError,
    CallDelta,
    CallEnd,
    CallPart,
    CallStart,
    ContextLengthError,
    InvalidRequestError,
    MessageEnd,
    MessageStart,
    ModelGoneError,
    NetworkError,
    ProtocolError,
    RateLimitError,
    ResultPart,
    ServerError,
    TextDelta,
    WireMessage,
)

from .conftest import READ_FILE, Make, ask, collect, user
