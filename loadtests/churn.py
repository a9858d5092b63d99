"""Whether a bandit lives on while its catalogue turns over: items retired and added every hour, under traffic.

Run ``python loadtests/churn.py`` for 30 days of ten new items of 500 an hour; each day is a line. Nothing but the clock
is simulated: slates are chosen, logged, rewarded late or never, expired and folded as a worker does, without a store.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.bandits.choices import choose_slate
from topk_bandit.bandits.fold import begin, fold
from topk_bandit.domain.bandits import DEFAULT_EXPLORATION, BanditSettings, Item, Kernel
from topk_bandit.domain.slates import RecommendationRequest
from topk_bandit.learning.limits import Limits
from topk_bandit.store.events import (
    BanditCreated,
    Expired,
    ItemsChanged,
    LoggedEvent,
    Recommended,
    Rewarded,
    Shown,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topk_bandit.bandits.model import Model
    from topk_bandit.store.events import Event

__all__ = ["Churn", "Day", "live"]

HOUR_MS = 3_600_000
HOURS_A_DAY = 24


@dataclass(frozen=True, slots=True)
class Churn:
    """What is simulated: a shop whose items have worths, a slate being worth those of its items, upper ranks more.

    Attributes
    ----------
    replaced
        Items retired, and new ones added, each hour.
    rounds_an_hour
        Slates that are asked for.
    item_capacity
        Of the bandit: `n_items` leaves no room for retired ones.
    unrewarded
        Share of the slates that never get a reward; the others get theirs after ten minutes in the mean.
    noise
        Standard deviation of a reward; items' worths have that of 1.
    """

    n_items: int = 500
    replaced: int = 10
    days: int = 30
    rounds_an_hour: int = 60
    slate_size: int = 6
    item_capacity: int = 500
    reward_wait_ms: int = HOUR_MS
    unrewarded: float = 0.2
    noise: float = 1.0
    rows: int = 490
    seed: int = 0

    @property
    def settings(self) -> BanditSettings:
        """The bandit's."""
        return BanditSettings(
            item_capacity=self.item_capacity,
            slate_size=self.slate_size,
            context_dim=1,
            kernel=Kernel.ADAPTIVE,
            exploration=DEFAULT_EXPLORATION,
            reward_wait_ms=self.reward_wait_ms,
            default_reward=None,
        )


@dataclass(slots=True)
class Day:
    """What a day came to.

    Attributes
    ----------
    regret
        Mean, as the share of the way from the best slate to a random one.
    n_places, places_in_use, rows, memory_bytes
        Of the model at its end.
    unlearned
        Rewards that came in time and were not learned.
    """

    regret: float
    n_places: int
    places_in_use: int
    rows: int
    memory_bytes: int
    unlearned: int
    seconds: float


@dataclass(slots=True)
class _Life:
    """A bandit, its shop, and what is still to come."""

    churn: Churn
    model: Model
    rng: np.random.Generator
    worths: dict[str, float] = field(default_factory=dict)
    now_ms: int = 1
    born: int = 0
    due: list[tuple[int, int, Event]] = field(default_factory=list)

    def add(self, event: Event) -> None:
        self.model = fold(self.model, LoggedEvent(self.model.version + 1, self.now_ms, event))

    def stock(self, count: int) -> None:
        ids = [f"item-{self.born + n}" for n in range(count)]
        self.born += count
        self.worths.update(zip(ids, self.rng.normal(size=count).tolist(), strict=True))
        self.add(ItemsChanged(upserted=tuple(map(Item, ids))))

    def retire(self, count: int) -> None:
        gone = self.rng.choice(sorted(self.worths), size=count, replace=False).tolist()
        for one in gone:
            del self.worths[one]
        self.add(ItemsChanged(retired=tuple(gone)))

    def end_due(self, until_ms: int) -> None:
        while self.due and self.due[0][0] <= until_ms:
            at_ms, _, event = heappop(self.due)
            self.now_ms = max(self.now_ms, at_ms)
            self.add(event)
        self.now_ms = max(self.now_ms, until_ms)

    def serve(self) -> float:
        """Give out a slate, and return its regret."""
        request = RecommendationRequest(f"request-{self.model.version}", (1.0,), None)
        given = choose_slate(self.model, request)
        deadline_ms = self.now_ms + self.churn.reward_wait_ms
        self.add(Recommended(request, replace(given, deadline_ms=deadline_ms)))
        weights = 1.0 / np.log2(np.arange(2, 2 + self.churn.slate_size))
        worths = np.array([self.worths[one] for one in given.slate])
        every = np.array(list(self.worths.values()))
        best, random = weights @ np.sort(every)[::-1][: len(weights)], weights.sum() * every.mean()
        self._schedule(given.recommendation_id, given.slate, float(weights @ worths), deadline_ms)
        return float((best - weights @ worths) / (best - random))

    def _schedule(self, recommendation_id: str, slate: Sequence[str], worth: float, deadline_ms: int) -> None:
        rewarded_ms = self.now_ms + int(self.rng.exponential(HOUR_MS / 6))
        shown = Shown((1.0,), tuple(slate), self.now_ms)
        if self.rng.random() < self.churn.unrewarded or rewarded_ms >= deadline_ms:
            heappush(self.due, (deadline_ms, self.model.version, Expired(recommendation_id, None, None)))
        else:
            value = worth + self.churn.noise * float(self.rng.normal())
            heappush(self.due, (rewarded_ms, self.model.version, Rewarded(recommendation_id, value, shown)))


def live(churn: Churn) -> Iterator[Day]:
    """Give what each day came to."""
    first = LoggedEvent(1, 1, BanditCreated(churn.settings))
    life = _Life(churn, begin("churn", first, limits=Limits(rows=churn.rows)), np.random.default_rng(churn.seed))
    life.stock(churn.n_items)
    for _ in range(churn.days):
        start, regrets = time.perf_counter(), []
        for _ in range(HOURS_A_DAY):
            for _ in range(churn.rounds_an_hour):
                life.end_due(life.now_ms + HOUR_MS // churn.rounds_an_hour)
                regrets.append(life.serve())
            life.retire(churn.replaced)
            life.stock(churn.replaced)
        model = life.model
        yield Day(
            regret=float(np.mean(regrets)),
            n_places=model.state.posterior.kernel.n_items,
            places_in_use=model.items.places_in_use,
            rows=model.state.posterior.n_rows,
            memory_bytes=model.memory_bytes,
            unlearned=model.tally.unlearned,
            seconds=time.perf_counter() - start,
        )


def _parse() -> Churn:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in ((name, getattr(Churn(), name)) for name in Churn.__slots__):
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    return Churn(**vars(parser.parse_args()))


if __name__ == "__main__":
    for number, day in enumerate(live(_parse()), 1):
        print(f"day {number:3}: {day}", flush=True)
