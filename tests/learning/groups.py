"""Many simulated shops with two groups at once, and what numpy says of them after every request."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.learning.confidence_sequences import EXPECTED_EFFECT
from topk_bandit.learning.group_totals import NO_REQUESTS, GroupTotals
from topk_bandit.learning.lift import FEWEST_REQUESTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FloatArray = NDArray[np.float64]

REWARDS: dict[str, Callable[[np.random.Generator, tuple[int, int]], FloatArray]] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "clicks": lambda rng, shape: (rng.random(shape) < 0.05).astype(float),
    "rare clicks": lambda rng, shape: (rng.random(shape) < 0.004).astype(float),
    "nearly always": lambda rng, shape: (rng.random(shape) < 0.97).astype(float),
    "baskets": lambda rng, shape: (rng.random(shape) < 0.1) * np.exp(rng.normal(size=shape)),
    "wild baskets": lambda rng, shape: (rng.random(shape) < 0.1) * np.exp(1.5 * rng.normal(size=shape)),
    "no variance": lambda rng, shape: (rng.random(shape) < 0.1) * (rng.pareto(1.8, size=shape) + 1.0),
}
"""What one request earns; of "no variance" the variance is infinite."""


class Watched(NamedTuple):
    """What is known of each shop after each request, each of shape (shops, requests)."""

    bandit: FloatArray
    control: FloatArray
    bandit_error: FloatArray
    control_error: FloatArray
    information: FloatArray
    is_late: NDArray[np.bool_]
    """Whether there are enough requests of both groups."""

    def errors(self, ratio: float | FloatArray = 1.0) -> FloatArray:
        """Return how many standard errors the bandit's mean is above so many times the control group's."""
        with np.errstate(invalid="ignore", divide="ignore"):
            away = (self.bandit - ratio * self.control) / np.hypot(self.bandit_error, ratio * self.control_error)
        return np.where(self.is_late & np.isfinite(away), away, 0.0)


def reach(information: FloatArray, error: float) -> FloatArray:
    """Return the bound of `confidence_sequences` for arrays; its own tests compare the formula with the definition."""
    m, scaled = EXPECTED_EFFECT, EXPECTED_EFFECT**2 * np.maximum(information, 1e-9)
    inside = (1 + scaled) * (1 + 2 * np.log(np.sqrt(1 + scaled) / error))
    return np.asarray((np.sqrt(inside) - 1) / (m * np.sqrt(np.maximum(information, 1e-9))))


def watch(rewards: FloatArray, in_control: NDArray[np.bool_]) -> Watched:
    """Return what numpy says of both groups after each request; see `learning.lift` for the variances."""

    def added(values: FloatArray) -> FloatArray:
        return np.cumsum(values, axis=1)

    n0 = added(in_control.astype(float))
    n1 = np.arange(1.0, rewards.shape[1] + 1) - n0
    with np.errstate(invalid="ignore", divide="ignore"):
        means = [added(rewards * mask) / n for mask, n in ((~in_control, n1), (in_control, n0))]
        squares = [
            added(rewards**2 * mask) - n * mean**2
            for mask, n, mean in zip((~in_control, in_control), (n1, n0), means, strict=True)
        ]
        together = (squares[0] + squares[1]) / (n0 + n1 - 2)
        errors = [
            np.sqrt(np.maximum(together, square / (n - 1)) / n) for square, n in zip(squares, (n1, n0), strict=True)
        ]
    return Watched(means[0], means[1], errors[0], errors[1], n0 * n1 / (n0 + n1), np.minimum(n0, n1) >= FEWEST_REQUESTS)


def totals_of(rewards: Iterable[float]) -> GroupTotals:
    totals = NO_REQUESTS
    for one in rewards:
        totals = totals.plus(float(one))
    return totals
