"""The outermost ASGI application: checks where a request comes from, adds the security headers, serves the browser bundle,
keeps the live sockets, and passes the rest to the current API application, which can be swapped while serving."""

from __future__ import annotations

import gzip
import hashlib
import logging
import mimetypes
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from litestar.types import ASGIApp, Message, Receive, Send

from skald_core.version import VERSION

__all__ = ("Shell",)

log = logging.getLogger("skald.server")

Scope = Any  # litestar types the two kinds of scope apart; the shell handles both, and lifespan

_UNSAFE = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
_SECURITY = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(self)"),
]


class _Asset(msgspec.Struct, frozen=True):
    body: bytes
    packed: bytes | None
    etag: bytes
    media_type: bytes
    stamp: tuple[int, int]


class Shell:
    """``api`` is the current API app; assign it to swap. ``sockets`` handles WebSocket connections of ``/api/ws``."""

    def __init__(
        self, *, web_dir: Path, allowed_hosts: tuple[str, ...], host: str, sockets: ASGIApp, api: ASGIApp
    ) -> None:
        self.api = api
        self._sockets = sockets
        self._web = web_dir.resolve()
        named = {h.lower() for h in allowed_hosts}
        self._any_host = "*" in named
        self._hosts = named | _LOOPBACK | {host.lower()}
        self._assets: dict[str, _Asset] = {}
        self._csp = self._policy()

    def _policy(self) -> bytes:
        try:
            hashes: list[str] = msgspec.json.decode((self._web / "csp.json").read_bytes())["script_hashes"]
        except (OSError, KeyError, msgspec.DecodeError):
            hashes = []
        scripts = " ".join(["'self'", *(f"'{h}'" for h in hashes)])
        return (
            f"default-src 'none'; script-src {scripts}; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
            "connect-src 'self'; media-src 'self' blob:; manifest-src 'self'; worker-src 'self'; base-uri 'none'; "
            "form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
            "trusted-types lit-html dompurify"
        ).encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return
        headers = dict(scope["headers"])
        refusal = self._refusal(scope, headers)
        if scope["type"] == "websocket":
            if refusal is not None or scope["path"] != "/api/ws":
                await receive()
                await send({"type": "websocket.close", "code": 4403 if refusal else 4404, "reason": refusal or ""})
                return
            await self._sockets(scope, receive, send)
            return
        if refusal is not None:
            await _answer(send, 403, refusal)
            return
        path = scope["path"]
        if path == "/healthz":
            await _plain(send, 200, msgspec.json.encode({"status": "ok", "version": VERSION}), b"application/json")
        elif path.startswith("/api/"):
            await self.api(scope, receive, _with_headers(send))
        elif scope["method"] in {"GET", "HEAD"}:
            await self._static(path, headers, send, head=scope["method"] == "HEAD")
        else:
            await _answer(send, 405, "method_not_allowed")

    def _refusal(self, scope: Scope, headers: dict[bytes, bytes]) -> str | None:
        """A problem code when the request's Host or Origin is not ours (DNS rebinding, cross-site requests)."""
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = urlsplit(f"//{host}").hostname or ""
        bracketed = f"[{name}]" if ":" in name else name
        if not self._any_host and name not in self._hosts and bracketed not in self._hosts:
            return "bad_host"
        origin = headers.get(b"origin")
        if origin is not None and (scope["type"] == "websocket" or scope.get("method") in _UNSAFE):
            if urlsplit(origin.decode("latin-1")).netloc.lower() != host:
                return "bad_origin"
        elif scope["type"] == "websocket" and headers.get(b"sec-fetch-site", b"same-origin") not in {
            b"same-origin",
            b"none",
        }:
            return "bad_origin"
        return None

    # -- the browser bundle ----------------------------------------------------------------------------------------

    async def _static(self, path: str, headers: dict[bytes, bytes], send: Send, *, head: bool) -> None:
        name = path.lstrip("/")
        asset = self._load(name) if name and not name.startswith(("csp.json",)) else None
        index = asset is None
        if asset is None:
            if "." in name.rpartition("/")[2]:
                await _answer(send, 404, "not_found")
                return
            asset = self._load("index.html")
        if asset is None:
            await _plain(
                send,
                503,
                b"The browser bundle is not built. Run ./run.sh, or 'npm ci && npm run build' in web/.",
                b"text/plain",
            )
            return
        cache = b"no-cache" if index or not name.startswith("assets/") else b"public, max-age=31536000, immutable"
        out = [*_SECURITY, (b"content-type", asset.media_type), (b"cache-control", cache), (b"etag", asset.etag)]
        if asset.media_type.startswith(b"text/html"):
            out.append((b"content-security-policy", self._csp))
        if headers.get(b"if-none-match") == asset.etag:
            await send({"type": "http.response.start", "status": 304, "headers": out})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        body = asset.body
        if asset.packed is not None:
            out.append((b"vary", b"accept-encoding"))
            if b"gzip" in headers.get(b"accept-encoding", b""):
                body = asset.packed
                out.append((b"content-encoding", b"gzip"))
        out.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": 200, "headers": out})
        await send({"type": "http.response.body", "body": b"" if head else body, "more_body": False})

    def _load(self, name: str) -> _Asset | None:
        try:
            path = (self._web / name).resolve()
            if not path.is_relative_to(self._web):
                return None
            stat = path.stat()
            if not path.is_file():
                return None
            stamp = (stat.st_mtime_ns, stat.st_size)
            known = self._assets.get(name)
            if known is not None and known.stamp == stamp:
                return known
            body = path.read_bytes()
        except (OSError, ValueError):  # the latter for a name no file system takes
            return None
        if name == "index.html":
            self._csp = self._policy()
        media_type = _media_type(path)
        packed = gzip.compress(body, 6, mtime=0) if len(body) > 1024 and _compressible(media_type) else None
        etag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'.encode()
        asset = self._assets[name] = _Asset(body, packed, etag, media_type.encode(), stamp)
        return asset


