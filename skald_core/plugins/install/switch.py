"""The switch from one set of packages to another, undone completely when anything goes wrong or the process dies in it.

Wheels are unpacked beside the environment first. The switch itself only renames files: what goes is moved into a folder that is
kept, what comes is moved into place, and a journal written before the first rename says how to undo all of it. So going back
needs no network, no installer and hardly any disk space.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Literal

import msgspec

from skald_core.errors import Conflict, SkaldError, StartError
from skald_core.plugins.install.environment import Installed, inside, schemes, work_folder
from skald_core.plugins.install.wheel import BadWheel, Wheel

__all__ = ("Outcome", "Staged", "environment_lock", "pending", "recover", "recover_at_start", "stage")

Phase = Literal["switching", "switched"]


class Outcome(msgspec.Struct, frozen=True):
    """What became of a change whose process died: ``rolled_back``, or ``switched`` when all files were in place."""

    job: str
    data_dir: str
    result: Literal["rolled_back", "switched"]


class _Journal(msgspec.Struct):
    """``goes`` and ``comes`` are absolute paths; the n-th of ``goes`` is kept as ``old/n``."""

    job: str
    data_dir: str
    phase: Phase
    goes: list[str]
    comes: list[str]


@contextlib.contextmanager
def environment_lock() -> Iterator[None]:
    """One change of this environment at a time, whoever makes it: this server, another one, or the command line.

    Raises Conflict ``job_running``.
    """
    folder = work_folder()
    try:
        folder.mkdir(exist_ok=True, mode=0o700)
        handle = (folder / "lock").open("a+")
    except OSError as error:
        raise SkaldError(
            f"{str(folder)!r} cannot be written ({error.strerror}); nothing was changed", code="environment_read_only"
        ) from None
    try:
        _lock(handle)
        yield
    finally:
        handle.close()


def _lock(handle: IO[str]) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise Conflict(
            "Something else is being installed or removed at this moment. Try again when it is done.",
            code="job_running",
        ) from None


class Staged:
    """An unpacked new set beside the environment. ``comes`` are the paths it will fill, ``goes`` those that leave."""

    def __init__(self, job: str, data_dir: Path, goes: Sequence[Path], comes: Sequence[Path]) -> None:
        self.folder = work_folder() / "jobs" / job
        self._journal = _Journal(job, str(data_dir), "switching", [str(p) for p in goes], [str(p) for p in comes])

    @property
    def import_paths(self) -> list[Path]:
        """Folders to put before everything else on the path of the health check's Python."""
        places = dict.fromkeys(schemes()[name] for name in ("purelib", "platlib"))
        return [_below(self.folder / "new", Path(place)) for place in places]

    def switch(self, watch: Callable[[int], None] = lambda moved: None) -> None:
        """Move everything. On any failure it is undone before the error is raised. ``watch`` gets the count of moves."""
        _write_journal(self._journal)
        try:
            _switch(self._journal, self.folder, watch)
        except BaseException:
            self.roll_back()
            raise

    def roll_back(self) -> None:
        """Back to how it was. May be called again."""
        _roll_back(self._journal, self.folder)
        _journal_file().unlink(missing_ok=True)

    def finish(self) -> None:
        """Nothing is to be undone any more: forget the old files."""
        _journal_file().unlink(missing_ok=True)
        self.discard()

    def discard(self) -> None:
        """Remove what was prepared; not while a journal still needs it to undo or finish the switch."""
        if not pending():
            shutil.rmtree(self.folder, ignore_errors=True)


def pending() -> bool:
    """Whether a switch was begun and neither finished nor undone: the next start will see to it."""
    return _journal_file().exists()


