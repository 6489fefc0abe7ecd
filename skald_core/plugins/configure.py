"""Settings of plugins as people meet them: a form in their language, what is wrong with what they entered, a test, a save."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from skald_core.errors import BadInput, Conflict
from skald_core.identity.models import User
from skald_core.loop.database import Database
from skald_core.loop.errors import ToolError
from skald_core.plugins.lifecycle import Plugins
from skald_core.plugins.settings import Option
from skald_core.plugins.settings_form import FieldError, SettingsForm
from skald_core.plugins.settings_store import SettingsStore
from skald_core.plugins.state import PluginRow

__all__ = ("BadSettings", "FieldMessage", "FormView", "SettingsDesk", "TestResult", "Wording")

log = logging.getLogger("skald.plugins")

TEST_SECONDS = 30.0
CHOICES_SECONDS = 5.0


class FieldMessage(msgspec.Struct, frozen=True):
    """What is wrong with a field, for the person who filled it in; ``field`` is empty for the whole form."""

    field: str
    message: str


class BadSettings(BadInput):
    """Values that do not fit; ``errors`` has a sentence for each field."""

    code = "bad_settings"

    def __init__(self, errors: list[FieldMessage]) -> None:
        super().__init__("; ".join(f"{e.field}: {e.message}".strip(": ") for e in errors))
        self.errors = errors


class FormView(msgspec.Struct, frozen=True, rename={"form_schema": "schema"}):
    """``Form`` of docs/http-api.md. ``choice_errors`` says which computed choices could not be had, and why; ``aside`` are
    stored values that could not be read any more."""

    form_schema: dict[str, Any]
    values: dict[str, Any]
    secrets: dict[str, bool]
    choices: dict[str, list[dict[str, str]]]
    testable: bool
    required: list[str]
    choice_errors: dict[str, str] = {}
    aside: list[dict[str, Any]] = []


class TestResult(msgspec.Struct, frozen=True):
    __test__ = False

    ok: bool
    text: str


class Wording(Protocol):
    """The part of :class:`skald_core.runtime.i18n.Texts` a form needs."""

    def find(self, key: str, locale: str) -> str | None: ...
    def t(self, key: str, locale: str = "", values: dict[str, object] | None = None) -> str: ...
    def of_plugin(self, plugin_id: str, text: str, locale: str) -> str: ...


class SettingsDesk:
    """``user`` None means the instance's settings, which an admin makes; else that user's own."""

    def __init__(
        self,
        *,
        plugins: Plugins,
        texts: Wording,
        system: Database,
        owner: Callable[[str], Database],
        model_known: Callable[[str], bool],
    ) -> None:
        self._plugins = plugins
        self._texts = texts
        self._system = system
        self._owner = owner
        self._model_known = model_known

    async def view(self, plugin_id: str, locale: str, user: User | None = None) -> FormView:
        """The form with what is stored. Raises SettingsAhead, and Conflict ``no_settings``."""
        row, form, store = self._open(plugin_id, user)
        loaded = await store.load(plugin_id, form, writer=_writer(row))
        computed, errors = await self._choices(plugin_id, form, locale)

        def text(key: str) -> str:
            return self._texts.of_plugin(plugin_id, key, locale)

        def label(key: str) -> str | None:
            found = self._texts.of_plugin(plugin_id, key, locale)
            return None if found == key else found

        return FormView(
            form_schema=form.localized(text),
            values=form.shown(loaded.found),
            secrets={name: bool(loaded.secrets.get(name)) for name in sorted(form.secrets)},
            choices=form.labels(label) | computed,
            testable=form.settings.test is not None,
            required=form.required,
            choice_errors=errors,
            aside=[
                {
                    "at": a.at,
                    "version": a.version,
                    "reason": a.reason,
                    "values": {name: value for name, value in a.values.items() if name not in form.secrets},
                }
                for a in loaded.aside
            ],
        )

    async def save(self, plugin_id: str, values: Mapping[str, Any], locale: str, user: User | None = None) -> PluginRow:
        """Check and store. The instance's settings restart the plugin if it runs; it may fail then, the row says so.

        Raises BadSettings, SettingsAhead, and Conflict ``no_settings``.
        """
        row, form, store = self._open(plugin_id, user)
        instance = await self._checked(row, form, store, values, locale)
        await store.save(plugin_id, form, instance, writer=_writer(row))
        return row if user is not None else await self._plugins.restart(plugin_id)

    async def test(
        self, plugin_id: str, values: Mapping[str, Any], locale: str, user: User | None = None
    ) -> TestResult:
        """Have the plugin try values that are not stored. Raises as :meth:`save`, and Conflict ``no_test``."""
        row, form, store = self._open(plugin_id, user)
        if form.settings.test is None:
            raise Conflict(f"the settings of {plugin_id!r} have no test", code="no_test")
        instance = await self._checked(row, form, store, values, locale)
        try:
            async with asyncio.timeout(TEST_SECONDS):
                said = await form.settings.test(instance)
        except ToolError as error:
            return TestResult(False, self._texts.of_plugin(plugin_id, str(error), locale))
        except TimeoutError:
            return TestResult(False, self._texts.t("settings.test_slow", locale, {"seconds": f"{TEST_SECONDS:g}"}))
        except Exception as error:  # noqa: BLE001 -- the plugin boundary; the person gets the reason
            log.warning("plugin %s: the test of its settings failed: %s", plugin_id, error)
            reason = str(error) or type(error).__name__
            return TestResult(False, self._texts.t("settings.test_failed", locale, {"reason": reason}))
        return TestResult(True, self._texts.of_plugin(plugin_id, said, locale) if isinstance(said, str) else "")

    async def of_user(self, plugin_id: str, user_id: str) -> Any:
        """A user's settings for the plugin itself. Raises LookupError while the user is locked, or without such settings.

        Settings that a newer version wrote count as not made: this version does not know what they mean."""
        row = self._plugins.rows.get(plugin_id)
        form = row.user_form if row is not None else None
        if row is None or form is None:
            raise LookupError(f"the plugin {plugin_id!r} has no settings for users; implement skald_user_config")
        store = SettingsStore(self._owner(user_id), "owner")
        try:
            return (await store.load(plugin_id, form, writer=_writer(row))).found.instance
        except Conflict as error:
            log.warning("plugin %s: %s", plugin_id, error.detail)
            return form.defaults()

    # -- parts -----------------------------------------------------------------------------------------------------

    def _open(self, plugin_id: str, user: User | None) -> tuple[PluginRow, SettingsForm, SettingsStore]:
        row = self._plugins.get(plugin_id)
        form = row.form if user is None else row.user_form
        if form is None:
            raise Conflict(
                f"{plugin_id!r} has no settings" + ("" if row.imported else "; enable it first"), code="no_settings"
            )
        if user is None:
            return row, form, SettingsStore(self._system, "registry")
        return row, form, SettingsStore(self._owner(user.id), "owner")

    async def _checked(
        self, row: PluginRow, form: SettingsForm, store: SettingsStore, values: Mapping[str, Any], locale: str
    ) -> Any:
        stored = await store.load(row.id, form, writer=_writer(row))
        instance, errors = form.check(values, stored.secrets)
        if instance is not None:
            chosen = form.values(instance)
            errors = [
                FieldError(name, "model", "There is no such model (any more).")
                for name in form.models
                if chosen.get(name) and not self._model_known(str(chosen[name]))
            ]
        if errors:
            raise BadSettings([FieldMessage(e.field, self._worded(e, locale)) for e in errors])
        return instance

    def _worded(self, error: FieldError, locale: str) -> str:
        key = f"settings.{error.code}"
        return (
            error.message if self._texts.find(key, locale) is None else self._texts.t(key, locale, dict(error.params))
        )

    async def _choices(
        self, plugin_id: str, form: SettingsForm, locale: str
    ) -> tuple[dict[str, list[dict[str, str]]], dict[str, str]]:
        found: dict[str, list[dict[str, str]]] = {}
        errors: dict[str, str] = {}

        async def compute(name: str) -> None:
            found[name] = []
            try:
                async with asyncio.timeout(CHOICES_SECONDS):
                    options = list(await form.settings.choices[name]())
                wrong = next((o for o in options if not isinstance(o, Option)), None)
                if wrong is not None:
                    raise TypeError(f"choices must be Option objects, not {type(wrong).__name__}")
                found[name] = [
                    {"value": o.value, "label": self._texts.of_plugin(plugin_id, o.label, locale)} for o in options
                ]
            except ToolError as error:
                errors[name] = self._texts.of_plugin(plugin_id, str(error), locale)
            except TimeoutError:
                errors[name] = self._texts.t("settings.choices_slow", locale, {"seconds": f"{CHOICES_SECONDS:g}"})
            except Exception as error:  # noqa: BLE001 -- the plugin boundary; the form is shown without these choices
                log.warning("plugin %s: the choices of %s could not be had: %s", plugin_id, name, error)
                reason = str(error) or type(error).__name__
                errors[name] = self._texts.t("settings.choices_failed", locale, {"reason": reason})

        await asyncio.gather(*(compute(name) for name in form.settings.choices))
        return found, errors


def _writer(row: PluginRow) -> str:
    return row.running_version or row.found.version
