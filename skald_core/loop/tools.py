"""Tools: what a model may call. Write a typed function and decorate it with :func:`tool`, or subclass :class:`Tool`."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, TypeVar, overload

import msgspec

from skald_core.loop.errors import ConfigError
from skald_core.loop.types import Attachment, CallId, ConversationId, FrameId, ToolSpec

__all__ = ("FileChange", "InvalidArguments", "SkillUse", "Tool", "ToolContext", "ToolOutput", "ToolRegistry", "tool")

T = TypeVar("T")
_NO_CALL = CallId(0)
Scope = Literal["read", "write", "exec"]
RestartHint = Literal["rerun", "interrupt"]


class InvalidArguments(ValueError):
    """Arguments that do not fit the schema. The text goes to the model as the call's error result."""


class ToolOutput(msgspec.Struct, frozen=True):
    """What a tool returns. A plain ``str`` is short for ``ToolOutput(text)``.

    ``media`` lists files the next model request may show to a model that can look at them; ``display`` is JSON for the
    interface only and never reaches a model. ``activates`` names deferred tools that models are offered from here on: it is
    kept with the call, so it holds on this branch of the conversation and after a restart. An error activates nothing.
    """

    text: str
    is_error: bool = False
    json: bool = False
    media: tuple[Attachment, ...] = ()
    display: dict[str, Any] | None = None
    activates: tuple[str, ...] = ()


class SkillUse(msgspec.Struct, frozen=True):
    """The skill a call uses, and what that skill asks for (:meth:`Tool.skill`)."""

    name: str
    args: str = ""
    model_override: str = ""
    allowed_tools: tuple[str, ...] = ()


class FileChange(msgspec.Struct, frozen=True):
    """What a call would do to one file. ``None`` means the file is absent before (or after).

    ``kind`` is what the tool means to do; left empty it is read from the texts. An append may give only the last lines of
    a long file in both.
    """

    path: str
    before: str | None
    after: str | None
    kind: Literal["", "create", "overwrite", "edit", "append", "delete"] = ""


class ToolContext:
    """What a running tool may know: ids, cancellation, progress, and the host's scope by type.

    ``get(Type)`` returns the host object of that type (in the server: ``User``, ``UserFs``) and raises ``LookupError``
    when the turn has no scope, which the gate treats as a denial.
    """

    __slots__ = (
        "_emit", "_scope", "agent", "call_id", "cancelled", "conversation", "frame", "tool_use_id",
    )  # fmt: skip

    def __init__(
        self,
        *,
        conversation: ConversationId,
        frame: FrameId,
        agent: str = "",
        call_id: CallId = _NO_CALL,
        tool_use_id: str = "",
        cancelled: asyncio.Event | None = None,
        scope: dict[type[Any], Any] | None = None,
        emit: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.conversation = conversation
        self.frame = frame
        self.agent = agent
        self.call_id = call_id
        self.tool_use_id = tool_use_id
        self.cancelled = cancelled or asyncio.Event()
        self._scope = scope or {}
        self._emit = emit

    def get(self, kind: type[T]) -> T:
        try:
            return self._scope[kind]  # type: ignore[no-any-return]  # the map is keyed by the value's own type
        except KeyError:
            raise LookupError(f"this turn has no {kind.__name__!r} in its scope") from None

    def emit(self, progress: dict[str, Any]) -> None:
        """Show progress between the call's start and end. Dropped when late or when nobody listens."""
        if self._emit is not None:
            self._emit(progress)


class Tool:
    """A callable a model may use.

    name, description, parameters
        What the model sees; ``parameters`` is a JSON Schema object.
    scope
        ``read``, ``write`` or ``exec``: what permission rules go by.
    parallel_safe
        May run beside its neighbours in one round.
    restart_hint
        After a crash in the middle: ``rerun`` it, or record it as ``interrupt``-ed.
    root_only
        Offered to the conversation's own agent only, never to a sub-agent.
    deferred
        Offered only once a result activates it (:attr:`ToolOutput.activates`), so that a large set costs no context. This
        is about what models read, not about permission: one that is called all the same is judged and run.
    title
        A friendly name for people (an i18n key or plain text); icon: a semantic key such as ``read`` or ``edit``.
    """

    name: str = ""
    description: str = ""
    parameters: dict[str, Any] = {"type": "object", "properties": {}}  # noqa: RUF012 -- replaced, never changed
    scope: Scope = "exec"
    parallel_safe: bool = False
    restart_hint: RestartHint = "interrupt"
    root_only: bool = False
    deferred: bool = False
    title: str = ""
    icon: str = "tool"

    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, self.parameters)

    def validate(self, arguments: dict[str, Any]) -> Any:
        """Turn the model's arguments into what ``run`` takes. Raise ``InvalidArguments`` to refuse them."""
        return arguments

    def summarize(self, arguments: Any) -> str:
        """One line for people, at most about 100 characters."""
        return self.name

    def target_path(self, arguments: Any) -> str | None:
        """The one file this call is about, as the agent names it, or None."""
        return None

    def skill(self, raw: dict[str, Any]) -> SkillUse | None:
        """The skill a call with these arguments uses: ``skill_invoked`` and ``skill_completed`` events then enclose it.

        ``raw`` is the model's own object, not checked yet; empty when it was none. None for a call like any other.
        """
        return None

    async def preview(self, arguments: Any, ctx: ToolContext) -> tuple[FileChange, ...]:
        """What the call would change, without changing it. Raise ``ToolError`` when it would fail."""
        return ()

    async def run(self, arguments: Any, ctx: ToolContext) -> ToolOutput | str:
        raise NotImplementedError


