"""The promise that the log is the truth: folding it again, anyhow, gives the same model and the same decisions."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.bandits.harness import LIMITS, NAME, Archive, Shop, assert_same, replayed, request, running_worker
from tests.contracts.clocks import StoreClock
from tests.contracts.harness import RedisStores, run

from topk_bandit.bandits.choices import choose_slate
from topk_bandit.bandits.fold import fold
from topk_bandit.bandits.snapshots import decode_model, encode_model
from topk_bandit.store.events import Expired, ItemsChanged, Recommended, Rewarded, SettingsChanged

if TYPE_CHECKING:
    from topk_bandit.bandits.model import Model
    from topk_bandit.store.embedded import EmbeddedStore
    from topk_bandit.store.events import LoggedEvent
    from topk_bandit.store.log import Store

pytestmark = pytest.mark.bits

ROUNDS = 700


class History:
    """What a shop's trade left: all events, the live model at their end, and the models of a replay by version."""

    def __init__(self, live: Model, events: list[LoggedEvent], *, snapshots: int) -> None:
        self.live = live
        self.events = events
        self.snapshots = snapshots
        self.models = replayed(live.incarnation, events)

    def after(self, position: int) -> Model:
        return self.models[position - 1]


@pytest.fixture(scope="module")
def history(embedded: EmbeddedStore) -> History:
    stores = RedisStores(embedded.url, clock=StoreClock())
    found: list[History] = []

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop, archive = Shop(worker, stores, np.random.default_rng(3)), Archive(store)
            await shop.create()
            await shop.trade(ROUNDS, archive=archive)
            live = await worker.models.follow(NAME)
            await archive.look()
            record = await store.get_bandit(NAME)
            found.append(History(live, archive.events, snapshots=record.snapshot_position))

    run(stores, scenario)
    return found[0]


def test_the_history_has_everything_in_it(history: History) -> None:
    kinds = Counter(type(logged.event) for logged in history.events)
    assert kinds[Recommended] > 300
    assert kinds[Rewarded] > 200
    defaults = [logged.event.default_reward for logged in history.events if isinstance(logged.event, Expired)]
    assert min(defaults.count(None), defaults.count(0.25)) > 20
    assert kinds[SettingsChanged] > 20
    assert kinds[ItemsChanged] > 10
    priors = [logged.event.prior for logged in history.events if isinstance(logged.event, SettingsChanged)]
    named = ["constants", "contexts", "constants", "constants", "contexts", "constants"]
    assert [prior.study for prior in priors if prior] == named
    kept = {model.settings.prior_study for model in history.models if model.since_checkpoint == 0}
    assert kept == {"", "constants", "contexts"}, "no checkpoint had one of them"
    assert history.live.state.posterior.slope != 0.0
    powers = {model.state.posterior.kernel.shape for model in history.models}
    assert len(powers) > 1, "the kernel never changed"
    assert history.snapshots > 256
    assert history.live.state.observations > LIMITS.rows, "no row was ever forgotten"
    assert any(model.open_slates > LIMITS.pending_rows for model in history.models), "no pending row was ever dropped"


def test_folding_the_log_again_gives_the_same_model(history: History) -> None:
    assert_same(history.models[-1], history.live)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_where_a_fold_pauses_and_what_is_done_meanwhile_makes_no_difference(history: History, seed: int) -> None:
    rng = np.random.default_rng(seed)
    model, position = history.models[0], 1
    while position < len(history.events):
        size = int(rng.integers(1, 120))
        part = history.events[position : position + size]
        _fold_all(model, part)  # given up, and folded again from where it was
        model, position = _fold_all(model, part), position + len(part)
        if len(model.items.available) >= model.settings.slate_size:
            choose_slate(model, request("meanwhile", context=rng.normal(size=2).tolist()))
    assert_same(model, history.live)


@pytest.mark.slow
def test_a_snapshot_and_the_events_after_it_give_the_same_model(history: History) -> None:
    checkpoints = [model for model in history.models if model.since_checkpoint == 0]
    assert len(checkpoints) > 10
    for checkpoint in [*checkpoints[::4], checkpoints[-1]]:
        restored = decode_model(encode_model(checkpoint), limits=LIMITS)
        assert_same(restored, checkpoint)
        assert_same(_fold_all(restored, history.events[checkpoint.version :]), history.live)


def test_a_snapshot_is_the_same_bytes_for_the_same_model(history: History) -> None:
    checkpoint = next(model for model in reversed(history.models) if model.since_checkpoint == 0)
    payload = encode_model(checkpoint)
    assert encode_model(decode_model(payload, limits=LIMITS)) == payload


def test_every_recorded_decision_can_be_made_again(history: History) -> None:
    recorded = [logged.event for logged in history.events if isinstance(logged.event, Recommended)]
    assert {event.recommendation.explored for event in recorded} == {True, False}
    for event in recorded:
        again = choose_slate(history.after(event.recommendation.model_version), event.request)
        assert replace(again, deadline_ms=event.recommendation.deadline_ms) == event.recommendation


def test_another_request_id_explores_otherwise_and_exploits_alike(history: History) -> None:
    exploration = replace(history.live.settings.exploration, uniform_share=0.3)
    model = replace(history.live, settings=replace(history.live.settings, exploration=exploration))
    decisions = [choose_slate(model, request(f"seed-{n}")) for n in range(60)]
    exploited = {one.slate for one in decisions if not one.explored}
    explored = [one for one in decisions if one.explored]
    assert len(exploited) == 1
    assert len({one.slate for one in explored}) > len(explored) / 2 > 1


def _fold_all(model: Model, events: list[LoggedEvent]) -> Model:
    for logged in events:
        model = fold(model, logged)
    return model


def test_models_that_differ_are_told_apart(history: History) -> None:
    changed: list[Any] = [
        replace(
            history.live, tally=replace(history.live.tally, reward_sum=np.nextafter(history.live.tally.reward_sum, 9e9))
        ),
        replace(history.live, state=replace(history.live.state, since_refit=history.live.state.since_refit + 1)),
        replace(history.live, state=history.live.state.shown("x", np.ones(2), np.arange(3, dtype=np.int32))),
    ]
    for other in changed:
        with pytest.raises(AssertionError):
            assert_same(other, history.live)
