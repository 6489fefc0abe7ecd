"""The OpenAPI document."""

from __future__ import annotations

from typing import Any

from litestar import Request, get

from skald_core.server.guards import plugins_for, public, runtime

__all__ = ("HANDLERS",)


@get("/api/schema/openapi.json", guards=[public], include_in_schema=False)
async def document(request: Request[Any, Any, Any]) -> dict[str, Any]:
    """Every route of the kernel and of the plugins that run now, as far as the caller may use them."""
    return await runtime(request).openapi.get(await plugins_for(request))


HANDLERS = (document,)
