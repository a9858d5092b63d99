"""The knee: the highest rate that is still answered in time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from traffic.calls import RECOMMEND, End
from traffic.found import answered
from traffic.plans import Stream
from traffic.stage import BANDIT, TENANT

if TYPE_CHECKING:
    from topk_bandit.learning.environments import Shop
    from traffic.calls import Calls
    from traffic.stage import Stage

__all__ = ["LONGEST_P99", "Knee", "Step", "find_knee"]

LONGEST_P99, LEAST_ANSWERED = 0.25, 0.99
FIRST_RATE, GROWTH, NEAR_ENOUGH, MOST_STEPS = 20.0, 1.8, 1.2, 12
REWARD_AFTER = 0.5


@dataclass(frozen=True, slots=True)
class Step:
    """A rate that was tried for some seconds.

    Attributes
    ----------
    goodput
        Slates that came in time, a second.
    """

    rate: float
    calls: Calls
    goodput: float
    p99: float
    passed: bool


@dataclass(frozen=True, slots=True)
class Knee:
    """Where the service bends.

    Attributes
    ----------
    steps
        In the order in which they were tried.
    """

    steps: tuple[Step, ...]

    @property
    def best(self) -> Step | None:
        """The highest rate that passed; None if no rate did."""
        return max((step for step in self.steps if step.passed), key=lambda step: step.rate, default=None)


def find_knee(stage: Stage, shop: Shop, seconds: float) -> Knee:
    """Raise the rate until it is not answered in time, then halve the distance until it is known to a fifth.

    A rate passes if 99 % of its calls are answered in time, and 99 % of these within `LONGEST_P99`; one that does not
    is tried once more, since others may have held up the machine. Every step begins when the rewards of the one before
    are learned.
    """
    steps: list[Step] = []
    low, high, rate = 0.0, math.inf, FIRST_RATE
    while high / max(low, 1.0) > NEAR_ENOUGH and len(steps) < MOST_STEPS and rate >= 1.0:
        first = _step(stage, shop, rate, seconds, seed=2 * len(steps))
        steps.append(first if first.passed else _step(stage, shop, rate, seconds, seed=2 * len(steps) + 1))
        low, high = (rate, high) if steps[-1].passed else (low, rate)
        rate = low * GROWTH if math.isinf(high) else math.sqrt(low * high) if low else high / GROWTH
    return Knee(tuple(steps))


def _step(stage: Stage, shop: Shop, rate: float, seconds: float, *, seed: int) -> Step:
    calls = stage.load((seconds,), Stream(TENANT, (BANDIT,), shop, (rate,), REWARD_AFTER), seed=seed)
    good, p99 = answered(calls), answered(calls).latency.percentile(99)
    passed = calls.of_kind(RECOMMEND).share(End.OK) >= LEAST_ANSWERED and p99 <= LONGEST_P99
    stage.stats()
    return Step(rate, calls, len(good) / seconds, p99, passed)
