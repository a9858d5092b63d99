"""Rewards that are amended and voided: what a log with corrections comes to, and who may hear that they hold."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.bandits.harness import LIMITS, NAME, SETTINGS, Archive, Shop, assert_same, replayed, request, running_worker
from tests.contracts.harness import MemoryStores, run
from tests.contracts.samples import HOUR_MS, recommendation

from topk_bandit.bandits.fold import begin, fold
from topk_bandit.bandits.model import EVENTS_BETWEEN_CHECKPOINTS
from topk_bandit.bandits.snapshots import decode_model, encode_model
from topk_bandit.domain.bandits import Aggregation, Item
from topk_bandit.domain.errors import NotReadyError, TopkBanditError
from topk_bandit.domain.features import Feature, Features, Numeric, width_of
from topk_bandit.store.events import (
    Activated,
    BanditCreated,
    Expired,
    ItemsChanged,
    Lapsed,
    LoggedEvent,
    Recommended,
    RewardAmended,
    RewardCollected,
    Rewarded,
    Shown,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.contracts.harness import Stores

    from topk_bandit.bandits.model import Model
    from topk_bandit.store.events import Event
    from topk_bandit.store.log import Store

ITEMS = ItemsChanged(tuple(Item(f"i{n}") for n in range(8)))


def then(model: Model, *events: Event) -> Model:
    for event in events:
        model = fold(model, LoggedEvent(model.version + 1, 1, event))
    return model


def begun() -> Model:
    return then(begin("birth", LoggedEvent(1, 1, BanditCreated(SETTINGS)), limits=LIMITS), ITEMS)


def recommended(number: int) -> Recommended:
    slate = tuple(f"i{n}" for n in np.random.default_rng(number).permutation(8)[:3])
    asked = request(f"q{number}", context=(float(number % 7), 1.0))
    return Recommended(asked, replace(recommendation(f"r{number}"), slate=slate))


def rewarded(number: int, value: float) -> Rewarded:
    event = recommended(number)
    return Rewarded(f"r{number}", value, Shown(event.request.context, event.recommendation.slate, 1))


def lived(rewards: int) -> list[Event]:
    """Return what happens until so many slates are rewarded."""
    return [event for n in range(rewards) for event in (recommended(n), rewarded(n, float(np.sin(n))))]


def assert_learned_alike(one: Model, other: Model) -> None:
    assert (one.state.observations, one.open_slates) == (other.state.observations, other.open_slates)
    assert one.tally.reward_sum == pytest.approx(other.tally.reward_sum, rel=1e-12)
    mine, theirs = one.state.posterior, other.state.posterior
    rankings = np.array([np.random.default_rng(seed).permutation(8)[:3] for seed in range(20)], dtype=np.int32)
    for context in (np.array([1.0, 0.5]), np.array([-2.0, 1.0])):
        actual, expected = (model.state.predict(context, rankings) for model in (one, other))
        assert np.abs(actual.mean - expected.mean).max() <= 1e-9 * np.sqrt(theirs.amplitude)
        assert np.abs(actual.variance - expected.variance).max() <= 1e-9 * theirs.amplitude
    assert mine.n_rows == theirs.n_rows


@pytest.mark.parametrize("before", [0, 21, 150])
def test_a_corrected_log_comes_to_what_the_log_without_the_mistake_does(before: int) -> None:
    life = lived(before)
    life += [recommended(before + n) for n in range(3)]
    others = [rewarded(before + n, 0.1 * n) for n in (1, 2)]
    model = then(begun(), *life)
    while model.state.rewards_before_refit < 6:
        model = then(model, recommended(900 + model.version), rewarded(900 + model.version, 0.5))
    wrong, key = rewarded(before, 7.0), f"r{before}"
    right = then(model, replace(wrong, value=-1.5), *others)
    amended = then(model, wrong, *others, RewardAmended(key, -1.5))
    assert_learned_alike(amended, right)
    voided = then(model, wrong, *others, RewardAmended(key, 3.0), RewardAmended(key, None))
    without = then(model, *others, Expired(key, None, None))
    assert_learned_alike(voided, without)
    assert (amended.tally.amended, voided.tally.voided, voided.tally.missed_corrections) == (1, 1, 0)
    more = [event for n in range(400, 430) for event in (recommended(n), rewarded(n, float(np.cos(n))))]
    assert_learned_alike(then(amended, *more), then(right, *more))
    assert_learned_alike(then(voided, *more), then(without, *more))


def test_a_correction_holds_up_to_the_position_that_is_told() -> None:
    model, refused = begun(), 0
    for number in range(80):
        model = then(model, recommended(number), rewarded(number, float(np.sin(number))))
        last = model.last_correction(f"r{number}")
        if not last:
            refused += 1
            assert then(model, RewardAmended(f"r{number}", 9.0)).tally.missed_corrections == 1
            continue
        opened = then(model, recommended(500))
        for many in (opened, model):  # one event is not a reward, or all that can be are
            full = many
            for count in range(last - 1 - many.version):
                full = then(replace(full, tally=replace(full.tally, recommendations=9999)), rewarded(600 + count, 0.5))
            assert full.version == last - 1 or last == model.version + 1
            if full.version < last:
                assert then(full, RewardAmended(f"r{number}", 9.0)).tally.amended == 1
    assert refused > 3


SCHEMA = (Feature("basket", Numeric()),)


def asked_by(number: int) -> Recommended:
    """Return a recommendation whose request has a basket ten thousand times as large as others if it is the third."""
    context = Features((("basket", 1e5 if number == 2 else 1.0 + number % 7),))
    event = recommended(number)
    return replace(event, request=replace(event.request, context=context))


def test_a_correction_holds_while_requests_come_that_recode_rows() -> None:
    created = BanditCreated(replace(SETTINGS, context_schema=SCHEMA, context_dim=width_of(SCHEMA)))
    model, recoded = then(begin("birth", LoggedEvent(1, 1, created), limits=LIMITS), ITEMS), 0
    for number in range(70):
        asked = asked_by(number)
        shown = Shown(asked.request.context, asked.recommendation.slate, 1)
        model = then(model, asked, Rewarded(f"r{number}", float(np.sin(number)), shown))
        last = model.last_correction(f"r{number}")
        if last:
            requests = [asked_by(1000 + 100 * number + n) for n in range(last - model.version)]
            before, after = then(model, *requests[:-1]), then(model, *requests)
            assert then(before, RewardAmended(f"r{number}", 9.0)).tally.amended == 1
            recoded += not any(after.state.recent.ids)
    assert recoded >= 1


def test_a_checkpoint_by_count_ends_corrections_too() -> None:
    # After so many rewards not each of them may bring a refit.
    earlier = [event for number in range(20, 36) for event in (recommended(number), rewarded(number, 1.0))]
    model = then(begun(), *earlier, recommended(0), rewarded(0, 1.0))
    model = replace(model, since_checkpoint=EVENTS_BETWEEN_CHECKPOINTS - 3)
    last = model.last_correction("r0")
    assert last == model.version + 3
    model = then(model, recommended(1), recommended(2))
    assert then(model, RewardAmended("r0", 2.0)).tally.amended == 1
    assert then(model, recommended(3), RewardAmended("r0", 2.0)).tally.missed_corrections == 1


async def attempt(shop: Shop, key: str, value: float | None, reward_id: str = "") -> str:
    try:
        return (await shop.worker.recommender.correct_reward(NAME, key, value, reward_id=reward_id)).outcome
    except NotReadyError as error:
        return error.reason


async def miss_deadlines(shop: Shop) -> None:
    """Let the wait of a few slates end: with rewards, without any, and never shown."""
    recommender = shop.worker.recommender
    await shop._update(reward_wait_ms=150, default_reward=0.25)
    for number in range(6):
        key = (await shop.recommend()).recommendation_id
        if number % 3 == 0:
            await recommender.activate(NAME, key, ())
        if number % 3 == 1:
            await recommender.reward(NAME, key, 1.0, reward_id="click")
    await shop.stores.pass_time(150)
    await shop.worker.models.expire(NAME)
    await shop._update(reward_wait_ms=HOUR_MS, default_reward=None)


def test_corrections_while_others_write_are_never_missed_and_replayed_to_the_bit(stores: Stores) -> None:
    outcomes: Counter[str] = Counter()

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop, archive = Shop(worker, stores, np.random.default_rng(3)), Archive(store)
            await shop.create()
            done: list[str] = []
            turns = asyncio.Semaphore(1)  # neither is far ahead of the other, however fast they are

            async def trade(rounds: int) -> None:
                for _ in range(rounds):
                    await turns.acquire()
                    key = (await shop.recommend()).recommendation_id
                    await worker.recommender.reward(NAME, key, float(shop.rng.normal()))
                    done.append(key)
                    await asyncio.sleep(0)

            async def amend(rounds: int) -> None:
                for number in range(rounds):
                    while len(done) <= 2 * number:
                        await asyncio.sleep(0)
                    key = done[-1 - number % min(len(done), 6)]
                    turns.release()
                    turns.release()
                    outcomes[await attempt(shop, key, None if number % 3 == 0 else float(shop.rng.normal()))] += 1
                    await asyncio.sleep(0)

            await asyncio.gather(trade(120), amend(60))
            live = await worker.models.follow(NAME)
            await archive.look()
            assert live.tally.missed_corrections == 0
            assert live.tally.amended + live.tally.voided == outcomes["accepted"]
            _replay(live, archive.events)

    run(stores, scenario)
    assert outcomes["accepted"] > 15, outcomes
    assert outcomes["REWARD_FOLDED"] > 2


@pytest.mark.slow
def test_several_rewards_activations_and_corrections_are_replayed_to_the_bit(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop, archive = Shop(worker, stores, np.random.default_rng(4)), Archive(store)
            await shop.create(replace(SETTINGS, requires_activation=True, reward_aggregation=Aggregation.SUM))
            for number in range(150):
                key = (await shop.recommend()).recommendation_id
                if number % 4 == 1:
                    await worker.recommender.activate(NAME, key, ["i1", "i2", "i3"])
                if number % 5:
                    await worker.recommender.reward(NAME, key, float(shop.rng.normal()), reward_id="click")
                    await worker.recommender.reward(NAME, key, 1.0, reward_id="order", final=number % 5 < 4)
                if number % 7 == 3:
                    await attempt(shop, key, float(shop.rng.normal()), "click")
                if number % 11 == 5:
                    await attempt(shop, key, None)
                if number % 25 == 24:
                    await miss_deadlines(shop)
                await archive.look()
            live = await worker.models.follow(NAME)
            await archive.look()
            kinds = {type(logged.event) for logged in archive.events}
            assert kinds >= {Activated, Lapsed, RewardCollected, RewardAmended, Rewarded}
            assert live.open_slates == (await store.get_bandit(NAME)).pending
            assert live.tally.shown_otherwise > 20
            assert live.tally.voided > 5
            _replay(live, archive.events)

    run(stores, scenario)


def _replay(live: Model, events: Sequence[LoggedEvent]) -> None:
    models = replayed(live.incarnation, events)
    assert_same(models[-1], live)
    for checkpoint in [model for model in models if model.since_checkpoint == 0][::3]:
        resumed = decode_model(encode_model(checkpoint), limits=LIMITS)
        for logged in events[checkpoint.version :]:
            resumed = fold(resumed, logged)
        assert_same(resumed, live)


def test_settings_that_change_meanwhile_make_a_correction_look_again() -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop = Shop(worker, MemoryStores(), np.random.default_rng(3))
            await shop.create()
            key = (await shop.recommend()).recommendation_id
            await worker.recommender.reward(NAME, key, 1.0)
            worker.notebook.write("tastes", {"i0": 1.0, "i1": 2.0})
            follow, changed = worker.models.follow, []

            async def follow_and_lose(name: object) -> Model:
                model = await follow(name)  # type: ignore[arg-type]
                if not changed:
                    changed.append(name)
                    await worker.bandits.update_bandit(
                        NAME, lambda settings: replace(settings, prior_study="tastes", prior_digest="")
                    )
                return model

            worker.models.follow = follow_and_lose  # type: ignore[method-assign]
            with pytest.raises(TopkBanditError) as refused:
                await worker.recommender.correct_reward(NAME, key, 2.0)
            assert isinstance(refused.value, NotReadyError), "a new prior refits"
            assert (await follow(NAME)).tally.missed_corrections == 0

    run(MemoryStores(), scenario)
