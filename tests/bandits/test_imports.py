"""Slates that were shown elsewhere: learned as if the bandit had lived through them, once, and checked before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.bandits.harness import HOUR_MS, LIMITS, NAME, SETTINGS, assert_same, rebuilt, replayed, running_worker
from tests.contracts.harness import MemoryStores, dump, run, whole_log

from topk_bandit.bandits.digests import digests_of
from topk_bandit.bandits.fold import begin, fold
from topk_bandit.bandits.imports import MOST_BYTES, RowsOfImport
from topk_bandit.bandits.snapshots import decode_model, encode_model
from topk_bandit.domain.bandits import BanditSettings, Item, Kernel, RewardRange
from topk_bandit.domain.errors import ConflictError, InvalidArgumentError, NotReadyError, UnavailableError
from topk_bandit.domain.features import Categorical, Feature, Features, Numeric, width_of
from topk_bandit.domain.slates import Recommendation, RecommendationRequest
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.rankings import random_rankings
from topk_bandit.store.events import (
    BanditCreated,
    BanditReset,
    Imported,
    ItemsChanged,
    LoggedEvent,
    PastSlate,
    Recommended,
    Rewarded,
    Shown,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bandits.harness import Worker
    from tests.contracts.harness import Stores

    from topk_bandit.bandits.model import Model
    from topk_bandit.domain.features import Context
    from topk_bandit.store.log import Store

N_ITEMS = 12
ITEMS = [Item(f"i{n}") for n in range(N_ITEMS)]
FIXED = replace(SETTINGS, kernel=Kernel.WEIGHTED_CONVOLUTIONAL)
SCHEMA = (Feature("price", Numeric(0.0, 10.0)), Feature("country", Categorical(("DE", "FR"))))
NAMED = replace(SETTINGS, context_schema=SCHEMA, context_dim=width_of(SCHEMA))
WORTH = np.linspace(-1.0, 1.0, N_ITEMS)


def past(count: int, *, seed: int = 0, named: bool = False) -> tuple[PastSlate, ...]:
    """Return rows in which what an item earns depends on its number, its position and the context."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        slate, context = rng.permutation(N_ITEMS)[:3], rng.normal(size=2)
        value: Context = tuple(context.tolist())
        if named:
            value = Features.of(
                {"price": float(rng.uniform(0.0, 10.0)), "country": str(rng.choice(["DE", "FR", "IT"]))}
            )
        reward = WORTH[slate] @ [1.0, 0.6, 0.3] * (1.0 if named else float(context[0])) + 0.3 * rng.normal()
        rows.append(PastSlate(value, tuple(f"i{n}" for n in slate), float(reward), 1000 * number, 0.25))
    return tuple(rows)


def given(key: str, row: PastSlate) -> Recommendation:
    """Return a recommendation of a row's slate."""
    figures = {"propensity": 1.0, "mean": 0.0, "standard_deviation": 1.0, "regret_bound": 0.0, "estimated_regret": 0.0}
    return Recommendation(key, row.slate, **figures, explored=False, model_version=1, observations=0, deadline_ms=10**9)


class Life:
    """A log that is written here, folded as it grows."""

    def __init__(self, settings: BanditSettings, *, limits: Limits = LIMITS) -> None:
        self.model = begin("first", LoggedEvent(1, 1, BanditCreated(settings)), limits=limits)
        self.log = [self.model.last]
        self.add(ItemsChanged(tuple(ITEMS)))

    def add(self, *events: object, at_ms: int = 10**6) -> Model:
        for event in events:
            self.log.append(LoggedEvent(self.model.version + 1, at_ms, event))
            self.model = fold(self.model, self.log[-1])
        return self.model

    def import_all(self, rows: Sequence[PastSlate], *, size: int = 1000) -> Model:
        for first in range(0, len(rows), size):
            self.add(Imported("past", first, tuple(rows[first : first + size])))
        return self.model

    def live_through(self, rows: Sequence[PastSlate]) -> Model:
        """Recommend each slate and reward it at once."""
        for number, row in enumerate(rows):
            request = RecommendationRequest(f"r{number}", row.context, None)
            self.add(Recommended(request, given(f"r{number}", row)))
            self.add(Rewarded(f"r{number}", row.reward, Shown(row.context, row.slate, 10**6)))
        return self.model


