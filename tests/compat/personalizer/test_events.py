"""The file of events: kept across restarts, forgotten in time, and no other file."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from topk_bandit.compat.personalizer.events import Event, EventsFile
from topk_bandit.domain.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

EVENT = Event("home", "r1", ("b", "a"), ("Main Article", "Side Bar"))


def test_an_event_is_found_by_its_kind_and_id_also_by_another_process(tmp_path: Path) -> None:
    first, second = (EventsFile(tmp_path / "events.db", now=lambda: 0.0) for _ in range(2))
    first.keep("multi", "e1", EVENT, seconds=10.0)
    assert second.find("multi", "e1") == EVENT
    assert second.find("single", "e1") is None
    newer = Event("home", "r2", (), ("",))
    second.keep("multi", "e1", newer, seconds=10.0)
    assert first.find("multi", "e1") == newer
    first.close()
    second.close()


def test_old_events_are_forgotten_now_and_then(tmp_path: Path) -> None:
    now = [0.0]
    events = EventsFile(tmp_path / "events.db", now=lambda: now[0])
    events.keep("single", "old", EVENT, seconds=10.0)
    now[0] = 11.0
    for number in range(999):
        events.keep("single", f"e{number}", EVENT, seconds=10.0)
    assert events.find("single", "old") is None
    assert events.find("single", "e0") == EVENT
    events.close()


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database, and long enough to be looked at as one " * 10)
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("PRAGMA user_version = 7")
    other.close()
    for name in ("text.db", "other.db", "absent/events.db"):
        with pytest.raises(ConfigurationError, match=r"events"):
            EventsFile(tmp_path / name, now=lambda: 0.0)