def stage(job: str, data_dir: Path, wheels: Sequence[Wheel], goes: Sequence[Installed]) -> Staged:
    """Unpack ``wheels`` as they will lie in the environment and list what leaves it.

    Raises BadWheel for a wheel that would overwrite another distribution's file, SkaldError for a distribution that cannot be
    removed, and OSError (ENOSPC) when there is no room; nothing of the environment was touched then.
    """
    leaving = [path for dist in goes for path in _removable(dist)]
    folder = work_folder() / "jobs" / job
    shutil.rmtree(folder, ignore_errors=True)
    new = folder / "new"
    try:
        new.mkdir(parents=True)
        (folder / "old").mkdir()
        needed = sum(wheel.unpacked for wheel in wheels)
        if shutil.disk_usage(folder).free < needed * 1.05 + 1024 * 1024:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        coming: list[Path] = []
        for wheel in wheels:
            _unpack(wheel, new)
            fresh = sorted(Path("/", path.relative_to(new)) for path in new.rglob("*") if path.is_file())
            _refuse_overwriting(wheel, [p for p in fresh if p not in set(coming)], set(leaving))
            coming = fresh
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return Staged(job, data_dir, leaving, coming)


def _removable(dist: Installed) -> list[Path]:
    if dist.editable:
        raise SkaldError(
            f"{dist.name!r} is installed from a folder for development; install and remove it with pip.",
            code="plugin_editable",
            name=dist.name,
        )
    try:
        files = dist.files()
    except LookupError as error:
        raise SkaldError(
            f"{error}; remove it with the tool that installed it.", code="plugin_no_record", name=dist.name
        ) from None
    for path in files:
        if not inside(path):
            raise SkaldError(
                f"{dist.name!r} lists the file {str(path)!r}, which is not in this environment; remove it by hand.",
                code="plugin_foreign_file",
                name=dist.name,
            )
    return [path for path in dict.fromkeys(files) if path.is_file() or path.is_symlink()]


def _unpack(wheel: Wheel, new: Path) -> None:
    from installer import install
    from installer.destinations import SchemeDictionaryDestination
    from installer.exceptions import InstallerError
    from installer.sources import WheelFile

    paths = schemes()
    paths["headers"] = str(Path(paths["headers"]) / wheel.name)
    destination = SchemeDictionaryDestination(paths, interpreter=sys.executable, script_kind="posix", destdir=str(new))
    try:
        with WheelFile.open(wheel.path) as source:
            source.validate_record(validate_contents=True)
            install(source, destination, {"INSTALLER": b"skald\n"})
    except FileExistsError as error:
        raise BadWheel(wheel.name, f"two packages bring the same file ({error})", code="wheel_overwrites") from None
    except (InstallerError, ValueError, AssertionError) as error:
        raise BadWheel(wheel.name, f"its contents are not what its record says ({str(error)[:200]})") from None


def _refuse_overwriting(wheel: Wheel, fresh: Sequence[Path], leaving: set[Path]) -> None:
    for path in fresh:
        if path not in leaving and (path.exists() or path.is_symlink()):
            raise BadWheel(
                wheel.name,
                f"it would overwrite {path.name!r}, which belongs to something else",
                code="wheel_overwrites",
            )
        if any(parent.is_symlink() for parent in path.parents if inside(parent)):
            raise BadWheel(
                wheel.name, f"it would write into {path.parent.name!r}, which is a link", code="wheel_overwrites"
            )


# -- moving --------------------------------------------------------------------------------------------------------


def _below(root: Path, absolute: Path) -> Path:
    return root / absolute.relative_to(absolute.anchor)


def _journal_file() -> Path:
    return work_folder() / "journal.json"


def _write_journal(journal: _Journal) -> None:
    target = _journal_file()
    fresh = target.with_suffix(".new")
    with fresh.open("wb") as handle:
        handle.write(msgspec.json.encode(journal))
        handle.flush()
        os.fsync(handle.fileno())
    fresh.replace(target)


