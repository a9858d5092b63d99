"""What is learned of a slate whose reward may change: when that ends, and when nothing is to be said."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.contracts.provisional_contract import PROVISIONAL
from tests.contracts.samples import recommendation

from topk_bandit.domain.bandits import Aggregation, RewardRevised
from topk_bandit.store.recorded import PostedReward, Provisional, Recorded, RecordState
from topk_bandit.store.rules.provisional import close, revise

LARGEST = replace(PROVISIONAL, reward_aggregation=Aggregation.MAX)


def learned(value: float, *rewards: float, is_default: bool = False) -> Recorded:
    """Return a slate of which a value is learned, and which has these rewards."""
    posted = tuple(PostedReward(str(number), one, one, number + 1) for number, one in enumerate(rewards))
    known = Provisional(value, 7, is_default)
    return Recorded("f", (), recommendation(), 1, RecordState.PROVISIONAL, posted, provisional=known)


@pytest.mark.parametrize(
    ("is_default", "state"), [(True, RecordState.EXPIRED), (False, RecordState.REWARDED)], ids=["default", "reward"]
)
def test_a_slate_ends_as_what_is_learned_of_it(state: RecordState, *, is_default: bool) -> None:
    ended = close(learned(0.5, is_default=is_default))
    assert (ended.state, ended.provisional, ended.is_open) == (state, None, False)


def test_a_reward_that_changes_nothing_is_no_revision() -> None:
    slate = learned(5.0, 5.0, 3.0)
    assert revise(LARGEST, slate, place=1) == (slate, ())


def test_a_final_reward_that_changes_nothing_ends_the_slate_all_the_same() -> None:
    ended, [event] = revise(LARGEST, learned(5.0, 5.0, 3.0), place=1, ends=True)
    assert ended.state is RecordState.REWARDED
    assert isinstance(event, RewardRevised)
    assert (event.value, event.before, event.is_final, event.learned_ms) == (5.0, 5.0, True, 7)
