"""Rules of a bandit's log, each for itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.contracts.samples import NAME, SETTINGS

from topk_bandit.domain.errors import ExhaustedError
from topk_bandit.store.events import EventSkipped
from topk_bandit.store.log import MOST_SKIPPED, Skip
from topk_bandit.store.rules import bandits
from topk_bandit.store.rules.decisions import Known, Life


def test_only_events_that_are_still_there_count_among_those_that_were_passed_over() -> None:
    first = 7
    life = Life(skipped=frozenset(range(first, first + MOST_SKIPPED)))
    known = Known(
        NAME, "first", 1, SETTINGS, 0, 2, log_position=first + 2 * MOST_SKIPPED, first_position=first, life=life
    )
    wanted = Skip(known.log_position, EventSkipped("", 0), 0, "first", 1, 2)
    with pytest.raises(ExhaustedError, match="passed over already"):
        bandits.skip(known, wanted)
    assert bandits.skip(replace(known, first_position=first + 1), wanted).answer
