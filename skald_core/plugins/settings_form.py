"""A plugin's settings as a form: which fields there are, which values fit, what is wrong with the others."""

from __future__ import annotations

import enum
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from skald_core.plugins.settings import Secret, Settings

__all__ = ("FieldError", "Salvaged", "SettingsForm")

_PATH = re.compile(r" - at `\$(?:\.)?([^`]*)`$")


class FieldError(msgspec.Struct, frozen=True):
    """What is wrong with a field. ``code`` is below ``settings.`` in the kernel's texts; ``message`` is the English of it."""

    field: str
    code: str
    message: str
    params: dict[str, Any] = {}


class Salvaged(msgspec.Struct, frozen=True):
    """What became of stored values: an instance made of those that fit (None while ``missing`` fields have no value), those
    that fit, and why each of the others does not."""

    instance: Any
    missing: list[str]
    misfits: dict[str, str]
    kept: dict[str, Any]


class SettingsForm:
    """Made once per start from what ``skald_config`` or ``skald_user_config`` returned. Raises TypeError saying what the
    author has to change."""

    def __init__(self, declared: Any, hook: str, *, user: bool = False) -> None:
        settings = declared if isinstance(declared, Settings) else Settings(type=declared)
        kind = settings.type
        if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
            raise TypeError(f"{hook} must return a msgspec.Struct class or Settings(type=…), not {declared!r}")
        if settings.version < 1:
            raise TypeError(f"{hook}: version counts from 1, not {settings.version!r}")
        self.settings = settings
        self.version = settings.version
        self._fields = {f.encode_name: f for f in msgspec.structs.fields(kind)}
        self.secrets = frozenset(name for name, f in self._fields.items() if _is_secret(f.type))
        self.required = [name for name, f in self._fields.items() if f.required]
        if user and self.required:
            raise TypeError(
                f"{hook}: the field {self.required[0]!r} needs a default, since nobody has saved settings yet"
            )
        try:
            whole = msgspec.json.schema(_without_secret_defaults(kind, self.secrets), schema_hook=_schema_of)
        except (TypeError, ValueError, NotImplementedError) as error:
            raise TypeError(f"{hook}: no form can be made of {kind.__name__}: {error}") from None
        self.schema = _rooted(whole)
        for name in self.secrets:
            self.schema["properties"][name].pop("default", None)
        hidden = {n: p for n, p in self.schema["properties"].items() if n not in self.secrets}
        if _mentions_secret([hidden, self.schema.get("$defs")]):
            raise TypeError(f"{hook}: a Secret must be a field of {kind.__name__} itself, not inside another one")
        if "required" in self.schema:
            self.schema["required"] = self.required
        for name, field in self._fields.items():
            values = _listed(field.type)
            if (
                values and "enum" in self.schema["properties"][name]
            ):  # msgspec sorts them; people see the author's order
                self.schema["properties"][name]["enum"] = values
        self.models = [n for n, p in self.schema["properties"].items() if p.get("x-kind") == "model"]
        stray = sorted(set(settings.choices) - set(self._fields))
        if stray:
            raise TypeError(f"{hook}: choices are given for {stray[0]!r}, which is no field of {kind.__name__}")

    # -- values in and out -----------------------------------------------------------------------------------------

    def defaults(self) -> Any:
        """An instance of nothing but defaults; only for settings without required fields."""
        return self.settings.type()

    def values(self, instance: Any) -> dict[str, Any]:
        """What may be shown and stored openly: everything but secrets."""
        everything: dict[str, Any] = msgspec.to_builtins(instance, enc_hook=_hide)
        return {name: value for name, value in everything.items() if name not in self.secrets}

    def shown(self, found: Salvaged) -> dict[str, Any]:
        """The values a form starts with, also while some are missing."""
        if found.instance is not None:
            return self.values(found.instance)
        defaults = {n: p["default"] for n, p in self.schema["properties"].items() if "default" in p}
        return defaults | {n: v for n, v in found.kept.items() if n not in self.secrets}

    def secret_values(self, instance: Any) -> dict[str, str]:
        """The secrets that are set, by field."""
        found = {}
        for name in self.secrets:
            secret = getattr(instance, self._fields[name].name)
            if secret:
                found[name] = secret.reveal()
        return found

    def check(self, values: Mapping[str, Any], secrets: Mapping[str, str]) -> tuple[Any, list[FieldError]]:
        """An instance of what a person entered, or everything that is wrong with it.

        A secret that is left out keeps its stored value; ``None`` removes it.
        """
        merged: dict[str, Any] = {n: v for n, v in values.items() if n not in self.secrets}
        for name in self.secrets:
            entered = values.get(name, secrets.get(name))
            if entered is not None:
                merged[name] = entered
        errors = [
            FieldError(n, "unknown", "There is no such setting.") for n in sorted(set(merged) - set(self._fields))
        ]
        for name, field in self._fields.items():
            if name not in merged or (name in self.required and merged[name] in ("", None)):
                if field.required:
                    errors.append(FieldError(name, "required", "This is needed."))
                continue
            reason = self._misfit(name, merged[name])
            if reason is not None:
                errors.append(self._explain(name, merged[name], reason))
        if errors:
            return None, errors
        try:
            return self._instance(merged), []
        except (msgspec.ValidationError, ValueError, TypeError) as error:  # the author's own __post_init__
            return None, [FieldError("", "other", str(error) or type(error).__name__, {"reason": str(error)})]

    def salvage(self, values: Mapping[str, Any], secrets: Mapping[str, str]) -> Salvaged:
        """Make the best of stored values: nothing that fits is lost because something else does not."""
        kept: dict[str, Any] = {}
        misfits: dict[str, str] = {}
        for name, value in {**values, **secrets}.items():
            if name not in self._fields:
                misfits[name] = "there is no such setting any more"
            elif (name in self.secrets) != (name in secrets and name not in values):
                misfits[name] = "it is no secret any more" if name in secrets else "it is a secret now"
            else:
                reason = self._misfit(name, value)
                if reason is None:
                    kept[name] = value
                else:
                    misfits[name] = reason
        missing = [name for name in self.required if name not in kept]
        if missing:
            return Salvaged(None, missing, misfits, kept)
        try:
            return Salvaged(self._instance(kept), [], misfits, kept)
        except (msgspec.ValidationError, ValueError, TypeError) as error:  # the author's own __post_init__
            misfits |= {name: str(error) or type(error).__name__ for name in kept}
            if self.required:
                return Salvaged(None, list(self.required), misfits, {})
            return Salvaged(self.defaults(), [], misfits, {})

    def _instance(self, values: Mapping[str, Any]) -> Any:
        return msgspec.convert(values, self.settings.type, dec_hook=_reveal)

    def _misfit(self, name: str, value: Any) -> str | None:
        try:
            msgspec.convert(value, self._fields[name].type, dec_hook=_reveal)
        except msgspec.ValidationError as error:
            return str(error)
        return None

    def _explain(self, name: str, value: Any, reason: str) -> FieldError:
        """The reason in the terms of the form; msgspec's own words where there are none."""
        prop = self.property(name)
        kind = prop.get("type")
        if kind in {"integer", "number"} and (isinstance(value, bool) or not isinstance(value, int | float)):
            return FieldError(name, "number", "A number is needed.")
        if kind == "integer" and not isinstance(value, int):
            return FieldError(name, "whole", "A whole number is needed.")
        if isinstance(value, int | float):
            for limit, code, told in (
                ("minimum", "at_least", "At least {limit}."),
                ("maximum", "at_most", "At most {limit}."),
            ):
                bound = prop.get(limit)
                if bound is not None and (value < bound if limit == "minimum" else value > bound):
                    return FieldError(name, code, told.format(limit=bound), {"limit": bound})
        if prop.get("enum") and value not in prop["enum"]:
            return FieldError(name, "choice", "Choose one of the list.")
        if kind == "string" and isinstance(value, str):
            if "minLength" in prop and len(value) < prop["minLength"]:
                least = prop["minLength"]
                return FieldError(name, "shorter", f"At least {least} characters.", {"limit": least})
            if "maxLength" in prop and len(value) > prop["maxLength"]:
                most = prop["maxLength"]
                return FieldError(name, "longer", f"At most {most} characters.", {"limit": most})
            if "pattern" in prop:
                return FieldError(name, "pattern", "This does not have the form that is needed.")
        found = _PATH.search(reason)
        inner = found.group(1) if found else ""
        plain = _PATH.sub("", reason)
        return FieldError(f"{name}.{inner}" if inner else name, "other", plain, {"reason": plain})

    # -- what is shown ---------------------------------------------------------------------------------------------

    def property(self, name: str) -> dict[str, Any]:
        """The schema of a field with its references and ``null`` alternatives resolved."""
        return _resolved(self.schema["properties"][name], self.schema.get("$defs", {}))

    def localized(self, text: Callable[[str], str]) -> dict[str, Any]:
        """The schema with titles and descriptions in somebody's language; ``text`` translates a key or plain text."""
        return dict(_translated(self.schema, text))

    def labels(self, label: Callable[[str], str | None]) -> dict[str, list[dict[str, str]]]:
        """For fields with fixed values, what each is called: the text ``<title of the field>.<value>``, else the value."""
        found: dict[str, list[dict[str, str]]] = {}
        for name in self.schema["properties"]:
            values = _listed(self._fields[name].type)
            if values and all(isinstance(value, str) for value in values):
                title = self.schema["properties"][name].get("title", name)
                found[name] = [{"value": value, "label": label(f"{title}.{value}") or value} for value in values]
        return found