def _move(source: Path, target: Path) -> None:
    """Rename; across file systems copy to a name beside the target first, so that the target is never half written."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        source.replace(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        part = target.with_name(target.name + ".skald-part")
        try:
            shutil.copy2(source, part, follow_symlinks=False)
            part.replace(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        source.unlink()


def _switch(journal: _Journal, folder: Path, watch: Callable[[int], None]) -> None:
    moved = 0
    for number, path in enumerate(journal.goes):
        _move(Path(path), folder / "old" / str(number))
        moved += 1
        watch(moved)
    for path in journal.comes:
        target = Path(path)
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        _move(_below(folder / "new", target), target)
        moved += 1
        watch(moved)
    _tidy(journal.goes)
    journal.phase = "switched"
    _write_journal(journal)


def _roll_back(journal: _Journal, folder: Path) -> None:
    """Each step looks at what is there, so that it can be stopped anywhere and begun again."""
    kept = {path: folder / "old" / str(number) for number, path in enumerate(journal.goes)}
    for path in journal.comes:
        if path not in kept or kept[path].exists() or kept[path].is_symlink():
            Path(path).unlink(missing_ok=True)
    _tidy(journal.comes)
    for path, old in kept.items():
        if old.exists() or old.is_symlink():
            _move(old, Path(path))


def _tidy(paths: Sequence[str]) -> None:
    """Remove byte code of files that went, and folders left empty."""
    folders: set[Path] = set()
    for text in paths:
        path = Path(text)
        folders.add(path.parent)
        if path.suffix == ".py" and not path.exists():
            for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.cpython-*.pyc"):
                compiled.unlink(missing_ok=True)
            folders.add(path.parent / "__pycache__")
    roots = {Path(os.path.normpath(root)) for root in (sys.prefix, *schemes().values())}
    for folder in sorted(folders, key=lambda p: len(p.parts), reverse=True):
        current = folder
        while current not in roots and inside(current):
            try:
                current.rmdir()
            except OSError:
                break
            current = current.parent


# -- after a crash -------------------------------------------------------------------------------------------------


def recover() -> list[Outcome]:
    """Finish what a dead process left, and tell every change that was found so, once per data directory.

    Call with :func:`environment_lock` held, before anything of the environment is imported that it might have changed.
    """
    journal_file = _journal_file()
    with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
        journal = msgspec.json.decode(journal_file.read_bytes(), type=_Journal)
        folder = work_folder() / "jobs" / journal.job
        if journal.phase == "switching":
            _roll_back(journal, folder)
        result: Literal["rolled_back", "switched"] = "rolled_back" if journal.phase == "switching" else "switched"
        outcomes = work_folder() / "outcomes"
        outcomes.mkdir(exist_ok=True)
        (outcomes / f"{journal.job}.json").write_bytes(
            msgspec.json.encode(Outcome(journal.job, journal.data_dir, result))
        )
    journal_file.unlink(missing_ok=True)
    for left in (work_folder() / "jobs").glob("*"):
        shutil.rmtree(left, ignore_errors=True)
    return outcomes_of(None)


def outcomes_of(data_dir: Path | None) -> list[Outcome]:
    """What :func:`recover` found for this data directory (None: for any) and nobody has taken note of yet."""
    found = []
    for path in sorted((work_folder() / "outcomes").glob("*.json")):
        with contextlib.suppress(OSError, msgspec.DecodeError, msgspec.ValidationError):
            outcome = msgspec.json.decode(path.read_bytes(), type=Outcome)
            if data_dir is None or outcome.data_dir == str(data_dir):
                found.append(outcome)
    return found


def forget_outcome(outcome: Outcome) -> None:
    (work_folder() / "outcomes" / f"{outcome.job}.json").unlink(missing_ok=True)


def recover_at_start(timeout: float = 120.0) -> list[Outcome]:
    """Recover before a server looks for plugins; waits for a change that another living process is making.

    Raises StartError when that takes longer than ``timeout`` seconds.
    """
    if not work_folder().is_dir():
        return []
    end = time.monotonic() + timeout
    while True:
        try:
            with environment_lock():
                return recover()
        except Conflict:
            if time.monotonic() > end:
                raise StartError(
                    "another process is installing plugins into this environment; start again when it is done"
                ) from None
            time.sleep(0.2)
        except (SkaldError, OSError):
            return []  # not writable: nothing was ever installed from here