_DOC_PARAM = re.compile(r"^\s{0,8}(\w+):\s*(.+)$")


def _split_docstring(doc: str) -> tuple[str, dict[str, str]]:
    """Purpose and per-parameter lines of a Google-style docstring (sections Args, Returns, Raises)."""
    purpose: list[str] = []
    params: dict[str, str] = {}
    section = ""
    last = ""
    for line in inspect.cleandoc(doc).splitlines():
        head = line.strip().rstrip(":")
        if line and not line[0].isspace() and line.rstrip().endswith(":") and head in {"Args", "Returns", "Raises"}:
            section = head
            continue
        if not section:
            purpose.append(line)
        elif section == "Args" and line.strip():
            found = _DOC_PARAM.match(line)
            if found:
                last = found[1]
                params[last] = found[2].strip()
            elif last:
                params[last] += " " + line.strip()
    return " ".join(" ".join(purpose).split()), params


def _inline_refs(node: Any, defs: dict[str, Any]) -> Any:
    if isinstance(node, dict):
        if "$ref" in node:
            return _inline_refs(defs[node["$ref"].rsplit("/", 1)[-1]], defs)
        return {
            k: _inline_refs(v, defs) for k, v in node.items() if k not in {"$defs", "title"} or not isinstance(v, str)
        }
    if isinstance(node, list):
        return [_inline_refs(v, defs) for v in node]
    return node


