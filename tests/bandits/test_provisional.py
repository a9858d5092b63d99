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

from topk_bandit.bandits.model import Model, begin, fold
from topk_bandit.bandits.snapshots import decode_model, encode_model
from topk_bandit.domain.bandits import (
    Aggregation,
    BanditCreated,
    BanditReset,
    Event,
    Kernel,
    LoggedEvent,
    RewardRevised,
    Shown,
)
from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.learning.limits import Limits

if TYPE_CHECKING:
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
    after = then(model, revised(3, 2.0, DEFAULT, was_default=True))
    assert after.tally.missed_corrections == 1
    assert after.state is model.state
    kept = decode_model(encode_model(model, 2), limits=LIMITS)
    assert kept.reset_ms == HOUR_MS


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
