"""By when slates have earned what they end up with: a small histogram, which the fold learns of each bandit's log.

A change of what a slate has earned adds the change of its size to the bin of the slate's age. So a slate adds what it
ends up with, spread over its life, and nothing has to be kept of it. Only slates whose wait is over count: younger ones
have had their early rewards alone. So slates are taken together by when they were shown, and count with the last of
their cohort.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from topk_bandit.domain.bandits import Aggregation
from topk_bandit.store.events import Rewarded, RewardRevised

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topk_bandit.store.events import Event

__all__ = ["Change", "Cohort", "RewardCurve", "change_of"]

_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000

_EDGES_MS = (
    *(_SECOND * count for count in (1, 5, 15, 30)),
    *(_MINUTE * count for count in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * count for count in (1, 2, 3, 6, 12)),
    *(_DAY * count for count in (1, 2, 3, 5, 7, 10, 14, 21, 30, 45, 60, 90)),
)
"""Where the bins end: round ages up to the longest wait, about as far apart as logarithms have it."""

_COHORTS_OF_A_WAIT = 8
"""A slate counts at most so small a part of its wait too late; more cohorts take more memory."""

_MOST_SLATES = 4096
"""By so many the last hundredth is known to a sixth of it. From then on older ones count half, as shops change."""

_ROUNDING = 1e-9

_NOTHING = (0.0,) * len(_EDGES_MS)


class Change(NamedTuple):
    """What a slate has earned now and had earned before, None for nothing; `shown_ms` is when it was shown."""

    value: float | None
    before: float | None
    shown_ms: int


class Cohort(NamedTuple):
    """Slates that were shown before `until_ms`, all waits of which are over at `over_ms`.

    Attributes
    ----------
    sizes
        What they earned in each bin.
    slates
        How many of them have a reward.
    """

    until_ms: int
    over_ms: int
    sizes: tuple[float, ...] = _NOTHING
    slates: int = 0


@dataclass(frozen=True, slots=True)
class RewardCurve:
    """What slates earned by age.

    Attributes
    ----------
    sizes, slates
        As of `Cohort`, of slates whose wait is over.
    cohorts
        Those that wait, oldest first.
    """

    sizes: tuple[float, ...] = _NOTHING
    slates: int = 0
    cohorts: tuple[Cohort, ...] = ()

    def after(self, change: Change, growth: float, *, at_ms: int, wait_ms: int) -> RewardCurve:
        """Return the curve after a change of a slate's reward.

        Parameters
        ----------
        growth
            By how much the reward's size has grown.
        at_ms
            When it changed.
        wait_ms
            How long slates wait now.
        """
        curve = self.close(at_ms)
        cohorts, shown_ms = list(curve.cohorts), change.shown_ms
        place = next((place for place, one in enumerate(cohorts) if shown_ms < one.until_ms), len(cohorts))
        if place == len(cohorts):
            until_ms = shown_ms + max(wait_ms // _COHORTS_OF_A_WAIT, 1)
            cohorts.append(Cohort(until_ms, until_ms + wait_ms))
        known = cohorts[place]
        sizes, of_age = list(known.sizes), min(bisect_left(_EDGES_MS, at_ms - shown_ms), len(_EDGES_MS) - 1)
        sizes[of_age] += growth
        slates = known.slates + (change.before is None) - (change.value is None)
        cohorts[place] = known._replace(sizes=tuple(sizes), slates=slates)
        return RewardCurve(curve.sizes, curve.slates, tuple(cohorts))

    def close(self, at_ms: int) -> RewardCurve:
        """Return the curve at a time, with the cohorts whose waits are over by then."""
        if all(one.over_ms > at_ms for one in self.cohorts):
            return self
        sizes, slates = self.sizes, self.slates
        for one in self.cohorts:
            if one.over_ms <= at_ms:
                if slates >= _MOST_SLATES:
                    sizes, slates = tuple(0.5 * size for size in sizes), slates // 2
                sizes = tuple(map(sum, zip(sizes, one.sizes, strict=True)))
                slates += one.slates
        return RewardCurve(sizes, slates, tuple(one for one in self.cohorts if one.over_ms > at_ms))

    @property
    def points(self) -> tuple[tuple[int, float], ...]:
        """Delays in milliseconds where something came, ascending, and the share that has come by each."""
        total = sum(self.sizes)
        if total <= _ROUNDING * sum(map(abs, self.sizes)):
            return ()
        came = zip(_EDGES_MS, self.sizes, accumulate(self.sizes), strict=True)
        return tuple((edge_ms, so_far / total) for edge_ms, size, so_far in came if size)

    @classmethod
    def restore(cls, sizes: Iterable[float] = _NOTHING, slates: int = 0, cohorts: Iterable[Any] = ()) -> RewardCurve:
        """Return the curve whose attributes these are, with lists in the place of tuples."""
        waiting = (Cohort(until_ms, over_ms, tuple(earned), count) for until_ms, over_ms, earned, count in cohorts)
        return cls(tuple(sizes), slates, tuple(waiting))


def change_of(event: Event, aggregation: Aggregation) -> Change | None:
    """Return how an event changes what a slate has earned; None if it does not, or if that is known too late.

    A default reward is nothing that was earned. Of several rewards that are learned together when the wait ends nobody
    knows here when they came.
    """
    match event:
        case RewardRevised():
            value, before = (None if event.is_default else event.value), (None if event.was_default else event.before)
            return None if value == before else Change(value, before, event.shown.at_ms)
        case Rewarded() if aggregation is Aggregation.FIRST:
            return Change(event.value, None, event.shown.at_ms)
    return None
