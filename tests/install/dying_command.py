"""``skald`` with a death built in, for test_install_cli.py: SIGKILL, SIGINT, or a full disk, at a chosen point of a job.

Arguments: the point (``move:N``, ``stop:N``, ``switched``, ``purged``, ``full:N``), then those of ``skald``.
"""

import errno
import os
import signal
import sys

from skald_core.cli import plugin_install
from skald_core.cli.main import main
from skald_core.plugins.install import engine, switch


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arrange(point: str) -> None:
    what, _, number = point.partition(":")
    if what == "purged":
        plugin_install._OfflineHost.purge_owners = lambda self: die()  # type: ignore[assignment,method-assign,return-value]
        return
    if what == "switched":
        engine.Engine._settle_change = lambda *args: die()  # type: ignore[assignment,method-assign,return-value]
        return
    move, count = switch._move, 0

    def counted(source: object, target: object) -> None:
        nonlocal count
        count += 1
        if count == int(number):
            if what == "move":
                die()
            if what == "full":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.kill(os.getpid(), signal.SIGINT)
        move(source, target)  # type: ignore[arg-type]

    switch._move = counted


arrange(sys.argv[1])
sys.exit(main(sys.argv[2:]))