def _media_type(path: Path) -> str:
    known = {".js": "text/javascript", ".mjs": "text/javascript", ".webmanifest": "application/manifest+json"}
    guessed = known.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return f"{guessed}; charset=utf-8" if guessed.startswith("text/") else guessed


def _compressible(media_type: str) -> bool:
    return media_type.startswith("text/") or media_type in {
        "application/json",
        "image/svg+xml",
        "application/manifest+json",
    }


def _with_headers(send: Send) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers: list[Any] = list(message.get("headers", []))
            names = {k.lower() for k, _ in headers}
            headers += [(k, v) for k, v in _SECURITY if k not in names]
            if b"content-security-policy" not in names:
                headers.append((b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; sandbox"))
            if b"cache-control" not in names:
                headers.append((b"cache-control", b"no-store"))
            message["headers"] = headers
        await send(message)

    return wrapped


async def _plain(send: Send, status: int, body: bytes, media_type: bytes) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                *_SECURITY,
                (b"content-type", media_type),
                (b"content-length", str(len(body)).encode()),
                (b"cache-control", b"no-store"),
            ],
        }
    )
    await send({"type": "http.response.body", "body": body, "more_body": False})


_SENTENCES = {
    "bad_host": "This address is not one of this server's names. Open it under the address it was started with, or add the "
    "name with --allowed-host.",
    "bad_origin": "This request came from another site and was refused.",
    "not_found": "There is nothing here.",
    "method_not_allowed": "This address does not take that kind of request.",
}


async def _answer(send: Send, status: int, code: str) -> None:
    body = {"type": "about:blank", "title": code, "status": status, "code": code, "detail": _SENTENCES.get(code, code)}
    await _plain(send, status, msgspec.json.encode(body), b"application/problem+json")
