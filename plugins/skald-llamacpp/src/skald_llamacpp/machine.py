"""What this machine can carry: memory, disk, processor. All read from the system when asked, nothing is cached."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
from pathlib import Path

__all__ = (
    "available_memory",
    "cpu_limit",
    "missing_cpu_features",
    "resident_memory",
    "runtime_version",
    "total_memory",
)

_CGROUP = Path("/sys/fs/cgroup")
_NEEDED_X86 = ("avx", "avx2", "bmi2", "f16c", "fma")
"""What the published CPU builds of the runtime are compiled for on x86-64."""


def _meminfo(key: str) -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _cgroup(name: str) -> int | None:
    """A number from the control group this process runs in (cgroup v2), None where there is no limit or no such file."""
    try:
        text = (_CGROUP / name).read_text().split()[0]
        return int(text)
    except (OSError, ValueError, IndexError):
        return None


def total_memory() -> int | None:
    """Bytes of memory this process may use at most, or None where the system does not say."""
    total, limit = _meminfo("MemTotal"), _cgroup("memory.max")
    if total is None:
        try:
            total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, OSError, ValueError):
            return limit
    return min(total, limit) if limit is not None else total


def available_memory() -> int | None:
    """Bytes that can be taken without pushing anything out, or None where the system does not say."""
    free, limit, used = _meminfo("MemAvailable"), _cgroup("memory.max"), _cgroup("memory.current")
    if limit is not None and used is not None:
        left = max(0, limit - used)
        return left if free is None else min(free, left)
    return free


def resident_memory(pid: int) -> int | None:
    """Bytes of memory the process holds, or None when it is gone or the system does not say."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError, IndexError):
        return None


def cpu_limit() -> int | None:
    """How many processors this process may keep busy when that is fewer than the machine has; None for no such limit."""
    count = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else count
    try:
        quota, period = (_CGROUP / "cpu.max").read_text().split()[:2]
        allowed = min(allowed, max(1, round(int(quota) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):
        pass
    return allowed if allowed < count else None


def missing_cpu_features() -> tuple[str, ...]:
    """Instruction sets the runtime needs and this processor lacks. Empty where that cannot be told."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return ()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ()
    flags = next((set(line.split(":", 1)[1].split()) for line in lines if line.startswith("flags")), None)
    return () if flags is None else tuple(name for name in _NEEDED_X86 if name not in flags)


def runtime_version() -> str | None:
    """The installed version of xllamacpp, told without importing it; None when it is not installed."""
    if importlib.util.find_spec("xllamacpp") is None:
        return None
    try:
        return importlib.metadata.version("xllamacpp")
    except importlib.metadata.PackageNotFoundError:
        return ""
