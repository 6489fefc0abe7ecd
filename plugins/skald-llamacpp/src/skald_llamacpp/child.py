"""The child process: runs llama.cpp's own HTTP server for one model file, and nothing else.

It is started as a script, so that none of the server's packages are loaded here. Its parent writes one JSON line to standard
input (the settings, the key among them: it must not show in a process list) and keeps that pipe open; when the pipe closes
the child ends. What it has to say is one JSON object a line on standard output::

    {"event": "ready", "port": 40123}
    {"event": "failed", "code": "runtime_missing" | "broken_model" | "unsupported_model" | "no_memory" | "crashed"}

llama.cpp's log goes to standard error.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, TextIO

POLITENESS = 2
"""Added niceness: a busy model must not make the pages slow."""


def main() -> None:
    settings = json.loads(sys.stdin.readline())
    _die_with(settings["parent"])
    threading.Thread(target=_watch_parent, name="parent", daemon=True).start()
    out = _own_stdout()
    if hasattr(os, "nice"):
        with contextlib.suppress(OSError):
            os.nice(POLITENESS)
    # Threads that spin while they wait for each other lose most of their speed as soon as anything else wants a processor.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        import xllamacpp
    except ImportError as error:
        sys.stderr.write(f"{error}\n")
        _tell(out, event="failed", code="runtime_missing")
        os._exit(3)
    log = _LogTail()
    try:
        server = xllamacpp.Server(_params(xllamacpp, settings))
    except (RuntimeError, MemoryError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        _tell(out, event="failed", code=log.cause())
        os._exit(4)
    port = int(server.listening_address.rsplit(":", 1)[1])
    _tell(out, event="ready", port=port)
    threading.Event().wait()


def _params(xllamacpp: Any, settings: dict[str, Any]) -> Any:
    """llama.cpp's settings. ``settings``: path, alias, key, context, parallel, threads, cache_mib, max_tokens, template."""
    params = xllamacpp.CommonParams()
    params.model.path = settings["path"]
    params.model_alias = {settings["alias"]}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [settings["key"]]
    params.cors_origins = "null"
    params.ui = False
    params.endpoint_slots = False
    params.endpoint_metrics = False
    params.n_ctx = settings["context"]
    params.fit_params = False
    # Conversations share the context and each keeps its own prefix: a slot that is taken over leaves a copy in memory.
    params.n_parallel = settings["parallel"]
    params.kv_unified = True
    params.cache_ram_mib = settings["cache_mib"]
    params.n_predict = settings["max_tokens"]
    params.use_jinja = True
    if settings["template"]:
        params.chat_template = settings["template"]
    if settings["threads"]:
        params.cpuparams.n_threads = settings["threads"]
        params.cpuparams_batch.n_threads = settings["threads"]
    # A small model follows a tool's form best when it does not wander; a request may say otherwise.
    params.sampling.temp = settings["temperature"]
    params.verbosity = 2
    return params


class _LogTail:
    """llama.cpp says only in its log why a model did not load: copies standard error and looks for the reason."""

    _CAUSES = (
        ("no_memory", ("out of memory", "unable to allocate", "failed to allocate", "bad_alloc", "cannot allocate")),
        ("unsupported_model", ("unknown model architecture", "unknown pre-tokenizer", "unknown tokenizer")),
        ("broken_model", ("error loading model", "failed to load model", "invalid magic", "gguf_init")),
    )

    def __init__(self) -> None:
        self._true = os.dup(2)
        reading, writing = os.pipe()
        os.dup2(writing, 2)
        os.close(writing)
        self._reading = reading
        self._seen = b""
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._copy, name="log", daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        while data := os.read(self._reading, 65_536):
            os.write(self._true, data)
            with self._lock:
                self._seen = (self._seen + data)[-16_384:]

    def cause(self) -> str:
        os.dup2(self._true, 2)  # closes the pipe's last writing end, so that the copying ends
        self._thread.join(2)
        with self._lock:
            text = self._seen.decode("utf-8", "replace").lower()
        return next((code for code, words in self._CAUSES if any(word in text for word in words)), "crashed")


def _own_stdout() -> TextIO:
    """Keep standard output for events alone: whatever a library prints goes to standard error."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return out


def _tell(out: TextIO, **event: object) -> None:
    out.write(json.dumps(event) + "\n")
    out.flush()


def _watch_parent() -> None:
    """End when the parent's pipe closes: it stopped us, or it died, however suddenly."""
    while sys.stdin.readline():
        pass
    os._exit(0)


def _die_with(parent: int) -> None:
    """On Linux the system ends this process with its parent, also while llama.cpp holds the interpreter and loads."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the line above
        os._exit(0)


if __name__ == "__main__":
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]
    main()
