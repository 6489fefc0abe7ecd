"""The kernel's HTTP routes, one module per subject; ``HANDLERS`` is all of them."""

from __future__ import annotations

from skald_core.server.routes import (
    account,
    agents,
    conversations,
    inbox,
    models,
    my_plugins,
    openapi,
    plugin_jobs,
    plugins,
)

HANDLERS = (
    *account.HANDLERS,
    *agents.HANDLERS,
    *conversations.HANDLERS,
    *inbox.HANDLERS,
    *models.HANDLERS,
    *my_plugins.HANDLERS,
    *openapi.HANDLERS,
    *plugin_jobs.HANDLERS,
    *plugins.HANDLERS,
)

__all__ = ("HANDLERS",)
