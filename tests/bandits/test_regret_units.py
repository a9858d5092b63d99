"""Regrets are added up in the rewards' unit: before two rewards differ there is none, and nothing is added."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from tests.bandits.harness import LIMITS, begun, request, then
from tests.contracts.samples import recommendation

from topk_bandit.bandits.fold import MOST_PHASES
from topk_bandit.bandits.model import RegretSums
from topk_bandit.bandits.snapshots import decode_model, encode_model
from topk_bandit.client import Stage
from topk_bandit.store.data_versions import FIRST, NEWEST
from topk_bandit.store.events import BanditReset, Recommended, Rewarded, Shown
from topk_bandit.testing import local_service

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from topk_bandit.bandits.model import Model
    from topk_bandit.client import BanditStats

SLATE = ("i0", "i1", "i3")
ITEMS = [f"i{number}" for number in range(6)]


def play(rewards: Sequence[float], *, after: int, unit: float = 1.0) -> BanditStats:
    """Return what a shop comes to whose first rewards are all zero; each comes some slates late."""
    with local_service(seed=3) as service:
        client = service.client()
        client.create_bandit("home", slate_size=2, item_capacity=8, uniform_share=0.3)
        client.upsert_items("home", ITEMS)
        ids = list[str]()
        for number, reward in enumerate(rewards):
            ids.append(client.recommend("home", request_id=f"r{number}").id)
            if number >= after:
                client.reward("home", ids[number - after], unit * reward)
        return client.stats("home")


def test_slates_of_before_two_rewards_differ_add_nothing() -> None:
    none = play([0.0] * 40, after=5)
    assert (none.regret_bound_sum, none.estimated_regret_sum) == (0.0, 0.0)
    assert none.observation_count == 35


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_sums_have_the_unit_of_the_rewards(unit: float) -> None:
    """The same shop in another currency: not to the bit, since what is learned of it rounds otherwise."""
    rewards = [0.0] * 30 + [1.0, 0.0, 2.0, 0.0, 1.5] * 8
    one, other = play(rewards, after=3), play(rewards, after=3, unit=unit)
    assert one.estimated_regret_sum > 0.0
    assert other.estimated_regret_sum / unit == pytest.approx(one.estimated_regret_sum, rel=0.05)
    assert other.regret_bound_sum / unit == pytest.approx(one.regret_bound_sum, rel=0.05)


@pytest.mark.parametrize("resets", [0, 1, 3])
def test_history_and_statistics_agree_and_nothing_of_before_changes(resets: int) -> None:
    """After a reset rewards have to differ again; slates of before it keep their unit."""
    with local_service(seed=4) as service:
        client = service.client()
        client.create_bandit("home", slate_size=2, item_capacity=8)
        client.upsert_items("home", ITEMS)
        known: dict[datetime, tuple[float, float]] = {}
        for _ in range(resets + 1):
            for number in range(24):
                slate = client.recommend("home")
                client.reward("home", slate.id, float(number >= 12) * (1 + number % 3))
                service.let_pass(timedelta(minutes=10))
            points = client.history("home")
            sums = {one.end_time: (one.regret_bound_sum, one.estimated_regret_sum) for one in points}
            stats = client.stats("home")
            assert [*sums.values()][-1] == (stats.regret_bound_sum, stats.estimated_regret_sum)
            for end in [*known][:-1]:
                assert sums.get(end, known[end]) == pytest.approx(known[end])
            assert all(after >= before - 1e-9 for before, after in pairwise(bound for bound, _ in sums.values()))
            known = sums
            if resets:
                client.reset_bandit("home")
        assert min([*known.values()][-1]) > 0.0


def recommended(number: int, *, by: int) -> Recommended:
    """Return a slate that the model of a position chose, with a bound of 2 and an estimate of .5."""
    given = replace(recommendation(f"r{number}"), slate=SLATE, model_version=by, regret_bound=2.0, estimated_regret=0.5)
    return Recommended(request(f"q{number}", context=(1.0, 1.0)), given)


def rewarded(model: Model, number: int, reward: float) -> Model:
    model = then(model, recommended(number, by=model.version))
    return then(model, Rewarded(f"r{number}", reward, Shown((1.0, 1.0), SLATE, 0)))


def test_a_slate_has_a_unit_by_what_was_known_when_it_was_chosen() -> None:
    model = rewarded(rewarded(begun(), 0, 0.0), 1, 1.0)
    assert (model.unit_from, model.regret_sums) == (model.version, RegretSums())
    late = then(model, recommended(2, by=model.unit_from - 1))
    assert late.regret_sums == RegretSums()
    assert then(late, recommended(3, by=model.unit_from)).regret_sums == RegretSums(2.0, 0.5)


def test_a_snapshot_keeps_what_has_no_unit() -> None:
    model = then(rewarded(rewarded(begun(), 0, 0.0), 1, 1.0), BanditReset("again"))
    model = rewarded(rewarded(rewarded(model, 2, 3.0), 3, 4.0), 4, 5.0)
    assert [phase.added for phase in model.unitless] == [RegretSums(4.0, 1.0)] * 2
    assert (model.all_regrets, model.regret_sums) == (RegretSums(10.0, 2.5), RegretSums(2.0, 0.5))
    for version in (FIRST, NEWEST):
        back = decode_model(encode_model(model, version), limits=LIMITS)
        assert (back.unit_from, back.unitless) == (model.unit_from, model.unitless)


def test_resets_without_end_add_up_in_the_newest_phase() -> None:
    model, number = begun(), 0
    for _ in range(MOST_PHASES + 3):
        for reward in (0.0, 1.0, 2.0):
            model, number = rewarded(model, number, reward), number + 1
        model = then(model, BanditReset("again"))
    assert len(model.unitless) == MOST_PHASES
    assert model.regret_sums == RegretSums(2.0 * (MOST_PHASES + 3), 0.5 * (MOST_PHASES + 3))


def test_a_shadow_counts_slates_once_its_gain_has_a_unit() -> None:
    with local_service(seed=5) as service:
        client = service.client()
        client.create_bandit("home", slate_size=2, item_capacity=8, stage=Stage.SHADOW)
        client.upsert_items("home", ITEMS)
        client.update_bandit("home", baseline_item_ids=ITEMS[:2])
        for number in range(40):
            slate = client.recommend("home", request_id=f"r{number}")
            if number == 20:
                assert client.stats("home").shadow is None or client.stats("home").shadow.slates == 0
            client.reward("home", slate.id, 0.001 * (number % 3 if number > 20 else 1))
            service.let_pass(timedelta(seconds=1))
        shadow = client.stats("home").shadow
        assert shadow is not None
        assert 10 < shadow.slates < 20
        assert shadow.gain is not None
        assert shadow.gain.high - shadow.gain.low < 0.1
