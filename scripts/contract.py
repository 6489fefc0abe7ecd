"""The public surface, one line a thing: ``skald_core.api``, the hooks, live events, the REST interface of the plugin platform.

python scripts/contract.py            what changed against tests/contract/api.txt; exit status 1 when something did
python scripts/contract.py --write    accept it
python scripts/contract.py --release  also note that this surface is out in the world: from then on every addition needs a
                                      minor version of API_VERSION, everything else a major one
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).parent.parent
CONTRACT = ROOT / "tests" / "contract" / "api.txt"
HTTP_PAGE = ROOT / "docs" / "http-api.md"
_PLATFORM = ("/api/plugins", "/api/plugin/", "/api/my/plugins", "/api/i18n", "/api/commands", "/api/agents")
_RELEASED = re.compile(r"# API (\S+), (not released|released)\n")


def signature(function: Any, *, bound: bool = False) -> str:
    """``(name: annotation = default) -> annotation`` as it is written; ``bound`` leaves out ``self``."""
    found = inspect.signature(function)
    parts: list[str] = []
    star = False
    for index, parameter in enumerate(found.parameters.values()):
        if bound and index == 0 and parameter.name in {"self", "cls"}:
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        text = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        star = star or parameter.kind is inspect.Parameter.VAR_POSITIONAL
        text += parameter.name
        if parameter.annotation is not inspect.Parameter.empty:
            text += f": {_annotation(parameter.annotation)}"
        if parameter.default is not inspect.Parameter.empty:
            text += f" = {_default(parameter.default)}"
        parts.append(text)
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            rest = list(found.parameters.values())[index + 1 :]
            if not rest or rest[0].kind is not inspect.Parameter.POSITIONAL_ONLY:
                parts.append("/")
    returns = found.return_annotation
    arrow = "" if returns is inspect.Signature.empty else f" -> {_annotation(returns)}"
    return f"({', '.join(parts)}){arrow}"


def _annotation(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, typing.ForwardRef):
        return value.__forward_arg__
    return value.__name__ if isinstance(value, type) else str(value)


def _default(value: Any) -> str:
    text = repr(value)
    return "…" if " at 0x" in text or len(text) > 60 else text


def hooks() -> Iterator[str]:
    """``name(parameters) -> result`` of every hook, in the order of the file."""
    from skald_core import hookspecs

    for name, function in vars(hookspecs).items():
        if name.startswith("skald_") and callable(function):
            yield f"{name}{signature(function)}"


def _api() -> Iterator[str]:
    from skald_core import api

    for name in sorted(api.__all__):
        value = getattr(api, name)
        if isinstance(value, type):
            yield from _class(name, value)
        elif inspect.isfunction(value):
            kind = "async def" if inspect.iscoroutinefunction(value) else "def"
            yield f"api {kind} {name}{signature(value)}"
        elif isinstance(value, str | int | float):
            yield f"api {name} = {value!r}"
        else:
            yield f"api {name}: {_alias(value)}"


def _alias(value: Any) -> str:
    arguments = getattr(value, "__args__", None)
    if arguments:
        return " | ".join(getattr(a, "__name__", None) or repr(a) for a in arguments)
    return type(value).__name__


def _class(name: str, kind: type) -> Iterator[str]:
    bases = ", ".join(b.__name__ for b in kind.__bases__ if b is not object)
    yield f"api class {name}({bases})"
    annotations: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        annotations |= inspect.get_annotations(base)
    if issubclass(kind, msgspec.Struct):
        defaults = dict(zip(reversed(kind.__struct_fields__), reversed(kind.__struct_defaults__), strict=False))
        for field in kind.__struct_fields__:
            default = "" if defaults.get(field, msgspec.NODEFAULT) is msgspec.NODEFAULT else " = …"
            yield f"api {name}.{field}: {_annotation(annotations[field])}{default}"
    else:
        for field in sorted(inspect.get_annotations(kind)):
            if not field.startswith("_"):
                yield f"api {name}.{field}: {_annotation(annotations[field])}"
    for attribute, value in sorted(vars(kind).items()):
        if attribute == "__init__" and not issubclass(kind, msgspec.Struct) and inspect.isfunction(value):
            if not getattr(kind, "_is_protocol", False):
                yield f"api {name}{signature(value, bound=True)}"
        elif attribute.startswith("_"):
            continue
        elif isinstance(value, property):
            yield f"api {name}.{attribute} -> {_annotation(inspect.signature(value.fget).return_annotation)}"  # type: ignore[arg-type]
        elif isinstance(value, staticmethod | classmethod):
            yield f"api {name}.{attribute}{signature(value.__func__, bound=isinstance(value, classmethod))}"
        elif inspect.isfunction(value):
            kind_word = "async " if inspect.iscoroutinefunction(value) else ""
            yield f"api {kind_word}{name}.{attribute}{signature(value, bound=True)}"


def _events() -> Iterator[str]:
    """From the page that promises them."""
    text = HTTP_PAGE.read_text(encoding="utf-8").partition("## WebSocket")[2]
    for name, fields in re.findall(r"^\| `(\w+)` \| (.*?) \|$", text, re.MULTILINE):
        yield f"event {name}: {' '.join(fields.split())}"
    whole = HTTP_PAGE.read_text(encoding="utf-8")
    for found in re.findall(r"`((?:plugins_changed|plugin_job|plugin\.<id>\.<name>) \{.*?\})`", whole):
        yield f"event {found}"


def _routes() -> Iterator[str]:
    from skald_core.server.routes import HANDLERS

    for handler in HANDLERS:
        methods = getattr(handler, "http_methods", None)
        for path in handler.paths if methods else ():
            if path.startswith(_PLATFORM):
                for method in sorted(methods):
                    if method not in {"HEAD", "OPTIONS"}:
                        yield f"route {method} {re.sub(r':[a-z]+}', '}', path)}"


def surface() -> list[str]:
    """Every line, sorted."""
    return sorted({*_api(), *(f"hook {line}" for line in hooks()), *_events(), *_routes()})


def stored() -> tuple[str, bool, list[str]]:
    """(API version, whether it is released, lines) of the committed file."""
    text = CONTRACT.read_text(encoding="utf-8")
    head = _RELEASED.search(text)
    if head is None:
        raise SystemExit(f"{CONTRACT}: its first line must say which API it is and whether that is released")
    return head[1], head[2] == "released", [line for line in text.splitlines() if line and not line.startswith("#")]


def verdict() -> str:
    """What changed and which version it needs; empty when nothing did."""
    from skald_core.api import API_VERSION

    version, released, before = stored()
    now = [line for line in surface() if not line.startswith("api API_VERSION")]
    added, gone = sorted(set(now) - set(before)), sorted(set(before) - set(now))
    if not added and not gone:
        return (
            ""
            if version == API_VERSION
            else f"API_VERSION is {API_VERSION}, the contract says {version}: run it with --write"
        )
    major, minor = (int(part) for part in version.split("."))
    if not released:
        needed = f"API {version} is not released yet, so it needs no new number."
    elif gone:
        needed = f"Something is gone or different: plugins break. API_VERSION must be {major + 1}.0 or stay as it was."
    else:
        needed = f"Only additions: API_VERSION must be {major}.{minor + 1}."
    lines = [f"The public surface changed: {len(added)} added, {len(gone)} gone.", *(f"+ {x}" for x in added)]
    lines += [*(f"- {x}" for x in gone), needed]
    lines.append(
        "If that is meant: python scripts/contract.py --write, update docs/plugins/, and say it in CHANGELOG.md."
    )
    return "\n".join(lines)


def _write(*, release: bool) -> None:
    from skald_core.api import API_VERSION

    try:
        version, released, before = stored()
    except FileNotFoundError:
        version, released, before = API_VERSION, False, []
    now = [line for line in surface() if not line.startswith("api API_VERSION")]
    if released and version == API_VERSION and set(now) != set(before):
        raise SystemExit(f"API {version} is released; raise API_VERSION in skald_core/api.py first\n{verdict()}")
    state = "released" if release or (released and version == API_VERSION) else "not released"
    head = f"# API {API_VERSION}, {state}\n# Made by scripts/contract.py; do not edit.\n\n"
    CONTRACT.write_text(head + "\n".join(now) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="accept the surface as it is")
    parser.add_argument("--release", action="store_true", help="and note that it is released")
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    if args.write or args.release:
        _write(release=args.release)
        return 0
    said = verdict()
    if said:
        print(said)
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
