"""Plackett-Luce by iteratively reweighted least squares beside general optimisers on the same likelihood."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from scipy.optimize import minimize

from figures import Bench, Figure, Outcome, exponent
from topk_bandit.preferences import sampling
from topk_bandit.preferences.models import plackett_luce
from topk_bandit.preferences.utilities import Gaussian

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from topk_bandit.preferences.answers import Orderings

    Floats = NDArray[np.float64]

__all__ = ["preference_fit"]

Found = TypeVar("Found")

N_ITEMS, WIDTH, LENGTH, RANKINGS = 100, 20, 10, 5000
GROWTH = (1250, 2500, 5000, 10_000, 20_000, 40_000, 80_000)
CHOICES, SHOWN, CHOICE_WIDTH = 100_000, 5, 50


@dataclass(frozen=True, slots=True, eq=False)
class _Rankings:
    """The mean negative log-likelihood of rankings of one length, as numpy computes it fast: one exponential an item.

    That is dope.md, Eq. 9, whose size suits the optimisers' tolerances better than the sum's.
    """

    features: Floats
    orders: NDArray[np.int64]
    won: Floats

    @classmethod
    def of(cls, features: Floats, orderings: Orderings) -> _Rankings:
        """Take the rankings' own array."""
        orders = orderings.items.reshape(orderings.n_answers, -1)
        wins = np.bincount(orders[:, :-1].ravel(), minlength=len(features))
        return cls(features, orders, features.T @ wins)

    def value(self, theta: Floats) -> float:
        """Return the mean negative log-likelihood."""
        return self._sums(theta)[0]

    def value_and_gradient(self, theta: Floats) -> tuple[float, Floats]:
        """Return the mean negative log-likelihood and its gradient."""
        value, weights, sums = self._sums(theta)
        inverses = 1.0 / sums
        inverses[:, -1] = 0.0
        expected = weights * np.cumsum(inverses, axis=1)
        counts = np.bincount(self.orders.ravel(), weights=expected.ravel(), minlength=len(self.features))
        return value, (self.features.T @ counts - self.won) / len(self.orders)

    def _sums(self, theta: Floats) -> tuple[float, Floats, Floats]:
        utilities = self.features @ theta
        largest = utilities.max()
        weights = np.exp(utilities - largest)[self.orders]
        sums = np.cumsum(weights[:, ::-1], axis=1)[:, ::-1]
        value = np.log(sums[:, :-1]).sum() + largest * sums[:, 1:].size - self.won @ theta
        return float(value) / len(self.orders), weights, sums


_OPTIMISERS = {
    "bfgs_gradient": "BFGS with gradient (what minimize chooses)",
    "lbfgs_gradient": "L-BFGS-B with gradient",
    "lbfgs": "L-BFGS-B without gradient",
}


def preference_fit(bench: Bench) -> Outcome:
    """Time fits in turns with scipy's minimize, then by the number of rankings, and one of many choices."""
    features, orderings = _rankings(RANKINGS)
    likelihood, start = _Rankings.of(features, orderings), np.zeros(WIDTH)

    def general(method: str, *, gradient: bool) -> Callable[[], tuple[float, Floats]]:
        function = likelihood.value_and_gradient if gradient else likelihood.value
        options = _TOLERANCES[method] if gradient else {}

        def work() -> tuple[float, Floats]:
            found = minimize(function, start, jac=gradient or None, method=method, options=options)
            return -float(found.fun) * RANKINGS, found.x

        return work

    def ours() -> tuple[float, Floats]:
        found = plackett_luce.fit(features, orderings)
        return found.log_likelihood, found.posterior.mean

    works = {
        "fit": ours,
        "bfgs_gradient": general("BFGS", gradient=True),
        "lbfgs_gradient": general("L-BFGS-B", gradient=True),
        "lbfgs": general("L-BFGS-B", gradient=False),
    }
    times, results = _in_turns(works, bench.scaled(30, 3), bench)
    figures = [Figure("fit", "fit", times["fit"], "ms")]
    for key, label in _OPTIMISERS.items():
        figures.append(Figure(key, label, times[key], "ms"))
        figures.append(Figure(f"{key}_ratio", f"{label}: times as long", times[key] / times["fit"]))
        gain = results["fit"][0] - results[key][0]
        figures.append(Figure(f"{key}_gain", f"{label}: log-likelihood that it misses", gain, "nats"))
    difference = np.abs(results["bfgs_gradient"][1] - results["fit"][1]).max()
    figures.append(Figure("difference", "largest difference of a weight from BFGS's", float(difference)))
    return Outcome([*figures, *_growth(bench), _choices(bench)], _SETTINGS)


