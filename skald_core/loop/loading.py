"""Tools that are offered only once they are needed: which are active, and how a request declares them.

A tool with ``deferred = True`` waits until the result of another call activates it (``ToolOutput.activates``). That is kept
with the call, and what is active follows from the calls a model is shown: another branch has other tools, a restart changes
nothing, and what a summary or the window leaves out has to be activated anew. The projection puts activations where the
model's API wants them (:data:`~skald_core.loop.types.ToolLoading`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from skald_core.loop.records import Call
from skald_core.loop.tools import ToolRegistry
from skald_core.loop.types import ToolLoading, ToolSpec

__all__ = ("ACTIVATES", "anchor_of", "brought_by", "offered")

ACTIVATES = "activates"
"""The key of a call's ``extras`` that holds the names of the tools its result activated."""


def brought_by(call: Call) -> tuple[str, ...]:
    """The tools a call activated, in the order it named them; none unless it succeeded."""
    names = call.extras.get(ACTIVATES) if call.extras else None
    if call.state != "done" or not isinstance(names, list | tuple):
        return ()
    return tuple(name for name in names if isinstance(name, str))


def anchor_of(calls: Sequence[Call], activation_tool: str) -> int:
    """Which result of a round names what the round brought: that of the tool so called, else the first that brought any."""
    named = (index for index, call in enumerate(calls) if activation_tool and call.name == activation_tool)
    bringing = (index for index, call in enumerate(calls) if brought_by(call))
    return next(named, next(bringing, 0))


def offered(
    registry: ToolRegistry, deferred: Mapping[str, ToolSpec], active: Collection[str], loading: ToolLoading
) -> tuple[ToolSpec, ...]:
    """The tools of a request. What is always offered comes first, so that its bytes stay as they are.

    ``deferred`` is the registry's own word on what waits, ``active`` what was activated so far, in that order.
    """
    if not deferred:
        return registry.specs()
    return tuple(_offered(registry, deferred, active, loading))


def _offered(
    registry: ToolRegistry, deferred: Mapping[str, ToolSpec], active: Collection[str], loading: ToolLoading
) -> Iterator[ToolSpec]:
    for tool in registry:
        if tool.name not in deferred:
            yield tool.spec()
    if loading == "inline":
        yield from (deferred[name] for name in active if name in deferred)
    elif loading == "reference":
        yield from (msgspec.structs.replace(spec, defer_loading=True) for spec in deferred.values())
