"""Which recommendation an event is: a SQLite file, so that a Reward finds its slate across restarts.

Processes of one machine may share it. A power cut may take its last entries along; their events are unknown then.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["Event", "EventsFile"]

_VERSION = 1
_SWEEP_EVERY = 1000
_SCHEMA = f"""
CREATE TABLE events (
    kind TEXT NOT NULL, event_id TEXT NOT NULL, bandit TEXT NOT NULL, recommendation_id TEXT NOT NULL,
    shown TEXT NOT NULL, slots TEXT NOT NULL, until REAL NOT NULL, PRIMARY KEY (kind, event_id)) WITHOUT ROWID;
CREATE INDEX ends ON events (until);
PRAGMA user_version = {_VERSION};
"""


@dataclass(frozen=True, slots=True)
class Event:
    """What a Rank led to.

    Attributes
    ----------
    shown
        The actions that are shown, if they are not the recommended slate; else empty.
    slots
        Ids of the slots, in their order.
    """

    bandit: str
    recommendation_id: str
    shown: tuple[str, ...]
    slots: tuple[str, ...]


class EventsFile:
    """The open file; for one thread.

    Parameters
    ----------
    path
        None keeps events in memory alone.
    now
        Seconds since 1970.

    Raises
    ------
    ConfigurationError
        The file can't be opened, or holds something else.
    """

    def __init__(self, path: Path | None, *, now: Callable[[], float]) -> None:
        self._now = now
        self._kept = 0
        try:
            with ExitStack() as refused:
                opened = sqlite3.connect(":memory:" if path is None else path, isolation_level=None)
                self._connection = refused.enter_context(closing(opened))
                self._prepare(path)
                refused.pop_all()
        except sqlite3.Error as error:
            raise ConfigurationError(f"{path} can't keep events: {error}") from None

    def _prepare(self, path: Path | None) -> None:
        execute = self._connection.execute
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = NORMAL")
        execute("BEGIN IMMEDIATE")
        [(version,)] = execute("PRAGMA user_version")
        if version == 0:
            for statement in _SCHEMA.split(";"):
                execute(statement)
        execute("COMMIT")
        if version not in {0, _VERSION}:
            raise ConfigurationError(f"{path} is no file of events, or of another version")

    def keep(self, kind: str, event_id: str, event: Event, *, seconds: float) -> None:
        """Keep an event for so long; the newest one of an id counts."""
        row = (event.bandit, event.recommendation_id, json.dumps(event.shown), json.dumps(event.slots))
        self._connection.execute(
            "INSERT OR REPLACE INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", (kind, event_id, *row, self._now() + seconds)
        )
        self._kept += 1
        if self._kept % _SWEEP_EVERY == 0:
            self._connection.execute("DELETE FROM events WHERE until < ?", (self._now(),))

    def find(self, kind: str, event_id: str) -> Event | None:
        """Return an event; None if it is not known."""
        wanted = "SELECT bandit, recommendation_id, shown, slots FROM events WHERE kind = ? AND event_id = ?"
        row = self._connection.execute(wanted, (kind, event_id)).fetchone()
        if row is None:
            return None
        bandit, recommendation_id, shown, slots = row
        return Event(bandit, recommendation_id, tuple(json.loads(shown)), tuple(json.loads(slots)))

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
