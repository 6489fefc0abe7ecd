"""A newcomer's clock: a new plugin, its server running, its first green test, together in at most 60 s.

In an environment of its own and without a network, as the first three commands of the guide. Last line: one JSON object with
``new_s``, ``dev_s`` (installing it included), ``test_s`` and ``total_s``. Exit status 1 beyond the bound.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from tests.support.authors import AuthorEnvironment, DevProcess

TOTAL_S = 60.0


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="skald-newcomer-") as temporary:
        folder = Path(temporary)
        environment = AuthorEnvironment(folder / "venv")
        began = time.monotonic()
        made = environment.run(environment.skald("plugin", "new", "first"), folder)
        assert made.returncode == 0, made.stdout
        project = folder / "skald-plugin-first"
        new = time.monotonic()
        with DevProcess(environment, project) as process:
            process.ready()
            dev = time.monotonic()
            assert process.interrupt() == 0
        stopped = time.monotonic()
        environment.test(project)
        test = time.monotonic()
    result = {
        "new_s": round(new - began, 2),
        "dev_s": round(dev - new, 2),
        "test_s": round(test - stopped, 2),
        "total_s": round(test - began, 2),
        "bounds": {"total_s": TOTAL_S},
    }
    print(json.dumps(result))
    return 1 if test - began > TOTAL_S else 0


if __name__ == "__main__":
    sys.exit(main())