def predictions(model: Model) -> np.ndarray:
    """Return means and standard deviations of random slates, in standard deviations of the prior."""
    rng, state = np.random.default_rng(1), model.state
    rankings = random_rankings(np.arange(N_ITEMS, dtype=np.int32), slate_size=3, count=60, rng=rng)
    contexts: list[Context] = [tuple(one) for one in rng.normal(size=(4, 2)).tolist()]
    if model.encoder is not None:
        contexts = [row.context for row in past(4, seed=2, named=True)]
    moments = [state.predict(model.encode(context), rankings) for context in contexts]
    parts = [[one.mean, np.sqrt(one.variance)] for one in moments]
    return np.array(parts) / np.sqrt(state.posterior.amplitude)


@pytest.mark.parametrize("settings", [FIXED, SETTINGS, NAMED], ids=["fixed", "adaptive", "named"])
def test_a_bandit_stands_where_one_stands_that_lived_through_its_history(settings: BanditSettings) -> None:
    rows = past(150, named=settings is NAMED)
    imported, lived = Life(settings).import_all(rows, size=60), Life(settings).live_through(rows)
    refit = replace(lived, state=lived.state.refit(10**6))
    assert imported.state.observations == lived.state.observations == 150
    assert np.abs(predictions(imported) - predictions(refit)).max() < 1e-6
    assert imported.tally.reward_sum == pytest.approx(lived.tally.reward_sum)


def error_of(model: Model) -> float:
    """Return the root mean square distance of means from what slates earn."""
    rng, squares = np.random.default_rng(1), []
    rankings = random_rankings(np.arange(N_ITEMS, dtype=np.int32), slate_size=3, count=60, rng=rng)
    for context in rng.normal(size=(4, 2)):
        earned = WORTH[rankings] @ [1.0, 0.6, 0.3] * context[0]
        squares.append((model.state.predict(context, rankings).mean - earned) ** 2)
    return float(np.sqrt(np.mean(squares)))


def test_more_rows_than_the_budget_are_projected_and_tell_as_much_as_in_a_life() -> None:
    rows, limits = past(1200), Limits(rows=40, pending_rows=8)
    imported = Life(SETTINGS, limits=limits).import_all(rows)
    lived = Life(SETTINGS, limits=limits).live_through(rows)
    assert imported.state.posterior.n_rows == 40
    assert imported.state.observations == 1200
    assert imported.state.posterior.memory_bytes <= lived.state.posterior.memory_bytes
    assert error_of(imported) < 1.3 * error_of(lived) < 0.3


def test_imported_rows_are_no_recommendations() -> None:
    life = Life(SETTINGS)
    life.live_through(past(20))
    shown_before = life.model.state.rewarded_share
    model = life.import_all(past(500, seed=3))
    assert (model.state.imported, model.state.observations, model.tally.recommendations) == (500, 520, 20)
    assert (model.open_slates, model.tally.explored, model.tally.regret_bound_sum) == (0, 0, 0.0)
    assert (model.totals.recommendations, model.totals.rewarded, model.totals.observations) == (20, 20, 520)
    assert model.state.rewarded_share == shown_before
    assert life.add(BanditReset("anew")).state.imported == 500


def test_pending_slates_stay_pending_and_are_learned_later() -> None:
    life, (row,) = Life(SETTINGS), past(1, seed=9)
    life.add(Recommended(RecommendationRequest("r", row.context, None), given("r", row)))
    assert life.import_all(past(100)).state.pending_ids == ("r",)
    learned = life.add(Rewarded("r", row.reward, Shown(row.context, row.slate, 10**6)))
    assert (learned.state.observations, learned.open_slates) == (101, 0)


def test_rows_count_for_less_the_older_they_are() -> None:
    """A bandit with a half life that gets each row twice, one of them long faded, knows what the fresh ones say."""
    aging, now = replace(FIXED, half_life_ms=HOUR_MS), 100 * HOUR_MS
    fresh = tuple(replace(row, at_ms=now) for row in past(120))
    wrong = tuple(replace(row, reward=-row.reward, at_ms=now - 40 * HOUR_MS) for row in past(120))
    half = tuple(replace(row, at_ms=now - HOUR_MS) for row in past(120))
    alone, both, halved, undated = Life(aging), Life(aging), Life(aging), Life(aging)
    alone.add(Imported("x", 0, fresh), at_ms=now)
    both.add(Imported("x", 0, wrong + fresh), at_ms=now)
    halved.add(Imported("x", 0, half), at_ms=now)
    undated.add(Imported("x", 0, tuple(replace(row, at_ms=None) for row in past(120))), at_ms=now)
    assert np.abs(predictions(alone.model) - predictions(both.model)).max() < 0.02
    assert halved.model.state.posterior.n_observations == pytest.approx(60.0)
    assert alone.model.state.posterior.n_observations == pytest.approx(120.0)
    assert np.array_equal(predictions(undated.model), predictions(alone.model)), "rows without a time are of now"


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [SETTINGS, NAMED, replace(SETTINGS, half_life_ms=HOUR_MS)], ids=["plain", "named", "aging"]
)
def test_a_log_with_imports_is_replayed_to_the_bit_also_from_a_snapshot(settings: BanditSettings) -> None:
    life, rows = Life(settings), past(330, named=settings is NAMED)
    life.live_through(rows[:30])
    life.import_all(rows[30:310], size=250)
    assert life.model.since_checkpoint == 0
    restored = decode_model(encode_model(life.model), limits=LIMITS)
    assert_same(restored, life.model)
    assert digests_of(restored) == digests_of(life.model)
    for row in rows[310:]:
        life.add(Imported("one", 0, (row,)))
        restored = fold(restored, life.log[-1])
    assert_same(restored, life.model)
    assert_same(replayed("first", life.log)[-1], life.model)


