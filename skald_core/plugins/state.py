"""What is known of each plugin: its state, what went wrong, how long it took."""

from __future__ import annotations

import time
from typing import Literal

import msgspec

from skald_core.loop.database import Connection
from skald_core.plugins.discovery import Discovered
from skald_core.plugins.settings_form import SettingsForm

__all__ = ("Failure", "Phase", "PluginRow", "State", "set_enabled_offline")

State = Literal[
    "discovered", "incompatible", "blocked", "disabled", "needs_config", "starting", "running", "failed", "stopped"
]
Phase = Literal["manifest", "compatibility", "import", "register", "migrate", "start", "stop", "run"]


class Failure(msgspec.Struct, frozen=True):
    """Why a plugin is not running, or what went wrong last."""

    phase: Phase
    message: str
    traceback: str = ""


class PluginRow(msgspec.Struct):
    """A plugin as the catalog shows it.

    ``found`` is what is installed now; ``running_version`` the version whose code was imported since the server started, if
    any. ``form`` and ``user_form`` are what the plugin's settings look like, known once it was asked. ``removed`` means that
    it was uninstalled while its code is still loaded.
    """

    found: Discovered
    enabled: bool = False
    bundled: bool = False
    default_on: bool = True
    state: State = "discovered"
    error: Failure | None = None
    problems: list[str] = []
    deprecations: list[str] = []
    imported: bool = False
    running_version: str | None = None
    import_ms: float = 0.0
    start_ms: float = 0.0
    form: SettingsForm | None = None
    user_form: SettingsForm | None = None
    removed: bool = False

    @property
    def id(self) -> str:
        return self.found.id

    @property
    def restart_needed(self) -> bool:
        """Whether memory holds code that is not what the admin sees installed and enabled."""
        if not self.imported:
            return False
        return (
            self.removed
            or self.state in {"disabled", "failed", "blocked"}
            or self.running_version != self.found.version
        )


def set_enabled_offline(connection: Connection, plugin_id: str, enabled: bool) -> None:
    """What ``skald plugin enable|disable`` does without a server: no plugin code is imported."""
    now = time.time()
    connection.execute(
        "INSERT INTO plugins(id,enabled,first_seen,changed_at) VALUES(?,?,?,?) "
        "ON CONFLICT(id) DO UPDATE SET enabled=excluded.enabled, changed_at=excluded.changed_at",
        (plugin_id, int(enabled), now, now),
    )
