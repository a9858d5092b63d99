"""A bandit's history beside one that keeps everything, however old the bandit is."""

from __future__ import annotations

import io
from bisect import bisect_left
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.bandits.harness import LIMITS, NAME, Shop, assert_same, replayed, running_worker
from tests.contracts.harness import MemoryStores, run, whole_log

from topk_bandit.bandits.digests import digests_of
from topk_bandit.bandits.fold import fold
from topk_bandit.bandits.history import FIRST_WIDTH_MS, MOST_POINTS, History, Totals
from topk_bandit.bandits.snapshots import decode_model, encode_model

if TYPE_CHECKING:
    from topk_bandit.store.log import Store

MOST_BYTES = 16_000
DAY_MS = 86_400_000


def walked(times: list[int]) -> tuple[History, list[Totals]]:
    """Return the history of one event at each time, and the totals after each event."""
    history, totals, after = History(), Totals(*[0.0] * 8), []
    rng = np.random.default_rng(len(times))
    for at_ms in times:
        if history.ends_before(at_ms):
            history = history.begin(at_ms, totals)
        totals = Totals(*(np.array(totals) + rng.random(8)).tolist())
        after.append(totals)
    return history, after


def gaps(kind: str, count: int) -> list[int]:
    rng = np.random.default_rng(count)
    mean_ms = {"dense": 100.0, "slow": 5e6}.get(kind, 3e4)
    steps = rng.exponential(mean_ms, size=count)
    if kind == "bursts":
        steps[rng.random(count) < 0.01] += 30 * DAY_MS
    return (1_700_000_000_000 + np.cumsum(steps)).astype(np.int64).tolist()


@pytest.mark.parametrize("kind", ["dense", "slow", "even", "bursts"])
@pytest.mark.parametrize("count", [1, 2, 50, 5000])
def test_points_are_the_totals_at_the_ends_of_their_intervals(kind: str, count: int) -> None:
    times = gaps(kind, count)
    history, after = walked(times)
    points = list(history.intervals(at_ms=times[-1], totals=after[-1]))
    assert 1 <= len(points) <= MOST_POINTS + 1
    assert history.nbytes <= MOST_BYTES
    for point in points:
        last = bisect_left(times, point.end_ms + (point is points[-1])) - 1
        assert times[last] >= point.start_ms, "nothing happened in it"
        if point is points[-1]:
            assert (point.end_ms, point.totals) == (times[-1], after[-1])
        else:
            assert point.totals == after[last]
            assert point.end_ms - point.start_ms == history.width_ms
    starts = [point.start_ms for point in points]
    assert starts == sorted(set(starts))
    began = {at_ms // history.width_ms for at_ms in times}
    assert {start // history.width_ms for start in starts} == began


def test_the_width_doubles_only_when_there_are_too_many() -> None:
    few, _ = walked([1000 * number for number in range(MOST_POINTS + 1)])
    assert (few.width_ms, len(few.numbers)) == (FIRST_WIDTH_MS, MOST_POINTS)
    more, _ = walked([1000 * number for number in range(MOST_POINTS + 2)])
    assert (more.width_ms, len(more.numbers)) == (2 * FIRST_WIDTH_MS, MOST_POINTS // 2)
    years, _ = walked([DAY_MS * number for number in range(4000)])
    assert len(years.numbers) >= MOST_POINTS // 2
    assert years.nbytes <= MOST_BYTES


def test_a_clock_that_goes_back_begins_nothing() -> None:
    history, after = walked([10_000, 20_000, 5_000, 20_500, 21_000])
    points = list(history.intervals(at_ms=21_000, totals=after[-1]))
    assert [point.start_ms for point in points] == [10_000, 20_000, 21_000]
    assert [point.totals for point in points] == [after[0], after[3], after[4]]


def test_the_fold_keeps_it_and_snapshots_go_on_from_it() -> None:
    stores = MemoryStores()

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop = Shop(worker, stores, np.random.default_rng(3))
            await shop.create()
            for _ in range(25):
                await shop.trade(4)
                await stores.pass_time(7_000)
            log, record = await whole_log(store, NAME), await store.get_bandit(NAME)
        models = replayed(record.incarnation, log)
        last = models[-1]
        points = list(last.history.intervals(at_ms=last.last.at_ms, totals=last.totals))
        assert len(points) >= 20
        assert points[-1].totals == last.totals
        assert points[-1].totals.recommendations == last.tally.recommendations > 50
        of_version = {model.last.at_ms: model.totals for model in models}
        for point in points[:-1]:
            newest = max(at_ms for at_ms in of_version if at_ms < point.end_ms)
            assert point.totals == of_version[newest]
        checkpoint = [model for model in models if model.since_checkpoint == 0][-3]
        resumed = decode_model(encode_model(checkpoint), limits=LIMITS)
        assert_same(resumed, checkpoint)
        went_on = reduce(fold, log[resumed.version :], resumed)
        assert_same(went_on, last)
        assert digests_of(went_on) == digests_of(last)
        other = replace(last, history=replace(last.history, width_ms=2 * last.history.width_ms))
        assert digests_of(other).log != digests_of(last).log

    run(stores, scenario)


def test_a_full_history_takes_less_than_16_kb_of_a_snapshot() -> None:
    history, _ = walked(gaps("even", 5000))
    assert len(history.numbers) > MOST_POINTS // 2
    buffer = io.BytesIO()
    np.savez_compressed(buffer, numbers=history.numbers, totals=history.totals)
    assert len(buffer.getvalue()) <= MOST_BYTES
