"""``skald serve``: the listener around a running instance."""

from __future__ import annotations

import argparse
import asyncio
import errno
import gc
import logging
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

from skald_core.errors import StartError
from skald_core.plugins.lifecycle import only_from_environment, patience_from_environment, strict_from_environment
from skald_core.runtime.settings import Settings, default_data_dir

__all__ = ("run", "serve")

if TYPE_CHECKING:
    from skald_core.runtime.app import Skald

log = logging.getLogger("skald")

_STOPPING = (signal.SIGINT, signal.SIGTERM)


def run(args: argparse.Namespace) -> int:
    logging.basicConfig(
        level=os.environ.get("SKALD_LOG", "INFO").upper(),
        format="%(asctime)s %(levelname).1s %(name)s: %(message)s",
        datefmt="%H:%M:%S",
    )
    for noisy in ("httpx", "httpcore", "asyncio", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    settings = Settings(
        data_dir=(args.data or default_data_dir()).resolve(),
        host=args.host,
        port=args.port,
        allowed_hosts=tuple(args.allowed_host),
        trusted_proxies=tuple(args.trusted_proxy),
        behind_tls=args.behind_tls,
        strict_plugins=strict_from_environment(),
        only_plugins=only_from_environment(),
        trace_plugins=os.environ.get("SKALD_TRACE_PLUGINS", "") == "1",
        plugin_patience=patience_from_environment(),
        port_file=args.port_file,
    )
    listener = bind(settings.host, settings.port)
    try:
        import uvloop
    except ImportError:  # not made for this platform; asyncio's own loop does
        return asyncio.run(serve(settings, listener, ask=not args.no_input))
    return uvloop.run(serve(settings, listener, ask=not args.no_input))


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises StartError saying what to do when the port or address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(512)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise StartError(
                f"port {port} of {host} is in use; stop the program that uses it, or choose another with --port"
            ) from None
        if error.errno == errno.EACCES:
            raise StartError(f"port {port} may not be used by this user; choose one above 1023 with --port") from None
        raise StartError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    return listener


async def _start(settings: Settings) -> Skald | None:
    """A running instance; None when SIGINT or SIGTERM came first. Without this a server that is told to stop while a plugin
    is being loaded would just end, and the next start would blame the plugin."""
    from skald_core.runtime.app import Skald

    loop = asyncio.get_running_loop()
    starting = loop.create_task(Skald.start(settings), name="start")
    for number in _STOPPING:
        loop.add_signal_handler(number, starting.cancel)
    try:
        return await starting
    except asyncio.CancelledError:
        return None
    finally:
        for number in _STOPPING:
            loop.remove_signal_handler(number)


async def serve(settings: Settings, listener: socket.socket, *, ask: bool) -> int:
    """Run until SIGINT or SIGTERM."""
    import uvicorn

    from skald_core.cli.setup import make_first

    app = await _start(settings)
    if app is None:
        return 0
    try:
        port = int(listener.getsockname()[1])
        shown = f"[{settings.host}]" if ":" in settings.host else settings.host
        url = f"http://{shown}:{port}"
        if await app.users.count() == 0:
            made = ask and sys.stdin.isatty() and sys.stdout.isatty() and await make_first(app)
            if not made:
                print(
                    f"\n  Set up Skald in the browser (this link works once):\n  {url}/setup#token={app.setup_token}\n"
                )
        server = uvicorn.Server(
            uvicorn.Config(
                app.asgi,
                loop="none",
                http="httptools",
                ws="websockets-sansio",
                lifespan="off",
                access_log=False,
                log_config=None,
                server_header=False,
                proxy_headers=False,
                ws_per_message_deflate=False,  # small messages over loopback or a local network: latency counts
                ws_max_size=256 * 1024,
                ws_ping_interval=20,
                ws_ping_timeout=20,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=3,
            )
        )
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]  # ours, below
        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        for number in _STOPPING:
            loop.add_signal_handler(number, stopping.set)
        running = asyncio.create_task(server._serve([listener]), name="listener")
        # What lives from here on mostly lives for good: keep the collector from walking it again and again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        print(f"Skald is ready at {url}", flush=True)
        if settings.port_file is not None:
            settings.port_file.write_text(str(port))
        waiter = asyncio.create_task(stopping.wait())
        await asyncio.wait({running, waiter}, return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()
        for context in app.open_contexts():
            context.feed.close("shutdown")
        server.should_exit = True
        await running
    finally:
        await app.stop()
    return 0
