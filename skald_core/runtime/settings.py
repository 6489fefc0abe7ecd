"""Settings of one server process, from the command line and the environment."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from skald_core.identity.crypto import KdfParams

__all__ = ("Settings", "default_data_dir")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """``host`` is a loopback address unless the admin says otherwise; ``allowed_hosts`` are the names people may open it by.

    ``request_lifetime`` is how many seconds a human request waits before silence counts as no. ``port_file`` gets the real
    port once the server listens (for ``port=0``). ``plugin_patience`` is how many seconds the start waits for one plugin
    before it goes on without it.
    """

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 9000
    allowed_hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    behind_tls: bool = False
    web_dir: Path = Path(__file__).parent.parent / "web_dist"
    agents_dir: Path | None = None
    strict_plugins: bool = False
    only_plugins: frozenset[str] | None = None
    trace_plugins: bool = False
    plugin_patience: float = 10.0
    kdf: KdfParams = KdfParams()
    request_lifetime: float | None = 24 * 3600.0
    port_file: Path | None = None


def default_data_dir() -> Path:
    """``$SKALD_DATA``, else ``$XDG_DATA_HOME/skald``, else ``~/.local/share/skald``."""
    if env := os.environ.get("SKALD_DATA"):
        return Path(env)
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "skald"
