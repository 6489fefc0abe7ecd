"""The surface that is walked: every operation of the OpenAPI document, who may call it, and what to send.

Who may call what is written down here a second time, on purpose: an operation no line of :data:`WHO` names counts as open,
and so does one that answers somebody its line does not name.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ("HIDDEN", "WHO", "Operation", "Sent", "odd_bodies", "odd_paths", "odd_queries", "operations", "sample")

PUBLIC, SIGNED_IN = "public", "signed in"

HIDDEN = (("GET", "/api/schema/openapi.json"),)
"""Operations the document leaves out."""

WHO: tuple[tuple[str, str], ...] = (
    (r"(GET|POST) /api/setup", PUBLIC),
    (r"POST /api/auth/(login|logout)", PUBLIC),
    (r"GET /api/i18n/\{locale\}", PUBLIC),
    (r"GET /api/schema/openapi\.json", PUBLIC),
    (r"GET /api/auth/me", SIGNED_IN),
    (r"PUT /api/auth/profile", SIGNED_IN),
    (r"POST /api/auth/password", SIGNED_IN),
    (r"GET /api/(agents|commands|models|provider-types|inbox|plugins/pages)", SIGNED_IN),
    (r"(GET|POST) /api/conversations", SIGNED_IN),
    (r"POST /api/conversations/import", SIGNED_IN),
    (r"(GET|PATCH|DELETE) /api/conversations/\{conversation\}", SIGNED_IN),
    (r"(GET|POST) /api/conversations/\{conversation\}/messages", SIGNED_IN),
    (r"DELETE /api/conversations/\{conversation\}/messages/\{message\}", SIGNED_IN),
    (r"GET /api/conversations/\{conversation\}/export", SIGNED_IN),
    (r"POST /api/conversations/\{conversation\}/(stop|retry|continue|edit|regenerate|head|compact)", SIGNED_IN),
    (r"(PATCH|DELETE) /api/conversations/\{conversation\}/queue/\{queued\}", SIGNED_IN),
    (r"POST /api/requests/\{request_id\}/(answer|raise)", SIGNED_IN),
    (r"GET /api/my/plugins", SIGNED_IN),
    (r"(GET|PUT) /api/my/plugins/\{plugin\}/config", SIGNED_IN),
    (r"POST /api/my/plugins/\{plugin\}/config/test", SIGNED_IN),
    (r"GET /api/plugin/\{plugin\}/web/\{file\}", SIGNED_IN),
    (r"(GET|POST) /api/users", "users.manage"),
    (r"(PATCH|DELETE) /api/users/\{user\}", "users.manage"),
    (r"POST /api/users/\{user\}/password", "users.manage"),
    (r"[A-Z]+ /api/providers(/.*)?", "models.manage"),
    (r"POST /api/models", "models.manage"),
    (r"(PATCH|DELETE|PUT|POST) /api/models/.*", "models.manage"),
    (r"GET /api/plugins", "plugin.manage"),
    (r"[A-Z]+ /api/plugins/(available|remains|plans|jobs|jobs/\{job\})", "plugin.manage"),
    (r"[A-Z]+ /api/plugins/\{plugin\}(/.*)?", "plugin.manage"),
    (r"[A-Z]+ /api/plugin/approval/rules(/.*)?", "approval.manage"),
    (r"GET /api/plugin/approval/bypasses", SIGNED_IN),
    (r"DELETE /api/plugin/approval/bypasses/\{bypass_id\}", SIGNED_IN),
    (r"[A-Z]+ /api/plugin/llamacpp/.*", "models.manage"),
    (r"(GET|POST) /api/plugin/keeper/notes", SIGNED_IN),
    (r"DELETE /api/plugin/keeper/notes/\{note\}", SIGNED_IN),
    (r"GET /api/plugin/keeper/count", "keeper.count"),
)

OWNED = frozenset({"conversation", "request_id", "bypass_id", "note"})
"""Parameters that name what belongs to one user."""

BODIES: dict[str, Any] = {
    "POST /api/setup": {"token": "guess", "username": "eve", "password": "a good long guess"},
    "POST /api/auth/login": {"username": "nobody", "password": "a good long guess"},
    "PUT /api/auth/profile": {"locale": "en"},
    "POST /api/auth/password": {"old": "wrong, and long", "new": "another long one"},
    "POST /api/users": {"username": "ada", "password": "a good long one"},
    "DELETE /api/users/{user}": {"password": "wrong, and long"},
    "POST /api/users/{user}/password": {"new": "too short"},
    "POST /api/conversations": {"title": "one more"},
    "POST /api/conversations/{conversation}/messages": {"client_id": "walk", "content": "walk"},
    "PATCH /api/conversations/{conversation}": {"title": "walked"},
    "PATCH /api/providers/{provider}": {},
    "POST /api/providers/test": {"type": "openai", "settings": {"base_url": "http://127.0.0.1:1/v1"}},
    "PUT /api/models/order": {"ids": []},
    "POST /api/plugins/plans": {"act": "purge", "plugin": "nobody-has-this"},
    "POST /api/plugins/jobs": {"plan": "none", "password": "wrong, and long"},
    "PUT /api/plugins/{plugin}/access": {"users": {}},
    "POST /api/plugin/approval/rules/try": {"tool": "read_file", "scope": "read"},
    "POST /api/plugin/llamacpp/add-path": {"path": "/nowhere.gguf"},
}
"""Bodies that make sense, where the schema alone gives none; none of them reaches another machine."""


class Operation(NamedTuple):
    """``path`` has ``{names}``; ``schema`` is the body's JSON schema, None for an operation that takes none."""

    method: str
    path: str
    parameters: tuple[str, ...]
    queries: tuple[str, ...]
    schema: dict[str, Any] | None
    who: str | None

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def owned(self) -> bool:
        return any(name in OWNED for name in self.parameters)

    def fill(self, ids: dict[str, str]) -> str:
        return re.sub(r"\{(\w+)\}", lambda m: ids.get(m[1], "nobody-has-this"), self.path)


