"""Stages and switches one upgrade in a virtual environment, killing itself after move N; run by test_install_switch.py.

Arguments: data directory, folder of wheels, wheel, N (0: never). Prints how many moves there were.
"""

import os
import signal
import sys
from pathlib import Path

from skald_core.plugins.install.environment import snapshot
from skald_core.plugins.install.switch import environment_lock, stage
from skald_core.plugins.install.wheel import read_wheel


def main() -> None:
    data, wheel, die_at = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    total = 0

    def watch(moved: int) -> None:
        nonlocal total
        total = moved
        if moved == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    found = read_wheel(wheel)
    there = snapshot().get(found.name)
    with environment_lock():
        staged = stage("the-job", data, [found], [there] if there is not None else [])
        staged.switch(watch)
        if die_at == -1:
            os.kill(os.getpid(), signal.SIGKILL)
        if die_at == -2:
            staged.roll_back()
            staged.roll_back()
        staged.finish()
    print(total)


main()
