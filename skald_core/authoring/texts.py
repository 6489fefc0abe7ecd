"""Checks of a plugin's texts: every key that is used exists in English, and every language has them all."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator
from pathlib import Path

import msgspec

from skald_core.authoring.findings import Finding
from skald_core.authoring.project import Project
from skald_core.authoring.sources import Source
from skald_core.plugins.manifest import ManifestError
from skald_core.runtime.i18n import LOCALES

__all__ = ("check_texts",)

_KEY = re.compile(r"[a-z0-9][a-z0-9_-]*(?:\.[a-zA-Z0-9_-]+)+")
_TEXT_ARGUMENTS = frozenset({"title", "label", "help", "hint", "summary", "description"})
"""Keyword arguments of skald_core.api whose value is a key or plain text."""


LONGEST_KEY = 200


class _Use(msgspec.Struct, frozen=True):
    """A key, or (``prefix``) the fixed beginning of keys made at run time."""

    key: str
    path: str
    line: int
    prefix: bool = False


def check_texts(project: Project, sources: list[Source]) -> Iterator[Finding]:
    folder = project.package_dir / "i18n"
    shown = project.relative(folder)
    bundles: dict[str, dict[str, str]] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            bundles[path.stem] = msgspec.json.decode(path.read_bytes(), type=dict[str, str])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            yield _finding(
                "error", project.relative(path), 0, "i18n-file", f"must be one flat object of texts: {error}"
            )
    uses = [*_python_uses(project, sources), *_browser_uses(project)]
    if not bundles:
        if uses:
            use = uses[0]
            text = f"the text {use.key!r} is used, but there is no {shown}/en.json"
            yield _finding("error", use.path, use.line, "i18n-missing", text)
        return
    if "en" not in bundles:
        yield _finding(
            "error", shown, 0, "i18n-english", "add en.json: English is what every other language falls back to"
        )
        return
    english = bundles["en"]
    yield from _missing(uses, english, f"{shown}/en.json")
    yield from _unused(uses, _literals(project, sources), english, f"{shown}/en.json", folder / "en.json")
    yield from _languages(bundles, english, shown)
    yield from _manifest(project)


def _finding(severity: str, path: str, line: int, code: str, text: str) -> Finding:
    return Finding(severity="error" if severity == "error" else "warning", path=path, line=line, code=code, text=text)


def _missing(uses: list[_Use], english: dict[str, str], where: str) -> Iterator[Finding]:
    for use in uses:
        if use.prefix:
            if not any(key.startswith(use.key) for key in english):
                text = f"no text in {where} begins with {use.key!r}"
                yield _finding("error", use.path, use.line, "i18n-missing", text)
        elif use.key not in english:
            yield _finding("error", use.path, use.line, "i18n-missing", f"the text {use.key!r} is not in {where}")


def _unused(uses: list[_Use], literals: set[str], english: dict[str, str], where: str, path: Path) -> Iterator[Finding]:
    """``literals``: any text of the sources that is a key, or the beginning of one up to a dot, may be a use."""
    exact = {use.key for use in uses if not use.prefix} | literals
    prefixes = tuple([use.key for use in uses if use.prefix] + [text for text in literals if text.endswith(".")])
    lines = path.read_text(encoding="utf-8").splitlines()
    for key in english:
        base = re.sub(r"_(?:zero|one|two|few|many|other)$", "", key)
        if key not in exact and base not in exact and not key.startswith(prefixes or ("\0",)):
            line = next((n for n, text in enumerate(lines, 1) if f'"{key}"' in text), 0)
            yield _finding("warning", where, line, "i18n-unused", f"the text {key!r} is used nowhere; remove it")


def _literals(project: Project, sources: list[Source]) -> set[str]:
    """Every short text written down in the sources."""
    found = {
        node.value
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < LONGEST_KEY
    }
    for path in [*project.files("*.js"), *project.files("*.mjs")]:
        pattern = r"""["'`]([\w.-]{1,199})(?:["'`]|\$\{)"""
        found.update(re.findall(pattern, path.read_text(encoding="utf-8")))
    return found


def _languages(bundles: dict[str, dict[str, str]], english: dict[str, str], shown: str) -> Iterator[Finding]:
    for locale in LOCALES:
        if locale not in bundles:
            text = f"there is no {locale}.json; its readers get English"
            yield _finding("warning", shown, 0, "i18n-language", text)
    for locale, texts in bundles.items():
        path = f"{shown}/{locale}.json"
        lacking = sorted(english.keys() - texts.keys())
        if lacking:
            yield _finding("error", path, 0, "i18n-incomplete", f"lacks {', '.join(map(repr, lacking[:8]))}")
        extra = sorted(texts.keys() - english.keys())
        if extra:
            yield _finding("error", path, 0, "i18n-extra", f"{extra[0]!r} is not in en.json; add it there or remove it")
        for key, text in texts.items():
            if key in english and _fields(text) != _fields(english[key]):
                wanted = ", ".join(sorted(_fields(english[key]))) or "none"
                found = f"{key!r} must have the placeholders of the English text: {wanted}"
                yield _finding("error", path, 0, "i18n-placeholders", found)


def _fields(text: str) -> set[str]:
    try:
        return {name for _, name, _, _ in string.Formatter().parse(text) if name}
    except ValueError:
        return {"(a brace without its partner)"}


def _manifest(project: Project) -> Iterator[Finding]:
    try:
        manifest = project.manifest()
    except ManifestError:
        return  # told by the manifest's own check
    path = project.relative(project.package_dir / "skald-plugin.toml")
    for locale in LOCALES[1:]:
        lacking = [
            what
            for what, texts in (("title_i18n", manifest.title_i18n), ("summary_i18n", manifest.summary_i18n))
            if locale not in texts
        ]
        if lacking:
            text = f"lacks {locale} in {' and '.join(lacking)}; the catalog shows English"
            yield _finding("warning", path, 0, "manifest-language", text)


# --- where keys are used -----------------------------------------------------------------------------------------------


def _python_uses(project: Project, sources: list[Source]) -> Iterator[_Use]:
    own = f"plugin.{project.id}."
    for source in sources:
        events = _event_literals(source)
        beginnings = _beginnings(source)
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(own):
                key = node.value.removeprefix(own)
                if node not in events and re.fullmatch(r"[\w.-]*", key):
                    prefix = node in beginnings or not key or key.endswith(".")
                    yield _Use(key, source.shown, node.lineno, prefix=prefix)
            elif isinstance(node, ast.Call):
                yield from _call_uses(source, node)


def _event_literals(source: Source) -> set[ast.expr]:
    return {
        argument
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "publish"
        for argument in node.args
    }


def _beginnings(source: Source) -> set[ast.expr]:
    """Texts that something made at run time follows: in an f-string, or before a plus."""
    found: set[ast.expr] = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.JoinedStr):
            found.update(node.values[:-1])
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            found.add(node.left)
    return found


