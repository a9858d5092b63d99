"""What came to each group on each day: by hand from the events, bounded, kept by snapshots, and left out by digests."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.bandits.harness import LIMITS, SETTINGS

from topk_bandit.bandits.comparison import DAY_MS, MOST_DAYS, NOTHING_COMPARED, Comparison
from topk_bandit.bandits.digests import digests_of
from topk_bandit.bandits.fold import begin, fold
from topk_bandit.bandits.lifts import describe_lift
from topk_bandit.bandits.snapshots import decode_model, encode_model
from topk_bandit.domain.bandits import Item
from topk_bandit.domain.slates import Recommendation, RecommendationRequest
from topk_bandit.domain.stages import Group
from topk_bandit.store.data_versions import NEWEST
from topk_bandit.store.events import (
    BanditCreated,
    BanditReset,
    Event,
    ItemsChanged,
    LoggedEvent,
    Recommended,
    RewardAmended,
    Rewarded,
    SettingsChanged,
    Shown,
)

if TYPE_CHECKING:
    from topk_bandit.bandits.model import Model

HOUR_MS = 3_600_000
SLATE = ("a", "b", "c")
COMPARED = replace(SETTINGS, control_share=0.3, baseline_item_ids=SLATE)


def lived(rng: np.random.Generator, days: int, *, clicks: bool = False) -> tuple[list[LoggedEvent], set[int]]:
    """Return a log whose rewards come on other days than their slates, and the days on which anything happened."""
    events: list[tuple[int, Event]] = [(1, BanditCreated(COMPARED)), (2, ItemsChanged(tuple(map(Item, "abcdef"))))]
    for number in range(4 * days):
        at = int(rng.integers(10, days * DAY_MS))
        group = Group.CONTROL if rng.random() < 0.3 else Group.BANDIT
        given = Recommendation(
            f"id{number}",
            SLATE,
            1.0,
            0.0,
            1.0,
            0.0,
            0.0,
            explored=False,
            model_version=1,
            observations=0,
            deadline_ms=at + 9 * DAY_MS,
            group=group,
        )
        events.append((at, Recommended(RecommendationRequest(f"q{number}", (1.0, 0.5), None), given)))
        came = at + int(rng.integers(1, 3 * DAY_MS))
        value = float(rng.random() < 0.3) if clicks else float(rng.normal())
        events.append((came, Rewarded(f"id{number}", value, Shown((1.0, 0.5), SLATE, at), group=group)))
        if rng.random() < 0.2:
            after = None if rng.random() < 0.5 else 1.0 if clicks else float(rng.normal())
            amended = RewardAmended(f"id{number}", after, None, None, group, value, 3)
            events.append((came + int(rng.integers(1, 2 * DAY_MS)), amended))
    gap = 11 * DAY_MS, 14 * DAY_MS  # nobody came
    kept = sorted((one for one in events if not gap[0] <= one[0] < gap[1]), key=lambda one: one[0])
    known, log = set(), []
    for at, event in kept:
        if isinstance(event, Recommended):
            known.add(event.recommendation.recommendation_id)
        elif isinstance(event, Rewarded | RewardAmended) and event.recommendation_id not in known:
            continue
        log.append(LoggedEvent(len(log) + 1, at, event))
    return log, {one.at_ms // DAY_MS for one in log[1:]}


def folded(log: list[LoggedEvent]) -> Model:
    model = begin("birth", log[0], limits=LIMITS)
    for logged in log[1:]:
        model = fold(model, logged)
    return model


def compared(log: list[LoggedEvent]) -> Comparison:
    """Return the comparison alone after a log, without what is learned."""
    comparison = Comparison(since_ms=1, since_position=1)
    for logged in log[1:]:
        comparison = comparison.after(logged, COMPARED, has_unit=bool)
    return comparison


def by_hand(log: list[LoggedEvent]) -> dict[tuple[int, Group], tuple[int, int, Fraction, Fraction]]:
    """Return how many requests, how many rewards, and which sums came on each day to each group."""
    found: dict[tuple[int, Group], list[Fraction]] = defaultdict(lambda: [Fraction()] * 4)
    for logged in log[1:]:
        day, event = logged.at_ms // DAY_MS, logged.event
        if isinstance(event, Recommended):
            found[day, event.recommendation.group][0] += 1
        elif isinstance(event, Rewarded | RewardAmended):
            changes = [(event.value, 1)] if isinstance(event, Rewarded) else [(event.value, 1), (event.replaced, -1)]
            for value, sign in changes:
                if value is not None:
                    cell, exact = found[day, event.group], Fraction(value)
                    cell[1:] = [cell[1] + sign, cell[2] + sign * exact, cell[3] + sign * exact**2]
    return {key: (int(a), int(b), c, d) for key, (a, b, c, d) in found.items()}


@pytest.mark.parametrize("days", [3, 30, 100])
def test_a_day_has_what_came_on_it(days: int) -> None:
    log, happened = lived(np.random.default_rng(days), days)
    comparison, wanted = compared(log), by_hand(log)
    got = list(comparison.by_day())
    assert [one.start_ms // DAY_MS for one in got] == sorted(happened)[-MOST_DAYS:]
    for one in got:
        for group, tally in ((Group.BANDIT, one.bandit), (Group.CONTROL, one.control)):
            earned = tally.earned
            figures = tally.drawn, earned.count, earned.total.to_fraction(), earned.squares.to_fraction()
            assert figures == wanted.get((one.start_ms // DAY_MS, group), (0, 0, 0, 0))
    if len(happened) <= MOST_DAYS:
        assert sum(one.bandit.earned.count for one in got) == comparison.bandit.earned.count


def test_days_begin_anew_with_the_groups_and_a_clock_that_is_set_back_begins_none() -> None:
    log, _ = lived(np.random.default_rng(1), 20)
    comparison = compared(log)
    last = log[-1]
    back = comparison.after(
        LoggedEvent(last.position + 1, last.at_ms - 5 * DAY_MS, ItemsChanged()), COMPARED, has_unit=bool
    )
    assert back.days == comparison.days
    assert (
        comparison.after(LoggedEvent(last.position + 1, last.at_ms, BanditReset("again")), COMPARED, has_unit=bool).days
        == ()
    )
    other = SettingsChanged(replace(COMPARED, control_share=0.1))
    assert comparison.after(LoggedEvent(last.position + 1, last.at_ms, other), COMPARED, has_unit=bool).days == ()
    assert list(Comparison(since_ms=1, since_position=1).by_day()) == [], "right after the share was set"
    assert NOTHING_COMPARED.after(last, SETTINGS, has_unit=bool).days == (), "without groups there are no days"


def test_snapshots_keep_days_and_digests_leave_them_out() -> None:
    log, _ = lived(np.random.default_rng(2), 40)
    model = folded(log)
    assert len(model.comparison.days) > 30
    document = model.comparison.as_document() | model.comparison.days_document()
    again = Comparison.from_document(json.loads(json.dumps(document)))
    assert again == model.comparison
    before = Comparison.from_document(model.comparison.as_document())  # as a program before days has it
    assert before.days == ()
    assert digests_of(replace(model, comparison=before)) == digests_of(model)
    checkpoint = replace(model, state=model.state.refit(model.last.at_ms))
    assert decode_model(encode_model(checkpoint, NEWEST), limits=LIMITS).comparison == model.comparison


def test_days_cost_a_few_kilobytes() -> None:
    for clicks, most in ((True, 8_000), (False, 20_000)):
        log, _ = lived(np.random.default_rng(4), 100, clicks=clicks)
        n_bytes = len(json.dumps(compared(log).days_document()))
        print(f"{'clicks' if clicks else 'normal rewards'}: {n_bytes:,} bytes of a snapshot's header")
        assert n_bytes < most


def test_the_lift_of_a_day_is_that_of_its_rewards() -> None:
    events: list[LoggedEvent] = [
        LoggedEvent(1, 1, BanditCreated(COMPARED)),
        LoggedEvent(2, 2, ItemsChanged(tuple(map(Item, "abcdef")))),
    ]
    rng = np.random.default_rng(0)
    for number in range(800):
        at = (number // 400) * DAY_MS + HOUR_MS + number
        group = Group.CONTROL if number % 4 == 0 else Group.BANDIT
        given = Recommendation(
            f"id{number}",
            SLATE,
            1.0,
            0.0,
            1.0,
            0.0,
            0.0,
            explored=False,
            model_version=1,
            observations=0,
            deadline_ms=at + DAY_MS,
            group=group,
        )
        asked = RecommendationRequest(f"q{number}", (1.0, 0.5), None)
        events.append(LoggedEvent(len(events) + 1, at, Recommended(asked, given)))
        value = float(rng.normal() + (3.0 if group is Group.BANDIT and number < 400 else 0.0))
        shown = Shown((1.0, 0.5), SLATE, at)
        events.append(LoggedEvent(len(events) + 1, at, Rewarded(f"id{number}", value, shown, group=group)))
    model = folded(events)
    lift = describe_lift(model, by_day=True)
    assert lift is not None
    first, second = lift.days
    assert (first.start_ms, second.start_ms) == (0, DAY_MS)
    assert (first.bandit.counted, first.control.counted) == (300, 100)
    assert first.difference is not None
    assert second.difference is not None
    assert first.difference.low > 1.0
    assert second.difference.low < 0.0 < second.difference.high
    plain = describe_lift(model)
    assert plain is not None
    assert plain.days == ()