def sent(rows: Sequence[PastSlate | InvalidArgumentError], *, first: int = 0, skips: bool = False) -> RowsOfImport:
    return RowsOfImport("year", first, first + len(rows), tuple(rows), skips=skips)


async def shop(worker: Worker, settings: BanditSettings = SETTINGS) -> None:
    await worker.bandits.create_bandit(NAME, settings)
    await worker.bandits.upsert_items(NAME, ITEMS)


def test_the_same_rows_again_change_nothing_and_are_answered_as_before(stores: Stores) -> None:
    rows = past(50)

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            await shop(worker)
            first = await worker.bandits.import_rows(NAME, sent(rows[:30]))
            second = await worker.bandits.import_rows(NAME, sent(rows[30:], first=30))
            assert (first.next_row, first.accepted, second.next_row, second.accepted) == (30, 30, 50, 20)
            before = await dump(store, NAME)
            # Also where the rows could not be taken any more.
            await worker.bandits.retire_items(NAME, ["i3"])
            assert await worker.bandits.import_rows(NAME, sent(rows[:30])) == first
            assert await worker.bandits.import_rows(NAME, sent(rows[30:], first=30)) == second
            progress = await worker.bandits.find_import(NAME, "year")
            assert (progress.next_row, progress.accepted) == (50, 50)
            assert (await whole_log(store, NAME))[:-1] == before[3]
            stats = await worker.bandits.stats(NAME)
            assert (stats.imported, stats.observations, stats.recommendations, stats.pending) == (50, 50, 0, 0)
            assert_same(await rebuilt(store), await worker.models.follow(NAME))

    run(stores, scenario)


def test_other_rows_under_the_same_numbers_are_refused(stores: Stores) -> None:
    rows = past(20)

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            await shop(worker)
            await worker.bandits.import_rows(NAME, sent(rows[:10]))
            before = await dump(store, NAME)
            changed = (replace(rows[0], reward=99.0), *rows[1:10])
            for wrong in (sent(changed), sent(rows[:9]), sent(rows[5:15], first=5)):
                with pytest.raises(ConflictError) as conflict:
                    await worker.bandits.import_rows(NAME, wrong)
                assert conflict.value.reason == "IMPORT_REUSED"
            with pytest.raises(NotReadyError) as gap:
                await worker.bandits.import_rows(NAME, sent(rows[11:], first=11))
            assert (gap.value.reason, gap.value.numbers) == ("IMPORT_GAP", {"next_row": 10})
            assert await dump(store, NAME) == before

    run(stores, scenario)


LIMITED = replace(SETTINGS, reward_range=RewardRange(-1.0, 1.0, clamp=False))
GOOD = PastSlate((1.0, 0.0), ("i0", "i1", "i2"), 0.5)


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (replace(GOOD, context=(1.0,)), "context"),
        (replace(GOOD, context=Features.of({"price": 1.0})), "features"),
        (replace(GOOD, slate=("i0", "i1")), "item_ids"),
        (replace(GOOD, slate=("i0", "nowhere", "i2")), "item_ids[1]"),
        (replace(GOOD, slate=("i0", "i1", "gone")), "item_ids[2]"),
        (replace(GOOD, reward=2.0), "reward"),
        (InvalidArgumentError("propensity", "must be above 0"), "propensity"),
    ],
)
def test_a_bad_row_is_named_and_nothing_is_written_or_it_is_left_out(
    bad: PastSlate | InvalidArgumentError, field: str
) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            await shop(worker, replace(LIMITED, item_capacity=13))
            await worker.bandits.upsert_items(NAME, [Item("gone")])
            await worker.bandits.retire_items(NAME, ["gone"])
            before = await dump(store, NAME)
            with pytest.raises(InvalidArgumentError) as refused:
                await worker.bandits.import_rows(NAME, sent([GOOD, bad, GOOD]))
            assert refused.value.field == f"rows[1].{field}"
            assert await dump(store, NAME) == before
            receipt = await worker.bandits.import_rows(NAME, sent([GOOD, bad, GOOD], skips=True))
            assert (receipt.next_row, receipt.accepted, receipt.skipped) == (3, 2, 1)
            assert [(error.row, error.field) for error in receipt.errors] == [(1, field)]
            again = await worker.bandits.import_rows(NAME, sent([GOOD, bad, GOOD], skips=True))
            assert again == replace(receipt, errors=())
            nothing = await worker.bandits.import_rows(NAME, sent([bad], first=3, skips=True))
            assert (nothing.next_row, nothing.accepted, nothing.log_position) == (4, 0, 0)
            assert (await worker.bandits.find_import(NAME, "year")).accepted == 2

    run(MemoryStores(), scenario)


