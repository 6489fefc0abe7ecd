"""One SQLite or SQLCipher file: one writer thread with group commit, a few readers, no SQL on the event loop.

Everything queued while a transaction commits becomes the next transaction (group commit); each job inside it runs in its
own savepoint, so one failing job undoes only itself. A write is durable against a killed process when its ``await``
returns (WAL with ``synchronous=NORMAL``, https://www.sqlite.org/wal.html).
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from sqlcipher3 import dbapi2 as sqlite

from skald_core.loop.errors import LoopError

__all__ = ("Connection", "Cursor", "Database", "DatabaseClosed", "DatabaseError", "DiskFull", "Written", "WrongKey")

T = TypeVar("T")
P = ParamSpec("P")
if TYPE_CHECKING:  # sqlcipher3 has no type stubs; its connections are those of the standard library's module
    from sqlite3 import Connection
else:
    Connection = sqlite.Connection
Cursor = sqlite.Cursor


class DatabaseError(LoopError):
    """The database file could not be opened, read or written."""

    kind = "database"


class WrongKey(DatabaseError):
    """The key does not open this file, or the file is not a database."""

    kind = "wrong_key"


class DiskFull(DatabaseError):
    """The disk is full: nothing of this write was stored."""

    kind = "disk_full"


class DatabaseClosed(DatabaseError):
    """The database was closed (its user was locked) before this work ran."""

    kind = "database_closed"


class Written(asyncio.Future[T]):
    """The future of a write. It cannot be cancelled: who is stopped while waiting for it wakes up when it is done."""

    def cancel(self, msg: Any = None) -> bool:
        return False


class _Job:
    __slots__ = ("args", "error", "fn", "future", "kwargs", "loop", "value")

    def __init__(self, fn: Callable[..., Any], args: Any, kwargs: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.fn = fn
        self.args = args
        self.kwargs = kwargs
        self.loop = loop
        self.future: asyncio.Future[Any]
        self.value: Any = None
        self.error: BaseException | None = None


def _translate(error: BaseException, path: Path) -> BaseException:
    if isinstance(error, sqlite.Error):
        text = str(error)
        if "disk is full" in text or "disk I/O" in text:
            return DiskFull(
                f"the disk holding {path.name!r} is full; nothing was stored. Free some space and try again."
            )
        if isinstance(error, sqlite.DatabaseError) and "not a database" in text:
            return WrongKey(f"{path.name!r} cannot be opened with this key, or it is not a database")
    return error


def _settle(jobs: list[_Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.value)


class Database:
    """An open database file. Create with :meth:`open`; ``close`` waits for queued writes.

    ``write(fn)`` runs ``fn(connection)`` on the writer thread inside a transaction and returns its value after the
    commit. ``read(fn)`` runs it on a reader connection, which sees every write whose ``await`` has returned.
    """

    def __init__(self, path: Path, key: bytes | None, readers: int) -> None:
        self.path = path
        self._key = key
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._reads: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._closed = False
        self._on_rollback: tuple[Callable[[], object], ...] = ()
        self._lock = threading.Lock()
        writer = self._connect()
        try:
            writer.execute("PRAGMA journal_mode=WAL").fetchone()
        except sqlite.Error as error:
            writer.close()
            raise _translate(error, path) from None
        self._threads = [
            threading.Thread(target=self._write_loop, args=(writer,), name=f"db-write-{path.stem}", daemon=True)
        ]
        self._readers = max(1, readers)
        self._started_readers = 0
        self._threads[0].start()

    @classmethod
    async def open(cls, path: str | Path, *, key: bytes | None = None, readers: int = 2) -> Database:
        """Open (or create) ``path``; ``key`` is a raw 256-bit SQLCipher key.

        Raises WrongKey when the key does not fit and DatabaseError when the file cannot be opened.
        """
        return await asyncio.to_thread(cls, Path(path), key, readers)

    def _connect(self) -> Connection:
        try:
            connection: Connection = sqlite.connect(
                str(self.path), isolation_level=None, check_same_thread=False, cached_statements=256
            )
            if self._key is not None:
                connection.execute(f"PRAGMA key = \"x'{self._key.hex()}'\"")
                connection.execute("PRAGMA cipher_memory_security = OFF")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            for pragma in (
                "busy_timeout=5000",
                "synchronous=NORMAL",
                "foreign_keys=ON",
                "temp_store=MEMORY",
                "secure_delete=ON",  # what somebody deletes is overwritten, not left in free pages
            ):
                connection.execute(f"PRAGMA {pragma}")
        except sqlite.Error as error:
            translated = _translate(error, self.path)
            if isinstance(translated, DatabaseError):
                raise translated from None
            raise DatabaseError(f"cannot open {str(self.path)!r}: {error}") from None
        return connection

    # -- the writer ------------------------------------------------------------------------------------------------

    def _write_loop(self, connection: Connection) -> None:
        running = True
        while running:
            job = self._jobs.get()
            batch: list[_Job] = []
            while True:
                if job is None:
                    running = False
                    break
                batch.append(job)
                if len(batch) >= 256:
                    break
                try:
                    job = self._jobs.get_nowait()
                except queue.Empty:
                    break
            if batch:
                self._commit(connection, batch)
                self._deliver(batch)
        connection.execute("PRAGMA optimize")
        connection.close()

    def _commit(self, connection: Connection, batch: list[_Job]) -> None:
        try:
            connection.execute("BEGIN IMMEDIATE")
            if len(batch) == 1:
                self._run(connection, batch[0])
                if batch[0].error is not None:
                    self._forget()
                    connection.execute("ROLLBACK")
                    return
            else:
                for job in batch:
                    connection.execute("SAVEPOINT job")
                    self._run(connection, job)
                    if job.error is not None:
                        self._forget()
                        if connection.in_transaction:
                            connection.execute("ROLLBACK TO job")
                    connection.execute("RELEASE job")
            connection.execute("COMMIT")
        except BaseException as error:  # noqa: BLE001 -- the writer thread must answer every waiter and live on
            self._forget()
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            for job in batch:
                job.error = job.error or _translate(error, self.path)

    def _forget(self) -> None:
        for forget in self._on_rollback:
            forget()

    def on_rollback(self, forget: Callable[[], object]) -> None:
        """Call ``forget`` on the writer thread whenever writes are undone: for what jobs remember beside the database."""
        self._on_rollback += (forget,)

    def _run(self, connection: Connection, job: _Job) -> None:
        try:
            job.value = job.fn(connection, *job.args, **job.kwargs)
        except BaseException as error:  # noqa: BLE001 -- handed to the waiter
            job.error = _translate(error, self.path)

    @staticmethod
    def _deliver(batch: list[_Job]) -> None:
        if len(batch) == 1 or all(job.loop is batch[0].loop for job in batch):
            by_loop = {batch[0].loop: batch}
        else:
            by_loop = {}
            for job in batch:
                by_loop.setdefault(job.loop, []).append(job)
        for loop, jobs in by_loop.items():
            try:
                loop.call_soon_threadsafe(_settle, jobs)
            except RuntimeError:  # that event loop is gone; nobody waits any more
                continue

    async def write(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``fn(connection, *args)`` in a transaction; returns after the commit. Cancelling the wait does not undo it."""
        return await asyncio.shield(self._submit(_Job(fn, args, kwargs, asyncio.get_running_loop())))

    def submit(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> Written[T]:
        """Queue a short write without waiting; the future is done after the commit, and not to be cancelled before."""
        return self._submit(_Job(fn, args, kwargs, asyncio.get_running_loop()))

    def _submit(self, job: _Job) -> Written[Any]:
        written: Written[Any] = Written(loop=job.loop)
        job.future = written
        self._put(self._jobs, job)
        return written

    # -- readers ---------------------------------------------------------------------------------------------------

    def _read_loop(self) -> None:
        connection: Connection | None = None
        while (job := self._reads.get()) is not None:
            try:
                if connection is None:
                    connection = self._connect()
                    connection.execute("PRAGMA query_only=ON")
                job.value = job.fn(connection, *job.args, **job.kwargs)
            except BaseException as error:  # noqa: BLE001 -- handed to the waiter
                job.error = _translate(error, self.path)
            self._deliver([job])
        if connection is not None:
            connection.close()

    async def read(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``fn(connection, *args)`` on a read-only connection."""
        if self._started_readers < self._readers:
            self._start_reader()
        loop = asyncio.get_running_loop()
        job = _Job(fn, args, kwargs, loop)
        job.future = future = loop.create_future()
        self._put(self._reads, job)
        value: T = await future
        return value

    def _start_reader(self) -> None:
        with self._lock:
            if self._started_readers < self._readers and not self._closed:
                self._started_readers += 1
                thread = threading.Thread(target=self._read_loop, name=f"db-read-{self.path.stem}", daemon=True)
                self._threads.append(thread)
                thread.start()

    def _put(self, target: queue.SimpleQueue[_Job | None], job: _Job) -> None:
        with self._lock:
            if self._closed:
                raise DatabaseClosed(f"the database {self.path.name!r} is closed; sign in again to open it")
            target.put(job)

    async def close(self) -> None:
        """Commit what is queued and close every connection. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._jobs.put(None)
            for _ in range(self._started_readers):
                self._reads.put(None)
        threads = deque(self._threads)
        while threads:
            await asyncio.to_thread(threads.popleft().join)
        self._key = None

    @property
    def closed(self) -> bool:
        return self._closed
