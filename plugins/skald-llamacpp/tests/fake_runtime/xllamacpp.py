"""Stands in for the model runtime in tests: same names as far as the child uses them, a tiny HTTP server instead of a model.

What it does is written in the model file: ``ok``, ``broken``, ``memory``, ``exit``, ``killed``, ``cpu``, ``hang``.
"""

import http.server
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace


class CommonParams(SimpleNamespace):
    def __init__(self):
        super().__init__(
            model=SimpleNamespace(path=""),
            cpuparams=SimpleNamespace(n_threads=-1),
            cpuparams_batch=SimpleNamespace(n_threads=-1),
            sampling=SimpleNamespace(temp=0.8),
        )


class Server:
    def __init__(self, params):
        behaviour = Path(params.model.path).read_text()
        print("loading", params.model.path, "as", params.model_alias, file=sys.stderr, flush=True)
        print("a library that prints where it should not", flush=True)
        if behaviour == "broken":
            os.write(2, b"llama_model_load: error loading model: tensor data is not within the file bounds\n")
            raise RuntimeError("Failed to init server, please check the input params.")
        if behaviour == "memory":
            os.write(2, b"ggml_aligned_malloc: failed to allocate 999 MB\n")
            raise RuntimeError("Failed to init server, please check the input params.")
        if behaviour == "exit":
            os._exit(7)
        if behaviour == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if behaviour == "cpu":
            os.kill(os.getpid(), signal.SIGILL)
        if behaviour == "hang":
            time.sleep(600)
        key = params.api_keys[0]

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                if self.headers.get("Authorization") != f"Bearer {key}":
                    return self._answer(401, {"error": "key"})
                if self.path == "/v1/die":
                    os._exit(9)
                seen = {"pid": os.getpid(), "argv": sys.argv, "env": list(os.environ.values())}
                seen |= {"context": params.n_ctx, "threads": params.cpuparams.n_threads, "modules": sorted(sys.modules)}
                return self._answer(200, seen)

            def _answer(self, status, value):
                body = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        server = http.server.ThreadingHTTPServer((params.hostnames[0], params.port), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.listening_address = f"http://127.0.0.1:{server.server_address[1]}"