def _is_secret(kind: Any) -> bool:
    """``Secret``, also annotated or optional."""
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return _is_secret(typing.get_args(kind)[0])
    if origin in {typing.Union, types.UnionType}:
        return any(_is_secret(arg) for arg in typing.get_args(kind))
    return kind is Secret


def _listed(kind: Any) -> list[Any]:
    """The values of a Literal or Enum, in the author's order; of anything else none."""
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        return list(typing.get_args(kind))
    if origin is typing.Annotated:
        return _listed(typing.get_args(kind)[0])
    if origin in {typing.Union, types.UnionType}:
        return next((found for arg in typing.get_args(kind) if (found := _listed(arg))), [])
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return [member.value for member in kind]
    return []


def _mentions_secret(node: Any) -> bool:
    if isinstance(node, dict):
        return node.get("x-kind") == "secret" or any(_mentions_secret(value) for value in node.values())
    return isinstance(node, list) and any(_mentions_secret(item) for item in node)


def _schema_of(kind: Any) -> dict[str, Any]:
    if kind is Secret:
        return {"type": "string", "x-kind": "secret"}
    raise NotImplementedError(f"a field of type {kind!r} has no form")


def _reveal(kind: Any, value: Any) -> Any:
    if kind is Secret:
        if isinstance(value, Secret):
            return value
        if isinstance(value, str):
            return Secret(value)
        raise TypeError("Expected a text")
    raise NotImplementedError


