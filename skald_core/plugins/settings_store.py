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


Kept = tuple[Stored | None, list[Aside]]
"""Settings of one plugin, and those of it that were put aside."""


class SettingsStore:
    """The settings of plugins in one database."""

    def __init__(self, database: Database, bucket: Bucket) -> None:
        self._db = database
        self._table = _TABLES[bucket]
        self._ahead: dict[str, Kept] | None = None

    async def read_ahead(self) -> None:
        """Read what every plugin has, for a start that asks for each of them once; until :meth:`forget_ahead`."""
        self._ahead = await self._db.read(self._read, None)

    def forget_ahead(self) -> None:
        self._ahead = None

    async def stored(self, plugin_id: str) -> Kept:
        """What is kept of a plugin's settings, and what was put aside and nobody has saved settings since, oldest first."""
        if self._ahead is not None:
            return self._ahead.get(plugin_id, (None, []))
        return (await self._db.read(self._read, plugin_id)).get(plugin_id, (None, []))

    def _read(self, c: Connection, plugin_id: str | None) -> dict[str, Kept]:
        where, values = ("", ()) if plugin_id is None else (" WHERE plugin_id=?", (plugin_id,))
        secrets: dict[str, dict[str, str]] = {}
        for plugin, name, value in c.execute(
            f"SELECT plugin_id, name, value FROM {self._table}_secrets{where}", values
        ):
            secrets.setdefault(plugin, {})[name] = value
        stored = {
            row[0]: Stored(row[1], json.loads(row[2]), secrets.get(row[0], {}), row[3])
            for row in c.execute(f"SELECT plugin_id, version, config, written_by FROM {self._table}{where}", values)
        }
        aside: dict[str, list[Aside]] = {}
        query = (
            f"SELECT plugin_id, at, version, reason, config FROM {self._table}_aside "
            f"{where or ' WHERE 1'} AND settled=0 ORDER BY id"
        )
        for plugin, at, version, reason, config in c.execute(query, values):
            aside.setdefault(plugin, []).append(Aside(at, version, reason, json.loads(config)))
        return {plugin: (stored.get(plugin), aside.get(plugin, [])) for plugin in stored.keys() | aside.keys()}

    async def load(self, plugin_id: str, form: SettingsForm, *, writer: str) -> Loaded:
        """The settings for ``form``, brought up from an older version where that is needed.

        Values that ``migrate_config`` or the struct cannot read are put aside and defaults take their place. Raises
        SettingsAhead when a newer version wrote them.
        """
        stored, put_aside = await self.stored(plugin_id)
        if stored is None:
            return Loaded(form.salvage({}, {}), {}, put_aside)
        refuse_ahead(plugin_id, stored, form)
        values, secrets = _hidden(form, stored.values, stored.secrets)
        aside: dict[str, Any] = {}
        reasons: dict[str, str] = {}
        migrated = 0 < stored.version < form.version
        hidden = values is not stored.values
        if migrated and form.settings.migrate_config is not None:
            try:
                values, secrets = _hidden(form, *_migrated(form, stored))
            except Exception as error:  # noqa: BLE001 -- the author's code meets old data; the data are kept
                aside, reasons = values, {"": f"{type(error).__name__}: {error}"}
                values = {}
        found = form.salvage(values, secrets)
        misfits = {name: why for name, why in found.misfits.items() if name not in secrets or name in values}
        aside |= {name: values[name] for name in misfits if name in values}
        reasons |= misfits
        if migrated or aside or hidden:
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


def _hidden(
    form: SettingsForm, values: dict[str, Any], secrets: dict[str, str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Stored text of a field that became a secret is one from now on; the same two objects when there is none."""
    now = {n: v for n, v in values.items() if n in form.secrets and n not in secrets and isinstance(v, str)}
    if not now:
        return values, secrets
    return {n: v for n, v in values.items() if n not in now}, {**secrets, **{n: v for n, v in now.items() if v}}


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