def _call_uses(source: Source, call: ast.Call) -> Iterator[_Use]:
    if isinstance(call.func, ast.Attribute) and call.func.attr == "t" and call.args:
        yield from _literal(source, call.args[0], bare=True)
        return
    name = source.resolve(call.func)
    if name == "skald_core.api.setting":
        for argument in call.args[:2]:
            yield from _literal(source, argument)
    if name.startswith("skald_core.api."):
        for position in (1,) if name.endswith((".Option", ".Health")) else ():
            if len(call.args) > position:
                yield from _literal(source, call.args[position])
        for keyword in call.keywords:
            if keyword.arg in _TEXT_ARGUMENTS:
                yield from _literal(source, keyword.value)


def _literal(source: Source, node: ast.expr, *, bare: bool = False) -> Iterator[_Use]:
    """A key written down here. ``bare``: any text is a key, also one without a dot."""
    if isinstance(node, ast.IfExp):
        yield from _literal(source, node.body, bare=bare)
        yield from _literal(source, node.orelse, bare=bare)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        if not node.value.startswith("plugin.") and (bare or _KEY.fullmatch(node.value)):
            yield _Use(node.value, source.shown, node.lineno)
    elif bare and isinstance(node, ast.JoinedStr) and node.values and isinstance(node.values[0], ast.Constant):
        yield _Use(str(node.values[0].value), source.shown, node.lineno, prefix=True)


def _browser_uses(project: Project) -> Iterator[_Use]:
    own = f"plugin.{project.id}."
    pattern = re.compile(r"""(\bonEvent\(\s*)?(["'`])""" + re.escape(own) + r"""([\w.-]*)(\$\{|\*|\2)""")
    for path in [*project.files("*.js"), *project.files("*.mjs")]:
        shown = project.relative(path)
        text = path.read_text(encoding="utf-8")
        for found in pattern.finditer(text):
            if found[1] is None:
                line = text.count("\n", 0, found.start()) + 1
                key = found[3]
                yield _Use(key, shown, line, prefix=found[4] == "${" or not key or key.endswith("."))
