"""Calls on disk that the service has not acknowledged yet: a SQLite file that several processes may share."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from topk_bandit.client.errors import ErrorDetails, ResourceExhausted, Unavailable
from topk_bandit.domain.slates import NOTHING_NAMED

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

__all__ = ["KeptActivation", "KeptCall", "KeptReward", "OutboxFile"]

_VERSION, _WITH_ITEMS = 2, 3
_PATIENCE_SECONDS = 5.0

# Numbers are never used again (AUTOINCREMENT): a process that was frozen while another one delivered what it had taken
# removes these numbers when it goes on, and they must not be those of newer calls. A reward has a value, an activation
# has what was shown, as a JSON list. Calls about one slate go one after the other, in the order they were written: an
# activation comes before the slate's rewards, and a final one of these is the last. The first reward with item values,
# a JSON object, adds a column for them: from then on the version is another one, and a program that would leave them
# out does not open the file. Until then it does.
_SCHEMA = (
    "CREATE TABLE owner (tenant TEXT NOT NULL)",
    "CREATE TABLE size (calls INTEGER NOT NULL)",
    "INSERT INTO size VALUES (0)",
    """CREATE TABLE calls (
        number INTEGER PRIMARY KEY AUTOINCREMENT, bandit TEXT NOT NULL, recommendation_id TEXT NOT NULL,
        value REAL, reward_id TEXT NOT NULL, final INTEGER NOT NULL, shown TEXT, written REAL NOT NULL,
        due REAL NOT NULL DEFAULT 0, CHECK ((value IS NULL) <> (shown IS NULL)))""",
    "CREATE INDEX calls_about_a_slate ON calls (bandit, recommendation_id, number)",
    """CREATE VIEW next_calls AS SELECT * FROM calls AS one WHERE NOT EXISTS (
        SELECT 1 FROM calls AS earlier WHERE earlier.bandit = one.bandit
        AND earlier.recommendation_id = one.recommendation_id AND earlier.number < one.number)""",
    "CREATE TRIGGER one_more AFTER INSERT ON calls BEGIN UPDATE size SET calls = calls + 1; END",
    "CREATE TRIGGER one_less AFTER DELETE ON calls BEGIN UPDATE size SET calls = calls - 1; END",
    f"PRAGMA user_version = {_VERSION}",
)

# A time far beyond the longest lease is from a clock that was set back: it binds nobody.
_OLDEST = """
SELECT bandit, shown IS NULL FROM next_calls WHERE due <= :now OR due > :farthest ORDER BY number LIMIT 1
"""
# Most calls of a full file are about one bandit: they are read in order (the plus rules the index out), not sorted.
_REWARDS = """
SELECT number, bandit, recommendation_id, value, reward_id, final, {items} FROM next_calls
WHERE (due <= :now OR due > :farthest) AND +bandit = :bandit AND shown IS NULL ORDER BY number LIMIT :limit
"""
_ACTIVATIONS = """
SELECT number, bandit, recommendation_id, shown FROM next_calls
WHERE (due <= :now OR due > :farthest) AND +bandit = :bandit AND shown IS NOT NULL ORDER BY number LIMIT :limit
"""
_ADD = """
INSERT INTO calls (bandit, recommendation_id, value, reward_id, final, shown, written) VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_ADD_ITEMS = "UPDATE calls SET items = ? WHERE number = ?"
_TAKE_ITEMS = ("ALTER TABLE calls ADD COLUMN items TEXT", f"PRAGMA user_version = {_WITH_ITEMS}")


@dataclass(frozen=True, slots=True)
class KeptReward:
    """A reward that is on disk; `number` is its place in the file."""

    number: int
    bandit: str
    recommendation_id: str
    value: float
    reward_id: str
    final: bool
    item_values: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KeptActivation:
    """The same for an activation; nothing `shown` stands for the slate itself."""

    number: int
    bandit: str
    recommendation_id: str
    shown: tuple[str, ...]


KeptCall = KeptReward | KeptActivation

_DELETED = "was deleted or replaced: make the outbox anew"