def _hide(value: Any) -> Any:
    """A secret never leaves as itself, also where a field of secrets is overlooked."""
    if isinstance(value, Secret):
        return None
    raise NotImplementedError


def _without_secret_defaults(kind: type[msgspec.Struct], secrets: frozenset[str]) -> type[msgspec.Struct]:
    """The struct as the schema shows it: a default that is a secret cannot, and must not, be written down."""
    if not secrets:
        return kind
    shown: list[Any] = []
    for f in msgspec.structs.fields(kind):
        options: dict[str, Any] = {"name": f.encode_name} if f.encode_name != f.name else {}
        if f.encode_name in secrets:
            if not f.required:
                options["default_factory"] = Secret
        elif f.default is not msgspec.NODEFAULT:
            options["default"] = f.default
        elif f.default_factory is not msgspec.NODEFAULT:
            options["default_factory"] = f.default_factory
        shown.append((f.name, f.type, msgspec.field(**options)) if options else (f.name, f.type))
    return msgspec.defstruct(kind.__name__, shown, kw_only=True)


def _rooted(whole: dict[str, Any]) -> dict[str, Any]:
    """The schema with the settings' own object at its root instead of behind a reference."""
    definitions = dict(whole.get("$defs", {}))
    name = str(whole.get("$ref", "")).rpartition("/")[2]
    root = dict(definitions.pop(name)) if name else {k: v for k, v in whole.items() if k != "$defs"}
    root["properties"] = {key: dict(value) for key, value in root.get("properties", {}).items()}
    root.pop("title", None)
    root.pop("description", None)
    if definitions:
        root["$defs"] = definitions
    return root


def _resolved(prop: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in prop:
        own = {k: v for k, v in prop.items() if k != "$ref"}
        return {**_resolved(definitions.get(prop["$ref"].rpartition("/")[2], {}), definitions), **own}
    real = [p for p in prop.get("anyOf", ()) if p.get("type") != "null"]
    if len(real) == 1:
        own = {k: v for k, v in prop.items() if k != "anyOf"}
        return {**_resolved(real[0], definitions), **own}
    return prop


def _translated(node: Any, text: Callable[[str], str], *, names: bool = False) -> Any:
    """``names`` says that the keys of this object are names of fields, not words of the schema."""
    if isinstance(node, dict):
        return {
            key: text(value)
            if not names and key in {"title", "description"} and isinstance(value, str)
            else _translated(value, text, names=not names and key in {"properties", "$defs"})
            for key, value in node.items()
        }
    if isinstance(node, list):
        return [_translated(item, text) for item in node]
    return node
