"""Rewards that are learned as they come: what a log with revisions comes to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.bandits.harness import LIMITS, NAME, SETTINGS, assert_same, request, running_worker
from tests.bandits.test_corrections import ITEMS, assert_learned_alike, begun, recommended, rewarded, then
from tests.contracts.harness import MemoryStores, run
from tests.contracts.samples import HOUR_MS

from topk_bandit.bandits.fold import begin, fold
from topk_bandit.bandits.snapshots import decode_model, encode_model
from topk_bandit.domain.bandits import Aggregation, Kernel
from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.observed_rows import Observations, ObservedRows
from topk_bandit.learning.posterior import PendingSlates, Posterior
from topk_bandit.learning.scales import scale_best
from topk_bandit.store.events import (
    BanditCreated,
    BanditReset,
    Event,
    LoggedEvent,
    Recommended,
    RewardRevised,
    Shown,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topk_bandit.bandits.model import Model
    from topk_bandit.store.log import Store

DEFAULT = 0.0


def revised(
    number: int, value: float | None, before: float | None, *, was_default: bool = False, learned_ms: int = 1
) -> RewardRevised:
    shown = recommended(number)
    return RewardRevised(
        f"r{number}",
        value,
        Shown(shown.request.context, shown.recommendation.slate, 1),
        0 if before is None else learned_ms,
        is_default=before is None and value == DEFAULT,
        was_default=was_default,
        is_final=value is None,
        before=before,
    )


def first(number: int) -> RewardRevised:
    """The default reward, as it is learned first."""
    return revised(number, DEFAULT, None)


def final_reward(number: int) -> float:
    return float(np.sin(number)) + 2.0


def test_revisions_come_to_what_the_final_rewards_do_while_rows_are_kept() -> None:
    """Half of the slates earn something later, some of it is given back; the fit is that of the final rewards."""
    model, expected = (
        then(begin("birth", LoggedEvent(1, 1, BanditCreated(SETTINGS)), limits=Limits(rows=300, pending_rows=8)), ITEMS)
        for _ in range(2)
    )
    for number in range(120):
        model = then(model, recommended(number), first(number))
        expected = then(
            expected, recommended(number), rewarded(number, final_reward(number) if number % 2 else DEFAULT)
        )
        if number % 2 and number > 40:
            late = number - 40
            model = then(model, revised(late, 5.0, DEFAULT, was_default=True))
            model = then(model, revised(late, final_reward(late), 5.0))
    for late in (one for one in range(120) if one % 2 and not 40 < one + 40 < 120):
        model = then(model, revised(late, final_reward(late), DEFAULT, was_default=True))
    assert (model.tally.defaults, model.tally.expirations) == (60, 60)
    assert (model.rewarded_slates, model.open_slates) == (60, 0)
    assert model.tally.missed_corrections == 0
    at = 10.0
    refit, right = (replace(one, state=one.state.refit(at)) for one in (model, expected))
    assert_same_fit(refit, right)


def assert_same_fit(one: Model, other: Model) -> None:
    """Compare what two models say where both have the kernel, the noise and the scale of the second."""
    rows = one.state.posterior.observed_rows
    posterior = other.state.posterior.refit(rows, noise_variance=other.state.posterior.noise_variance)
    assert_learned_alike(replace(one, state=replace(one.state, posterior=posterior)), other)


def test_a_slate_that_is_taken_back_counts_for_nothing() -> None:
    lived = [event for number in range(60) for event in (recommended(number), first(number))]
    model = then(begun(), *lived)
    gone = then(model, revised(3, None, DEFAULT, was_default=True))
    assert gone.state.observations == model.state.observations - 1
    assert (gone.tally.voided, gone.tally.defaults, gone.open_slates) == (1, 59, 0)
    assert gone.rewarded_slates == 1


def test_a_slate_whose_items_are_gone_is_counted_and_not_learned() -> None:
    event = first(3)
    unknown = replace(event, shown=replace(event.shown, slate=("i1", "i2", "gone")))
    model = then(begun(), recommended(3), unknown)
    assert (model.tally.unlearned, model.state.observations, model.open_slates) == (1, 0, 0)
    bought = replace(unknown, value=2.0, before=DEFAULT, is_default=False, was_default=True, learned_ms=1)
    after = then(model, bought)
    assert (after.tally.defaults, after.tally.expirations, after.open_slates) == (0, 0, 0)
    assert (after.rewarded_slates, after.tally.missed_corrections) == (1, 1)


def test_what_was_forgotten_is_not_revised() -> None:
    lived = [event for number in range(60) for event in (recommended(number), first(number))]
    model = then(begun(), *lived)
    model = fold(model, LoggedEvent(model.version + 1, HOUR_MS, BanditReset("again")))
    after = then(model, revised(3, 2.0, DEFAULT, was_default=True), revised(4, None, DEFAULT, was_default=True))
    assert after.tally.missed_corrections == 2
    assert after.state.posterior is model.state.posterior
    kept = decode_model(encode_model(model, 2), limits=LIMITS)
    assert then(kept, revised(3, 2.0, DEFAULT, was_default=True)).state.posterior is kept.state.posterior


def test_a_kind_of_reward_that_only_comes_late_is_learned_once_enough_of_it_was_heard_of() -> None:
    """Orders come for slates that are among the latest no more: each is wild, and was forgotten as it came."""
    model, missed = begun(), 0
    for number in range(560):
        model = then(model, recommended(number), revised(number, float(number % 3 == 0), None))
    for late in range(300):
        model = then(model, revised(late, 50.0 + late % 7, float(late % 3 == 0)))
        if model.tally.missed_corrections == missed:
            break
        missed += 1
    assert 8 < missed < 299


def test_a_snapshot_between_revisions_goes_on_to_the_bit() -> None:
    """The first of two checkpoints is taken, and both go on from there."""
    events: list[Event] = [event for number in range(200) for event in (recommended(number), first(number))]
    later = [revised(number, final_reward(number), DEFAULT, was_default=True) for number in range(1, 200, 3)]
    model = begun()
    while model.since_checkpoint or model.state.observations < 100:
        model = then(model, events.pop(0))
    restored = decode_model(encode_model(model, 2), limits=LIMITS)
    assert_same(then(restored, *events, *later), then(model, *events, *later))


def test_a_log_can_not_take_back_what_was_never_learned() -> None:
    with pytest.raises(CorruptDataError, match="never learned"):
        then(begun(), recommended(1), replace(first(1), value=None, is_default=False))


def test_a_bandit_that_only_revises_is_refit_as_others_are() -> None:
    settings = replace(SETTINGS, kernel=Kernel.ADAPTIVE)
    model = begin("birth", LoggedEvent(1, 1, BanditCreated(settings)), limits=LIMITS)
    assert model.since_checkpoint == 1
    model, checkpoints = begun(), 0
    for number in range(100):
        model = then(model, recommended(number), first(number))
        checkpoints += not model.since_checkpoint
    assert checkpoints >= 5


def alike(count: int) -> Model:
    """Return a model of slates of two kinds, most of which have earned the same."""
    model = begun()
    for number in range(count):
        model = then(model, twin(number), revised_twin(number, earned(number), None))
    return model


def earned(number: int) -> float:
    return float(number % 5) if number % 3 == 0 else 0.0


def twin(number: int) -> Recommended:
    slates = (("i0", "i1", "i2"), ("i3", "i4", "i5"))
    given = recommended(number)
    asked = replace(given.request, context=(1.0, 1.0))
    return replace(given, request=asked, recommendation=replace(given.recommendation, slate=slates[number % 2]))


def revised_twin(number: int, value: float | None, before: float | None) -> RewardRevised:
    shown = twin(number)
    event = revised(number, value, before)
    return replace(event, shown=replace(event.shown, context=(1.0, 1.0), slate=shown.recommendation.slate))


def expected_of(rewards: Mapping[int, float | None], model: Model) -> np.ndarray:
    """Return what a model of these rewards alone expects of both slates, with the choices of another one."""
    left = [(number, reward) for number, reward in rewards.items() if reward is not None]
    rankings = np.array([model.items.find_indices(twin(number).recommendation.slate) for number, _ in left])
    contexts = np.array([model.state.encode(np.ones(2)) for _ in left])
    rows = ObservedRows.of(Observations(contexts, rankings, np.array([reward for _, reward in left])))
    posterior = model.state.posterior
    pending = PendingSlates(contexts[:0], rankings[:0])
    fitted = Posterior.fit(posterior.kernel, rows, pending, noise_variance=posterior.noise_variance)
    return means_of(model, scale_best(fitted, noise_at_edge=model.state.noise_at_edge))


def means_of(model: Model, posterior: Posterior) -> np.ndarray:
    slates = np.array([model.items.find_indices(twin(number).recommendation.slate) for number in range(2)])
    return posterior.predict(model.state.encode(np.ones(2)), slates, with_pending=False).mean


@pytest.mark.parametrize(
    "changes",
    [
        [(1, None), (25, 4.0)],
        [(number, None) for number in range(24) if number % 3] + [(25, 4.0)],
        [(29, None), (1, 9.0), (28, 0.5)],
        [(1, 7.0), (29, None), (1, None), (28, 0.5), (2, 3.0)],
    ],
    ids=["void of a twin", "voids of many twins", "after a void of a latest one", "mixed"],
)
def test_a_change_is_that_of_its_slate_and_not_of_one_that_is_like_it(changes: list[tuple[int, float | None]]) -> None:
    model, rewards = alike(30), {number: earned(number) for number in range(30)}
    for number, value in changes:
        model = then(model, revised_twin(number, value, rewards[number]))
        rewards[number] = value
    left = [reward for reward in rewards.values() if reward is not None]
    assert model.state.observations == len(left)
    assert model.tally.reward_sum == pytest.approx(sum(left))
    assert np.abs(means_of(model, model.state.posterior) - expected_of(rewards, model)).max() < 1e-6


@pytest.mark.parametrize("count", [9, 12, 17, 40])
def test_all_that_was_learned_can_be_taken_back(count: int) -> None:
    model = begun()
    for number in range(count):
        model = then(model, recommended(number), revised(number, final_reward(number), None))
    for number in range(count):
        model = then(model, revised(number, None, final_reward(number)))
    assert (model.state.observations, model.tally.voided, model.open_slates) == (0, count, 0)
    assert np.isfinite(model.state.predict(np.ones(2), np.array([[0, 1, 2]], dtype=np.int32)).mean).all()
    again = then(model, recommended(99), revised(99, 1.5, None))
    assert again.state.observations == 1


def test_a_slate_counts_as_a_default_first_and_as_a_reward_once() -> None:
    stores = MemoryStores()

    async def scenario(store: Store) -> None:
        async with running_worker(store, look_seconds=600.0) as worker:
            settings = replace(
                SETTINGS,
                default_reward=DEFAULT,
                reward_aggregation=Aggregation.SUM,
                reward_wait_ms=HOUR_MS,
                provisional_after_ms=1000,
            )
            await worker.bandits.create_bandit(NAME, settings)
            await worker.bandits.upsert_items(NAME, ITEMS.upserted)
            shown = [await worker.recommender.recommend(NAME, request(f"q{n}")) for n in range(3)]
            await stores.pass_time(1000)
            await worker.models.expire(NAME)
            for number, value in enumerate((3.0, 4.0)):
                await worker.recommender.reward(NAME, shown[0].recommendation_id, value, reward_id=f"order-{number}")
            await worker.models.follow(NAME)
            assert (worker.hooks.counts["defaults"], worker.hooks.learned_rewards) == (3, [3.0])
            stats = await worker.bandits.stats(NAME)
            assert (stats.defaults, stats.observations, stats.reward_sum) == (2, 3, 7.0)

    run(stores, scenario)
