"""Where settings of plugins are kept: an admin's in ``system.db``, a user's in their own database.

Values and secrets are stored apart. What cannot be read any more is put aside, shown, and never thrown away.
"""

from __future__ import annotations

import json
import time
from typing import Any, Final, Literal

import msgspec

from skald_core.errors import Conflict
from skald_core.loop.database import Connection, Database
from skald_core.plugins.settings import Secret
from skald_core.plugins.settings_form import Salvaged, SettingsForm

__all__ = ("Aside", "Loaded", "SettingsAhead", "SettingsStore", "Stored")

Bucket = Literal["registry", "owner"]
_TABLES: Final[dict[str, str]] = {"registry": "plugin_config", "owner": "plugin_settings"}


class SettingsAhead(Conflict):
    """The stored settings were written by a newer version of the plugin. They were not touched."""

    code = "settings_ahead"


class Stored(msgspec.Struct, frozen=True):
    """What is on disk. ``written_by`` is the plugin's version that saved it."""

    version: int
    values: dict[str, Any]
    secrets: dict[str, str] = {}
    written_by: str = ""


class Aside(msgspec.Struct, frozen=True):
    """Values that could not be read: when that was found, of which version of the settings they are, and why."""

    at: float
    version: int
    reason: str
    values: dict[str, Any]


class Loaded(msgspec.Struct, frozen=True):
    """Settings as the plugin gets them, with the secrets that are stored; ``aside`` are what had to be put aside and nobody
    has saved settings since."""

    found: Salvaged
    secrets: dict[str, str]
    aside: list[Aside]


class SettingsStore:
    """The settings of plugins in one database."""

    def __init__(self, database: Database, bucket: Bucket) -> None:
        self._db = database
        self._table = _TABLES[bucket]

    async def stored(self, plugin_id: str) -> tuple[Stored | None, list[Aside]]:
        """What is kept of a plugin's settings, and what was put aside and nobody has saved settings since, oldest first."""

        def read(c: Connection) -> tuple[Stored | None, list[Aside]]:
            row = c.execute(
                f"SELECT version, config, written_by FROM {self._table} WHERE plugin_id=?", (plugin_id,)
            ).fetchone()
            secrets = dict(
                c.execute(f"SELECT name, value FROM {self._table}_secrets WHERE plugin_id=?", (plugin_id,)).fetchall()
            )
            aside = c.execute(
                f"SELECT at, version, reason, config FROM {self._table}_aside WHERE plugin_id=? AND settled=0 ORDER BY id",
                (plugin_id,),
            ).fetchall()
            stored = None if row is None else Stored(row[0], json.loads(row[1]), secrets, row[2])
            return stored, [Aside(at, version, reason, json.loads(config)) for at, version, reason, config in aside]

        return await self._db.read(read)

    async def load(self, plugin_id: str, form: SettingsForm, *, writer: str) -> Loaded:
        """The settings for ``form``, brought up from an older version where that is needed.

        Values that ``migrate_config`` or the struct cannot read are put aside and defaults take their place. Raises
        SettingsAhead when a newer version wrote them.
        """
        stored, put_aside = await self.stored(plugin_id)
        if stored is None:
            return Loaded(form.salvage({}, {}), {}, put_aside)
        refuse_ahead(plugin_id, stored, form)
        values, secrets = stored.values, stored.secrets
        aside: dict[str, Any] = {}
        reasons: dict[str, str] = {}
        migrated = 0 < stored.version < form.version
        if migrated and form.settings.migrate_config is not None:
            try:
                values, secrets = _migrated(form, stored)
            except Exception as error:  # noqa: BLE001 -- the author's code meets old data; the data are kept
                aside, reasons = values, {"": f"{type(error).__name__}: {error}"}
                values = {}
        found = form.salvage(values, secrets)
        misfits = {name: why for name, why in found.misfits.items() if name not in secrets or name in values}
        aside |= {name: values[name] for name in misfits if name in values}
        reasons |= misfits
        if migrated or aside:
            kept = {name: value for name, value in values.items() if name not in misfits}
            reason = "; ".join(f"{name}: {why}" if name else why for name, why in reasons.items())
            newly = [Aside(time.time(), stored.version, reason, aside)] if aside else []
            await self._replace(plugin_id, Stored(form.version, kept, secrets, writer), newly)
            put_aside += newly
        return Loaded(found, secrets, put_aside)

    async def save(self, plugin_id: str, form: SettingsForm, instance: Any, *, writer: str) -> None:
        """Store what a person entered. What was put aside before counts as seen, and stays."""

        stored = Stored(form.version, form.values(instance), form.secret_values(instance), writer)

        def work(c: Connection) -> None:
            self._write(c, plugin_id, stored)
            c.execute(f"UPDATE {self._table}_aside SET settled=1 WHERE plugin_id=?", (plugin_id,))

        await self._db.write(work)

    async def _replace(self, plugin_id: str, stored: Stored, aside: list[Aside]) -> None:
        def work(c: Connection) -> None:
            c.executemany(
                f"INSERT INTO {self._table}_aside(plugin_id, at, version, reason, config) VALUES(?,?,?,?,?)",
                [(plugin_id, a.at, a.version, a.reason, json.dumps(a.values)) for a in aside],
            )
            self._write(c, plugin_id, stored)

        await self._db.write(work)

    def _write(self, c: Connection, plugin_id: str, stored: Stored) -> None:
        c.execute(
            f"INSERT INTO {self._table}(plugin_id, version, written_by, config, changed_at) VALUES(?,?,?,?,?) "
            "ON CONFLICT(plugin_id) DO UPDATE SET version=excluded.version, written_by=excluded.written_by, "
            "config=excluded.config, changed_at=excluded.changed_at",
            (plugin_id, stored.version, stored.written_by, json.dumps(stored.values), time.time()),
        )
        c.execute(f"DELETE FROM {self._table}_secrets WHERE plugin_id=?", (plugin_id,))
        c.executemany(
            f"INSERT INTO {self._table}_secrets(plugin_id, name, value) VALUES(?,?,?)",
            [(plugin_id, name, value) for name, value in stored.secrets.items()],
        )


def refuse_ahead(plugin_id: str, stored: Stored, form: SettingsForm) -> None:
    """Raises SettingsAhead when ``form`` is too old for what is stored."""
    if stored.version > form.version:
        by = f"version {stored.written_by} of the plugin" if stored.written_by else "a newer version of the plugin"
        raise SettingsAhead(
            f"the settings of {plugin_id!r} were written by {by} (settings version {stored.version}, this code knows "
            f"{form.version}); install that version again",
            plugin=plugin_id,
            version=stored.written_by,
        )


def _migrated(form: SettingsForm, stored: Stored) -> tuple[dict[str, Any], dict[str, str]]:
    """What the author's ``migrate_config`` makes of old values; it sees and returns secrets as Secret."""
    migrate = form.settings.migrate_config
    assert migrate is not None
    old = {**json.loads(json.dumps(stored.values)), **{name: Secret(value) for name, value in stored.secrets.items()}}
    new: Any = migrate(old, stored.version)
    if not isinstance(new, dict):
        raise TypeError(f"migrate_config must return a dict, it returned {type(new).__name__}")
    values: dict[str, Any] = {}
    secrets: dict[str, str] = {}
    for name, value in new.items():
        if isinstance(value, Secret):
            secrets[name] = value.reveal()
        elif name in form.secrets and isinstance(value, str):
            secrets[name] = value
        else:
            values[name] = value
    json.dumps(values)  # whatever cannot be stored is found here, before anything is changed
    return values, secrets
