"""How much a model shall reason, in the levels its server knows."""

from __future__ import annotations

from skald_core.api import ModelRequest
from skald_openai.known import known_info

__all__ = ("asked_effort", "reasons")

_SCALE = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def asked_effort(request: ModelRequest, *, insisted: str | None, levels: tuple[str, ...]) -> str | None:
    """The level to send, or None to send none: nothing was asked for, or the model is known not to reason.

    ``insisted`` is what the server wants whatever was asked for; ``levels`` are those it knows, lowest first.
    """
    if insisted is not None:
        return insisted
    if not request.effort or reasons(request) is False:
        return None
    return _nearest(request.effort, levels)


def reasons(request: ModelRequest) -> bool | None:
    """Does the request's model reason? None when neither its capabilities nor its name tell."""
    if "reasoning" in request.info.capabilities:
        return True
    known = known_info(request.model)
    return None if known is None else "reasoning" in known.capabilities


def _nearest(effort: str, levels: tuple[str, ...]) -> str:
    """The level of ``levels`` nearest to ``effort``, the lower of two equally near; a word of no known scale as it is.

    ``none`` is only ever chosen by name: to be asked for a little reasoning is not to be asked for none.
    """
    if effort in levels or effort not in _SCALE:
        return effort
    wanted = _SCALE.index(effort)
    choices = [level for level in levels if level in _SCALE and level != "none"]
    return min(choices, key=lambda level: (abs(_SCALE.index(level) - wanted), _SCALE.index(level)), default=effort)