def test_rewards_out_of_a_range_that_clamps_are_clamped_and_counted(stores: Stores) -> None:
    clamping = replace(SETTINGS, reward_range=RewardRange(-1.0, 1.0, clamp=True))

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            await shop(worker, clamping)
            await worker.bandits.import_rows(NAME, sent([GOOD, replace(GOOD, reward=7.0), replace(GOOD, reward=-3.0)]))
            stats = await worker.bandits.stats(NAME)
            assert (stats.clamped_rewards, stats.reward_sum) == (2, 0.5)

    run(stores, scenario)


def test_rows_that_are_too_long_for_the_log_are_refused() -> None:
    wide = tuple(Feature(f"f{n}", Categorical(buckets=2)) for n in range(40))
    row = replace(GOOD, context=Features.of({f"f{n}": "x" * 250 for n in range(40)}))
    settings = replace(SETTINGS, context_schema=wide, context_dim=width_of(wide))
    count = MOST_BYTES // (40 * 250) + 1

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            await shop(worker, settings)
            with pytest.raises(InvalidArgumentError, match="send fewer"):
                await worker.bandits.import_rows(NAME, sent([row] * count))
            assert (await worker.bandits.import_rows(NAME, sent([row] * 9))).accepted == 9

    run(MemoryStores(), scenario)


def test_items_that_change_meanwhile_are_looked_at_again() -> None:
    """Between the check and the record the store's items change: the rows are judged by what there is then."""

    class Meddling(MemoryStores):
        def __init__(self) -> None:
            super().__init__()
            self.changes = ["i0"]
            record = self._store.record_import

            async def meddle(name: object, part: object, event: object, **looked: object) -> object:
                if self.changes:
                    await self._store.change_items(NAME, upserted=(), retired=[self.changes.pop()])
                return await record(name, part, event, **looked)

            self._store.record_import = meddle

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            await shop(worker)
            with pytest.raises(InvalidArgumentError, match="i0"):
                await worker.bandits.import_rows(NAME, sent([GOOD]))
            stores.changes[:] = [f"i{n}" for n in range(4, 12)]
            with pytest.raises(UnavailableError):
                await worker.bandits.import_rows(NAME, sent([replace(GOOD, slate=("i1", "i2", "i3"))]))

    stores = Meddling()
    run(stores, scenario)


def test_an_import_makes_what_was_learned_before_it_uncorrectable(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            await shop(worker)
            wanted = RecommendationRequest("one", (1.0, 0.5), None)
            shown = await worker.recommender.recommend(NAME, wanted)
            await worker.recommender.reward(NAME, shown.recommendation_id, 0.5)
            await worker.bandits.import_rows(NAME, sent(past(20)))
            with pytest.raises(NotReadyError) as folded:
                await worker.recommender.correct_reward(NAME, shown.recommendation_id, 0.25)
            assert folded.value.reason == "REWARD_FOLDED"

    run(stores, scenario)


@pytest.mark.slow
def test_snapshots_are_saved_during_an_import_and_the_log_is_trimmed(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            await shop(worker)
            for first in range(0, 6000, 1000):
                await worker.bandits.import_rows(NAME, sent(past(1000, seed=first), first=first))
            await worker.models.follow(NAME)
            part = await store.read_log(NAME, start=0, limit=1)
            assert part.first_position > 2
            assert len(await store.load_snapshots(NAME)) == 2
        async with running_worker(store) as other:
            model = await other.models.follow(NAME)
            assert (model.state.imported, model.version) == (6000, part.log_position)

    run(stores, scenario)