# With a gradient they can come as close to the maximum as the fit does; without one, their own tolerances stay.
_TOLERANCES: dict[str, dict[str, float]] = {"BFGS": {"gtol": 1e-8}, "L-BFGS-B": {"ftol": 1e-15, "gtol": 1e-8}}

_SETTINGS: dict[str, object] = {"items": N_ITEMS, "features": WIDTH, "ranked": LENGTH, "rankings": RANKINGS}


def _growth(bench: Bench) -> list[Figure]:
    sizes = GROWTH if not bench.quick else GROWTH[:3]
    times = []
    for size in sizes:
        features, orderings = _rankings(size)
        times.append(_fastest(partial(plackett_luce.fit, features, orderings), 10))
    figures = [Figure(f"fit_{n}", f"fit, {n:,} rankings", t, "ms") for n, t in zip(sizes, times, strict=True)]
    return [*figures, Figure("exponent", "fit: exponent", exponent(sizes, times))]


def _choices(bench: Bench) -> Figure:
    rng = np.random.default_rng(3)
    features = rng.normal(size=(1000, CHOICE_WIDTH))
    lists = _lists(bench.scaled(CHOICES, CHOICES // 10), SHOWN, 1000, rng)
    chosen = sampling.draw_choices(features @ rng.normal(size=CHOICE_WIDTH) / 3.0, lists, rng=rng)
    prior = Gaussian.isotropic(CHOICE_WIDTH, variance=1.0)
    taken = _fastest(lambda: plackett_luce.fit(features, chosen, prior=prior), 3)
    label = f"fit with a prior, {len(lists):,} choices of {SHOWN} of 1,000 items, {CHOICE_WIDTH} features"
    return Figure("choices", label, taken, "ms")


def _rankings(count: int) -> tuple[Floats, Orderings]:
    rng = np.random.default_rng([1, count])
    features, theta = rng.normal(size=(N_ITEMS, WIDTH)), rng.normal(size=WIDTH) / np.sqrt(WIDTH)
    lists = _lists(count, LENGTH, N_ITEMS, rng)
    return features, sampling.draw_rankings(features @ theta, lists, rng=rng)


def _lists(count: int, length: int, n_items: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return np.array([rng.choice(n_items, length, replace=False) for _ in range(count)])


def _in_turns(
    works: dict[str, Callable[[], tuple[float, Floats]]], turns: int, bench: Bench
) -> tuple[dict[str, float], dict[str, tuple[float, Floats]]]:
    """Return the least milliseconds of each and what they found; the first turn is left out."""
    taken: dict[str, list[float]] = {key: [] for key in works}
    results: dict[str, tuple[float, Floats]] = {}
    for turn in range(turns + 1):
        for key, work in works.items():
            milliseconds, results[key] = _timed(work)
            taken[key] += [milliseconds] * (turn > 0)
        bench.report(turn, turns)
    return {key: min(some) for key, some in taken.items()}, results


def _fastest(work: Callable[[], object], repeats: int) -> float:
    return min(_timed(work)[0] for _ in range(repeats))


def _timed(work: Callable[[], Found]) -> tuple[float, Found]:
    """Return the milliseconds that this thread computes, so that other programs do not count, and the result."""
    start = time.thread_time()
    found = work()
    return (time.thread_time() - start) * 1e3, found
