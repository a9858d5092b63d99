"""By when slates have earned what they end up with: what is learned of it from a log."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.bandits.harness import LIMITS, NAME, SETTINGS, request, running_worker
from tests.bandits.test_corrections import ITEMS, recommended
from tests.contracts.harness import MemoryStores, run

from topk_bandit.bandits.fold import begin, fold
from topk_bandit.bandits.reward_curve import Change, Cohort, RewardCurve
from topk_bandit.bandits.snapshots import decode_model, encode_model
from topk_bandit.domain.bandits import Aggregation, Item
from topk_bandit.domain.reward_times import ALMOST_ALL, HALF, NINE_TENTHS, RewardTimes
from topk_bandit.store.events import (
    BanditCreated,
    BanditReset,
    Expired,
    ItemsChanged,
    LoggedEvent,
    Rewarded,
    RewardRevised,
    SettingsChanged,
    Shown,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topk_bandit.bandits.model import Model
    from topk_bandit.store.events import Event
    from topk_bandit.store.log import Store

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
WAIT = 8 * DAY
BEGIN = 100 * DAY
CAME = replace(
    SETTINGS,
    reward_wait_ms=WAIT,
    reward_aggregation=Aggregation.SUM,
    provisional_after_ms=30 * MINUTE,
    default_reward=0.0,
)


class Earned(NamedTuple):
    """What a slate has earned at an age: the values that follow each other, None for a void."""

    shown_ms: int
    values: tuple[tuple[int, float | None], ...]


def begun(**settings: object) -> Model:
    first = LoggedEvent(1, BEGIN, BanditCreated(replace(CAME, **settings)))  # type: ignore[arg-type]
    return then(begin("birth", first, limits=LIMITS), (BEGIN, ITEMS))


def then(model: Model, *events: tuple[int, Event]) -> Model:
    for at_ms, event in events:
        model = fold(model, LoggedEvent(model.version + 1, at_ms, event))
    return model


def lives(slates: Iterable[Earned]) -> list[tuple[int, Event]]:
    """Return all that happens to slates, in its order: each is learned first with what it earned by half an hour."""
    happens: list[tuple[int, Event]] = []
    for number, (shown_ms, values) in enumerate(slates):
        given = recommended(number)
        shown = Shown(given.request.context, given.recommendation.slate, shown_ms)
        happens.append((shown_ms, given))
        before: float | None = None
        known = [(30 * MINUTE, 0.0), *values] if not values or values[0][0] > 30 * MINUTE else [*values]
        for place, (age, value) in enumerate(known):
            is_default, was_default = len(known) > len(values) and place == 0, len(known) > len(values) and place == 1
            happens.append(
                (
                    shown_ms + max(age, 30 * MINUTE),
                    RewardRevised(
                        f"r{number}",
                        value,
                        shown,
                        shown_ms if place else 0,
                        is_default=is_default,
                        was_default=was_default,
                        is_final=value is None,
                        before=before,
                    ),
                )
            )
            before = value
    return sorted(happens, key=lambda one: one[0])


def every(count: int, gap: int, *values: tuple[int, float | None]) -> list[Earned]:
    return [Earned(BEGIN + SECOND + number * gap, values) for number in range(count)]


def later(model: Model, at_ms: int) -> Model:
    """Have something else happen, by which the log is as late as that."""
    return then(model, (at_ms, ItemsChanged(())))


OVER = BEGIN + 3 * WAIT

TABLE = {
    "nobody buys": (every(9, HOUR), 0, ()),
    "at once": (every(9, HOUR, (MINUTE, 1.0)), 9, ((30 * MINUTE, 1.0),)),
    "a click, and an order": (
        every(9, HOUR, (MINUTE, 1.0), (20 * HOUR, 4.0)),
        9,
        ((30 * MINUTE, 0.25), (DAY, 1.0)),
    ),
    "sent back in part": (
        every(9, HOUR, (2 * HOUR, 5.0), (6 * DAY, 4.0)),
        9,
        ((2 * HOUR, 1.25), (7 * DAY, 1.0)),
    ),
    "sent back by one of two": (
        [*every(5, HOUR, (2 * HOUR, 3.0)), *every(5, HOUR, (2 * HOUR, 3.0), (3 * DAY, 0.0))],
        10,
        ((2 * HOUR, 2.0), (3 * DAY, 1.0)),
    ),
    "void": (every(9, HOUR, (2 * HOUR, 3.0), (DAY, None)), 0, ()),
    "costs count by their size": (
        [*every(4, HOUR, (DAY, -2.0)), *every(4, HOUR, (3 * DAY, 2.0))],
        8,
        ((DAY, 0.5), (3 * DAY, 1.0)),
    ),
}


@pytest.mark.parametrize("case", TABLE)
def test_what_has_come_by_when(case: str) -> None:
    slates, count, points = TABLE[case]
    model = later(then(begun(), *lives(slates)), OVER)
    times = model.reward_times
    assert (times.slates, times.wait_ms) == (count, WAIT)
    assert [delay for delay, _ in times.points] == [delay for delay, _ in points]
    assert [share for _, share in times.points] == pytest.approx([share for _, share in points])


def test_slates_count_once_their_waits_are_over() -> None:
    """Young slates have had their early rewards alone: with them half would seem to come at once."""
    slates = [*every(40, 6 * HOUR, (MINUTE, 1.0), (7 * DAY, 2.0))]
    model = then(begun(), *[one for one in lives(slates) if one[0] < BEGIN + WAIT - MINUTE])
    assert model.reward_times == RewardTimes(0, (), WAIT)
    rest = [one for one in lives(slates) if one[0] >= BEGIN + WAIT - MINUTE]
    seen = set()
    for one in rest:
        model = then(model, one)
        times = model.reward_times
        assert times.points in {(), ((30 * MINUTE, 0.5), (7 * DAY, 1.0))}
        seen.add(times.slates)
        assert len(model.reward_curve.cohorts) <= 10
    assert later(model, OVER).reward_times.slates == 40
    assert len(seen) > 3


def test_single_rewards_are_timed_without_provisional_ones() -> None:
    def ended(number: int, age: int, *, aggregation: Aggregation) -> Model:
        model = begun(provisional_after_ms=None, reward_aggregation=aggregation, default_reward=None)
        given = recommended(number)
        shown = Shown(given.request.context, given.recommendation.slate, BEGIN + 1)
        end = Rewarded(f"r{number}", 2.0, shown)
        return later(then(model, (BEGIN + 1, given), (BEGIN + 1 + age, end)), OVER)

    assert ended(1, 90 * MINUTE, aggregation=Aggregation.FIRST).reward_times == RewardTimes(1, ((2 * HOUR, 1.0),), WAIT)
    assert ended(1, WAIT, aggregation=Aggregation.SUM).reward_times.slates == 0


def test_a_default_reward_is_none() -> None:
    model = begun(provisional_after_ms=None, reward_aggregation=Aggregation.FIRST, default_reward=5.0)
    given = recommended(1)
    shown = Shown(given.request.context, given.recommendation.slate, BEGIN + 1)
    ended = then(model, (BEGIN + 1, given), (BEGIN + 1 + WAIT, Expired("r1", 5.0, shown)))
    assert later(ended, OVER).reward_times == RewardTimes(0, (), WAIT)


def test_one_wild_reward_is_not_the_curve() -> None:
    slates = [*every(60, HOUR, (MINUTE, 1.0), (DAY, 2.0)), *every(1, HOUR, (5 * DAY, 1e9))]
    slates = [one._replace(values=tuple((age, value + at % 7 / 10) for age, value in one.values if value is not None))
              for at, one in enumerate(slates)]  # fmt: skip
    times = later(then(begun(), *lives(slates)), OVER).reward_times
    shares = dict(times.points)
    assert shares[DAY] > 0.95


AGES = [
    *(count * SECOND for count in (1, 5, 15, 30, 60, 120, 300, 600, 900, 1800)),
    *(count * HOUR for count in (1, 2, 3, 6, 12, 24, 48, 72, 120, 168, 240, 336, 504, 720, 1080, 1440, 2160)),
]


def test_ages_are_told_apart_as_people_look_for_them() -> None:
    """What comes just by an age counts by it, and what comes later by the next."""
    for by, after in zip(AGES, [*AGES[1:], AGES[-1]], strict=True):
        for age, counted in ((by, by), (by + 1, after)):
            curve = RewardCurve().after(Change(1.0, None, BEGIN), 1.0, at_ms=BEGIN + age, wait_ms=90 * DAY)
            assert curve.close(BEGIN + 200 * DAY).points == ((counted, 1.0),)


def test_what_comes_later_than_any_wait_counts_by_the_last_age() -> None:
    curve = RewardCurve().after(Change(1.0, None, BEGIN), 1.0, at_ms=BEGIN + 91 * DAY, wait_ms=90 * DAY)
    assert curve.close(BEGIN + 200 * DAY).points == ((90 * DAY, 1.0),)


@pytest.mark.parametrize(("wait_ms", "width_ms"), [(8 * DAY, DAY), (1, 1)])
def test_slates_are_taken_together_for_an_eighth_of_their_wait(wait_ms: int, width_ms: int) -> None:
    curve = RewardCurve()
    for shown_ms in (BEGIN, BEGIN + width_ms - 1, BEGIN - 1, BEGIN + width_ms):
        curve = curve.after(Change(1.0, None, shown_ms), 1.0, at_ms=shown_ms, wait_ms=wait_ms)
    over_ms = BEGIN + width_ms + wait_ms
    assert [(one.over_ms, one.slates) for one in curve.cohorts] == [(over_ms, 3), (over_ms + width_ms, 1)]
    assert [curve.close(over_ms + more).slates for more in (-1, 0)] == [0, 3]


@pytest.mark.parametrize(("known", "slates", "size"), [(4095, 4105, 3.0), (4096, 2058, 2.0)])
def test_many_slates_count_half_before_others_are_added(known: int, slates: int, size: float) -> None:
    more = Cohort(BEGIN, BEGIN, (1.0,) * len(AGES), 10)
    curve = RewardCurve((2.0,) * len(AGES), known, (more,)).close(BEGIN)
    assert (curve.slates, set(curve.sizes), curve.cohorts) == (slates, {size}, ())


def test_older_slates_count_half_once_there_are_many() -> None:
    """Slates that earn at once are followed by those that earn within a day: the curve follows within some thousand."""
    curve, shown_ms, shares = RewardCurve(), BEGIN, list[float]()
    for number in range(16_384):
        age = MINUTE if number < 8192 else 20 * HOUR
        curve = curve.after(Change(1.0, None, shown_ms), 1.0, at_ms=shown_ms + age, wait_ms=DAY)
        shown_ms += MINUTE
        if number % 4096 == 4095:
            shares.append(dict(curve.points)[MINUTE])
    assert shares[:2] == [1.0, 1.0]
    assert shares[2] == pytest.approx(0.4, abs=0.15)
    assert shares[3] < 0.15
    assert curve.slates < 2 * 4096


def test_it_goes_on_to_the_bit_from_a_snapshot_of_its_data_version() -> None:
    events = lives([*every(250, 2 * HOUR, (MINUTE, 1.1)), *every(50, 10 * HOUR, (2 * DAY, 0.7))])
    model = begun()
    while model.since_checkpoint or not model.reward_curve.slates:
        model = then(model, events.pop(0))
    assert model.reward_curve.cohorts
    restored = decode_model(encode_model(model, 2), limits=LIMITS)
    assert restored.reward_curve == model.reward_curve
    assert then(restored, *events).reward_curve == then(model, *events).reward_curve
    assert decode_model(encode_model(model, 1), limits=LIMITS).reward_curve == RewardCurve()


def test_a_reset_begins_it_anew() -> None:
    model = later(then(begun(), *lives(every(9, HOUR, (MINUTE, 1.0)))), OVER)
    anew = then(model, (OVER + 1, BanditReset("again")))
    assert anew.reward_times == RewardTimes(0, (), WAIT)
    (_, given), (_, earned) = lives([Earned(OVER - HOUR, ((MINUTE, 1.0),))])
    assert then(anew, (OVER + 2, given), (OVER + 3, earned)).reward_curve == RewardCurve()


def test_another_wait_holds_for_slates_that_are_shown_then() -> None:
    """Those that were shown before wait as they did."""
    shorter = SettingsChanged(replace(CAME, reward_wait_ms=DAY), None)
    model = then(begun(), *lives([Earned(BEGIN + SECOND, ((MINUTE, 1.0),))]), (BEGIN + HOUR, shorter))
    assert later(model, BEGIN + 2 * DAY).reward_times == RewardTimes(0, (), DAY)
    assert later(model, OVER).reward_times == RewardTimes(1, ((30 * MINUTE, 1.0),), DAY)


POINTS = ((MINUTE, 0.2), (HOUR, 0.7), (DAY, 1.3), (7 * DAY, 0.95), (10 * DAY, 1.0))


@pytest.mark.parametrize(("part", "by_ms"), [(HALF, HOUR), (NINE_TENTHS, 7 * DAY), (ALMOST_ALL, 10 * DAY)])
def test_a_part_has_come_once_no_more_is_taken_back(part: float, by_ms: int) -> None:
    assert RewardTimes(9, POINTS, WAIT).came_by(part) == by_ms
    assert RewardTimes(9, (), WAIT).came_by(part) is None


def test_stats_have_it_after_a_restart() -> None:
    stores = MemoryStores()

    async def scenario(store: Store) -> None:
        async with running_worker(store, look_seconds=600.0) as worker:
            settings = replace(CAME, reward_wait_ms=HOUR, provisional_after_ms=0, default_reward=None)
            await worker.bandits.create_bandit(NAME, settings)
            await worker.bandits.upsert_items(NAME, ITEMS.upserted)
            for number in range(12):
                shown = await worker.recommender.recommend(NAME, request(f"q{number}"))
                await stores.pass_time(SECOND)
                for age, reward_id in ((MINUTE, "click"), (20 * MINUTE, "order")):
                    await stores.pass_time(age)
                    await worker.recommender.reward(NAME, shown.recommendation_id, 2.0, reward_id=reward_id)
            await stores.pass_time(2 * HOUR)
            await worker.bandits.upsert_items(NAME, [Item("new")])
            before = (await worker.bandits.stats(NAME)).reward_times
        async with running_worker(store, look_seconds=600.0) as worker:
            await worker.models.follow(NAME)
            assert (await worker.bandits.stats(NAME)).reward_times == before
            assert worker.hooks.figures.settled_seconds == 1800
        assert before == RewardTimes(12, ((2 * MINUTE, 0.5), (30 * MINUTE, 1.0)), HOUR)

    run(stores, scenario)