def operations(document: dict[str, Any]) -> list[Operation]:
    """Every operation of the document and those it hides."""
    schemas: dict[str, Any] = document.get("components", {}).get("schemas", {})
    found = []
    for path, methods in document["paths"].items():
        for method, told in methods.items():
            if method not in ("get", "post", "put", "patch", "delete"):
                continue
            content = told.get("requestBody", {}).get("content", {})
            schema = next((c.get("schema") for c in content.values()), None)
            queries = tuple(p["name"] for p in told.get("parameters", ()) if p["in"] == "query")
            found.append(_operation(method.upper(), path, queries, _resolved(schema, schemas)))
    return [*found, *(_operation(method, path, (), None) for method, path in HIDDEN)]


def _operation(method: str, path: str, queries: tuple[str, ...], schema: dict[str, Any] | None) -> Operation:
    path = re.sub(r"\{(\w+)(:\w+)?\}", r"{\1}", path)
    who = [who for pattern, who in WHO if re.fullmatch(pattern, f"{method} {path}")]
    parameters = tuple(re.findall(r"\{(\w+)\}", path))
    return Operation(method, path, parameters, queries, schema, who[0] if who else None)


def _resolved(schema: Any, schemas: dict[str, Any], depth: int = 0) -> Any:
    if isinstance(schema, list):
        return [_resolved(item, schemas, depth) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _resolved(schemas[schema["$ref"].rpartition("/")[2]], schemas, depth + 1) if depth < 6 else {}
    return {key: _resolved(value, schemas, depth) for key, value in schema.items()}


def sample(operation: Operation) -> Any:
    """A body the operation accepts in form."""
    if operation.name in BODIES:
        return BODIES[operation.name]
    return None if operation.schema is None else _sample(operation.schema)


def _sample(schema: dict[str, Any]) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    for union in ("oneOf", "anyOf"):
        if union in schema:
            return _sample(next((s for s in schema[union] if s.get("type") != "null"), {}))
    if schema.get("type") == "object" or "properties" in schema:
        properties = schema.get("properties", {})
        return {name: _sample(properties.get(name, {})) for name in schema.get("required", ())}
    samples: dict[Any, Any] = {"array": [], "integer": 7, "number": 7.5, "boolean": True, "null": None}
    kind = schema.get("type")
    return samples.get(kind if isinstance(kind, str) else None, "x")


# --- what nobody should send ----------------------------------------------------------------------------------------


class Sent(NamedTuple):
    """A raw body with its type, and what is odd about it."""

    what: str
    body: bytes
    media_type: str = "application/json"


DEEP = 100_000
HUGE_NUMBER = "1" + "0" * 40
_ODD_VALUES: tuple[tuple[str, str], ...] = (
    ("a null", "null"),
    ("a list", "[]"),
    ("an object", "{}"),
    ("a switch", "true"),
    ("a small number", "-1"),
    ("a huge number", HUGE_NUMBER),
    ("just too big a number", str(2**63)),
    ("a float", "1e308"),
    ("an endless float", "1e999"),
    ("a NUL", '"\\u0000"'),
    ("half a character", '"\\ud800"'),
    ("a path", '"../../../../etc/passwd"'),
    ("text that turns around", '"\\u202e\\u2066x"'),
    ("a long text", json.dumps("x" * 300_000)),
    ("nesting", "[" * DEEP + "]" * DEEP),
    ("nested objects", '{"a":' * DEEP + "1" + "}" * DEEP),
)
_WHOLE: tuple[Sent, ...] = (
    Sent("nothing", b""),
    Sent("a list", b"[]"),
    Sent("a text", b'"text"'),
    Sent("a null", b"null"),
    Sent("a number", b"7"),
    Sent("an empty object", b"{}"),
    Sent("half of it", b'{"a": "'),
    Sent("no UTF-8", b'{"a": "\xff\xfe"}'),
    Sent("nesting", b"[" * DEEP),
    Sent("nested objects", b'{"a":' * DEEP + b"1" + b"}" * DEEP),
    Sent("3 MB", b'{"a": "' + b"x" * (3 * 1024 * 1024) + b'"}'),
    Sent("a form", b"a=1&b=2", "application/x-www-form-urlencoded"),
    Sent("parts without a boundary", b"--x\r\n", "multipart/form-data"),
    Sent("text", b"{}", "text/plain"),
    Sent("an unknown type", b"{}", "application/x-unknown"),
)


def odd_bodies(operation: Operation, *, small: bool, turn: int) -> Iterator[Sent]:
    """Bodies that make no sense. ``small`` keeps a share of them that moves on with ``turn``."""
    share = 4 if small else 1
    yield from itertools.islice(_WHOLE, turn % share, None, share)
    fine = sample(operation)
    if not isinstance(fine, dict):
        return
    names = list((operation.schema or {}).get("properties", fine)) or list(fine)
    for name in fine:
        yield _text(f"without {name}", {k: v for k, v in fine.items() if k != name})
    odd = [(name, what, value) for name in names for what, value in _ODD_VALUES]
    for name, what, value in itertools.islice(odd, turn % (share * 2), None, share * 2 if small else 1):
        rest = "".join(f", {json.dumps(k)}: {json.dumps(v)}" for k, v in fine.items() if k != name)
        yield Sent(f"{what} for {name}", f"{{{json.dumps(name)}: {value}{rest}}}".encode())


def _text(what: str, body: Any) -> Sent:
    return Sent(what, json.dumps(body).encode())


_ODD_IDS = (
    "..", "%2e%2e%2f%2e%2e%2fsystem.db", "%00", "%ff", "a%0d%0ab", "'--", HUGE_NUMBER, str(2**63), "-1", "0", "x" * 5000,
    "%F0%9F%A6%8A",
)  # fmt: skip


def odd_paths(operation: Operation, ids: dict[str, str], *, small: bool, turn: int) -> Iterator[str]:
    """Paths whose ids make no sense, one at a time."""
    for name in operation.parameters:
        share = 3 if small else 1
        for value in itertools.islice(_ODD_IDS, turn % share, None, share):
            yield operation.fill({**ids, name: value})


_ODD_QUERIES = (
    HUGE_NUMBER,
    "-1",
    "nan~nan~x",
    f"{HUGE_NUMBER}~1~x",
    "1~1e999~x",
    "%00",
    "%ff",
    "",
    "x" * 4000,
    "1&{0}=2",
    "[]",
)


def odd_queries(operation: Operation) -> Iterator[str]:
    """Query strings that make no sense."""
    for name in operation.queries:
        for value in _ODD_QUERIES:
            yield f"{name}={value.format(name)}"
