"""A bandit that is reset: it is one that begins with the rewards that come later."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.bandits.harness import (
    LIMITS,
    NAME,
    SETTINGS,
    Archive,
    Shop,
    assert_same,
    replayed,
    request,
    running_worker,
)
from tests.bandits.test_corrections import assert_learned_alike, begun, lived, recommended, rewarded, then
from tests.contracts.harness import run
from tests.contracts.samples import HOUR_MS

from topk_bandit.bandits.fold import begin, fold
from topk_bandit.bandits.snapshots import decode_model, encode_model
from topk_bandit.domain.bandits import Item, ItemUtility, Kernel, Prior
from topk_bandit.domain.errors import NotFoundError, NotReadyError
from topk_bandit.domain.features import Feature, Features, Numeric, width_of
from topk_bandit.domain.slates import RewardOutcome
from topk_bandit.store.data_versions import NEWEST
from topk_bandit.store.events import (
    BanditCreated,
    BanditReset,
    Expired,
    ItemsChanged,
    LoggedEvent,
    RewardAmended,
)

if TYPE_CHECKING:
    from tests.contracts.harness import Stores

    from topk_bandit.bandits.model import Model
    from topk_bandit.store.events import Event
    from topk_bandit.store.log import Store

RESET = BanditReset("now")


def more(first: int, count: int) -> list[Event]:
    return [event for n in range(first, first + count) for event in (recommended(n), rewarded(n, float(np.cos(n))))]


@pytest.mark.parametrize("before", [0, 5, 150])
def test_a_bandit_that_was_reset_learns_as_one_that_begins(before: int) -> None:
    reset, fresh = then(begun(), *lived(before), RESET), begun()
    assert reset.state.remembered == 0
    assert reset.state.forgotten == reset.state.observations == before
    for event in more(500, 120):
        reset, fresh = then(reset, event), then(fresh, event)
        assert reset.state.posterior.kernel.shape == fresh.state.posterior.kernel.shape
    posterior, other = reset.state.posterior, fresh.state.posterior
    assert posterior.noise_variance == pytest.approx(other.noise_variance, rel=1e-9)
    assert reset.state.remembered == fresh.state.observations
    counted = replace(fresh, state=replace(fresh.state, observations=reset.state.observations))
    assert_learned_alike(replace(reset, tally=fresh.tally), counted)


@pytest.mark.parametrize(
    "settings",
    [
        replace(SETTINGS, kernel=Kernel.WEIGHTED),
        replace(SETTINGS, half_life_ms=HOUR_MS),
        replace(SETTINGS, prior_study="tastes", prior_digest="d"),
        replace(SETTINGS, context_schema=(Feature("a", Numeric()),), context_dim=width_of((Feature("a", Numeric()),))),
        replace(SETTINGS, item_schema=(Feature("a", Numeric()),)),
    ],
    ids=["other kernel", "half life", "prior", "context schema", "item schema"],
)
def test_what_is_not_learned_of_rewards_stays(settings: object) -> None:
    """And the model is that of its snapshot, and of its log."""
    prior = Prior("tastes", 9, (ItemUtility("i1", 2.0, (0.5, 0.0)),)) if settings.prior_study else None
    model = begin("birth", LoggedEvent(1, 1, BanditCreated(settings, prior)), limits=LIMITS)
    items = tuple(
        Item(f"i{n}", features=Features((("a", float(n)),) if settings.item_schema else ())) for n in range(8)
    )
    model = then(model, ItemsChanged(items))
    for event in lived(60):
        model = then(model, in_schema(event) if settings.context_schema else event)
    after = then(model, RESET)
    assert after.state.posterior.n_rows == after.state.posterior.n_pending == after.state.remembered == 0
    assert after.items.ids == model.items.ids
    assert after.items.catalogue is model.items.catalogue
    assert not after.items.learned_counts.any()
    assert after.encoder is model.encoder
    assert after.item_features is model.item_features
    assert (after.tally, after.open_slates) == (model.tally, model.open_slates)
    mine, theirs = after.state.posterior.prior_mean, model.state.posterior.prior_mean
    assert (mine is None) == (theirs is None)
    assert_same(decode_model(encode_model(after, NEWEST), limits=LIMITS), after)


def in_schema(event: Event) -> Event:
    features = Features((("a", 1.5),))
    if hasattr(event, "request"):
        return replace(event, request=replace(event.request, context=features))
    return replace(event, shown=replace(event.shown, context=features))


def test_rewards_of_slates_that_were_shown_before_are_learned_and_earlier_ones_are_not_corrected() -> None:
    model = then(begun(), *lived(30), recommended(30), recommended(31))
    assert model.open_slates == 2
    reset = then(model, RESET)
    assert reset.open_slates == 2
    assert reset.last_correction("r29") == 0
    later = then(reset, rewarded(30, 2.0), Expired("r31", None, None), RewardAmended("r29", 5.0))
    assert (later.state.remembered, later.open_slates, later.tally.missed_corrections) == (1, 0, 1)
    assert later.state.posterior.n_rows == 1
    assert later.totals.rewarded == 31


def test_wild_rewards_leave_no_trace() -> None:
    wild = [rewarded(n, 1e6) if n % 2 else rewarded(n, -1e6) for n in range(20)]
    poisoned = then(begun(), *[event for n in range(20) for event in (recommended(n), wild[n])], RESET)
    fresh = begun()
    for event in more(500, 60):
        poisoned, fresh = then(poisoned, event), then(fresh, event)
    assert poisoned.state.reward_range.reach == fresh.state.reward_range.reach
    assert_predicts_alike(poisoned, fresh)


def assert_predicts_alike(one: Model, other: Model) -> None:
    rankings = np.array([np.random.default_rng(seed).permutation(8)[:3] for seed in range(20)], dtype=np.int32)
    actual, expected = (model.state.predict(np.array([1.0, 0.5]), rankings) for model in (one, other))
    assert np.allclose(actual.mean, expected.mean, rtol=1e-9)
    assert np.allclose(actual.variance, expected.variance, rtol=1e-9)


@pytest.mark.slow
def test_a_life_with_resets_is_replayed_to_the_bit(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop = Shop(worker, stores, np.random.default_rng(71))
            await shop.create()
            archive = Archive(store)
            for turn in range(4):
                await shop.trade(130, archive=archive)
                await worker.bandits.reset_bandit(NAME, request_id=f"turn {turn}")
            await shop.trade(60, archive=archive)
            await archive.look()
            model = await worker.models.follow(NAME)
            assert 0 < model.state.remembered < model.state.observations
            stats = await worker.bandits.stats(NAME)
            assert (stats.forgotten, stats.observations) == (model.state.forgotten, model.state.observations)
        models = replayed(model.incarnation, archive.events)
        assert_same(model, models[-1])
        resets = [one for one in models if isinstance(one.last.event, BanditReset)]
        assert len(resets) == 4
        for known in resets:
            assert known.since_checkpoint == 0
            again = decode_model(encode_model(known), limits=LIMITS)
            for logged in archive.events[known.version : known.version + 50]:
                again = fold(again, logged)
            assert_same(again, models[again.version - 1])

    run(stores, scenario)


def test_a_reset_happens_once_for_a_request_id(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop = Shop(worker, stores, np.random.default_rng(72))
            await shop.create()
            shown = await worker.recommender.recommend(NAME, request("before"))
            await worker.recommender.reward(NAME, (await shop.recommend()).recommendation_id, 1.0)
            first = await worker.bandits.reset_bandit(NAME, request_id="one")
            assert await worker.bandits.reset_bandit(NAME, request_id="one") == first
            receipt = await worker.recommender.reward(NAME, shown.recommendation_id, 2.0)
            assert receipt.outcome is RewardOutcome.ACCEPTED
            assert await worker.recommender.recommend(NAME, request("before")) == shown
            assert (await worker.models.follow(NAME)).state.remembered == 1
            for _ in range(2):
                await worker.bandits.reset_bandit(NAME)
            assert (await worker.models.follow(NAME)).state.remembered == 0
            assert (await store.get_bandit(NAME)).revision == first.revision + 2
            with pytest.raises(NotReadyError):
                await worker.recommender.correct_reward(NAME, shown.recommendation_id, 1.0)
            with pytest.raises(NotFoundError):
                await worker.bandits.reset_bandit(replace(NAME, bandit="none"))

    run(stores, scenario)