class FunctionTool(Tool):
    """A tool made from a typed function; msgspec makes the schema, checks the arguments and words the errors."""

    def __init__(self, fn: Callable[..., Any], **options: Any) -> None:
        self._fn = fn
        self._is_async = inspect.iscoroutinefunction(fn)
        hints = typing.get_type_hints(fn, include_extras=True)
        self._ctx_name: str | None = None
        purpose, docs = _split_docstring(fn.__doc__ or "")
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        for name, parameter in inspect.signature(fn).parameters.items():
            kind = hints.get(name)
            if kind is None:
                raise ConfigError(f"tool {fn.__name__!r}: parameter {name!r} needs a type annotation")
            if kind is ToolContext:
                self._ctx_name = name
                continue
            if name in docs:
                kind = typing.Annotated[kind, msgspec.Meta(description=docs[name])]
            if parameter.default is inspect.Parameter.empty:
                fields.append((name, kind))
            else:
                fields.append((name, kind, parameter.default))
        self.name = options.pop("name", None) or fn.__name__
        self.description = options.pop("description", None) or purpose
        if not self.description:
            raise ConfigError(f"tool {self.name!r}: write a docstring, it is what the model reads")
        self._struct = msgspec.defstruct(
            f"{self.name}_arguments", sorted(fields, key=len), frozen=True, forbid_unknown_fields=True, kw_only=True
        )
        (schema,), defs = msgspec.json.schema_components([self._struct], ref_template="#/$defs/{name}")
        self.parameters = _inline_refs(schema, defs)
        self.parameters.pop("title", None)
        self._summarize: Callable[[Any], str] | None = options.pop("summarize", None)
        for key, value in options.items():
            if not hasattr(Tool, key):
                raise ConfigError(f"tool {self.name!r}: unknown option {key!r}")
            setattr(self, key, value)

    def validate(self, arguments: dict[str, Any]) -> Any:
        try:
            return msgspec.convert(arguments, self._struct)
        except msgspec.ValidationError as error:
            raise InvalidArguments(f"{self.name}: {error}") from None

    def summarize(self, arguments: Any) -> str:
        if self._summarize is not None:
            return self._summarize(arguments)
        text = ", ".join(f"{k}={v!r}" for k, v in msgspec.structs.asdict(arguments).items() if v not in (None, ""))
        return f"{self.name}({text})"[:120]

    async def run(self, arguments: Any, ctx: ToolContext) -> ToolOutput | str:
        kwargs = {f: getattr(arguments, f) for f in self._struct.__struct_fields__}
        if self._ctx_name:
            kwargs[self._ctx_name] = ctx
        if self._is_async:
            value = await self._fn(**kwargs)
        else:
            value = await asyncio.to_thread(self._fn, **kwargs)
        if isinstance(value, ToolOutput | str):
            return value
        return ToolOutput(json.dumps(msgspec.to_builtins(value), ensure_ascii=False, separators=(",", ":")), json=True)


@overload
def tool(fn: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    scope: Scope = "exec",
    parallel_safe: bool = False,
    restart_hint: RestartHint = "interrupt",
    root_only: bool = False,
    deferred: bool = False,
    title: str = "",
    icon: str = "tool",
    summarize: Callable[[Any], str] | None = None,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool from a typed function with a docstring.

    A parameter annotated ``ToolContext`` receives the context and is not shown to the model. A function that is not
    async runs on a worker thread. ``Args:`` lines of the docstring become the parameters' descriptions.
    """
    if fn is not None:
        return FunctionTool(fn, **options)
    return lambda inner: FunctionTool(inner, **options)


class ToolRegistry:
    """An ordered set of tools with unique names.

    ``deferred`` tools are kept apart from what is always offered (:mod:`skald_core.loop.loading`). Where nothing else is
    there that could activate them, none is deferred.
    """

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for item in tools:
            self.register(item)

    def register(self, item: Tool) -> Callable[[], None]:
        """Add a tool; returns the function that removes it again. Raises ConfigError on a name already taken."""
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,128}", item.name):
            raise ConfigError(f"tool name {item.name!r}: use 1 to 128 letters, digits, '_' or '-'")
        if item.name in self._tools:
            raise ConfigError(f"a tool named {item.name!r} is registered already; names must be unique")
        self._tools[item.name] = item

        def unregister() -> None:
            if self._tools.get(item.name) is item:
                del self._tools[item.name]

        return unregister

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def filtered(self, keep: Callable[[Tool], bool]) -> ToolRegistry:
        return ToolRegistry(t for t in self._tools.values() if keep(t))

    def specs(self) -> tuple[ToolSpec, ...]:
        """All tools, in the order of registration."""
        return tuple(t.spec() for t in self._tools.values())

    def deferred(self) -> dict[str, ToolSpec]:
        """The tools that wait to be activated, in the order of registration."""
        found = [t for t in self._tools.values() if t.deferred]
        return {t.name: t.spec() for t in found} if len(found) < len(self._tools) else {}

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools
