"""What models really send, turned into what a tool takes.

The schema a model sees stays short; this is where spellings are forgiven: other common names of a parameter, numbers as
strings, ``null`` for "left out", an object where the text of a JSON file was meant. What cannot be understood is refused
with the list of parameters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from skald_core import api as skald

__all__ = ("FileTool", "integer", "schema", "switch", "text")

A = TypeVar("A", bound=msgspec.Struct)

Property = dict[str, Any]
text: Property = {"type": "string"}
integer: Property = {"type": "integer"}
switch: Property = {"type": "boolean"}


def schema(*required: str, **properties: Property) -> dict[str, Any]:
    """The JSON Schema object of a tool's parameters."""
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


# What models add to explain themselves; it changes nothing about the call.
_REMARKS = frozenset({"description", "explanation", "reason", "reasoning", "thought", "toolSummary", "toolAction"})

_PATHS = ("path", "file_path", "filepath", "filePath", "file", "filename", "file_name", "dir", "directory", "folder")
_SPELLINGS: dict[str, tuple[str, ...]] = {
    "path": _PATHS,
    "content": ("content", "contents", "text", "data", "file_text"),
    "old": ("old", "old_string", "old_str", "old_text", "oldText", "search"),
    "new": ("new", "new_string", "new_str", "new_text", "newText", "replace", "replacement"),
    "pattern": ("pattern", "regex", "query"),
    "query": ("query", "pattern", "text", "search"),
    "start_line": ("start_line", "start", "offset", "from_line", "line_start"),
    "end_line": ("end_line", "end", "to_line", "line_end"),
    "limit": ("limit", "max_lines"),
    "include_glob": ("include_glob", "include", "glob"),
    "max_results": ("max_results", "head_limit"),
    "context_lines": ("context_lines", "context"),
}


def _spelling(field: str) -> tuple[str, ...]:
    return _SPELLINGS.get(field, (field,))


def _whole(value: str) -> str:
    """``value`` without halves of characters, which JSON can spell and no file can hold."""
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class FileTool(skald.Tool, Generic[A]):
    """A tool on the caller's files. ``arguments_type`` is the struct ``run`` takes; its fields are the parameters.

    ``text_fields`` hold the text of a file: an object or number there becomes JSON text.
    """

    arguments_type: ClassVar[type[msgspec.Struct]]
    text_fields: ClassVar[frozenset[str]] = frozenset()

    def validate(self, arguments: dict[str, Any]) -> A:
        """Raises InvalidArguments, saying which parameter is wrong and which there are."""
        fields = self.arguments_type.__struct_fields__
        taken: dict[str, Any] = {}
        used: set[str] = set()
        for field in fields:
            for name in _spelling(field):
                if name not in arguments or name in used or (name != field and name in fields):
                    continue
                value = None if arguments[name] is None else self._value(field, arguments[name])
                if value is None or taken.setdefault(field, value) == value:
                    used.add(name)
        unknown = [name for name in arguments if name not in used and name not in _REMARKS]
        required = [f.name for f in msgspec.structs.fields(self.arguments_type) if f.required]
        missing = [name for name in required if name not in taken]
        if unknown or missing:
            problem = f"there is no parameter {unknown[0]!r}" if unknown else f"{missing[0]!r} is missing"
            known = ", ".join(name if name in required else f"{name} (optional)" for name in fields)
            raise skald.InvalidArguments(f"{self.name}: {problem}. Parameters: {known}. Call it again.")
        try:
            return msgspec.convert(taken, self.arguments_type, strict=False)  # type: ignore[return-value]
        except msgspec.ValidationError as error:
            raise skald.InvalidArguments(f"{self.name}: {error}. Call it again with the right type.") from None

    def _value(self, field: str, value: Any) -> Any:
        if isinstance(value, str):
            return _whole(value)
        if field in self.text_fields and isinstance(value, Mapping | list):
            return json.dumps(value, ensure_ascii=False, indent=2) + "\n"
        if field in self.text_fields and isinstance(value, bool | int | float):
            return json.dumps(value)
        return value

    def target_path(self, arguments: Any) -> str | None:
        path = str(arguments.path)
        try:
            return skald.UserFs.display(path)
        except skald.FilesError:  # said when the call is judged or run
            return path

    @staticmethod
    def files(ctx: skald.ToolContext) -> skald.UserFs:
        return ctx.get(skald.UserFs)
