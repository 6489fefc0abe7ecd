"""The kernel's HTTP routes, one module per subject; ``HANDLERS`` is all of them."""

from __future__ import annotations

from skald_core.server.routes import account, agents, conversations, inbox, models, plugins

HANDLERS = (*account.HANDLERS, *agents.HANDLERS, *conversations.HANDLERS, *inbox.HANDLERS, *models.HANDLERS, *plugins.HANDLERS)

__all__ = ("HANDLERS",)
