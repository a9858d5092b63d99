"""How far an import is, as stores keep and compare it: workers of two versions may take turns at one import."""

from __future__ import annotations

from topk_bandit.store.line_imports import Lines
from topk_bandit.store.restore_state import Restore
from topk_bandit.store.study_restores import StudyRestore

OF_A_BANDIT = (
    b'{"import_id": "one", "next_line": 3, "part": "", "digest": "", "incarnation": "", "created_ms": 0, '
    b'"revision": 1, "first_position": 0, "position": -1, "as_of": 0, "settings": "", "items_position": 0, '
    b'"imported_position": 0, "late_rewards": 0, "clamped_rewards": 0, "lost_events": 0, "lost_rewards": 0, '
    b'"pending": 0, "import_parts": 0, "complete": false}'
)
OF_A_STUDY = (
    b'{"import_id": "one", "next_line": 3, "part": "", "digest": "", "incarnation": "", "position": 0, '
    b'"complete": true}'
)


def test_how_far_an_import_is_has_the_bytes_that_it_always_had() -> None:
    bandit, study = Restore("one", next_line=3), StudyRestore("one", next_line=3, complete=True)
    assert (bandit.encode(), study.encode()) == (OF_A_BANDIT, OF_A_STUDY)
    assert (Restore.decode(OF_A_BANDIT), StudyRestore.decode(OF_A_STUDY)) == (bandit, study)


def test_a_part_is_known_by_where_it_begins_and_what_it_says() -> None:
    part = Lines("one", 0, ("a", "b")).part
    assert part == "0 " + part.split()[1] == Lines("two", 0, ("a", "b")).part
    assert len({part, Lines("one", 1, ("a", "b")).part, Lines("one", 0, ("a", "c")).part}) == 3