class OutboxFile:
    """One connection to the file, safe to share between threads, and taken over a fork if that is announced to it.

    Parameters
    ----------
    tenant
        Whose calls these are; a file is for one tenant.
    max_waiting
        How many it may hold.
    lease
        Seconds for which those who take calls have them alone.
    now
        Seconds since 1970; all processes that share the file have to agree on it.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, tenant: str, max_waiting: int, lease: float, now: Callable[[], float]
    ) -> None:
        self._path = Path(path)
        self._max_waiting = max_waiting
        self._lease = lease
        self._now = now
        self._lock = threading.Lock()
        self._is_closed = self._stays_behind = False
        self._connection: sqlite3.Connection | None = _open(self._path)
        self._identity = _identity(self._path)
        try:
            self._prepare(tenant)
        except BaseException:
            self._connection.close()
            raise

    def before_fork(self) -> None:
        """Close the file until it is used again: SQLite's locks of it would not be those of a forked process.

        One that is not in its place any more could not be opened again, and is kept as it is.
        """
        self._lock.acquire()  # so that nobody is writing to it
        if self._connection is not None and self.is_in_place:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def after_fork(self, *, stays_behind: bool) -> None:
        """Let it be used again, but where it stays behind: each use is a `RuntimeError` there."""
        self._stays_behind |= stays_behind
        self._lock.release()

    @property
    def is_in_place(self) -> bool:
        """Whether its path still leads to it: what is written to a file that was deleted is gone with this process."""
        return _identity(self._path) == self._identity

    def add_reward(
        self,
        bandit: str,
        recommendation_id: str,
        value: float,
        *,
        reward_id: str,
        final: bool,
        item_values: Mapping[str, float] = NOTHING_NAMED,
    ) -> None:
        """Write a reward; it is on disk when this returns.

        Raises
        ------
        ResourceExhausted
            OUTBOX_FULL.
        Unavailable
            OUTBOX_FAILED: the file can't be written, or is not where it was.
        """
        columns = bandit, recommendation_id, value, reward_id, final, None
        self._add(*columns, items=json.dumps(item_values) if item_values else None)

    def add_activation(self, bandit: str, recommendation_id: str, shown: Sequence[str]) -> None:
        """Write an activation; it is on disk when this returns. The errors are those of `add_reward`."""
        self._add(bandit, recommendation_id, None, "", 0, json.dumps(shown))

    def _add(self, *columns: str | float | None, items: str | None = None) -> None:
        with self._changing() as connection:
            if not self.is_in_place:
                raise _make_error(self._path, _DELETED)
            [(held,)] = connection.execute("SELECT calls FROM size")
            if held >= self._max_waiting:
                raise _full(self._path, self._max_waiting)
            number = connection.execute(_ADD, (*columns, self._now())).lastrowid
            if items is not None:
                if not _has_items(connection):
                    for statement in _TAKE_ITEMS:
                        connection.execute(statement)
                connection.execute(_ADD_ITEMS, (items, number))

    def take(self, limit: int) -> list[KeptReward] | list[KeptActivation]:
        """Return the oldest calls that nobody else has, one of each slate, and have them alone.

        They are all of one bandit, and all rewards or all activations.
        """
        with self._changing() as connection:
            now = self._now()  # once it is our turn: a lease that began while we waited is no older than this
            times = {"now": now, "farthest": now + 2.0 * self._lease}
            for bandit, rewards in connection.execute(_OLDEST, times).fetchall():
                wanted = {**times, "bandit": bandit, "limit": limit}
                asked = _REWARDS.format(items="items" if _has_items(connection) else "NULL")
                rows = connection.execute(asked if rewards else _ACTIVATIONS, wanted).fetchall()
                taken = list(map(_reward, rows)) if rewards else list(map(_activation, rows))
                _set_due(connection, taken, now + self._lease)
                return taken
        return []

    def put_back(self, calls: Iterable[KeptCall], *, seconds: float) -> None:
        """Let others have them, after a pause of at most the lease."""
        with self._changing() as connection:
            _set_due(connection, calls, self._now() + min(seconds, self._lease))

    def remove(self, calls: Iterable[KeptCall]) -> set[int]:
        """Take them out for good; return the numbers of those that nobody had taken out before."""
        delete = "DELETE FROM calls WHERE number = ?"
        with self._changing() as connection:
            return {one.number for one in calls if connection.execute(delete, (one.number,)).rowcount}

    def pending(self) -> int:
        """Return how many calls it holds, of all processes."""
        with self._using() as connection:
            [(held,)] = connection.execute("SELECT calls FROM size")
            return int(held)

    def oldest(self) -> float | None:
        """Return when the oldest of them was written, in seconds since 1970; None where there is none."""
        with self._using() as connection:
            found = connection.execute("SELECT written FROM calls ORDER BY number LIMIT 1").fetchone()
            return None if found is None else float(found[0])

    def close(self) -> None:
        """Let go of the file; it may be closed twice."""
        with self._lock:
            self._is_closed = True
            if self._connection is not None:
                self._connection.close()

    def _prepare(self, tenant: str) -> None:
        with self._changing() as connection:
            version = _version_of(connection)
            if version not in {0, _VERSION, _WITH_ITEMS}:
                raise ValueError(f"{self._path} is an outbox of another version, or none")
            if version == 0:
                for statement in _SCHEMA:
                    connection.execute(statement)
                connection.execute("INSERT INTO owner VALUES (?)", (tenant,))
            [(owner,)] = connection.execute("SELECT tenant FROM owner")
            if owner != tenant:
                raise ValueError(f"{self._path} is the outbox of the tenant {owner}, not of {tenant}")

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        if self._stays_behind:
            raise RuntimeError("an asynchronous outbox can't be taken over a fork: make it in the process that uses it")
        with self._lock:
            if self._connection is None:
                self._connection = self._open_again()
            try:
                yield self._connection
            except sqlite3.Error as error:
                raise _make_error(self._path, error) from error

    def _open_again(self) -> sqlite3.Connection:
        if self._is_closed:
            raise _make_error(self._path, "is closed")
        if not self.is_in_place:
            raise _make_error(self._path, _DELETED)
        return _open(self._path)

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        with self._using() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")


_OF_ANOTHER = "SELECT 1 FROM pragma_user_version, sqlite_master WHERE user_version = 0"
"""In one statement, since another process may make the outbox meanwhile: what a file without a version has."""


def _open(path: Path) -> sqlite3.Connection:
    """Open the file for several threads and processes.

    Every commit is synced (FULL): with the usual setting of a write-ahead log the newest ones are lost in a power cut,
    though the page got the answer that they are kept.
    """
    try:
        connection = sqlite3.connect(path, timeout=_PATIENCE_SECONDS, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise _make_error(path, error) from error
    try:
        _check_is_an_outbox(connection, path)
        _use_write_ahead_log(connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")  # of macOS, where a plain sync does not reach the disk
    except ValueError:
        connection.close()
        raise
    except sqlite3.Error as error:
        connection.close()
        raise _make_error(path, error) from error
    return connection


def _check_is_an_outbox(connection: sqlite3.Connection, path: Path) -> None:
    """Raise `ValueError` for a file that has tables and no version, as most databases have, before it is changed."""
    if connection.execute(_OF_ANOTHER).fetchone() is not None:
        raise ValueError(f"{path} is a database of something else")


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch the file's mode; SQLite does not wait for another process that does so at the same time."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            with closing(connection.execute("PRAGMA journal_mode = WAL")) as answer:
                answer.fetchall()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return


def _version_of(connection: sqlite3.Connection) -> int:
    [(version,)] = connection.execute("PRAGMA user_version")
    return int(version)


def _has_items(connection: sqlite3.Connection) -> bool:
    """Return whether rewards of a file may have item values."""
    return _version_of(connection) == _WITH_ITEMS


def _reward(row: tuple[int, str, str, float, str, bool, str | None]) -> KeptReward:
    return KeptReward(*row[:6], json.loads(row[6]) if row[6] else {})


def _activation(row: tuple[int, str, str, str]) -> KeptActivation:
    number, bandit, recommendation_id, shown = row
    return KeptActivation(number, bandit, recommendation_id, tuple(json.loads(shown)))


def _set_due(connection: sqlite3.Connection, calls: Iterable[KeptCall], due: float) -> None:
    connection.executemany("UPDATE calls SET due = ? WHERE number = ?", [(due, one.number) for one in calls])


def _full(path: Path, max_waiting: int) -> ResourceExhausted:
    problem = f"the outbox {path} holds {max_waiting} calls that are not delivered yet, as many as it may"
    return ResourceExhausted(ErrorDetails("RESOURCE_EXHAUSTED", problem, reason="OUTBOX_FULL"))


def _identity(path: Path) -> tuple[int, int]:
    """Return which file a path leads to; none is (0, 0)."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def _make_error(path: Path, error: sqlite3.Error | str) -> Unavailable:
    return Unavailable(ErrorDetails("UNAVAILABLE", f"the outbox {path}: {error}", reason="OUTBOX_FAILED"))
