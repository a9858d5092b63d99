"""What is learned of a slate whose reward may change: when that ends, and when nothing is to be said."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.contracts.provisional_contract import PROVISIONAL
from tests.contracts.samples import recommendation

from topk_bandit.domain.bandits import Aggregation
from topk_bandit.store.events import RewardRevised
from topk_bandit.store.recorded import PostedReward, Provisional, Recorded, RecordState
from topk_bandit.store.rules.provisional import close, due_of, revise, void

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


def test_a_default_of_minus_zero_is_zero() -> None:
    open_slate = replace(learned(0.0), state=RecordState.PENDING, provisional=None)
    _, [event] = revise(replace(PROVISIONAL, default_reward=-0.0), open_slate, place=0)
    assert isinstance(event, RewardRevised)
    assert event.value is not None
    assert math.copysign(1.0, event.value) == 1.0


def test_nothing_is_learned_of_what_is_taken_back() -> None:
    ended, [event] = void(learned(0.5, 0.5), place=1)
    assert (ended.state, ended.provisional, ended.position) == (RecordState.VOID, None, -2)
    assert isinstance(event, RewardRevised)
    assert (event.value, event.before, event.is_final) == (None, 0.5, True)


def test_no_slate_is_due_after_its_wait() -> None:
    given = replace(recommendation(), deadline_ms=100)
    slate = replace(learned(0.0), state=RecordState.PENDING, provisional=None, recommendation=given, at_ms=40)
    dues = [due_of(replace(PROVISIONAL, provisional_after_ms=after), slate) for after in (None, 0, 30, 90)]
    assert dues == [100, 40, 70, 100]
